"""Recovery: the steps of a mount, from the bytes of a medium to a journal that is ready to append.

    scan.py     finds the segments of the log and tells valid records from others
    replay.py   goes over the records in order and fills the index
    settle.py   decides what a cut left undecided, and records the decision

Knows: the order of these steps; the needs of a journal that was made with other arguments.
Must not know: bytes of a record.

The four classes are parts of the journal: they read and set its fields. Journal.open() loads them
and frees them again, because only a mount needs this half of a journal's code.
"""

from ..port import const
from . import opened
from .replay import Replay
from .scan import Scan, get4
from .settle import Settle

_LONG = const(7)  # as in segment_log.py
_NOWHERE = const(0x3FFFFFFF)
_BAD = const(0x3FFFFFFF)
_FREE = const(2)  # segments that a mount likes to find free: see settle.py


class Recovery:
    """One mount of a journal."""

    def __init__(self, journal):
        self.j = journal
        self.scan = None
        self.replay = None
        self._anew = False  # settle in a new segment, for its header forgets what this one says

    def mount(self):
        """Replay the medium and settle it. If that fails the journal is not open."""
        j = self.j
        opened.pop(j.medium.where, None)
        j.medium.open()
        span = j._span
        skipped = j.skipped
        j._clear()
        seg = self._read()
        while j._missed:  # messages= was larger: once more, with room for all
            j.skipped = skipped
            self._widen()
            seg = self._read()
        if j.medium.elsewhere:
            self._look_outside(seg)
        if self.replay.copies or max(j._loads) > j._area or len(j._inbound) > 2 * j._ids:
            self._reserve()
        if j.medium.growing:
            self._grow()
        Settle(self.replay, self._anew).settle(seg)
        if j._span > span:
            self._narrow(span)
        if j._born:
            for i in range(j._span):
                j._born[i] = j._clock()
        if j.medium.where is not None and len(opened) < 8:  # no board has more
            opened[j.medium.where] = j.boot

    def _read(self):
        """Fill the index. Returns the segment where the log begins, -1 if there is none."""
        j = self.j
        self.scan = Scan(j)
        self.scan.scan()
        seg = j._oldest(0) if max(j._serials) else -1
        self.replay = Replay(self.scan)
        if seg >= 0:
            self.replay.replay(seg)
        return seg

    # A journal that was made with other arguments.

    def _widen(self):
        """A replay has missed messages: make room for the numbers from the oldest of them on, and
        clear the index."""
        j = self.j
        self.scan = self.replay = None
        j._make_index(j.seq - j._missed, j._born)
        j._clear()

    def _narrow(self, messages):
        """After a mount that made more room: keep as much as the live ones need, `messages` at
        least."""
        j = self.j
        places = j._places
        states = j._states
        old = j._span
        j._make_index(max(messages, j.seq - j.low), j._born)
        for seq in range(j.low, j.seq):
            j._places[seq % j._span] = places[seq % old]
            j._states[seq % j._span] = states[seq % old]

    def _reserve(self):
        """For a journal that was written with another inbound=: keep as many identifiers in flash
        as leave the messages of each segment room in any other one, the rest in RAM. Tries
        inbound= first, or as many as are there if these are more."""
        j = self.j
        loads = list(j._loads)
        for _, place in self.replay.copies:  # if they do not count their originals do
            loads[place >> j._shift] += j._up(j._word(place + 1) + _LONG)
        n = len(j._inbound) // 2
        j._limits(n)
        while n > 1 and j._area < max(loads):
            n -= 1
            j._limits(n)
        while j._count > n:
            self._anew = True  # the flash forgets it before PUBREL can come
            j._count -= 1
            pid = j._inbound[2 * j._count] << 8 | j._inbound[2 * j._count + 1]
            if not j.in_has(pid):
                j._keep(pid)
        j._inbound = j._inbound[: 2 * n]
        # What each message is charged depends on the limit.
        j._capacity = j._most
        j._used = 0
        for seg in range(j.medium.count):
            j._loads[seg] = 0
        for seq in range(j.low, j.seq):
            if j._state(seq):
                place = j._places[seq % j._span]
                j._count_in(place, j._word(place + 1) + _LONG)

    def _look_outside(self, seg):
        """Before anything is written: raise ValueError if the log goes on in blocks outside of
        the region. If no log was found: if one begins between the segments."""
        j = self.j
        found = []
        try:
            for block in j.medium.strays(seg < 0):
                j.medium.shift(block)
                try:
                    if self.scan.load(0) and (seg < 0 or bytes(j._back[8:16]) == j.epoch
                                              and get4(j._back, 16) >= j._tail):
                        found.append(block)
                except OSError:
                    pass  # it cannot be read
        finally:
            j.medium.shift()
            j._seen = _NOWHERE
        if found:
            from .validate import refuse_blocks

            refuse_blocks(j.medium, found)
        if seg >= 0:
            self.scan.load(j._head)

    def _grow(self):
        """Make the segments that every journal needs, then free ones while there is room. Raises
        OSError ENOSPC if there is no room for the needed ones."""
        j = self.j
        medium = j.medium
        medium.begin(3 + medium.spare, j._serials)
        for seg in range(medium.made, medium.count):
            j._serials[seg] = _BAD  # neither free nor in the log
        j._use(medium.made)
        while j._free() < _FREE and medium.made < medium.count and j._add_segment():
            pass
