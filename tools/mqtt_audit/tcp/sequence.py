"""Sequence numbers of TCP, which wrap at 32 bits, compiled."""

from ..compiled.jit import inlined
from ..compiled.layout import MASK


@inlined
def diff(a, b):
    """a - b as sequence numbers: from -2**31 up to 2**31 - 1."""
    return ((a - b + 0x80000000) & MASK) - 0x80000000
