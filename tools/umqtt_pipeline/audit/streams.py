"""TCP put together again, and the packets cut out of it, compiled.

Knows: sequence numbers, what came before its turn, what will not come any more, where a packet
ends. Must not know: files, what is in a packet.

A segment is taken when it goes on where its stream stopped; one that comes before its turn is
held until the hole is filled, or until the other side has acknowledged what is missing and some
time has passed, or too much is held: then the hole is a loss. Inside the body of a packet a loss
does no harm to the framing; anywhere else the next packet has to be found (framing.py).
"""

import numpy as np

from .arena import problem, room, take, violation
from .framing import boundary, length_at
from .jit import kernel
from .layout import (
    ACK, BODY_MAX, END_FIN_CLIENT, END_OPEN, END_REUSED, END_RST_CLIENT, FIN, FRESH, IN_BODY,
    IN_LENGTH, IN_STEP, MASK, N_CONNS, N_FILE, N_HELD_FREE, N_RESUMED, N_WANT, P_BEFORE, P_HTTP,
    P_LENGTH, P_LOSS, P_MEMORY, P_NOT_MQTT, P_RESYNC, P_SNAPPED, P_TLS, PUBLISH, RST, SEARCHING,
    SYN, WANT_CONNS,
)  # fmt: skip
from .mqtt import SECOND, packet

PATIENCE = SECOND  #: after which a hole that is acknowledged is a loss
LONG_PATIENCE = 60 * SECOND  #: after which any is
HELD_SEGMENTS, HELD_BYTES = 1024, 8 << 20  #: held for one stream at most
FAR = 1 << 26  #: so far from its place a segment after the end is of a new connection


@kernel
def _diff(a, b):
    """a - b as sequence numbers, which wrap at 32 bits."""
    return ((a - b + 0x80000000) & MASK) - 0x80000000


@kernel
def _digest(h, d, p, n):
    """Go on with a check value over the bytes of a packet (FNV-1a, 32 bits)."""
    for k in range(p, p + n):
        h = (h ^ np.int64(d[k])) * 16777619 & MASK
    return h


@kernel
def _give(st, d, p, have, s, head, length, conn, sender, time, start, frame, digest, damaged):
    """Hand a packet on; says whether bytes of the other side are still missing."""
    other = st.streams[2 * conn + 1 - sender]
    missing = other["head"] >= 0 or other["gaps"] > 0
    if other["acked_known"] and other["known"] and _diff(other["acked"], other["next"]) > 0:
        missing = True
    s["first"] = 1
    packet(st, d, p, have, head, length, conn, sender, time, start, frame, digest, damaged,
           missing)  # fmt: skip


@kernel
def _whole(st, d, p, end, s, conn, sender, time, frame):
    """A packet that lies in one piece at p: returns its end, or p if it does not."""
    length, q = length_at(d, p, end)
    if q <= 0 or q + length > end:
        return p
    head = np.int64(d[p])
    digest = 0
    if head >> 4 == PUBLISH and head & 6:
        digest = _digest(2166136261, d, q, length)
    _give(st, d, q, length, s, head, length, conn, sender, time, time, frame, digest, 0)
    return q + length


@kernel
def _lose_step(s):
    s["sync"], s["stage"], s["buf_cap"], s["buf_len"] = SEARCHING, FRESH, 0, 0


@kernel
def _need(st, s, d, p, end):
    """How much of a body has to be kept until it is whole: of PUBLISH only up to the packet id."""
    if s["nlen"] >> 4:  # PUBLISH
        if p + 2 <= end:
            return min(s["rem"], (np.int64(d[p]) << 8 | np.int64(d[p + 1])) + 8)
        return min(s["rem"], 65_543)
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
        st.arena[at : at + size] = st.arena[s["buf"] : s["buf"] + size]
        s["buf"], s["buf_cap"] = at, cap
    at = s["buf"] + s["buf_len"]
    st.arena[at : at + n] = d[p : p + n]
    s["buf_len"] += n


@kernel
def _close_packet(st, s, conn, sender, time, frame):
    """The last byte of a packet in pieces came."""
    _give(st, st.arena, s["buf"], s["buf_len"], s, np.int64(s["seen"]), s["rem"], conn, sender,
          time, s["start"], frame, s["hash"], np.int64(s["damaged"]))  # fmt: skip
    s["stage"], s["buf_cap"], s["buf_len"] = FRESH, 0, 0


@kernel
def _length_byte(st, s, d, p, end, conn, sender, time, frame):
    """One byte of a Remaining Length; returns the place behind it."""
    b = np.int64(d[p])
    s["rem"] |= (b & 127) << 7 * (s["nlen"] & 15)
    s["nlen"] += 1
    if b >= 128:
        if s["nlen"] & 15 == 4:
            problem(st, P_LENGTH, conn, sender, time, frame, -1, 0)
            _lose_step(s)
        return p + 1
    s["stage"], s["got"] = IN_BODY, 0
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
    n = min(end - p, s["rem"] - s["got"])
    _keep(st, s, d, p, n)
    if s["nlen"] >> 4 and s["seen"] & 6:
        s["hash"] = _digest(s["hash"], d, p, n)
    s["got"] += n
    if s["got"] == s["rem"]:
        _close_packet(st, s, conn, sender, time, frame)
    return p + n


@kernel
def _search(st, s, d, p, end, conn, sender, time, frame):
    """Look for the beginning of a packet; returns its place, or `end`."""
    q = boundary(d, p, end, sender)
    if q < 0:
        s["skipped"] += end - p
        return end
    s["skipped"] += q - p
    kind = P_RESYNC if s["ever"] else P_BEFORE
    problem(st, kind, conn, sender, time, frame, -1, s["skipped"])
    s["skipped"] = 0
    s["sync"] = s["ever"] = IN_STEP
    return q


@kernel
def _opaque(st, d, p, end, s, conn, sender, time, frame):
    """Whether the first bytes of a client show another protocol; then the connection is left."""
    c = st.conns[conn]
    if s["first"] or sender or not c["begun"] or s["stage"]:
        return False
    b = d[p]
    if b == 0x16 and (end - p < 2 or d[p + 1] == 3):
        kind = P_TLS
    elif b == 71 and (end - p < 2 or d[p + 1] == 69):  # GET
        kind = P_HTTP
    elif b >> 4 == 0 or b >> 4 == 15 or b >= 0x80 and b & 15 > 2:
        kind = P_NOT_MQTT
    else:
        return False
    problem(st, kind, conn, 0, time, frame, -1, end - p)
    c["opaque"] = kind
    return True


@kernel
def _feed(st, d, off, n, s, conn, sender, time, frame):
    """The next n bytes of a stream; returns how many were taken (fewer if a table is full)."""
    p, end = off, off + n
    while p < end and not st.conns[conn]["opaque"]:
        if not room(st):
            return p - off
        if s["sync"] == SEARCHING:
            p = _search(st, s, d, p, end, conn, sender, time, frame)
            continue
        if s["stage"] == FRESH:
            if _opaque(st, d, p, end, s, conn, sender, time, frame):
                break
            if d[p] >> 4 == 0 or d[p] >> 4 == 15 and st.conns[conn]["level"] != 5:
                problem(st, P_LENGTH, conn, sender, time, frame, -1, 0)
                violation(st, 48, conn, sender, d[p] >> 4, time, frame, 0)
                _lose_step(s)
                p += 1
                continue
            q = _whole(st, d, p, end, s, conn, sender, time, frame)
            if q > p:
                p = q
                continue
        p = _piece(st, s, d, p, end, conn, sender, time, frame)
    return n


@kernel
def _lose(st, s, n, conn, sender, time, frame, kind):
    """n bytes of the stream will never come."""
    s["lost"] += n
    s["gaps"] += 1
    problem(st, kind, conn, sender, time, frame, -1, n)
    if s["sync"] == IN_STEP:
        if s["stage"] == IN_BODY and n <= s["rem"] - s["got"]:
            s["damaged"] = 1
            s["got"] += n
            s["need"] = s["buf_len"] = s["buf_len"] if s["buf_len"] == s["need"] else 0
            if s["got"] == s["rem"]:
                _close_packet(st, s, conn, sender, time, frame)
        else:
            _lose_step(s)
    s["next"] = s["next"] + n & MASK


@kernel
def _take(st, d, off, seq, cap, wire, s, conn, sender, time, frame):
    """A segment that goes on where the stream is, or before it; False: a table is full."""
    done = -_diff(seq, s["next"])
    if done < cap:
        n = _feed(st, d, off + done, cap - done, s, conn, sender, time, frame)
        s["next"] = s["next"] + n & MASK
        s["bytes"] += n
        if done + n < cap:
            return False
        done = cap
    if done < wire:
        if not room(st):
            return False
        _lose(st, s, wire - done, conn, sender, time, frame, P_SNAPPED)
    return True


@kernel
def _hold(st, d, seg, k, conn, sender):
    """Keep a segment that came before its turn, in order of sequence numbers."""
    s = st.streams[k]
    prev, at = -1, s["head"]
    if at >= 0 and _diff(seg["seq"], st.held[s["tail"]]["seq"]) > 0:
        prev, at = s["tail"], -1
    while at >= 0 and _diff(st.held[at]["seq"], seg["seq"]) <= 0:
        h = st.held[at]
        if h["seq"] == seg["seq"] and h["wire"] >= seg["wire"]:
            return
        prev, at = at, h["next"]
    place = take(st, seg["cap"])
    if place < 0:
        problem(st, P_MEMORY, conn, sender, seg["time"], seg["frame"], seg["off"], seg["cap"])
        return
    new = st.n[N_HELD_FREE]
    h = st.held[new]
    st.n[N_HELD_FREE] = h["next"]
    h["stream"], h["next"], h["seq"], h["off"] = k, at, seg["seq"], place
    h["cap"], h["wire"], h["time"], h["frame"] = seg["cap"], seg["wire"], seg["time"], seg["frame"]
    size = np.int64(seg["cap"])
    st.arena[place : place + size] = d[seg["off"] : seg["off"] + size]
    if prev >= 0:
        st.held[prev]["next"] = new
    else:
        s["head"] = new
        if not s["held"]:
            s["gap_since"] = seg["time"]
    if at < 0:
        s["tail"] = new
    s["held"] += 1
    s["held_bytes"] += size
    s["disordered"] += 1


@kernel
def _release(st, k, conn, sender, time, frame):
    """Take what is held as far as it goes on without a hole; False: a table is full. The packets
    get the time at which the hole was filled, as they could not be read before."""
    s = st.streams[k]
    while s["head"] >= 0:
        at = s["head"]
        h = st.held[at]
        if _diff(h["seq"], s["next"]) > 0:
            break
        if not _take(st, st.arena, h["off"], h["seq"], h["cap"], h["wire"], s, conn, sender, time,
                     frame):  # fmt: skip
            return False
        s["head"] = h["next"]
        s["held"] -= 1
        s["held_bytes"] -= h["cap"]
        h["stream"], h["next"] = -1, st.n[N_HELD_FREE]
        st.n[N_HELD_FREE] = at
        s["gap_since"] = time
    return True


@kernel
def _mend(st, k, conn, sender, time, frame, final):
    """Give up holes that will not be filled; False: a table is full."""
    s = st.streams[k]
    while s["head"] >= 0:
        h = st.held[s["head"]]
        waited = time - s["gap_since"]
        known = s["acked_known"] and _diff(s["acked"], h["seq"]) >= 0
        if not (final or (known and waited > PATIENCE) or waited > LONG_PATIENCE
                or s["held"] > HELD_SEGMENTS or s["held_bytes"] > HELD_BYTES):  # fmt: skip
            return True
        if not room(st):
            return False
        hole = _diff(h["seq"], s["next"])
        if hole > 0:
            _lose(st, s, hole, conn, sender, time, frame, P_LOSS)
        if not _release(st, k, conn, sender, time, frame):
            return False
    return True


@kernel
def _new_connection(st, pair, seg, server):
    """A new row of conns and two of streams; -1 if there is no room."""
    conn = st.n[N_CONNS]
    if conn >= len(st.conns):
        st.n[N_WANT] = WANT_CONNS
        return -1
    st.n[N_CONNS] += 1
    c = st.conns[conn]
    c["pair"], c["server"], c["end"], c["last_client"] = pair, server, END_OPEN, seg["time"]
    c["id"] = st.n[N_FILE] << 32 | seg["frame"]
    c["first"] = c["last"] = seg["time"]
    c["begun"] = seg["flags"] & SYN > 0
    for k in range(2):
        st.streams[2 * conn + k]["head"] = -1
    st.pairs[pair]["cur"] = conn
    return conn


@kernel
def _connection(st, pair, seg):
    """The connection that a segment belongs to, a new one if the ports are used again."""
    row = st.pairs[pair]
    conn = row["cur"]
    opens = seg["flags"] & (SYN | ACK) == SYN
    server = row["server"] if row["server"] else 1
    if seg["flags"] & SYN:
        server = 2 - seg["dir"] if opens else 1 + seg["dir"]
    if conn < 0:
        return _new_connection(st, pair, seg, server)
    c = st.conns[conn]
    s = st.streams[2 * conn + (1 if c["server"] == 1 + seg["dir"] else 0)]
    if opens and not (s["isn_known"] and s["isn"] == seg["seq"]):
        if c["end"] == END_OPEN:
            c["end"] = END_REUSED
        return _new_connection(st, pair, seg, server)
    if c["end"] and seg["cap"] and s["known"] and abs(_diff(seg["seq"], s["next"])) > FAR:
        return _new_connection(st, pair, seg, server)
    return conn


@kernel
def _syn(st, s, other, seg):
    """A SYN says where a stream begins; with ACK also where the other one does."""
    if not s["known"]:
        s["isn"], s["isn_known"], s["known"] = seg["seq"], 1, 1
        s["next"] = np.int64(seg["seq"]) + 1 & MASK
        s["sync"] = s["ever"] = IN_STEP
    if seg["flags"] & ACK and not other["known"]:
        other["next"], other["known"] = seg["ack"], 1
        other["sync"] = other["ever"] = IN_STEP


@kernel
def _ends(c, s, other, seg, sender):
    """FIN and RST."""
    if seg["flags"] & RST and c["end"] == END_OPEN:
        c["end"] = END_RST_CLIENT + sender
    elif seg["flags"] & FIN:
        if not s["fin"]:
            s["fin"] = 1 if other["fin"] else 2  # 2: was the first of the two
        if other["fin"] and c["end"] == END_OPEN:
            client_first = (s["fin"] == 2) == (sender == 0)
            c["end"] = END_FIN_CLIENT + (0 if client_first else 1)


@kernel
def _data(st, d, seg, s, k, conn, sender, resumed):
    """The payload of a segment; False: a table is full."""
    seq = np.int64(seg["seq"]) + (1 if seg["flags"] & SYN else 0) & MASK
    if not s["known"]:
        s["next"], s["known"] = seq, 1
    ahead = _diff(seq, s["next"])
    if ahead > 0:
        if not room(st):
            return False
        _hold(st, d, seg, k, conn, sender)
        return True
    if ahead < 0 and not resumed:
        s["resent"] += 1
    if ahead + seg["wire"] > 0 and not _take(
        st, d, seg["off"], seq, np.int64(seg["cap"]), np.int64(seg["wire"]), s, conn, sender,
        seg["time"], np.int64(seg["frame"]),
    ):  # fmt: skip
        return False
    return _release(st, k, conn, sender, seg["time"], np.int64(seg["frame"]))


@kernel
def _segment(st, d, seg, conn, resumed):
    """One segment of a connection; False: a table is full, come again with the same one."""
    c = st.conns[conn]
    sender = 1 if c["server"] == 1 + seg["dir"] else 0
    k = 2 * conn + sender
    s, other = st.streams[k], st.streams[2 * conn + 1 - sender]
    c["last"] = max(c["last"], seg["time"])
    if not resumed:
        s["segments"] += 1
        if seg["flags"] & SYN:
            _syn(st, s, other, seg)
        if seg["flags"] & ACK and (
            not other["acked_known"] or _diff(seg["ack"], other["acked"]) > 0
        ):
            other["acked"], other["acked_known"] = seg["ack"], 1
    if seg["wire"] and not c["opaque"]:
        if not _data(st, d, seg, s, k, conn, sender, resumed):
            return False
    for way in range(2):
        if st.streams[2 * conn + way]["head"] >= 0 and not _mend(
            st, 2 * conn + way, conn, way, seg["time"], np.int64(seg["frame"]), False
        ):
            return False
    _ends(c, s, other, seg, sender)
    return True


@kernel
def run(st, d, segments, pair_of, start):
    """Work through segments from `start` on; returns where it stopped: at the end, or where a
    table was full (st.n[N_WANT] says which)."""
    for i in range(start, len(segments)):
        seg = segments[i]
        pair = pair_of[seg["key"]]
        if pair < 0:
            continue
        resumed = st.n[N_RESUMED]
        conn = st.pairs[pair]["cur"] if resumed else _connection(st, pair, seg)
        if conn < 0 or not _segment(st, d, seg, conn, resumed):
            st.n[N_RESUMED] = conn >= 0
            return i
        st.n[N_RESUMED] = 0
    return len(segments)


@kernel
def close(st, start):
    """The capture is over: what is held is taken, holes are losses. Returns the connection at
    which a table was full, or how many there are."""
    for conn in range(start, st.n[N_CONNS]):
        for way in range(2):
            if not _mend(st, 2 * conn + way, conn, way, st.conns[conn]["last"], 0, True):
                return conn
    return st.n[N_CONNS]
