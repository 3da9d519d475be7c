"""FlashStore, and its medium: a raw flash region by the extended block device protocol.

Knows: readblocks/writeblocks/ioctl as esp32.Partition and rp2.Flash have them; the bounds,
which rp2.Flash does not check: a number too large there erases what lies behind the region.
Must not know: records; which segment is erased when.
"""

import sys

from ..port import const
from .journal import Journal
from .medium import Medium

_EIO = const(5)
_EINVAL = const(22)


class FlashStore(Journal):
    """A journal in a raw flash region: the recommended one.

    device, segment, first, blocks, page, once, encrypted: see FlashMedium. options: hold,
    policy, max_age, clock, messages, inbound, see Journal. Raises ValueError for a region of
    fewer than 4 segments, 5 if once or encrypted.
    """

    def __init__(self, device, segment=0, first=0, blocks=0, page=0, once=False,
                 encrypted=False, **options):
        medium = FlashMedium(device, segment, first, blocks, page, once, encrypted)
        Journal.__init__(self, medium, **options)


class FlashMedium(Medium):
    """Segments of one or more erase blocks of a block device.

    device: an object with readblocks(n, buf, off), writeblocks(n, buf, off), which programs
        without erasing, and ioctl(4) number of blocks, ioctl(5) bytes of a block,
        ioctl(6, n) erase block n [MicroPython documentation, vfs, extended interface].
    segment: bytes of a segment, a power of two and a multiple of the block size;
        0 for one block.
    first, blocks: the blocks of the device to use; blocks=0 for all from first on.
    page: smallest program, which must also be aligned to it: 1, 16 or 256 bytes; 0 for what
        the device says (attribute `page`), else 1 on esp32 and 256 elsewhere.
    once: True if no page may be programmed twice without an erase.
    encrypted: True with flash encryption: pages of 16 bytes, once; blank flash reads as noise.
    Raises ValueError for what is no block device, and for blocks that it does not have.
    """

    def __init__(self, device, segment=0, first=0, blocks=0, page=0, once=False,
                 encrypted=False):
        try:  # | is for whole numbers only; it is negative where one of them is
            wrong = (segment | first | blocks | page) < 0 or not hasattr(device, "writeblocks")
        except TypeError:
            wrong = True
        if wrong:
            from .validate import refuse_device

            refuse_device(device, segment, first, blocks, page)
        block = device.ioctl(5, 0)
        total = device.ioctl(4, 0)
        blocks = blocks or total - first
        self.size = segment or block
        if blocks < 1 or first + blocks > total or self.size % block:
            from .validate import refuse_region

            refuse_region(total, first, blocks, block)
        self._device = device
        # Two Partition objects may be the same one.
        self.where = (device.info() if hasattr(device, "info") else id(device), first)
        self.first = self._shifted = first
        self.each = self.size // block  # blocks of a segment
        self.count = blocks * block // self.size
        self.elsewhere = total > blocks or self.each > 1
        self.page = page or getattr(device, "page", 1 if sys.platform == "esp32" else 256)
        if encrypted:
            self.page = max(16, self.page)
        self.once = once or encrypted
        self.noisy = encrypted
        # Where nothing is programmed twice every mount takes a segment; the second one allows for
        # a cut in it.
        self.spare = 2 if self.once else 1

    def read(self, segment, off, buf):
        """Fill buf from the segment; off + len(buf) <= size."""
        segment = self._at(segment, off + len(buf))
        if self._device.readblocks(segment, buf, off):
            raise OSError(_EIO)

    def program(self, segment, off, view):
        """Clear the bits that are 0 in view; off and len(view) are multiples of the page."""
        segment = self._at(segment, off + len(view))
        if self._device.writeblocks(segment, view, off):
            raise OSError(_EIO)

    def erase(self, segment):
        """Set all bytes of a segment to 0xFF."""
        block = self._at(segment, 0)
        for i in range(self.each):
            if self._device.ioctl(6, block + i):
                raise OSError(_EIO)

    def _at(self, segment, end):
        """The first block of a segment. Raises OSError unless bytes up to end are in it."""
        if not 0 <= segment < self.count or end > self.size:
            raise OSError(_EINVAL)
        return self._shifted + segment * self.each

    def strays(self, inside):
        """The blocks where a segment of another region may begin. inside=False: all outside of
        this region; True: those between the beginnings of its segments."""
        end = self.count * self.each
        found = []
        for block in range(self._device.ioctl(4, 0)):
            at = block - self.first
            if (0 <= at < end) == inside and (at % self.each or not inside):
                found.append(block)
        return found

    def shift(self, block=-1):
        """Let segment 0 begin at another block, to read there; -1: at its own block again."""
        self._shifted = self.first if block < 0 else block
