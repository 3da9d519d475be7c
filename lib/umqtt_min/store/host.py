"""The loops of crc32.py on CPython: slices and binascii. Boards do not need this file.

Knows: CPython.  Must not know: records or media.
"""

from binascii import crc32 as _crc32


def crc32(s, buf, off, n):
    """Add n bytes of buf to a running CRC."""
    s[:] = _crc32(memoryview(buf)[off : off + n], int.from_bytes(s, "big")).to_bytes(4, "big")


def copy(dst, at, src, off, n):
    """dst[at:at + n] = src[off:off + n], byte by byte."""
    if src is dst and at == off + 1:
        src = src[off : off + 1] * n
        off = 0
    dst[at : at + n] = memoryview(src)[off : off + n]


def same(a, at, b, off, n):
    """Whether n bytes are equal."""
    return memoryview(a)[at : at + n] == memoryview(b)[off : off + n]
