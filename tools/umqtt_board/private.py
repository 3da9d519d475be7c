"""Files that hold secrets: their owner's alone from their first byte on. Knows nothing else."""

import os
import stat
from pathlib import Path

from umqtt_board.errors import BoardError

MODE = 0o600


def create(path):
    """Open a new file for writing, bytes; one of that name that is there goes away first.

    Raises BoardError where something is that is no file: a device, a pipe, a folder."""
    _only_a_file(path)
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE), "wb")


def write(path, data):
    """Write bytes into a new file; see create(). If they cannot all be written, as on a full
    disk, the OSError names the file, and none is left."""
    file = create(path)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None


def seal(path):
    """Take a file that is there away from everybody else."""
    if path.stat().st_mode & 0o077:
        path.chmod(MODE)


def _only_a_file(path):
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise other_than(path, "file")


def other_than(path, kind):
    """The BoardError for something else that is where a file of a kind, in words, is to be."""
    return BoardError(f"{path} is there and is no {kind}. It stays as it is: give another name.")


def replace(path, data):
    """Write a file; whoever reads it meanwhile gets the old one or the new one.

    A link stays, and what it names is written. Raises BoardError, see create()."""
    path = Path(os.path.realpath(path))
    _only_a_file(path)
    if not path.parent.is_dir():
        raise BoardError(f"{path} cannot be written: there is no folder {path.parent}.")
    aside = path.with_name(f".{path.name}.new")
    write(aside, data)
    os.replace(aside, path)
