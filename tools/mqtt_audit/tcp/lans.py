"""Connections between the same endpoints in several VLANs; compiled.

Knows: tags and TCP's numbers of segments. Must not know: frames, payloads.

Two VLANs may have the same addresses, and so the same endpoints, for different connections. But
the mirror port of a switch may also give the two directions of one connection different tags, or
each frame twice, with and without its tag. TCP's numbers and checksums tell these apart.
"""

from ..compiled.jit import kernel, wide
from ..compiled.layout import ACK, SYN
from .sequence import diff

# Places in what headers.py reads.
SEQ, ACKED, FLAGS, WIRE, TAGS, SUM = 10, 11, 12, 15, 16, 18
NEAR = 1 << 20  #: bytes that numbers of one connection may be apart


@kernel
def _near(number, other):
    return abs(diff(number, other)) < NEAR


@kernel
def _continues(there, out):
    """Whether a segment fits those of the other direction, `there`."""
    both = out[FLAGS] & there["flags"] & ACK
    ahead = _near(out[ACKED], there["seq"]) if out[FLAGS] & ACK else both == ACK
    back = _near(out[SEQ], there["ack"]) if there["flags"] & ACK else both == ACK
    return ahead and back if both else ahead or back


@kernel
def _copied(here, out):
    """Whether a segment is one of those of its direction, `here`, once more. A checksum of 0 is
    none."""
    if not out[SUM] or not (out[FLAGS] | here["flags"]) & SYN:
        return out[SUM] > 0 and _near(out[SEQ], here["seq"]) and _near(out[ACKED], here["ack"])
    same = here["seq"] == out[SEQ] and here["ack"] == out[ACKED]
    return same and here["flags"] == out[FLAGS] and here["sum"] == out[SUM]


@kernel
def met(trails, k, swap, out):
    """Whether the first segment in a VLAN belongs to connections that are known in another one.
    trails: rows of layout.TRAIL; k: a key of those; swap: the segment is of the second end."""
    here, there = trails[k, 1 if swap else 0], trails[k, 0 if swap else 1]
    if here["met"]:
        return _copied(here, out)
    return there["met"] > 0 and _continues(there, out)


@kernel
def root_of(keys, trails, k, swap, out):
    """The key that a segment of key k counts for, which notes it. What looked like one connection
    are two if other bytes have the same place in both VLANs."""
    way = 1 if swap else 0
    key = keys[k]
    t = trails[key["root"], way]
    if key["root"] != k and not key["sure"] and t["met"] and out[WIRE] and t["tags"] != out[TAGS]:
        if t["seq"] == out[SEQ] and t["wire"]:
            same = t["sum"] == out[SUM] and out[SUM] > 0 and t["wire"] == out[WIRE]
            key["sure"] = same
            if not same:
                key["root"], key["apart"] = k, 1
                t = trails[k, way]
    root = wide(key["root"])
    t["met"], t["flags"], t["sum"], t["tags"] = 1, out[FLAGS], out[SUM], out[TAGS]
    t["seq"], t["ack"], t["wire"] = out[SEQ], out[ACKED], out[WIRE]
    keys[root]["ways"] |= 1 << way
    return root
