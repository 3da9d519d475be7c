"""Finding out what is on a medium: which segments are in the log, which records are valid.

Knows: headers, lengths and check values of records.
Must not know: what a record means, in which order they count (recovery.py).
A mount begins here. Its parts are loaded one after the other, not to be there at once.
"""

import gc
import sys
from array import array
from struct import pack_into

from ..port import const
from .log import crc32, same

_WINDOW = const(256)  # as in log.py
_NOWHERE = const(0x3FFFFFFF)
_LATEST = const(2)  # as in __init__.py
_HEADER = const(44)
_MAX_KEY = const(32)
# Record types and lengths: STORE.md.
_TAIL = const(8)  # the last of the short ones
_SESSION = const(0x20)
_SETTLE = const(0x21)
_PUT = const(0x40)
_BLANK = const(255)
_SHORT = const(9)
_LONG = const(7)


def mount(j):
    """Replay the medium, settle it, leave the journal ready to append; closed if that fails."""
    try:
        _mount(j)
    except BaseException:
        j._head = -1
        raise
    finally:
        _unload("scan")


def _mount(j):
    j.medium.open()
    if hasattr(j.medium, "made"):
        _part("files_room", "look", j.medium)
    span = j._span
    skipped = j.skipped
    _part("setup", "clear", j)
    if j.hold or j._born or j.policy == _LATEST:
        from .seldom import confirm  # noqa: F401  (loaded while there is nothing to lose)
    m, seg = _read(j)
    while j._missed:  # window= was larger: once more, with room for all
        m = None
        j.skipped = skipped
        _part("setup", "widen", j)
        m, seg = _read(j)
    if getattr(j.medium, "others", False):
        _part("setup", "look", m, seg)
    if m._copies or max(j._loads) > j._area or len(j._inbound) > 2 * j._ids:
        _part("setup", "reserve", m)
    if hasattr(j.medium, "made"):
        _part("files_room", "begin", j)
    _part("settle", "settle", m, seg)
    if j._span > span:
        _part("setup", "narrow", j, span)
    if j._born:
        for i in range(j._span):
            j._born[i] = j._clock()


def _read(j):
    m = Scan(j)
    m.scan()
    seg = j._oldest(0) if max(j._serials) else -1
    if seg >= 0:
        _part("recovery", "replay", m, seg)
    return m, seg


def _part(module, function, *args):
    # Only the call keeps the module: a name for it would keep it longer.
    try:
        getattr(__import__("umqtt_min.store." + module, None, None, (function,)), function)(*args)
    finally:
        _unload(module)


def _unload(module):
    """Give back code that only a mount needs."""
    if sys.implementation.name == "micropython":  # a host has the room
        if sys.modules.pop("umqtt_min.store." + module, None):
            delattr(sys.modules["umqtt_min.store"], module)
        gc.collect()


def get4(buf, off):
    """Four bytes as a number; -1 if it is not below 2**30 (a 32-bit port would allocate)."""
    if buf[off] & 0xC0:
        return -1
    return ((buf[off] << 8 | buf[off + 1]) << 8 | buf[off + 2]) << 8 | buf[off + 3]


class Scan:
    """What one mount has found out; collected when it is done."""

    def __init__(self, journal):
        self.j = journal
        self._husk = 0  # serial of a header above the log with nothing valid behind it
        self._end = 0  # where the log ends in its last segment
        self._base = 0  # serial of the log's first segment
        # The last accepted record: its position, and what of it must be carried over.
        self._serial = self._off = 0
        self._seg = -1  # where it really is, a SETTLE record whole
        self._start = 0
        self.place = self.size = 0
        # Segments that count no more, and whether that is so of the newest one: it holds
        # nothing but copies, which a reclaim was making of messages in older segments.
        self._void = []
        self._copies = []  # pairs: number in the index, place of the original
        self._redundant = False
        self.anew = False  # settle in a new segment, for its header forgets what this one says
        self._bytes = None  # what to carry over, if the medium will not have it any more
        self._before = None  # what to carry over if the newest segment does not count
        self._jumps = array("I")  # pairs: from where, to where
        self._from = self.to = _NOWHERE  # the next jump
        self.resume = 0
        self._landing = 0  # position of the SETTLE record last jumped to
        self._now = 0  # position of the last accepted record
        self._first = 0  # offset of a segment's first record

    def _at(self, seg, off):
        """As the journal's _window."""
        j = self.j
        return j._window((seg << j._shift) + off)

    def _byte(self, seg, off):
        return self.j._back[self._at(seg, off)]

    # Records.

    def load(self, seg):
        """Read a header into _back and its check value into _seed; offset of the first
        record, 0 if this is no header of this kind of journal."""
        j = self.j
        back = j._back
        j._seen = _NOWHERE
        self._at(seg, 0)
        if not same(back, 0, j._magic, 0, 8):
            return 0
        n = _HEADER + back[42] + 2 * back[43]
        if back[42] > _MAX_KEY or n + 4 > _WINDOW:
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

    def _extent(self, seg, off):
        """Bytes of the record that begins at off, by its type and length alone; 0 if the
        place is blank, -1 if no record begins so."""
        j = self.j
        if off + _SHORT > j._end:
            return 0
        i = self._at(seg, off)
        n = j._back[i]
        if n == _BLANK:
            return 0
        if 0 < n <= _TAIL:
            return _SHORT
        if n != _SESSION and n != _SETTLE and not _PUT <= n < _PUT + 24:
            return -1
        n = _LONG + (j._back[i + 1] << 8 | j._back[i + 2])
        return n if off + n <= j._end else -1

    def _valid(self, seg, off):
        """As _extent, and -1 if the check value is wrong. _seed must be that of seg."""
        n = self._extent(seg, off)
        if n <= 0:
            return n
        j = self.j
        j._begin(off)
        place = (seg << j._shift) + off
        end = place + n - 4
        while place < end:
            i = j._window(place)
            k = min(end - place, _WINDOW - i)
            crc32(j._crc, j._back, i, k)
            place += k
        return n if same(j._crc, 0, j._back, j._window(end), 4) else -1

    def _resync(self, seg, off, limit):
        """The next place from off on where a valid record begins, limit if there is none."""
        j = self.j
        last = self._last(seg)
        off = j._up(off)
        while off < limit and off < last:
            if self._valid(seg, off) > 0:
                return off
            off += j._align
        return limit

    def _last(self, seg):
        """Offset behind the last byte that is not blank."""
        j = self.j
        off = j.medium.size
        while off > 0:
            j._seen = _NOWHERE
            self._at(seg, off - _WINDOW)
            if j._back[0] != _BLANK or not same(j._back, 0, j._back, 1, _WINDOW - 1):
                break
            off -= _WINDOW
        i = _WINDOW
        while off > 0 and j._back[i - 1] == _BLANK:
            off -= 1
            i -= 1
        return off

    def _settles(self, seg, off):
        j = self.j
        if off >= j._end or self._byte(seg, off) != _SETTLE:
            return False
        return self._valid(seg, off) > 0

    # Which segments are in the log.

    def scan(self):
        """Fill the table of serial numbers: segments with a header and a valid record."""
        j = self.j
        newest = 0
        for seg in range(j.medium.count):
            j._serials[seg] = 0
            serial = self._probe(seg)
            j._serial = max(j._serial, abs(serial))
            if serial < 0:
                self._husk = max(self._husk, -serial)
            elif serial > newest:
                newest = serial
                j.epoch = bytes(j._back[8:16]) if self.load(seg) else b""
        tail = self._strangers()
        for seg in range(j.medium.count):
            if j._serials[seg] < tail:
                j._serials[seg] = 0
        if self._husk < newest:
            self._husk = 0

    def _probe(self, seg):
        """Serial of a segment; negative if nothing valid is behind its header, 0 if none."""
        j = self.j
        try:
            off = self.load(seg)
            if not off:
                j.skipped += self._litter(seg)
                return 0
            serial = get4(j._back, 16)
            if self._valid(seg, off) > 0 or self._resync(seg, off, j._end) < j._end:
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
        """Bytes that are not blank."""
        j = self.j
        count = 0
        if j.medium.noisy:
            return 0
        for off in range(0, j.medium.size, _WINDOW):
            j._seen = _NOWHERE
            self._at(seg, off)
            for byte in j._back:
                count += byte != _BLANK
        return count
