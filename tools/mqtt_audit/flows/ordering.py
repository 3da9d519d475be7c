"""Packets brought into the order in which they were complete, whichever side sent them.

Knows: packets that were cut out, segments that are held. Must not know: what is in a packet.

What lies behind a hole is cut out when the hole is filled or given up, after later packets of the
other side, its own answers among them. So packets of a connection with a hole are not read before
that, but for those that came before it. What a broker sends waits for the CONNECT that it answers.
"""

import numpy as np

from ..compiled.arrays import ROWS
from ..compiled.layout import (
    CONNECT,
    N_BACK,
    N_CONNS,
    N_PACKETS,
    N_READ,
    N_WAITING,
    PENDING,
    SECOND,
)  # fmt: skip

PATIENCE = SECOND  #: ns in which what the broker sends may come before the client's CONNECT
_NEVER = np.iinfo(np.int64).max


def _waiting(arrays, rows):
    """Which packets have to wait for what may come before them."""
    held = arrays.wire.held
    held = held[held["stream"] >= 0]
    since = np.full(arrays.n[N_CONNS], _NEVER)
    np.minimum.at(since, held["stream"] >> 1, held["frame"])
    return rows["frame"] > since[rows["conn"]]


def _early(arrays, rows):
    """Which packets of a broker were captured before the CONNECT that they answer, which has not
    come yet: without it nobody knows their version."""
    found = np.zeros(len(rows), bool)
    at = np.flatnonzero((rows["now"] == PENDING) & (rows["from_server"] > 0))
    conn = rows["conn"][at]
    conns, client = arrays.conns[conn], arrays.ways[conn, 0]
    found[at] = ((conns["begun"] > 0) & (client["first"] == 0) & (client["gaps"] == 0)
                 & (conns["last"] - rows["time"][at] <= PATIENCE))  # fmt: skip
    return found


def _places(arrays, rows):
    """By what packets are ordered: their frames, but CONNECT is before all that answers it."""
    place = 2 * rows["frame"]
    late = (rows["kind"] == CONNECT) & (rows["opening"] > 0) & (rows["late"] > 0)
    if late.any():
        least = np.full(arrays.n[N_CONNS], _NEVER)
        np.minimum.at(least, rows["conn"], place)
        place[late] = least[rows["conn"][late]] - 1
    return place


def arrange(arrays, everything):
    """Put those packets that are not read yet in the order of their frames, and those that have to
    wait behind them: n[N_BACK] says how many. None has to if `everything` is true, nor if they
    are half of what there is room for."""
    n = arrays.n
    n[N_BACK] = 0
    rows = arrays.wire.packets[n[N_READ] : n[N_PACKETS]]
    place, waits = _places(arrays, rows), None
    if not everything:
        waits = _early(arrays, rows)
        if n[N_WAITING]:
            waits |= _waiting(arrays, rows)
        back = int(np.count_nonzero(waits))
        n[N_BACK] = back if back <= ROWS // 2 else 0
    if n[N_BACK]:
        rows[:] = rows[np.lexsort((place, waits))]
    elif (place[1:] < place[:-1]).any():
        rows[:] = rows[np.argsort(place, kind="stable")]
