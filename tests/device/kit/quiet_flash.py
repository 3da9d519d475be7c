"""A block device that allocates nothing: for measuring what a journal allocates.

Knows: the extended block device protocol, AND on program.  Must not know: power cuts (nor.py).
"""

from umqtt_min.store.segment_log import copy


class Flash:
    """blocks of block bytes; page: program unit."""

    def __init__(self, page, blocks=6, block=1024):
        self.page = page
        self._block = block
        self._blocks = blocks
        self._data = bytearray(b"\xff" * (block * blocks))

    def ioctl(self, op, arg):
        if op == 4:
            return self._blocks
        if op == 5:
            return self._block
        arg *= self._block
        op = arg + self._block
        while arg < op:
            self._data[arg] = 255
            arg += 1
        return 0

    def readblocks(self, n, buf, off):
        copy(buf, 0, self._data, n * self._block + off, len(buf))
        return 0

    def writeblocks(self, n, buf, off):
        n = n * self._block + off
        off = len(buf)
        while off:
            off -= 1
            self._data[n + off] &= buf[off]
        return 0
