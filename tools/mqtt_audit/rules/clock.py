"""Where the clock of a capture is not believed, and which violations are told in spite of it.

Knows: times of frames, what TCP's time stamps tell of them. Must not know: tables, files.
"""

import numpy as np

from ..compiled.layout import GRACE, LATE_FAR, SECOND
from .order import ORDER
from .statements import SILENCE

#: For so long a capture with a silent client may have no frame at all, and is believed.
STILL = 100 * SECOND
NONE = np.zeros((0, 4), np.int64)  #: no steps
ALL = -1  #: file of a step that is none of one capture's clock


def steps_of(pauses, file=ALL):
    """Where the clock of a capture is not to be believed without more: rows of (from, to, whether
    it was wrong for sure, file), times in ns. It goes back (from > to), time stamps of TCP deny
    it, or nothing at all was captured for longer than STILL. pauses: Pauses.doubted of
    tcp/stamps.py. file: its number."""
    ahead = pauses["until"] - pauses["since"]
    wrong = (ahead < 0) | (pauses["wrong"] > 0)
    rows = np.stack([pauses["since"], pauses["until"], wrong, np.full(len(wrong), file)], axis=1)
    return rows.astype(np.int64)[wrong | (ahead > STILL)]


def between(before, after, stamps=(False, False)):
    """The same of the time between two frames. stamps: whether time stamps confirm it, and whether
    some deny it (over() of tcp/stamps.py)."""
    right, denied = stamps
    if right:
        return NONE
    wrong = after < before - GRACE or denied
    return np.array([(before, after, wrong, ALL)] if wrong or after - before > STILL else NONE,
                    np.int64).reshape(-1, 4)  # fmt: skip


def of_file(steps, file):
    """The steps as those of a capture, or of several that are read as one, with this number."""
    return np.column_stack([steps[:, :3], np.full(len(steps), file, np.int64)])


class Held:
    """Which files have frames of which connections: the clock of another capture, and when that
    had no frame, tells nothing of them."""

    def __init__(self):
        self._pairs = {}

    def note(self, file, pairs):
        """The file with this number has these pairs of endpoints: an array in which -1 is none."""
        self._pairs.setdefault(file, []).append(pairs[pairs >= 0])

    def _has(self, file, conns):
        if file == ALL:
            return np.ones(len(conns), bool)
        pairs = np.concatenate(self._pairs.get(file, [conns["pair"][:0]]))
        near = (conns["id"] >> 32 <= file) & (file <= conns["upto"])
        return near & np.isin(conns["pair"], pairs)

    def concern(self, steps, conns):
        """[step, connection]: whether a step is one of the clock of a file that has frames of a
        connection. conns: rows of layout.CONN."""
        files, at = np.unique(steps[:, 3], return_inverse=True)
        there = [self._has(file, conns) for file in files.tolist()]
        return np.array(there, bool).reshape(len(files), len(conns))[at]


def believed(rows, conns, steps, held):
    """Which violations are told. Not those that rest on the order of both sides' packets where the
    capture has bytes after their acknowledgement, nor those of silence where it has them so late
    that its times do not fit together, or has segments again so late; nor those that rest on a
    time in which the clock was wrong for sure, or in which no connection at all has a frame for
    longer than STILL and four times the keep alive: neither side would be silent for so long, so
    that is a step of the clock, or the capture stood still. Without a keep alive both sides may be
    silent. held: a Held."""
    late = conns["late"][rows["conn"]]
    told = ~(np.isin(rows["code"], ORDER) & (late > 0))
    belated = conns["belated"][rows["conn"]] > 0
    told &= ~(np.isin(rows["code"], SILENCE) & ((late == LATE_FAR) | belated))
    if not len(steps):
        return told
    low, high, wrong = steps[:, :2].min(axis=1), steps[:, :2].max(axis=1), steps[:, 2] > 0
    silences = np.flatnonzero(np.isin(rows["code"], SILENCE))
    theirs = held.concern(steps, conns[rows["conn"][silences]]).T
    for k, concern in zip(silences.tolist(), theirs):
        end = int(rows["time"][k])
        begin = end - (int(rows["value"][k]) + 1) * 1_000_000
        allowed = int(conns["keep_alive"][rows["conn"][k]]) * SECOND
        meets = (low < end) & (high > begin)
        doubted = wrong | (allowed > 0) & (high - low > max(4 * allowed, STILL))
        told[k] &= not (meets & doubted & concern).any()
    return told


def timed(begin, end, allowed, steps, conns=None, held=None):
    """Which times from `begin` to `end` (ns) hold no step forward of the clock, as believed() has
    it of silences. allowed: the keep alive of each in ns, 0: none. conns: the connection of each,
    and held, a Held; without them every step counts."""
    told = np.ones(len(begin), bool)
    ahead = steps[steps[:, 1] > steps[:, 0]]
    sure, rest = ahead[ahead[:, 2] > 0], ahead[ahead[:, 2] == 0]
    for file in np.unique(sure[:, 3]).tolist() if len(sure) else ():
        own = sure[sure[:, 3] == file]
        own = own[np.argsort(own[:, 0], kind="stable")]
        elsewhere = held is not None and ~held.concern(own[:1], conns)[0]
        # Of those that begin with each or later, where the first one ends.
        ends = np.append(np.minimum.accumulate(own[::-1, 1])[::-1], np.iinfo(np.int64).max)
        told &= elsewhere | (ends[np.searchsorted(own[:, 0], begin)] > end)
    long = np.flatnonzero(told & (allowed > 0) & (end - begin > STILL)) if len(rest) else ()
    theirs = held.concern(rest, conns[long]).T if held and len(long) else np.ones(
        (len(long), 1), bool)  # fmt: skip
    for k, concern in zip(long, theirs):
        inside = (rest[:, 0] >= begin[k]) & (rest[:, 1] <= end[k]) & concern
        told[k] = not (inside & (rest[:, 1] - rest[:, 0] > max(4 * allowed[k], STILL))).any()
    return told


def known(conns, begin, end, steps, held):
    """Of which connections it is known how long it was from one time to another, `begin` and `end`
    being names of layout.CONN: the clock made no step between."""
    allowed = conns["keep_alive"].astype(np.int64) * SECOND
    return timed(conns[begin], conns[end], allowed, steps, conns, held)
