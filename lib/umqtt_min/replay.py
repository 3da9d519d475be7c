"""Replay: which records of the log count, in which order, and what they say to the index.

Knows: torn tails, jumps over what a recovery declared void, the types of records.
Must not know: which segments are in the log (scan.py), what is written after a replay (settle.py).
"""

from array import array

from micropython import const

from .bits import get4
from .scan import Scan

_NOWHERE = const(0x3FFFFFFF)  # as in log.py
_HEADER = const(44)
_MAX_KEY = const(32)
# Record types: STORE.md.
_REC = const(1)
_HOLD = const(3)
_SENT = const(4)
_CONFIRM = const(5)
_IN_ADD = const(6)
_IN_DEL = const(7)
_TAIL = const(8)
_SESSION = const(0x20)
_SETTLE = const(0x21)
_PUT = const(0x40)
_MARK = const(0x2A)  # one byte, first of a page where a recovery began
_LONG = const(7)
_SETTLED = const(13)  # offset of the carried record in a SETTLE record
# As in journal.py
_LIVE = const(0x80)
_STATE = const(0x18)
_RELEASED = const(0x08)
_HELD = const(0x10)


class Replay(Scan):
    """A scan whose records are then applied to the index."""

    def __init__(self, journal):
        super().__init__(journal)
        self._jumps = array("I")  # pairs: from where, to where
        self._from = self._to = _NOWHERE  # the next jump
        self._resume = 0
        # The last accepted record: its position, and what of it must be carried over.
        self._serial = self._off = 0
        self._place = self._length = 0
        # Segments that count no more, and whether that is so of the newest one: it holds
        # nothing but copies, which a reclaim was making of messages in older segments.
        self._void = []
        self._landing = 0  # position of the SETTLE record last jumped to
        self._now = 0  # position of the last accepted record
        self._copies = []  # pairs: number in the index, place of the original
        self._redundant = False
        self._bytes = None  # what to carry over, if the medium will not have it any more
        self._first = 0  # offset of a segment's first record
        self._before = None  # what to carry over if the newest segment does not count

    # Jumps over what does not count.

    def _candidate(self, seg, off):
        """The next place behind off where a recovery has left a valid SETTLE record, 0 if
        there is none: a page that begins with MARK, then the record."""
        j = self._j
        off = (off // j._page + 1) * j._page
        while off < j._end:
            if self._byte(seg, off) == _MARK and self._is_settle(seg, off + j._up(1)):
                return off
            off += j._page
        return 0

    def _collect(self, seg):
        """Note the SETTLE records of a segment whose header was just loaded."""
        j = self._j
        off = self._load(seg)
        serial = j._serials[seg]
        if self._is_settle(seg, off):
            self._jump(seg, off, self._position(serial, off))
        off = self._candidate(seg, off)
        while off:
            self._jump(seg, off + j._up(1), self._position(serial, off))
            off = self._candidate(seg, off)

    def _jump(self, seg, off, to):
        j = self._j
        i = self._at(seg, off)
        serial = get4(j._back, i + 3)
        at = max(0, self._position(serial, j._back[i + 7] << 8 | j._back[i + 8]))
        if at < to:
            self._jumps.append(at)
            self._jumps.append(to)

    def _position(self, serial, off):
        """A place as one number that grows along the log."""
        return (serial - self._base) * self._j._size + off

    def _next_jump(self, at):
        self._from = self._to = _NOWHERE
        jumps = self._jumps
        for i in range(0, len(jumps), 2):
            if jumps[i + 1] > at:
                if jumps[i] < self._from or jumps[i] == self._from and jumps[i + 1] > self._to:
                    self._from = jumps[i]
                    self._to = jumps[i + 1]

    # The replay.

    def _replay(self, seg):
        j = self._j
        self._base = j._serials[seg]
        order = []
        while not order or order[-1] != seg:
            order.append(seg)
            self._collect(seg)
            seg = j._oldest(j._serials[seg]) if j._serials[seg] < max(j._serials) else seg
        self._next_jump(0)
        for seg in order:
            self._segment(seg)
        for seg in order[:-1]:
            if j._serials[seg] < j._tail:
                self._bury(seg)
        for seg in self._void:
            if self._now > self._landing:  # what was written behind it proves it whole
                j._serials[seg] = 0
        j._head = order[-1]

    def _segment(self, seg):
        j = self._j
        off = self._load(seg)
        start = self._position(j._serials[seg], 0)
        if start + off < self._resume:
            off = self._resume - start
            if off >= j._size:
                self._void.append(seg)
                return
            off = self._after_mark(seg, off)
        else:
            self._snapshot()
        self._copies = []
        self._redundant = True
        j._filled = 0
        self._first = off
        self._before = (j._serials[seg], off, 0, 0)
        before = self._now
        while off < j._size:
            off = self._step(seg, start, off)
        if self._now == before and self._resume >= start + j._size:
            self._void.append(seg)

    def _step(self, seg, start, off):
        """Go over one record, or over what is not one; the offset behind it."""
        j = self._j
        if start + off >= self._from:
            return self._leap(seg, start)
        n = self._valid(seg, off)
        if n > 0:
            self._accept(seg, off, n)
            return j._up(off + n)
        self._end = off
        limit = min(j._end, self._from - start)
        to = self._resync(seg, off + 1, limit)
        self._count_skipped(seg, off, to)
        return j._size if to >= j._end else to

    def _leap(self, seg, start):
        j = self._j
        self._resume = self._to
        self._next_jump(self._to)
        off = self._resume - start
        if off >= j._size:
            return off
        return self._after_mark(seg, off)

    def _after_mark(self, seg, off):
        """The SETTLE record at a place to go on from: it may have a MARK before it."""
        j = self._j
        if self._byte(seg, off) == _MARK:
            off += j._up(1)
        self._landing = self._position(j._serials[seg], off)
        return off

    def _count_skipped(self, seg, off, to):
        j = self._j
        while off < to and not j.medium.opaque:
            j.skipped += self._byte(seg, off) != 255
            off += 1

    def _accept(self, seg, off, n):
        j = self._j
        place = self._place = (seg << j._shift) + off
        i = j._window(place)
        settle = j._back[i] == _SETTLE
        if settle:
            self._serial = get4(j._back, i + 3)
            self._off = j._back[i + 7] << 8 | j._back[i + 8]
            self._place += _SETTLED
            self._length = n - _SETTLED - 4
        else:
            self._serial = j._serials[seg]
            self._off = off
            self._length = n - 4
        self._end = j._up(off + n)
        self._now = self._position(j._serials[seg], off)
        if settle and (off == self._first or self._before[:2] == (self._serial, self._off)):
            self._before = (self._serial, self._off, self._place, self._length)
        elif self._length:
            self._original(seg, self._place)
        _apply(j, place)

    def _original(self, seg, place):
        """Note where a message is that seems to be in the log a second time. Whatever else
        is in a segment makes it count."""
        j = self._j
        i = j._window(place)
        if j._back[i] < _PUT:
            self._redundant = False
            return
        seq = get4(j._back, i + 3)
        j._filled += j._up(self._length + 4)
        if j._state(seq) and j._places[seq % j._span] >> j._shift != seg:
            self._copies.append((seq % j._span, j._places[seq % j._span]))
        elif not self._is_copy(seq % j._span):
            self._redundant = False

    def _is_copy(self, index):
        for known, _ in self._copies:
            if known == index:
                return True
        return False

    def _snapshot(self):
        """Take over what the header just loaded says."""
        j = self._j
        back = j._back
        j.boot = max(j.boot, get4(back, 24))
        seq = get4(back, 28)
        j.sent = get4(back, 32)
        j.last_pid = back[40] << 8 | back[41]
        j.key = bytes(back[_HEADER : _HEADER + back[42]])
        j.confirmed = max(j.confirmed, get4(back, 36))
        j._count = 0
        at = _HEADER + back[42]
        for i in range(back[43]):
            j._in_add(back[at + 2 * i] << 8 | back[at + 2 * i + 1])
        j._tail = max(j._tail, get4(back, 20))
        _raise_seq(j, seq)
        if j.held:
            j._forget_held()

    def _bury(self, seg):
        """The segment was reclaimed: what the index still has in it was moved and is done."""
        j = self._j
        for seq in range(j.low, j.seq):
            if j._state(seq) and j._places[seq % j._span] >> j._shift == seg:
                j._set(seq, 0)
        j._serials[seg] = 0


# What a record says, applied to the index.


def _apply(j, place):
    """Apply the valid record at a place."""
    i = j._window(place)
    kind = j._back[i]
    if kind >= _PUT:
        _apply_put(j, place)
    elif kind == _SESSION:
        _apply_session(j, place)
    elif kind == _SETTLE:
        j.boot = max(j.boot, get4(j._back, i + 9))
        if j._word(place + 1) > _SETTLED - _LONG + 4:
            _apply(j, place + _SETTLED)
    else:
        _apply_short(j, kind, get4(j._back, i + 1))


def _apply_session(j, place):
    key = bytearray(min(j._word(place + 1), _MAX_KEY))
    j._read_window(place + 3, key, len(key))
    j.key = bytes(key)
    j._renew()


def _apply_put(j, place):
    i = j._window(place)
    kind = j._back[i] & 0x1F
    seq = get4(j._back, i + 3)
    if seq <= 0 or seq < j.seq - j._span:
        return
    _raise_seq(j, seq + 1)
    if j._states[seq % j._span]:
        j._set(seq, 0)
    j._places[seq % j._span] = place
    if seq == j.seq - 1:
        j._find_pid(place + 7)
        j.last_pid = j.pid
    _add(j, seq, _LIVE | kind)


def _add(j, seq, state):
    if state & _STATE == _HELD and seq <= j.confirmed:
        return
    j._states[seq % j._span] = state
    j.live += 1
    j.held += state & _STATE == _HELD
    place = j._places[seq % j._span]
    j._count_in(place, j._word(place + 1) + _LONG)
    j.low = min(j.low, seq)
    j._first = j.low


def _raise_seq(j, seq):
    """Numbers below seq were given. What the window has no room for, because it was larger when
    it was stored, is dropped."""
    while j.low <= seq - 1 - j._span and j.live:
        j._set(j.low, 0)
        j.dropped += 1
    j.seq = max(j.seq, seq)
    if not j.live:
        j.low = j._first = j.seq


def _apply_short(j, kind, value):
    if kind == _IN_ADD:
        j._in_add(value)
    elif kind == _IN_DEL:
        j._in_del(value)
    elif kind == _TAIL:
        j._tail = max(j._tail, value)
    elif kind == _CONFIRM:
        _raise_seq(j, value + 1)
        j.confirmed = max(j.confirmed, value)
        if j.held:
            j._forget_held()
    elif value > 0:
        _apply_seq(j, kind, value)


def _apply_seq(j, kind, seq):
    if kind == _SENT:
        j.sent = max(j.sent, seq)
        return
    _raise_seq(j, seq + 1)
    state = j._state(seq)
    if not state:
        return
    if kind == _REC:
        j._set(seq, _LIVE | _RELEASED | state & 7)
    elif kind == _HOLD and seq > j.confirmed:
        j._set(seq, _LIVE | _HELD | state & 7)
    else:
        j._set(seq, 0)
