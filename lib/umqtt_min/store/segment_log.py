"""The log under the journal: records with a check value, in segments of a medium.

Knows: staging records into programs, reading back, the headers of segments, which is next.
Must not know: what a record means (journal.py), how a cut is recovered from (recovery.py).

The bytes are specified in JOURNAL.md. The functions are small because MicroPython takes the
frame of a function with more than eleven words of state from the heap. A place is a number:
segment * segment size + offset.
"""

from array import array
from struct import pack_into

from ..port import const
from . import StoreFull, give_back, opened
from .crc32 import copy, crc32, same

give_back("crc32")  # the source text of its loops

_TYPING = const(0)  # see client.py

_BUFFER = const(256)  # bytes of the two buffers: staging, reading
# This far into that of reading, and no further, a record's head is in it, too. Programs are padded
# to it: at the end of a segment so many bytes stay free.
_GUARD = const(16)
_VERSION = const(1)
_HEADER = const(44)  # bytes of a header before key and identifiers
_SETTLE = const(0x21)
_SHORT = const(9)  # bytes of a short record
_LONG = const(7)  # bytes of a long record besides its content
_NOWHERE = const(0x3FFFFFFF)
_SEED = const(16)  # in _tmp: a CRC that has begun with the check value of the head's header
_BAD = const(0x3FFFFFFF)  # in place of a serial: could not be erased or programmed
_EIO = const(5)
_EBADF = const(9)
_FULL = const(2)  # failed for want of room in a file system


class SegmentLog:
    """Appends records to the head segment, reads them anywhere.

    medium: a Medium. chunk: bytes that one program never crosses.
    Raises ValueError for a medium whose sizes do not fit.
    """

    if _TYPING:  # journal.py and index.py give them their values
        seq = sent = 0
        _inbound = bytearray()

    def __init__(self, medium, chunk):
        size = medium.size
        self.medium = medium
        self._chunk = chunk = max(chunk or medium.chunk, medium.page)
        kind = 0
        while 1 << kind < medium.page:
            kind += 1
        self._shift = 8
        while 1 << self._shift < size:
            self._shift += 1
        if (1 << self._shift != size or size > 65536 or 1 << kind != medium.page
                or medium.count < 3 + medium.spare
                or chunk not in range(64, _BUFFER + 1, _GUARD)):
            from .validate import refuse_medium

            refuse_medium(medium, chunk)
        # What is asked for with each record: one look-up less each.
        self._size = size
        self._unit = medium.page
        self._spare = medium.spare
        # Where records end; what programs are padded to; what records begin at a multiple of.
        self._end = size - (_GUARD if medium.page == 1 else 0)
        self._grain = max(medium.page, _GUARD)
        self._align = medium.page if medium.once else 1
        if medium.once:
            kind |= 0x80
        self._magic = b"uMqJ" + bytes((_VERSION, self._shift, chunk // _GUARD, kind))
        self._buf = bytearray(b"\xff" * _BUFFER)  # what is being staged
        self._back = bytearray(_BUFFER)  # what was read last
        grains = range(0, _BUFFER + 1, self._grain)
        view = memoryview(self._buf)
        self._views = [view[:i] for i in grains]
        view = memoryview(self._back)
        self._backs = [view[:i] for i in grains]
        self._tmp = bytearray(_SEED + 4)
        self._crc = bytearray(4)
        self._serials = array("I", bytes(4 * medium.count))  # of each segment, 0: not in the log
        self.epoch = self.key = b""
        self.programs = self.programmed = self.erases = 0  # operations, bytes, segments
        self.boot = 0

    def _clear(self):
        """Forget the content of the medium."""
        self.last_pid = self.confirmed = 0
        self._count = 0  # incoming identifiers
        self._serial = self._tail = self._off = 0
        self._head = -1
        self._seen = _NOWHERE  # the place of the first byte of _back
        self._filled = 0  # bytes of messages in the head, live or not
        self._short = 0  # 1: fewer segments are free than should be, -1: that is being changed
        self._failed = 0

    # Writing: a record is staged piece by piece; each chunk it touches is one program.

    def _begin(self, off):
        """Begin a record at that offset of the head. A check value covers the header's, the
        offset, then the record: bytes from an earlier life of the segment, or inside a payload,
        never pass for a record."""
        if opened.get(self.medium.where, self.boot) != self.boot:
            raise OSError(_EBADF, "another store was opened at the place of this one")
        copy(self._crc, 0, self._tmp, _SEED, 4)
        pack_into(">H", self._tmp, 0, off)
        crc32(self._crc, self._tmp, 0, 2)
        self._base = off - off % self._unit
        self._index = self._from = off - self._base
        self._limit = self._chunk - self._base % self._chunk
        self._failed = 0

    def _emit(self, src, off, n):
        """Add n bytes of src to the record."""
        crc32(self._crc, src, off, n)
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
        if not self._failed:
            self._program((n + self._grain - 1) // self._grain)
        self._buf[0] = 255
        copy(self._buf, 1, self._buf, 0, _BUFFER - 1)
        self._base += self._limit
        self._index = self._from = 0
        self._limit = self._chunk

    def _program(self, k):
        """Program k grains, and read them back to see whether the flash took them. Erases a
        segment just before it programs the header."""
        self._seen = _NOWHERE
        self.programs += 1
        self.programmed += k * self._grain
        try:
            if self._off + self._base == 0:  # a header's first chunk
                self.erases += 1
                self.medium.erase(self._head)
            self.medium.program(self._head, self._base, self._views[k])
            self.medium.read(self._head, self._base, self._backs[k])
        except StoreFull:
            self._failed = _FULL
            return
        except OSError:
            self._failed = 1
        k = self._index - self._from
        if not same(self._buf, self._from, self._back, self._from, k):
            self._failed = 1

    def _finish(self, n):
        """End a record of n bytes, check value included; False if the flash did not take it."""
        copy(self._tmp, 0, self._crc, 0, 4)
        self._emit(self._tmp, 0, 4)
        self._flush()
        if self._failed:
            if self._off:  # behind a header: nothing is changed yet
                self._no_room()
            return False
        self._off = self._up(self._off + n)
        return True

    def _no_room(self):
        # The file system had no room: that is no fault of the segment.
        if self._failed == _FULL:
            raise StoreFull("the file system is full: remove other files")

    def _up(self, off):
        return (off + self._align - 1) // self._align * self._align

    def _carry(self, place, n):
        """Emit n bytes that are on the medium."""
        while n > 0:
            i = self._in_back(place)
            k = min(n, _BUFFER - i, self._limit - self._index)  # a flush reads into it
            self._emit(self._back, i, k)
            place += k
            n -= k

    # Reading: through one buffer of 256 bytes.

    def _in_back(self, place):
        """Index in _back of the byte at a place; 16 bytes from there on are in it, too, unless
        the segment ends before."""
        i = place - self._seen
        if i < 0 or i > _BUFFER - _GUARD:
            i = min(place & self._size - 1, self._size - _BUFFER)
            self._seen = _NOWHERE  # stays so if the read fails
            self.medium.read(place >> self._shift, i, self._backs[-1])
            self._seen = (place >> self._shift << self._shift) + i
            i = place - self._seen
        return i

    def _word(self, place):
        """The two bytes at a place."""
        place = self._in_back(place)
        return self._back[place] << 8 | self._back[place + 1]

    # Segments: opened in turn.

    def _free(self):
        """How many segments are free."""
        n = 0
        for serial in self._serials:
            n += not serial
        return n

    def _oldest(self, serial):
        """The segment with the smallest serial above that one."""
        best = _BAD
        seg = self._head
        for i in range(self.medium.count):
            if serial < self._serials[i] < best:
                best = self._serials[i]
                seg = i
        return seg

    def _open_next(self):
        """Write the header of the next free segment. False if there is none; a segment
        that does not take it is not tried again before the next mount."""
        head = self._head
        off = self._off
        seg = -1 if self.medium.self_levelling else head
        for _ in range(self.medium.count):
            seg = (seg + 1) % self.medium.count
            if not self._serials[seg]:
                self._serial += 1
                self._head = seg
                self._off = 0
                if self._header(self._tmp):
                    return True
                self._head = head
                self._off = off
                self._no_room()
                self._serials[seg] = _BAD
        return False

    def _header(self, tmp):
        """The header proves that the erase was complete, and repeats all state that is not
        in messages."""
        self._begin(0)
        pack_into(">I", self._crc, 0, 0)
        self._emit(self._magic, 0, 8)
        self._emit(self.epoch, 0, 8)
        pack_into(">III", tmp, 0, self._serial, self._tail or self._serial, self.boot)
        self._emit(tmp, 0, 12)
        pack_into(">III", tmp, 0, self.seq, self.sent, self.confirmed)
        self._emit(tmp, 0, 12)
        n = len(self.key)
        pack_into(">HBB", tmp, 0, self.last_pid, n, self._count)
        self._emit(tmp, 0, 4)
        self._emit(self.key, 0, n)
        self._emit(self._inbound, 0, 2 * self._count)
        if not self._finish(_HEADER + n + 2 * self._count + 4):
            return False
        self._seed(tmp, 0)
        self._serials[self._head] = self._serial
        self._filled = 0
        self._short |= self.medium.self_levelling or self._free() <= self._spare
        return True

    def _seed(self, buf, off):
        # The check value of the header of the segment at hand is there.
        pack_into(">I", self._crc, 0, 0)
        crc32(self._crc, buf, off, 4)
        copy(self._tmp, _SEED, self._crc, 0, 4)

    def _abandon(self):
        """The flash did not take a record: nothing more goes into this segment."""
        serial = self._serial
        off = self._off
        while True:
            if not self._open_next():
                raise OSError(_EIO, "no segment takes what is programmed")
            self._void(serial, off, 0)
            if self._finish(_LONG + 10):
                return

    def _void(self, serial, off, n):
        """Begin a SETTLE record: the records between that place and here do not count, except
        n bytes of one that the caller carries over."""
        self._begin(self._off)
        pack_into(">BHI", self._tmp, 0, _SETTLE, 10 + n, serial)
        pack_into(">HI", self._tmp, 7, off, self.boot)
        self._emit(self._tmp, 0, 13)
