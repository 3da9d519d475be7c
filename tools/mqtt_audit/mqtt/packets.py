"""Whole MQTT packets: their rows, which rules they break, what they do
to the connection.

Knows: MQTT 5, 3.1.1, 3.1, the MQIpdp draft; compiled. CONNECT, SUBSCRIBE, UNSUBSCRIBE and their
answers are only copied here: bodies.py takes them apart. Must not know: TCP.
"""


from ..compiled.arena import copy, problem, talk_room, violation
from ..compiled.jit import entry, inlined, kernel, wide
from ..compiled.layout import (
    AUTH,
    BODY_MAX,
    CONNACK,
    CONNECT,
    DISCONNECT,
    FLOOD,
    FLOOD_S,
    FOUND,
    GRACE,
    HAS_FLAGS,
    HAS_KEEP_ALIVE,
    METHOD_NAMED,
    METHOD_NONE,
    METHOD_UNKNOWN,
    N_BACK,
    N_BODIES,
    N_FOUND,
    N_PACKETS,
    N_READ,
    N_TEXT,
    P_LARGE,
    P_MQTT5,
    PENDING,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    SECOND,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)  # fmt: skip
from ..flows.aliases import name, named
from ..flows.exchanges import answer, publish
from ..flows.repeats import REFUSED
from ..flows.requests import granted, request
from ..rules.limits import closing
from .checks import check_form, check_order, check_size, first_of_session, wrong_way
from .properties import ALIASED, FORMAT, METHOD, has_property, limits, number_of, variable
from .text import TEXT_BAD, TEXT_OK, TEXT_WILD, copy_text, text_kind, utf8

_closing = kernel(closing)


@kernel
def _id_at(d, p, level):
    if level == 2:  # the draft: little-endian
        return wide(d[p + 1]) << 8 | wide(d[p])
    return wide(d[p]) << 8 | wide(d[p + 1])


@inlined
def _properties(st, d, p, have, head, row, conn, sender):
    """What MQTT 5 has behind the packet identifier of a PUBLISH: its place in the heap for
    bodies.py, and its topic alias; 0: none, -1: they are not all there."""
    size, q = variable(d, p + head, p + have)
    whole = have == row["length"] and not row["damaged"]
    if whole and (q < 0 or q + size > p + have):
        violation(st, 50, conn, sender, PUBLISH, row["time"], row["frame"], size)
    if q < 0:
        return -1 if have < row["length"] else 0
    if q > p + head + 1 and d[q - 1] == 0:
        violation(st, 90, conn, sender, PUBLISH, row["time"], row["frame"], size)
    row["payload"] = max(0, row["length"] - (q - p) - size)
    if size == 0 or q + size > p + have or size > BODY_MAX:
        return -1 if size else 0
    at = st.n[N_BODIES]
    copy(d, q, size, st.bodies, at)
    row["body"], row["body_len"] = at, size
    st.n[N_BODIES] = at + size
    if number_of(d, q, q + size, FORMAT) == 1 and not utf8(d, q + size, p + have, whole):
        violation(st, 124, conn, sender, PUBLISH, row["time"], row["frame"], 0)
    alias = number_of(d, q, q + size, ALIASED)
    if alias < 0:
        return 0
    most = st.streams[2 * conn + sender]["alias_max"]
    if alias == 0 or 0 <= most < alias:
        code = 58 if alias == 0 else 63 if sender else 59
        violation(st, code, conn, sender, PUBLISH, row["time"], row["frame"], alias)
    return alias


@inlined
def _topic(st, d, p, n, alias, bad, row, conn, sender):
    """The topic, or that of the alias, goes into the heap."""
    at = st.n[N_TEXT]
    if n == 0 and alias > 0:
        place, size = named(st, conn, sender, alias)
        if place >= 0:
            copy(st.arena, place, size, st.text, at)
            st.n[N_TEXT] = at + size
        else:
            s = st.streams[2 * conn + sender]
            swept = st.conns[conn]["swept"]
            if s["isn_known"] and s["whole"] and not (s["gaps"] or swept):
                violation(st, 97, conn, sender, PUBLISH, row["time"], row["frame"], alias)
            else:
                problem(st, P_MQTT5, conn, sender, row["time"], row["frame"], -1, alias)
        return
    st.n[N_TEXT] = copy_text(d, p, n, st.text, at, bad)
    if alias > 0:
        name(st, conn, sender, alias, st.text, at, st.n[N_TEXT] - at, row["time"], row["frame"])


@kernel
def _allowed(st, row, conn, sender):
    """Whether a PUBLISH keeps to what the other side of MQTT 5 has said."""
    s = st.streams[2 * conn + sender]
    flags, time, frame = row["flags"], row["time"], row["frame"]
    if s["max_qos"] and (flags >> 1 & 3) >= s["max_qos"]:
        violation(st, 86, conn, sender, PUBLISH, time, frame, s["max_qos"] - 1)
    if s["no_retain"] and flags & 1:
        violation(st, 87, conn, sender, PUBLISH, time, frame, 0)


@inlined
def _publish(st, d, p, have, row, conn, sender, digest):
    """The variable header of PUBLISH. d[p:p+have] is there of the row's `length` bytes."""
    flags, length, level = row["flags"], row["length"], row["level"]
    qos, time, frame = flags >> 1 & 3, row["time"], row["frame"]
    if qos == 3:
        violation(st, 21, conn, sender, PUBLISH, time, frame, 0)
    if qos == 0 and flags & 8:
        violation(st, 20, conn, sender, PUBLISH, time, frame, 0)
    n = (wide(d[p]) << 8 | wide(d[p + 1])) if have >= 2 else 0
    head = 2 + n + (2 if qos else 0)
    if length < head:
        violation(st, 22, conn, sender, PUBLISH, time, frame, length)
        return
    row["payload"] = length - head
    if have < head:
        row["payload"] = -1
        return
    kind = text_kind(d, p + 2, n)
    if kind != TEXT_OK:
        code = 26 if kind == TEXT_BAD else 23 if kind == TEXT_WILD else 25
        violation(st, code, conn, sender, PUBLISH, time, frame, 0)
    alias = 0
    if level == 5:
        _allowed(st, row, conn, sender)
        alias = _properties(st, d, p, have, head, row, conn, sender)
    if n == 0 and not alias:
        violation(st, 24, conn, sender, PUBLISH, time, frame, 0)
    at = st.n[N_TEXT]
    _topic(st, d, p + 2, n, alias, kind == TEXT_BAD, row, conn, sender)
    row["topic"] = 1
    s = st.streams[2 * conn + sender]
    s["payload"] += row["payload"]
    if qos == 0:
        return
    row["id"] = _id_at(d, p + 2 + n, level)
    if row["id"] == 0:
        violation(st, 28, conn, sender, PUBLISH, time, frame, 0)
    if sender and flags & 8 and first_of_session(st.conns[conn], s):
        violation(st, 151, conn, 1, PUBLISH, time, frame, row["id"])
    if qos < 3 and not row["damaged"]:
        publish(st, conn, sender, row, qos, flags >> 3 & 1, digest, st.text, at,
                st.n[N_TEXT] - at)  # fmt: skip


@inlined
def _count_flood(s, row):
    """Note the longest time with FLOOD messages a second. Who is ahead may rest for two seconds
    at most, so that a burst with a rest behind it is none."""
    time, each = row["time"], SECOND // FLOOD
    s["run_credit"] -= max(0, time - s["run_last"])
    if not s["run_n"] or s["run_credit"] < 0:
        s["run_from"], s["run_frame"], s["run_n"] = time, row["frame"], 0
        s["run_credit"] = SECOND // 4
    s["run_last"] = time
    s["run_n"] += 1
    s["run_credit"] = min(s["run_credit"] + each, 2 * SECOND)
    long = time - s["run_from"]
    if long >= FLOOD_S * SECOND and s["run_n"] * each >= long and long > s["flood"]:
        s["flood"], s["flood_n"], s["flood_frame"] = long, s["run_n"], s["run_frame"]


@inlined
def _count_publish(s, row):
    _count_flood(s, row)
    flags, second = row["flags"], row["time"] // SECOND
    qos = flags >> 1 & 3
    if second != s["second"]:
        s["second"], s["in_second"], s["second_frame"] = second, 0, row["frame"]
    s["in_second"] += 1
    if s["in_second"] > s["peak"]:
        s["peak"], s["peak_frame"] = s["in_second"], s["second_frame"]
    if qos == 0:
        s["publish0"] += 1
    elif qos == 1:
        s["publish1"] += 1
    else:
        s["publish2"] += 1
    s["dups"] += flags >> 3 & 1


@kernel
def _connect(st, d, p, have, c, row):
    """What later packets need to know of CONNECT, as far as it is there; the rest is in
    bodies.py."""
    c["connects"] += 1
    at = 2 + (wide(d[p]) << 8 | wide(d[p + 1])) if have >= 2 else have
    if have <= at:
        return
    level = d[p + at] & 127  # bit 7: a bridge of mosquitto
    level = level if 2 <= level <= 5 else 0  # nobody knows what packets of another one look like
    c["level"] = row["level"] = level
    if have >= at + 2:
        c["clean"], c["login"] = d[p + at + 1] >> 1 & 1, d[p + at + 1] >> 7
        c["fields"] = HAS_FLAGS
    if have >= at + 4:
        c["fields"] = HAS_KEEP_ALIVE
        c["keep_alive"] = wide(d[p + at + 2]) << 8 | wide(d[p + at + 3])
        c["agreed"] = level != 5
    if level == 5:
        begin, end = p + at + 4, p + have
        limits(d, begin, end, st.streams[2 * row["conn"] + 1], c, False)
        size, q = variable(d, begin, end)
        whole = have == row["length"] or 0 <= q <= end - size
        named_ = has_property(d, begin, end, METHOD)
        c["method"] = METHOD_NAMED if named_ else METHOD_NONE if whole else METHOD_UNKNOWN


@inlined
def _silence(st, c, conn, start, row):
    """Keep alive: the time between the end of a client's packet and the start of the next."""
    gap = start - c["last_client"]
    since = max(c["last_client"], row["calm"])
    c["last_client"] = row["time"]
    if not c["keep_alive"] or not c["connected"] or row["lapse"]:
        return
    if not c["agreed"] and (c["acked"] or row["missing"]):
        return  # the server may have said another one
    c["longest"] = max(c["longest"], gap)
    if not row["calm"] or 0 < c["closed"] < start:
        return  # what was sent is still on its way, or comes too late to be heard
    if row["now"] == PENDING:
        return  # the broker may have closed: its FIN may be missing
    waits = not (c["acked"] or row["missing"])  # for CONNACK
    allowed, quiet, grace = c["keep_alive"] * SECOND, start - since, GRACE + c["rtt"]
    if quiet > allowed + grace and not waits:
        c["silences"] += 1
        code = 149 if c["imposed"] else 10
        violation(st, code, conn, 0, row["kind"], row["time"], row["frame"], gap // 1_000_000)
    if quiet > _closing(allowed, c["rtt"]) and not row["found"] & FOUND:
        c["owed"], c["owed_at"], c["owed_frame"] = quiet, row["time"], row["frame"]
        c["owed_kind"] = row["kind"]


@inlined
def _heard(st, c, conn, row, sender):
    """What the broker has acknowledged of questions, and of a packet that came after its limit: it
    was still there then."""
    heard = row["calm_other"] if sender else row["calm"]
    if c["ping_at"] and not c["ping_heard"] and heard > c["ping_at"]:
        c["ping_heard"] = heard
    if c["asked_at"] and not c["asked_heard"] and heard > c["asked_at"]:
        c["asked_heard"] = heard
    if c["owed"] and heard > c["owed_at"]:
        violation(st, 11, conn, 1, c["owed_kind"], c["owed_at"], c["owed_frame"],
                  c["owed"] // 1_000_000)  # fmt: skip
        c["owed"] = 0
    if sender and c["ping_heard"] and row["calm"] and row["kind"] != PINGRESP:
        waited = row["start"] - max(c["ping_heard"], row["calm"])
        c["ping_waited"] = max(c["ping_waited"], waited)


@kernel
def _subscription(st, row, sender, missing):
    """SUBSCRIBE, UNSUBSCRIBE and their answers."""
    kind, conn, time, frame = row["kind"], row["conn"], row["time"], row["frame"]
    asks = kind == SUBSCRIBE or kind == UNSUBSCRIBE
    if asks and row["id"] == 0:
        violation(st, 28, conn, sender, kind, time, frame, 0)
    if asks:
        request(st, row, conn, missing)
    elif not asks:
        granted(st, kind, conn, row["id"], time, frame, missing)


@kernel
def _open(st, c, d, p, have, row, sender):
    """CONNECT and CONNACK. One that a search has found opens a connection only as the first packet
    of its side: a payload may hold another one."""
    conn = row["conn"]
    first = st.streams[2 * conn + sender]["packets"] == 1
    if row["found"] & FOUND and not first:
        return
    if row["kind"] == CONNECT:
        _connect(st, d, p, have, c, row)
        c["connected"], c["dubious"] = 1, not c["begun"]
        if c["connects"] == 1:
            c["asked_at"], c["asked_frame"] = row["time"], row["frame"]
    elif have >= 2:
        c["acked_at"] = c["acked_at"] if c["acked"] else row["time"]
        c["acked"], c["present"], c["code"] = 1, d[p] & 1, d[p + 1]
        c["dubious"] = c["dubious"] and not first
        if row["level"] == 5:
            limits(d, p + 2, p + have, st.streams[2 * conn], c, True)


@inlined
def _follow(st, c, d, p, have, row, sender, missing):
    """What the packet does to the connection and to exchanges."""
    kind, conn = row["kind"], row["conn"]
    if wrong_way(kind, sender):
        if SUBSCRIBE <= kind <= UNSUBACK and have >= 2:
            row["id"] = _id_at(d, p, row["level"])
    elif kind == CONNECT or kind == CONNACK:
        _open(st, c, d, p, have, row, sender)
    elif PUBACK <= kind <= PUBCOMP and have >= 2:
        row["id"] = _id_at(d, p, row["level"])
        if kind == PUBREC and row["level"] in (0, 5) and have > 2 and d[p + 2] >= 128:
            kind = REFUSED  # and thereby over
        answer(st, kind, conn, sender, row, missing)
    elif kind in (SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK) and have >= 2:
        row["id"] = _id_at(d, p, row["level"])
        _subscription(st, row, sender, missing)
    elif kind == PINGREQ:
        c["pings"] += 1
        if not c["ping_at"] and not row["found"] & FOUND:
            c["ping_at"], c["ping_frame"] = max(row["time"], 1), row["frame"]
            c["ping_heard"] = c["ping_waited"] = 0
    elif kind == PINGRESP:
        c["ping_at"] = c["ping_heard"] = c["ping_waited"] = 0
    elif kind == DISCONNECT and sender:
        c["dismissed"] = row["level"] in (0, 5)  # else it is told, and says nothing
    elif kind == DISCONNECT:
        c["disconnected"] = 1


@inlined
def _keep_body(st, d, p, have, row, conn, sender):
    """Copy the body of a packet that bodies.py takes apart."""
    kind = row["kind"]
    empty = not have and not (kind == AUTH and not row["length"])
    if kind == PUBLISH or kind == PINGREQ or kind == PINGRESP or not kind or empty:
        return
    if row["level"] != 5 and (kind > UNSUBSCRIBE or PUBACK <= kind <= PUBCOMP):
        return
    if PUBACK <= kind <= PUBCOMP and have < 3:
        return
    if have < row["length"] and row["length"] > BODY_MAX:
        problem(st, P_LARGE, conn, sender, row["time"], row["frame"], -1, row["length"])
    at = st.n[N_BODIES]
    n = min(have, BODY_MAX)
    copy(d, p, n, st.bodies, at)
    row["body"], row["body_len"] = at, n
    st.n[N_BODIES] = at + n


@kernel
def _forget(st, c, conn, tears):
    """From this packet on the connection may be another one, of which nothing is known."""
    c["torn"] = tears
    c["connected"] = c["disconnected"] = c["dismissed"] = c["agreed"] = 0
    c["ping_at"] = c["ping_heard"] = c["ping_waited"] = c["owed"] = 0
    for way in range(2):
        s = st.streams[2 * conn + way]
        s["receive_max"] = s["packet_max"] = s["max_qos"] = s["no_retain"] = 0
        s["alias_max"] = -1


@inlined
def _packet(st, d, row):
    """Fill in a row that has the fixed header and the place of the rest."""
    conn, sender, p, have = row["conn"], wide(row["from_server"]), row["at"], row["have"]
    c = st.conns[conn]
    s = st.streams[2 * conn + sender]
    s["packets"] += 1
    if row["tears"] > c["torn"]:
        _forget(st, c, conn, row["tears"])
    row["level"] = c["level"]
    row["id"] = row["payload"] = row["body"] = -1
    row["body_len"] = row["topic"] = 0
    if c["dubious"] or 0 < c["spoilt"] <= row["frame"]:
        row["found"] |= FOUND
    st.n[N_FOUND] = row["found"]
    _heard(st, c, conn, row, sender)
    if sender == 0:
        _silence(st, c, conn, row["start"], row)
    check_order(st, c, row, conn, sender)
    if c["level"] == 5:
        check_size(st, row, conn, sender)
    if row["kind"] == PUBLISH:
        _count_publish(s, row)
        _publish(st, d, p, have, row, conn, sender, row["digest"])
    else:
        _follow(st, c, d, p, have, row, sender, row["missing"])
        check_form(st, row, conn, sender)
        _keep_body(st, d, p, have, row, conn, sender)
    if row["wide"]:
        violation(st, 90, conn, sender, row["kind"], row["time"], row["frame"], 0)
    if row["text"]:
        violation(st, 89, conn, sender, row["kind"], row["time"], row["frame"], 0)
    row["text_end"] = st.n[N_TEXT]


@entry
def read(st, data):
    """Read the packets that were cut out since last time, but for the last st.n[N_BACK]; False: a
    table is full."""
    end = st.n[N_PACKETS] - st.n[N_BACK]
    for k in range(st.n[N_READ], end):
        if not talk_room(st):
            st.n[N_READ] = k
            return False
        row = st.packets[k]
        _packet(st, st.arena if row["kept"] else data, row)
    st.n[N_READ] = end
    return True
