"""A region of the virtual board's flash chip: a block device over a part of the image file.

Knows NOR flash: a program can only clear bits (it is a bitwise AND), only the
erase of a whole 4096-byte sector sets them again, and nothing is held back in
memory, so the image is at any instant what a chip would hold. Speaks the block
protocol of `esp32.Partition`. Knows nothing of filesystems, journals or boards.
"""

from errno import EINVAL

SECTOR = 4096
PAGE = 256  # a program goes to the file page by page: a cut can fall between two pages


class Region:
    """`sectors` sectors of an open image file, starting `start` bytes into it.

    `file` is open for reading and writing without a buffer. `programs`,
    `programmed` (bytes) and `erases` count since the interpreter was started.
    Reading and programming allocate nothing.
    """

    def __init__(self, file, start, sectors):
        self.file = file
        self.start = start
        self.size = sectors * SECTOR
        self.programs = 0
        self.programmed = 0
        self.erases = 0
        self.before = None  # called before each page is programmed and each sector is erased
        self._page = bytearray(PAGE)
        self._blank = bytes(b"\xff" * (4 * PAGE))

    def _at(self, block, offset, length):
        """Position in the file of a range that lies wholly inside the region."""
        position = block * SECTOR + offset
        if block < 0 or offset < 0 or position + length > self.size:
            raise OSError(EINVAL)
        return self.start + position

    def readblocks(self, block, buf, offset=0):
        """Fill `buf` from sector `block`, `offset` bytes into it."""
        self.file.seek(self._at(block, offset, len(buf)))
        self.file.readinto(buf)

    def writeblocks(self, block, buf, offset=None):
        """Program `buf`; the sectors are erased first unless there is an offset, be it 0."""
        if offset is None:
            offset = 0
            for sector in range(block, block + (len(buf) + SECTOR - 1) // SECTOR):
                self._erase(sector)
        self._program(self._at(block, offset, len(buf)), buf)

    def _program(self, position, buf):
        done = 0
        self.programs += 1
        self.programmed += len(buf)
        while done < len(buf):
            count = min(len(buf) - done, PAGE - (position + done) % PAGE)
            self._program_page(position + done, buf, done, count)
            done += count

    def _program_page(self, position, buf, done, count):
        if self.before:
            self.before()
        page = self._page
        file = self.file
        file.seek(position)
        file.readinto(page, count)
        for i in range(count):
            page[i] &= buf[done + i]
        file.seek(position)
        file.write(page, count)

    def _erase(self, block):
        if self.before:
            self.before()
        self.file.seek(self._at(block, 0, SECTOR))
        self.erases += 1
        for _ in range(SECTOR // len(self._blank)):
            self.file.write(self._blank)

    def ioctl(self, op, arg):
        """Operations 4 (number of sectors), 5 (bytes in one) and 6 (erase one); others succeed."""
        if op == 4:
            return self.size // SECTOR
        if op == 5:
            return SECTOR
        if op == 6:
            self._erase(arg)
        return 0
