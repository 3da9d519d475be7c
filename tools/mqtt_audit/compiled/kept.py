"""Where the compiled loops are kept, and whether a run has them compiled at all.

Knows: folders, locks, sizes of captures. Must not know: numba, what a loop does.

numba looks at a function's own file only to decide whether the code that it kept is still right,
not at the files of the functions called. So the folder's name has a digest of all modules that
have such functions.
"""

import fcntl
import hashlib
import os
import shutil
import time
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
#: Bytes of captures that Python works through sooner than numba has compiled the loops.
PLAIN = 512 << 10
#: Loops of another version, in a folder that several installations share, are removed after that.
UNUSED_S = 30 * 86_400
WAIT_S, LOOK_S = 900, 0.1

_plain = False


def _sources():
    """{path: content} of the modules whose change makes kept code wrong."""
    every = {path: path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    return {path: content for path, content in every.items()
            if path.name in ("layout.py", "jit.py", "order.py", "limits.py")  # loops hold these
            or b"jit import" in content and path != Path(__file__).resolve()}  # fmt: skip


def _digest():
    found = hashlib.sha256(version("numba").encode())
    for content in _sources().values():
        found.update(content)
    return found.hexdigest()[:16]


def folder():
    """The folder of the compiled loops: the one that NUMBA_CACHE_DIR names, else one beside the
    modules if one may write there, else one in the user's own cache; None if there is none."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mqtt_audit")
    for root in [Path(named)] if named else [PACKAGE / "__pycache__", cache]:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root / f"kernels-{_digest()}"
    return None


def _mark():
    found = folder()
    return found and found / "whole"


@contextmanager
def alone(wait):
    """Keep other processes from compiling the loops as long as this lasts; they find them compiled
    then. wait: called if another one compiles them now, and this one waits for its end; after
    WAIT_S, or on a disk without locks, it goes on all the same."""
    place = folder()
    if place is None:
        yield
        return
    try:
        place.mkdir(exist_ok=True)
        handle = open(place / "lock", "wb")
    except OSError:  # another user's: whoever cannot write there waits for nobody
        yield
        return
    with handle:
        if not _locked(handle):
            wait()
            until = time.monotonic() + WAIT_S
            while not _locked(handle) and time.monotonic() < until:
                time.sleep(LOOK_S)
        yield


def _locked(handle):
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # there are no locks
    return True


def keep():
    """All loops are compiled and kept: later runs have them. Those of other versions go: beside
    the modules at once, in a folder that others share if none has used them for UNUSED_S."""
    mark = _mark()
    if not mark:
        return
    try:
        mark.touch()
    except OSError:  # another user's
        return
    root, now = mark.parents[1], time.time()
    for other in root.glob("kernels-*"):
        with suppress(OSError):  # another process has removed it
            if other != mark.parent and not _in_use(other) and (
                    root.parent == PACKAGE or now - _used(other) > UNUSED_S):  # fmt: skip
                shutil.rmtree(other)


def _in_use(place):
    """Whether another process compiles loops there now."""
    lock = place / "lock"
    if not lock.exists():
        return False
    with open(lock, "rb") as handle:
        return not _locked(handle)


def _used(place):
    """When loops were last used, in seconds since 1970."""
    mark = place / "whole"
    return (mark if mark.exists() else place).stat().st_mtime


def compiled():
    """Whether an earlier run has compiled all loops, and numba takes them: it does not if a module
    is newer, be its content the same."""
    mark = _mark()
    return bool(mark) and mark.exists() and mark.stat().st_mtime >= _newest()


def loops():
    """How many loops are compiled and kept, by this run or by one before it that was ended."""
    place = folder()
    kept = place.rglob("*.nbi") if place else ()
    since = _newest()
    return sum(path.stat().st_mtime >= since for path in kept)


def _newest():
    return max(path.stat().st_mtime for path in _sources())


def choose(size):
    """Decide for captures of so many bytes, before the loops are imported: Python runs these if
    there is little to do and no earlier run has compiled them."""
    global _plain
    _plain = size <= PLAIN and not compiled()


def plain():
    """Whether Python runs the loops as they are."""
    return _plain
