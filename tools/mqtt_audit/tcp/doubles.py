"""Whether a capture has a segment twice that was sent once, as one IP packet; compiled.

Knows: headers of IP and TCP. Must not know: streams.

A mirror port may give each frame twice, and so does a capture that mergecap made of two places.
That is no retransmission: the IP packet is the same one, with its identification, and TCP's time
stamp. Where a side gives all its packets the same number, or IPv6 has none, only a copy shows that
comes sooner than TCP would send again; for others see copies.py.
"""

import numpy as np

from ..compiled.jit import kernel
from ..compiled.layout import GRACE, MASK, RECENT, SECOND, SYN

ONCE, TWICE, LATER = range(3)  #: what doubled() says
LONG = GRACE // 2  #: ns; a mirror port does not take so long
SOON = SECOND // 1000  #: ns; TCP takes longer to find out that a segment is missing
TWINS = 4  #: segments with data, one after the other, that come once: then all do again
PLACES = 1 << 14
# Places in what headers.py reads.
SEQ, ACKED, FLAGS, WIRE, STAMP, SUM, IDENT = 10, 11, 12, 15, 17, 18, 20


def recent():
    """Room for the latest segments of a capture; one may take the place of another."""
    return np.zeros(PLACES, RECENT)


@kernel
def _place(out, key, way):
    one, other = out[SEQ] + (out[WIRE] << 8), out[ACKED] + (key << 1 | way) + (out[IDENT] << 9)
    h = (one * 2654435761 ^ other * 2246822519) & MASK
    return (h ^ h >> 15) & PLACES - 1


@kernel
def _same(row, out, key, way):
    return (row["seq"] == out[SEQ] and row["ack"] == out[ACKED] and row["key"] == key
            and row["side"] == 1 + way and row["wire"] == out[WIRE]
            and row["flags"] == out[FLAGS] and row["ident"] == out[IDENT]
            and row["stamp"] == out[STAMP])  # fmt: skip


@kernel
def had(rows, trails, out, key, way):
    """Whether a segment of which no other one is known in its VLAN may be one that came in another
    one. Arguments as of doubled()."""
    row = rows[_place(out, key, way)]
    if not _same(row, out, key, way):
        return False
    told = out[FLAGS] & SYN or trails[key, way]["varied"]  # by its identification
    return out[IDENT] > 0 and told > 0 or row["sum"] == out[SUM] and out[SUM] > 0


@kernel
def doubled(rows, trails, out, key, way, time):
    """ONCE: the segment is noted; TWICE: it is one that the capture has had already; LATER: a long
    time ago. trails: rows of layout.TRAIL; key, way: which side of which endpoints."""
    t = trails[key, way]
    row = rows[_place(out, key, way)]
    if row["seq"] == out[SEQ] and _same(row, out, key, way):  # the first one is mostly another one
        # Its checksum may be another one: where it is sent the card fills that in.
        if out[IDENT] and t["varied"]:
            return LATER if abs(time - row["time"]) > LONG else TWICE
        if row["sum"] == out[SUM] and out[SUM] > 0 and abs(time - row["time"]) < SOON:
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
    row["time"], row["seq"], row["ack"], row["key"] = time, out[SEQ], out[ACKED], key
    row["wire"], row["sum"], row["ident"] = out[WIRE], out[SUM], out[IDENT]
    row["stamp"] = out[STAMP]
    row["flags"], row["side"] = out[FLAGS], 1 + way
    return ONCE
