"""Frames of a WebSocket with MQTT in them, known by their look, compiled.

Knows: RFC 6455, how packets begin. Must not know: streams, segments.
"""


from ..compiled.jit import kernel, wide
from ..compiled.layout import CONNECT
from .framing import packet_at, repeats

BINARY = 0x82  #: the first byte of a frame that is no fragment, with MQTT in it
CONTROLS = (0x88, 0x89, 0x8A)  #: of frames of the WebSocket itself
SIZE_16, SIZE_64 = 126, 127  #: lengths that stand for one of two or of eight bytes behind them
RESERVED = 0x70  #: bits of the first byte that only extensions set
LONGEST = 1 << 29  #: bytes of a frame that is believed: a packet has at most half of it
CERTAIN = 5  #: headers of masked frames that stand where they must: one is no chance in 57
BEGINS, VARIED = 1, 2  #: what these have to show (certain)
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


@kernel
def _header(d, p, end):
    """(bytes of the header, of the payload) of the client's frame that begins at p; 0: none does,
    or its header is not all there."""
    kind, n = wide(d[p]) & 15, end - p
    if d[p] & RESERVED or not (kind <= 2 or 8 <= kind <= 10) or n < 6 or not d[p + 1] & 128:
        return 0, 0
    size = wide(d[p + 1]) & 127
    if kind >= 8 and (size >= SIZE_16 or not d[p] & 128):
        return 0, 0
    if size < SIZE_16:
        return 6, size
    more = 2 if size == SIZE_16 else 8
    if n < 6 + more:
        return 0, 0
    size = 0
    for k in range(p + 2, p + 2 + more):
        size = size << 8 | wide(d[k])
    shortest = SIZE_16 <= size if more == 2 else 1 << 16 <= size < LONGEST
    return (6 + more, size) if shortest else (0, 0)


@kernel
def _follows(last, byte):
    """Whether a frame with this first byte may come behind one with data that has `last`, 0: none:
    a message goes on until a frame is its end (RFC 6455, 5.4)."""
    goes_on = 0 < last < 128
    return byte & 15 >= 8 or not last or (byte & 15 == 0) == goes_on


@kernel
def _note(s, d, p, head, size):
    """A header of so many bytes of a client's frame is at p."""
    if d[p] & 15 == 2:
        s["web_signs"] |= BEGINS
    if not repeats(d, p, p + 4, p + head):
        s["web_signs"] |= VARIED
    if d[p] & 15 < 8:
        s["web_last"] = d[p]
    s["webs"], s["web_rest"] = min(s["webs"] + 1, CERTAIN), head + size


@kernel
def certain(s):
    """Whether a client's stream has shown to be a WebSocket's."""
    return s["webs"] == CERTAIN and s["web_signs"] == BEGINS | VARIED


@kernel
def _walked(s, d, p, end):
    """Go on to the next bytes of a client's stream; False: no frame begins where one should."""
    while True:
        n = min(end - p, s["web_rest"])
        p += n
        s["web_rest"] -= n
        if p == end or certain(s):
            return True
        head, size = _header(d, p, end)
        if head == 0 or not _follows(s["web_last"], d[p]):
            return False
        _note(s, d, p, head, size)


@kernel
def masked(s, d, p, end):
    """Whether a client's stream, of which these are the next bytes, from p to `end`, has shown to
    be a WebSocket's: CERTAIN headers of frames stood where they must, of which one begins a binary
    message, and one does not repeat itself, as those in a payload of equal bytes do. The first
    header is looked for where segments begin."""
    for _ in range(2):
        if _walked(s, d, p, end):
            break
        s["webs"] = s["web_rest"] = s["web_signs"] = s["web_last"] = 0
    return certain(s)
