"""The wire format: every packet that a client sends, and the fixed header of
every packet that it receives.

Knows: bytes in a given buffer. Never does: I/O, state, allocation.

A packet is laid down with its body (variable header and payload) at BODY, and
the fixed header right before it: one buffer, one write, whatever the length of
the Remaining Length field.
"""

from micropython import const

BODY = const(5)  # 1 + up to 4 bytes of Remaining Length [MQTT 3.1.1, 2.2.3]


CONNACK = const(2)
PUBLISH = const(3)
PUBACK = const(4)
PUBREC = const(5)
PUBREL = const(6)
PUBCOMP = const(7)
SUBACK = const(9)
UNSUBACK = const(11)
PINGRESP = const(13)


def header(buf, op, n):
    """Put the fixed header of a packet of Remaining Length `n` before BODY.

    Returns the index of its first byte [MQTT 3.1.1, 2.2].
    """
    if n < 128:
        buf[3] = op
        buf[4] = n
        return 3
    i = 3 if n < 16384 else 2 if n < 2097152 else 1
    buf[i - 1] = op
    j = i
    while n > 127:
        buf[j] = n & 127 | 128
        n >>= 7
        j += 1
    buf[j] = n
    return i - 1


def field(buf, i, data):
    """Put a two-byte length and `data` (bytes-like) at `i`; returns the end."""
    n = len(data)
    buf[i] = n >> 8
    buf[i + 1] = n & 255
    i += 2
    buf[i : i + n] = data
    return i + n


def body(buf, topic, pid, msg):
    """Put the body of a PUBLISH at BODY; returns its end, 0 if `buf` is too small.

    pid 0: no packet identifier, QoS 0 [MQTT-2.3.1-5].
    """
    n = BODY + 2 + len(topic) + len(msg)
    if pid:
        n += 2
    if n > len(buf):
        return 0
    i = field(buf, BODY, topic)
    if pid:
        buf[i] = pid >> 8
        buf[i + 1] = pid & 255
        i += 2
    buf[i:n] = msg
    return n


def length(buf, i, end):
    """Read a Remaining Length at `i`.

    Returns it; -1 if bytes are missing, -2 if it is longer than four bytes or
    longer than it need be [MQTT 3.1.1, 2.2.3].
    """
    n = 0
    shift = 0
    while i < end:
        b = buf[i]
        n |= (b & 127) << shift
        if b < 128:
            return -2 if b == 0 and shift else n
        i += 1
        shift += 7
        if shift == 28:
            return -2
    return -1


def move(buf, i, end, d):
    """Move buf[i:end] by `d` places, up or down; a slice would allocate."""
    if d < 0:
        while i < end:
            buf[i + d] = buf[i]
            i += 1
    else:
        while end > i:
            end -= 1
            buf[end + d] = buf[end]
