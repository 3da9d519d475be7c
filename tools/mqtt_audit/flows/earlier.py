"""What a connection says may be of earlier: of the session before, or from before the capture.

Knows: how a connection began, how much it has sent. Must not know: what is open.
"""

from ..compiled.jit import inlined, kernel

EARLY = 32  #: so many first messages of a side may be of earlier
TURNS = 4  #: and so many times more than are open at a time: each may have been repeated


@kernel
def continued(st, conn, sender):
    """Whether what a side of a connection answers early may be a message of the session before.
    sender: of the message."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    kept = c["present"] or c["level"] < 4 or not c["acked"]
    return not c["clean"] and kept and s["publish1"] + s["publish2"] <= EARLY


@inlined
def _whole(s):
    return s["isn_known"] and s["whole"] and not s["gaps"] and not s["blind"]


@inlined
def lacking(st, conn):
    """Whether bytes of either side are missing."""
    return not (_whole(st.streams[2 * conn]) and _whole(st.streams[2 * conn + 1]))


@inlined
def whole_and_new(c, s):
    """Whether the session began with this connection, and nothing of this side is missing."""
    return _whole(s) and c["clean"] and c["connects"] == 1 and c["begun"]


@kernel
def invented(st, conn, sender):
    """Whether a PUBREL of nothing that is open is of nothing that its side has sent. Before MQTT 5
    PUBREL may be sent again, also when its message is over: there the side has sent no message of
    QoS 2 at all."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    return whole_and_new(c, s) and (c["level"] == 5 or s["publish2"] == 0)


@inlined
def first_ones(s):
    """How many messages of QoS 1 and 2 a side has sent, each counted once."""
    return s["publish1"] + s["publish2"] - s["dups"]


@inlined
def note_gaps(s, gaps):
    """A PUBLISH comes, the latest of a side. gaps: so many there were before it, of both sides."""
    if gaps != s["gaps_n"]:
        s["gaps_n"], s["gap_at"] = gaps, first_ones(s) - 1


@inlined
def inherited(st, conn, sender):
    """Whether what a connection says may be of repetitions that the capture lacks, from before it
    or in a gap: these are answered as often as they were sent. MQTT 5 has none. sender: of the
    message."""
    c, s, other = st.conns[conn], st.streams[2 * conn + sender], st.streams[2 * conn + 1 - sender]
    known = c["begun"] and s["isn_known"] and other["isn_known"] and not s["gaps_n"]
    since = first_ones(s) - s["gap_at"]
    return c["level"] != 5 and not known and since <= EARLY + TURNS * s["most"]
