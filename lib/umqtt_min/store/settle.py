"""Settle: decides what a power cut left undecided, and records the decision.

Knows: the end of the log as a replay found it, SETTLE records, TOUCH bytes.
Must not know: what messages are for.

A torn program may read either way on every later boot. So a SETTLE record gives the place where
the old log ends. It carries the last accepted record, because nothing proves the bits of that
record whole. JOURNAL.md says why that is enough.
"""

import os

from ..port import const

_EIO = const(5)
_PUT = const(0x40)  # as in replay.py
_TOUCH = const(0x2A)
_LONG = const(7)
_TAIL = const(8)
_SHORT = const(9)
_SETTLED = const(13)
_BLANK = const(255)


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
        at = 0 if j.medium.once or self.scan.husk or self._anew else self._fresh_chunk()
        size = j._up(1) + _SETTLED + self._size + 4
        full = False
        # The reclaim that was cut has to find room for its rest; a journal that had more segments,
        # for the oldest of those that it has.
        if not j._free() and (r.redundant or j.medium.elsewhere and not r.void):
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
            n = j._up(n + 4)
            j._filled += n
            for i in range(j._span):
                if j._states[i] and j._places[i] == self._place:
                    j._moved(i, to, n)
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
        while j._open_next():
            if self._write():
                return
        raise OSError(_EIO, "no segment takes what is programmed")

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
        """Decide in place. Program the last record once more, with the same bytes, so that its
        bits are whole. Set the byte behind it to 0, so that no record begins there. SETTLE then
        carries no record, and the new segment takes all live messages of the oldest one."""
        j = self.j
        start = self.replay.start
        end = self.replay.end
        j._off = start  # not 0: no header, no erase
        j._begin(start)
        j._carry((j._head << j._shift) + start, end - start)
        if end < j._end:
            j._tmp[0] = 0
            j._emit(j._tmp, 0, 1)
        j._flush()
        if not j._failed and self._silence():
            self._serial = j._serials[j._head]
            self._off = end
            self._size = 0

    def _silence(self):
        """Set the first byte behind each TOUCH to 0. A mount that was cut may have left a SETTLE
        record there that is unseen on this boot. It ends the log before the last record, and
        carries that record. Beside the new SETTLE record, which carries none, it would lose the
        last record. False if the flash did not take it."""
        j = self.j
        at = (self.replay.end + j._chunk - 1) // j._chunk * j._chunk
        while at < j._end and not j._failed:
            if self.scan.byte(j._head, at) == _TOUCH:
                j._begin(at + j._up(1))
                j._tmp[0] = 0
                j._emit(j._tmp, 0, 1)
                j._flush()
            at += j._chunk
        return not j._failed
