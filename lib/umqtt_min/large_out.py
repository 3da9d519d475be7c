"""A PUBLISH to the broker that is longer than the buffer: piece by piece.

Knows: how to lay it down. Loaded with the first such message.
"""

from .packets import pack
from .port import const

_QOS = const(0x06)  # as in packets.py
_MOST = const(268369912)  # payload that fits with the longest topic [MQTT 3.1.1, 2.2.3]


def send(tx, op, topic, msg):
    """Send it through the Sender `tx`; as Sender.publish(). Raises ValueError, OSError."""
    if len(msg) > _MOST:
        tx.client._busy &= 2
        raise ValueError("message of %d bytes" % len(msg))
    _begin(tx, op, len(topic), len(msg) + 2 if op & _QOS else len(msg))
    tx.drain()
    tx.send(topic, 0, len(topic))
    tx.drain()
    if op & _QOS:
        tx.buf[0] = tx.pid >> 8
        tx.buf[1] = tx.pid & 255
        tx.send(tx.buf, 0, 2)
        tx.drain()
    tx.send(msg, 0, len(msg))


def _begin(tx, op, topic, rest):
    # The fixed header and the topic length; topic, rest: bytes of the topic, and of what follows.
    tx.topic = None
    tx.push()  # it takes more than one write
    op = pack(tx.buf, op, 2 + topic + rest)
    tx.buf[5] = topic >> 8
    tx.buf[6] = topic & 255
    tx.send(tx.buf, op, 7 - op)
