"""A PUBLISH that is longer than the buffer, from the broker or to it. Loaded with the first one.

Knows: how to take it in without losing step. For the callback with bytes it is assembled up to
max_message, and drained beyond that or where there is no memory for it; the callback with views
gets it in pieces. It is acknowledged as its QoS asks when all of it has been handled. How to lay
one down piece by piece.
"""

from .packets import pack
from .port import const

_CALLBACK = const(2)  # as in client.py
_QOS = const(0x06)  # as in packets.py
_ENDS = const(2)  # as in receiver.py
_MOST = const(268369912)  # payload that fits with the longest topic [MQTT 3.1.1, 2.2.3]


class Large:
    """One long PUBLISH on its way in: the one that Receiver.peek() has just looked at."""

    def __init__(self, client):
        self._client = client
        self._incoming = client._rx.incoming
        self._rx = rx = client._rx
        n = rx.n
        self._op = rx.buf[rx.start]
        self._left = n  # bytes of the body that have not been handled
        self._head = bytearray(2)  # topic length; then topic and packet identifier too
        self._have = 0
        self._buf = None  # the payload, when it is assembled
        self._pid = 0
        self._drain = False
        self._last = b""  # the last piece: its callback says that it is the last
        # What came with the head. Whoever found this packet may be a tick, or waits
        # outside the pump: the application hears of it from the pump alone.
        self._at = rx.pos
        self._end = rx.end
        if rx.due:
            rx.due.read()  # the acknowledgements of what came before
        rx.start = rx.end = rx.next = 0
        rx.due = self

    def close(self):
        """The connection has ended."""
        self._rx.due = None

    def read(self):
        """Handle what came with the head, then what is there; returns 0 if nothing came."""
        if not self._client._tx.sleep:
            return 0  # a tick: it is for the application
        rx = self._rx
        n = self._end
        if n:
            self._end = 0
            self._feed(self._at, n)
            return n
        n = rx.read(rx.buf, self._left)
        self._feed(0, n)
        return n

    def _feed(self, i, end):
        # Bytes i to end of the client's buffer are the next ones of the body.
        while i < end and self._have < len(self._head):
            n = min(len(self._head) - self._have, end - i)
            self._head[self._have : self._have + n] = self._rx.buf[i : i + n]
            self._have += n
            self._left -= n
            i += n
            if self._have == len(self._head):
                self._header()
        if i < end:
            self._left -= end - i
            self._payload(self._rx.target[0][i:end])
        if not self._left:
            self._finish()

    def _header(self):
        # Two bytes of it, or all of it, are in.
        rx = self._rx
        qos = self._op >> 1 & 3
        topic = self._head[0] << 8 | self._head[1]
        if qos == 3 or topic + (2 if qos else 0) > self._left + self._have - 2:
            rx.bad("PUBLISH [MQTT-3.3.1-4]")
        if self._have == 2:
            try:
                self._head += bytearray(topic + (2 if qos else 0))
            except MemoryError:
                rx.bad("no memory for a topic of %d bytes" % topic)
            if len(self._head) > 2:
                return
        if qos:
            self._pid = self._head[-2] << 8 | self._head[-1]
            if not self._pid:
                rx.bad("packet identifier 0 [MQTT-2.3.1-1]")
        self._topic = memoryview(self._head)[2 : 2 + topic]
        self._incoming.hear(bytes(self._topic))
        self._open(qos)

    def _open(self, qos):
        # What becomes of the payload.
        c = self._client
        self._size = self._left
        if qos == 2 and self._incoming.known(self._pid):
            self._drain = True
        elif not self._incoming.views or self._incoming.wanted(self._topic):
            try:
                if self._size <= c.max_message:
                    self._buf = bytearray(self._size)
            except MemoryError:
                pass
            self._drain = self._buf is None

    def _payload(self, view):
        at = self._size - self._left - len(view)
        if self._buf:
            self._buf[at : at + len(view)] = view
        elif not self._drain and self._left:
            self._client.piece = at
            self._incoming.call(self._topic, view, self._op & 15, self._left)
            self._incoming.alive()
        else:
            self._last = view

    def _finish(self):
        c = self._client
        self._rx.due = None
        self._rx.ended = _ENDS
        qos = self._op >> 1 & 3
        if qos == 2 and self._incoming.seen(self._pid):
            return
        if self._buf is not None:
            try:
                self._last = bytes(self._buf)
            except MemoryError:
                self._drain = True
        if self._buf is not None and not self._drain:
            self._incoming.deliver(bytes(self._topic), self._last)
            self._rx.message = self._op
        elif self._drain:
            c.counters.oversize += 1
            if c.on_oversize:
                c._busy = _CALLBACK  # it may publish, as any callback
                c.on_oversize(self._size)
                self._incoming.called()
        else:
            c.piece = self._size - len(self._last)
            self._incoming.call(self._topic, self._last, self._op & 15, 0)
            c.counters.received += 1
            self._rx.message = self._op
        if qos:
            self._incoming.acknowledge(self._op, self._pid)
        else:
            self._incoming.alive()


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
