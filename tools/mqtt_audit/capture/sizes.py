"""How large captures are. Knows: gzip's first bytes. Must not know: formats."""

import os

GZIP = b"\x1f\x8b"  #: how a file packed by gzip begins
UNPACKS = 8  #: times the size of a packed capture that is reckoned with


def packed(path):
    """Whether a file has to be unpacked first."""
    with open(path, "rb") as file:
        return file.read(2) == GZIP


def bytes_of(path):
    """Bytes of a capture, of a packed one those that are reckoned with."""
    return os.path.getsize(path) * (UNPACKS if packed(path) else 1)
