"""Memory for what waits: unfinished packets, segments out of order, topics of open exchanges.

Knows: one array of bytes, who refers into it. Must not know: what the bytes mean.

Space is taken from the front and never given back singly; when the array is full the caller
copies what is still referred to into another one.
"""


from ..rules.order import ORDER
from .jit import entry, inlined, kernel, wide
from .layout import (
    BODY_MAX,
    FOUND,
    N_ARENA,
    N_BODIES,
    N_DONE,
    N_DONE_TEXT,
    N_FLOWS,
    N_FOUND,
    N_HELD_FREE,
    N_PACKETS,
    N_PROBLEMS,
    N_READ,
    N_TEXT,
    N_TIGHT,
    N_UNLISTED,
    N_VIOLATIONS,
    N_WANT,
    PROPERTIES,
    PUBLISH,
    SLACK,
    TOPIC_MAX,
    WANT_ARENA,
    WANT_DRAIN,
    WANT_FLOWS,
    WANT_HELD,
)  # fmt: skip


@inlined
def copy(source, at, n, target, to):
    """n bytes from one place to another. A loop, as slices count references (see jit.py)."""
    for k in range(n):
        target[to + k] = source[at + k]


@inlined
def take(st, n):
    """Place of n free bytes, or -1."""
    at = st.n[N_ARENA]
    if at + n > len(st.arena):
        return -1
    st.n[N_ARENA] = at + n
    return at


@inlined
def arena_room(st):
    """Whether the arena has room for what one packet can bring."""
    if st.n[N_TIGHT] or st.n[N_ARENA] + SLACK <= len(st.arena):
        return True
    st.n[N_WANT] = WANT_ARENA
    return False


@inlined
def room(st):
    """Whether TCP's tables have room for a packet; else says what is full."""
    n = st.n
    if n[N_PACKETS] >= len(st.packets):
        n[N_WANT] = WANT_DRAIN
    elif n[N_HELD_FREE] < 0:
        n[N_WANT] = WANT_HELD
    else:
        return arena_room(st)
    return False


@inlined
def talk_room(st):
    """As room(), for all that the reading of one packet can bring."""
    n = st.n
    if (n[N_VIOLATIONS] + 12 > len(st.violations) or n[N_DONE] + 2 > len(st.done)
            or n[N_TEXT] + TOPIC_MAX > len(st.text) or n[N_BODIES] + BODY_MAX > len(st.bodies)
            or n[N_DONE_TEXT] + 2 * TOPIC_MAX > len(st.done_text)):  # fmt: skip
        n[N_WANT] = WANT_DRAIN
    elif n[N_FLOWS] + 4 > len(st.flows):
        n[N_WANT] = WANT_FLOWS
    else:
        return arena_room(st)
    return False


@kernel
def problem(st, kind, conn, from_server, time, frame, off, count):
    """One row in the table of problems; what does not fit is counted."""
    k = st.n[N_PROBLEMS]
    if k >= len(st.problems):
        st.n[N_UNLISTED] += 1
        return
    row = st.problems[k]
    row["kind"], row["conn"], row["from_server"] = kind, conn, from_server
    row["time"], row["frame"], row["off"], row["count"] = time, frame, off, count
    st.n[N_PROBLEMS] = k + 1


@kernel
def violation(st, code, conn, from_server, kind, time, frame, value):
    """One row in the table of violations (room() has seen to the space). None is told of packets
    that may be no packets: st.n[N_FOUND], as PACKET's, of the one that is read."""
    if st.n[N_FOUND] & FOUND or st.n[N_FOUND] and code in ORDER:
        return
    k = st.n[N_VIOLATIONS]
    if k >= len(st.violations):
        return
    row = st.violations[k]
    row["code"], row["conn"], row["from_server"], row["kind"] = code, conn, from_server, kind
    row["time"], row["frame"], row["value"] = time, frame, value
    c = st.conns[conn]
    row["level"] = 0 if c["torn"] else c["level"]  # another connection may have another version
    st.n[N_VIOLATIONS] = k + 1


@kernel
def _move(old, at, n, new, used):
    """Where n bytes are now: copied to `used`, or, if `new` is empty, where they were."""
    if not len(new):
        return at
    copy(old, at, n, new, used)
    return used


@entry
def gather(wire, flows, streams, new):
    """Copy what is referred to into `new`; returns how much it is. An empty `new`: only count."""
    used, old = 0, wire.arena
    for k in range(streams):
        s = wire.streams[k]
        if s["buf_cap"]:
            s["buf"] = _move(old, s["buf"], s["buf_len"], new, used)
            used += s["buf_cap"]
    for k in range(len(wire.held)):
        h = wire.held[k]
        if h["stream"] >= 0:
            h["off"] = _move(old, h["off"], h["cap"], new, used)
            used += h["cap"]
    for k in range(len(flows)):
        f = flows[k]
        if f["used"]:
            f["topic"] = _move(old, f["topic"], f["topic_len"], new, used)
            used += f["topic_len"]
    for k in range(wire.n[N_READ], wire.n[N_PACKETS]):
        row = wire.packets[k]
        if row["kept"]:
            row["at"] = _move(old, row["at"], row["have"], new, used)
            used += row["have"]
    return used


@entry
def keep(wire, data):
    """Copy what packets that are not read yet have in the file `data`: of PUBLISH up to the packet
    id (and MQTT 5's length of properties). False: the arena is full."""
    for k in range(wire.n[N_READ], wire.n[N_PACKETS]):
        row = wire.packets[k]
        if row["kept"]:
            continue
        n, p = min(row["have"], BODY_MAX), row["at"]
        if row["kind"] == PUBLISH and n >= 2:
            n = min(n, (wide(data[p]) << 8 | wide(data[p + 1])) + 8 + PROPERTIES)
        at = take(wire, n)
        if at < 0:
            return False
        copy(data, p, n, wire.arena, at)
        row["at"], row["have"], row["kept"] = at, n, 1
    return True
