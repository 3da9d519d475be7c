"""The bytes of MQTT 3.1.1 that a subscriber meets: build the few packets it sends, frame what
comes. Pure functions over bytes. Must not know sockets, the spool or what a payload means.

Source: MQTT Version 3.1.1, OASIS Standard, sections 2.2 (fixed header) and 3.
"""

import struct
from dataclasses import dataclass, field

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x20, 0x30, 0x40, 0x50, 0x60, 0x70
SUBACK, PINGRESP = 0x90, 0xD0
PINGREQ_PACKET = b"\xc0\x00"
DISCONNECT_PACKET = b"\xe0\x00"
PUBACK_HEAD = b"\x40\x02"
PUBREC_HEAD = b"\x50\x02"
PUBCOMP_HEAD = b"\x70\x02"

REFUSALS = {
    1: "protocol version not accepted",
    2: "client id not accepted",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorised",
}


class ProtocolError(Exception):
    """The broker sent bytes that MQTT 3.1.1 does not allow; the connection is of no use."""


class Closed(ConnectionError):
    """The other side closed the connection."""


def varint(number):
    """Encode a remaining length, 0..268435455 [section 2.2.3]."""
    if not 0 <= number <= 268_435_455:
        raise ValueError(f"remaining length {number} is outside 0..268435455")
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def text(value):
    """A length-prefixed UTF-8 string (or bytes as they are), at most 65535 bytes."""
    raw = value.encode() if isinstance(value, str) else value
    if len(raw) > 65_535:
        raise ValueError(f"an MQTT string holds at most 65535 bytes, this one has {len(raw)}")
    return struct.pack(">H", len(raw)) + raw


def connect_packet(client_id, keepalive, username=None, password=None):
    """CONNECT with clean session 0: the broker is to keep the session [section 3.1].

    keepalive is in seconds, 1..65535. password needs username [MQTT-3.1.2-22].
    """
    flags = 0
    tail = text(client_id)
    if username is not None:
        flags |= 0x80
        tail += text(username)
        if password is not None:
            flags |= 0x40
            tail += text(password)
    body = text("MQTT") + bytes((4, flags)) + struct.pack(">H", keepalive) + tail
    return b"\x10" + varint(len(body)) + body


def subscribe_packet(packet_id, filters, qos):
    """SUBSCRIBE to every filter at one QoS [section 3.8]."""
    body = struct.pack(">H", packet_id)
    for name in filters:
        body += text(name) + bytes((qos,))
    return b"\x82" + varint(len(body)) + body


def publish_packet(topic, payload, qos=0, retain=False, packet_id=0, dup=False):
    """One whole PUBLISH [section 3.3]; packet_id is used for QoS 1 and 2."""
    body = text(topic)
    if qos:
        body += struct.pack(">H", packet_id)
    head = PUBLISH | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return bytes((head,)) + varint(len(body) + len(payload)) + body + payload


@dataclass(slots=True)
class Scan:
    """What one read held, split by `scan`."""

    consumed: int = 0  #: bytes of whole packets; the rest is the start of the next one
    body: bytes = b""  #: the PUBLISH packets, one behind the other, exactly as received
    messages: list = field(default_factory=list)  #: (topic, payload) bytes of each PUBLISH
    acks: bytearray = field(default_factory=bytearray)  #: what to send once `body` is durable
    others: list = field(default_factory=list)  #: (first byte, body) of every other packet


def _long_size(data, pos, end):
    """Remaining length of two to four bytes at pos: (size, start of body); size -1: cut off."""
    size = shift = 0
    while pos < end:
        byte = data[pos]
        pos += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return size, pos
        if shift > 21:
            raise ProtocolError("remaining length of more than four bytes [MQTT 2.2.3]")
    return -1, pos


def scan(data):
    """Split received bytes into whole packets; the hot loop of the bridge.

    Raises ProtocolError for what a broker must not send.
    """
    out = Scan()
    messages, acks, pieces = out.messages, out.acks, []
    end, pos, run = len(data), 0, 0
    while end - pos >= 2:
        head, size, start = data[pos], data[pos + 1], pos + 2
        if size >= 0x80:
            size, start = _long_size(data, pos + 1, end)
            if size < 0:
                break
        stop = start + size
        if stop > end:
            break
        if head & 0xF0 == PUBLISH:
            name = start + 2
            body = name + (data[start] << 8 | data[start + 1]) if size >= 2 else stop + 1
            topic = data[name:body]
            qos = head & 6
            if qos:
                packet_id = data[body : body + 2]
                body += 2
                acks += (PUBACK_HEAD if qos == 2 else PUBREC_HEAD) + packet_id
            if body > stop or qos == 6:
                raise ProtocolError(f"malformed PUBLISH, first byte 0x{head:02x} [MQTT 3.3]")
            messages.append((topic, data[body:stop]))
        else:
            out.others.append((head, data[start:stop]))
            pieces.append(data[run:pos])
            run = stop
        pos = stop
    pieces.append(data[run:pos])
    out.body = b"".join(pieces) if len(pieces) > 1 else pieces[0]
    out.consumed = pos
    return out


def frames(body):
    """Iterate over spooled PUBLISH packets:
    (position in body, first byte, topic, packet id or None, payload)."""
    pos, end = 0, len(body)
    while pos < end:
        at, head, size, start = pos, body[pos], body[pos + 1], pos + 2
        if size >= 0x80:
            size, start = _long_size(body, pos + 1, end)
        pos = start + size
        name = start + 2
        rest = name + (body[start] << 8 | body[start + 1])
        topic = body[name:rest]
        packet_id = None
        if head & 6:
            packet_id = body[rest] << 8 | body[rest + 1]
            rest += 2
        yield at, head, topic, packet_id, body[rest:pos]
