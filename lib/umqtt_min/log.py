"""The log under the journal: records with a check value in segments of a medium.

Knows: segment headers, the two shapes of a record, staging into programs, reading back.
Must not know: what a record means (journal.py), how a cut is recovered from (replay.py).

The bytes are specified in STORE.md. The functions are small because MicroPython takes the
frame of a function with more than eleven words of state from the heap.
"""

from array import array

from .bits import copy, crc, get4, put4, same, start

try:
    from micropython import const
except ImportError:  # the host's tools read journals without the shim

    def const(x):  # type: ignore[misc]  # the stub has another signature
        return x


VERSION = 1
WINDOW = const(256)  # bytes of the two buffers: staging, reading
HEADER = const(44)  # bytes of a header before key and identifiers
GUARD = const(16)  # programs are padded to this: never written at the end of a segment
MAX_KEY = const(32)
NOWHERE = const(0x3FFFFFFF)

# Record types. 0xFF is blank flash.
REC = const(1)  # short: type, value(4), check(4)
DONE = const(2)
HOLD = const(3)
SENT = const(4)
CONFIRM = const(5)
IN_ADD = const(6)
IN_DEL = const(7)
TAIL = const(8)
SESSION = const(0x20)  # long: type, length(2), content(length), check(4)
SETTLE = const(0x21)
PUT = const(0x40)  # | state << 3 | qos << 1 | retain
MARK = const(0x2A)  # one byte, first of a page where a recovery began
SHORT = const(9)
LONG = const(7)  # bytes of a long record besides its content
SETTLED = const(13)  # offset of the carried record in a SETTLE record
BLANK = const(255)

EIO = const(5)


def _log2(n, what, least):
    bits = 0
    while 1 << bits < n:
        bits += 1
    if 1 << bits != n or n < least or n > 65536:
        raise ValueError("%s must be a power of two from %d to 65536, not %d" % (what, least, n))
    return bits


class Log:
    """Appends records to the head segment, reads them anywhere."""

    def __init__(self, medium, page=256):
        """medium: see FlashMedium for what it must offer. page: bytes that one program never
        crosses, so that a torn one spoils no more; a multiple of 16, 64 to 256."""
        self.medium = medium
        self._size = medium.size
        self._shift = _log2(medium.size, "the segment size", 256)
        self._page = max(page, medium.page)
        least = 3 + medium.spare
        if medium.count < least:
            raise ValueError("a journal needs %d segments, not %d" % (least, medium.count))
        self._end = self._size - (GUARD if medium.page == 1 else 0)
        self._grain = max(medium.page, GUARD)
        self._align = medium.page if medium.once else 1
        if self._page not in range(64, WINDOW + 1, GUARD):
            raise ValueError("the page must be a multiple of 16 from 64 to 256, not %d"
                             % self._page)
        kind = _log2(medium.page, "the page", 1) | (0x80 if medium.once else 0)
        self._magic = b"uMqJ" + bytes((VERSION, self._shift, self._page // GUARD, kind))
        self._buffers()
        self.programs = 0  # program operations
        self.programmed = 0  # bytes given to them
        self.erases = 0  # segments erased

    def _buffers(self):
        self._blank = bytes(b"\xff" * WINDOW)
        self._buf = bytearray(self._blank)  # what is being staged
        self._back = bytearray(WINDOW)  # what was read last
        buf = memoryview(self._buf)
        back = memoryview(self._back)
        self._views = [buf[: i * GUARD] for i in range(WINDOW // GUARD + 1)]
        self._backs = [back[: i * GUARD] for i in range(WINDOW // GUARD + 1)]
        self._tmp = bytearray(16)
        self._crc = bytearray(4)
        self._seed = bytearray(4)  # check value of the header of the segment at hand
        self._serials = array("I", [0] * self.medium.count)  # 0: not in the log
        self._bad = bytearray(self.medium.count)  # could not be erased or programmed
        self._window_seg = -1
        self._window_off = 0
        self._head = -1
        self._off = 0
        self._failed = False

    # Writing: a record is staged piece by piece; each page it touches is one program.

    def _begin(self, off):
        self._base = off - off % self.medium.page
        self._index = self._from = off - self._base
        self._limit = self._page - self._base % self._page
        self._failed = False

    def _begin_record(self, off):
        """A check value covers the header's, the offset, then the record: bytes from an
        earlier life of the segment, or inside a payload, never pass for a record."""
        tmp = self._tmp
        copy(tmp, 0, self._seed, 0, 4)
        tmp[4] = off >> 8
        tmp[5] = off & 255
        start(self._crc)
        crc(self._crc, tmp, 0, 6)
        self._begin(off)

    def _emit(self, src, off, n):
        crc(self._crc, src, off, n)
        self._stage(src, off, n)

    def _stage(self, src, off, n):
        while n > 0:
            k = self._limit - self._index
            if k > n:
                k = n
            copy(self._buf, self._index, src, off, k)
            self._index += k
            off += k
            n -= k
            if self._index == self._limit:
                self._flush()

    def _flush(self):
        n = self._index
        if n == self._from:
            return
        n = (n + self._grain - 1) // self._grain * (self._grain // GUARD)
        if not self._failed:
            self._program(n)
        copy(self._buf, 0, self._blank, 0, WINDOW)
        self._base += self._limit
        self._index = self._from = 0
        self._limit = self._page

    def _program(self, n):
        """Program n * 16 bytes, and read them back: what the flash did not take is known now."""
        self._window_seg = -1
        self.programs += 1
        self.programmed += n * GUARD
        try:
            self.medium.program(self._head, self._base, self._views[n])
            self.medium.read(self._head, self._base, self._backs[n])
        except OSError:
            self._failed = True
        n = self._index - self._from
        if not same(self._buf, self._from, self._back, self._from, n):
            self._failed = True

    def _check(self):
        """Put the check value of what was emitted into tmp[0:4]."""
        for i in range(4):
            self._tmp[i] = self._crc[3 - i] ^ 255

    def _finish(self, n):
        """End a record of n bytes, check value included; False if the flash did not take it."""
        self._check()
        self._stage(self._tmp, 0, 4)
        self._flush()
        if self._failed:
            return False
        self._off = self._up(self._off + n)
        return True

    def _up(self, off):
        return (off + self._align - 1) // self._align * self._align

    def _emit_kind(self, kind, n):
        """First bytes of a long record with n bytes of content."""
        tmp = self._tmp
        tmp[0] = kind
        tmp[1] = n >> 8
        tmp[2] = n & 255
        self._emit(tmp, 0, 3)

    def _emit4(self, value):
        put4(self._tmp, 0, value)
        self._emit(self._tmp, 0, 4)

    def _carry(self, seg, off, n):
        """Emit n bytes that are on the medium."""
        while n > 0:
            i = self._window(seg, off)
            k = min(n, WINDOW - i, self._limit - self._index)  # a flush reads into the window
            self._emit(self._back, i, k)
            off += k
            n -= k

    # Reading: through one window of 256 bytes.

    def _window(self, seg, off):
        """Index in _back of the byte at off; 16 bytes from there on are in it, too, unless
        the segment ends before."""
        i = off - self._window_off
        if seg != self._window_seg or i < 0 or i > WINDOW - GUARD:
            i = off
            if i > self._size - WINDOW:
                i = self._size - WINDOW
            self._window_seg = -1  # stays so if the read fails
            self.medium.read(seg, i, self._backs[WINDOW // GUARD])
            self._window_seg = seg
            self._window_off = i
            i = off - i
        return i

    def _extent(self, seg, off):
        """Bytes of the record that begins at off, by its type and length alone; 0 if the
        place is blank, -1 if no record begins so."""
        if off + SHORT > self._end:
            return 0
        i = self._window(seg, off)
        n = self._back[i]
        if n == BLANK:
            return 0
        if 0 < n <= TAIL:
            return SHORT
        if n != SESSION and n != SETTLE and not PUT <= n < PUT + 24:
            return -1
        n = LONG + (self._back[i + 1] << 8 | self._back[i + 2])
        return n if off + n <= self._end else -1

    def _valid(self, seg, off):
        """As _extent, and -1 if the check value is wrong. _seed must be that of seg."""
        n = self._extent(seg, off)
        if n <= 0:
            return n
        copy(self._tmp, 0, self._seed, 0, 4)
        self._tmp[4] = off >> 8
        self._tmp[5] = off & 255
        start(self._crc)
        crc(self._crc, self._tmp, 0, 6)
        return n if self._sum(seg, off, n - 4) else -1

    def _sum(self, seg, off, n):
        """Whether the n bytes at off are followed by their check value."""
        while n > 0:
            i = self._window(seg, off)
            k = min(n, WINDOW - i)
            crc(self._crc, self._back, i, k)
            off += k
            n -= k
        self._check()
        return same(self._tmp, 0, self._back, self._window(seg, off), 4)

    def _load(self, seg):
        """Read a header into _back and its check value into _seed; offset of the first
        record, 0 if this is no header of this kind of journal."""
        self._window_seg = -1
        i = self._window(seg, 0)
        back = self._back
        if not same(back, 0, self._magic, 0, 8):
            return 0
        n = HEADER + back[42] + 2 * back[43]
        if back[42] > MAX_KEY or n + 4 > WINDOW:
            return 0
        start(self._crc)
        crc(self._crc, back, 0, n)
        self._check()
        if not same(self._tmp, 0, back, n, 4):
            return 0
        for i in range(16, 40, 4):
            if get4(back, i) < 0:
                return 0
        copy(self._seed, 0, back, n, 4)
        return self._up(n + 4)
