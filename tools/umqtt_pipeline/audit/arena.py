"""Memory for what waits: unfinished packets, segments out of order, topics of open exchanges.

Knows: one array of bytes, who refers into it. Must not know: what the bytes mean.

Space is taken from the front and never given back singly; when the array is full the caller
copies what is still referred to into another one.
"""

from .jit import kernel
from .layout import (
    BODY_MAX, N_ARENA, N_BODIES, N_DONE, N_DONE_TEXT, N_FLOW_FREE, N_HELD_FREE, N_PACKETS,
    N_PROBLEMS, N_TEXT, N_TIGHT, N_UNLISTED, N_VIOLATIONS, N_WANT, SLACK, TOPIC_MAX, WANT_ARENA,
    WANT_DRAIN, WANT_FLOWS, WANT_HELD,
)  # fmt: skip


@kernel
def take(st, n):
    """Place of n free bytes, or -1."""
    at = st.n[N_ARENA]
    if at + n > len(st.arena):
        return -1
    st.n[N_ARENA] = at + n
    return at


@kernel
def room(st):
    """Whether the tables have room for all that one packet can bring; else says what is full."""
    n = st.n
    if (n[N_PACKETS] >= len(st.packets) or n[N_VIOLATIONS] + 12 > len(st.violations)
            or n[N_DONE] + 2 > len(st.done) or n[N_TEXT] + TOPIC_MAX > len(st.text)
            or n[N_BODIES] + BODY_MAX > len(st.bodies)
            or n[N_DONE_TEXT] + 2 * TOPIC_MAX > len(st.done_text)):  # fmt: skip
        n[N_WANT] = WANT_DRAIN
    elif n[N_FLOW_FREE] < 0:
        n[N_WANT] = WANT_FLOWS
    elif n[N_HELD_FREE] < 0:
        n[N_WANT] = WANT_HELD
    elif not n[N_TIGHT] and n[N_ARENA] + SLACK > len(st.arena):
        n[N_WANT] = WANT_ARENA
    else:
        return True
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
    """One row in the table of violations (room() has seen to the space)."""
    k = st.n[N_VIOLATIONS]
    if k >= len(st.violations):
        return
    row = st.violations[k]
    row["code"], row["conn"], row["from_server"], row["kind"] = code, conn, from_server, kind
    row["time"], row["frame"], row["value"] = time, frame, value
    row["level"] = st.conns[conn]["level"]
    st.n[N_VIOLATIONS] = k + 1


@kernel
def _move(old, new, at, n, used):
    new[used : used + n] = old[at : at + n]
    return used + n


@kernel
def live(st, streams):
    """How many bytes are referred to."""
    n = 0
    for k in range(streams):
        n += st.streams[k]["buf_cap"]
    for k in range(len(st.held)):
        if st.held[k]["stream"] >= 0:
            n += st.held[k]["cap"]
    for k in range(len(st.flows)):
        if st.flows[k]["used"]:
            n += st.flows[k]["topic_len"]
    return n


@kernel
def compact(st, streams, new):
    """Copy what is referred to into `new`, which has room for it; returns how much it was."""
    used = 0
    for k in range(streams):
        s = st.streams[k]
        if s["buf_cap"]:
            _move(st.arena, new, s["buf"], s["buf_len"], used)
            s["buf"] = used
            used += s["buf_cap"]
    for k in range(len(st.held)):
        h = st.held[k]
        if h["stream"] >= 0:
            at = h["off"]
            h["off"] = used
            used = _move(st.arena, new, at, h["cap"], used)
    for k in range(len(st.flows)):
        f = st.flows[k]
        if f["used"]:
            at = f["topic"]
            f["topic"] = used
            used = _move(st.arena, new, at, f["topic_len"], used)
    return used
