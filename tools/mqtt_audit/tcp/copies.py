"""Whether a segment that brings nothing new was sent again, or only captured again; compiled.

Knows: what both sides have sent and acknowledged, time stamps, identifications. Must not know:
payloads, other connections.

A capture may have a connection twice, with any time between the two: two taps whose clocks are
apart, merged into one file. What TCP sends again is sent now: it has the latest time stamp and the
latest acknowledgement of its side, and an identification of its own. A copy has those of the
segment that it is a copy of. Where a segment has nothing of that kind, only their number tells: a
link loses some of the segments that carry data, of one side mostly; a second tap has all.
"""

from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import ACK, COPY, FIN, MASK, N_FILE, REMEMBERED, RST, SECOND, SYN
from .sequence import diff

LONG_AFTER = 10 * SECOND  #: after the end nobody sends again
TICK = 2 * SECOND  #: ns; the clock of time stamps goes on at least once in that (RFC 7323, 5.4)
#: Of so many segments with data, and so many others, the latest are counted.
DATA, REST = 32, 64
ENOUGH = 12  #: of the ones with data must have come before, and 3 of 8 of both
FEW = 4  #: others say nothing
STEP = 1024  #: at most by that an identification grows from one packet of a side to its next one
STEPS = 4  #: after so many in a row the side counts its packets
NEW, AGAIN, MAYBE, COPIED = range(4)  #: what judged() says


@inlined
def _new_to(s, other, seg):
    """Whether a segment brings something new: bytes, SYN, FIN, RST, an acknowledgement. Also if it
    may be of another connection."""
    flags, seq = seg["flags"], wide(seg["seq"])
    if flags & RST or not s["top_known"]:
        return True
    if flags & SYN:
        if not s["isn_known"] or s["isn"] != seq:
            return True
    elif s["isn_known"]:
        if diff(seq, s["isn"]) < 0:
            return True
    elif diff(seq, s["origin"] if s["known"] else s["top"]) < 0:
        return True
    if flags & FIN and not s["fin"]:
        return True
    if seg["wire"]:
        if not s["known"] or diff(seq + wide(seg["wire"]) & MASK, s["next"]) > 0:
            return True
    elif diff(seq, s["top"]) > 0:
        return True
    return flags & ACK > 0 and (not other["acked_known"] or diff(seg["ack"], other["acked"]) > 0)


@kernel
def _age(s, seg):
    """By its time stamp: 1: it was sent before another one that is here; -1: it was not; 0: that
    does not tell."""
    if not seg["stamp"] or not s["newest_at"]:
        return 0
    apart = wide(seg["stamp"]) - s["newest"] & MASK
    if apart:
        return 1 if apart >> 31 else -1
    return 1 if seg["time"] - s["newest_at"] > TICK else 0


@kernel
def _turn(s, seg):
    """As _age(), by the identification, of a side that counts its packets."""
    if not seg["ident"] or s["steps"] < STEPS:
        return 0
    ahead = wide(seg["ident"]) - s["ident"] & 0xFFFF
    if 0 < ahead <= STEP:
        return -1
    return 0 if 0 < ahead < 0x8000 else 1


@inlined
def _count_packets(s, seg, kind):
    """Note the identification of a segment of a kind but COPIED. One a little below the latest is
    of a packet that another one has passed."""
    if not seg["ident"]:
        return
    ahead = wide(seg["ident"]) - s["ident"] & 0xFFFF
    grew = 0 < ahead <= STEP and s["ident"] > 0
    if kind != NEW and not grew or s["ident"] and ahead >= 0x10000 - STEP:
        return
    s["ident"] = seg["ident"]
    if grew:
        s["steps"] = min(STEPS, s["steps"] + 1)
    elif ahead:
        s["steps"] = 0


@inlined
def _copy_of(c, s, other, seg):
    """Whether a segment that brings nothing new is a copy for sure."""
    age = _age(s, seg)
    if age:
        return age > 0
    older = seg["flags"] & ACK and diff(seg["ack"], other["acked"]) < 0
    turn = _turn(s, seg)
    if seg["flags"] & SYN:
        first = seg["ident"] > 0 and s["syn"] == seg["ident"] and s["ident"] != seg["ident"]
        return older > 0 and turn >= 0 or first
    # The ports may be used again, and the SYN be missing, with numbers below the old ones.
    if c["closed"] and seg["time"] - c["closed"] > LONG_AFTER and not c["replayed"]:
        return False
    if turn:
        return turn > 0
    # TCP has no other segment without data from before the end than a probe, one byte before it.
    return older or not seg["wire"] and not seg["flags"] & FIN and diff(seg["seq"], s["top"]) < -1


@inlined
def mark(seg):
    """A number that tells a segment from others of the same bytes; 0: it has none."""
    return wide(seg["stamp"]) * 40_503 + wide(seg["ident"]) & MASK


@kernel
def _sent_again(taken, k, s, seg):
    """Whether a segment with data, SYN or FIN that is no copy for sure was sent again for sure: it
    is later than all others, or the same bytes came shortly before in another one, and this one
    did not."""
    age = _age(s, seg)
    if age < 0 or not age and _turn(s, seg) < 0:
        return True
    own, again = mark(seg), False
    if not own:
        return False
    for i in range(REMEMBERED):
        old = taken[k, i]
        if old["cap"] and old["seq"] == seg["seq"] and old["mark"]:
            if old["mark"] == own:
                return False
            again = True
    return again


@inlined
def _count(s, other, seg, again):
    """Count a segment among the latest of its connection. again: it may have come before, for
    which the caller counts one with data."""
    probe = again and seg["wire"] <= 1 and diff(seg["seq"], s["top"]) == -1
    if seg["flags"] & RST or probe and not seg["flags"] & (SYN | FIN):
        return
    _count_rest(other, again)
    if not seg["wire"]:
        _count_rest(s, again)
        return
    if s["data"] >= DATA:
        s["data"] //= 2
        s["data_again"] //= 2
    s["data"] += 1


@inlined
def _count_rest(s, again):
    if s["rest"] >= REST:
        s["rest"] //= 2
        s["rest_again"] //= 2
    s["rest"] += 1
    s["rest_again"] += again


@kernel
def _most(n, again):
    return again * 8 >= n * 3


@kernel
def _decide(st, conn, s, frame):
    """Whether the capture has a connection twice, as about half of its segments show."""
    c = st.conns[conn]
    if c["doubled"] or s["data_again"] < ENOUGH or not _most(s["data"], s["data_again"]):
        return
    if s["rest"] < FEW or _most(s["rest"], s["rest_again"]):
        c["doubled"] = 1
        for way in range(2):
            _forgive(st.streams[2 * conn + way], frame)


@kernel
def _forgive(s, frame):
    """What may be copies does not count as resent."""
    if s["maybe"]:
        s["twice_frame"] = s["twice_frame"] if s["twice"] else frame
        s["resent"] -= s["maybe"]
        s["segments"] -= s["maybe"]
        s["twice"] += s["maybe"]
        s["perhaps"] += s["maybe"]
        s["maybe"] = 0


@inlined
def judged(st, conn, seg):
    """Mark a segment of a connection that is a copy as COPY. Returns NEW: it brings something new;
    COPIED; AGAIN: it was sent again; MAYBE: nothing tells which of the two."""
    c = st.conns[conn]
    k = 2 * conn + (c["server"] == 1 + seg["dir"])
    s, other = st.streams[k], st.streams[4 * conn + 1 - k]
    if _new_to(s, other, seg):
        return NEW
    if seg["flags"] & COPY:
        c["replayed"] |= seg["flags"] & SYN > 0
        return COPIED
    sure = _copy_of(c, s, other, seg)
    moves = seg["wire"] or seg["flags"] & (SYN | FIN)
    if not sure and moves and _sent_again(st.taken, k, s, seg):
        return AGAIN
    if not sure and not c["doubled"]:
        return MAYBE
    frame = st.n[N_FILE] << 32 | wide(seg["frame"])
    c["replayed"] |= seg["flags"] & SYN > 0
    if moves:
        s["twice_frame"] = s["twice_frame"] if s["twice"] else frame
        s["twice"] += 1
        s["perhaps"] += not sure
    _count(s, other, seg, True)
    s["data_again"] += seg["wire"] > 0
    _decide(st, conn, s, frame)
    seg["flags"] |= COPY
    return COPIED


@inlined
def noted(s, other, seg, kind):
    """Count a segment of a kind but COPIED that judged() gives."""
    if seg["stamp"] and (not s["newest_at"] or _age(s, seg) < 0):
        s["newest"], s["newest_at"] = seg["stamp"], max(seg["time"], 1)
    _count_packets(s, seg, kind)
    _count(s, other, seg, kind == MAYBE)


@kernel
def resent(st, conn, s, kind, frame):
    """Count a segment of which some bytes are there already as resent. kind: as noted() has it."""
    s["resent"] += 1
    if kind == MAYBE:
        s["maybe"] += 1
        s["data_again"] += 1
        _decide(st, conn, s, frame)
