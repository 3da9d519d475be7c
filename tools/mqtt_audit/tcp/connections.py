"""Which connection a segment belongs to, how one begins and ends, compiled.

Knows: SYN, FIN, RST, ports that are used again. Must not know: payloads, but for the beginning of
a CONNECT.
"""


from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import (
    ACK,
    BEGUN,
    BEGUN_ACK,
    COPY,
    END_FIN_CLIENT,
    END_FIN_SERVER,
    END_OPEN,
    END_REUSED,
    END_RST_CLIENT,
    FIN,
    IN_BODY,
    IN_STEP,
    LINGER,
    MASK,
    N_CONNS,
    N_FILE,
    N_WANT,
    REMEMBERED,
    RST,
    SECOND,
    SYN,
    WANT_CONNS,
)  # fmt: skip
from ..mqtt.framing import shaped_as_connect
from .earlier import age
from .openings import is_connect
from .places import OTHER, off, opened_by, place
from .sequence import diff

RESTART = SECOND  #: ns; a device that lost power takes longer to connect again
STRAY = -2  #: no connection: a segment of another one than is known, with nothing in it


@inlined
def _new_connection(st, pair, seg, server):
    """A new row of conns and two of streams; -1 if there is no room."""
    conn = st.n[N_CONNS]
    if conn >= len(st.conns):
        st.n[N_WANT] = WANT_CONNS
        return -1
    st.n[N_CONNS] += 1
    c = st.conns[conn]
    c["before"] = st.pairs[pair]["cur"]
    c["pair"], c["server"], c["end"], c["last_client"] = pair, server, END_OPEN, seg["time"]
    c["id"] = st.n[N_FILE] << 32 | seg["frame"]
    c["first"] = c["last"] = seg["time"]
    c["upto"] = st.n[N_FILE]
    if seg["flags"] & SYN:
        c["begun"] = BEGUN_ACK if seg["flags"] & ACK else BEGUN
    for k in range(2):
        st.streams[2 * conn + k]["head"] = st.streams[2 * conn + k]["alias_max"] = -1
        for i in range(REMEMBERED):
            st.taken[2 * conn + k, i]["cap"] = st.taken[2 * conn + k, i]["wire"] = 0
    st.pairs[pair]["cur"] = conn
    return conn


@kernel
def _alone(d, seg):
    """Whether a segment is a CONNECT and nothing else, as far as it is there."""
    p, n = wide(seg["off"]), wide(seg["cap"])
    return is_connect(d, p, n) and (n < seg["wire"] or shaped_as_connect(d, p, p + n))


@kernel
def _behind_gap(s, ahead):
    """Whether bytes are missing before a segment, and it is not in the payload of the packet that
    they are of."""
    inside = s["stage"] == IN_BODY and ahead < s["rem"] - s["got"]
    return s["first"] and ahead > 0 and not inside


@kernel
def _signs_in(c, s, d, seg):
    """Whether a client begins anew with CONNECT, although its SYN is not here: its connection is
    over, or may be, as bytes are missing; and this is not the CONNECT of that once more, nor a
    second one right behind what it sent."""
    ahead = diff(seg["seq"], s["next"])
    over = c["closed"] or s["left"] and ahead
    if not s["known"] or not (over or _behind_gap(s, ahead)):
        return False
    if not (is_connect(d, wide(seg["off"]), wide(seg["cap"])) if over else _alone(d, seg)):
        return False
    begin = s["isn"] + 1 & MASK if s["isn_known"] else s["origin"]
    return diff(seg["seq"], begin) != 0


@kernel
def _begins(c, s, other, seg):
    """Whether a SYN begins another connection than the one that is known. One with the number of
    that one's SYN is mostly the same, sent again or captured twice. But who has sent something
    else has had the answer, and sends no SYN again. Then it is another connection, of a device
    that always takes the same number, unless it may be a copy. That has the time stamp and the
    identification of the first, as the next one of the device may have. Where both sides are
    captured, SYN with ACK then tells them apart; where one is, a pause does, or the end of the old
    connection. The first SYN may be missing, or be captured after what answers it."""
    if not opened_by(s, wide(seg["seq"])):
        return True
    if not s["talks"] or seg["flags"] & COPY:
        return False
    if seg["stamp"] and s["newest_at"]:
        apart = wide(seg["stamp"]) - s["newest"] & MASK
        if 0 < apart and not apart >> 31:
            return True
    since = s["alive"] if s["alive"] else c["last"]
    later = c["closed"] or seg["time"] - since > RESTART
    other_packet = s["syn"] != seg["ident"] if s["isn_known"] else age(s, seg) < 0
    return other_packet or not other["segments"] and later


@inlined
def _begun(c, s, other, seg):
    """The SYN of a connection of which the capture has other segments before, but no data."""
    if c["begun"] == BEGUN or s["bytes"] or other["bytes"]:
        return
    first = not seg["flags"] & ACK and seg["time"] <= c["first"]
    c["begun"] = BEGUN if first else BEGUN_ACK
    c["first"] = min(c["first"], seg["time"])


@kernel
def connection(st, d, pair, seg):
    """The connection that a segment belongs to, a new one if the ports are used again; STRAY: one
    that only begins with a later segment, as this one has no payload."""
    row = st.pairs[pair]
    conn = row["cur"]
    opens = seg["flags"] & (SYN | ACK) == SYN
    server = row["server"] if row["server"] else 1
    if seg["flags"] & SYN:
        server = 2 - seg["dir"] if opens else 1 + seg["dir"]
    if conn < 0:
        return _new_connection(st, pair, seg, server)
    c = st.conns[conn]
    sender = 1 if c["server"] == 1 + seg["dir"] else 0
    s, other = st.streams[2 * conn + sender], st.streams[2 * conn + 1 - sender]
    # SYN with ACK opens one, too, if a port is used again and the capture lacks the client's SYN.
    another = s["isn_known"] and (c["end"] or s["first"]) or off(s, wide(seg["seq"])) != 0
    opens = opens or seg["flags"] & SYN and another
    if opens and _begins(c, s, other, seg):
        if c["end"] == END_OPEN:
            c["end"] = END_REUSED
        if seg["flags"] & ACK and other["anew"]:  # the latest SYN was the new one's
            other["anew"] -= 1
        return _new_connection(st, pair, seg, server)
    another = place(c, s, other, seg) == OTHER
    if another and not seg["cap"]:
        return STRAY
    if another or seg["cap"] and not sender and _signs_in(c, s, d, seg):
        if c["end"] == END_OPEN:
            c["end"] = END_REUSED
        return _new_connection(st, pair, seg, server)
    if seg["flags"] & SYN:
        _begun(c, s, other, seg)
    return conn


@kernel
def syn(s, other, seg, again, frame):
    """A SYN says where a stream begins; with ACK also where the other one does. again: it may have
    come before, and nothing tells that it is a copy."""
    again = again or not s["isn_known"] and s["bytes"] and age(s, seg) == 0
    if again and s["talks"] and not seg["flags"] & ACK:
        s["anew_frame"] = s["anew_frame"] if s["anew"] else frame
        s["anew"] += 1
    if not s["known"]:
        s["isn"], s["isn_known"], s["known"], s["syn"] = seg["seq"], 1, 1, seg["ident"]
        s["next"] = wide(seg["seq"]) + 1 & MASK
        s["sync"] = s["ever"] = s["whole"] = IN_STEP
    elif not s["isn_known"] and opened_by(s, wide(seg["seq"])):
        s["isn"], s["isn_known"], s["syn"] = seg["seq"], 1, seg["ident"]
    if seg["flags"] & ACK and not other["known"]:
        other["next"], other["known"], other["origin"] = seg["ack"], 1, seg["ack"]
        other["sync"] = other["ever"] = other["whole"] = IN_STEP


@inlined
def behind_end(c, seg):
    """Whether a segment comes after all that counts of its connection."""
    return c["settled"] or c["end"] and seg["time"] - c["last"] > LINGER


@kernel
def _heard(s):
    return s["acked_known"] and diff(s["acked"], s["next"]) == 1


@kernel
def _fin(s, other, seg):
    """The first FIN of a side. The other side's may be before it in the capture and yet answer it,
    as where two computers whose clocks are apart capture one direction each: then it acknowledges
    it."""
    s["fin_ack"] = seg["ack"] if seg["flags"] & ACK else other["next"]
    answered = other["fin"] and diff(wide(other["fin_ack"]), wide(seg["seq"]) + seg["wire"]) > 0
    if answered:
        other["fin"] = 1
    s["fin"] = 1 if other["fin"] and not answered else 2  # 2: was the first of the two


@inlined
def ends(c, s, other, seg, sender):
    """FIN and RST, and the acknowledgement of the last FIN."""
    if seg["flags"] & (FIN | RST) and not c["closed"]:
        c["closed"] = max(seg["time"], 1)
    if seg["flags"] & RST and c["end"] == END_OPEN:
        c["end"] = END_RST_CLIENT + sender
    elif seg["flags"] & FIN:
        if not s["fin"]:
            _fin(s, other, seg)
        if other["fin"] and c["end"] == END_OPEN:
            client_first = (s["fin"] == 2) == (sender == 0)
            c["end"] = END_FIN_CLIENT + (0 if client_first else 1)
    if c["end"] == END_FIN_CLIENT or c["end"] == END_FIN_SERVER:
        c["settled"] |= _heard(s) and _heard(other)
