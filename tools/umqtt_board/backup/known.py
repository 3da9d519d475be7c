"""Which files of a board a copy holds, and how one is read: a board says what it likes, and a copy
may have been changed by whoever had it in hand.

Knows: the names that the firmware gives to its own files. Must not know: what is in them.
"""

import os
import re
import stat
from pathlib import Path

from umqtt_board.ota import counters
from umqtt_board.settings import settings_file

OWN = (settings_file.PATH, counters.STATE)
STORE = "/mqtt"  # the FileStore's folder
LARGEST = 16 << 20  # no file of a board is larger
# lib/umqtt_min/store/files.py: segments, whole or cut into pieces
_STORED = re.compile(rf"{STORE}/(?:[0-9]{{3}}\.log|[0-9]{{1,5}}\.[0-9]{{1,5}})")


class Strange(ValueError):
    """A name or a file that no copy has; the text says which."""


def is_known(path):
    """Whether a path on the board, of whatever type, is that of a file that a copy holds."""
    return isinstance(path, str) and (path in OWN or bool(_STORED.fullmatch(path)))


def content(folder, name):
    """Return the bytes of the file `name` of a copy, a relative path without "..".

    Raises Strange for what is no plain file inside the folder, OSError.
    """
    path = Path(folder)
    for part in Path(name).parts:
        path = path / part
        if path.is_symlink():
            raise Strange(f"{name} is a link")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise Strange(f"{name} is no file of a board")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
