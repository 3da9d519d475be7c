"""Where the clock of a capture is not believed, and which violations are told in spite of it.

Knows: times of frames, what TCP's time stamps tell of them. Must not know: tables, files.
"""

import numpy as np

from ..compiled.layout import GRACE, LATE_FAR, SECOND
from .order import ORDER
from .statements import SILENCE

#: For so long a capture with a silent client may have no frame at all, and is believed.
STILL = 100 * SECOND
NONE = np.zeros((0, 3), np.int64)  #: no steps


def steps_of(pauses):
    """Where the clock of a capture is not to be believed without more: rows of (from, to, whether
    it was wrong for sure), times in ns. It goes back (from > to), time stamps of TCP deny it, or
    nothing at all was captured for longer than STILL. pauses: Pauses.doubted of tcp/stamps.py."""
    ahead = pauses["until"] - pauses["since"]
    wrong = (ahead < 0) | (pauses["wrong"] > 0)
    rows = np.stack([pauses["since"], pauses["until"], wrong], axis=1).astype(np.int64)
    return rows[wrong | (ahead > STILL)]


def between(before, after):
    """The same of the time between two frames, of which nothing else is known."""
    wrong = after < before - GRACE
    return np.array([(before, after, wrong)] if wrong or after - before > STILL else NONE,
                    np.int64).reshape(-1, 3)  # fmt: skip


def believed(rows, conns, steps):
    """Which violations are told. Not those that rest on the order of both sides' packets where the
    capture has bytes after their acknowledgement, nor those of silence where it has them so late
    that its times do not fit together; nor those that rest on a time in which the clock was wrong
    for sure, or in which no connection at all has a frame for longer than STILL and four times the
    keep alive: neither side would be silent for so long, so that is a step of the clock, or the
    capture stood still. Without a keep alive both sides may be silent."""
    late = conns["late"][rows["conn"]]
    told = ~(np.isin(rows["code"], ORDER) & (late > 0))
    told &= ~(np.isin(rows["code"], SILENCE) & (late == LATE_FAR))
    if not len(steps):
        return told
    low, high, wrong = steps[:, :2].min(axis=1), steps[:, :2].max(axis=1), steps[:, 2] > 0
    for k in np.flatnonzero(np.isin(rows["code"], SILENCE)).tolist():
        end = int(rows["time"][k])
        begin = end - (int(rows["value"][k]) + 1) * 1_000_000
        allowed = int(conns["keep_alive"][rows["conn"][k]]) * SECOND
        meets = (low < end) & (high > begin)
        doubted = wrong | (allowed > 0) & (high - low > max(4 * allowed, STILL))
        told[k] = not (meets & doubted).any()
    return told
