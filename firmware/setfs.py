"""A set as a file system: `import` finds its modules in the one file in flash that it is.

Knows the form of a set, and what MicroPython asks of a file system to import from it. Must not
know which set runs nor how it came. Loaded only where a set from over the air comes or runs.

A set is one run of bytes: an index, then .mpy files in its order, each compressed by itself (RFC
1951, DEFLATE). A line of the index is
    PATH OFFSET
with PATH such as umqtt_min/client.mpy and OFFSET in bytes from the end of the index. Where a file
ends is in its compressed form. An import takes 4 KB of heap for as long as it reads.
"""

import os

from deflate import RAW, DeflateIO

# The window of the compressed files is 2**WBITS bytes.
WBITS = 10

_FILE = (0x8000, 0, 0, 0, 0, 0, 0, 0, 0, 0)
_FOLDER = (0x4000, 0, 0, 0, 0, 0, 0, 0, 0, 0)
_ENOENT = 2


class SetFS:
    """The modules of one set, read-only; for vfs.mount().

    path   of the set's file
    index  length of its index, bytes
    Raises OSError when the file cannot be read.
    """

    def __init__(self, path, index):
        self._path = path
        self._start = index
        with open(path, "rb") as file:
            # All there is in the heap of a set: a path is searched for with what stands around it.
            self._index = b"\n" + file.read(index)

    def mount(self, readonly, mkfs):
        """Asked by vfs.mount(); there is nothing to do."""

    def umount(self):
        """Asked by vfs.umount(); there is nothing to do."""

    def _after(self, path, end):
        # Where in the index that goes on which follows a path and `end`, -1: there is none.
        line = ("\n" + path.strip("/") + end).encode()
        at = self._index.find(line)
        return at + len(line) if at >= 0 else -1

    def stat(self, path):
        """Return what os.stat() returns of a file or a folder. Raises OSError: there is none."""
        if self._after(path, " ") >= 0:
            return _FILE
        if self._after(path, "/") >= 0:
            return _FOLDER
        raise OSError(_ENOENT)

    def open(self, path, mode):
        """Return a stream of this module's bytes. Raises OSError: there is none."""
        at = self._after(path, " ")
        if at < 0:
            raise OSError(_ENOENT)
        file = open(self._path, "rb")
        file.seek(self._start + int(self._index[at : self._index.find(b"\n", at)]))
        return DeflateIO(file, RAW, WBITS, True)

    def ilistdir(self, path):
        """Nothing: a tool that copies all files of a board has the set where it lies in flash."""
        return iter(())

    def statvfs(self, path):
        """Return what os.statvfs() says of the file system that the set lies in."""
        return os.statvfs("/")
