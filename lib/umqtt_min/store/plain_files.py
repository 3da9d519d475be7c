"""PlainFiles: one file per segment, programmed in place: host file systems and FAT.

Knows: how to make a file durable.  Must not know: records; when a segment is made (files.py).
"""

import os

from ..port import const
from .files import BLANK, Files, exists, fill, raise_if_full, sync_folder

_ENOENT = const(2)


class PlainFiles(Files):
    """Segment n is the file `n.log`, three digits, overwritten in place."""

    other = "/0.0"

    def __init__(self, folder, size, count):
        Files.__init__(self, folder, size, count)
        self.bulk = self.file_size = size
        self._file = None
        self._segment = -1

    def _find(self):
        for segment in range(self.count):
            if exists(self.name(segment)):
                self.made = segment + 1

    def close(self):
        """Close the file at hand."""
        file = self._file
        self._file = None
        self._segment = -1
        if file:
            try:
                file.close()
            except OSError:
                pass  # what it could not write was said then

    def read(self, segment, off, buf):
        """Fill buf from the segment; a file that is missing or short reads as blank."""
        try:
            file = self._at(segment, "r+b")
            file.seek(off)
            n = file.readinto(buf)
        except OSError as e:
            if e.errno != _ENOENT:
                raise
            n = 0
        fill(buf, n, len(buf))

    def program(self, segment, off, view):
        """Write a view's bytes, durable when it returns."""
        file = self._at(segment, "r+b")
        n = len(view)
        while n and view[n - 1] == 255:  # padding: on flash it changes nothing either
            n -= 1
        if n < len(view):
            view = view[:n]
        try:
            file.seek(off)
            file.write(view)
            self._sync(file)
        except OSError as e:
            self._segment = -1  # a host's file would try again with every call
            raise_if_full(e)
            raise

    def erase(self, segment):
        """Make the segment's file, all 0xFF."""
        try:
            file = self._at(segment, "r+b")
        except OSError:
            file = self._at(segment, "w+b")
        file.seek(0)
        for _ in range(self.size // 256):
            file.write(BLANK)
        self._sync(file)
        sync_folder(self.folder)

    make = erase

    def name(self, segment, number=0):
        """Path of a segment's file; number: there is one only."""
        return "%s/%03d.log" % (self.folder, segment)

    def _at(self, segment, mode):
        if segment != self._segment:
            self.close()
            self._file = open(self.name(segment), mode)
            self._segment = segment
        return self._file

    def _sync(self, file):
        """Make what was written to an open file durable."""
        file.flush()  # MicroPython: syncs on littlefs and on the unix port's POSIX files
        if hasattr(os, "fsync"):
            os.fsync(file.fileno())
