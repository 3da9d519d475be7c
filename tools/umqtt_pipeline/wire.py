"""The bytes of MQTT 3.1.1 that a subscriber meets: build the few packets it sends, frame what
comes. Pure functions over bytes. Must not know sockets, the spool or what a payload means.

Source: MQTT Version 3.1.1, OASIS Standard, sections 2.2 (fixed header) and 3.
"""

import struct
from dataclasses import dataclass, field

import numpy as np

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x20, 0x30, 0x40, 0x50, 0x60, 0x70
SUBACK, UNSUBACK, PINGRESP = 0x90, 0xB0, 0xD0
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


def unsubscribe_packet(packet_id, filters):
    """UNSUBSCRIBE from every filter [section 3.10]."""
    body = struct.pack(">H", packet_id) + b"".join(map(text, filters))
    return b"\xa2" + varint(len(body)) + body


def publish_packet(topic, payload, qos=0, retain=False, packet_id=0, dup=False):
    """One whole PUBLISH [section 3.3]; packet_id is used for QoS 1 and 2."""
    body = text(topic)
    if qos:
        body += struct.pack(">H", packet_id)
    head = PUBLISH | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return bytes((head,)) + varint(len(body) + len(payload)) + body + payload


@dataclass(slots=True)
class Frames:
    """Where the parts of each PUBLISH lie in the bytes that hold them: numpy arrays, one element
    a packet. A topic is data[topic:topic_end], a payload data[payload:end]."""

    start: np.ndarray
    head: np.ndarray  #: first byte, with DUP, QoS and RETAIN
    topic: np.ndarray
    topic_end: np.ndarray  #: where the packet identifier is, if QoS is not 0
    payload: np.ndarray
    end: np.ndarray

    def __len__(self):
        return len(self.start)

    @property
    def qos(self):
        return self.head >> 1 & 3

    def packet_ids(self, raw):
        """Packet identifiers, 0 for QoS 0; raw: the bytes as uint8 array."""
        at = np.minimum(self.topic_end, len(raw) - 2)
        ids = raw[at].astype(np.int32) << 8 | raw[at + 1]
        return np.where(self.head & 6, ids, 0)

    def moved(self, by):
        """The same with every position moved by `by` bytes (an int, or one for each)."""
        parts = (self.topic, self.topic_end, self.payload, self.end)
        return Frames(self.start + by, self.head, *(part + by for part in parts))

    def part(self, rows):
        """Some of them: a slice, a bool array or indices."""
        return Frames(*(getattr(self, name)[rows] for name in self.__slots__))


def joined(parts):
    """Several Frames, already moved to where their bytes lie in common, as one."""
    columns = ([getattr(part, name) for part in parts] for name in Frames.__slots__)
    return Frames(*map(np.concatenate, columns))


@dataclass(slots=True)
class Scan:
    """What one read held, split by `scan`."""

    consumed: int = 0  #: bytes of whole packets; the rest is the start of the next one
    needs: int = 0  #: bytes of that one, when its remaining length is there; else 0
    body: bytes = b""  #: the PUBLISH packets, one behind the other, exactly as received
    count: int = 0  #: how many they are
    acks: bytes = b""  #: what to send once `body` is durable
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
    """Split received bytes into whole packets: the hot loop of the bridge.

    Raises ProtocolError for what a broker must not send.
    """
    out, pieces, acks = Scan(), [], []
    acknowledge = acks.append
    end, pos, run = len(data), 0, 0
    while end - pos >= 2:
        head, size, start = data[pos], data[pos + 1], pos + 2
        if size >= 0x80:
            if start < end and data[start] < 0x80:  # two bytes: nearly all telemetry
                size, start = size & 0x7F | data[start] << 7, start + 1
            else:
                size, start = _long_size(data, pos + 1, end)
                if size < 0:
                    break
        stop = start + size
        if stop > end:
            out.needs = stop - pos
            break
        if head & 0xF0 == PUBLISH:
            acknowledge(_ack(data, head, start, stop))
        else:
            out.others.append((head, data[start:stop]))
            pieces.append(data[run:pos])
            run = stop
        pos = stop
    pieces.append(data[run:pos])
    out.body = b"".join(pieces) if len(pieces) > 1 else pieces[0]
    out.consumed, out.count, out.acks = pos, len(acks), b"".join(acks)
    return out


def _ack(data, head, start, stop):
    """PUBACK or PUBREC for the PUBLISH whose variable header and payload are data[start:stop];
    nothing for QoS 0."""
    at = start + 2
    if at <= stop:
        at += data[start] << 8 | data[start + 1]
        qos = head & 6
        if at + 2 <= stop and qos == 2:
            return PUBACK_HEAD + data[at : at + 2]
        if at + 2 <= stop and qos == 4:
            return PUBREC_HEAD + data[at : at + 2]
        if at <= stop and not qos:
            return b""
    raise ProtocolError(f"malformed PUBLISH, first byte 0x{head:02x} [MQTT 3.3]")


def beginning(data):
    """(topic, acknowledgement) of a PUBLISH of which only the beginning is there; None if that is
    too little. Raises ProtocolError for another packet, and for a malformed one."""
    head = data[0]
    if head & 0xF0 != PUBLISH:
        raise ProtocolError(f"a packet too long for its kind, first byte 0x{head:02x}")
    size, start = _long_size(data, 1, len(data))
    at = start + 2
    if len(data) >= at:
        at += data[start] << 8 | data[start + 1]
    if size < 0 or len(data) < at + (2 if head & 6 else 0):
        return None
    return data[start + 2 : at], _ack(data, head, start, start + size)


def _cut(data):
    """Positions at which the whole packets in `data` begin, and where the last one ends."""
    edges, pos, end = [0], 0, len(data)
    found = edges.append
    while end - pos >= 2:
        size = data[pos + 1]
        if size < 0x80:
            pos += 2 + size
        elif pos + 2 < end and data[pos + 2] < 0x80:
            pos += 3 + (size & 0x7F | data[pos + 2] << 7)
        else:
            size, start = _long_size(data, pos + 1, end)
            if size < 0:
                break
            pos = start + size
        if pos > end:
            break
        found(pos)
    return edges


def frames(body):
    """Frames of spooled bytes, which hold whole PUBLISH packets, checked by `scan`, and nothing
    else. The loop in Python looks at nothing but lengths.

    Raises ProtocolError if they do not.
    """
    edges = np.asarray(_cut(body), np.int64)
    if edges[-1] != len(body):
        raise ProtocolError(f"half a packet at {edges[-1]} of {len(body)} spooled bytes")
    raw = np.frombuffer(body, np.uint8)
    start, end = edges[:-1], edges[1:]
    topic = start + 2
    for _ in range(3):
        topic += raw[topic - 1] >= 0x80  # the remaining length goes on
    head = raw[start]
    topic_end = topic + 2
    if len(start):
        at = np.minimum(topic, len(body) - 2)
        topic_end += raw[at].astype(np.int64) << 8 | raw[at + 1]
    payload = topic_end + np.where(head & 6, 2, 0)
    if (payload > end).any():
        raise ProtocolError("a spooled PUBLISH is malformed [MQTT 3.3]")
    return Frames(start, head, topic + 2, topic_end, payload, end)
