"""Whether a segment can be of the connection that its endpoints have now, compiled.

Knows: sequence numbers and acknowledgements. Must not know: payloads.

A capture may lack the end of a connection and the SYN of the next one between the same endpoints.
The next one begins with other numbers. Within a connection they only go on, by as much as was
sent, or back by what is still on its way.
"""

from ..compiled.arena import problem
from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import ACK, FIN, MASK, P_JUMP, RST, SYN
from .calm import lapsed
from .sequence import diff

#: A greater jump forward, in bytes, may be to another connection: it is that by chance with
#: another 32,767 of 2**32 first numbers.
JUMP = 1 << 15
BACK = 1 << 20  #: bytes; nothing that is on its way is so far behind
FAR = 1 << 22  #: bytes; both sides at once do not send so much in a gap
#: Bytes; no capture is so far out of order, as mergecap makes one of computers with other clocks.
LOST = 1 << 26
LONG = 1 << 30  #: bytes of a stream, after which its first number tells nothing
LONG_AGO = 2  #: STREAM.top_known of one that has come so far
SAME, BEHIND, OTHER = range(3)


@inlined
def off(s, number):
    """How far a number is from the greatest that is known of a stream; 0: it fits."""
    if not s["top_known"]:
        return 0
    ahead = diff(number, s["top"])
    far = JUMP if s["segments"] else FAR  # who sees one direction only sees few acknowledgements
    if -BACK <= ahead <= far and not _early(s, number):
        return 0
    return ahead


@kernel
def _early(s, number):
    """Whether a number lies before the first one of a stream."""
    return s["isn_known"] and s["top_known"] != LONG_AGO and diff(number, s["isn"]) < 0


@kernel
def opened_by(s, seq):
    """Whether a stream began with a SYN of this number, which itself may be missing."""
    if s["isn_known"]:
        return s["isn"] == seq
    begin = s["origin"] if s["known"] else s["next"] if s["acked_known"] else s["said"]
    return (s["known"] or s["acked_known"] or s["said_known"]) and diff(begin, seq) == 1


@kernel
def _gone(s, number, ahead):
    """Whether a number that is so far off can only be another connection's, as far as one side
    shows it."""
    return ahead and (ahead < -LOST or ahead > FAR or _early(s, number))


@inlined
def place(c, s, other, seg):
    """SAME, also if bytes are missing before the segment, which may still come; BEHIND: nothing of
    the connection is on its way from so far behind; OTHER: it is of another connection, or shows
    nothing. One that
    was reset, or closed by both sides, does not go on. Of SYN, and of RST with the number 0, as of
    one that answers a SYN, the numbers tell nothing."""
    flags = seg["flags"]
    if flags & SYN or flags & RST and not seg["seq"]:
        return SAME
    seq, ack = wide(seg["seq"]), wide(seg["ack"])
    ahead = off(s, seq)
    heard = off(other, ack) if flags & ACK else 0
    if not ahead and not heard:
        return SAME
    if c["begun"] and not s["top_known"]:  # in answer to what was before the SYN
        return OTHER
    gone, gone_too = _gone(s, seq, ahead), _gone(other, ack, heard)
    if c["end"] and (gone or gone_too or ahead > 0 or heard > 0):
        return OTHER
    if gone and (gone_too or not flags & ACK):
        return OTHER
    if ahead < 0 or heard < 0:
        return BEHIND if seg["cap"] else OTHER
    return SAME


@kernel
def tear(st, conn, sender, time, frame, size):
    """Numbers jump by so many bytes, perhaps to another connection: nothing that was seen before
    is held against what comes from here on."""
    c = st.conns[conn]
    if not c["tears"]:
        problem(st, P_JUMP, conn, sender, time, frame, -1, size)
    c["tears"] += 1
    for way in range(2):
        one = st.streams[2 * conn + way]
        one["whole"], one["lapse"], one["blind"] = 0, 1, 1
        lapsed(one, time)


@kernel
def _age(s):
    if s["isn_known"] and s["top_known"] and diff(s["top"], s["isn"]) > LONG:
        s["top_known"] = LONG_AGO


@inlined
def reach(s, other, seg):
    """Note how far a segment says that both streams go."""
    end = wide(seg["seq"]) + wide(seg["wire"]) + (seg["flags"] & (SYN | FIN) > 0)
    if not seg["flags"] & RST and (not s["top_known"] or diff(end, s["top"]) > 0):
        s["top"] = end & MASK
        s["top_known"] = max(1, s["top_known"])
    ack = wide(seg["ack"])
    if seg["flags"] & ACK and (not other["top_known"] or diff(ack, other["top"]) > 0):
        other["top"] = ack
        other["top_known"] = max(1, other["top_known"])
    _age(s)
    _age(other)
