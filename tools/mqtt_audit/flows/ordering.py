"""Packets brought into the order in which they were complete, whichever side sent them.

Knows: packets that were cut out, segments that are held. Must not know: what is in a packet.

What lies behind a hole is cut out when the hole is filled or given up, after later packets of the
other side, its own answers among them. So packets of a connection with a hole are not read before
that, but for those that came before it.
"""

import numpy as np

from ..compiled.arrays import ROWS
from ..compiled.layout import N_BACK, N_CONNS, N_PACKETS, N_READ, N_WAITING

_NEVER = np.iinfo(np.int64).max


def _waiting(arrays, rows):
    """Which packets have to wait for what may come before them."""
    held = arrays.wire.held
    held = held[held["stream"] >= 0]
    since = np.full(arrays.n[N_CONNS], _NEVER)
    np.minimum.at(since, held["stream"] >> 1, held["frame"])
    return rows["frame"] > since[rows["conn"]]


def arrange(arrays, everything):
    """Put those packets that are not read yet in the order of their frames, and those that have to
    wait behind them: n[N_BACK] says how many. None has to if `everything` is true, nor if they
    are half of what there is room for."""
    n = arrays.n
    n[N_BACK] = 0
    rows = arrays.wire.packets[n[N_READ] : n[N_PACKETS]]
    frame, waits = rows["frame"], None
    if n[N_WAITING] and not everything:
        waits = _waiting(arrays, rows)
        back = int(np.count_nonzero(waits))
        n[N_BACK] = back if back <= ROWS // 2 else 0
    if n[N_BACK]:
        rows[:] = rows[np.lexsort((frame, waits))]
    elif (frame[1:] < frame[:-1]).any():
        rows[:] = rows[np.argsort(frame, kind="stable")]
