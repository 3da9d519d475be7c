"""Where an MQTT packet may begin in a stream that one did not see from its beginning, compiled.

Knows: what every packet type's header can look like from either side, in MQTT 5, too, as nobody
knows the version then. Must not know: streams,
connections.
"""


from ..compiled.jit import kernel, wide
from ..compiled.layout import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)  # fmt: skip
from ..tcp.openings import is_connect
from .properties import variable

#: Bits: types that a client may send, that a server may send.
CLIENT_TYPES = 0b0101_0101_1111_1010
SERVER_TYPES = 0b0110_1010_1111_1100
CLIENT_ONLY, SERVER_ONLY = CLIENT_TYPES & ~SERVER_TYPES, SERVER_TYPES & ~CLIENT_TYPES
ENOUGH = 8  #: packets that follow one another without a fault: that is no chance any more
LONG_TEXT = 1 << 12  #: bytes of an acknowledgement with properties that is believed
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
        b = wide(d[p + 1 + k])
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
    if kind == PUBACK or kind == PUBREC or kind == PUBREL or kind == PUBCOMP or kind == CONNACK:
        return 2 <= rem < LONG_TEXT
    if kind == UNSUBACK:
        return rem == 2 or 4 <= rem < LONG_TEXT
    if kind == PINGREQ or kind == PINGRESP:
        return rem == 0
    if kind == DISCONNECT:
        return rem < LONG_TEXT
    if kind == CONNECT:
        return rem >= 12
    if kind == SUBSCRIBE:
        return rem >= 6
    if kind == UNSUBSCRIBE:
        return rem >= 5
    return rem >= 3


@kernel
def _reason_fits(code):
    return code in (0, 1, 2, 4, 16, 17, 24, 25) or 128 <= code <= 162


@kernel
def _reasoned_fits(d, q, end, rem, kind):
    """What MQTT 5 has behind the packet identifier of an acknowledgement, and in CONNACK and
    DISCONNECT: a reason code and properties that fill the packet."""
    at = 0 if kind == DISCONNECT else 1 if kind == CONNACK else 2
    if rem <= at or q + at >= end:
        return True
    if kind == CONNACK and rem == 2:
        return d[q] <= 1 and (d[q + 1] <= 5 or _reason_fits(d[q + 1]))
    if not _reason_fits(d[q + at]) or kind == CONNACK and d[q] > 1:
        return False
    return rem < at + 2 or q + at + 1 >= end or d[q + at + 1] >= 128 or (
        d[q + at + 1] == rem - at - 2)  # fmt: skip


@kernel
def _publish_fits(d, q, end, rem, qos):
    """The topic of the PUBLISH whose variable header is at q is one, as far as it is there; an
    empty one has properties with a topic alias."""
    if q + 2 > end:
        return True
    n = wide(d[q]) << 8 | wide(d[q + 1])
    head = 2 + n + (2 if qos else 0)
    if head > rem or n == 0 and (head + 4 > rem or q + head < end and d[q + head] < 3):
        return False
    if n == 0 and q + head + 1 < end and d[q + head + 1] not in (1, 2, 3, 8, 9, 11, 35, 38):
        return False
    for k in range(q + 2, min(q + 2 + n, end)):
        b = d[k]
        if b < 32 or b == 127 or b == 35 or b == 43:
            return False
    return not (qos and q + 4 + n <= end and d[q + 2 + n] == 0 and d[q + 3 + n] == 0)


@kernel
def _list_fits(d, q, end, with_qos):
    while q + 2 <= end:
        n = wide(d[q]) << 8 | wide(d[q + 1])
        q += 2 + n + with_qos
        if n == 0 or q > end or with_qos and (d[q - 1] > 0x2E or d[q - 1] & 3 == 3):
            return False
    return q == end


@kernel
def _filters_fit(d, q, end, with_qos):
    """The payload of SUBSCRIBE or UNSUBSCRIBE, which is all there, is a list of filters, maybe
    behind properties."""
    q += 2
    behind = q + 1 + wide(d[q])
    return _list_fits(d, q, end, with_qos) or behind < end and _list_fits(d, behind, end, with_qos)


@kernel
def _codes_fit(d, q, end):
    """The payload of SUBACK, which is all there: reason codes, maybe behind properties."""
    behind = q + 3 + wide(d[q + 2])
    for start in (q + 2, behind):
        k = start
        while k < end and _reason_fits(d[k]):
            k += 1
        if k == end and start < end:
            return True
    return False


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
    if kind == CONNECT and not is_connect(d, p, end - p):
        return NEVER
    if (kind == SUBSCRIBE or kind == UNSUBSCRIBE) and q + rem <= end:
        return q - p + rem if _filters_fit(d, q, q + rem, kind == SUBSCRIBE) else NEVER
    if kind == SUBACK and q + rem <= end and not _codes_fit(d, q, q + rem):
        return NEVER
    acks = kind == CONNACK or PUBACK <= kind <= PUBCOMP or kind == DISCONNECT
    if acks and not _reasoned_fits(d, q, end, rem, kind):
        return NEVER
    return q - p + rem


@kernel
def _passed(d, q, end, times):
    """The place behind so many strings from q on; behind `end` if they are not all there."""
    for _ in range(times):
        q = q + 2 + (wide(d[q]) << 8 | wide(d[q + 1])) if q + 2 <= end else end + 1
    return q


@kernel
def shaped_as_connect(d, p, end):
    """Whether a CONNECT lies whole at p, whatever its protocol name and the flags of its fixed
    header are: its fields, as the connect flags announce them, fill it to its last byte."""
    rem, q = length_at(d, p, end)
    if d[p] >> 4 != CONNECT or q <= 0 or q + rem > end or rem < 12:
        return False
    end = q + rem
    at = _passed(d, q, end, 1)  # of the level
    if at + 6 > end:
        return False
    five, flags = d[at] & 127 == 5, wide(d[at + 1])
    q = at + 4
    if five:
        size, q = variable(d, q, end)
        q = q + size if q >= 0 else end + 1
    q = _passed(d, q, end, 1)
    if flags & 4 and five and q < end:
        size, q = variable(d, q, end)
        q = q + size if q >= 0 else end + 1
    return _passed(d, q, end, (flags >> 1 & 2) + (flags >> 7) + (flags >> 6 & 1)) == end


@kernel
def _has_topic(d, p, end):
    """Whether the whole topic of a PUBLISH that begins at p is there."""
    _, q = length_at(d, p, end)
    if d[p] >> 4 != PUBLISH or q <= 0 or q + 2 > end:
        return False
    return q + 2 + (wide(d[q]) << 8 | wide(d[q + 1])) <= end


@kernel
def repeats(d, begin, p, end):
    """Whether the bytes from p to `end` only repeat the four before, of what begins at `begin`. A
    payload of equal bytes that a WebSocket masks does so: it confirms no packet."""
    for k in range(p, end):
        if k - 4 < begin or d[k] != d[k - 4]:
            return False
    return True


@kernel
def chain(d, begin, p, end, from_server, at_start):
    """Whether packets follow one another from p on, and are not the same four bytes again and
    again. begin: of what is there before p."""
    good, again, q = 0, 0, p
    while True:
        n = packet_at(d, q, end, from_server)
        if n < 0:
            return False
        if n == NOT_YET:
            return good > 1 or at_start and good > 0 and not again
        if q + n > end:
            # At the beginning of a segment an unfinished PUBLISH with a sound topic will do.
            topic = good > 0 or _has_topic(d, q, end)
            return good > 1 or at_start and n < LONG and topic and not again
        if repeats(d, begin, q, q + n):
            again += 1
        else:
            good += 1
        q += n
        if good >= ENOUGH or again >= ENOUGH:
            return good >= ENOUGH
        if q == end:
            return good > 1 or not again and (at_start or n > 4)


@kernel
def boundary(d, p, end, from_server):
    """The first place from p on where packets seem to begin, or -1. p begins a segment, which
    is where most packets begin, so less is asked for there."""
    if chain(d, p, p, end, from_server, True):
        return p
    for q in range(p + 1, end - 1):
        if chain(d, p, q, end, from_server, False):
            return q
    return -1
