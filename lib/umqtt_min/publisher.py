"""A prepared publisher: one topic, published to again and again.

Knows: what of a PUBLISH stays the same. Loaded by those who ask for it.
"""

_SENT = 2  # as in counters.py


def publisher(self, topic, retain=False, qos=0):
    """Returns p(payload), which publishes to `topic`: as publish(), only faster.

    topic: str or bytes; qos: 0, 1 or 2; payload: str or bytes-like. p() returns and
    raises what publish() does. The topic is checked here: ValueError.
    """
    if qos not in (0, 1, 2):
        raise ValueError("qos=%r: 0, 1 or 2" % (qos,))
    self._check(bytes(self._bytes(topic)))
    return Publisher(self, self._name, retain, int(qos)).publish


class Publisher:
    """publish(payload), for one topic."""

    def __init__(self, client, topic, retain, qos):
        self._client = client
        self._tx = client._tx
        self._topic = topic
        self._retain = retain
        self._qos = qos
        self._op = 0x31 if retain else 0x30
        self._counts = client._n
        # Where the payload begins, and the longest one of which the fixed header has two
        # bytes and that fits into the buffer.
        self._at = 7 + len(topic)
        self._most = min(134, len(client._tx.buf)) - self._at

    def publish(self, msg):
        """See publisher()."""
        tx = self._tx
        c = self._client
        if (
            tx.topic is not self._topic
            or self._qos
            or c._busy & 1
            or not (c.sock and isinstance(msg, bytes) and len(msg) < self._most)
            or tx.left
        ):
            return c.publish(self._topic, msg, self._retain, self._qos)
        c._busy |= 1
        n = self._at + len(msg)
        tx.buf[self._at : n] = msg
        tx.buf[3] = self._op
        tx.buf[4] = n - 5
        tx.send(tx.buf, 3, n - 3)
        c._busy &= 2
        self._counts[_SENT] += 1
