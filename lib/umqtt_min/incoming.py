"""Packets from the broker: messages are checked, handed to the application and acknowledged; what
is neither PUBLISH, PUBACK nor PINGRESP is sorted out here, too.

Knows: section 3.3 of MQTT 3.1.1, when a message is acknowledged. Never knows: how its
bytes came in. Loaded with the first callback, or the first such packet: who only
publishes at QoS 0 and 1 does not pay for it.
"""

from .client import plain
from .port import const
from .topics import matches

# As in client.py
_MAIN = const(1)
_CALLBACK = const(2)

# As in packets.py
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_PUBREC = const(0x50)
_PUBREL = const(0x62)
_PUBCOMP = const(0x70)
_SUBACK = const(0x90)
_UNSUBACK = const(0xB0)
_PINGRESP = const(0xD0)
_TYPE = const(0xF0)
_FLAGS = const(0x0F)
_QOS_2 = const(0x04)
_QOS = const(0x06)
_ROW_STRICT = const(6)

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any


class Incoming:
    """What becomes of the packets that `client` receives."""

    views: "Any" = None  # the callback that is given views
    handlers: "Any" = ()  # (topic filter, function): see MQTTClient.subscribe()

    def __init__(self, client):
        self._client = client
        self._rx = client._receiver()
        self.counters = client.counters
        self._heard: "Any" = None  # the last topic that was checked
        self._answers: "Any" = None  # the Answers of a client with a callback

    def callback(self, f):
        """`f`, which is to be called with messages. Raises ValueError for what cannot be."""
        if f is not None and not callable(f):
            raise ValueError("f=%r: a function, or None" % (f,))
        if not self._answers:
            self._answers = Answers(self._client)
        return f

    def view_callback(self, f):
        """`f` is to be called with views. Raises ValueError for what cannot be."""
        self.views = self.callback(f)

    # Messages

    def on_publish(self, op):
        """A PUBLISH with the first byte `op` is in the receive buffer, whole."""
        rx = self._rx
        p = rx.pos + 2  # the topic, to `end`
        end = p + (rx.buf[p - 2] << 8 | rx.buf[p - 1]) if rx.n > 1 else 1 << 28
        if op & _QOS:
            self._confirmed(op, p, end)
        elif end > rx.next:
            rx.bad("PUBLISH [MQTT-3.3.1-4]")
        else:
            self.hand(rx.target[0][p:end], end, op)
            rx.message = op
            if self._client.sock is None:
                self.alive()

    def _confirmed(self, op, p, end):
        # One of QoS 1 or 2, whose topic lies from `p` to `end` in the buffer.
        rx = self._rx
        if op & _QOS == _QOS or end + 2 > rx.next:
            rx.bad("PUBLISH [MQTT-3.3.1-4]")
        pid = rx.buf[end] << 8 | rx.buf[end + 1] or self._pid(end)
        if op & _QOS_2 and self.seen(pid):
            return
        self.hand(rx.target[0][p:end], end + 2, op)
        rx.message = op
        self.acknowledge(op, pid)

    def hand(self, topic, at, op):
        """Give a message to the application. topic: a view of it; at: where the payload begins
        in the buffer; op: the first byte."""
        if topic != self._heard:
            self.hear(topic)
        at = self._rx.target[0][at : self._rx.next]
        if not self.views:
            c = self._client
            if self.handlers or c.cb is None:
                self.deliver(self._heard, at)
                return
            # As deliver() does: without the call one message takes a tenth less time.
            self.counters.received += 1
            at = bytes(at)
            c._busy = _CALLBACK
            c.cb(self._heard, at)
            if c.sock:
                c._busy = _MAIN
        elif self.handlers and self.wanted(topic):
            self.deliver(bytes(topic), at)
        else:
            self.counters.received += 1
            self._client.piece = 0
            self.call(topic, at, op & _FLAGS, 0)

    def call(self, topic, payload, flags, left):
        """Call the application with one message as views, or with one piece of it."""
        self._client._busy = _CALLBACK
        self.views(topic, payload, flags, left)
        self.called()

    def deliver(self, topic, msg):
        """Give a message to the callback. topic: bytes, checked; msg: bytes, or a view of them."""
        c = self._client
        self.counters.received += 1
        if c.cb is None and not self.handlers:
            return
        msg = bytes(msg)
        if self.handlers and self.dispatch(topic, msg) or c.cb is None:
            return
        # An exception ends the connection, in whoever pumps: the message is not
        # acknowledged, it comes again with the next one.
        c._busy = _CALLBACK
        c.cb(topic, msg)
        if c.sock:
            c._busy = _MAIN

    def wanted(self, topic):
        """Whether there is a handler for this topic."""
        for wanted, _ in self.handlers:
            if matches(wanted, topic):
                return True
        return False

    def dispatch(self, topic, msg):
        """Call the handlers of all filters that match; False if there is none."""
        taken = False
        for wanted, f in self.handlers:
            if matches(wanted, topic):
                taken = True
                self._client._busy = _CALLBACK
                f(topic, msg)
                # The connection may have ended meanwhile: the others are called all the same.
                self._client._busy = _MAIN if self._client.sock else 0
        return taken

    def hear(self, topic):
        """Check the topic name of a PUBLISH, when it is another one."""
        if not plain(topic):
            from .topics import check_name

            try:
                check_name(topic, 65535)
            except ValueError as e:
                self._rx.bad("PUBLISH: %s [MQTT-3.3.2-1]" % e)
        if not self.views or self._heard is None:
            self._heard = bytes(topic)  # views: not a copy of each

    def called(self):
        """The callback has returned."""
        if self._client.sock:
            self._client._busy = _MAIN

    def alive(self):
        """The connection may have ended while the callback ran: OSError."""
        if self._client.sock is None:
            raise OSError(self._client._tx.errno)

    def acknowledge(self, op, pid):
        """After the callback has returned; a QoS 2 id is durable before PUBREC, and where there is
        no connection any more, too: the next one brings the message again."""
        if op & _QOS_2:
            self._client._inbox.in_add(pid)
        if self._client.sock is None:
            self.alive()
        if op & _QOS_2 or not self._answers or self._rx.alone:
            self.answer(op, pid)
        else:
            self._answers.add(pid)

    def answer(self, op, pid):
        """Send PUBACK or PUBREC; at QoS 2 the identifier is durable already."""
        tx = self._client._tx
        if self._rx.due:
            self._rx.due.read()  # those before it
        if self._rx.start == self._rx.end:
            if not tx.count:
                tx.push()  # the next acknowledgement must not wait for this one's TCP ACK
        elif tx.count:
            # More is there: in a burst TCP may join acknowledgements; the last one sends them all.
            tx.count -= 1
            tx.push(0)
        tx.put(_PUBREC if op & _QOS_2 else _PUBACK, pid)

    def seen(self, pid):
        """Whether an incoming QoS 2 message was delivered already: then only PUBREC again."""
        if not self.known(pid):
            return False
        self.counters.duplicates += 1
        if self._rx.due:
            self._rx.due.read()  # in the order of the messages
        self._client._tx.put(_PUBREC, pid)
        return True

    def known(self, pid):
        """Whether this identifier of an incoming QoS 2 message waits for its PUBREL."""
        c = self._client
        if c._inbox is None:
            from .store.inbound import InboundIds

            c._inbox = InboundIds()
        return c._inbox.in_has(pid)

    def _pid(self, p):
        # The packet identifier in the receive buffer at `p`, as it is on the wire.
        p = self._rx.buf[p] << 8 | self._rx.buf[p + 1]
        return p or self._rx.bad("packet identifier 0 [MQTT-2.3.1-1]")

    # Other packets

    def on_packet(self, op):
        """A packet that is neither PUBLISH nor a PUBACK or PINGRESP as it should be is in; 0: what
        peek() has just looked at is malformed, or does not fit into the buffer."""
        t = op & _TYPE
        if not t:
            return self._head(self._rx)
        wanted = _PUBREL & _FLAGS if t == _PUBREL & _TYPE else 0
        if op & _FLAGS != wanted and self._client.protocol[_ROW_STRICT]:
            self._rx.bad("flags 0x%02x [MQTT-2.2.2-2]" % op)
        elif _PUBACK <= t <= _PUBCOMP:
            if self._rx.n != 2:
                self._rx.bad("length of an acknowledgement")
            self.on_ack(t, self._pid(self._rx.pos))
        elif t == _SUBACK or t == _UNSUBACK:
            from .subscribe import on_suback

            on_suback(self._client, t)
        elif t != _PINGRESP:
            self._rx.bad("packet type %d" % (t >> 4))
        elif self._rx.n:
            self._rx.bad("PINGRESP")

    def _head(self, rx):
        # Its fixed header is in: peek() has read a Remaining Length of one to four bytes from it.
        # Returns 0: there is no packet yet.
        op = rx.buf[rx.start]
        last = rx.buf[rx.pos - 1]
        if op < 16 or last > 127 or not last and rx.pos - rx.start > 2:
            self._rx.bad("fixed header")
        if op & _TYPE != _PUBLISH:
            self._rx.bad("packet of %d bytes" % rx.n)
        from .large import Large

        Large(self._client)
        return 0

    def on_ack(self, t, pid):
        """An acknowledgement of type `t` for `pid`, as on the wire, which is not a PUBACK of the
        usual form."""
        c = self._client
        if self._rx.due:
            self._rx.due.read()  # what is answered to it comes after the answers before it
        if t == _PUBREL & _TYPE:
            # Released: the id may come again as another message [MQTT-4.3.3-2].
            if c._inbox:
                c._inbox.in_del(pid)
            c._tx.put(_PUBCOMP, pid)
            return
        if c._session:
            c._session.on_ack(t, pid)
        elif pid == self._rx.waiting:
            self._rx.code = t
        elif t != _PUBREC:
            self.counters.unexpected += 1
        if t == _PUBREC:
            c._tx.put(_PUBREL, pid)


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
        rx.buf[n] = _PUBACK
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
