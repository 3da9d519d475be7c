"""Loops over bytes that the journal needs: CRC-32, copy and compare at offsets. Three forms of the
same: in bytecode, below; in native code, compiled on the chip because a .mpy with native code fits
one architecture; on CPython by binascii (host.py).

Knows: how to have them without allocation.  Must not know: records or media.
segment_log.py gives this module back, with its source text: import the loops from there.

A running CRC is kept in a bytearray(4), because 32-bit ports have small ints of 31 bits: zlib's
crc32 of all the bytes so far, most significant byte first. 00 00 00 00 at first; then
crc32(state, buf, off, n) any number of times. copy() goes byte by byte, upwards.
"""

import sys
from array import array

_TABLE = (  # the CRC-32 of each half byte, reflected, polynomial 0xEDB88320; little-endian
    b"\0\0\0\0\x64\x10\xb7\x1d\xc8\x20\x6e\x3b\xac\x30\xd9\x26\x90\x41\xdc\x76\xf4\x51\x6b\x6b"
    b"\x58\x61\xb2\x4d\x3c\x71\x05\x50\x20\x83\xb8\xed\x44\x93\x0f\xf0\xe8\xa3\xd6\xd6\x8c\xb3"
    b"\x61\xcb\xb0\xc2\x64\x9b\xd4\xd2\xd3\x86\x78\xe2\x0a\xa0\x1c\xf2\xbd\xbd")  # fmt: skip
_HALVES = array("H", _TABLE)  # all chips are little-endian

_SOURCE = """
@micropython.viper
def crc32(dst, src, off: int, n: int):
    d = ptr8(dst)
    s = ptr8(src)
    t = ptr32(_TABLE)
    c = uint((d[0] ^ 255) << 24 | (d[1] ^ 255) << 16 | (d[2] ^ 255) << 8 | d[3] ^ 255)
    n += off
    while off < n:
        c = c ^ uint(s[off])
        c = (c >> 4) ^ uint(t[int(c) & 15])
        c = (c >> 4) ^ uint(t[int(c) & 15])
        off += 1
    d[0] = int(c >> 24) ^ 255
    d[1] = int(c >> 16) ^ 255
    d[2] = int(c >> 8) ^ 255
    d[3] = int(c) ^ 255

@micropython.viper
def copy(dst, at: int, src, off: int, n: int):
    d = ptr8(dst)
    s = ptr8(src)
    i = 0
    while i < n:
        d[at + i] = s[off + i]
        i += 1

@micropython.viper
def same(dst, at: int, src, off: int, n: int) -> bool:
    d = ptr8(dst)
    s = ptr8(src)
    i = 0
    while i < n:
        if d[at + i] != s[off + i]:
            return False
        i += 1
    return True
"""


def plain_crc32(s, buf, off, n):
    """Add n bytes of buf to a running CRC, in two halves of 16 bits: no int is big."""
    hi = (s[0] << 8 | s[1]) ^ 65535
    lo = (s[2] << 8 | s[3]) ^ 65535
    n += off
    while off < n:
        lo ^= buf[off]
        off += 1
        t = (lo & 15) << 1
        lo = (lo >> 4 | (hi & 15) << 12) ^ _HALVES[t]
        hi = hi >> 4 ^ _HALVES[t + 1]
        t = (lo & 15) << 1
        lo = (lo >> 4 | (hi & 15) << 12) ^ _HALVES[t]
        hi = hi >> 4 ^ _HALVES[t + 1]
    s[0] = hi >> 8 ^ 255
    s[1] = hi & 255 ^ 255
    s[2] = lo >> 8 ^ 255
    s[3] = lo & 255 ^ 255


def plain_copy(dst, at, src, off, n):
    """dst[at:at + n] = src[off:off + n], byte by byte."""
    n += off
    while off < n:
        dst[at] = src[off]
        at += 1
        off += 1


def plain_same(a, at, b, off, n):
    """Whether n bytes are equal."""
    while n:
        n -= 1
        if a[at + n] != b[off + n]:
            return False
    return True


if sys.implementation.name != "micropython":
    from .host import copy, crc32, same
else:
    import micropython

    _scope: dict = {"micropython": micropython, "_TABLE": array("I", _TABLE)}
    try:
        exec(_SOURCE, _scope)
        crc32, copy, same = _scope["crc32"], _scope["copy"], _scope["same"]
    except SyntaxError:  # no native code emitter in this port
        crc32, copy, same = plain_crc32, plain_copy, plain_same

__all__ = ("copy", "crc32", "same")
