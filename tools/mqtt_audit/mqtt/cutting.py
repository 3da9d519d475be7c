"""Packets cut out of a stream of bytes that comes in pieces, compiled.

Knows: the fixed header, what to do when bytes are missing. Must not know: sequence numbers, what
is in a packet.

Inside the body of a packet a loss does no harm to the framing; anywhere else the next packet has
to be found (framing.py). A packet in one piece stays where it is, in the file; of one in several
pieces the beginning is kept in the arena, as much as is needed to read it.
"""


from ..capture.records import u32
from ..compiled.arena import copy, problem, room, take
from ..compiled.jit import inlined, kernel, wide
from ..compiled.layout import (
    BODY_MAX,
    CONNACK,
    CONNECT,
    DISCONNECT,
    FOUND,
    FRESH,
    HELLO_WANTED,
    IN_BODY,
    IN_LENGTH,
    IN_STEP,
    MASK,
    N_PACKETS,
    OTHER_FOUND,
    P_BEFORE,
    P_ECHO,
    P_FIVE,
    P_HTTP,
    P_LENGTH,
    P_MASKED,
    P_NOT_MQTT,
    P_PROXY,
    P_RESYNC,
    P_TLS,
    PENDING,
    PROPERTIES,
    PUBLISH,
    SEARCHING,
    UNSEEN,
)  # fmt: skip
from ..tcp.calm import calm, lapsed
from ..tcp.openings import proxy_header
from ..tls import collecting
from . import webframes
from .framing import (
    CLIENT_ONLY,
    ENOUGH,
    NEVER,
    SERVER_ONLY,
    boundary,
    chain,
    length_at,
    packet_at,
    repeats,
    shaped_as_connect,
)  # fmt: skip

#: How HTTP begins, its version 2 too: the first four bytes.
HTTP = tuple(int.from_bytes(word, "big") for word in (
    b"GET ", b"PUT ", b"POST", b"HEAD", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ",
    b"HTTP"))  # fmt: skip
ANSWER = tuple(b"HTTP")
KEPT = 64  #: bytes of a search that are kept, in case a packet begins in them
#: Segments in a row that are packets from beginning to end; those of a payload are not.
TRUSTED = 8
JOINED = 1 << 14  #: bytes behind them that are looked at


@inlined
def _digest(h, d, p, n):
    """Go on with a check value over the bytes of a packet (FNV-1a, 32 bits)."""
    for k in range(p, p + n):
        h = (h ^ wide(d[k])) * 16777619 & MASK
    return h


@kernel
def _sent_back(st, s, conn, sender, time, frame):
    """Whether a side of a connection on a port that nobody named, which sends what only the other
    one may send, and has sent nothing of its own, shows that this is no MQTT, or that the broker
    was taken for the client; then the connection is left."""
    c = st.conns[conn]
    if s["searched"] or not st.pairs[c["pair"]]["guessed"]:
        return False
    problem(st, P_ECHO, conn, sender, time, frame, -1, 1)
    c["opaque"] = P_ECHO
    return True


@inlined
def _give(st, at, have, s, head, length, conn, sender, time, start, frame, digest, kept):
    """Hand a packet on: its row, with the place of its bytes."""
    if (SERVER_ONLY if sender else CLIENT_ONLY) >> (head >> 4) & 1:
        s["own"] |= not s["searched"]
    elif (CLIENT_ONLY if sender else SERVER_ONLY) >> (head >> 4) & 1 and not s["own"]:
        if _sent_back(st, s, conn, sender, time, frame):
            return
    row = st.packets[st.n[N_PACKETS]]
    st.n[N_PACKETS] += 1
    row["time"], row["start"], row["conn"], row["frame"] = time, start, conn, frame
    row["at"], row["have"], row["length"], row["digest"] = at, have, length, digest
    row["kind"], row["flags"], row["from_server"] = head >> 4, head & 15, sender
    row["damaged"], row["kept"] = s["damaged"] if kept else 0, kept
    # Whether bytes of the other side are not there (yet), so that questions may be missing.
    other = st.streams[2 * conn + 1 - sender]
    ahead = (other["acked"] - other["next"] + 0x80000000 & MASK) - 0x80000000
    behind = other["acked_known"] and ahead > 0
    unread = other["blind"] > 0
    pending = other["head"] >= 0 or behind or other["skipped"] > 0
    row["now"] = PENDING if pending else 0 if other["known"] else UNSEEN
    row["lapses"], row["own"], row["tears"] = other["lapses"], s["lapses"], st.conns[conn]["tears"]
    row["missing"] = row["now"] > 0 or other["gaps"] > 0 or unread
    row["lapse"], s["lapse"] = s["lapse"], 0
    row["late"] = s["late"]
    row["calm"], row["calm_other"] = calm(s), calm(other)
    row["hole_at"] = other["hole_at"]
    row["opening"] = s["whole"] and not s["first"]
    row["text"], row["wide"] = s["web_text"], s["wide"]
    row["found"] = (FOUND if s["searched"] else 0) | (OTHER_FOUND if other["searched"] else 0)
    s["left"] = head >> 4 == DISCONNECT
    if not s["first"]:
        s["first"], s["asked"] = 1, head >> 4 == CONNECT


@inlined
def _whole(st, d, p, end, s, conn, sender, time, frame, kept):
    """A packet that lies in one piece at p: returns its end, or p if it does not. kept: d is the
    arena."""
    length, q = length_at(d, p, end)
    if q <= 0 or q + length > end:
        return p
    head = wide(d[p])
    digest = 0
    if head >> 4 == PUBLISH and head & 6:
        digest = _digest(2166136261, d, q, length)
    s["damaged"], s["wide"] = 0, q > p + 2 and d[q - 1] == 0
    _give(st, q, length, s, head, length, conn, sender, time, time, frame, digest,
          kept)  # fmt: skip
    return q + length


@kernel
def _lose_step(s):
    s["sync"], s["stage"], s["buf_cap"], s["buf_len"] = SEARCHING, FRESH, 0, 0


@kernel
def distrust(c, s, other, since, wrong):
    """The bytes of the stream `s` from a frame on may be others than its side sent, so that
    nothing of the connection is judged any more. As behind a gap, packets are then found by their
    look, and nobody knows what the side sent and which answers the other side, `other`, owes.
    wrong: they are others."""
    c["spoilt"] = min(c["spoilt"], since) if c["spoilt"] else since
    s["searched"], s["aligned"], s["unsure"] = 1, 0, ENOUGH
    s["whole"], s["lapse"] = 0, 1
    s["blind"] = other["blind"] = 1
    s["lapses"] += 1
    other["lapses"] += 1
    if wrong and s["sync"] == IN_STEP and s["stage"] != FRESH:
        _lose_step(s)  # a wrong length may reach far


@kernel
def _need(st, s, d, p, end):
    """How much of a body has to be kept until it is whole: of PUBLISH only up to the packet id."""
    if s["nlen"] >> 4:  # PUBLISH
        if p + 2 <= end:
            n = (wide(d[p]) << 8 | wide(d[p + 1])) + 8 + PROPERTIES
            return min(s["rem"], n)
        return min(s["rem"], 65_543 + PROPERTIES)
    return min(s["rem"], BODY_MAX)


@kernel
def _keep(st, s, d, p, n):
    """Append bytes to the body that is kept, up to what is needed of it."""
    n = min(n, s["need"] - s["buf_len"])
    if n <= 0:
        return
    if s["buf_len"] + n > s["buf_cap"]:
        cap = max(min(s["need"], 2 * s["buf_cap"]), s["buf_len"] + n)
        at = take(st, cap)
        if at < 0:
            s["need"] = s["buf_len"]
            return
        size = s["buf_len"]
        copy(st.arena, s["buf"], size, st.arena, at)
        s["buf"], s["buf_cap"] = at, cap
    at = s["buf"] + s["buf_len"]
    copy(d, p, n, st.arena, at)
    s["buf_len"] += n


@kernel
def _close_packet(st, s, conn, sender, time, frame):
    """The last byte of a packet in pieces came."""
    _give(st, s["buf"], s["buf_len"], s, wide(s["seen"]), s["rem"], conn, sender, time,
          s["start"], frame, s["hash"], True)  # fmt: skip
    s["stage"], s["buf_cap"], s["buf_len"] = FRESH, 0, 0


@kernel
def _length_byte(st, s, d, p, end, conn, sender, time, frame):
    """One byte of a Remaining Length; returns the place behind it."""
    b = wide(d[p])
    s["rem"] |= (b & 127) << 7 * (s["nlen"] & 15)
    s["nlen"] += 1
    if b >= 128:
        if s["nlen"] & 15 == 4:
            sure = s["whole"] and not s["searched"]
            if sure:
                problem(st, P_FIVE, conn, sender, time, frame, -1, s["seen"] >> 4)
            else:
                problem(st, P_LENGTH, conn, sender, time, frame, -1, 0)
            _lose_step(s)
        return p + 1
    s["stage"], s["got"], s["wide"] = IN_BODY, 0, b == 0 and s["nlen"] & 15 > 1
    s["need"] = _need(st, s, d, p + 1, end)
    if s["rem"] == 0:
        _close_packet(st, s, conn, sender, time, frame)
    return p + 1


@kernel
def _piece(st, s, d, p, end, conn, sender, time, frame):
    """The next bytes of a packet in pieces; returns the place behind them."""
    if s["stage"] == FRESH:
        s["seen"], s["rem"], s["nlen"], s["damaged"] = d[p], 0, 0, 0
        if d[p] >> 4 == PUBLISH:
            s["nlen"] = 16
        s["stage"], s["start"], s["hash"] = IN_LENGTH, time, 2166136261
        return p + 1
    if s["stage"] == IN_LENGTH:
        return _length_byte(st, s, d, p, end, conn, sender, time, frame)
    if sender and not s["first"] and _textual(st, d, p, end, s, conn, sender, time, frame):
        return end
    n = min(end - p, s["rem"] - s["got"])
    _keep(st, s, d, p, n)
    if s["nlen"] >> 4 and s["seen"] & 6:
        s["hash"] = _digest(s["hash"], d, p, n)
    s["got"] += n
    if s["got"] == s["rem"]:
        _close_packet(st, s, conn, sender, time, frame)
    return p + n


@kernel
def _rejoin(st, s, d, p, end, sender):
    """Where a packet begins in the last bytes of the segments before, which goes on at p, counted
    from the first of them; -1: nowhere. Then the last bytes up to `end` are kept for next time."""
    old = s["buf_len"] if s["buf_cap"] else 0
    n = old + min(end - p, JOINED)
    at = take(st, n)
    if at < 0:
        s["buf_len"] = s["buf_cap"] = 0
        return -1
    copy(st.arena, s["buf"], old, st.arena, at)
    copy(d, p, n - old, st.arena, at + old)
    for k in range(old):
        whole = packet_at(st.arena, at + k, at + n, sender)
        if k + whole > old and chain(st.arena, at, at + k, at + n, sender,
                                    k == 0 and old < KEPT):
            return k
    kept = min(KEPT, old + end - p)
    if end - p >= kept:
        copy(d, end - kept, kept, st.arena, at)
        s["buf"] = at
    else:
        s["buf"] = at + n - kept
    s["buf_len"] = s["buf_cap"] = kept
    return -1


@kernel
def _alone(d, p, end, sender):
    """Whether a segment is one packet, as payloads seldom are; after DISCONNECT nothing comes."""
    return packet_at(d, p, end, sender) == end - p and d[p] >> 4 != DISCONNECT


@kernel
def _search(st, s, d, p, end, conn, sender, time, frame):
    """Look for the beginning of a packet; returns its place, or `end`."""
    q = boundary(d, p, end, sender)
    s["searched"] = q != p or s["ever"] or s["skipped"] > 0 or not _alone(d, p, end, sender)
    if q < 0:
        behind = _rejoin(st, s, d, p, end, sender)
        s["skipped"] += end - p
        if behind < 0:
            return end
        s["skipped"] -= end - p + s["buf_len"] - behind
    else:
        s["skipped"] += q - p
    s["blind"] |= s["skipped"] > 0
    if s["skipped"] > 0:
        s["lapse"] = 1
        lapsed(s, time)
    kind = P_RESYNC if s["ever"] else P_BEFORE
    problem(st, kind, conn, sender, time, frame, -1, s["skipped"])
    s["skipped"] = 0
    s["sync"] = s["ever"] = IN_STEP
    s["unsure"] = ENOUGH
    at, n = s["buf"], s["buf_len"]
    s["buf_len"] = s["buf_cap"] = 0
    if q < 0:  # it begins in what was kept, as the beginning of a packet in pieces
        k = at + behind
        while k < at + n:
            k = _piece(st, s, st.arena, k, at + n, conn, sender, time, frame)
        return p
    return q


@kernel
def _tls(d, p, end):
    """Whether a record of TLS may begin here."""
    n = end - p
    return 0x14 <= d[p] <= 0x17 and (n < 2 or d[p + 1] == 3) and (n < 3 or d[p + 2] <= 4)


@kernel
def _http(d, p, end):
    """Whether it begins as HTTP does, from either side: with a method, or with the version."""
    return end - p >= 4 and u32(d, p, True) in HTTP


@kernel
def _foreign(d, p, end, sender):
    """Which other protocol the first bytes of a stream show, or 0. CONNECT and CONNACK are
    believed even if they are faulty."""
    if _tls(d, p, end):
        return P_TLS
    if _http(d, p, end):
        return P_HTTP
    if sender:
        return 0 if d[p] == 0x20 or packet_at(d, p, end, sender) != NEVER else P_NOT_MQTT
    if d[p] >> 4 == CONNECT:
        _, q = length_at(d, p, end)
        other = d[p] != 0x10 or q < 0 or q and q + 4 <= end and d[q + 2] != 77
        return P_NOT_MQTT if other and not shaped_as_connect(d, p, end) else 0
    return P_NOT_MQTT if packet_at(d, p, end, sender) == NEVER else 0


@kernel
def _answers(d, p, end):
    """Which other protocol a server shows that answers a client of MQTT, or 0: TLS, HTTP, of which
    fewer bytes may be there, or text that begins no packet, as SSH and mail servers send. What
    else is wrong is the server's fault."""
    if _tls(d, p, end):
        return P_TLS
    n, http, text = min(end - p, len(ANSWER)), True, end - p >= len(ANSWER)
    for k in range(n):
        b = d[p + k]
        http = http and b == ANSWER[k]
        text = text and (32 <= b < 127 or b == 10 or b == 13)
    if http:
        return P_HTTP
    return P_NOT_MQTT if text and packet_at(d, p, end, 1) == NEVER else 0


@kernel
def _echoes(kind, asked):
    """Whether a server's first packet, of this type, may be the client's own that comes back;
    asked: that was a CONNECT."""
    return CLIENT_ONLY >> kind & 1 or kind == PUBLISH and not asked


@kernel
def _opaque(st, d, p, end, s, conn, sender, time, frame):
    """Whether the first bytes of either side show another protocol; then the connection is left.
    """
    c = st.conns[conn]
    other = st.streams[2 * conn + 1 - sender]
    if s["first"] or s["stage"] or not s["whole"]:
        return False
    answers = sender and other["first"]
    kind = _answers(d, p, end) if answers else _foreign(d, p, end, sender)
    if not kind and answers and _echoes(d[p] >> 4, other["asked"]):
        return _sent_back(st, s, conn, sender, time, frame)
    if not kind:
        return False
    problem(st, kind, conn, sender, time, frame, -1, end - p)
    c["opaque"] = kind
    if kind == P_TLS:
        collecting.want(s, other)
    return True


@kernel
def _textual(st, d, p, end, s, conn, sender, time, frame):
    """The same of a server whose first bytes came in several segments: they were taken for the
    header of a packet, the rest of which goes on at p."""
    if not s["whole"] or s["nlen"] & 15 != 1:
        return False
    n, more = 2 + s["buf_len"], min(end - p, KEPT)
    at = take(st, n + more)
    if at < 0:
        return False
    st.arena[at], st.arena[at + 1] = s["seen"], s["rem"]
    copy(st.arena, s["buf"], n - 2, st.arena, at + 2)
    copy(d, p, more, st.arena, at + n)
    kind = _answers(st.arena, at, at + n + more)
    if kind:
        problem(st, kind, conn, sender, time, frame, -1, n + end - p)
        st.conns[conn]["opaque"] = kind
    return kind > 0


@kernel
def _encrypted(st, d, p, end, s, conn, sender, time, frame):
    """The same of a stream whose beginning is not there, if it is TLS, or what the broker answers
    to a CONNECT before which nothing was captured."""
    if s["ever"] or s["skipped"]:
        return False
    other = st.streams[2 * conn + 1 - sender]
    kind = P_TLS if end - p >= 5 and _tls(d, p, end) else 0
    if not kind and sender and other["asked"] and s["acked_known"] and not s["gaps"]:
        kind = _answers(d, p, end)
    if not kind:
        return False
    problem(st, kind, conn, sender, time, frame, -1, end - p)
    st.conns[conn]["opaque"] = kind
    if kind == P_TLS:
        collecting.want(s, other)
    return True


@kernel
def _masked(st, d, p, end, s, conn, sender, time, frame):
    """Whether a search is over, in vain, as the stream is a WebSocket's whose upgrade is not
    there; tells it once."""
    if sender or s["ever"]:
        return False
    told = webframes.certain(s)
    if not webframes.masked(s, d, p, end):
        return False
    s["skipped"] += end - p
    if not told:
        problem(st, P_MASKED, conn, sender, time, frame, -1, s["skipped"])
    return True


@kernel
def _proxied(st, d, p, end, s, conn, sender, time, frame):
    """Length of a header of the PROXY protocol before the client's first packet."""
    if s["first"] or s["stage"] or not s["whole"] or sender:
        return 0
    n = proxy_header(d, p, end)
    if n:
        problem(st, P_PROXY, conn, sender, time, frame, -1, n)
    return n


@kernel
def _doubted(s, d, p, end, sender):
    """Whether what was found after a search shows to be none: the first packets are looked at, and
    all until it is believed."""
    if not (s["unsure"] or s["searched"]):
        return False
    s["unsure"] = max(s["unsure"] - 1, 0)
    if packet_at(d, p, end, sender) >= 0:
        return False
    _lose_step(s)
    return True


@kernel
def _pieces(st, d, off, n, s, conn, sender, time, frame, kept):
    """As feed()."""
    p, end = off, off + n
    while p < end and not st.conns[conn]["opaque"]:
        if not room(st):
            return p - off
        if s["sync"] == SEARCHING:
            hidden = _encrypted(st, d, p, end, s, conn, sender, time, frame)
            if hidden or _masked(st, d, p, end, s, conn, sender, time, frame):
                break
            p = _search(st, s, d, p, end, conn, sender, time, frame)
            continue
        if s["stage"] == FRESH:
            if _doubted(s, d, p, end, sender):
                continue
            p += _proxied(st, d, p, end, s, conn, sender, time, frame)
            if p == end or _opaque(st, d, p, end, s, conn, sender, time, frame):
                break
            # In a stream that is whole it is a packet, if one that must not be.
            if d[p] >> 4 == 0 and not (s["whole"] and s["first"]):
                problem(st, P_LENGTH, conn, sender, time, frame, -1, 0)
                _lose_step(s)
                p += 1
                continue
            q = _whole(st, d, p, end, s, conn, sender, time, frame, kept)
            if q > p:
                p = q
                continue
        p = _piece(st, s, d, p, end, conn, sender, time, frame)
    if s["hello"] == HELLO_WANTED:
        if not room(st):
            return p - off
        collecting.collect(st, d, p, end, s)
    return n


@kernel
def _trust(s, other):
    """What was found by its look is believed from here on. What was found before may have been in
    a payload: messages that nobody sent are open then, and a DISCONNECT was none."""
    s["searched"], s["lapse"] = 0, 1
    s["lapses"] += 1
    other["lapses"] += 1


@kernel
def feed(st, d, off, n, s, conn, sender, time, frame, kept):
    """The next n bytes of a stream, of one segment; returns how many were taken (fewer if a table
    is full). What was found by its look is believed when TRUSTED segments in a row are packets,
    and do not repeat the same four bytes."""
    fresh = s["sync"] == IN_STEP and s["stage"] == FRESH
    done = _pieces(st, d, off, n, s, conn, sender, time, frame, kept)
    if s["searched"]:
        whole = fresh and done == n and s["sync"] == IN_STEP and s["stage"] == FRESH
        whole = whole and not (n > 4 and repeats(d, off, off + 4, off + n))
        s["aligned"] = s["aligned"] + 1 if whole else 0
        if s["aligned"] >= TRUSTED:
            _trust(s, st.streams[2 * conn + 1 - sender])
    return done


@kernel
def lose(st, s, n, conn, sender, time, frame, kind):
    """n bytes of the stream will never come. time, frame: of those behind them. A packet that
    ends in what is missing has the frame of the last bytes of it that are there."""
    s["lost"] += n
    s["gaps"] += 1
    s["lapse"] = 1
    lapsed(s, time)
    problem(st, kind, conn, sender, time, frame, -1, n)
    if s["hello"] == HELLO_WANTED:
        collecting.give_up(s)
    if s["sync"] == IN_STEP:
        if s["stage"] == IN_BODY and n <= s["rem"] - s["got"]:
            s["damaged"] = 1
            s["got"] += n
            # Of these their beginning is.
            begun = s["seen"] >> 4 in (PUBLISH, CONNECT, CONNACK)
            enough = s["buf_len"] == s["need"] or begun
            s["need"] = s["buf_len"] = s["buf_len"] if enough else 0
            if s["got"] == s["rem"]:
                _close_packet(st, s, conn, sender, s["reached_at"], s["reached"])
            s["next"] = s["next"] + n & MASK
            return
        _lose_step(s)
    s["buf_cap"] = s["buf_len"] = 0  # what is kept of a search does not go on any more
    s["whole"] = 0
    s["next"] = s["next"] + n & MASK
