"""The text of topics: UTF-8, what must not be in it, compiled.

Knows: RFC 3629, topic names (MQTT 3.1.1, 4.7). Must not know: packets.
"""

from ..compiled.arena import copy
from ..compiled.jit import inlined, kernel

TEXT_OK, TEXT_NUL, TEXT_WILD, TEXT_BAD = 0, 1, 2, 3


@inlined
def _step(d, p, end):
    """Length of the UTF-8 character at p, 0 if it is none (RFC 3629)."""
    b = d[p]
    if b < 0x80:
        return 1
    n = 2 if 0xC2 <= b < 0xE0 else 3 if 0xE0 <= b < 0xF0 else 4 if 0xF0 <= b < 0xF5 else 0
    if n == 0 or p + n > end:
        return 0
    for k in range(1, n):
        if d[p + k] & 0xC0 != 0x80:
            return 0
    c = d[p + 1]
    low = (b == 0xE0 and c < 0xA0) or (b == 0xF0 and c < 0x90)
    return 0 if low or (b == 0xED and c >= 0xA0) or (b == 0xF4 and c >= 0x90) else n


@inlined
def text_kind(d, p, n):
    """What is wrong with a topic name, the worst of it."""
    found, q = TEXT_OK, p
    while q < p + n:
        b = d[q]
        if b == 0:
            found = max(found, TEXT_NUL)
        elif b == 35 or b == 43:
            found = max(found, TEXT_WILD)
        step = _step(d, q, p + n)
        if step == 0:
            return TEXT_BAD
        q += step
    return found


@kernel
def utf8(d, p, end, whole):
    """Whether bytes are UTF-8, with U+0000 as well. If they are not the `whole` text, its last
    character may be there in part."""
    while p < end:
        step = _step(d, p, end)
        if step == 0:
            return not whole and end - p < 4
        p += step
    return True


@inlined
def copy_text(d, p, n, text, at, bad):
    """Copy a topic into the heap; bytes that are no UTF-8 as \\xHH. Returns the end."""
    if not bad:
        copy(d, p, n, text, at)
        return at + n
    q = p
    while q < p + n:
        step = _step(d, q, p + n)
        if step == 0:
            text[at], text[at + 1] = 92, 120
            for k in range(2):
                digit = d[q] >> 4 * (1 - k) & 15
                text[at + 2 + k] = digit + (48 if digit < 10 else 87)
            at += 4
            q += 1
            continue
        copy(d, q, step, text, at)
        at += step
        q += step
    return at
