"""Loops over bytes that the journal needs: CRC-32, copy and compare at offsets.

Knows: how to do them without allocation: on MicroPython as viper code where the chip's
port can compile it, in plain bytecode where it cannot; on CPython by slices and zlib.
Must not know: records or media.

The running CRC is kept in a bytearray(4), because 32-bit ports have small ints of 31 bits:
    start(state); crc(state, buf, off, n) any number of times; state XOR FF FF FF FF,
    read as a little-endian number, is then zlib.crc32 of all the bytes.
"""

import sys
from array import array

_VIPER = """
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


def _table():
    entries = []
    for c in range(16):
        for _ in range(4):
            c = (c >> 1) ^ (0xEDB88320 if c & 1 else 0)
        entries.append(c)
    return entries


def _viper():
    import micropython

    scope = {"micropython": micropython, "_TABLE": array("I", _table())}
    exec(_VIPER, scope)
    return scope["crc"], scope["copy"], scope["same"]


def _bytecode():
    """For ports without a native code emitter: two 16-bit halves, so that no int is big."""
    entries = _table()
    low = array("H", [e & 0xFFFF for e in entries])
    high = array("H", [e >> 16 for e in entries])

    def crc(s, buf, off, n):
        lo = s[0] | s[1] << 8
        hi = s[2] | s[3] << 8
        for i in range(off, off + n):
            lo ^= buf[i]
            t = lo & 15
            lo = (lo >> 4 | (hi & 15) << 12) ^ low[t]
            hi = hi >> 4 ^ high[t]
            t = lo & 15
            lo = (lo >> 4 | (hi & 15) << 12) ^ low[t]
            hi = hi >> 4 ^ high[t]
        s[0] = lo & 255
        s[1] = lo >> 8
        s[2] = hi & 255
        s[3] = hi >> 8

    def copy(dst, at, src, off, n):
        while n:
            n -= 1
            dst[at + n] = src[off + n]

    def same(a, at, b, off, n):
        while n:
            n -= 1
            if a[at + n] != b[off + n]:
                return False
        return True

    return crc, copy, same


def _cpython():
    from zlib import crc32

    def crc(s, buf, off, n):
        value = int.from_bytes(s, "little") ^ 0xFFFFFFFF
        value = crc32(memoryview(buf)[off : off + n], value) ^ 0xFFFFFFFF
        s[:] = value.to_bytes(4, "little")

    def copy(dst, at, src, off, n):
        dst[at : at + n] = memoryview(src)[off : off + n]

    def same(a, at, b, off, n):
        return memoryview(a)[at : at + n] == memoryview(b)[off : off + n]

    return crc, copy, same


def _choose():
    if sys.implementation.name != "micropython":
        return _cpython()
    try:
        return _viper()
    except SyntaxError:  # no native code emitter in this port
        return _bytecode()


crc, copy, same = _choose()


def start(state):
    """The CRC of no bytes."""
    state[0] = state[1] = state[2] = state[3] = 255


def put4(buf, off, value):
    """Write 0 <= value < 2**30 as four bytes, most significant first."""
    buf[off] = value >> 24
    buf[off + 1] = value >> 16 & 255
    buf[off + 2] = value >> 8 & 255
    buf[off + 3] = value & 255


def get4(buf, off):
    """Four bytes as a number; -1 if it is not below 2**30 (a 32-bit port would allocate)."""
    if buf[off] & 0xC0:
        return -1
    return ((buf[off] << 8 | buf[off + 1]) << 8 | buf[off + 2]) << 8 | buf[off + 3]
