"""SUBSCRIBE, UNSUBSCRIBE and their answers.

Knows: sections 3.8 to 3.11 of MQTT 3.1.1. Loaded with the first subscription;
it allocates its packet, which the steady state does not need.
"""


from .exception import MQTTException
from .packets import pack
from .port import const, ticks_add, ticks_ms
from .topics import check_filter

# As in errors.py and packets.py
_SUBSCRIBE_REFUSED = const(128)
_ROW_TOPIC_MAX = const(2)
_ROW_SESSION = const(5)
_SUBSCRIBE = const(0x82)
_SUBACK = const(0x90)
_UNSUBSCRIBE = const(0xA2)
_UNSUBACK = const(0xB0)
_SUBACK_FAILURE = const(0x80)

_ONE = (str, bytes, bytearray, memoryview)


def filters(client, topics, qos):
    """A list of (bytes, qos), checked before anything is sent."""
    if isinstance(topics, _ONE):
        topics = [(topics, qos)]
    out = []
    try:
        pairs = []
        for pair in topics:
            if isinstance(pair, _ONE):  # of two characters
                raise ValueError
            t, q = pair
            pairs.append((t, q))
    except (TypeError, ValueError):
        raise ValueError(
            "topic=%r: a topic filter, or a list of (topic filter, QoS)" % (topics,))
    for t, q in pairs:
        t = client._bytes(t, "topic")
        if q not in (0, 1, 2):
            raise ValueError("qos=%r: 0, 1 or 2" % (q,))
        check_filter(t, client.protocol[_ROW_TOPIC_MAX])
        out.append((bytes(t), int(q)))
    if not out:
        raise ValueError("no topic filter [MQTT-3.8.3-3]")
    return out


def names(client, topics):
    """As filters(), of one filter or a list of them without QoS."""
    if isinstance(topics, (list, tuple)):
        topics = [(t, 0) for t in topics]
    return filters(client, topics, 0)


def send(client, op, wanted, codes):
    """Send SUBSCRIBE or UNSUBSCRIBE, for who holds the stream; returns its packet identifier
    as on the wire.

    op: first byte; wanted: from filters(); codes: the answer has a code for each.
    """
    client._tx.push()
    pid = client._rx.wire(client._rx.next_pid())
    body = bytearray(5) + bytes((pid >> 8, pid & 255))
    for t, q in wanted:
        body += bytes((len(t) >> 8, len(t) & 255)) + t
        if codes:
            body.append(q)
    i = pack(body, op, len(body) - 5)
    client._codes = len(wanted) if codes else 0
    client._tx.drain()
    client._tx.send(body, i, len(body) - i)
    return pid


def enter(client, timeout):
    # Take the stream for a packet and its answer; how long that may take, in ms.
    ms = client._tmo
    if timeout is not None:
        from .validate import milliseconds

        ms = milliseconds(client, timeout)
    if client._busy > 1:
        client._raise()
    client._receiver().enter()
    return ms


def _request(client, op, wanted, codes, ms):
    # Send the packet and wait for its answer.
    rx = client._rx
    try:
        rx.waiting = send(client, op, wanted, codes)
    except BaseException:
        client._lost()  # no memory for the packet
        raise
    client._tx.timeout = ticks_add(ticks_ms(), ms)
    rx.wait_for(_SUBACK if codes else _UNSUBACK)


def granted(client, wanted, topic):
    """The QoS granted, or a list of them; MQTTException for a filter that is refused."""
    codes = client._granted
    for i in range(len(wanted)):
        if codes[i] == _SUBACK_FAILURE:
            raise MQTTException(_SUBSCRIBE_REFUSED, wanted[i][0])
    return codes[0] if isinstance(topic, _ONE) else list(codes)


def subscribe(client, topic, qos, handler, timeout):
    """See MQTTClient.subscribe()."""
    wanted = filters(client, topic, qos)
    incoming = client._receiver().messages()  # loaded now, not with the first message
    before = incoming.handlers
    if handler is not None and not callable(handler):
        raise ValueError("handler=%r: a function, or None" % (handler,))
    if 2 in [q for _, q in wanted]:
        incoming.known(0)  # the table is made now, not with the first message
    ms = enter(client, timeout)
    if handler is not None:
        # Before SUBSCRIBE: retained messages may come before SUBACK. And whatever ends the wait:
        # the broker may have subscribed us.
        incoming.handlers = _of(before, wanted, False) + [(t, handler) for t, _ in wanted]
    _request(client, _SUBSCRIBE, wanted, True, ms)
    codes = client._granted
    if handler is not None and _SUBACK_FAILURE in codes:
        refused = [wanted[i] for i in range(len(codes)) if codes[i] == _SUBACK_FAILURE]
        incoming.handlers = (_of(incoming.handlers, refused, False)
                             + _of(before, refused, True))
    return granted(client, wanted, topic)


def _of(handlers, wanted, inside):
    # The handlers of these filters; inside=False: of all others.
    named = [t for t, _ in wanted]
    return [(t, f) for t, f in handlers if (t in named) == inside]


def unsubscribe(client, topic, timeout):
    """See MQTTClient.unsubscribe()."""
    wanted = names(client, topic)
    _request(client, _UNSUBSCRIBE, wanted, False, enter(client, timeout))
    incoming = client._receiver().messages()
    incoming.handlers = _of(incoming.handlers, wanted, False)


def on_suback(client, t):
    """An answer is in the client's buffer: t is SUBACK or UNSUBACK."""
    n = client._rx.n
    if n < (3 if t == _SUBACK else 2) or t == _UNSUBACK and n != 2:
        client._rx.bad("length of SUBACK or UNSUBACK")
    p = client._rx.pos
    buf = client._rx.buf
    pid = buf[p] << 8 | buf[p + 1]
    if not pid:
        client._rx.bad("packet identifier 0 [MQTT-2.3.1-1]")
    codes = getattr(client, "_codes", -1)  # none: nobody ever asked
    if pid != client._rx.waiting or codes < 0:
        client.counters.unexpected += 1
        return
    if t == _SUBACK:
        if n - 2 != codes:
            client._rx.bad("SUBACK with another number of codes [MQTT-3.8.4-5]")
        client._granted = bytes(code(client, buf[p + 2 + i]) for i in range(n - 2))
    client._rx.code = t


def code(client, value):
    # 0, 1, 2 or 0x80 [MQTT-3.9.3-2]; before 3.1.1 the low two bits are the QoS.
    if not client.protocol[_ROW_SESSION]:
        value &= 3
    if value > 2 and value != _SUBACK_FAILURE:
        client._rx.bad("SUBACK code %d [MQTT-3.9.3-2]" % value)
    return value
