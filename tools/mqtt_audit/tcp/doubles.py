"""Whether a capture has a segment twice that was sent once, as one IP packet; compiled.

Knows: headers of IP and TCP. Must not know: streams.

A mirror port may give each frame twice, and so does a capture that mergecap made of two places.
That is no retransmission: the IP packet is the same one, with its identification, and TCP's time
stamp. Where a side gives all its packets the same number, or IPv6 has none, only a copy shows that
comes sooner than TCP would send again; for others see copies.py.
"""

import numpy as np

from ..compiled.jit import inlined, kernel
from ..compiled.layout import GRACE, MASK, RECENT, SECOND, SYN

ONCE, TWICE, LATER = range(3)  #: what doubled() says
UNIT = 16  #: times are those in ns >> UNIT, 32 bits of them
LONG = GRACE // 2 >> UNIT  #: a mirror port does not take so long
SOON = SECOND // 1000 >> UNIT  #: TCP takes longer to find out that a segment is missing
TWINS = 4  #: segments with data, one after the other, that come once: then all do again
#: Segments that are known, in sets of WAYS, which fill a line of the processor's cache. With 2,000
#: others before its copy one in 600 is forgotten, with 4,000 one in 60. With more places the first
#: pass takes longer: they do not fit into the cache.
PLACES, WAYS = 1 << 14, 4
# Places in what headers.py reads.
SEQ, ACKED, FLAGS, WIRE, STAMP, SUM, IDENT = 10, 11, 12, 15, 17, 18, 20


def recent():
    """Room for the latest segments of a capture; one takes the place of the oldest of its set."""
    size, line = RECENT.itemsize, RECENT.itemsize * WAYS
    room = np.zeros(PLACES * size + line, np.uint8)
    skip = -room.ctypes.data % line
    return room[skip : skip + PLACES * size].view(RECENT)


@kernel
def _set(out, key, way):
    """Where the set of a segment begins."""
    one, other = out[SEQ] + (out[WIRE] << 8), out[ACKED] + (key << 1 | way) + (out[IDENT] << 9)
    h = (one * 2654435761 ^ other * 2246822519) & MASK
    return (h ^ h >> 15) & PLACES - WAYS


@inlined
def _mark(out, key, way):
    """What tells a segment from others of the same number and identification, never 0."""
    side, kind = key << 1 | way, out[WIRE] << 8 | out[FLAGS]
    return (out[ACKED] * 2654435761 ^ out[STAMP] * 2246822519 ^ side * 3266489917
            ^ kind * 668265263) & MASK | 1  # fmt: skip


@inlined
def _place(rows, out, mark, at):
    """Where in its set a segment is known, or minus one and the place that it may take."""
    oldest = at
    for k in range(at, at + WAYS):
        row = rows[k]
        if row["seq"] == out[SEQ] and row["mark"] == mark and row["ident"] == out[IDENT]:
            return k
        if row["time"] < rows[oldest]["time"]:
            oldest = k
    return -1 - oldest


@kernel
def had(rows, trails, out, key, way):
    """Whether a segment of which no other one is known in its VLAN may be one that came in another
    one. Arguments as of doubled()."""
    at = _place(rows, out, _mark(out, key, way), _set(out, key, way))
    if at < 0:
        return False
    told = out[FLAGS] & SYN or trails[key, way]["varied"]  # by its identification
    return out[IDENT] > 0 and told > 0 or rows[at]["sum"] == out[SUM] and out[SUM] > 0


@inlined
def doubled(rows, trails, out, key, way, time):
    """ONCE: the segment is noted; TWICE: it is one that the capture has had already; LATER: a long
    time ago. trails: rows of layout.TRAIL; key, way: which side of which endpoints."""
    t = trails[key, way]
    mark, now = _mark(out, key, way), time >> UNIT & MASK
    at = _place(rows, out, mark, _set(out, key, way))
    if at >= 0:
        row = rows[at]
        apart = abs(now - row["time"])
        # Its checksum may be another one: where it is sent the card fills that in.
        if out[IDENT] and t["varied"]:
            return LATER if apart > LONG else TWICE
        if row["sum"] == out[SUM] and out[SUM] > 0 and apart < SOON:
            if out[WIRE]:
                t["twins"] = TWINS
            if out[WIRE] or out[FLAGS] & SYN:
                return TWICE
            # TCP repeats acknowledgements at once, too: where data comes twice they do as well.
            if t["twins"] or trails[key, 1 - way]["twins"]:
                return TWICE
    if out[WIRE] and t["twins"]:
        t["twins"] -= 1
    if out[IDENT] and t["ident"] and t["ident"] != out[IDENT]:
        t["varied"] = 1
    t["ident"] = out[IDENT]
    row = rows[at if at >= 0 else -1 - at]
    row["time"], row["seq"], row["mark"] = now, out[SEQ], mark
    row["sum"], row["ident"] = out[SUM], out[IDENT]
    return ONCE
