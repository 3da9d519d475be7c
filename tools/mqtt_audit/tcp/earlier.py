"""Segments of an earlier connection between the same endpoints, which the capture has once more;
compiled.

Knows: what the connections of a pair of endpoints have sent. Must not know: payloads.

A capture that has each frame twice may have the second one of a connection when the next one with
the same ports has begun. It brings that one nothing, and the first one only what the capture lacks
there.
"""

from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import ACK, COPY, FIN, LATE_FAR, MASK, N_FILE, RST, SYN
from .copies import STEPS
from .places import BACK, off, opened_by
from .sequence import diff

DEPTH = 64  #: of so many earlier connections of its endpoints a segment may be
AWAY, HERE, AHEAD = range(3)  #: what _near() says
NONE, HAD = -1, -2  #: no connection: what of_earlier() says


@kernel
def _reaches(s, number):
    """Whether a stream has come to a number, and began before it."""
    if not s["top_known"] or diff(number, s["top"]) > 0:
        return False
    if s["isn_known"]:
        return diff(number, s["isn"]) >= 0
    return diff(number, s["origin"] if s["known"] else s["top"] - BACK & MASK) >= 0


@kernel
def age(s, seg):
    """Whether a segment was sent after all that a stream has (-1), or not (1), as its time stamp
    shows, or the identification of a side that counts its packets; 0: nothing shows it."""
    if seg["stamp"] and s["newest_at"]:
        apart = wide(seg["stamp"]) - s["newest"] & MASK
        return -1 if 0 < apart and not apart >> 31 else 1
    if not seg["ident"] or s["steps"] < STEPS:
        return 0
    return -1 if 0 < (wide(seg["ident"]) - s["ident"] & 0xFFFF) < 0x8000 else 1


@kernel
def _opened(s, other, seg):
    """Whether a connection began with a SYN, or a SYN with ACK, which itself may be missing, and
    the first data too."""
    seq, before = wide(seg["seq"]), wide(seg["ack"]) - 1 & MASK
    if not seg["flags"] & ACK:
        return opened_by(s, seq)
    if not opened_by(other, before):
        return False
    begin = s["origin"] if s["known"] else s["next"]
    known = s["isn_known"] or not s["known"] and not s["acked_known"]
    return opened_by(s, seq) or not known and 0 < diff(begin, seq) < BACK


@kernel
def _has(c, s, other, seg):
    """Whether a connection has all that a segment tells. s: the stream of its side."""
    flags, seq = seg["flags"], wide(seg["seq"])
    if flags & SYN:
        return _opened(s, other, seg)
    if flags & RST:
        return s["top_known"] and s["top"] == seq
    end = seq + wide(seg["wire"]) + (flags & FIN > 0) & MASK
    if not _reaches(s, seq) or not _reaches(s, end):
        return False
    if seg["wire"] and s["known"] and not c["opaque"] and diff(end, s["next"]) > (flags & FIN):
        return False
    return not flags & ACK or _reaches(other, wide(seg["ack"]))


@kernel
def _goes_on(s, other, seg):
    """Whether a segment may be of a connection that lacks what it tells. s: the stream of its
    side."""
    flags, seq = seg["flags"], wide(seg["seq"])
    if flags & SYN or not s["top_known"] or not other["top_known"] or off(s, seq):
        return False
    if flags & ACK and off(other, wide(seg["ack"])):
        return False
    end = seq + wide(seg["wire"]) + (flags & FIN > 0) & MASK
    return not s["fin"] or diff(end, s["top"]) <= 0


@kernel
def _near(s, other, seg):
    """AWAY: a segment cannot be of the connection that its endpoints have now; HERE: it is its
    SYN, or begins where that has come to, and acknowledges what is there; AHEAD: else, if its
    numbers fit."""
    seq, ack = wide(seg["seq"]), wide(seg["ack"])
    opens = seg["flags"] & (SYN | ACK) == SYN
    if seg["flags"] & SYN and (s["isn_known"] or opens) and not opened_by(s, seq):
        return AWAY
    if opens:
        return HERE if not seg["ident"] or s["syn"] == seg["ident"] else AHEAD
    if off(s, seq) or seg["flags"] & ACK and off(other, ack):
        return AWAY
    if not s["top_known"] or diff(seq, s["top"]) > 0:
        return AHEAD
    if seg["flags"] & ACK and (not other["top_known"] or diff(ack, other["top"]) > 0):
        return AHEAD
    return HERE


@kernel
def _others(s, old):
    """Whether two streams are known to begin with other numbers."""
    return s["isn_known"] and old["isn_known"] and s["isn"] != old["isn"]


@kernel
def _another(s, other, old, back, seg):
    """Whether a segment is of an earlier connection, `old` and `back`, which has all of it, and
    not of the one of now, `s` and `other`, although its numbers would fit that."""
    if seg["flags"] & SYN:  # a device may always take the same number
        return old["syn"] == seg["ident"] or not old["isn_known"] and age(s, seg) > 0
    return _others(s, old) or _others(other, back) or age(old, seg) > 0


@inlined
def of_earlier(st, pair, seg):
    """The earlier connection of its endpoints that lacks a segment, NONE: it is of the one that
    they have now; HAD: an earlier one has all of it, where it is counted."""
    conn = st.pairs[pair]["cur"]
    c = st.conns[conn]
    if c["before"] < 0:
        return NONE
    k = 2 * conn + (c["server"] == 1 + seg["dir"])
    s, other = st.streams[k], st.streams[4 * conn + 1 - k]
    near = _near(s, other, seg)
    if near == HERE:
        return NONE
    # Nobody acknowledges the other side's SYN before that is there.
    early = seg["flags"] & (SYN | ACK) == ACK and not other["top_known"]
    for _ in range(DEPTH):
        conn = c["before"]
        if conn < 0:
            return NONE
        c = st.conns[conn]
        k = 2 * conn + (c["server"] == 1 + seg["dir"])
        old, back = st.streams[k], st.streams[4 * conn + 1 - k]
        away = near == AWAY or early and back["segments"] > 0
        if _has(c, old, back, seg):
            if age(old, seg) >= 0 and (away or _another(s, other, old, back, seg)):
                _count(st, old, seg)
                return HAD
        elif away and age(s, seg) >= 0 and _goes_on(old, back, seg):
            if seg["wire"]:
                c["late"], c["belated"] = LATE_FAR, 1
            return conn
    return NONE


@kernel
def _count(st, s, seg):
    """What the first pass has not counted, and what was not sent once more in vain."""
    acked = s["acked_known"] and diff(s["acked"], wide(seg["seq"]) + wide(seg["wire"])) >= 0
    if seg["flags"] & COPY or not acked or not (seg["wire"] or seg["flags"] & (SYN | FIN)):
        return
    frame = st.n[N_FILE] << 32 | wide(seg["frame"])
    s["twice_frame"] = s["twice_frame"] if s["twice"] else frame
    s["twice"] += 1
