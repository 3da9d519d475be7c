"""FlashStore, and its medium: a raw flash region by the extended block device protocol.

Knows: readblocks/writeblocks/ioctl as esp32.Partition and rp2.Flash have them; the bounds,
which rp2.Flash does not check: a number too large there erases what lies behind the region.
Must not know: records; which segment is erased when.
"""

from ..port import const
from .journal import Journal
from .medium import Medium

_TYPING = const(0)  # see client.py
_EIO = const(5)
_EINVAL = const(22)


class FlashStore(Journal):
    """A journal in a raw flash region: the recommended one.

    device, segment, first, blocks, page, once, encrypted: see FlashMedium. options: hold,
    policy, max_age, clock, window, inbound, see Journal. Raises ValueError for a region of
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

    if _TYPING:
        size = count = page = spare = _each = others = 0

    def __init__(self, device, segment=0, first=0, blocks=0, page=0, once=False,
                 encrypted=False):
        from .setup import region

        self._device = device
        self._first = first
        self.once = once or encrypted
        self.noisy = encrypted  # blank flash cannot be told from other
        region(self, device, segment, blocks, page)

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
        for i in range(self._each):
            if self._device.ioctl(6, block + i):
                raise OSError(_EIO)

    def _at(self, segment, end):
        """The first block of a segment, of which bytes up to end are to be touched."""
        if not 0 <= segment < self.count or end > self.size:
            raise OSError(_EINVAL)
        return self._first + segment * self._each
