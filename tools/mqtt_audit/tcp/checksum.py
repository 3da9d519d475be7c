"""The checksum of a segment, where its frame has one that says something; compiled.

Knows: the headers of TCP, IPv4 and IPv6 before a payload. Must not know: streams, what a payload
holds.

It is computed for segments that contradict each other, and for no others: a computer leaves the
checksum of what it sends to its network card, so that a capture made there has wrong ones.
"""

from ..capture.records import u16
from ..compiled.jit import kernel, wide

RIGHT, WRONG, UNKNOWN = 1, -1, 0


@kernel
def _sum(d, p, end):
    """The sum of 16-bit words; an odd byte at the end is the upper half of one."""
    found = 0
    for k in range(p, end - 1, 2):
        found += wide(d[k]) << 8 | wide(d[k + 1])
    return found + (wide(d[end - 1]) << 8 if end - p & 1 else 0)


@kernel
def _header(d, off, size):
    """(place of the TCP header that ends at `off`, bytes of the addresses before it). The IP
    header before it has no options and says that `size` bytes of payload follow. Place -1: there
    is none, as in fragments of a datagram, and before payloads that were copied together."""
    for head in range(20, 64, 4):
        q = off - head
        if q < 20:
            break
        if d[q + 12] >> 4 != head >> 2:
            continue
        ip = q - 20
        if d[ip] == 0x45 and d[ip + 9] == 6 and u16(d, ip + 2, True) == 20 + head + size and (
            u16(d, ip + 6, True) & 0x3FFF == 0
        ):
            return q, 8
        ip = q - 40
        if ip >= 0 and d[ip] >> 4 == 6 and d[ip + 6] == 6 and u16(d, ip + 4, True) == head + size:
            return q, 32
    return -1, 0


@kernel
def checked(d, off, size):
    """Whether the segment whose payload of `size` bytes lies at `off` has the RIGHT checksum, a
    WRONG one, or none (UNKNOWN)."""
    q, addresses = _header(d, off, size)
    if q < 0 or u16(d, q + 16, True) == 0:
        return UNKNOWN
    found = _sum(d, q - addresses, off + size) + 6 + off + size - q
    while found >> 16:
        found = (found & 0xFFFF) + (found >> 16)
    return RIGHT if found == 0xFFFF else WRONG
