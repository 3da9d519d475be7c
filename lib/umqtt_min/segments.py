"""Room for records: segments opened in turn, live messages moved on, the oldest given up.

Knows: what a segment's header repeats, where each live message is, reclaim.
Must not know: what happens to a message and why (journal.py); how a mount finds out what is
valid (replay.py).
"""

from array import array

from .bits import put4, start
from .full import JournalFull
from .log import (
    EIO,
    HEADER,
    LONG,
    MAX_KEY,
    NOWHERE,
    PUT,
    SETTLE,
    SETTLED,
    SHORT,
    TAIL,
    Log,
    const,
)

# States of a message.
QUEUED = const(0)
RELEASED = const(1)  # PUBREC recorded: PUBREL is due
HELD = const(2)  # acknowledged, not yet confirmed by the pipeline
AGAIN = const(3)  # held, to be sent as a new delivery

LIVE = const(0x80)  # in the index: LIVE | state << 3 | qos << 1 | retain
STATE = const(0x18)
ASKED = const(0x20)  # held in flash; what happens to it since again() is in RAM only


class Segments(Log):
    """The segments of a medium, and an index of the live messages in them.

    medium, page: see Log. window, inbound: see Journal.
    """

    def __init__(self, medium, page, window, inbound):
        super().__init__(medium, page)
        self._span = window or min(1024, max(32, self._size * medium.count // 96))
        self._places = array("I", [0] * self._span)  # segment * size + offset of each record
        self._states = bytearray(self._span)
        self._inbound = array("H", [0] * inbound)
        # Bytes of messages in a segment, at most: so that all of them fit into any other one,
        # beside the largest header, a SETTLE and a TAIL record.
        self._area = self._end - self._up(HEADER + MAX_KEY + 4 + 2 * inbound)
        self._area -= self._up(SHORT) + self._up(SETTLED + 4)
        self._loads = array("I", [0] * medium.count)  # bytes of live messages in each segment
        self._keep = 1 + medium.spare  # segments kept free
        # Acknowledgements must find room also when messages fill the rest; where each takes a
        # page of its own, a segment is set aside for them.
        full = medium.count - self._keep - (self._align > 16)
        self._limit_live = full * self._area * 7 // 8
        self.epoch = b""
        self.key = b""
        self.boot = 0
        self._clear()

    def _clear(self):
        self.seq = self.low = self._first = 1
        self.last_pid = self.sent = self.live = self.held = 0
        self.pid = self.flags = self.state = 0
        self.confirmed = 0
        self._count = 0  # incoming identifiers
        self._used = 0  # bytes of live records, as they fill segments
        self._capacity = self._limit_live
        self._serial = self._tail = 0
        self._body = 0  # place of the body of the message last found
        self._filled = 0  # bytes of messages in the head, live or not
        self._tidying = False
        self._short = False  # fewer segments are free than should be
        for i in range(self._span):
            self._states[i] = 0
        for i in range(self.medium.count):
            self._loads[i] = 0

    # The index: one place and one state byte for each number of the window.

    def _state(self, seq):
        if seq < self.low or seq >= self.seq:
            return 0
        return self._states[seq % self._span]

    def _set(self, seq, state):
        """Change the state of a live message, and what is counted of it."""
        old = self._states[seq % self._span]
        self._states[seq % self._span] = state
        self.held -= old & STATE == HELD << 3
        self.held += state & STATE == HELD << 3
        if not state:
            self._gone(seq)
        elif seq < self._first and state & STATE != HELD << 3:
            self._first = seq

    def _gone(self, seq):
        self.live -= 1
        self._count_out(self._places[seq % self._span])
        self._capacity = self._limit_live
        while self.low < self.seq and not self._states[self.low % self._span]:
            self.low += 1
        if self._first < self.low:
            self._first = self.low

    def _count_in(self, place, n):
        """A live record of n bytes is at a place."""
        self._loads[place >> self._shift] += self._up(n)
        self._used += self._charge(n)

    def _count_out(self, place):
        n = self._content(place) + LONG
        self._loads[place >> self._shift] -= self._up(n)
        self._used -= self._charge(n)

    def _charge(self, n):
        """What a record of n bytes costs of a segment, its share of the waste at the end
        included."""
        n = self._up(n)
        return self._area // max(1, self._area // n)

    def _length(self, seg, off):
        i = self._window(seg, off)
        return (self._back[i + 1] << 8 | self._back[i + 2]) - 4

    # Room.

    def _room(self, n, message):
        if not self._make_room(n, message):
            raise JournalFull()

    def _make_room(self, n, message):
        """Open segments and reclaim old ones until the head takes a record of n bytes;
        message: n for a message, 0 for other records, which may fill what messages may not."""
        n = self._up(n)
        tries = 2 * self.medium.count
        while True:
            if self._short and not self._tidying:
                self._tidy()
            if self.medium.whole and self._off % self._page + n > self._page:
                self._off = (self._off + self._page - 1) // self._page * self._page
            if self._off + n <= self._end and self._filled + message <= self._area:
                return True
            tries -= 1
            if tries < 0 or not self._open_next():
                return False

    def _tidy(self):
        """Reclaim segments, oldest first, as long as few are free and one fits the head."""
        self._tidying = True  # what is written meanwhile does not come here again
        try:
            self._reclaim_some()
        finally:
            self._tidying = False
        self._short = self._free() < self._keep

    def _reclaim_some(self):
        while self._reclaimable(self._oldest(0)):
            self._reclaim(self._oldest(0))

    def _reclaimable(self, seg):
        """Whether to reclaim a segment now: few are free, or it costs nothing and using as few
        as possible is better than using all in turn; and what is live fits the head."""
        n = self._loads[seg]
        if self._free() >= self._keep and (n or not self.medium.levelled):
            return False
        if seg == self._head or self._filled + n > self._area:
            return False
        return self._off + n + self._up(SHORT) <= self._end

    def _note(self, kind, value):
        """Append a short record."""
        if self._head < 0:
            raise OSError(EIO, "the journal is not open")
        while True:
            self._room(SHORT, 0)
            self._begin_record(self._off)
            self._tmp[0] = kind
            put4(self._tmp, 1, value)
            self._emit(self._tmp, 0, 5)
            if self._finish(SHORT):
                return
            self._abandon()

    def _here(self):
        return (self._head << self._shift) + self._off

    # Segments: opened in turn, reclaimed oldest first.

    def _free(self):
        n = 0
        for i in range(self.medium.count):
            if not self._serials[i] and not self._bad[i]:
                n += 1
        return n

    def _pick(self):
        """The next free segment, -1 if there is none."""
        i = -1 if self.medium.levelled else self._head
        for _ in range(self.medium.count):
            i = (i + 1) % self.medium.count
            if not self._serials[i] and not self._bad[i]:
                return i
        return -1

    def _open_next(self):
        """Erase a free segment and write its header. False if there is none; a segment that
        does not take it is not tried again before the next mount."""
        while True:
            seg = self._pick()
            if seg < 0:
                return False
            self._serial += 1
            if self._open_segment(seg):
                self._filled = 0
                self._short = self.medium.levelled or self._free() < self._keep
                return True
            self._bad[seg] = 1

    def _open_segment(self, seg):
        if not self._erase(seg):
            return False
        head = self._head
        off = self._off
        self._head = seg
        self._off = 0
        if self._header():
            self._serials[seg] = self._serial
            return True
        self._head = head
        self._off = off
        return False

    def _erase(self, seg):
        self.erases += 1
        self._window_seg = -1
        try:
            self.medium.erase(seg)
        except OSError:
            return False
        return True

    def _header(self):
        """The header proves that the erase was complete, and repeats all state that is not
        in messages."""
        start(self._crc)
        self._begin(0)
        self._emit(self._magic, 0, 8)
        self._emit(self.epoch, 0, 8)
        self._emit4(self._serial)
        self._emit4(self._tail or self._serial)
        self._emit4(self.boot)
        self._emit4(self.seq)
        self._emit4(self.sent)
        self._emit4(self.confirmed)
        n = self._header_tail()
        self._off = 0
        if not self._finish(n + 4):
            return False
        for i in range(4):
            self._seed[i] = self._crc[3 - i] ^ 255
        return True

    def _header_tail(self):
        tmp = self._tmp
        tmp[0] = self.last_pid >> 8
        tmp[1] = self.last_pid & 255
        tmp[2] = len(self.key)
        tmp[3] = self._count
        self._emit(tmp, 0, 4)
        self._emit(self.key, 0, len(self.key))
        for i in range(self._count):
            tmp[0] = self._inbound[i] >> 8
            tmp[1] = self._inbound[i] & 255
            self._emit(tmp, 0, 2)
        return HEADER + len(self.key) + 2 * self._count

    def _abandon(self):
        """The flash did not take a record: nothing more goes into this segment."""
        serial = self._serial
        off = self._off
        while True:
            if not self._open_next():
                raise OSError(EIO, "no segment takes what is programmed")
            self._void(serial, off, 0)
            if self._finish(LONG + 10):
                return

    def _void(self, serial, off, n):
        """Begin a SETTLE record: what lies between that place and here does not count, except
        n bytes of a record that the caller carries over."""
        self._begin_record(self._off)
        self._emit_kind(SETTLE, 10 + n)
        self._emit4(serial)
        self._tmp[0] = off >> 8
        self._tmp[1] = off & 255
        self._emit(self._tmp, 0, 2)
        self._emit4(self.boot)

    def _reclaim(self, seg):
        """Move the live messages of the oldest segment to the head, then give it up."""
        self._move_all(seg)
        self._next_tail(seg)

    def _next_tail(self, seg):
        """Say that a segment is given up. Where the record does not fit, the next header says
        it: this segment is erased before any that was reclaimed later."""
        self._tail = self._serials[self._oldest(self._serials[seg])]
        if self._off + self._up(SHORT) <= self._end:
            self._note(TAIL, self._tail)
        self._serials[seg] = 0

    def _oldest(self, serial):
        """The segment with the smallest serial above that one."""
        best = NOWHERE
        seg = self._head
        for i in range(self.medium.count):
            if serial < self._serials[i] < best:
                best = self._serials[i]
                seg = i
        return seg

    def _move_all(self, seg):
        seq = self.low
        while seq < self.seq:
            if self._states[seq % self._span]:
                if self._places[seq % self._span] >> self._shift == seg:
                    self._move(seq)
            seq += 1

    def _move(self, seq):
        n = self._content(self._places[seq % self._span])
        while True:
            self._room(n + LONG, n + LONG)
            to = self._here()
            self._begin_record(self._off)
            self._emit_kind(self._kind(seq), n)
            self._carry_place(self._places[seq % self._span] + 3, n)
            if self._finish(n + LONG):
                break
            self._abandon()
        self._moved(seq, to, n + LONG)

    def _moved(self, seq, to, n):
        n = self._up(n)
        self._filled += n
        self._loads[self._places[seq % self._span] >> self._shift] -= n
        self._loads[to >> self._shift] += n
        self._places[seq % self._span] = to

    def _content(self, place):
        """Bytes of content of the record at a place."""
        return self._length(place >> self._shift, place & self._size - 1) + 4

    def _carry_place(self, place, n):
        self._carry(place >> self._shift, place & self._size - 1, n)

    def _kind(self, seq):
        """Type byte of a message's record: what was asked for again is held in flash."""
        state = self._states[seq % self._span]
        return PUT | (state & 7 | HELD << 3 if state & ASKED else state & 0x1F)

    def _read_window(self, seg, off, buf, n):
        while n:
            n -= 1
            buf[n] = self._back[self._window(seg, off + n)]
