"""The index of the log: finds the live messages, and reclaims the room of the others.

Knows: the state of a message, how much a segment may hold, the policies when there is no room.
Must not know: the operations of a store (journal.py), bytes of a medium (segment_log.py).

The index is in RAM: a place and a state for each number from that of the oldest
live message on. A mount fills it from the log (replay.py).
"""

from array import array
from struct import pack_into

from ..port import const
from . import StoreFull
from .segment_log import SegmentLog

_EIO = const(5)
_GUARD = const(16)  # as in segment_log.py
_SHORT = const(9)
_LONG = const(7)
_TIDYING = const(-1)
_FULL_HEADER = const(80)  # with the longest key, check value included, without identifiers
_LEAST = const(33)  # a PUT of one byte in a SETTLE

# Record types: JOURNAL.md.
_DONE = const(2)
_TAIL = const(8)
_PUT = const(0x40)  # | state << 3 | qos << 1 | retain
_SETTLED = const(13)  # offset of the carried record in a SETTLE record

# In the index: LIVE | state << 3 | qos << 1 | retain. The states are named in __init__.py.
_LIVE = const(0x80)
_STATE = const(0x18)
_IS_HELD = const(0x10)
_ASKED = const(0x20)  # held in flash; what happens to it since again() is in RAM only


class IndexedLog(SegmentLog):
    """A log whose live messages are found by their sequence numbers.

    medium, chunk: see SegmentLog. messages: sequence numbers that the index has room for.
    inbound: most incoming identifiers in a header. policy: see Journal. aged: True to keep the
    time at which each message came.
    """

    def __init__(self, medium, chunk, messages, inbound, policy, aged):
        SegmentLog.__init__(self, medium, chunk)
        self._whole = medium.whole
        self.policy = policy
        self._ids = inbound
        self._made = medium.count  # segments there are: see Medium.growing
        self._limits(inbound)
        if self._area < self._up(_LEAST):
            from .validate import refuse_segment

            refuse_segment(self, self._up(_LEAST))
        self._asked = 0  # serial of the head when another segment was last asked for
        self._make_index(messages, aged)
        self._loads = array("I", bytes(4 * medium.count))  # bytes of live messages in each segment
        self.dropped = 0

    def _make_index(self, messages, aged):
        """Take an index for so many numbers from the heap."""
        # Of each record: two bytes are enough for a region of 64 KiB.
        large = self.medium.size * self.medium.count > 65536
        places = array("I" if large else "H", range(messages))  # from no list
        states = bytearray(messages)
        self._born = array("I", bytes(4 * messages)) if aged else None
        # At once: where there is no memory for all, open() may be called again.
        self._places = places
        self._states = states
        self._span = messages

    def _limits(self, inbound):
        """How much messages may fill, where a header may have so many identifiers."""
        # Bytes of messages in a segment, at most: so that all of them fit into any other one,
        # beside the largest header, a SETTLE and a TAIL record.
        self._area = self._end - self._up(_FULL_HEADER + 2 * inbound)
        self._area -= self._up(_SHORT) + self._up(_SETTLED + 4)
        self._limit_messages()

    def _limit_messages(self):
        # Acknowledgements must find room also when messages fill the rest; where each takes a
        # page of its own, a segment is set aside for them.
        most = self._made - 1 - self.medium.spare - (self._align > _GUARD)
        # At least what fits a segment.
        self._most = max(self._area, most * self._area * 7 // 8)

    def _clear(self):
        """Know nothing of what is on the medium."""
        SegmentLog._clear(self)
        self._made = self.medium.count
        self._limits(self._ids)
        self._inbound = bytearray(2 * self._ids)
        self.seq = self.low = self._first = 1
        self.sent = self.live = self.held = 0
        self._missed = 0  # the oldest message that a replay found no room for in the index
        self._used = 0  # bytes of live records, as they fill segments
        self._capacity = self._most
        for i in range(self._span):
            self._states[i] = 0
        for i in range(self.medium.count):
            self._loads[i] = 0

    # The index.

    def _state(self, seq):
        if seq < self.low or seq >= self.seq:
            return 0
        return self._states[seq % self._span]

    def _set(self, seq, state):
        """Change the state of a live message, and its counts."""
        old = self._states[seq % self._span]
        self._states[seq % self._span] = state
        self.held += (state & _STATE == _IS_HELD) - (old & _STATE == _IS_HELD)
        if state:
            if seq < self._first and state & _STATE != _IS_HELD:
                self._first = seq
            return
        self.live -= 1
        self._capacity = self._most
        state = self._places[seq % self._span]
        seq = -_LONG - self._word(state + 1)
        self._count_in(state, seq)
        seq = self.low
        while seq < self.seq and not self._states[seq % self._span]:
            seq += 1
        self.low = seq
        if self._first < seq:
            self._first = seq

    def _count_in(self, place, n):
        """Count a live record of n bytes at a place; n < 0: one of -n bytes is no longer live."""
        up = self._up(abs(n))
        # What it costs of a segment, its share of the waste at the end included.
        charge = self._area // max(1, self._area // up)
        self._loads[place >> self._shift] += up if n > 0 else -up
        self._used += charge if n > 0 else -charge

    # Room for a message, by the policy.

    def _admit(self, n):
        """Make room for a message of n bytes, as the policy says. Raises StoreFull."""
        if self._up(n + _SETTLED + 4) > self._area:
            from .validate import refuse_message

            refuse_message(self, n)
        charge = self._area // max(1, self._area // self._up(n))
        while True:
            if self._used + charge <= self._capacity and (
                    not self.live or self.seq - self.low < self._span):
                if self._make_room(n, n):
                    return
                self._capacity = self._used  # no use in trying again before something is gone
            if self._made < self.medium.count and self._grow():
                continue
            # LATEST, too: one that nobody replaces holds the numbers behind it.
            if not (self.live and self.policy):
                raise StoreFull()
            self._drop(self.low)

    def _grow(self):
        """Make one more segment, if that helps and the medium has room. A policy that drops
        messages instead tries this once per segment."""
        if self.seq - self.low >= self._span or self.policy and self._asked == self._serial:
            return False
        self._asked = self._serial
        return self._add_segment()

    def _add_segment(self):
        """Make one more segment, if the medium has room for it."""
        if not self.medium.add():
            return False
        self._serials[self.medium.made - 1] = 0
        self._use(self.medium.made)
        return True

    def _use(self, made):
        """Use so many segments."""
        self._made = made
        self._limit_messages()
        self._capacity = self._most

    def _drop(self, seq):
        self._note(_DONE, seq)
        self._set(seq, 0)
        self.dropped += 1

    # Room for a record.

    def _note(self, kind, value):
        """Append a short record."""
        while True:
            self._room(_SHORT, 0)
            pack_into(">BI", self._tmp, 0, kind, value)
            self._emit(self._tmp, 0, 5)
            if self._finish(_SHORT):
                return
            self._abandon()

    def _room(self, n, message):
        """Make room, and begin a record there."""
        if not self._make_room(n, message):
            raise StoreFull()
        self._begin(self._off)

    def _make_room(self, n, message):
        """Open segments and reclaim old ones until the head takes a record of n bytes. message: n
        for a message; 0 for other records, which may also fill the room kept for them."""
        if self._head < 0:
            raise OSError(_EIO, "the journal is not open")
        n = self._up(n)
        tries = 2 * self._made
        while True:
            if self._short > 0:
                self._tidy()
            if self._whole and self._off % self._chunk + n > self._chunk:
                self._pad(n)
            if self._off + n <= self._end and self._filled + message <= self._area:
                return True
            tries -= 1
            if tries < 0 or not self._open_next():
                return False

    def _pad(self, n):
        """Do not split a record of n bytes while segments are free. With few free segments it
        leaves no gap, so that moved messages always fit."""
        off = (self._off + self._chunk - 1) // self._chunk * self._chunk
        if off + n <= self._end and self._free() > self._spare + 1:
            self._off = off

    # Reclaim: the oldest segment's live messages are moved to the head.

    def _tidy(self):
        """Reclaim segments, oldest first, as long as few are free and one fits the head."""
        self._short = _TIDYING  # what is written meanwhile does not come here again
        try:
            seg = self._oldest(0)
            while self._reclaim(seg):
                seg = self._oldest(0)
        finally:
            self._short = 1
        self._short = self._free() <= self._spare

    def _reclaim(self, seg):
        """Move the live messages of the oldest segment to the head, then free it. False if enough
        segments are free (an empty one is freed at once on a self-levelling medium), or if the
        live messages do not fit the head."""
        seq = self._loads[seg]
        if self._free() > self._spare and (seq or not self.medium.self_levelling):
            return False
        if seg == self._head or self._filled + seq > self._area:
            return False
        if self._off + seq + self._up(_SHORT) > self._end:
            return False
        self._move_all(seg)
        # Where the record does not fit, the next header says it: this segment is erased before
        # any that was reclaimed later.
        self._tail = self._serials[self._oldest(self._serials[seg])]
        if self._off + self._up(_SHORT) <= self._end:
            self._note(_TAIL, self._tail)
        self._serials[seg] = 0
        return True

    def _move_all(self, seg):
        seq = self.low
        while seq < self.seq:
            if self._states[seq % self._span]:
                if self._places[seq % self._span] >> self._shift == seg:
                    self._move(seq)
            seq += 1

    def _move(self, seq):
        kind = self._states[seq % self._span]
        # What was asked for again is held in flash.
        kind = _PUT | (kind & 7 | _IS_HELD if kind & _ASKED else kind & 0x1F)
        seq %= self._span
        n = self._word(self._places[seq] + 1)
        while True:
            self._room(n + _LONG, n + _LONG)
            to = (self._head << self._shift) + self._off
            pack_into(">BH", self._tmp, 0, kind, n)
            self._emit(self._tmp, 0, 3)
            self._carry(self._places[seq] + 3, n)
            if self._finish(n + _LONG):
                break
            self._abandon()
        n = self._up(n + _LONG)
        self._filled += n
        self._moved(seq, to, n)

    def _moved(self, index, to, n):
        """Note that the record of n bytes of a message in the index has moved."""
        self._loads[self._places[index] >> self._shift] -= n
        self._loads[to >> self._shift] += n
        self._places[index] = to
