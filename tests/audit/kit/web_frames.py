"""The upgrade to a WebSocket and its frames, as bytes (RFC 6455)."""

import struct

ASKED = (b"GET /mqtt HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         b"Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
         b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")  # fmt: skip

AGREED = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\n"
          b"Sec-WebSocket-Protocol: mqtt\r\n\r\n")  # fmt: skip


def frame(payload, kind=2, last=True, mask=None):
    """A frame of RFC 6455; mask: four bytes, of a client's."""
    n = len(payload)
    size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n) if n < 65_536 else (
        b"\x7f" + struct.pack(">Q", n))  # fmt: skip
    head = bytes([kind | (128 if last else 0)])
    if mask is None:
        return head + size + payload
    hidden = bytes(b ^ mask[k % 4] for k, b in enumerate(payload))
    return head + bytes([size[0] | 128]) + size[1:] + mask + hidden
