"""Mounting a journal: which segments and which of their records count.

Knows: segment order, torn tails, jumps over what a recovery declared void.
Must not know: what a record means (apply.py), what is written after it (settle.py).
"""

from array import array

from .apply import apply, raise_seq
from .bits import get4, same
from .log import HEADER, MARK, NOWHERE, PUT, SETTLE, SETTLED, WINDOW


class Replay:
    """The state of one mount; collected when it is done."""

    def __init__(self, journal):
        self._j = journal
        self._jumps = array("I")  # pairs: from where, to where
        self._from = self._to = NOWHERE  # the next jump
        self._resume = 0
        self._husk = 0  # serial of a header above the log with nothing valid behind it
        self._end = 0  # where the log ends in its last segment
        # The last accepted record: its position, and what of it must be carried over.
        self._serial = self._off = 0
        self._seg = self._place = self._length = 0
        # Segments that count no more, and whether that is so of the newest one: it holds
        # nothing but copies, which a reclaim was making of messages in older segments.
        self._void = []
        self._landing = 0  # position of the SETTLE record last jumped to
        self._at = 0  # position of the last accepted record
        self._copies = []  # pairs: number in the index, place of the original
        self._redundant = False
        self._bytes = None  # what to carry over, if the medium will not have it any more
        self._first = 0  # offset of a segment's first record
        self._before = None  # what to carry over if the newest segment does not count

    # Which segments are in the log.

    def _scan(self):
        """Fill the table of serial numbers: segments with a header and a valid record."""
        j = self._j
        newest = 0
        for seg in range(j.medium.count):
            j._serials[seg] = j._bad[seg] = 0
            serial = self._probe(seg)
            j._serial = max(j._serial, abs(serial))
            if serial < 0:
                self._husk = max(self._husk, -serial)
            elif serial > newest:
                newest = serial
                j.epoch = bytes(j._back[8:16]) if j._load(seg) else b""
        tail = self._drop_strangers()
        for seg in range(j.medium.count):
            if j._serials[seg] < tail:
                j._serials[seg] = 0
        if self._husk < newest:
            self._husk = 0

    def _probe(self, seg):
        """Serial of a segment; negative if nothing valid is behind its header, 0 if none."""
        j = self._j
        try:
            off = j._load(seg)
            serial = get4(j._back, 16)
            if not off:
                j.skipped += self._litter(seg)
                return 0
            if j._valid(seg, off) > 0 or self._resync(seg, off, j._end) < j._end:
                j._serials[seg] = serial
                return serial
        except OSError:
            j.skipped += j._size
            return 0
        return -serial

    def _drop_strangers(self):
        """Forget segments of another epoch; the highest tail that a header names."""
        j = self._j
        tail = 0
        for seg in range(j.medium.count):
            if j._serials[seg]:
                j._load(seg)
                if bytes(j._back[8:16]) == j.epoch:
                    tail = max(tail, get4(j._back, 20))
                else:
                    j._serials[seg] = 0
        return tail

    def _candidate(self, seg, off):
        """The next place behind off where a recovery has left a valid SETTLE record, 0 if
        there is none: a page that begins with MARK, then the record."""
        j = self._j
        off = (off // j._page + 1) * j._page
        while off < j._end:
            if j._back[j._window(seg, off)] == MARK and self._is_settle(seg, off + j._up(1)):
                return off
            off += j._page
        return 0

    def _is_settle(self, seg, off):
        j = self._j
        if off >= j._end or j._back[j._window(seg, off)] != SETTLE:
            return False
        return j._valid(seg, off) > 0

    def _litter(self, seg):
        """Bytes that are not blank."""
        j = self._j
        count = 0
        if j.medium.opaque:
            return 0
        for off in range(0, j._size, WINDOW):
            j._window_seg = -1
            j._window(seg, off)
            for byte in j._back:
                count += byte != 255
        return count

    # Jumps over what does not count.

    def _collect(self, seg):
        """Note the SETTLE records of a segment whose header was just loaded."""
        j = self._j
        off = j._load(seg)
        serial = j._serials[seg]
        if self._is_settle(seg, off):
            self._jump(seg, off, self._position(serial, off))
        off = self._candidate(seg, off)
        while off:
            self._jump(seg, off + j._up(1), self._position(serial, off))
            off = self._candidate(seg, off)

    def _jump(self, seg, off, to):
        j = self._j
        i = j._window(seg, off)
        serial = get4(j._back, i + 3)
        at = max(0, self._position(serial, j._back[i + 7] << 8 | j._back[i + 8]))
        if at < to:
            self._jumps.append(at)
            self._jumps.append(to)

    def _position(self, serial, off):
        """A place as one number that grows along the log."""
        return (serial - self._base) * self._j._size + off

    def _next_jump(self, at):
        self._from = self._to = NOWHERE
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
            if self._at > self._landing:  # what was written behind it proves it whole
                j._serials[seg] = 0
        j._head = order[-1]

    def _segment(self, seg):
        j = self._j
        off = j._load(seg)
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
        self._before = (j._serials[seg], off, 0, 0, 0)
        before = self._at
        while off < j._size:
            off = self._step(seg, start, off)
        if self._at == before and self._resume >= start + j._size:
            self._void.append(seg)

    def _step(self, seg, start, off):
        """Go over one record, or over what is not one; the offset behind it."""
        j = self._j
        if start + off >= self._from:
            return self._leap(seg, start)
        n = j._valid(seg, off)
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
        if j._back[j._window(seg, off)] == MARK:
            off += j._up(1)
        self._landing = self._position(j._serials[seg], off)
        return off

    def _resync(self, seg, off, limit):
        """The next place from off on where a valid record begins, limit if there is none."""
        j = self._j
        last = self._last_byte(seg)
        off = j._up(off)
        while off < limit and off < last:
            if j._valid(seg, off) > 0:
                return off
            off += j._align
        return limit

    def _last_byte(self, seg):
        """Offset behind the last byte that is not blank."""
        j = self._j
        off = j._size
        while off > 0:
            j._window_seg = -1
            j._window(seg, off - WINDOW)
            if not same(j._back, 0, j._blank, 0, WINDOW):
                break
            off -= WINDOW
        i = WINDOW
        while off > 0 and j._back[i - 1] == 255:
            off -= 1
            i -= 1
        return off

    def _count_skipped(self, seg, off, to):
        j = self._j
        while off < to and not j.medium.opaque:
            j.skipped += j._back[j._window(seg, off)] != 255
            off += 1

    def _accept(self, seg, off, n):
        j = self._j
        i = j._window(seg, off)
        kind = j._back[i]
        if kind == SETTLE:
            self._serial = get4(j._back, i + 3)
            self._off = j._back[i + 7] << 8 | j._back[i + 8]
            self._place = off + SETTLED
            self._length = n - SETTLED - 4
        else:
            self._serial = j._serials[seg]
            self._off = self._place = off
            self._length = n - 4
        self._seg = seg
        self._end = j._up(off + n)
        self._at = self._position(j._serials[seg], off)
        if kind == SETTLE and (off == self._first or self._before[:2] == (
                self._serial, self._off)):
            self._before = (self._serial, self._off, seg, self._place, self._length)
        elif self._length:
            self._original(seg, self._place)
        apply(j, seg, off)

    def _original(self, seg, off):
        """Note where a message is that seems to be in the log a second time. Whatever else
        is in a segment makes it count."""
        j = self._j
        i = j._window(seg, off)
        if j._back[i] < PUT:
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
        j.key = bytes(back[HEADER : HEADER + back[42]])
        j.confirmed = max(j.confirmed, get4(back, 36))
        j._count = 0
        at = HEADER + back[42]
        for i in range(back[43]):
            j._in_add(back[at + 2 * i] << 8 | back[at + 2 * i + 1])
        j._tail = max(j._tail, get4(back, 20))
        raise_seq(j, seq)
        j._forget_held()

    def _bury(self, seg):
        """The segment was reclaimed: what the index still has in it was moved and is done."""
        j = self._j
        for seq in range(j.low, j.seq):
            if j._state(seq) and j._places[seq % j._span] >> j._shift == seg:
                j._set(seq, 0)
        j._serials[seg] = 0
