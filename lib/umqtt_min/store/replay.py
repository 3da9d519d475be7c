"""Replay: reads the records of the log that count, in order, and fills the index.

Knows: torn tails, jumps over what a recovery declared void, the types of records.
Must not know: which segments are in the log (scan.py), what is written after a replay (settle.py).
"""

from array import array

from ..port import const
from .scan import get4
from .segment_log import copy

_NOWHERE = const(0x3FFFFFFF)  # as in segment_log.py
_HEADER = const(44)
_MAX_KEY = const(32)
_MOST_IDS = const(128)  # bytes of identifiers in a header: inbound= is at most 64
# Record types and lengths: JOURNAL.md.
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
_TOUCH = const(0x2A)  # one byte, first of a chunk where a recovery began
_LONG = const(7)
_BLANK = const(255)
_SETTLED = const(13)  # offset of the carried record in a SETTLE record
# In the index: see index.py
_LIVE = const(0x80)
_STATE = const(0x18)
_IS_RELEASED = const(0x08)
_IS_HELD = const(0x10)


class Replay:
    """One pass over the log. Its attributes then tell settle.py how the log ended."""

    def __init__(self, scan):
        self.scan = scan
        self.j = scan.j
        self.base = 0  # serial of the log's first segment: positions begin there
        self.end = 0  # where the log ends in its last segment
        # The last accepted record: its position, and what of it must be carried over.
        self.serial = self.off = 0
        self.seg = -1  # where it really is, a SETTLE record whole
        self.start = 0
        self.place = self.size = 0
        # Segments that count no more, and whether that is so of the newest one: it holds
        # nothing but copies, which a reclaim was making of messages in older segments.
        self.void = []
        self.copies = []  # pairs: number in the index, place of the original
        self.redundant = False
        self.before = None  # what to carry over if the newest segment does not count
        self._jumps = array("I")  # pairs: from where, to where
        self._from = self._to = _NOWHERE  # the next jump
        self._resume = 0  # where the last one went
        self._landing = 0  # position of the SETTLE record last jumped to
        self._now = 0  # position of the last accepted record
        self._first = 0  # offset of a segment's first record

    def replay(self, seg):
        """Apply the log, which begins in a segment, to the index."""
        j = self.j
        self.base = j._serials[seg]
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
        if self._now > self._landing:  # what was written behind it proves it whole
            self._forget()
        j._head = order[-1]


    def _segment(self, seg):
        """Go over a segment's records."""
        j = self.j
        off = self.scan.load(seg)
        start = self._position(j._serials[seg], 0)
        if start + off < self._resume:
            off = self._resume - start
            if off >= j.medium.size:
                self.void.append(seg)
                return
            off = self._after_touch(seg, off)
        else:
            self._snapshot()
        self.copies = []
        self.redundant = True
        j._filled = 0
        self._first = off
        self.before = (j._serials[seg], off, 0, 0)
        before = self._now
        while off < j.medium.size:
            off = self._step(seg, start, off)
        if self._now == before and self._resume >= start + j.medium.size:
            self.void.append(seg)

    def _step(self, seg, start, off):
        """Read one record, or skip bytes that are none. Returns the offset behind them."""
        j = self.j
        # The SETTLE record jumped to is read first: what it carries counts, wherever the next
        # jump begins.
        if start + off >= self._from and start + off not in (self._landing, self._resume):
            return self._leap(seg, start)
        n = self.scan.valid(seg, off)
        if n > 0:
            self._accept(seg, off, n)
            return j._up(off + n)
        self.end = off
        limit = min(j._end, self._from - start)
        to = self.scan.resync(seg, off + 1, limit)
        while off < to and not j.medium.noisy:
            j.skipped += self.scan.byte(seg, off) != _BLANK
            off += 1
        return j.medium.size if to >= j._end else to

    def _accept(self, seg, off, n):
        """Take in a record that counts."""
        j = self.j
        place = self.place = (seg << j._shift) + off
        i = j._in_back(place)
        settle = j._back[i] == _SETTLE
        if settle:
            self.serial = get4(j._back, i + 3)
            self.off = j._back[i + 7] << 8 | j._back[i + 8]
            self.place += _SETTLED
            self.size = n - _SETTLED - 4
        else:
            self.serial = j._serials[seg]
            self.off = off
            self.size = n - 4
        self.seg = seg
        self.start = off
        self.end = j._up(off + n)
        self._now = self._position(j._serials[seg], off)
        if settle and (off == self._first or self.before[:2] == (self.serial, self.off)):
            self.before = (self.serial, self.off, self.place, self.size)
        elif self.size:
            self._original(seg, self.place)
        self._apply(place)

    def _original(self, seg, place):
        """Note the original of a message that seems to be in the log a second time. A segment
        with any other record counts."""
        j = self.j
        i = j._in_back(place)
        if j._back[i] < _PUT:
            self.redundant = False
            return
        seq = get4(j._back, i + 3)
        j._filled += j._up(self.size + 4)
        if j._state(seq) and j._places[seq % j._span] >> j._shift != seg:
            self.copies.append((seq % j._span, j._places[seq % j._span]))
        elif self.redundant and seq % j._span not in [index for index, _ in self.copies]:
            self.redundant = False

    def _snapshot(self):
        """Take over the state from the header just loaded."""
        j = self.j
        back = j._back
        j.boot = max(j.boot, get4(back, 24))
        seq = get4(back, 28)
        j.sent = get4(back, 32)
        j.last_pid = back[40] << 8 | back[41]
        j.key = bytes(back[_HEADER : _HEADER + back[42]])
        j.confirmed = max(j.confirmed, get4(back, 36))
        j._count = back[43]
        if 2 * j._count > len(j._inbound):  # inbound= was larger
            j._inbound = bytearray(2 * j._count)
        copy(j._inbound, 0, back, _HEADER + back[42], 2 * j._count)
        j._tail = max(j._tail, get4(back, 20))
        self._raise_seq(seq)
        if j.held:
            j._forget_held()

    def _bury(self, seg):
        """The segment was reclaimed: its messages in the index were moved, and are done."""
        j = self.j
        for seq in range(j.low, j.seq):
            if j._state(seq) and j._places[seq % j._span] >> j._shift == seg:
                j._set(seq, 0)
        j._serials[seg] = 0

    def _forget(self):
        """Free the segments that a SETTLE record passed over."""
        for seg in self.void:
            self.j._serials[seg] = 0
        self.void = []

    # Jumps over what does not count.

    def _collect(self, seg):
        """Note the SETTLE records of a segment."""
        j = self.j
        off = self.scan.load(seg)
        serial = j._serials[seg]
        if self.scan.settles(seg, off):
            self._jump(seg, off, self._position(serial, off))
        off = self._candidate(seg, off)
        while off:
            self._jump(seg, off + j._up(1), self._position(serial, off))
            off = self._candidate(seg, off)

    def _candidate(self, seg, off):
        """The next place behind off where a recovery has left a valid SETTLE record, 0 if
        there is none: a chunk that begins with TOUCH, then the record."""
        j = self.j
        off = (off // j._chunk + 1) * j._chunk
        while off < j._end:
            if self.scan.byte(seg, off) == _TOUCH and self.scan.settles(seg, off + j._up(1)):
                return off
            off += j._chunk
        return 0

    def _jump(self, seg, off, to):
        """Note the jump of the SETTLE record there: to its own position."""
        j = self.j
        i = self.scan.at(seg, off)
        serial = get4(j._back, i + 3)
        at = max(0, self._position(serial, j._back[i + 7] << 8 | j._back[i + 8]))
        if at < to:
            self._jumps.append(at)
            self._jumps.append(to)

    def _next_jump(self, at):
        """Choose the next jump to a position behind that one."""
        self._from = self._to = _NOWHERE
        jumps = self._jumps
        for i in range(0, len(jumps), 2):
            if jumps[i + 1] > at:
                if jumps[i] < self._from or jumps[i] == self._from and jumps[i + 1] > self._to:
                    self._from = jumps[i]
                    self._to = jumps[i + 1]

    def _leap(self, seg, start):
        """Jump; the offset to go on at."""
        self._forget()  # this jump begins behind the last one: that is whole
        self._resume = self._to
        self._next_jump(self._to)
        off = self._resume - start
        if off >= self.j.medium.size:
            return off
        return self._after_touch(seg, off)

    def _after_touch(self, seg, off):
        """The SETTLE record at a place to go on from: it may have a TOUCH before it."""
        j = self.j
        if self.scan.byte(seg, off) == _TOUCH:
            off += j._up(1)
        self._landing = self._position(j._serials[seg], off)
        return off

    def _position(self, serial, off):
        """A place as one number that grows along the log."""
        return (serial - self.base) * self.j.medium.size + off

    # What a record says, applied to the index.

    def _apply(self, place):
        """Apply the valid record at a place."""
        j = self.j
        i = j._in_back(place)
        kind = j._back[i]
        if kind >= _PUT:
            self._apply_put(place)
        elif kind == _SESSION:
            key = bytearray(min(j._word(place + 1), _MAX_KEY))
            j._body = place + 3
            j.read(0, key, len(key))
            j.key = bytes(key)
            j._renew()
        elif kind == _SETTLE:
            j.boot = max(j.boot, get4(j._back, i + 9))
            if j._word(place + 1) > _SETTLED - _LONG + 4:
                self._apply(place + _SETTLED)
        else:
            self._apply_short(kind, get4(j._back, i + 1))

    def _apply_put(self, place):
        j = self.j
        i = j._in_back(place)
        kind = j._back[i] & 0x1F
        seq = get4(j._back, i + 3)
        if seq <= 0:
            return
        if seq < j.seq - j._span:
            self._miss(seq)
            return
        self._raise_seq(seq + 1)
        if j._states[seq % j._span]:
            j._set(seq, 0)
        j._places[seq % j._span] = place
        if seq == j.seq - 1:
            i = place + 9 + j._word(place + 7)
            j.last_pid = j._word(i)
        if kind & _STATE == _IS_HELD and seq <= j.confirmed:
            return
        j._states[seq % j._span] = _LIVE | kind
        j.live += 1
        j.held += kind & _STATE == _IS_HELD
        j._count_in(place, j._word(place + 1) + _LONG)
        j.low = min(j.low, seq)
        j._first = j.low

    def _apply_short(self, kind, value):
        j = self.j
        if kind == _IN_ADD:
            if 2 * j._count == len(j._inbound) < _MOST_IDS:
                j._inbound += bytes(2)
            j._in_add(value)
        elif kind == _IN_DEL:
            j._in_del(value)
        elif kind == _TAIL:
            j._tail = max(j._tail, value)
        elif kind == _CONFIRM:
            self._raise_seq(value + 1)
            j.confirmed = max(j.confirmed, value)
            if j.held:
                j._forget_held()
        elif kind == _SENT:
            j.sent = max(j.sent, value)
        elif value > 0:
            self._raise_seq(value + 1)
            state = j._state(value)
            if not state:
                return
            if kind == _REC:
                j._set(value, _LIVE | _IS_RELEASED | state & 7)
            elif kind == _HOLD and value > j.confirmed:
                j._set(value, _LIVE | _IS_HELD | state & 7)
            else:
                j._set(value, 0)

    def _raise_seq(self, seq):
        """Numbers below seq were given."""
        j = self.j
        while j.low <= seq - 1 - j._span and j.live:
            self._miss(j.low)
            j._set(j.low, 0)
        j.seq = max(j.seq, seq)
        if not j.live:
            j.low = j._first = j.seq

    def _miss(self, seq):
        """The index has no room for a message, because messages= was larger when it was stored."""
        j = self.j
        j._missed = min(j._missed or seq, seq)
