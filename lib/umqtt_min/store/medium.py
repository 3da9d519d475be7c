"""Medium: the interface to the place where a journal keeps its bytes. A new medium is one class in
a file of its own; STORE.md shows one.

Knows: the contract.  Must not know: records; any medium.

tests/device/kit/store_kit.py checks any medium against it, yours as well.
"""


class Medium:
    """`count` segments of `size` bytes. A segment is erased as a whole, then programmed.

    size: bytes of a segment, a power of two, 256 to 65536.
    count: how many segments there are, 3 + spare at least.
    Each method may raise OSError. If program() or erase() does, the journal goes on in another
    segment.
    """

    size: int
    count: int
    page = 1  # bytes: a program begins at a multiple of it and has a multiple of it, 1 to 256
    chunk = 256  # bytes: no program but its padding crosses a multiple of it; 64, 80, ... 256
    once = False  # True: no page may be programmed twice without an erase
    noisy = False  # True: what is erased does not read as 0xFF
    spare = 1  # segments that are kept back for a recovery: 2 with once
    self_levelling = False  # True: it spreads wear itself; few segments are better than all
    whole = False  # True: a record should not be cut at a multiple of chunk
    growing = False  # True: segments are made one by one: begin(), add(), made (files.py)
    elsewhere = False  # True: a segment may begin elsewhere, too: strays(), shift() (flash.py)
    # Hashable, the same for all media of the same bytes, as a path; None: not known.
    where = None  # type: object

    def open(self):
        """Called before each mount. Raises ValueError if the content needs other arguments."""

    def close(self):
        """Release open files and the like. open() may follow."""

    def read(self, segment, off, buf):
        """Fill buf with the bytes from `off` on; off + len(buf) <= size."""
        raise NotImplementedError

    def program(self, segment, off, view):
        """Write the bytes of view at `off`; durable on return. A byte 0xFF in view leaves the old
        byte unchanged: view is padded with it, and something may be there already. With page=1
        such padding is at the end alone; each byte before it is written where the old one is
        blank, or the same. A power cut may stop it at any byte. view is valid until it returns.

        Raises StoreFull if a file system has no room for it.
        """
        raise NotImplementedError

    def erase(self, segment):
        """Make all bytes 0xFF. It need not be durable before the next program() of the segment."""
        raise NotImplementedError
