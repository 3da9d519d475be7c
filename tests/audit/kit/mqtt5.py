"""Packets and properties of MQTT 5, as bytes."""

import struct

import audit_kit as kit


def prop(ident, value):
    """A property; value: its bytes."""
    return bytes([ident]) + value


def props(*items):
    """Properties with their length."""
    raw = b"".join(items)
    return kit.length(len(raw)) + raw


def number(size, value):
    return value.to_bytes(size, "big")


def five(head, *parts):
    return kit.packet(head, b"".join(parts))


def connect(*items, client_id="five", keep_alive=60, flags=2, rest=b""):
    return five(0x10, kit.string("MQTT"), bytes([5, flags]), struct.pack(">H", keep_alive),
                props(*items), kit.string(client_id), rest)  # fmt: skip


def connack(*items, code=0, present=0):
    return five(0x20, bytes([present, code]), props(*items))


def publish(topic, *items, qos=0, ident=0, payload=b"x", dup=False, retain=False):
    mine = struct.pack(">H", ident) if qos else b""
    head = 0x30 | dup << 3 | qos << 1 | retain
    return five(head, kit.string(topic), mine, props(*items), payload)


def ack(kind, ident, code=None, *items):
    more = b"" if code is None else bytes([code]) + (props(*items) if items else b"")
    return five(kind << 4 | (2 if kind == 6 else 0), struct.pack(">H", ident), more)


def subscribe(ident, *wanted, items=()):
    return five(0x82, struct.pack(">H", ident), props(*items),
                *(kit.string(f) + bytes([o]) for f, o in wanted))  # fmt: skip


def answer(kind, ident, *codes):
    return five(kind << 4, struct.pack(">H", ident), props(), bytes(codes))


def alias(n):
    return prop(0x23, number(2, n))
