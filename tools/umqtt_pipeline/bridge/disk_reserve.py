"""Room on the spool's disk that is kept for making room.

Knows one file of a given size. Must not know what the room is for. A disk that is full to the last
byte stays full: where a reader has got to, and the marks, have to be written before a segment may
be deleted. So the bridge keeps a file, gives it up when the disk takes nothing more, and takes
no message until there is room for it again.
"""

import os
from pathlib import Path

from ..spool.writer import SpoolFull, refused

LEAST = 1 << 20  #: bytes


class Reserve:
    """The file `reserve` in a folder; `size` bytes, may be raised at any time."""

    def __init__(self, folder, size=LEAST):
        self.path = Path(folder, "reserve")
        self.size = size
        self._held = 0

    def take(self):
        """Have the file in its whole size. Raises SpoolFull, and then has none of it; SpoolError
        for any other error of the disk."""
        if self._held >= self.size:
            return
        handle = None
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            os.posix_fallocate(handle, 0, self.size)  # a sparse file would keep nothing
        except OSError as error:
            said = refused(self.path, error)
            if isinstance(said, SpoolFull):
                self.give()
                said = SpoolFull(f"{said}; {self.size} bytes are kept in reserve")
            raise said
        finally:
            if handle is not None:
                os.close(handle)
        self._held = self.size

    def give(self):
        """Give the room back to the disk. Raises SpoolError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise refused(self.path, error)
        self._held = 0
