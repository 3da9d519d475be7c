"""Connections between the same endpoints in several VLANs; compiled.

Knows: tags and TCP's numbers of segments. Must not know: frames, payloads.

Two VLANs may have the same addresses, and so the same endpoints, for different connections. But
the mirror port of a switch may also give the two directions of one connection different tags, or
each frame twice, with and without its tag. TCP's numbers and checksums, and the identifications of
IP, tell these apart.
"""

from ..compiled.jit import kernel, wide
from ..compiled.layout import ACK, MASK, SYN
from .doubles import had
from .sequence import diff

# Places in what headers.py reads.
SEQ, ACKED, FLAGS, WIRE, TAGS, SUM, IDENT = 10, 11, 12, 15, 16, 18, 20
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
def _answers_syn(there, out):
    """Whether a segment is the next one of a handshake, behind the other direction's latest
    segment, `there`: SYN with ACK behind SYN, or ACK behind that."""
    behind = there["flags"] & SYN and out[FLAGS] & ACK and diff(out[ACKED], there["seq"]) == 1
    syn = out[FLAGS] & SYN > 0
    if not behind or syn == (there["flags"] & ACK > 0):
        return False
    return syn or diff(out[SEQ], there["ack"]) == 0


@kernel
def opened(out):
    """What KEY's field of this name has of a SYN with ACK, or of the first data behind that."""
    seq, ack = out[SEQ], out[ACKED]
    if not out[FLAGS] & SYN:
        seq, ack = ack - 1 & MASK, seq
    return max(1, (seq * 16777619 ^ ack) & MASK)


@kernel
def _same_syn(here, out):
    """Whether a SYN may be the latest one of its side, however long ago that came."""
    same = here["syn_ident"] == out[IDENT] > 0 or here["syn_sum"] == out[SUM] > 0
    return out[FLAGS] & SYN > 0 and here["syn"] == out[SEQ] and same


@kernel
def _is_head(t, out):
    """Whether a segment with data is the first one of its side, however long ago that came."""
    same = t["head_ident"] == out[IDENT] > 0 or t["head_sum"] == out[SUM] > 0
    return t["headed"] > 0 and t["head"] == out[SEQ] and t["head_wire"] == out[WIRE] and same


@kernel
def _note_first(t, out, own):
    """Note the SYN of a side, and its first segment with data; own: the segment has the tag of the
    side's first one."""
    if out[FLAGS] & SYN:
        if t["syn"] != out[SEQ]:
            t["headed"] = t["strange"] = 0
        t["syn"], t["syn_sum"], t["syn_ident"] = out[SEQ], out[SUM], out[IDENT]
    if own and out[WIRE] and not t["headed"]:
        t["headed"], t["head"], t["head_wire"] = 1, out[SEQ], out[WIRE]
        t["head_sum"], t["head_ident"] = out[SUM], out[IDENT]


@kernel
def met(recent, trails, k, swap, out):
    """Whether the first segment in a VLAN belongs to connections that are known in another one.
    recent: as doubles.recent() makes it; trails: rows of layout.TRAIL; k: a key of those; swap:
    the segment is of the second end."""
    here, there = trails[k, 1 if swap else 0], trails[k, 0 if swap else 1]
    if here["met"]:  # a segment of its direction once more? A checksum of 0 is none
        if had(recent, trails, out, k, 1 if swap else 0) or _same_syn(here, out):
            return True
        if _answers_syn(there, out):
            return True
        if (out[FLAGS] | here["flags"]) & SYN:  # a SYN acknowledges nothing
            both = out[FLAGS] & there["flags"] & ACK
            return there["met"] > 0 and both > 0 and _continues(there, out)
        return out[SUM] > 0 and _near(out[SEQ], here["seq"]) and _near(out[ACKED], here["ack"])
    return there["met"] > 0 and _continues(there, out)


@kernel
def _ends_are(key, other):
    """Whether two keys have the same endpoints."""
    return (key["hash"] == other["hash"] and key["ap"] == other["ap"] and key["bp"] == other["bp"]
            and key["a3"] == other["a3"] and key["b3"] == other["b3"]
            and key["a2"] == other["a2"] and key["b2"] == other["b2"]
            and key["a1"] == other["a1"] and key["b1"] == other["b1"]
            and key["a0"] == other["a0"] and key["b0"] == other["b0"])  # fmt: skip


@kernel
def look_again(recent, keys, trails, slots, k, swap, out):
    """Make key k, which is apart, one of another VLAN's if a segment with ACK came there before. A
    SYN alone often does not tell that: the capture may lack the other VLAN's. What k has had up to
    now then belongs to the other one as well, as it is apart no more. Arguments as of met()."""
    key, way = keys[k], 1 if swap else 0
    if not out[FLAGS] & ACK or key["sure"] or trails[k, way]["headed"]:
        return
    at = key["hash"] & len(slots) - 1
    while slots[at] >= 0:
        other = slots[at]
        if other < k and keys[other]["root"] == other and _ends_are(key, keys[other]):
            t = trails[other, way]
            answers = _answers_syn(trails[other, 1 - way], out)
            if answers or had(recent, trails, out, other, way) or _same_syn(t, out) or (
                    _is_head(t, out)):  # fmt: skip
                key["root"], key["apart"] = other, 0
                return
        at = at + 1 & len(slots) - 1


@kernel
def root_of(recent, keys, trails, k, swap, out):
    """The key that a segment of key k counts for, which notes it. What looked like one connection
    are two if one VLAN does not have the bytes that the other one has at the same place."""
    way = 1 if swap else 0
    key = keys[k]
    key["root"] = keys[key["root"]]["root"]
    t = trails[key["root"], way]
    if key["root"] != k and not key["sure"] and t["met"] and out[WIRE]:
        key["sure"] = _is_head(t, out)
        if not key["sure"] and t["tags"] != out[TAGS]:
            key["sure"] = had(recent, trails, out, wide(key["root"]), way)
            if not key["sure"] and t["wire"] and diff(t["seq"], out[SEQ]) >= 0:
                key["root"], key["apart"] = k, 1
                key["sure"] = t["headed"] > 0 and t["head"] == out[SEQ]
                t = trails[k, way]
    _note_first(t, out, key["root"] == k)
    root = wide(key["root"])
    t["met"], t["flags"], t["sum"], t["tags"] = 1, out[FLAGS], out[SUM], out[TAGS]
    t["seq"], t["ack"], t["wire"] = out[SEQ], out[ACKED], out[WIRE]
    keys[root]["ways"] |= 1 << way
    return root


@kernel
def twin(keys, slots, k):
    """Whether connections of key k, that has just begun one, are those of the same endpoints in
    another VLAN, by both first numbers: each frame came twice, and nothing told that. Of the other
    VLAN its first connection and its latest are compared."""
    key = keys[k]
    at = key["hash"] & len(slots) - 1
    while slots[at] >= 0:
        other = keys[slots[at]]
        same = other["opened"] == key["latest"] or other["latest"] == key["latest"]
        if same and slots[at] != k and _ends_are(key, other):
            return True
        at = at + 1 & len(slots) - 1
    return False
