"""Loops over bytes that the journal needs: CRC-32, copy and compare at offsets.

Knows: how to have them without allocation: native code, compiled on the chip because a .mpy with
native code fits one architecture; crc32_plain.py where a port has no emitter; crc32_host.py for
CPython.
Must not know: records or media.
log.py gives this module back, with its source text: the loops are to be imported from there.

A running CRC is kept in a bytearray(4), because 32-bit ports have small ints of 31 bits: zlib's
crc32 of all the bytes so far, most significant byte first. 00 00 00 00 at first; then
crc32(state, buf, off, n) any number of times. copy() goes byte by byte, upwards.
"""

import sys
from array import array

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

if sys.implementation.name != "micropython":
    from .crc32_host import copy, crc32, same
else:
    import micropython

    # The CRC-32 of each half byte, reflected, polynomial 0xEDB88320; all chips are little-endian.
    _table = array("I", (
        b"\0\0\0\0\x64\x10\xb7\x1d\xc8\x20\x6e\x3b\xac\x30\xd9\x26\x90\x41\xdc\x76\xf4\x51\x6b\x6b"
        b"\x58\x61\xb2\x4d\x3c\x71\x05\x50\x20\x83\xb8\xed\x44\x93\x0f\xf0\xe8\xa3\xd6\xd6\x8c\xb3"
        b"\x61\xcb\xb0\xc2\x64\x9b\xd4\xd2\xd3\x86\x78\xe2\x0a\xa0\x1c\xf2\xbd\xbd"))  # fmt: skip
    _scope: dict = {"micropython": micropython, "_TABLE": _table}
    try:
        exec(_SOURCE, _scope)
        crc32, copy, same = _scope["crc32"], _scope["copy"], _scope["same"]
    except SyntaxError:  # no native code emitter in this port
        from .crc32_plain import copy, crc32, same

__all__ = ("copy", "crc32", "same")
