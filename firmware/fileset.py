"""The file of a set that comes onto the board: written as its bytes come, then read back.

Knows one file, and how much flash is free beside it. Must not know pieces, keys, nor which set
runs.
"""

import hashlib
import os

import loader
from umqtt_min.port import const

# Read back by so much at a time, so that the main loop goes on meanwhile.
_CHECK = const(8192)


class Refused(ValueError):
    """The update cannot be taken; str() says why."""


def remove(path):
    """Remove a file; nothing when it is not there."""
    try:
        os.remove(path)
    except OSError:
        pass


def make_folder(path):
    """Make a folder; one that is there stays."""
    try:
        os.mkdir(path)
    except OSError as error:
        if error.args[0] != 17:
            raise


def free():
    """Return the bytes that are free where the sets lie."""
    try:
        size = os.statvfs(loader.ROOT)
    except OSError:
        size = os.statvfs(loader.ROOT.rsplit("/", 1)[0] or "/")
    return size[0] * size[3]


class SetFile:
    """The file of one set.

    path  of the file
    have  bytes of it that are there already; what is written comes after them
    """

    def __init__(self, path, have):
        self._path = path
        self._file = open(path, "r+b" if have else "wb")
        self._file.seek(have)
        self._hash = None

    def write(self, data):
        """Write a memoryview."""
        if self._file.write(data) != len(data):
            raise OSError(28)

    def sync(self):
        """Make durable what was written."""
        self._file.flush()
        if hasattr(os, "fsync"):
            os.fsync(self._file.fileno())

    def close(self):
        """Close it; what was not synced may be lost."""
        try:
            self._file.close()
        except OSError:
            pass  # no room for the last of it

    def check(self):
        """Read some more of it back; return the SHA-256 when all was read, else None."""
        if self._hash is None:
            self._file.close()
            self._file = open(self._path, "rb")
            self._hash = hashlib.sha256()
        buf = bytearray(512)
        for _ in range(_CHECK // len(buf)):
            n = self._file.readinto(buf)
            if not n:
                digest, self._hash = self._hash.digest(), None
                return digest
            self._hash.update(memoryview(buf)[:n])
        return None
