"""Settle: decides what a power cut left undecided, and records the decision.

Knows: the end of the log as a replay found it, SETTLE records, TOUCH bytes.
Must not know: what messages are for.

A torn program may read either way on every later boot. So a SETTLE record gives the place where
the old log ends. It carries the last accepted record, because nothing proves the bits of that
record whole. JOURNAL.md says why that is enough.
"""

import os

from ..port import const
from .scan import get4
from .segment_log import copy

_EIO = const(5)
_PUT = const(0x40)  # as in replay.py
_TOUCH = const(0x2A)
_LONG = const(7)
_TAIL = const(8)
_SHORT = const(9)
_SETTLED = const(13)
_BLANK = const(255)
_BAD = const(0x3FFFFFFF)  # as in segment_log.py


class Settle:
    """The last step of a mount. replay: a Replay; anew: True to settle in a new segment."""

    def __init__(self, replay, anew):
        self.replay = replay
        self.scan = replay.scan
        self.j = replay.j
        self._anew = anew
        # From where on the old log does not count, and the record that is carried over.
        self._serial = replay.serial
        self._off = replay.off
        self._place = replay.place
        self._size = replay.size
        self._bytes = None  # of that record, if the medium will not have it any more

    def settle(self, seg):
        """Decide and record what a cut may have left open; seg < 0: there is no journal yet."""
        if seg < 0:
            self._format()
        else:
            self._settle()
        # As many segments are to be free as there should be. Where each mount takes a new one it
        # is one more.
        j = self.j
        tail = j._tail
        j._short = j._free() <= j.medium.spare
        for _ in range(2 * j._made):
            if j._short:
                j._tidy()
            if j._free() >= j.medium.spare + j.medium.once or not j._open_next():
                break
        # A segment that may be given up must not be the only one that knows this boot.
        if seg >= 0 and tail == j._tail:
            if self.replay.redundant or self.replay.seg != j._head:
                if not j.medium.once:
                    j._note(_TAIL, tail)

    def _format(self):
        j = self.j
        j.epoch = os.urandom(8)
        j._head = j.medium.count - 1
        j._tail = 0
        self._serial = self._off = 0
        j.boot = 1
        self._in_new()
        j._tail = j._serial

    def _settle(self):
        j = self.j
        r = self.replay
        j._tail = j._tail or r.base
        j.boot += 1
        if j._free() < 2:  # the segment with the last mount's number may have been given up
            j.boot += int.from_bytes(os.urandom(2), "big")
        # Which chunks are untouched cannot be told for sure: where none may be programmed twice
        # there is no going on in this segment.
        at = 0 if j.medium.once or self.scan.husks or self._anew else self._fresh_chunk()
        # Nor in one that holds nothing but copies, if no other is free: a mount may have begun to
        # erase it, and what reads as before may be half erased.
        at = at if j._free() or not r.redundant else 0
        size = j._up(1) + _SETTLED + self._size + 4
        full = False
        # A journal that had more segments has to find room for the oldest of those that it has.
        if not j._free() and j.medium.elsewhere and not r.void:
            rest = j._loads[j._oldest(0)]
            size += rest + j._up(_SHORT)
            full = j._filled + rest + (j._up(self._size + 4) if self._size > _SHORT else 0)
            full = full > j._area
        if not at or full or at + size > j._end:
            self._in_new()
            return
        self.scan.load(j._head)
        if self._touch_up_to(at):
            j._off = at + j._up(1)
            if self._write():
                return
        self._in_new()

    # In the segment where the log ends.

    def _fresh_chunk(self):
        """The first chunk of the head that no torn program can have touched, 0 if none.

        A program never crosses a chunk, so a torn one without any trace is in the chunk where
        the log ends; what a visible record claims to fill may be torn further on."""
        j = self.j
        seg = j._head
        end = self.replay.end
        last = max(end, self.scan.last(seg))
        last = max(last, end + self.scan.extent(seg, end))
        off = j._chunk
        while off < j._end:
            if self.scan.byte(seg, off) == _TOUCH:
                settle = off + j._up(1)
                last = max(last, settle + max(1, self.scan.extent(seg, settle)))
            off += j._chunk
        off = (last // j._chunk + 1) * j._chunk
        return off if off < j._end else 0

    def _touch_up_to(self, last):
        """Touch the chunks behind the log up to that one, in this order.

        Another boot may read weak bits differently and choose another chunk. A byte that a cut
        left invisible has visible ones before it: so no boot chooses a chunk before it, and
        whoever goes on there writes the same byte over it."""
        j = self.j
        at = (self.replay.end + j._chunk - 1) // j._chunk * j._chunk
        while at <= last:
            if self.scan.byte(j._head, at) in (_BLANK, _TOUCH):
                if not self._touch(at):
                    return False
            at += j._chunk
        return True

    def _touch(self, at):
        """The chunk is touched from here on."""
        j = self.j
        j._begin(at)
        j._tmp[0] = _TOUCH
        j._emit(j._tmp, 0, 1)
        j._flush()
        return not j._failed

    def _write(self):
        """Append the SETTLE record; False if the flash did not take it."""
        j = self.j
        n = self._size
        if n and self._bytes is None:
            kind = j._back[j._in_back(self._place)]
        else:
            kind = self._bytes[0] if n else 0
        to = (j._head << j._shift) + j._off + _SETTLED
        j._void(self._serial, self._off, n)
        if self._bytes is None:
            j._carry(self._place, n)
        else:
            j._emit(self._bytes, 0, n)
        if not j._finish(_SETTLED + n + 4):
            return False
        if kind >= _PUT:  # the index follows a message that was carried over
            j._filled += j._up(n + 4)
            self._moved(to)
        for seg in self.replay.void:
            if seg != j._head:
                j._serials[seg] = 0
        return True

    # In a new segment.

    def _in_new(self):
        """Settle in a new segment. If the one before held nothing but copies it is given up:
        however often a recovery is cut, it does not run out of segments."""
        j = self.j
        if self.replay.redundant and j._oldest(0) != j._head:
            self._give_up()
        elif not j._free() and j.medium.elsewhere:
            from .validate import refuse_full

            refuse_full(j.medium)
        elif self.replay.seg == j._head and not j.medium.once:
            self._fasten()
        # A record may show in a husk on a later boot. If its erase were cut, and read as if it had
        # not begun, that boot would go on there, on bits that are half erased.
        husks = self.scan.husks
        spared = ()
        if not j.medium.once:
            for seg in husks:
                self._bury(seg)
        elif j._free() > len(husks):
            spared = husks
        for seg in spared:
            j._serials[seg] = _BAD
        done = self._open()
        for seg in spared:
            j._serials[seg] = 0
        if not (done or spared and self._open()):
            raise OSError(_EIO, "no segment takes what is programmed")

    def _open(self):
        """Settle in the next segment that takes it; False if none does."""
        while self.j._open_next():
            if self._write():
                return True
        return False

    def _bury(self, seg):
        """No record of a husk shows any more: its first one, and those behind a TOUCH."""
        j = self.j
        head = j._head
        j._head = seg
        j._off = self.scan.load(seg)
        if j._off:  # else the header does not show: nothing counts, and it would be erased
            self._forget(j._off)
            self._silence(j._off)
        j._head = head
        self.scan.load(head)

    def _give_up(self):
        """The newest segment holds nothing but copies: go back to the originals. If no other
        segment is free it is erased at once. Where it settles something in an older segment
        that is the last resort: a cut in the erase leaves that to be settled again."""
        j = self.j
        self.replay.void.append(j._head)
        self._serial, self._off, self._place, self._size = self.replay.before
        for index, place in self.replay.copies:
            j._moved(index, place, j._up(j._word(place + 1) + _LONG))
        if not j._free():
            self._bytes = bytearray(self._size)
            j._body = self._place
            j.read(0, self._bytes, self._size)
            j._serials[j._head] = 0

    def _fasten(self):
        """Decide in place. Program the last record once more where it was first, with the same
        bytes, so that its bits are whole. SETTLE then carries no record, and the new segment takes
        all live messages of the oldest one.

        Nothing is done to what lies behind that record: the new SETTLE record passes over it, and
        bits that are half way to 0 could not be made whole if a later boot takes it in."""
        j = self.j
        seg = j._head
        off = self._off
        size = self._size
        place = self._place
        to = (seg << j._shift) + off
        if not size or self._serial != j._serials[seg]:  # it came with this segment's first record
            off = self.scan.load(seg)
            if not self.matches(off):
                off = self.replay.start
            place = (seg << j._shift) + off
            to = place + _SETTLED
            size = self.scan.valid(seg, off) - 4
        j._off = off  # not 0: no header, no erase
        j._begin(off)
        j._carry(place, size)
        copy(j._tmp, 0, j._crc, 0, 4)
        j._emit(j._tmp, 0, 4)
        j._flush()
        off = j._up(off + size + 4)
        if not j._failed and self._silence(off):
            self._moved(to)
            self._serial = j._serials[seg]
            self._off = off
            self._size = 0

    def _moved(self, to):
        """The index follows the last record, if it is a message, to the copy of it that counts."""
        j = self.j
        for i in range(j._span):
            if j._states[i] and j._places[i] == self._place:
                j._moved(i, to, j._up(self._size + 4))

    def _silence(self, end):
        """Set the first byte behind each TOUCH behind `end` to 0, but where the SETTLE record
        shows that this mount has read. A mount that was cut may have left one that is unseen on
        this boot, and ends the log before the last record: with the new SETTLE record behind it,
        which carries none, it would lose that one. False if the flash did not take it."""
        j = self.j
        at = (end + j._chunk - 1) // j._chunk * j._chunk
        while at < j._end and not j._failed:
            if self.scan.byte(j._head, at) == _TOUCH and not self.matches(at + j._up(1)):
                if not self._touch(at):  # whole first: who did not see it would go on here
                    return False
                self._forget(at + j._up(1))
            at += j._chunk
        return not j._failed

    def _forget(self, off):
        """No record begins at that place of the head."""
        j = self.j
        j._begin(off)
        j._tmp[0] = 0
        j._emit(j._tmp, 0, 1)
        j._flush()

    def matches(self, off):
        """Whether a valid SETTLE record in the head ends the old log where the last one does."""
        j = self.j
        if not self.scan.settles(j._head, off):
            return False
        i = self.scan.at(j._head, off)
        if get4(j._back, i + 3) != self._serial:
            return False
        return j._back[i + 7] << 8 | j._back[i + 8] == self._off
