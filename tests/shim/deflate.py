"""MicroPython's `deflate` module for CPython, as far as the firmware uses it: reading RFC 1951.

Knows: zlib.  Must not know: what is read.
"""

import io
import zlib

RAW = 1


class DeflateIO(io.BytesIO):
    """What a stream holds, uncompressed; it is read and closed at once."""

    def __init__(self, stream, format, wbits, close=False):
        assert format == RAW
        with stream:
            super().__init__(zlib.decompressobj(-wbits).decompress(stream.read()))
