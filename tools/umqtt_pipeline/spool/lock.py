"""Whether a bridge runs on a spool: the file `lock`.

Knows flock. Must not know what is written under it. A bridge holds the lock alone as long as it
runs. A reader that wants to know asks to share it, and gives it back in the same instant; a
bridge that starts just then sees that it is only shared, and asks again.
"""

import fcntl
import os
import time
from pathlib import Path

from .files import SpoolError

PATIENCE_S = 5.0  #: readers may ask again and again, but never for long


def take(folder):
    """Take the lock of the spool in `folder`; returns the file handle that holds it until it is
    closed. Raises SpoolError if a bridge has it, or if this disk gives no locks."""
    path = Path(folder, "lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    until = time.monotonic() + PATIENCE_S
    try:
        while not _has(handle, fcntl.LOCK_EX):
            if not _has(handle, fcntl.LOCK_SH) or time.monotonic() > until:
                raise SpoolError(f"{folder} is in use by another bridge")
            fcntl.flock(handle, fcntl.LOCK_UN)
            time.sleep(0.001)
    except OSError as error:
        os.close(handle)
        raise SpoolError(f"{path} cannot be locked: {error.strerror}")
    except BaseException:
        os.close(handle)
        raise
    return handle


def held(folder):
    """Whether a bridge runs on the spool in `folder`, or may run there: where that cannot be
    found out it is True. A folder that cannot be written in will do."""
    try:
        handle = os.open(Path(folder, "lock"), os.O_RDONLY)
    except FileNotFoundError:
        return False  # a copy of a spool, without it
    except OSError:
        return True
    try:
        return not _has(handle, fcntl.LOCK_SH)
    except OSError:
        return True
    finally:
        os.close(handle)


def _has(handle, how):
    """Ask for the lock, without waiting; whether it is ours now."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
