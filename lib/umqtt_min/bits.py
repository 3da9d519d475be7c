"""Loops over bytes that the journal needs: CRC-32, copy and compare at offsets.

Knows: how to do them without allocation as viper code, where the chip's port can compile it;
where it cannot, bits_plain.py has them in bytecode, and bits_host.py for CPython.
Must not know: records or media.

The running CRC is kept in a bytearray(4), because 32-bit ports have small ints of 31 bits:
    FF FF FF FF at first; crc(state, buf, off, n) any number of times; XOR FF FF FF FF,
    read as a little-endian number, is then zlib.crc32 of all the bytes.
"""

import sys
from array import array


def table():
    """The 16 entries of a CRC-32 that takes half a byte at a time."""
    entries = []
    for c in range(16):
        for _ in range(4):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        entries.append(c)
    return entries


def _choose():
    if sys.implementation.name != "micropython":
        from .bits_host import copy, crc, same

        return crc, copy, same
    import micropython

    scope = {"micropython": micropython, "_TABLE": array("I", table())}
    source = """
@micropython.viper
def crc(state, buf, off: int, n: int):
    s = ptr32(state)
    b = ptr8(buf)
    t = ptr32(_TABLE)
    c = uint(s[0])
    end = off + n
    while off < end:
        c = c ^ uint(b[off])
        c = (c >> 4) ^ uint(t[int(c) & 15])
        c = (c >> 4) ^ uint(t[int(c) & 15])
        off += 1
    s[0] = int(c)

@micropython.viper
def copy(dst, at: int, src, off: int, n: int):
    d = ptr8(dst)
    s = ptr8(src)
    i = 0
    while i < n:
        d[at + i] = s[off + i]
        i += 1

@micropython.viper
def same(a, at: int, b, off: int, n: int) -> bool:
    p = ptr8(a)
    q = ptr8(b)
    i = 0
    while i < n:
        if p[at + i] != q[off + i]:
            return False
        i += 1
    return True
"""
    try:
        exec(source, scope)
    except SyntaxError:  # no native code emitter in this port
        from .bits_plain import copy, crc, same

        return crc, copy, same
    return scope["crc"], scope["copy"], scope["same"]


crc, copy, same = _choose()
del _choose  # with its source text


def put2(buf, off, value):
    """Write 0 <= value < 65536 as two bytes, most significant first."""
    buf[off] = value >> 8
    buf[off + 1] = value & 255


def put4(buf, off, value):
    """Write 0 <= value < 2**30 as four bytes, most significant first."""
    put2(buf, off, value >> 16)
    put2(buf, off + 2, value & 65535)


def get4(buf, off):
    """Four bytes as a number; -1 if it is not below 2**30 (a 32-bit port would allocate)."""
    if buf[off] & 0xC0:
        return -1
    return ((buf[off] << 8 | buf[off + 1]) << 8 | buf[off + 2]) << 8 | buf[off + 3]
