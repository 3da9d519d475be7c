"""A header of the PROXY protocol that comes in several segments, compiled.

Knows: versions 1 and 2 of that protocol. Must not know: what stands behind the header.

One that lies in one segment is passed over where it is (cutting.py, websocket.py).
"""

from ..compiled.arena import take
from ..compiled.jit import kernel, wide
from ..tcp.openings import PROXY_1, PROXY_1_MAX, PROXY_2, proxy_begun

FIXED = 16  #: bytes of a header of version 2 up to its length, and with it
MORE, OVER, OTHER = range(3)  #: what advance() finds


@kernel
def begins(s, d, p, end, sender):
    """Whether a header begins here, with the first bytes of a client, and goes on in the next
    segment."""
    first = not (sender or s["bytes"] or s["first"] or s["stage"]) and s["whole"]
    return first and proxy_begun(d, p, end)


@kernel
def _byte(s, b):
    """The next byte of a header: MORE, OVER if it is the last one, OTHER if it is none."""
    n = s["proxy"]
    s["proxy"] = n + 1
    if n == 0:
        s["proxy_first"], s["proxy_size"] = b, 0
    if s["proxy_first"] == PROXY_1[0]:
        if n >= PROXY_1_MAX or n < len(PROXY_1) and b != PROXY_1[n]:
            return OTHER
        over = b == 10 and s["proxy_size"] == 13
        s["proxy_size"] = b  # the byte before
        return OVER if over else MORE
    if n < len(PROXY_2) and b != PROXY_2[n]:
        return OTHER
    if n == FIXED - 2 or n == FIXED - 1:
        s["proxy_size"] = s["proxy_size"] << 8 | b
    return OVER if n + 1 >= FIXED and n + 1 == FIXED + s["proxy_size"] else MORE


@kernel
def advance(s, d, p, end):
    """Go on with a header: (MORE, OVER or OTHER, the place behind what was taken). s["proxy"]: how
    many bytes of it there were."""
    state = MORE
    while p < end and state == MORE:
        state = _byte(s, wide(d[p]))
        p += 1
    return state, p


@kernel
def put_back(st, n, version_1):
    """Write the first n bytes at most of a header, as far as they are always the same, to the
    arena: (place, how many)."""
    n = min(n, len(PROXY_1) if version_1 else len(PROXY_2))
    at = take(st, n)
    if at < 0:
        return 0, 0
    for k in range(n):
        st.arena[at + k] = PROXY_1[k] if version_1 else PROXY_2[k]
    return at, n
