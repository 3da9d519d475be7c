"""Whether a capture has a segment twice that was sent once; compiled.

Knows: headers of IP and TCP. Must not know: streams.

A mirror port may give each frame twice, and so does a capture that mergecap made of two places.
That is no retransmission: the IP packet is the same one, with its identification. Where a side
gives all its packets the same number, or IPv6 has none, only a copy shows that comes sooner than
TCP would send again.
"""

import numpy as np

from ..compiled.jit import kernel
from ..compiled.layout import MASK, RECENT, SECOND

SOON = SECOND // 1000  #: ns; TCP takes longer to find out that a segment is missing
LATER = SECOND  #: ns, within which a side does not come round with its identifications
VARIED = 2  #: changes of them, after which they are believed
PLACES = 1 << 14
# Places in what headers.py reads.
SEQ, ACKED, FLAGS, WIRE, SUM, IDENT = 10, 11, 12, 15, 18, 20


def recent():
    """Room for the latest segments of a capture; one may take the place of another."""
    return np.zeros(PLACES, RECENT)


@kernel
def _place(out, key, way):
    one, other = out[SEQ] + (out[WIRE] << 8), out[ACKED] + (key << 1 | way)
    h = (one * 2654435761 ^ other * 2246822519) & MASK
    return (h ^ h >> 15) & PLACES - 1


@kernel
def doubled(rows, t, out, key, way, time):
    """Whether a segment is one that the capture has had already; else it is noted. t: the side's
    row of layout.TRAIL; key, way: which side of which endpoints."""
    row = rows[_place(out, key, way)]
    known = row["used"] and row["key"] == key and row["dir"] == way
    same = known and row["seq"] == out[SEQ] and row["ack"] == out[ACKED]
    same = same and row["wire"] == out[WIRE] and row["flags"] == out[FLAGS]
    if same and row["ident"] == out[IDENT]:
        apart = abs(time - row["time"])
        if out[IDENT] and t["varied"] >= VARIED:
            same = apart <= LATER  # whatever the checksum: where it is sent the card fills it in
        else:
            same = row["sum"] == out[SUM] and out[SUM] > 0
            same = same and out[WIRE] > 0 and apart < SOON  # TCP repeats ACKs at once
        if same:
            return True
    if out[IDENT] and t["ident"] and t["ident"] != out[IDENT]:
        t["varied"] = min(t["varied"] + 1, VARIED)
    t["ident"] = out[IDENT]
    row["time"], row["seq"], row["ack"], row["key"] = time, out[SEQ], out[ACKED], key
    row["wire"], row["sum"], row["ident"] = out[WIRE], out[SUM], out[IDENT]
    row["flags"], row["dir"], row["used"] = out[FLAGS], way, 1
    return False
