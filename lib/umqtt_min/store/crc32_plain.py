"""crc32.py for ports without a native code emitter: the same in bytecode, and still without
allocation.

Knows: CRC-32 by half bytes.  Must not know: records or media.
"""

from array import array


def _table(shift):
    # The CRC-32 of each half byte, reflected, polynomial 0xEDB88320: one half of it.
    half = array("H")
    for c in range(16):
        for _ in range(4):
            c = c >> 1 ^ (0xEDB88320 if c & 1 else 0)
        half.append(c >> shift & 0xFFFF)
    return half


_LOW = _table(0)
_HIGH = _table(16)


def crc32(s, buf, off, n):
    """Add n bytes of buf to a running CRC, in two halves of 16 bits: no int is big."""
    hi = (s[0] << 8 | s[1]) ^ 65535
    lo = (s[2] << 8 | s[3]) ^ 65535
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
    s[0] = hi >> 8 ^ 255
    s[1] = hi & 255 ^ 255
    s[2] = lo >> 8 ^ 255
    s[3] = lo & 255 ^ 255


def copy(dst, at, src, off, n):
    """dst[at:at + n] = src[off:off + n], byte by byte."""
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
