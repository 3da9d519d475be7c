"""Medium of the journal: one bytearray. Nothing survives a reset.

Knows: bytes in RAM.  Must not know: records; why something is programmed.
"""

from .bits import copy

_BLANK = b"\xff" * 64


class RAMMedium:
    """count segments of size bytes each, in one block of the heap."""

    page = 1  # any number of bytes can be programmed
    once = False
    opaque = False  # blank reads as 0xFF
    spare = 0  # no segment is kept back for recovery
    volatile = True  # and there is none
    levelled = True  # no wear
    whole = False

    def __init__(self, size, count):
        self.size = size
        self.count = count
        self._bytes = bytearray(b"\xff" * (size * count))

    def open(self):
        """Nothing to do: it is there."""

    def close(self):
        """What was stored stays until the object is collected."""

    def read(self, segment, off, buf):
        """Fill buf from the segment; off + len(buf) <= size."""
        copy(buf, 0, self._bytes, segment * self.size + off, len(buf))

    def program(self, segment, off, view):
        """Store a view's bytes."""
        copy(self._bytes, segment * self.size + off, view, 0, len(view))

    def erase(self, segment):
        """Set a segment to 0xFF."""
        at = segment * self.size
        end = at + self.size
        while at < end:
            copy(self._bytes, at, _BLANK, 0, 64)
            at += 64
