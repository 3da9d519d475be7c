"""SUBSCRIBE and UNSUBSCRIBE with their answers, compiled.

Knows: which answer a request needs, when its identifier is free again. Must not know: bytes of
packets.
"""

from ..compiled.arena import violation
from ..compiled.jit import kernel
from ..compiled.layout import PENDING, REQUEST, SUBACK
from .repeats import maybe_free, spare, spent
from .table import ACKED_EARLY, WHOLE, begin, find, free


@kernel
def request(st, row, conn, missing):
    """A SUBSCRIBE or UNSUBSCRIBE of the client, a row of layout.PACKET. missing: as in answer().
    What is late is known, but is held against nobody: its answer may be there already."""
    kind, ident, late = row["kind"], row["id"], row["late"]
    time, frame, level = row["time"], row["frame"], row["level"]
    resent = row["flags"] & 8 and level < 4  # MQTT 3.1, 2.1: these have DUP; 0: nobody knows
    at = find(st, conn, 0, ident)
    used = at >= 0 and not maybe_free(st, st.flows[st.slots[at]], conn, 0, False)
    at = find(st, conn, REQUEST, ident)
    again = at >= 0 and st.flows[st.slots[at]]["state"] == WHOLE and not resent
    if (used or again) and ident and not missing and not late:
        violation(st, 29, conn, 0, kind, time, frame, ident)
    if at < 0:
        f = st.flows[begin(st, at, conn, REQUEST, ident, time, frame, missing)]
        f["qos"], f["sent"] = 0 if late else kind, 1
        freed = spent(st, SUBACK, conn, 0, ident)
        f["state"] = ACKED_EARLY if late or resent or freed else WHOLE
        f["lapses"] = -1 if row["now"] == PENDING else row["lapses"]
        return
    f = st.flows[st.slots[at]]
    f["qos"] = kind if f["qos"] == kind else 0  # either answer is right
    f["sent"] += 1


@kernel
def granted(st, kind, conn, ident, time, frame, missing):
    """A SUBACK or UNSUBACK of the server."""
    at = find(st, conn, REQUEST, ident)
    wrong = at < 0
    if at >= 0:
        f = st.flows[st.slots[at]]
        wrong = f["qos"] and f["qos"] != kind - 1
        if f["state"] == ACKED_EARLY:  # of a request that came again, maybe after its answer
            spare(st, SUBACK, conn, 0, ident, time, frame)
        f["sent"] -= 1
        f["state"] = ACKED_EARLY  # its identifier is free, and one more answer may come
        if f["sent"] == 0:
            free(st, at)
    if at < 0:
        spare(st, SUBACK, conn, 0, ident, time, frame)
    c = st.conns[conn]
    if wrong and not missing and c["begun"] and not c["swept"]:
        violation(st, 51, conn, 1, kind, time, frame, ident)
