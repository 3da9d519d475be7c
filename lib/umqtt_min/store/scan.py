"""Scan: finds the segments of the log and the valid records.

Knows: headers, lengths and check values of records.
Must not know: what a record means, in which order they count (replay.py).
"""

from struct import pack_into

from ..port import const
from .segment_log import crc32, same

_BUFFER = const(256)  # as in segment_log.py
_NOWHERE = const(0x3FFFFFFF)
_HEADER = const(44)
_MAX_KEY = const(32)
# Record types and lengths: JOURNAL.md.
_TAIL = const(8)  # the last of the short ones
_SESSION = const(0x20)
_SETTLE = const(0x21)
_PUT = const(0x40)
_BLANK = const(255)
_SHORT = const(9)
_LONG = const(7)


def get4(buf, off):
    """Four bytes as a number; -1 if it is not below 2**30 (a 32-bit port would allocate)."""
    if buf[off] & 0xC0:
        return -1
    return ((buf[off] << 8 | buf[off + 1]) << 8 | buf[off + 2]) << 8 | buf[off + 3]


class Scan:
    """Reads the medium of a journal."""

    def __init__(self, journal):
        self.j = journal
        self.husks = []  # segments with a header above the log's, and nothing valid behind it

    # Which segments are in the log.

    def scan(self):
        """Fill the table of serial numbers: segments with a header and a valid record."""
        j = self.j
        newest = 0
        husks = []
        for seg in range(j.medium.count):
            j._serials[seg] = 0
            serial = self._probe(seg)
            j._serial = max(j._serial, abs(serial))
            if serial < 0:
                husks.append((-serial, seg))
            elif serial > newest:
                newest = serial
                j.epoch = bytes(j._back[8:16]) if self.load(seg) else b""
        tail = self._strangers()
        for seg in range(j.medium.count):
            if j._serials[seg] < tail:
                j._serials[seg] = 0
        for serial, seg in husks:
            if serial > newest:
                self.husks.append(seg)

    def _probe(self, seg):
        """Serial of a segment; 0 without a header, negative without a valid record."""
        j = self.j
        try:
            off = self.load(seg)
            if not off:
                j.skipped += self._litter(seg)
                return 0
            serial = get4(j._back, 16)
            if self.valid(seg, off) > 0 or self.resync(seg, off, j._end) < j._end:
                j._serials[seg] = serial
                return serial
        except OSError:
            j.skipped += j.medium.size
            return 0
        return -serial

    def _strangers(self):
        """Forget segments of another epoch; the highest tail that a header names."""
        j = self.j
        tail = 0
        for seg in range(j.medium.count):
            if j._serials[seg]:
                self.load(seg)
                if bytes(j._back[8:16]) == j.epoch:
                    tail = max(tail, get4(j._back, 20))
                else:
                    j._serials[seg] = 0
        return tail

    def _litter(self, seg):
        """How many bytes of a segment are not blank."""
        j = self.j
        count = 0
        if j.medium.noisy:
            return 0
        for off in range(0, j.medium.size, _BUFFER):
            j._seen = _NOWHERE
            self.at(seg, off)
            for byte in j._back:
                count += byte != _BLANK
        return count

    # Bytes.

    def at(self, seg, off):
        """Index in _back of a byte, as the journal's _in_back()."""
        j = self.j
        return j._in_back((seg << j._shift) + off)

    def byte(self, seg, off):
        """The byte there."""
        return self.j._back[self.at(seg, off)]

    def last(self, seg):
        """Offset behind the last byte that is not blank."""
        j = self.j
        off = j.medium.size
        while off > 0:
            j._seen = _NOWHERE
            self.at(seg, off - _BUFFER)
            if j._back[0] != _BLANK or not same(j._back, 0, j._back, 1, _BUFFER - 1):
                break
            off -= _BUFFER
        i = _BUFFER
        while off > 0 and j._back[i - 1] == _BLANK:
            off -= 1
            i -= 1
        return off

    # Headers and records.

    def load(self, seg):
        """Read a header into _back and its check value into _seed; offset of the first
        record, 0 if this is no header of this kind of journal."""
        j = self.j
        back = j._back
        j._seen = _NOWHERE
        self.at(seg, 0)
        if not same(back, 0, j._magic, 0, 8):
            return 0
        n = _HEADER + back[42] + 2 * back[43]
        if back[42] > _MAX_KEY or n + 4 > _BUFFER:
            return 0
        pack_into(">I", j._crc, 0, 0)
        crc32(j._crc, back, 0, n)
        if not same(j._crc, 0, back, n, 4):
            return 0
        for i in range(16, 40, 4):
            if get4(back, i) < 0:
                return 0
        j._seed(back, n)
        return j._up(n + 4)

    def extent(self, seg, off):
        """Bytes of the record that begins at off, by its type and length alone; 0 if the
        place is blank, -1 if no record begins so."""
        j = self.j
        if off + _SHORT > j._end:
            return 0
        i = self.at(seg, off)
        n = j._back[i]
        if n == _BLANK:
            return 0
        if 0 < n <= _TAIL:
            return _SHORT
        if n != _SESSION and n != _SETTLE and not _PUT <= n < _PUT + 24:
            return -1
        n = _LONG + (j._back[i + 1] << 8 | j._back[i + 2])
        return n if off + n <= j._end else -1

    def valid(self, seg, off):
        """As extent(), and -1 if the check value is wrong. The header of seg was the last to be
        loaded."""
        n = self.extent(seg, off)
        if n <= 0:
            return n
        j = self.j
        j._begin(off)
        place = (seg << j._shift) + off
        end = place + n - 4
        while place < end:
            i = j._in_back(place)
            k = min(end - place, _BUFFER - i)
            crc32(j._crc, j._back, i, k)
            place += k
        return n if same(j._crc, 0, j._back, j._in_back(end), 4) else -1

    def resync(self, seg, off, limit):
        """The next place from off on where a valid record begins, limit if there is none."""
        j = self.j
        last = self.last(seg)
        off = j._up(off)
        while off < limit and off < last:
            if self.valid(seg, off) > 0:
                return off
            off += j._align
        return limit

    def settles(self, seg, off):
        """Whether a valid SETTLE record begins there."""
        j = self.j
        if off >= j._end or self.byte(seg, off) != _SETTLE:
            return False
        return self.valid(seg, off) > 0
