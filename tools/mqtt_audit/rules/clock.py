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
OWN = -1  #: file of a step until of_file() says which


def steps_of(pauses, file=OWN):
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
    return np.array([(before, after, wrong, OWN)] if wrong or after - before > STILL else NONE,
                    np.int64).reshape(-1, 4)  # fmt: skip


def of_file(steps, file):
    """The steps as those of a capture, or of several that are read as one, with this number."""
    return np.column_stack([steps[:, :3], np.full(len(steps), file, np.int64)])


class Gateways:
    """Which captures are of one gateway: those that have a connection in common, with all between
    them. The clock of another one, and when that had no frame, tells nothing. of: the gateway of
    each file, by its number; a file that is not told of has one of its own."""

    def __init__(self, of=()):
        self._of = dict(enumerate(of))

    def of(self, file):
        """The gateway of a file, a number."""
        return self._of.setdefault(file, file)

    def join(self, file, other):
        """Two files are of one gateway."""
        kept, gone = self.of(file), self.of(other)
        if kept != gone:
            self._of = {f: kept if of == gone else of for f, of in self._of.items()}

    def concern(self, steps, conns):
        """[step, connection]: whether a step is one of the clock of a connection's gateway, in a
        file between its first and its last one. conns: rows of layout.CONN."""
        files, at = np.unique(steps[:, 3], return_inverse=True)
        begun, which = np.unique(conns["id"] >> 32, return_inverse=True)
        own = np.array([self.of(file) for file in begun.tolist()], np.int64)
        there = [(begun <= file)[which] & (file <= conns["upto"]) & (own == self.of(file))[which]
                 for file in files.tolist()]  # fmt: skip
        return np.array(there, bool).reshape(len(files), len(conns))[at]


def believed(rows, conns, steps, gateways):
    """Which violations are told. Not those that rest on the order of both sides' packets where the
    capture has bytes after their acknowledgement, nor those of silence where it has them so late
    that its times do not fit together, or has segments again so late; nor those that rest on a
    time in which the clock was wrong for sure, or in which no connection at all has a frame for
    longer than STILL and four times the keep alive: neither side would be silent for so long, so
    that is a step of the clock, or the capture stood still. Without a keep alive both sides may be
    silent. gateways: a Gateways."""
    late = conns["late"][rows["conn"]]
    told = ~(np.isin(rows["code"], ORDER) & (late > 0))
    belated = conns["belated"][rows["conn"]] > 0
    told &= ~(np.isin(rows["code"], SILENCE) & ((late == LATE_FAR) | belated))
    if not len(steps):
        return told
    low, high, wrong = steps[:, :2].min(axis=1), steps[:, :2].max(axis=1), steps[:, 2] > 0
    silences = np.flatnonzero(np.isin(rows["code"], SILENCE))
    theirs = gateways.concern(steps, conns[rows["conn"][silences]]).T
    for k, concern in zip(silences.tolist(), theirs):
        end = int(rows["time"][k])
        begin = end - (int(rows["value"][k]) + 1) * 1_000_000
        allowed = int(conns["keep_alive"][rows["conn"][k]]) * SECOND
        meets = (low < end) & (high > begin)
        doubted = wrong | (allowed > 0) & (high - low > max(4 * allowed, STILL))
        told[k] &= not (meets & doubted & concern).any()
    return told


def timed(begin, end, allowed, steps, conns=None, gateways=None):
    """Which times from `begin` to `end` (ns) hold no step forward of the clock, as believed() has
    it of silences. allowed: the keep alive of each in ns, 0: none. conns: the connection of each,
    and gateways, a Gateways; without them every step counts."""
    told = np.ones(len(begin), bool)
    ahead = steps[steps[:, 1] > steps[:, 0]]
    sure, rest = ahead[ahead[:, 2] > 0], ahead[ahead[:, 2] == 0]
    for file in np.unique(sure[:, 3]).tolist() if len(sure) else ():
        own = sure[sure[:, 3] == file]
        own = own[np.argsort(own[:, 0], kind="stable")]
        elsewhere = gateways is not None and ~gateways.concern(own[:1], conns)[0]
        # Of those that begin with each or later, where the first one ends.
        ends = np.append(np.minimum.accumulate(own[::-1, 1])[::-1], np.iinfo(np.int64).max)
        told &= elsewhere | (ends[np.searchsorted(own[:, 0], begin)] > end)
    long = np.flatnonzero(told & (allowed > 0) & (end - begin > STILL)) if len(rest) else ()
    theirs = gateways.concern(rest, conns[long]).T if gateways and len(long) else np.ones(
        (len(long), 1), bool)  # fmt: skip
    for k, concern in zip(long, theirs):
        inside = (rest[:, 0] >= begin[k]) & (rest[:, 1] <= end[k]) & concern
        told[k] = not (inside & (rest[:, 1] - rest[:, 0] > max(4 * allowed[k], STILL))).any()
    return told


def known(conns, begin, end, steps, gateways):
    """Of which connections it is known how long it was from one time to another, `begin` and `end`
    being names of layout.CONN: the clock made no step between."""
    allowed = conns["keep_alive"].astype(np.int64) * SECOND
    return timed(conns[begin], conns[end], allowed, steps, conns, gateways)
