"""Frames of a WebSocket with MQTT in them, known by their look, compiled.

Knows: RFC 6455, how packets begin. Must not know: streams, segments.
"""


from ..compiled.jit import kernel, wide
from ..compiled.layout import CONNECT
from .framing import packet_at

BINARY = 0x82  #: the first byte of a frame that is no fragment, with MQTT in it
CONTROLS = (0x88, 0x89, 0x8A)  #: of frames of the WebSocket itself
SIZE_16, SIZE_64 = 126, 127  #: lengths that stand for one of two or of eight bytes behind them
PACKETS, SIGNS_IN = 1, 2  #: what framed() finds: packets, a CONNECT among them


@kernel
def _packets(d, p, have, size, sender):
    """Whether a payload of some size, the first bytes of which lie at p, is packets of one side,
    and which. Of the last packet only the beginning may be there."""
    done = 0
    while done < have:
        n = packet_at(d, p + done, p + have, sender)
        if n <= 0:
            return 0
        done += n
    return 0 if done != size else SIGNS_IN if d[p] >> 4 == CONNECT else PACKETS


@kernel
def _unmasked(d, p, mask, n, out):
    """Write the n bytes of a payload at p, which the four bytes at `mask` hide, to `out`."""
    for k in range(n):
        out[k] = d[p + k] ^ d[mask + (k & 3)]


@kernel
def framed(d, p, end, room):
    """Whether the bytes from p to `end` are whole frames of a WebSocket, of a client if they are
    masked, else of a server, and those with data hold whole packets: 0, PACKETS or SIGNS_IN.
    room: an array for the bytes of a client's frame, as far as they are looked at."""
    found, masked = 0, end - p > 1 and d[p + 1] & 128
    while p < end:
        if end - p < 2 or d[p] != BINARY and d[p] not in CONTROLS or d[p + 1] & 128 != masked:
            return 0
        size, q = wide(d[p + 1]) & 127, p + 2
        if size == SIZE_64 or size == SIZE_16 and q + 2 > end:
            return 0
        if size == SIZE_16:
            size, q = wide(d[q]) << 8 | wide(d[q + 1]), q + 2
        payload = q + 4 if masked else q
        if payload + size > end:
            return 0
        if d[p] == BINARY and size:
            if masked:
                have = min(size, len(room))
                _unmasked(d, payload, q, have, room)
                kind = _packets(room, 0, have, size, 0)
            else:
                kind = _packets(d, payload, size, size, 1)
            if not kind:
                return 0
            found = max(found, kind)
        p = payload + size
    return found
