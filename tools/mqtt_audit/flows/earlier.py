"""What a connection says may be of earlier: of the session before, or from before the capture.

Knows: how a connection began, how much it has sent. Must not know: what is open.
"""

from ..compiled.jit import inlined, kernel

EARLY = 32  #: so many first messages of a side may be of earlier


@kernel
def continued(st, conn, sender):
    """Whether what a side of a connection answers early may be a message of the session before.
    sender: of the message."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    kept = c["present"] or c["level"] < 4 or not c["acked"]
    return not c["clean"] and kept and s["publish1"] + s["publish2"] <= EARLY


@inlined
def whole_and_new(c, s):
    """Whether the session began with this connection, and nothing of this side is missing."""
    whole = s["isn_known"] and s["whole"] and not s["gaps"] and not s["blind"]
    return whole and c["clean"] and c["connects"] == 1 and c["begun"]


@kernel
def invented(st, conn, sender):
    """Whether a PUBREL of nothing that is open is of nothing that its side has sent. Before MQTT 5
    PUBREL may be sent again, also when its message is over: there the side has sent no message of
    QoS 2 at all."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    return whole_and_new(c, s) and (c["level"] == 5 or s["publish2"] == 0)


@inlined
def inherited(st, conn, sender):
    """Whether what a connection says may be of repetitions from before the capture: these are
    answered as often as they were sent. sender: of the message."""
    s = st.streams[2 * conn + sender]
    return not st.conns[conn]["begun"] and s["publish1"] + s["publish2"] <= EARLY
