"""The properties of MQTT 5 (section 2.2.2.2): names and types, and what they limit; compiled.

Knows: bytes of properties. Must not know: which packet may have which (bodies.py).
"""

import numpy as np

from ..compiled.jit import kernel, wide

BYTE, TWO, FOUR, VARIABLE, TEXT, BINARY, PAIR = range(1, 8)
#: number: (name, type)
PROPERTIES = {
    0x01: ("Payload Format Indicator", BYTE),
    0x02: ("Message Expiry Interval", FOUR),
    0x03: ("Content Type", TEXT),
    0x08: ("Response Topic", TEXT),
    0x09: ("Correlation Data", BINARY),
    0x0B: ("Subscription Identifier", VARIABLE),
    0x11: ("Session Expiry Interval", FOUR),
    0x12: ("Assigned Client Identifier", TEXT),
    0x13: ("Server Keep Alive", TWO),
    0x15: ("Authentication Method", TEXT),
    0x16: ("Authentication Data", BINARY),
    0x17: ("Request Problem Information", BYTE),
    0x18: ("Will Delay Interval", FOUR),
    0x19: ("Request Response Information", BYTE),
    0x1A: ("Response Information", TEXT),
    0x1C: ("Server Reference", TEXT),
    0x1F: ("Reason String", TEXT),
    0x21: ("Receive Maximum", TWO),
    0x22: ("Topic Alias Maximum", TWO),
    0x23: ("Topic Alias", TWO),
    0x24: ("Maximum QoS", BYTE),
    0x25: ("Retain Available", BYTE),
    0x26: ("User Property", PAIR),
    0x27: ("Maximum Packet Size", FOUR),
    0x28: ("Wildcard Subscription Available", BYTE),
    0x29: ("Subscription Identifier Available", BYTE),
    0x2A: ("Shared Subscription Available", BYTE),
}
KEEP_ALIVE, RECEIVE, ALIASES, ALIASED, QOS, RETAIN, SIZE = 0x13, 0x21, 0x22, 0x23, 0x24, 0x25, 0x27
METHOD, FORMAT = 0x15, 0x01
_TYPES = np.array([PROPERTIES.get(k, ("", 0))[1] for k in range(128)], np.int64)


@kernel
def variable(d, p, end):
    """(a Variable Byte Integer, place behind it); place -1: it is not whole, or too long."""
    value = 0
    for k in range(min(4, end - p)):
        value |= (wide(d[p + k]) & 127) << 7 * k
        if d[p + k] < 128:
            return value, p + k + 1
    return 0, -1


@kernel
def _number(d, p, n):
    value = 0
    for k in range(n):
        value = value << 8 | wide(d[p + k])
    return value


@kernel
def _size(d, p, end, kind):
    """Bytes of a value of this type, or -1."""
    if kind == BYTE:
        return 1
    if kind == TWO:
        return 2
    if kind == FOUR:
        return 4
    if kind == VARIABLE:
        _, q = variable(d, p, end)
        return q - p if q >= 0 else -1
    if kind < TEXT or p + 2 > end:
        return -1
    n = 2 + _number(d, p, 2)
    if kind == PAIR:
        return n + 2 + _number(d, p + n, 2) if p + n + 2 <= end else -1
    return n


@kernel
def number_of(d, p, end, wanted):
    """The number that a property has, in the properties from p to `end`; -1 if it is not there."""
    while p + 1 < end:
        kind = _TYPES[d[p] & 127]
        n = _size(d, p + 1, end, kind)
        if n < 0 or p + 1 + n > end:
            return -1
        if d[p] == wanted:
            return _number(d, p + 1, n)
        p += 1 + n
    return -1


@kernel
def has_property(d, p, end, wanted):
    """Whether the properties whose length is at p, and which end before `end`, have a `wanted`."""
    size, q = variable(d, p, end)
    end = min(end, q + size)
    while 0 <= q and q + 1 < end:
        if d[q] == wanted:
            return True
        n = _size(d, q + 1, end, _TYPES[d[q] & 127])
        q = q + 1 + n if n >= 0 else end
    return False


@kernel
def limits(d, p, end, s, c, by_server):
    """What the properties of a CONNECT or CONNACK, whose length is at p, let the other side send:
    its stream `s`. The server's keep alive is the connection's, `c`. Of properties that are there
    in part, those count that are there; nothing is known of the others."""
    size, q = variable(d, p, end)
    if q < 0:
        return
    whole = q + size <= end
    end = min(end, q + size)
    aliases, received = number_of(d, q, end, ALIASES), number_of(d, q, end, RECEIVE)
    if whole or aliases >= 0:
        s["alias_max"] = max(0, aliases)
    if whole or received > 0:
        s["receive_max"] = received if received > 0 else 65_535
    s["packet_max"] = max(0, number_of(d, q, end, SIZE))
    if by_server:
        s["max_qos"] = 1 + number_of(d, q, end, QOS)
        s["no_retain"] = number_of(d, q, end, RETAIN) == 0
        keep_alive = number_of(d, q, end, KEEP_ALIVE)
        c["agreed"] = whole or keep_alive >= 0
        if keep_alive >= 0:
            c["keep_alive"], c["imposed"] = keep_alive, 1
