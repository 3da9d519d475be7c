"""Settling: what a power cut left undecided is decided, and the decision written down.

Knows: the end of the log as a replay found it, SETTLE records, MARK bytes.
Must not know: what messages are for.

A torn program may read either way on every later boot. So a SETTLE record says from where on the
old log does not count, and carries the last accepted record, whose bits nothing proves to be
whole. STORE.md has the proof.
"""

import os

from micropython import const

from .replay import Replay
from .setup import clear

_LATEST = const(2)  # as in full.py
_EIO = const(5)
_PUT = const(0x40)  # as in replay.py
_MARK = const(0x2A)
_LONG = const(7)
_SETTLED = const(13)
_BLANK = const(255)


def mount(j):
    """Replay the medium into the journal, settle it, and leave it ready to append."""
    j.medium.open()
    clear(j)
    if j.hold or j._max_age or j._policy == _LATEST:
        from .seldom import confirm  # noqa: F401  (loaded while there is nothing to lose)
    Settle(j).run()
    if j._max_age:
        for i in range(j._span):
            j._born[i] = j._clock()


class Settle(Replay):
    """A mount that ends with everything decided."""

    def run(self):
        j = self._j
        self._scan()
        seg = j._oldest(0) if max(j._serials) else -1
        if seg < 0:
            self._format()
        else:
            self._replay(seg)
            self._settle()
        self._make_free()

    def _make_free(self):
        """Have as many segments free as there should be. If it was cut again and again in a
        full journal there may be fewer: acknowledgements will make room."""
        j = self._j
        j._short = j._free() < j._keep
        for _ in range(2 * j.medium.count):
            if j._short:
                j._tidy()
            if not j._short or not j._open_next():
                break

    def _give_up_copies(self):
        """The newest segment holds nothing but copies: go back to the originals. If no other
        segment is free it is erased at once. Where it settles something in an older segment
        that is the last resort: a cut in the erase leaves that to be settled again."""
        j = self._j
        self._void.append(j._head)
        self._serial, self._off, self._place, self._length = self._before
        for index, place in self._copies:
            j._moved(index, place, j._up(j._word(place + 1) + _LONG))
        if not j._free():
            self._bytes = bytearray(self._length)
            j._body = self._place
            j.read(0, self._bytes, self._length)
            j._serials[j._head] = 0

    def _format(self):
        j = self._j
        j.epoch = os.urandom(8)
        j._head = j.medium.count - 1
        j._tail = 0
        self._serial = self._off = 0
        j.boot = 1
        self._recover_in_new()
        j._tail = j._serial

    def _settle(self):
        j = self._j
        j._tail = j._tail or self._base
        j.boot += 1
        if j._free() < 2:  # the segment with the last mount's number may have been given up
            j.boot += int.from_bytes(os.urandom(2), "big")
        crowded = self._redundant and not j._free() and self._before[0] == j._serials[j._head]
        # Which pages are untouched cannot be told for sure: where none may be programmed twice
        # there is no going on in this segment.
        at = 0 if j.medium.once or self._husk or crowded else self._fresh_page()
        size = j._up(1) + _SETTLED + self._length + 4
        if not at or at + size > j._end:
            self._recover_in_new()
            return
        self._load(j._head)
        if self._mark_up_to(at):
            j._off = at + j._up(1)
            if self._write_settle():
                return
        self._recover_in_new()

    def _fresh_page(self):
        """The first page of the head that no torn program can have touched, 0 if none.

        A program never crosses a page, so a torn one without any trace is in the page where
        the log ends; what a visible record claims to fill may be torn further on."""
        j = self._j
        seg = j._head
        last = max(self._end, self._last_byte(seg))
        last = max(last, self._end + self._extent(seg, self._end))
        off = j._page
        while off < j._end:
            if self._byte(seg, off) == _MARK:
                settle = off + j._up(1)
                last = max(last, settle + max(1, self._extent(seg, settle)))
            off += j._page
        off = (last // j._page + 1) * j._page
        return off if off < j._end else 0

    def _mark_up_to(self, last):
        """Mark the pages behind the log up to that one, in this order.

        Another boot may read weak bits differently and choose another page. A mark that a cut
        left invisible has visible ones before it: so no boot chooses a page before it, and
        whoever goes on there writes the same byte over it."""
        j = self._j
        at = (self._end + j._page - 1) // j._page * j._page
        while at <= last:
            if self._byte(j._head, at) in (_BLANK, _MARK):
                if not self._mark(at):
                    return False
            at += j._page
        return True

    def _mark(self, at):
        """The page is touched from here on."""
        j = self._j
        j._begin(at)
        j._tmp[0] = _MARK
        j._stage(j._tmp, 0, 1)
        j._flush()
        return not j._failed

    def _write_settle(self):
        j = self._j
        n = self._length
        if n and self._bytes is None:
            kind = j._back[j._window(self._place)]
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
        if kind >= _PUT:
            self._relocate(to, j._up(n + 4))
        for seg in self._void:
            if seg != j._head:
                j._serials[seg] = 0
        return True

    def _relocate(self, to, n):
        """The index follows a message that was carried over."""
        j = self._j
        j._filled += n
        for i in range(j._span):
            if j._states[i] and j._places[i] == self._place:
                j._moved(i, to, n)

    def _recover_in_new(self):
        """Settle in a new segment. If the one before held nothing but copies it is given up:
        however often a recovery is cut, it does not run out of segments."""
        j = self._j
        if self._redundant and j._oldest(0) != j._head:
            self._give_up_copies()
        while j._open_next():
            if self._write_settle():
                return
        raise OSError(_EIO, "no segment takes what is programmed")
