"""Whether a side could send, and whether the other side had it, as TCP shows it; compiled.

Knows: acknowledgements, segments sent again, windows. Must not know: packets.

Nobody is silent who may not send, or whose bytes are on their way; nobody owes an answer to what
did not reach him. TCP's acknowledgements show what reached the other side, and segments that are
sent again, holes, and windows of 0 show that a side's bytes are on their way.
"""

from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import ACK, COPY, FIN, GRACE, MASK, RST, SHUT, SYN, TWICE
from .sequence import diff


@inlined
def calm(s):
    """Since when all bytes of a stream up to here are acknowledged and none is in trouble; 0: they
    are not."""
    if not s["acked_known"] or s["stuck"] or s["shut"] or s["head"] >= 0:
        return 0
    if diff(s["acked"], s["next"]) < 0:
        return 0
    return max(s["acked_at"], s["free"], 1)


@inlined
def lapsed(s, time):
    """Bytes of a stream are missing, or were skipped; those behind them came at this time."""
    s["lapses"] += 1
    s["hole_at"] = max(s["hole_at"], time)


@inlined
def missed(s, seq, time):
    """Until when bytes were sent that the capture lacks, up to `seq`: those behind them came at
    this time, or they were acknowledged before."""
    known = s["acked_known"] and s["early_at"] > 0 and diff(wide(s["early_to"]), seq) >= 0
    return min(time, s["early_at"] - 1) if known else time


@inlined
def acknowledge(s, seg):
    """A later acknowledgement of the stream's bytes; to be called before it is noted."""
    if not s["acked_known"] or diff(s["acked"], s["next"]) < 0:
        s["acked_at"] = seg["time"]
    early = s["acked_known"] and diff(s["acked"], s["next"]) > 0
    s["heard_at"] = seg["time"]
    if not early and diff(seg["ack"], s["next"]) > 0:
        s["early_at"], s["early_to"] = seg["time"], seg["ack"]
    if s["stuck"] and diff(seg["ack"], s["again_to"]) >= 0:
        s["stuck"], s["free"] = 0, max(s["free"], seg["time"])


@kernel
def delayed(s, seg, seq):
    """For how many ns at least bytes of the stream from `seq` on, which come now, have been
    acknowledged. Of those behind what was acknowledged first before it came nobody knows when they
    were; the latest acknowledgement has them."""
    if diff(seq, wide(s["early_to"])) >= 0:
        s["early_at"], s["early_to"] = s["heard_at"], s["acked"]
    found = max(0, seg["time"] - s["early_at"])
    s["delay"] = max(s["delay"], found)
    return found


@inlined
def window(s, seg):
    """How much of the stream the other side, whose segment it is, takes: nothing, or some."""
    if not seg["flags"] & ACK or seg["flags"] & (SYN | RST | COPY):
        return
    if s["shut"] or seg["flags"] & SHUT:
        s["shut"], s["free"] = seg["flags"] & SHUT > 0, max(s["free"], seg["time"])


@kernel
def again(s, seg, seq):
    """Bytes of the stream are sent again."""
    if seg["flags"] & COPY:
        return
    s["free"] = max(s["free"], seg["time"])
    end = seq + wide(seg["wire"]) & MASK
    if s["acked_known"] and diff(s["acked"], end) >= 0:
        return  # the acknowledgement was lost
    if not s["stuck"] or diff(end, s["again_to"]) > 0:
        s["again_to"] = end
    s["stuck"] = 1


@kernel
def behind(c, s, seg, lag, frame):
    """Note that a copy was captured so many ns behind what it repeats, if that is long. Then a
    segment whose first one the capture lacks seems to be sent so much later."""
    if lag > GRACE // 2:
        c["belated"] = 1
        if not s["lag_frame"] and not seg["flags"] & TWICE:
            s["lag_frame"] = frame


@inlined
def note_alive(c, s, other, seg, sender, frame):
    """What shows that a side was there, and had sent no more than what is here. Not the broker's
    RST and FIN, which may be of an end that came earlier: FIN counts if it can only answer the
    client's. Nor the client's RST, if it may answer what came for a connection that is gone, or
    come again long after the first, which nobody acknowledges and the capture may lack; nor its
    SYN once more, with which a device may begin anew that always takes the same number. Nor a
    copy: it may be captured long after."""
    if seg["flags"] & COPY:
        behind(c, s, seg, seg["time"] - max(s["alive"], other["alive"]), frame)
        return
    if sender == 0 and not c["rtt"] and c["begun"] and not seg["flags"] & SYN:
        c["rtt"] = max(1, seg["time"] - c["first"])
    if seg["flags"] & SYN and s["first"]:
        return
    if seg["flags"] & RST:
        answers = other["fin"] or seg["time"] - other["alive"] <= GRACE + c["rtt"]
        if sender or not seg["flags"] & ACK or answers or c["belated"]:
            return
    elif sender and seg["flags"] & FIN and not other["fin"]:
        return
    said = s["said_known"] and diff(s["said"], s["next"]) > 0
    if not said and diff(seg["seq"], s["next"]) <= 0:
        s["alive"] = max(s["alive"], seg["time"])
