"""Answers to what was sent twice on a connection, compiled.

Knows: how many more answers of a type may come with an identifier, and how many more came than a
message needs. Must not know: which packet answers which.

A row of the table counts both for (connection, type of the answer, sender, identifier): `sent` is
what may still come, `dup` what came too many. Of these the sender may have taken one for the
answer to its next message, or request, with that identifier.
"""

from ..compiled.jit import inlined, kernel
from ..compiled.layout import PUBREC, REPEATED
from .earlier import inherited
from .table import ACKED_EARLY, begin, find

LOST = 3  #: so many repetitions of what a gap has cut off may be in the gap
REFUSED = 16  #: a type of its own: PUBREC of MQTT 5 with a reason code of 128 or more


@inlined
def _row(st, kind, conn, sender, ident):
    """The number of a row; -1: there is none."""
    at = find(st, conn, REPEATED + 2 * kind + sender, ident)
    return st.slots[at] if at >= 0 else -1


@kernel
def owe(st, kind, conn, sender, ident, time, frame, count=1):
    """What was sent twice may be answered twice, by packets of this type, even when its identifier
    is another message's. count: so many times more."""
    who = REPEATED + 2 * kind + sender
    at = find(st, conn, who, ident)
    k = st.slots[at] if at >= 0 else begin(st, at, conn, who, ident, time, frame, 0)
    st.flows[k]["sent"] += count


@kernel
def owed(st, kind, conn, sender, ident):
    """Whether one more packet of this type with this identifier may come; it has."""
    k = _row(st, PUBREC if kind == REFUSED else kind, conn, sender, ident)
    if k < 0 or st.flows[k]["sent"] == 0:
        return False
    st.flows[k]["sent"] -= 1
    st.flows[k]["dup"] += 1
    return True


@kernel
def spare(st, kind, conn, sender, ident, time, frame):
    """This answer may be the second one of a message that is over."""
    owe(st, kind, conn, sender, ident, time, frame)
    owed(st, kind, conn, sender, ident)


@kernel
def spare_all(st, kind, conn, sender, ident):
    """All that may still come may have come, in a gap."""
    k = _row(st, kind, conn, sender, ident)
    if k >= 0:
        st.flows[k]["dup"] += st.flows[k]["sent"]


@kernel
def spent(st, kind, conn, sender, ident):
    """Whether an answer of this type came that nothing needed, and whose sender may take it for
    that of its next message: nobody knows when it arrived. One less is left."""
    k = _row(st, kind, conn, sender, ident)
    if k < 0 or st.flows[k]["dup"] == 0:
        return False
    st.flows[k]["dup"] -= 1
    return True


@inlined
def maybe_free(st, f, conn, sender, missing):
    """Whether the identifier of a message may be free again, as that may be answered. missing:
    the answer may be in bytes that are not there."""
    return missing or f["state"] == ACKED_EARLY or f["maybe"] or inherited(st, conn, sender)
