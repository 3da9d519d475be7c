"""A prepared publisher: one topic, published to again and again.

Knows: what of a PUBLISH stays the same, and where the Sender keeps the rest. Loaded by those
who ask for it.
"""

from .port import const, ticks_ms

_PUBLISH = const(0x30)  # as in packets.py
_RETAIN = const(0x01)
# Found at once, where the names that are built in are looked for in two tables.
_type = type
_bytes = bytes
_len = len
_FIXED = const(2)  # bytes of a fixed header
_LONGEST = const(129)  # of a packet with such a one


def publisher(client, topic, retain, qos):
    """See MQTTClient.publisher()."""
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    topic = client._name_of(bytes(client._bytes(topic, "topic")))
    made = Publisher(client, topic, retain, int(qos))
    return made.slow if qos else made.publish


class Publisher:
    """publish(payload), for one topic.

    It has a buffer of its own, where a PUBLISH to this topic lies but for its payload: for
    those of which the Remaining Length takes one byte.
    """

    def __init__(self, client, topic, retain, qos):
        self._tx = client._tx
        self._counters = client.counters
        self._topic = topic
        self._retain = retain
        self._qos = qos
        self._at = _FIXED + 2 + len(topic)  # where the payload begins
        self._most = _LONGEST + 1 - self._at
        self._buf = bytearray(_LONGEST)
        self._buf[0] = _PUBLISH | _RETAIN if retain else _PUBLISH
        if self._most > 0:
            self._buf[_FIXED + 1] = len(topic)
            self._buf[_FIXED + 2 : self._at] = topic

    def slow(self, msg):
        """See publisher(): at QoS 1 and 2, and where something is not as it mostly is."""
        return self._tx.client.publish(self._topic, msg, self._retain, self._qos)

    def publish(self, msg):
        """See publisher(): at QoS 0."""
        tx = self._tx
        if (
            tx.client._busy
            or tx.waiting
            or tx.count
            or not tx.sock
            or _type(msg) is not _bytes
            or _len(msg) >= self._most
        ):
            return self.slow(msg)
        tx.client._busy = 1
        tx = self._at + _len(msg)
        self._buf[self._at : tx] = msg
        self._buf[1] = tx - _FIXED
        self._write(tx)

    def _write(self, n):
        # In a function of its own: in one frame both would be too large for the stack.
        try:
            n -= self._tx.sock.write(self._buf, 0, n) or 0
        except BaseException:
            self._tx.client._lost()
            raise
        if n:
            self._rest(n)
        self._tx.time = ticks_ms()
        self._tx.client._busy = 0
        self._counters.sent += 1

    def _rest(self, n):
        # The stream did not take the last n bytes of the packet: the same ones go on.
        tx = self._tx
        tx.data = self._buf
        tx.pos = self._buf[1] + _FIXED - n
        tx.waiting = n
        tx.drain()
