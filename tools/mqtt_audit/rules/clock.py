"""Where the clock of a capture is not believed, and which violations are told in spite of it.

Knows: times of frames, what TCP's time stamps tell of them. Must not know: tables, files.
"""

import numpy as np

from ..compiled.layout import GRACE, LATE_FAR, SECOND
from ..tcp import stamps
from .order import ORDER
from .statements import SILENCE

#: For so long a capture with a silent client may have no frame at all, and is believed.
STILL = 100 * SECOND
NONE = np.zeros((0, 3), np.int64)  #: of steps_of()


def _places(ahead):
    return np.flatnonzero((ahead < -GRACE) | (ahead > STILL))


def steps_of(times, before=None):
    """Where the clock of a capture is not to be believed without more: rows of (from, to, whether
    it was wrong for sure), times in ns, of frames that follow one another. It goes back (from >
    to), or nothing at all was captured for longer than STILL. before: time of the frame before."""
    times = np.asarray(times, np.int64)
    if before is not None:
        times = np.concatenate([np.array([before], np.int64), times])
    ahead = np.diff(times)
    at = _places(ahead)
    return np.stack([times[at], times[at + 1], ahead[at] < 0], axis=1)


class Clock:
    """The clock of one capture that is read in pieces. before: time of the frame before it, or
    None, and then of its latest frame; `first`, `last`: times of its first frame, or None, and of
    its last one, or 0."""

    def __init__(self, before=None):
        self.first, self.last, self.before = None, 0, before
        self._held = []  # [(bytes, segments in them)] of the pieces before

    def steps(self, data, start, frames, segments):
        """As steps_of(), of the next frames, the first of which has number `start`, and of their
        segments, whose bytes are in `data`. Those in which the time stamps of TCP confirm the
        clock are none."""
        good = np.flatnonzero(frames["cap"] >= 0)
        if not len(good):
            return NONE
        times = frames["time"][good]
        self.first = int(times[0]) if self.first is None else self.first
        self.last = max(self.last, int(times.max()))
        found = steps_of(times, self.before)
        if len(found):
            ahead = np.diff(times, prepend=times[0] if self.before is None else self.before)
            begin = np.searchsorted(segments["frame"], good[_places(ahead)] + start).tolist()
            known = self._known(data, segments, found, begin)
            found[:, 2] |= known == stamps.WRONG
            found = found[(known != stamps.RIGHT) | (found[:, 2] > 0)]
            self._held, segments = [], segments[begin[-1] :]
        self.before = int(times[-1])
        self._hold(data, segments)
        return found

    def _known(self, data, segments, found, begin):
        """What stamps.judge() says of each step; begin: where in the segments what follows it
        begins."""
        known, pieces = [], self._held + [(data, segments[: begin[0]])]
        for (since, until, _), here, end in zip(found, begin, [*begin[1:], len(segments)]):
            behind = data, segments[here:end]
            tail = [s for bytes_, rows in pieces
                    for s in stamps.stamped(bytes_, rows[-stamps.LOOKED_AT :])]  # fmt: skip
            head = stamps.stamped(data, behind[1][: stamps.LOOKED_AT])
            known.append(stamps.judge(tail, head, int(until - since)))
            pieces = [behind]
        return np.array(known)

    def _hold(self, data, segments):
        """Keep the last segments, with their bytes."""
        self._held.append((data, segments[-stamps.LOOKED_AT :].copy()))
        sizes = np.cumsum([len(rows) for _, rows in self._held[::-1]])
        self._held = self._held[-1 - int(np.searchsorted(sizes, stamps.LOOKED_AT)) :]


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
