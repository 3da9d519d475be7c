"""The table of what is open: messages, requests, topic aliases, answers that are owed; compiled.

Knows: where a row is, when it may go. Must not know: which packet answers which.

A row is found by (connection, sender, packet id) in a hash table with linear probing. Rows that
are no messages have a sender of REQUEST or more.
"""

from ..compiled.arena import copy
from ..compiled.jit import entry, inlined, kernel
from ..compiled.layout import (
    END_REUSED,
    F_DONE,
    F_HEADLESS,
    F_OPEN,
    LINGER,
    N_CONNS,
    N_DONE,
    N_DONE_TEXT,
    N_FLOW_FREE,
    N_FLOWS,
    REQUEST,
)  # fmt: skip

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
def free(st, at):
    """Forget an exchange."""
    k = st.slots[at]
    _unlink(st, at)
    st.flows[k]["used"] = 0
    st.flows[k]["done"] = st.n[N_FLOW_FREE]
    st.n[N_FLOW_FREE] = k
    st.n[N_FLOWS] -= 1


@inlined
def give_back(s):
    """A PUBACK or PUBCOMP gives back of the sender's quota, whatever it answers, up to all of it
    (MQTT 5, 4.9)."""
    s["open"] = max(0, s["open"] - 1)


@inlined
def finish(st, at, outcome):
    """Move an exchange into the table of those that are over."""
    k = st.slots[at]
    f = st.flows[k]
    n, end = st.n[N_DONE], st.n[N_DONE_TEXT]
    f["outcome"] = outcome
    s = st.streams[2 * f["conn"] + f["sender"]]
    s["answered"] |= outcome == F_DONE
    if f["sent"] or f["state"] == RELEASED_ONLY and outcome == F_DONE:
        give_back(s)
    size = f["topic_len"]
    copy(st.arena, f["topic"], size, st.done_text, end)
    f["topic"] = st.n[N_DONE_TEXT] = end + size
    st.done[n] = f
    st.n[N_DONE] = n + 1
    free(st, at)


@inlined
def begin(st, at, conn, sender, ident, time, frame, missing):
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


@kernel
def _over(st, conn, now):
    """Whether a connection has ended and no packet of it comes: none is waiting for a hole, and
    what was on its way to a side that has reset it has had its time."""
    c = st.conns[conn]
    head, other = st.streams[2 * conn]["head"], st.streams[2 * conn + 1]["head"]
    ended = c["settled"] or c["end"] == END_REUSED or c["end"] and now - c["last"] > LINGER
    return ended and head < 0 and other < 0


@kernel
def _now(st):
    """The time of the latest segment."""
    now = 0
    for conn in range(st.n[N_CONNS]):
        now = max(now, st.conns[conn]["last"])
    return now


@entry
def sweep(st, everything):
    """End the exchanges of connections that are over (or all); False: `done` is full."""
    now = _now(st)
    for k in range(len(st.flows)):
        f = st.flows[k]
        if f["used"] and (everything or _over(st, f["conn"], now)):
            if st.n[N_DONE] >= len(st.done):
                return False
            if st.n[N_DONE_TEXT] + f["topic_len"] > len(st.done_text):
                return False
            at = find(st, f["conn"], f["sender"], f["id"])
            st.conns[f["conn"]]["swept"] = 1  # the clock of a capture may be wrong
            if f["sender"] >= REQUEST:
                free(st, at)
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
