"""Loops over bytes that the journal needs: CRC-32, copy and compare at offsets.

Knows: which of three modules has them: bits_viper.py for chips whose port can compile native
code, bits_plain.py in bytecode, bits_host.py for CPython. None of them allocates.
Must not know: records or media.

A running CRC is kept in a bytearray(4), because 32-bit ports have small ints of 31 bits: zlib's
crc32 of all the bytes so far, most significant byte first. 00 00 00 00 at first; then
crc(state, buf, off, n) any number of times.
"""

import sys

if sys.implementation.name == "micropython":
    try:
        from .bits_viper import copy, crc, same
    except SyntaxError:  # no native code emitter in this port
        from .bits_plain import copy, crc, same
    else:  # their source text is given back
        del sys.modules["umqtt_min.bits_viper"]
        delattr(sys.modules["umqtt_min"], "bits_viper")
else:
    from .bits_host import copy, crc, same

__all__ = ("copy", "crc", "same")
