"""Messages from the broker: checked, handed to the application, acknowledged.

Knows: section 3.3 of MQTT 3.1.1, when a message is acknowledged. Never knows: how its
bytes came in. Loaded with set_callback(), subscribe() or the first message: who only
publishes does not pay for it.
"""

from .client import plain
from .port import const

# As in client.py and counters.py
_MAIN = const(1)
_CALLBACK = const(2)
_RECEIVED = const(5)

# Attributes of MQTTClient.
cb = None
on_oversize = None  # f(bytes): a message beyond max_message was drained
_views = None  # the callback that is given views
_heard = None  # the last topic that was checked
_answers = None  # the Answers of a client with a callback
_late = None  # f(op, pid): it sees to the acknowledgement, in its own time
session_present = None


def set_callback(self, f):
    """f(topic, msg) is called with bytes for each message received; None: nothing is.

    Raises ValueError for what cannot be called.
    """
    self.cb = listener(self, f)


def listener(self, f):
    """`f`, which is to be called with messages."""
    if f is not None and not callable(f):
        raise ValueError("callback=%r: a function, or None" % (f,))
    self._rare  # noqa: B018  (loaded now: a tick may be the first to meet what it handles)
    if not self._answers:
        self._answers = Answers(self)
    return f


def wait_msg(self):
    """Wait, without limit, for one packet, and handle it.

    Nothing is read beyond it: a program may poll the socket for the next one.
    Returns the first byte of a PUBLISH, None for an acknowledgement and for the answer
    to ping(). What answers the keep-alive's own PINGREQ does not end the wait; only where it
    was there before the call does None say so, to a program that had polled the socket.
    A link that is dead ends it (OSError) where there is a keep-alive.
    """
    rx = self._rx
    rx.single = rx.exact = True
    rx.ended = False
    rx.n = -1
    try:
        op = self.check_msg()
        rx.ended |= rx.n >= 0
        # A packet has been handled, and nothing of one is left.
        while not op and (not rx.ended or rx.start != rx.end or rx.due):
            self._idle(1000)
            op = self.check_msg()
        return op
    finally:
        rx.single = rx.exact = False


def _on_publish(self, op):
    rx = self._rx
    p = rx.pos + 2  # the topic, to `end`
    end = p + (rx.buf[p - 2] << 8 | rx.buf[p - 1]) if rx.n > 1 else 1 << 28
    if op & 6 == 6 or end + (2 if op & 6 else 0) > rx.next:
        self._bad("PUBLISH [MQTT-3.3.1-4]")
    pid = self._pid(end) if op & 6 else 0
    if op & 4 and self._seen(pid):
        return
    p = rx.target[0][p:end]  # a view of it: one word less
    if op & 6:
        end += 2
    if self._views:
        self._hand(p, end, op)
    else:
        deliver(self, bytes(p), end)
    rx.message = op
    if pid:
        acknowledge(self, op, pid)
    else:
        alive(self)


def deliver(self, topic, msg):
    """Give a message to the callback. msg: bytes, or where they begin in the buffer."""
    if topic != self._heard:
        hear(self, topic)
    self._n[_RECEIVED] += 1
    if self.cb is None:
        return
    if isinstance(msg, int):
        msg = bytes(self._rx.target[0][msg : self._rx.next])
    # An exception ends the connection, in whoever pumps: the message is not
    # acknowledged, it comes again with the next one.
    self._busy = _CALLBACK
    self.cb(topic, msg)
    called(self)


def hear(self, topic):
    """Check the topic name of a PUBLISH, when it is another one."""
    if not plain(topic):
        from .arguments import check_heard

        check_heard(self, topic)
    if not self._views or self._heard is None:
        self._heard = bytes(topic)  # views: not a copy of each


def called(self):
    """The callback has returned."""
    if self.sock:
        self._busy = _MAIN


def alive(self):
    """The connection may have ended while the callback ran: OSError."""
    if self.sock is None:
        raise OSError(self._tx.errno)


def acknowledge(self, op, pid):
    """After the callback has returned; a QoS 2 id is durable before PUBREC, and where there is
    no connection any more, too: the next one brings the message again."""
    if self._late:
        alive(self)
        self._late(op, pid)
        return
    if op & 4:
        self._inbox.in_add(pid)
    alive(self)
    if op & 4 or not self._answers or self._rx.single or self._rx.waiting:
        answer(self, op, pid)
    else:
        self._answers.add(pid)


def answer(self, op, pid):
    """Send PUBACK or PUBREC; at QoS 2 the identifier is durable already."""
    if self._rx.due:
        self._rx.due.read()  # those before it
    if not self._tx.count:
        self._tx.push()  # the next acknowledgement must not wait for this one's TCP ACK
    self._tx.put(0x50 if op & 4 else 0x40, pid)


class Answers:
    """PUBACK for each message that came with one read: all go out with one write, before more is
    read. A small write costs as much as a large one, on the air too.

    They lie at the start of the receive buffer: PUBACK has less bytes than its PUBLISH, which
    has been read.
    """

    def __init__(self, client):
        self._client = client
        self._n = 0

    def add(self, pid):
        """PUBACK for `pid`, as on the wire."""
        rx = self._client._rx
        n = self._n
        rx.buf[n] = 0x40
        rx.buf[n + 1] = 2
        rx.buf[n + 2] = pid >> 8
        rx.buf[n + 3] = pid & 255
        self._n = n + 4
        rx.due = self

    def read(self):
        """Send them, in place of a read."""
        tx = self._client._tx
        rx = self._client._rx
        n = self._n
        rx.due = None
        self._n = 0
        if not tx.count:
            tx.push()  # the next ones must not wait for the TCP ACK of these
        if tx.waiting:
            tx.drain()
        tx.send(rx.buf, 0, n)
        return n

    def close(self):
        """The connection ends, perhaps by what a callback raised: what was handled before is
        acknowledged, if the network takes it at once. Else it comes again."""
        tx = self._client._tx
        tx.sleep = False
        try:
            if tx.sock and not tx.waiting:
                self.read()
        except OSError:
            pass
        self._client._rx.due = None
        self._n = 0
