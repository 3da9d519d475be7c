"""Answers to what was sent twice on a connection, compiled.

Knows: how many more answers of a type may come with an identifier, and how many more came than a
message needs. Must not know: which packet answers which.

A row of the table counts both for (connection, type of the answer, sender, identifier): `sent` is
what may still come, `dup` what came too many. Of these the sender may have taken one for the
answer to its next message, or request, with that identifier.
"""

from ..compiled.jit import inlined, kernel
from ..compiled.layout import PUBACK, PUBCOMP, PUBREC, REPEATED
from .earlier import inherited
from .table import ACKED_EARLY, begin, find

REFUSED = 16  #: a type of its own: PUBREC of MQTT 5 with a reason code of 128 or more


@kernel
def owe(st, kind, conn, sender, ident, time, frame):
    """What was sent twice may be answered twice, by packets of this type, even when its identifier
    is another message's."""
    who = REPEATED + 2 * kind + sender
    at = find(st, conn, who, ident)
    k = st.slots[at] if at >= 0 else begin(st, at, conn, who, ident, time, frame, 0)
    st.flows[k]["sent"] += 1


@kernel
def owed(st, kind, conn, sender, ident):
    """Whether one more packet of this type with this identifier may come; it has."""
    at = find(st, conn, REPEATED + 2 * (PUBREC if kind == REFUSED else kind) + sender, ident)
    if at < 0:
        return False
    f = st.flows[st.slots[at]]
    if f["sent"] == 0:
        return False
    f["sent"] -= 1
    f["dup"] += 1
    return True


@kernel
def spare(st, kind, conn, sender, ident, time, frame, new):
    """This answer may be the second one of a message that is over. new: also of one that nobody
    saw twice."""
    who = REPEATED + 2 * kind + sender
    at = find(st, conn, who, ident)
    if at >= 0 or new:
        k = st.slots[at] if at >= 0 else begin(st, at, conn, who, ident, time, frame, 0)
        st.flows[k]["dup"] += 1


@kernel
def spent(st, kind, conn, sender, ident):
    """Whether an answer of this type came that nothing needed; one less is left."""
    at = find(st, conn, REPEATED + 2 * kind + sender, ident)
    if at < 0:
        return False
    row = st.flows[st.slots[at]]
    if row["dup"] == 0:
        return False
    row["dup"] -= 1
    return True


@kernel
def freed(st, f, conn, sender, ident):
    """Whether the sender of a message may have taken an answer too many, of the message before,
    for the answer to this one: it was captured, and nobody knows when it arrived."""
    if f["qos"] == 2 and not f["rel"]:
        return False
    if not spent(st, PUBACK if f["qos"] == 1 else PUBCOMP, conn, sender, ident):
        return False
    f["maybe"] = 1
    return True


@inlined
def maybe_free(st, f, conn, sender, ident, missing):
    """Whether the identifier of a message may be free again, as that may be answered. missing:
    the answer may be in bytes that are not there."""
    maybe = missing or f["state"] == ACKED_EARLY or f["maybe"] or inherited(st, conn, sender)
    return maybe or freed(st, f, conn, sender, ident)
