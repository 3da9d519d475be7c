"""Where an MQTT packet may begin in a stream that one did not see from its beginning, compiled.

Knows: what every packet type's header can look like from either side. Must not know: streams,
connections.
"""

import numpy as np

from ..compiled.jit import kernel
from ..compiled.layout import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)  # fmt: skip
from ..tcp.headers import _is_connect

#: Bits: types that a client may send, that a server may send.
CLIENT_TYPES = 0b0101_0101_1111_1010
SERVER_TYPES = 0b0010_1010_1111_1100
ENOUGH = 8  #: packets that follow one another without a fault: that is no chance any more
LONG = 1 << 20  #: bytes of an unfinished packet that is not believed any more
NOT_YET, NEVER = 0, -1


@kernel
def length_at(d, p, end):
    """(remaining length, place behind it) of the packet at p; place 0: bytes are missing, -1:
    it has more than four bytes."""
    value = 0
    for k in range(4):
        if p + 1 + k >= end:
            return 0, 0
        b = np.int64(d[p + 1 + k])
        value |= (b & 127) << 7 * k
        if b < 128:
            return value, p + 2 + k
    return 0, -1


@kernel
def _flags_fit(kind, flags):
    if kind == PUBLISH:
        return flags & 6 != 6 and flags & 14 != 8
    if kind == PUBREL or kind == SUBSCRIBE or kind == UNSUBSCRIBE:
        return flags & 7 == 2
    return flags == 0


@kernel
def _length_fits(kind, rem):
    if kind == CONNACK or PUBACK <= kind <= PUBCOMP or kind == UNSUBACK:
        return rem == 2
    if kind == PINGREQ or kind == PINGRESP or kind == DISCONNECT:
        return rem == 0
    if kind == CONNECT:
        return rem >= 12
    if kind == SUBSCRIBE:
        return rem >= 6
    if kind == UNSUBSCRIBE:
        return rem >= 5
    return rem >= 3


@kernel
def _publish_fits(d, q, end, rem, qos):
    """The topic of the PUBLISH whose variable header is at q is one, as far as it is there."""
    if q + 2 > end:
        return True
    n = np.int64(d[q]) << 8 | np.int64(d[q + 1])
    if n == 0 or 2 + n + (2 if qos else 0) > rem:
        return False
    for k in range(q + 2, min(q + 2 + n, end)):
        b = d[k]
        if b < 32 or b == 127 or b == 35 or b == 43:
            return False
    return not (qos and q + 4 + n <= end and d[q + 2 + n] == 0 and d[q + 3 + n] == 0)


@kernel
def _filters_fit(d, q, end, with_qos):
    """The payload of SUBSCRIBE or UNSUBSCRIBE, which is all there, is a list of filters."""
    q += 2
    while q + 2 <= end:
        n = np.int64(d[q]) << 8 | np.int64(d[q + 1])
        q += 2 + n + with_qos
        if n == 0 or q > end or with_qos and d[q - 1] > 2:
            return False
    return q == end


@kernel
def packet_at(d, p, end, from_server):
    """Length of the packet that seems to begin at p, NOT_YET if too little is there, or NEVER."""
    kind, flags = d[p] >> 4, d[p] & 15
    types = SERVER_TYPES if from_server else CLIENT_TYPES
    if not types >> kind & 1 or not _flags_fit(kind, flags):
        return NEVER
    rem, q = length_at(d, p, end)
    if q <= 0:
        return q
    if not _length_fits(kind, rem):
        return NEVER
    if kind == PUBLISH and not _publish_fits(d, q, end, rem, flags & 6):
        return NEVER
    if kind == CONNECT and not _is_connect(d, p, end - p):
        return NEVER
    if (kind == SUBSCRIBE or kind == UNSUBSCRIBE) and q + rem <= end:
        return q - p + rem if _filters_fit(d, q, q + rem, kind == SUBSCRIBE) else NEVER
    if kind == SUBACK and q + rem <= end:
        for k in range(q + 2, q + rem):
            if d[k] > 2 and d[k] != 128:
                return NEVER
    return q - p + rem


@kernel
def _has_topic(d, p, end):
    """Whether the whole topic of a PUBLISH that begins at p is there."""
    _, q = length_at(d, p, end)
    if d[p] >> 4 != PUBLISH or q <= 0 or q + 2 > end:
        return False
    return q + 2 + (np.int64(d[q]) << 8 | np.int64(d[q + 1])) <= end


@kernel
def _chain(d, p, end, from_server, at_start):
    """Whether packets follow one another from p on."""
    good, q = 0, p
    while True:
        n = packet_at(d, q, end, from_server)
        if n < 0:
            return False
        if n == NOT_YET:
            return good > 1 or at_start and good > 0
        if q + n > end:
            # At the beginning of a segment an unfinished PUBLISH with a sound topic will do.
            return good > 1 or at_start and n < LONG and (good > 0 or _has_topic(d, q, end))
        good += 1
        q += n
        if good >= ENOUGH:
            return True
        if q == end:
            return at_start or good > 1 or n > 4


@kernel
def boundary(d, p, end, from_server):
    """The first place from p on where packets seem to begin, or -1. p begins a segment, which
    is where most packets begin, so less is asked for there."""
    if _chain(d, p, end, from_server, True):
        return p
    for q in range(p + 1, end - 1):
        if _chain(d, q, end, from_server, False):
            return q
    return -1
