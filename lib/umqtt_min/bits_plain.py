"""bits.py for ports without a native code emitter: the same in bytecode, and still without
allocation.

Knows: CRC-32 by half bytes.  Must not know: records or media.
"""

from array import array

from .bits import table

_LOW = array("H", [e & 0xFFFF for e in table()])
_HIGH = array("H", [e >> 16 for e in table()])


def crc(s, buf, off, n):
    """Add n bytes of buf to a running CRC, in two halves of 16 bits: no int is big."""
    lo = s[0] | s[1] << 8
    hi = s[2] | s[3] << 8
    n += off
    while off < n:
        lo ^= buf[off]
        off += 1
        t = lo & 15
        lo = (lo >> 4 | (hi & 15) << 12) ^ _LOW[t]
        hi = hi >> 4 ^ _HIGH[t]
        t = lo & 15
        lo = (lo >> 4 | (hi & 15) << 12) ^ _LOW[t]
        hi = hi >> 4 ^ _HIGH[t]
    s[0] = lo & 255
    s[1] = lo >> 8
    s[2] = hi & 255
    s[3] = hi >> 8


def copy(dst, at, src, off, n):
    """dst[at:at + n] = src[off:off + n]."""
    n += off
    while off < n:
        dst[at] = src[off]
        at += 1
        off += 1


def same(a, at, b, off, n):
    """Whether n bytes are equal."""
    while n:
        n -= 1
        if a[at + n] != b[off + n]:
            return False
    return True
