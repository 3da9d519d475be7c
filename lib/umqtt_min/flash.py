"""FlashStore, and its medium: a raw flash region by the extended block device protocol.

Knows: readblocks/writeblocks/ioctl as esp32.Partition and rp2.Flash have them; the bounds,
which rp2.Flash does not check: a number too large there erases what lies behind the region.
Must not know: records; which segment is erased when.
"""

import sys

from micropython import const

from .journal import Journal

_EIO = const(5)
_EINVAL = const(22)


def FlashStore(device, segment=0, first=0, blocks=0, page=0, once=False, encrypted=False,
               **options):
    """A journal in a raw flash region: the recommended one.

    device, segment, first, blocks, page, once, encrypted: see FlashMedium. options: hold,
    policy, max_age, clock, window, inbound, see Journal. Raises ValueError for a region of
    fewer than 4 segments, 5 if once or encrypted.
    """
    if not hasattr(device, "writeblocks"):
        from .sizes import refuse_medium

        refuse_medium(device)
    return Journal(FlashMedium(device, segment, first, blocks, page, once, encrypted), **options)


class FlashMedium:
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
    """

    levelled = False  # segments are used in turn, so that all wear alike
    whole = False

    def __init__(self, device, segment=0, first=0, blocks=0, page=0, once=False,
                 encrypted=False):
        self._device = device
        self._block = device.ioctl(5, 0)
        total = device.ioctl(4, 0)
        self._first = first
        blocks = blocks or total - first
        self.size = segment or self._block
        if first < 0 or blocks < 1 or first + blocks > total or self.size % self._block:
            from .sizes import refuse_region

            refuse_region(total, first, blocks, self._block)
        self.count = blocks * self._block // self.size
        self.page = page or getattr(device, "page", 1 if sys.platform == "esp32" else 256)
        if encrypted:
            self.page = max(16, self.page)
        self.once = once or encrypted
        self.opaque = encrypted  # blank flash cannot be told from other
        # Segments kept back for recovery. Where nothing is programmed twice every mount takes
        # one; the second allows for a cut in it.
        self.spare = 2 if self.once else 1

    def open(self):
        """Nothing to do: a block device is open."""

    def close(self):
        """Nothing to do."""

    def read(self, segment, off, buf):
        """Fill buf from the segment; off + len(buf) <= size."""
        self._bounds(segment, off + len(buf))
        if self._device.readblocks(self._at(segment), buf, off):
            raise OSError(_EIO)

    def program(self, segment, off, view):
        """Clear the bits that are 0 in view; off and len(view) are multiples of the page."""
        self._bounds(segment, off + len(view))
        if self.page > 1 and (off % self.page or len(view) % self.page):
            raise OSError(_EINVAL)
        if self._device.writeblocks(self._at(segment), view, off):
            raise OSError(_EIO)

    def erase(self, segment):
        """Set all bytes of a segment to 0xFF."""
        self._bounds(segment, 0)
        block = self._at(segment)
        for i in range(self.size // self._block):
            if self._device.ioctl(6, block + i):
                raise OSError(_EIO)

    def _at(self, segment):
        return self._first + segment * (self.size // self._block)

    def _bounds(self, segment, end):
        if not 0 <= segment < self.count or end > self.size:
            raise OSError(_EINVAL)
