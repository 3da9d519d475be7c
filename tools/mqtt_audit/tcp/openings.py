"""What the first bytes look like of a client that speaks MQTT, by itself or in something else, and
of a server that grants it a WebSocket, compiled.

Knows: CONNECT, the hello of TLS, the upgrade to a WebSocket, the PROXY protocol. Must not know:
streams, frames.
"""

import numpy as np

from ..capture.records import u16
from ..compiled.jit import kernel

TLS_PORT = 8883  #: of MQTT over TLS (IANA: secure-mqtt)
#: An entry of TLS's ALPN; the word in it is WebSocket's, too.
ALPN = np.frombuffer(b"\x04mqtt", np.uint8)
WORD = ALPN[1:]
PROTOCOL = np.frombuffer(b"sec-websocket-protocol:", np.uint8)
#: How headers of the PROXY protocol begin, and how long one of version 1 may be.
PROXY_1, PROXY_1_MAX = np.frombuffer(b"PROXY ", np.uint8), 107
PROXY_2 = np.frombuffer(b"\r\n\r\n\0\r\nQUIT\n", np.uint8)
WEBSOCKET = np.frombuffer(b"websocket", np.uint8)  #: of the header Upgrade


@kernel
def is_connect(d, p, n):
    """Whether a segment begins as a CONNECT does: protocol name MQTT, MQIsdp or MQIpdp."""
    if n < 12 or d[p] != 0x10:
        return False
    q = p + 1
    while q < p + 4 and d[q] & 128:
        q += 1
    q += 1
    if d[q] != 0 or d[q + 2] != 77 or d[q + 3] != 81:  # MQ
        return False
    if d[q + 1] == 4:
        return d[q + 4] == 84 and d[q + 5] == 84
    if p + n < q + 8 or d[q + 1] != 6 or d[q + 4] != 73:
        return False
    return (d[q + 5] == 115 or d[q + 5] == 112) and d[q + 6] == 100 and d[q + 7] == 112


@kernel
def proxy_header(d, p, end):
    """Length of the header of the PROXY protocol (version 1 or 2) that lies whole at p, or 0."""
    if end - p >= 16 and d[p] == 13 and d[p + 1] == 10 and d[p + 4] == 0 and d[p + 7] == 81:
        # 0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A, version, family, length
        n = 16 + u16(d, p + 14, True)
        return n if d[p + 5] == 13 and d[p + 8] == 85 and p + n <= end else 0
    if end - p < 8 or d[p] != 80 or d[p + 1] != 82 or d[p + 2] != 79 or d[p + 3] != 88:  # PROX
        return 0
    for k in range(p + 4, min(end, p + PROXY_1_MAX) - 1):
        if d[k] == 13 and d[k + 1] == 10:
            return k + 2 - p
    return 0


@kernel
def proxy_begun(d, p, end):
    """Whether a header of the PROXY protocol begins at p that does not lie whole there."""
    n = end - p
    if not n or d[p] != PROXY_1[0] and d[p] != PROXY_2[0]:
        return False
    for k in range(min(n, len(PROXY_1) if d[p] == PROXY_1[0] else len(PROXY_2))):
        if d[p + k] != (PROXY_1[k] if d[p] == PROXY_1[0] else PROXY_2[k]):
            return False
    return not (d[p] == PROXY_1[0] and n >= PROXY_1_MAX or proxy_header(d, p, end))


@kernel
def has(d, p, end, word):
    """Whether a word, which is given in small letters, occurs; letters of either size."""
    for q in range(p, end - len(word) + 1):
        k = 0
        while k < len(word) and (d[q + k] | 32 if 65 <= d[q + k] <= 90 else d[q + k]) == word[k]:
            k += 1
        if k == len(word):
            return True
    return False


@kernel
def agreed(d, p, end):
    """Whether a server's answer of HTTP that begins here is 101, Switching Protocols."""
    return end - p >= 12 and d[p] == 72 and d[p + 9] == 49 and d[p + 10] == 48 and d[p + 11] == 49


@kernel
def strange(d, p, end):
    """Whether these, the first bytes of a side, show that it does not begin as MQTT does: with
    CONNECT, with CONNACK or AUTH, with what asks for a WebSocket or grants it, or with a header of
    the PROXY protocol, as far as it is there."""
    known = d[p] == 0x10 or d[p] == 0x20 or d[p] == 0xF0 or d[p] == 71 or d[p] == 72
    return not (known or proxy_header(d, p, end) or proxy_begun(d, p, end))


@kernel
def asks(d, p, end, port, swap):
    """Whether a segment begins MQTT, as a client's or as the server's answer: KEY.server. TLS is
    taken for it on its port, or if its hello asks for "mqtt" (ALPN); a WebSocket, if that protocol
    is asked for or granted."""
    skip = proxy_header(d, p, end)
    p += skip
    mine = 1 if swap else 2
    if end - p < 12:
        return 0
    if is_connect(d, p, end - p):
        return mine
    if d[p] == 0x16 and d[p + 1] == 3 and d[p + 5] == 1:
        return mine + 2 if port == TLS_PORT or has(d, p, end, ALPN) else 0
    if d[p] == 71 and d[p + 1] == 69 and d[p + 2] == 84:  # GET
        return mine + 2 if has(d, p, end, PROTOCOL) and has(d, p, end, WORD) else 0
    if agreed(d, p, end):  # the source is the broker
        return 5 - mine if has(d, p, end, PROTOCOL) and has(d, p, end, WORD) else 0
    return 0
