"""Whether a capture's clock ran on while it had no frame, as TCP's time stamps tell; compiled.

Knows: the time stamps of segments (RFC 7323), pauses of a capture. Must not know: packets, rules.

The time stamps of nearly all systems count milliseconds, by a clock that nobody sets. So two
segments of one side show how long the pauses between them really were, if both carry one. A step
of the clock shows in every side that was heard before and after it: one that denies it is right,
for an end may have slept, or count otherwise.
"""

import numpy as np

from ..capture.records import u32
from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import GRACE, MASK, PAUSE, SECOND, SYN

#: A capture without a frame for so long has a pause, in ns: shorter steps of the clock are within
#: what a silence is allowed beyond its limit.
LEAST = GRACE // 2
UNSURE = GRACE // 2  #: ns that a segment may be on its way longer than the one before it
DRIFT = 12  #: a clock may run fast or slow by the 4096th part (2 to the power of this)
LONGEST = (1 << 31) * 1_000_000  #: ns: in a longer time the time stamps may come round
KEPT = 1 << 16  #: pauses of which one can still be told right or wrong
#: Places in the state of Pauses: pauses so far, those of them that are given up; whether there was
#: a frame; times of the frame before, of the first one, and the latest of all.
N, GONE, KNOWN, BEFORE, FIRST, LAST = range(6)
#: Of one side in a capture: its pair of endpoints, which of them it is, and the times (ns) and
#: time stamps of its first and of its latest segment that has one; first: -1, that is a SYN.
STAMPED = np.dtype([("pair", "V36"), ("side", "u1"), ("first", "i8"), ("first_stamp", "u4"),
                    ("last", "i8"), ("last_stamp", "u4")])  # fmt: skip


@kernel
def stamp_at(d, q, head, end):
    """The time stamp of the segment whose TCP header of `head` bytes is at q, or 0. It is where
    nearly everybody has it, alone behind two NOPs; in a SYN, with others beside it, anywhere."""
    if head >= 32 and q + 32 <= end and d[q + 22] == 8 and d[q + 20] == 1 and d[q + 21] == 1:
        return u32(d, q + 24, True) if d[q + 23] == 10 else 0
    p, stop = q + 20, min(q + head, end) if d[q + 13] & SYN else 0
    while p + 10 <= stop and d[p]:
        if d[p] == 8:
            return u32(d, p + 2, True) if d[p + 1] == 10 else 0
        p += 1 if d[p] == 1 else max(2, wide(d[p + 1]))
    return 0


@inlined
def pause(pauses, state, time):
    """The next frame of the capture has this time."""
    before = state[BEFORE]
    if not state[KNOWN]:
        state[FIRST] = state[LAST] = time
    if state[KNOWN] and (time - before > LEAST or before - time > GRACE):
        row = pauses[state[N] - state[GONE]]
        row["since"], row["until"], row["right"], row["wrong"] = before, time, 0, 0
        state[N] += 1
    state[BEFORE], state[KNOWN] = time, 1
    state[LAST] = max(state[LAST], time)


def _agree(past, real):
    """Whether a side's time stamps, which are `real` ms apart, confirm that `past` ns lie between
    its segments."""
    return abs(real * (SECOND // 1000) - past) <= UNSURE + (abs(past) >> DRIFT)


_agrees = kernel(_agree)  # of loops alone: Python calls the other one


@inlined
def note(pauses, state, t, time, stamp, opens):
    """A side's next segment has this time and time stamp. t: its row of layout.TRAIL; opens: it is
    a SYN, so that the one before may be of another host."""
    past = time - t["stamped"]
    if not t["began"]:
        t["began"], t["began_stamp"] = -1 if opens else time, stamp
    if t["stamped"] and not opens and t["pauses"] < state[N]:
        real = stamp - t["stamp"] & MASK
        if real >> 31:
            return  # it was sent before the other one
        right = _agrees(past, real)
        for k in range(max(0, t["pauses"] - state[GONE]), state[N] - state[GONE]):
            if abs(past) >= LONGEST:
                break
            if right:
                pauses[k]["right"] = 1
            else:
                pauses[k]["wrong"] = 1
    t["stamped"], t["stamp"], t["pauses"] = time, stamp, state[N]


def stamped(keys, trails):
    """Rows of STAMPED of the sides that have time stamps. keys, trails: rows of layout.KEY, and of
    layout.TRAIL for both sides of each."""
    at, side = np.nonzero(trails["stamped"])
    some = trails[at, side]
    rows = np.zeros(len(at), STAMPED)
    size = STAMPED["pair"].itemsize
    raw = keys.view(np.uint8).reshape(len(keys), keys.dtype.itemsize)
    rows["pair"] = raw[at, :size].copy().view(STAMPED["pair"]).reshape(-1)
    rows["side"] = side
    for name, had in (("first", "began"), ("first_stamp", "began_stamp"), ("last", "stamped"),
                      ("last_stamp", "stamp")):  # fmt: skip
        rows[name] = some[had]
    return rows


def over(before, after):
    """What time stamps say of the time between two captures: whether a side confirms it, whether
    one denies it. before, after: rows of STAMPED, of more than one part of a capture in order."""
    known = {(pair, side): (last, stamp) for pair, side, _, _, last, stamp in before.tolist()}
    right = wrong = False
    for pair, side, first, stamp, _, _ in after.tolist():
        last, had = known.pop((pair, side), (0, 0))  # a later part has later ones
        real = stamp - had & MASK
        if last and first >= 0 and not real >> 31 and abs(first - last) < LONGEST:
            agrees = _agree(first - last, real)
            right, wrong = right or agrees, wrong or not agrees
    return right, wrong


class Pauses:
    """Those of one capture that is read from its beginning."""

    def __init__(self):
        self.rows, self.state = np.zeros(0, PAUSE), np.zeros(6, np.int64)
        self._told = []

    def room(self, frames):
        """Have room for so many more. Of very many the older half is told as it is."""
        held = int(self.state[N] - self.state[GONE])
        if held > KEPT:
            self._told.append(self._doubted(self.rows[: held // 2]))
            self.rows[: held - held // 2] = self.rows[held // 2 : held].copy()
            self.state[GONE] += held // 2
            held -= held // 2
        if held + frames > len(self.rows):
            more = np.zeros(2 * (held + frames), PAUSE)
            more[:held] = self.rows[:held]
            self.rows = more

    @staticmethod
    def _doubted(rows):
        back = rows["since"] > rows["until"]
        return rows[back | (rows["right"] == 0)]

    @property
    def doubted(self):
        """Rows of layout.PAUSE: the steps backwards, and the pauses that no side's time stamps
        confirm; `wrong`: some side's deny them."""
        held = int(self.state[N] - self.state[GONE])
        return np.concatenate([*self._told, self._doubted(self.rows[:held])])

    @property
    def first(self):
        """Time of the first frame, or None."""
        return int(self.state[FIRST]) if self.state[KNOWN] else None

    @property
    def last(self):
        """The latest time of a frame, or 0."""
        return int(self.state[LAST])

    @property
    def before(self):
        """Time of the last frame, or None."""
        return int(self.state[BEFORE]) if self.state[KNOWN] else None
