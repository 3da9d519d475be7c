"""The first message of either side of a TLS connection, taken out of its records, compiled.

Knows: records, the length of a handshake message. Must not know: what a hello says (hello.py).

The bytes are kept in the arena until Rows reads them, which it does when they are all there.
"""


from ..compiled.arena import copy, take
from ..compiled.jit import kernel, wide
from ..compiled.layout import HELLO_NONE, HELLO_WANTED, HELLO_WHOLE, N_HELLOS

MOST = 1 << 16  #: bytes of a hello that are waited for
RECORD = 5  #: bytes of a record's header
HANDSHAKE, CLIENT_HELLO, SERVER_HELLO = 22, 1, 2
NOT_YET, WHOLE, NEVER = 0, 1, -1


@kernel
def _state(d, p, end):
    """Whether the records from p on hold a whole hello."""
    have, head, q = 0, 0, p
    while q + RECORD <= end:
        if d[q] != HANDSHAKE or d[q + 1] != 3:
            return NEVER
        q += RECORD
        stop = q + (wide(d[q - 2]) << 8 | wide(d[q - 1]))
        for k in range(q, min(stop, end, q + 4 - min(have, 4))):
            head = head << 8 | wide(d[k])
        have += min(stop, end) - q
        if have >= 4:
            if head >> 24 != CLIENT_HELLO and head >> 24 != SERVER_HELLO:
                return NEVER
            if have >= 4 + (head & 0xFFFFFF):
                return WHOLE
        q = stop
    return NOT_YET


@kernel
def want(s, other):
    """A connection turns out to be TLS: wait for the first message of both sides."""
    s["hello"] = HELLO_WANTED
    if not other["bytes"]:
        other["hello"] = HELLO_WANTED


@kernel
def give_up(s):
    """Bytes of it are missing, or it is none."""
    s["hello"], s["buf_cap"], s["buf_len"] = HELLO_NONE, 0, 0


@kernel
def collect(st, d, p, end, s):
    """The next bytes of a stream that begins with a hello. The caller has seen to the room."""
    n = min(end - p, MOST - s["buf_len"])
    if s["buf_len"] + n > s["buf_cap"]:
        cap = max(s["buf_len"] + n, 2 * s["buf_cap"])
        at = take(st, cap)
        if at < 0:
            give_up(s)
            return
        size = s["buf_len"]
        copy(st.arena, s["buf"], size, st.arena, at)
        s["buf"], s["buf_cap"] = at, cap
    at = s["buf"] + s["buf_len"]
    copy(d, p, n, st.arena, at)
    s["buf_len"] += n
    found = _state(st.arena, s["buf"], s["buf"] + s["buf_len"])
    if found == WHOLE:
        s["hello"] = HELLO_WHOLE
        st.n[N_HELLOS] += 1
    elif found == NEVER or s["buf_len"] >= MOST:
        give_up(s)
