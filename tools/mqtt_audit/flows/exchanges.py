"""QoS 1 and 2 messages put together from their packets, compiled.

Knows: which packet answers which, when an id is free again. Must not know: bytes of packets.

An open exchange is found by (connection, sender, packet id) in a hash table with linear probing.
"""

from ..compiled.arena import copy, take, violation
from ..compiled.jit import entry, inlined, kernel
from ..compiled.layout import (
    ALIAS,
    ANOTHER,
    F_DONE,
    F_HEADLESS,
    F_OPEN,
    F_REUSED,
    FOUND,
    GRACE,
    LATE_FAR,
    N_DONE,
    N_DONE_TEXT,
    N_FLOW_FREE,
    N_FLOWS,
    N_FOUND,
    PENDING,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    REPEATED,
    REQUEST,
    UNORDERED,
    VAGUE,
)  # fmt: skip

REFUSED = 16  #: a kind of answer(): PUBREC of MQTT 5 with a reason code of 128 or more
EARLY = 32  #: so many first messages of a connection may be of the session before it
WHOLE, ACKED_EARLY, RELEASED_ONLY = 0, 1, 2  # FLOW.state


@inlined
def _place(conn, sender, ident, mask):
    h = (conn * 131071 + ident * 2 + sender) * 40503 & 0xFFFFFFFF
    return (h ^ h >> 15) & mask


@inlined
def find(st, conn, sender, ident):
    """Place in `slots` of an open exchange; if there is none: -1 minus the place for it."""
    mask = len(st.slots) - 1
    at = _place(conn, sender, ident, mask)
    while st.slots[at] >= 0:
        f = st.flows[st.slots[at]]
        if f["conn"] == conn and f["id"] == ident and f["sender"] == sender:
            return at
        at = at + 1 & mask
    return -1 - at


@inlined
def _unlink(st, at):
    """Take an entry out of the hash table, moving up those behind it."""
    mask = len(st.slots) - 1
    hole = at
    while True:
        at = at + 1 & mask
        k = st.slots[at]
        if k < 0:
            break
        f = st.flows[k]
        home = _place(f["conn"], f["sender"], f["id"], mask)
        if (at - home & mask) >= (at - hole & mask):
            st.slots[hole] = k
            hole = at
    st.slots[hole] = -1


@inlined
def _free(st, at):
    """Forget an exchange."""
    k = st.slots[at]
    _unlink(st, at)
    st.flows[k]["used"] = 0
    st.flows[k]["done"] = st.n[N_FLOW_FREE]
    st.n[N_FLOW_FREE] = k
    st.n[N_FLOWS] -= 1


@inlined
def finish(st, at, outcome):
    """Move an exchange into the table of those that are over."""
    k = st.slots[at]
    f = st.flows[k]
    n, end = st.n[N_DONE], st.n[N_DONE_TEXT]
    f["outcome"] = outcome
    s = st.streams[2 * f["conn"] + f["sender"]]
    s["answered"] |= outcome == F_DONE
    if f["sent"]:
        s["open"] -= 1
    size = f["topic_len"]
    copy(st.arena, f["topic"], size, st.done_text, end)
    f["topic"] = st.n[N_DONE_TEXT] = end + size
    st.done[n] = f
    st.n[N_DONE] = n + 1
    _free(st, at)


@inlined
def _begin(st, at, conn, sender, ident, time, frame, missing):
    """A new exchange; `at` as from find(). frame, missing: of the packet that it begins with."""
    k = st.n[N_FLOW_FREE]
    f = st.flows[k]
    st.n[N_FLOW_FREE] = f["done"]
    st.n[N_FLOWS] += 1
    st.slots[-1 - at] = k
    f["first"] = f["last"] = time
    f["rec"] = f["rel"] = f["done"] = f["hash"] = f["length"] = 0
    f["topic"] = f["topic_len"] = f["sent"] = f["dup"] = f["nodup"] = 0
    f["conn"], f["sender"], f["id"], f["used"] = conn, sender, ident, 1
    f["frame"], f["missing"], f["lapses"] = frame, missing, -1
    f["qos"] = f["dup_first"] = f["early"] = f["outcome"] = f["state"] = f["unsure"] = 0
    f["maybe"] = 0
    f["vague"], f["turn"], f["tears"] = 0, 0, st.conns[conn]["torn"]
    return k


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
def _owe(st, kind, conn, sender, ident, time, frame):
    """What was sent twice may be answered twice, by packets of this type, even when its identifier
    is another message's."""
    who = REPEATED + 2 * kind + sender
    at = find(st, conn, who, ident)
    k = st.slots[at] if at >= 0 else _begin(st, at, conn, who, ident, time, frame, 0)
    st.flows[k]["sent"] += 1


@kernel
def _owed(st, kind, conn, sender, ident):
    """Whether one more packet of this type with this identifier may come; it has."""
    at = find(st, conn, REPEATED + 2 * (PUBREC if kind == REFUSED else kind) + sender, ident)
    if at < 0:
        return False
    f = st.flows[st.slots[at]]
    f["sent"] -= 1
    if f["sent"] == 0:
        _free(st, at)
    return True


@kernel
def _again(st, f, conn, sender, ident, dup, time, frame, missing):
    """The same PUBLISH came once more, and may be answered once more."""
    f["sent"] += 1
    st.streams[2 * conn + sender]["turns"] = UNORDERED
    _owe(st, PUBACK if f["qos"] == 1 else PUBREC, conn, sender, ident, time, frame)
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
def _replaced(st, f, conn, sender, ident, time, frame, missing):
    """Another message takes the identifier of an open one, and both are answered."""
    if f["state"] == ACKED_EARLY:  # it is answered
        return
    if not (missing or f["maybe"]):
        violation(st, 30 if sender else 29, conn, sender, PUBLISH, time, frame, ident)
    if f["rel"]:
        _owe(st, PUBCOMP, conn, sender, ident, time, frame)
    else:
        _owe(st, PUBACK if f["qos"] == 1 else PUBREC, conn, sender, ident, time, frame)


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
    at, ended = _still_open(st, conn, sender, ident), False
    asked = find(st, conn, REQUEST, ident)
    if asked >= 0 and not (sender or dup):
        f = st.flows[st.slots[asked]]
        if f["state"] == WHOLE and not _hidden(f, row):
            violation(st, 29, conn, sender, PUBLISH, time, frame, ident)
    if at >= 0:
        f = st.flows[st.slots[at]]
        hidden = _hidden(f, row)
        if f["state"] == ACKED_EARLY and (late or time <= f["done"]):
            ended = True
        elif f["state"] != WHOLE:  # of another message, which the capture does not have
            _replaced(st, f, conn, sender, ident, time, frame, missing or f["missing"])
            finish(st, at, F_HEADLESS)
            at = find(st, conn, sender, ident)
        elif (dup or not (hidden or f["maybe"])) and _same(f, digest, length, qos):
            _again(st, f, conn, sender, ident, dup, time, frame, hidden)
            return
        else:
            if not hidden:
                _replaced(st, f, conn, sender, ident, time, frame, False)
            finish(st, at, F_REUSED)
            st.streams[2 * conn + sender]["turns"] = UNORDERED
            at = find(st, conn, sender, ident)
    k = (st.slots[at] if at >= 0
         else _begin(st, at, conn, sender, ident, time, frame, missing))  # fmt: skip
    f = st.flows[k]
    f["first"], f["hash"], f["length"], f["qos"], f["sent"] = time, digest, length, qos, 1
    f["dup_first"], f["frame"], f["missing"], f["unsure"] = dup, frame, missing, late
    f["maybe"] = dup and st.streams[2 * conn + sender]["answered"]
    f["lapses"], f["own"] = -1 if row["now"] == PENDING else row["lapses"], row["own"]
    f["vague"] = VAGUE if late == LATE_FAR else 0
    s = st.streams[2 * conn + sender]
    s["open"] += not row["found"] & FOUND  # that one may be no message
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
def _continued(st, conn, sender):
    """Whether what a side of a connection answers early may be a message of the session before.
    sender: of the message."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    kept = c["present"] or c["level"] < 4 or not c["acked"]
    return not c["clean"] and kept and s["publish1"] + s["publish2"] <= EARLY


@kernel
def _invented(st, conn, sender):
    """Whether a PUBREL of nothing that is open is of nothing that its side has sent: the session
    began with this connection, of which nothing is missing. Before MQTT 5 PUBREL may be sent
    again, also when its message is over: there the side has sent no message of QoS 2 at all."""
    c, s = st.conns[conn], st.streams[2 * conn + sender]
    whole = s["isn_known"] and s["whole"] and not s["gaps"] and not s["blind"]
    new = c["clean"] and c["connects"] == 1 and c["begun"]
    return whole and new and (c["level"] == 5 or s["publish2"] == 0)


@kernel
def _unknown(st, at, kind, conn, from_server, ident, time, frame, missing):
    """An answer to nothing that is open."""
    st.streams[2 * conn + 1 - from_server]["strange"] += kind == PUBREC
    if kind == PUBREL:  # goes on with a message of an earlier connection
        if _invented(st, conn, from_server):
            violation(st, 56, conn, from_server, PUBREL, time, frame, ident)
        f = st.flows[_begin(st, at, conn, from_server, ident, time, frame, missing)]
        f["qos"], f["rel"], f["state"] = 2, max(time, 1), RELEASED_ONLY
        s = st.streams[2 * conn + from_server]
        f["maybe"] = s["answered"] or st.n[N_FOUND] & FOUND  # one found by its look may be none
        # Not if there was a PUBREC of a PUBLISH that the capture lacks: this may be its answer.
        f["early"] = s["strange"] == 0
    elif missing:  # the capture has the answer before the question
        if kind != PUBREC:
            f = st.flows[_begin(st, at, conn, 1 - from_server, ident, time, frame, missing)]
            f["done"], f["state"] = time, ACKED_EARLY
    elif (not _owed(st, kind, conn, 1 - from_server, ident) and st.conns[conn]["begun"]
            and not _continued(st, conn, 1 - from_server)):  # fmt: skip
        code = 57 if kind == PUBCOMP else 31
        violation(st, code, conn, from_server, kind, time, frame, ident)


@inlined
def _received(st, f, conn, from_server, ident, time, frame, missing):
    """A PUBREC. A second one of the same message says that nobody knows the order; MQTT 5 allows
    it only after a second PUBLISH."""
    s = st.streams[2 * conn + 1 - from_server]
    if f["rec"]:
        more = _owed(st, PUBREC, conn, 1 - from_server, ident)
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
    if f["qos"] == 1 and not missing and _owed(st, PUBREL, conn, sender, ident):
        return  # of another message that had this identifier
    if not f["rec"] and f["state"] == WHOLE and not missing and not s["strange"]:
        violation(st, 54, conn, sender, PUBREL, time, frame, ident)
        if f["qos"] == 1:
            _owe(st, PUBCOMP, conn, sender, ident, time, frame)  # who has it answers it
    if f["rel"] and not missing and s["turns"] != UNORDERED and st.conns[conn]["level"] == 5:
        violation(st, 128, conn, sender, PUBREL, time, frame, ident)
    if f["rel"]:
        _owe(st, PUBCOMP, conn, sender, ident, time, frame)
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
    if missing:  # it may be to another message
        return
    if not _owed(st, kind, conn, 1 - from_server, ident):
        violation(st, 34 if kind == PUBACK else 33, conn, from_server, kind, time, frame, ident)
    elif kind == PUBREC:  # PUBREL and PUBCOMP come once more, too
        _owe(st, PUBREL, conn, 1 - from_server, ident, time, frame)
        _owe(st, PUBCOMP, conn, 1 - from_server, ident, time, frame)


@inlined
def answer(st, kind, conn, from_server, row, missing):
    """PUBACK, PUBREC, PUBREL, PUBCOMP or REFUSED, a row of layout.PACKET. missing: bytes of the
    other side are not there (yet)."""
    ident, time, frame = row["id"], row["time"], row["frame"]
    sender = from_server if kind == PUBREL else 1 - from_server
    at = find(st, conn, sender, ident)
    if at >= 0 and st.flows[st.slots[at]]["state"] == ACKED_EARLY:
        if kind == PUBREL:  # an answer came before it, but maybe to another one
            _owe(st, PUBCOMP, conn, sender, ident, time, frame)
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
    elif kind == PUBREC:
        _received(st, f, conn, from_server, ident, time, frame, missing)
    elif kind == PUBREL:
        _released(st, f, conn, from_server, ident, time, frame, missing)
    else:
        if not (from_server or missing) and kind != PUBCOMP:
            _answered(st, f, PUBACK if kind == PUBACK else PUBREC, conn, sender, ident, time,
                      frame)  # fmt: skip
        if kind == PUBCOMP and f["state"] == WHOLE and not f["rel"] and not missing:
            if _owed(st, PUBCOMP, conn, sender, ident):
                return
            violation(st, 57, conn, from_server, kind, time, frame, ident)
        f["done"] = time
        f["vague"] |= _vague(st.conns[conn], f, row)
        finish(st, at, F_DONE)


@inlined
def _maybe_free(f):
    """Whether the identifier of a message may be free again, as that may be answered."""
    return f["state"] == ACKED_EARLY or f["maybe"]


@kernel
def request(st, row, conn, missing):
    """A SUBSCRIBE or UNSUBSCRIBE of the client, a row of layout.PACKET. missing: as in answer().
    What is late is known, but is held against nobody: its answer may be there already."""
    kind, ident, late = row["kind"], row["id"], row["late"]
    time, frame, level = row["time"], row["frame"], row["level"]
    resent = row["flags"] & 8 and (level == 3 or level == 2)  # MQTT 3.1, 2.1: these have DUP
    at = find(st, conn, 0, ident)
    used = at >= 0 and not _maybe_free(st.flows[st.slots[at]])
    at = find(st, conn, REQUEST, ident)
    again = at >= 0 and st.flows[st.slots[at]]["state"] == WHOLE
    if (used or again and not resent) and ident and not missing and not late:
        violation(st, 29, conn, 0, kind, time, frame, ident)
    if at < 0:
        f = st.flows[_begin(st, at, conn, REQUEST, ident, time, frame, missing)]
        f["qos"], f["sent"] = 0 if late else kind, 1
        f["state"] = ACKED_EARLY if late or resent else WHOLE
        f["lapses"] = -1 if row["now"] == PENDING else row["lapses"]
        return
    f = st.flows[st.slots[at]]
    f["qos"] = kind if f["qos"] == kind else 0  # either answer is right
    f["sent"] += 1
    if resent:
        f["state"] = ACKED_EARLY  # one answer may come, or one to each


@kernel
def granted(st, kind, conn, ident, time, frame, missing):
    """A SUBACK or UNSUBACK of the server."""
    at = find(st, conn, REQUEST, ident)
    wrong = at < 0
    if at >= 0:
        f = st.flows[st.slots[at]]
        wrong = f["qos"] and f["qos"] != kind - 1
        f["sent"] -= 1
        if f["sent"] == 0:
            _free(st, at)
    if wrong and not missing and st.conns[conn]["begun"]:
        violation(st, 51, conn, 1, kind, time, frame, ident)


@kernel
def name(st, conn, sender, alias, d, topic, size, time, frame):
    """A topic gets an alias on this connection; topic, size: its place in d."""
    at = find(st, conn, ALIAS + sender, alias)
    k = st.slots[at] if at >= 0 else _begin(st, at, conn, ALIAS + sender, alias, time, frame, 0)
    st.flows[k]["tears"] = st.conns[conn]["torn"]
    place = take(st, size)
    if place >= 0:
        copy(d, topic, size, st.arena, place)
        st.flows[k]["topic"], st.flows[k]["topic_len"] = place, size


@kernel
def named(st, conn, sender, alias):
    """(place in the arena, length) of the topic that has an alias; place -1: none has."""
    at = find(st, conn, ALIAS + sender, alias)
    if at < 0 or st.flows[st.slots[at]]["tears"] != st.conns[conn]["torn"]:
        return -1, 0
    f = st.flows[st.slots[at]]
    return f["topic"], f["topic_len"]


@kernel
def _over(st, conn):
    """Whether a connection has ended and none of its packets is waiting for a hole."""
    head, other = st.streams[2 * conn]["head"], st.streams[2 * conn + 1]["head"]
    return st.conns[conn]["end"] and head < 0 and other < 0


@entry
def sweep(st, everything):
    """End the exchanges of connections that are over (or all); False: `done` is full."""
    for k in range(len(st.flows)):
        f = st.flows[k]
        if f["used"] and (everything or _over(st, f["conn"])):
            if st.n[N_DONE] >= len(st.done):
                return False
            if st.n[N_DONE_TEXT] + f["topic_len"] > len(st.done_text):
                return False
            at = find(st, f["conn"], f["sender"], f["id"])
            if f["sender"] >= REQUEST:
                _free(st, at)
                continue
            early_ack = f["state"] == ACKED_EARLY
            finish(st, at, F_HEADLESS if early_ack or f["state"] == RELEASED_ONLY else F_OPEN)
    return True


@entry
def rehash(st, old):
    """After `flows` and `slots` grew: fill the hash table; rows from `old` on are free."""
    for at in range(len(st.slots)):
        st.slots[at] = -1
    for k in range(len(st.flows)):
        f = st.flows[k]
        if f["used"]:
            st.slots[-1 - find(st, f["conn"], f["sender"], f["id"])] = k
    for k in range(old, len(st.flows)):
        st.flows[k]["done"] = st.n[N_FLOW_FREE]
        st.n[N_FLOW_FREE] = k
