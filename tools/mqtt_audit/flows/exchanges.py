"""QoS 1 and 2 messages put together from their packets, compiled.

Knows: which packet answers which, when an id is free again. Must not know: bytes of packets.

What is open is in a table (table.py); what was sent twice may be answered twice (repeats.py).
"""

from ..compiled.arena import copy, take, violation
from ..compiled.jit import inlined, kernel
from ..compiled.layout import (
    ANOTHER,
    F_DONE,
    F_HEADLESS,
    F_OPEN,
    F_REUSED,
    FOUND,
    GRACE,
    LATE_FAR,
    N_FOUND,
    PENDING,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    REQUEST,
    UNORDERED,
    VAGUE,
)  # fmt: skip
from .earlier import EARLY, continued, inherited, invented, lacking, note_gaps
from .repeats import LOST, REFUSED, maybe_free, owe, owed, spare, spare_all, spent
from .table import ACKED_EARLY, RELEASED_ONLY, WHOLE, begin, find, finish, give_back


@inlined
def _wait(s, f):
    """The message is the next one to be answered."""
    if s["turns"] != UNORDERED:
        s["turns"] += 1
        f["turn"] = s["turns"]


@kernel
def _answered(st, f, kind, conn, sender, ident, time, frame):
    """A client answers in the order of what it answers (MQTT 3.1.1 and 5, 4.6): PUBACK and PUBREC
    in that of PUBLISH, PUBREL in that of PUBREC. sender: of the message. Where anything is
    missing, or was sent twice, nobody knows what is answered."""
    s, own = st.streams[2 * conn + sender], st.streams[2 * conn]
    turn, late = f["turn"], s["turn1"] if kind == PUBACK else s["turn2"]
    if turn <= 0 or s["turns"] == UNORDERED:
        return
    if turn > late:
        if kind == PUBACK:
            s["turn1"] = turn
        else:
            s["turn2"] = turn
    elif not own["lapses"] and not st.streams[2 * conn + 1]["lapses"]:
        code = 115 if kind == PUBACK else 116 if kind == PUBREC else 117
        violation(st, code, conn, 0, kind, time, frame, ident)


@kernel
def _again(st, f, conn, sender, ident, dup, time, frame, missing):
    """The same PUBLISH came once more, and may be answered once more."""
    f["sent"] += 1
    st.streams[2 * conn + sender]["turns"] = UNORDERED
    owe(st, PUBACK if f["qos"] == 1 else PUBREC, conn, sender, ident, time, frame)
    f["last"] = time
    if dup:
        f["dup"] += 1
    else:
        f["nodup"] += 1
        violation(st, 32, conn, sender, PUBLISH, time, frame, ident)
    if f["rec"] and f["rel"] and not missing:
        violation(st, 35, conn, sender, PUBLISH, time, frame, ident)
    elif dup:
        violation(st, 106, conn, sender, PUBLISH, time, frame, ident)


@kernel
def _replaced(st, f, conn, sender, ident, time, frame, free):
    """Another message takes the identifier of an open one, and both are answered."""
    if f["state"] == ACKED_EARLY:  # it is answered
        return
    if not free:
        violation(st, 30 if sender else 29, conn, sender, PUBLISH, time, frame, ident)
    if f["qos"] == 1:
        owe(st, PUBACK, conn, sender, ident, time, frame)
        return
    if not f["rec"]:
        owe(st, PUBREC, conn, sender, ident, time, frame)
    if not f["rel"]:
        owe(st, PUBREL, conn, sender, ident, time, frame)
    owe(st, PUBCOMP, conn, sender, ident, time, frame)


@inlined
def _doubt(st, f, conn, sender, ident, time, frame):
    """Whether a message that begins may be answered already: it is a repetition, or its sender
    takes an answer too many for its own."""
    if not f["dup_first"]:
        f["maybe"] = f["qos"] == 1 and spent(st, PUBACK, conn, sender, ident)
    elif lacking(st, conn):  # the first one, too
        f["maybe"] = 1
        owe(st, PUBACK if f["qos"] == 1 else PUBREC, conn, sender, ident, time, frame, LOST)
    else:
        f["maybe"] = st.streams[2 * conn + sender]["answered"]


@inlined
def _same(f, digest, length, qos):
    return f["hash"] == digest and f["length"] == length and f["qos"] == qos


@inlined
def _hidden(f, row):
    """Whether the answer to what was asked before may be missing, since then. Where both waited
    for bytes of their own side, the count tells nothing, but the time does."""
    return row["now"] > 0 or row["lapses"] != f["lapses"] or 0 < row["hole_at"] >= f["first"]


@inlined
def _still_open(st, conn, sender, ident):
    """As find(), of a message of this connection for sure: others that are open are given up."""
    at = find(st, conn, sender, ident)
    if at >= 0 and st.flows[st.slots[at]]["tears"] != st.conns[conn]["torn"]:
        finish(st, at, F_OPEN)
        at = find(st, conn, sender, ident)
    return at


@inlined
def publish(st, conn, sender, row, qos, dup, digest, d, topic, topic_len):
    """A PUBLISH at QoS 1 or 2, a row of layout.PACKET; topic: its place in d. If it is late, that
    is, captured after TCP's acknowledgement of it, its answer may be there already. What looks
    like the message before, without DUP, is another one if the answer to that may be missing."""
    ident, length, time, frame = row["id"], row["length"], row["time"], row["frame"]
    late, missing = row["late"], row["missing"]
    note_gaps(st.streams[2 * conn + sender], row["own"] + row["lapses"])
    at, ended = _still_open(st, conn, sender, ident), False
    asked = find(st, conn, REQUEST, ident)
    if asked >= 0 and not sender:
        f = st.flows[st.slots[asked]]
        if f["state"] == WHOLE and not _hidden(f, row):
            violation(st, 29, conn, sender, PUBLISH, time, frame, ident)
    if at >= 0:
        f = st.flows[st.slots[at]]
        whole, same = f["state"] == WHOLE, _same(f, digest, length, qos)
        hidden, again = whole and _hidden(f, row), whole and same and dup
        free = not again and maybe_free(st, f, conn, sender, hidden)
        if f["state"] == ACKED_EARLY and (late or time <= f["done"]):
            ended = True
        elif f["state"] != WHOLE:  # of another message, which the capture does not have
            free = free or missing or f["missing"]
            _replaced(st, f, conn, sender, ident, time, frame, free)
            finish(st, at, F_HEADLESS)
            at = find(st, conn, sender, ident)
        elif again or same and not free:
            _again(st, f, conn, sender, ident, dup, time, frame, hidden)
            return
        else:
            _replaced(st, f, conn, sender, ident, time, frame, free)
            finish(st, at, F_REUSED)
            st.streams[2 * conn + sender]["turns"] = UNORDERED
            at = find(st, conn, sender, ident)
    k = (st.slots[at] if at >= 0
         else begin(st, at, conn, sender, ident, time, frame, missing))  # fmt: skip
    f = st.flows[k]
    f["first"], f["hash"], f["length"], f["qos"], f["sent"] = time, digest, length, qos, 1
    f["dup_first"], f["frame"], f["missing"], f["unsure"] = dup, frame, missing, late
    _doubt(st, f, conn, sender, ident, time, frame)
    f["lapses"], f["own"] = -1 if row["now"] == PENDING else row["lapses"], row["own"]
    f["vague"] = VAGUE if late == LATE_FAR else 0
    s = st.streams[2 * conn + sender]
    s["open"] += not row["found"] & FOUND  # that one may be no message
    s["most"] = max(s["most"], s["open"])
    if sender:
        _wait(s, f)
    if 0 < s["receive_max"] < s["open"] and not missing:
        violation(st, 65 if sender else 64, conn, sender, PUBLISH, time, frame, s["receive_max"])
    f["early"] = dup or s["publish1"] + s["publish2"] <= EARLY
    place = take(st, topic_len)
    if place >= 0:
        copy(d, topic, topic_len, st.arena, place)
        f["topic"], f["topic_len"] = place, topic_len
    if ended:
        finish(st, at, F_DONE)


@kernel
def _unknown(st, at, kind, conn, from_server, ident, time, frame, missing):
    """An answer to nothing that is open."""
    st.streams[2 * conn + 1 - from_server]["strange"] += kind == PUBREC
    if kind == PUBACK or kind == PUBCOMP:
        give_back(st.streams[2 * conn + 1 - from_server])
    if kind == PUBREL:  # goes on with a message of an earlier connection
        if owed(st, PUBREL, conn, from_server, ident):
            return  # or with one whose identifier another one took
        if invented(st, conn, from_server) and not st.conns[conn]["swept"]:
            violation(st, 56, conn, from_server, PUBREL, time, frame, ident)
        f = st.flows[begin(st, at, conn, from_server, ident, time, frame, missing)]
        f["qos"], f["rel"], f["state"] = 2, max(time, 1), RELEASED_ONLY
        s = st.streams[2 * conn + from_server]
        f["maybe"] = s["answered"] or st.n[N_FOUND] & FOUND  # one found by its look may be none
        if lacking(st, conn):
            owe(st, PUBCOMP, conn, from_server, ident, time, frame, LOST)
        # Not if there was a PUBREC of a PUBLISH that the capture lacks: this may be its answer.
        f["early"] = s["strange"] == 0
    elif missing:  # the capture has the answer before the question
        spare(st, kind, conn, 1 - from_server, ident, time, frame)
        if kind != PUBREC:
            f = st.flows[begin(st, at, conn, 1 - from_server, ident, time, frame, missing)]
            f["done"], f["state"] = time, ACKED_EARLY
    elif not owed(st, kind, conn, 1 - from_server, ident):
        spare(st, kind, conn, 1 - from_server, ident, time, frame)
        c = st.conns[conn]
        if c["begun"] and not (c["swept"] or continued(st, conn, 1 - from_server)):
            code = 57 if kind == PUBCOMP else 31
            violation(st, code, conn, from_server, kind, time, frame, ident)


@inlined
def _received(st, f, conn, from_server, ident, time, frame, missing):
    """A PUBREC. A second one of the same message says that nobody knows the order; MQTT 5 allows
    it only after a second PUBLISH."""
    s = st.streams[2 * conn + 1 - from_server]
    if f["rec"]:
        more = owed(st, PUBREC, conn, 1 - from_server, ident)
        if not (more or missing) and f["sent"] == 1 and st.conns[conn]["level"] == 5:
            violation(st, 136, conn, from_server, PUBREC, time, frame, ident)
        s["turns"] = UNORDERED
        return
    f["rec"] = time
    if from_server:
        _wait(s, f)
    elif not missing:
        _answered(st, f, PUBREC, conn, 1, ident, time, frame)


@inlined
def _released(st, f, conn, sender, ident, time, frame, missing):
    """A PUBREL. A second PUBREC asks for a second one; of what was sent twice nobody knows what is
    answered."""
    s = st.streams[2 * conn + sender]
    missing = missing or inherited(st, conn, sender)
    if not (f["rec"] or missing) and owed(st, PUBREL, conn, sender, ident):
        return  # of another message that had this identifier
    if not f["rec"] and f["state"] == WHOLE and not missing and not s["strange"]:
        violation(st, 54, conn, sender, PUBREL, time, frame, ident)
        # Who has both answers both.
        owe(st, PUBCOMP if f["qos"] == 1 else PUBREC, conn, sender, ident, time, frame)
    if f["rel"] and not missing and s["turns"] != UNORDERED and st.conns[conn]["level"] == 5:
        violation(st, 128, conn, sender, PUBREL, time, frame, ident)
    if f["rel"]:
        owe(st, PUBCOMP, conn, sender, ident, time, frame)
    elif f["qos"] == 2 and spent(st, PUBCOMP, conn, sender, ident):
        f["maybe"] = 1
    if not (f["rel"] or missing or sender):
        _answered(st, f, PUBREL, conn, sender, ident, time, frame)
    f["rel"] = f["rel"] if f["rel"] else time


@inlined
def _vague(c, f, row):
    """Whether nobody knows when the last answer passed. VAGUE: it was captured long after its
    acknowledgement, or it may be the second one of two, of which the capture lacks the first.
    ANOTHER: both sides lack bytes since the message, which may be its answer, and another message
    that this one answers."""
    late = row["late"] == LATE_FAR or 0 < c["lag"] < row["time"] - f["first"] + GRACE // 2
    asked = f["own"] < row["lapses"] or row["now"] == PENDING
    both = f["lapses"] < row["own"] and asked
    return (VAGUE if late else 0) | (ANOTHER if both and f["state"] == WHOLE else 0)


@kernel
def _mistaken(st, kind, conn, from_server, ident, time, frame, missing):
    """An answer to a message of the other QoS."""
    unsure = missing or inherited(st, conn, 1 - from_server)  # it may be to another message
    right = owed(st, kind, conn, 1 - from_server, ident) or unsure
    if kind != PUBREC:
        give_back(st.streams[2 * conn + 1 - from_server])
    if not right:
        violation(st, 34 if kind == PUBACK else 33, conn, from_server, kind, time, frame, ident)
    if kind == PUBREC:  # PUBREL and PUBCOMP come once more, too
        owe(st, PUBREL, conn, 1 - from_server, ident, time, frame)
        owe(st, PUBCOMP, conn, 1 - from_server, ident, time, frame)


@inlined
def _completed(st, at, kind, conn, from_server, row, missing):
    """PUBACK, PUBCOMP or REFUSED, the last answer to the message at this place of the table."""
    f, sender = st.flows[st.slots[at]], 1 - from_server
    ident, time, frame = row["id"], max(row["time"], 1), row["frame"]
    if not (from_server or missing) and kind != PUBCOMP:
        _answered(st, f, PUBACK if kind == PUBACK else PUBREC, conn, sender, ident, time, frame)
    if kind == PUBCOMP and f["state"] == WHOLE and not f["rel"]:
        if owed(st, PUBCOMP, conn, sender, ident) or inherited(st, conn, sender):
            return
        if not missing:  # PUBREL is due all the same
            violation(st, 57, conn, from_server, kind, time, frame, ident)
            f["maybe"] = 1
            give_back(st.streams[2 * conn + sender])
            return
    if kind != REFUSED and f["maybe"]:
        spare(st, kind, conn, sender, ident, time, frame)
    if f["sent"] > 1 and lacking(st, conn):
        spare_all(st, kind, conn, sender, ident)
    f["done"] = time
    f["vague"] |= _vague(st.conns[conn], f, row)
    finish(st, at, F_DONE)


@inlined
def answer(st, kind, conn, from_server, row, missing):
    """PUBACK, PUBREC, PUBREL, PUBCOMP or REFUSED, a row of layout.PACKET. missing: bytes of the
    other side are not there (yet)."""
    ident, time, frame = row["id"], row["time"], row["frame"]
    sender = from_server if kind == PUBREL else 1 - from_server
    at = find(st, conn, sender, ident)
    if at >= 0 and st.flows[st.slots[at]]["state"] == ACKED_EARLY:
        if kind == PUBREL:  # an answer came before it, but maybe to another one
            owe(st, PUBCOMP, conn, sender, ident, time, frame)
        if kind == PUBREC or kind == PUBREL:
            return
        finish(st, at, F_HEADLESS)  # this is the answer to another message
        at = find(st, conn, sender, ident)
    if at < 0:
        _unknown(st, at, PUBREC if kind == REFUSED else kind, conn, from_server, ident, time,
                 frame, missing)  # fmt: skip
        return
    time = max(time, 1)  # 0 says that there was none
    f = st.flows[st.slots[at]]
    missing = missing or f["unsure"]
    if (f["qos"] == 2) == (kind == PUBACK) and f["qos"] and kind != PUBREL:
        _mistaken(st, kind, conn, from_server, ident, time, frame, missing)
    elif kind == PUBREC or kind == REFUSED and f["rec"]:
        _received(st, f, conn, from_server, ident, time, frame, missing)
    elif kind == PUBREL:
        _released(st, f, conn, from_server, ident, time, frame, missing)
    else:
        _completed(st, at, kind, conn, from_server, row, missing)
