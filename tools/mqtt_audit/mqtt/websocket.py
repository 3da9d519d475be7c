"""MQTT taken out of a WebSocket: the upgrade, frames, their masks, compiled.

Knows: RFC 6455; MQTT in binary frames (MQTT 5, 6; MQTT 3.1.1, 6). Must not know: sequence numbers,
what is in a packet.

A frame's payload is the next piece of the stream of MQTT; where frames begin and end says nothing
about packets. Bytes that are missing inside a payload are a loss there; elsewhere nobody knows
where the next frame begins, and the connection is left.
"""


from ..compiled.arena import copy, problem, room, take
from ..compiled.jit import kernel, wide
from ..compiled.layout import IN_STEP, P_HTTP, P_PROXY, P_WEB
from ..tcp.openings import WEBSOCKET, agreed, has, proxy_header
from . import cutting, proxy

UPGRADE, HEAD, PAYLOAD = 0, 1, 2  #: what comes next: of HTTP, a frame's header, its payload
BINARY = 2  #: the opcode of frames that MQTT is in
CONTROL = 8  #: and above: opcodes of frames that carry nothing of MQTT
GET, HTTP = b"GH"  #: first letters of a request, of an answer
PROXIED = tuple(b"P\r")  #: first bytes of a header of the PROXY protocol, versions 1 and 2
DEFLATED = 0x40  #: in the first byte of a frame: an extension has packed the payload


@kernel
def _asks(d, p, end):
    """Whether a client asks for a WebSocket here."""
    return d[p] == GET and d[p + 1] == 69 and d[p + 2] == 84 and has(d, p, end, WEBSOCKET)


@kernel
def _behind(d, p, end):
    """Length of a header of the PROXY protocol that lies whole at p, or 0."""
    if p == end or d[p] != PROXIED[0] and d[p] != PROXIED[1]:
        return 0
    return proxy_header(d, p, end)


@kernel
def _begins(st, d, p, end, s, conn, sender):
    """Whether these are the first bytes of a client, as far as the capture has them, and ask for a
    WebSocket."""
    first = not s["bytes"] or s["whole"] and s["sync"] == IN_STEP
    fresh = first and not (s["first"] or s["stage"])
    return not sender and fresh and end - p > 16 and _asks(d, p, end)


@kernel
def _answered(st, d, p, end, s, conn, sender):
    """Whether these are the first bytes of a server that grants a WebSocket before the client has
    asked for it: the capture's frames are out of order."""
    fresh = not (s["first"] or s["stage"] or s["skipped"] or st.streams[2 * conn]["bytes"])
    return sender and fresh and agreed(d, p, end) and has(d, p, end, WEBSOCKET)


@kernel
def _framed(d, p, end):
    """Whether a client's frame seems to begin here: clients mask theirs, and have agreed on no
    extension."""
    return d[p] & 0x70 == 0 and (end - p < 2 or d[p + 1] & 128 > 0)


@kernel
def _begun(d, p, end):
    """Whether an answer of HTTP begins here."""
    return end - p >= 4 and d[p] == HTTP and d[p + 1] == 84 and d[p + 2] == 84 and d[p + 3] == 80


@kernel
def _leave(st, conn, sender, time, frame, kind, n):
    """The connection is not read any further."""
    problem(st, kind, conn, sender, time, frame, -1, n)
    st.conns[conn]["opaque"] = kind


@kernel
def _header(s, d, p, end):
    """The place behind the header of HTTP, or `end`."""
    while p < end:
        wanted = 10 if s["web_n"] & 1 else 13
        s["web_n"] = s["web_n"] + 1 if d[p] == wanted else 1 if d[p] == 13 else 0
        p += 1
        if s["web_n"] == 4:
            s["web"], s["web_n"] = HEAD, 0
            break
    return p


@kernel
def _frame_byte(s, b):
    """One byte of the header of a frame. Whether the header is whole with it."""
    n = s["web_n"]
    if n == 0:
        s["web_kind"], s["web_mask"] = b, 0
        if 0 < b & 15 < CONTROL:
            s["web_text"] = b & 15 != BINARY
    elif n == 1:
        size = b & 127
        s["web_more"] = 2 if size == 126 else 8 if size == 127 else 0
        s["web_left"] = 0 if s["web_more"] else size
        s["web_masked"] = 4 if b & 128 else 0
    elif n < 2 + s["web_more"]:
        s["web_left"] = s["web_left"] << 8 | b
    else:
        s["web_mask"] = s["web_mask"] << 8 | b
    s["web_n"] = n + 1
    return n > 0 and s["web_n"] == 2 + s["web_more"] + s["web_masked"]


@kernel
def _payload(st, d, p, n, s, conn, sender, time, frame):
    """n bytes of a payload; returns how many of them were taken."""
    if s["web_kind"] & 15 >= CONTROL:  # of the WebSocket itself
        return n
    if not room(st):
        return 0
    at = take(st, n)
    copy(d, p, n, st.arena, at)
    if s["web_masked"]:
        for k in range(n):
            st.arena[at + k] ^= s["web_mask"] >> 8 * (3 - (s["web_at"] + k & 3)) & 255
    return cutting.feed(st, st.arena, at, n, s, conn, sender, time, frame, True)


@kernel
def _frames(st, d, p, end, s, conn, sender, time, frame):
    """Bytes of frames; returns the place up to which they were taken."""
    c = st.conns[conn]
    while p < end and not c["opaque"]:
        if s["web"] == HEAD:
            whole = _frame_byte(s, wide(d[p]))
            p += 1
            if whole and s["web_left"] < 0 or s["web_kind"] & DEFLATED:
                _leave(st, conn, sender, time, frame, P_WEB, end - p)
            elif whole:
                s["web"], s["web_n"], s["web_at"] = PAYLOAD, 0, 0
        if s["web"] == PAYLOAD:
            n = min(end - p, s["web_left"])
            done = _payload(st, d, p, n, s, conn, sender, time, frame) if n else 0
            p += done
            s["web_left"] -= done
            s["web_at"] += done
            if not s["web_left"]:
                s["web"] = HEAD
            elif done < n:
                return p
    return p


@kernel
def _proxied(st, d, p, end, s, conn, sender, time, frame):
    """The place behind a header of the PROXY protocol that lies in several segments, as far as it
    is in this one. If it shows to be none, what was taken for it is read as all else is."""
    before, one = s["proxy"], s["proxy_first"] == PROXIED[0]
    state, q = proxy.advance(s, d, p, end)
    if state == proxy.MORE:
        return q
    if state == proxy.OVER:
        problem(st, P_PROXY, conn, sender, time, frame, -1, s["proxy"])
        s["proxy"] = 0
        return q
    s["proxy"] = 0
    at, n = proxy.put_back(st, before, one)
    if n:
        cutting.feed(st, st.arena, at, n, s, conn, sender, time, frame, True)
    return p


@kernel
def _feed(st, d, off, n, s, conn, sender, time, frame, kept):
    """As feed(), but for a header in several segments."""
    c, p, end = st.conns[conn], off, off + n
    if not c["web"]:
        p += _behind(d, p, end)
        asked = p < end and d[p] == GET and _begins(st, d, p, end, s, conn, sender)
        if not asked and not (n and d[off] == HTTP and _answered(st, d, p, end, s, conn, sender)):
            return cutting.feed(st, d, off, n, s, conn, sender, time, frame, kept)
        if p > off:
            problem(st, P_PROXY, conn, sender, time, frame, -1, p - off)
        c["web"] = 1
        s["sync"] = s["ever"] = s["whole"] = IN_STEP  # its SYN may come later, too
    if c["opaque"]:
        return n
    if s["web"] == UPGRADE:
        if sender and not s["web_seen"] and not agreed(d, p, end):
            kind = P_HTTP if s["whole"] or _begun(d, p, end) else P_WEB
            _leave(st, conn, sender, time, frame, kind, n)
            return n
        if sender and not s["bytes"]:
            s["sync"] = s["ever"] = s["whole"] = IN_STEP
        if not (sender or s["web_seen"]) and n and d[p] != GET:  # the capture lacks its request
            if not _framed(d, p, end):
                _leave(st, conn, sender, time, frame, P_WEB, n)
                return n
            s["web"], s["web_n"] = HEAD, 0
        s["web_seen"] = 1
    if s["web"] == UPGRADE:
        p = _header(s, d, p, end)
    if s["web"] != UPGRADE:
        p = _frames(st, d, p, end, s, conn, sender, time, frame)
    return n if c["opaque"] else p - off


@kernel
def feed(st, d, off, n, s, conn, sender, time, frame, kept):
    """As cutting.feed(), of a stream that may be a WebSocket."""
    done = 0
    if s["proxy"] or proxy.begins(s, d, off, off + n, sender):
        if not room(st):
            return 0
        done = _proxied(st, d, off, off + n, s, conn, sender, time, frame) - off
        if done == n:
            return n
    return done + _feed(st, d, off + done, n - done, s, conn, sender, time, frame, kept)


@kernel
def lose(st, s, n, conn, sender, time, frame, kind):
    """As cutting.lose(), of a stream that may be a WebSocket."""
    s["proxy"] = 0  # what is there of a header does not go on
    cutting.lose(st, s, n, conn, sender, time, frame, kind)
    if not st.conns[conn]["web"] or st.conns[conn]["opaque"]:
        return
    if s["web"] == PAYLOAD and n < s["web_left"]:
        s["web_left"] -= n
        s["web_at"] += n
    else:
        _leave(st, conn, sender, time, frame, P_WEB, n)
