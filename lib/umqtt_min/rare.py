"""Seldom packets: PINGREQ by hand, answers to SUBSCRIBE, acknowledgements of QoS 2, what is wrong.

Knows: which of them the broker may send. Loaded with the first of them. What is in flight
is session.py's where there is a store.
"""

from .exception import MQTTException
from .port import const

# As in errors.py, protocol.py and counters.py
_PROTOCOL = const(16)
_STRICT = const(6)
_UNEXPECTED = const(8)


def _enter(self):
    # Take the stream for a packet; `_busy &= 2` gives it back.
    if self._busy & 1 or self.sock is None:  # a timer of the application came in between
        self._raise()
    self._busy |= 1


def _bad(self, detail):
    # The broker broke the protocol [MQTT-4.8.0-1]: `detail` is a statement or packet.
    self._lost(1000 + _PROTOCOL)
    raise MQTTException(_PROTOCOL, detail)


def ping(self):
    """Send PINGREQ; its answer ends wait_msg(). This call does not wait for it."""
    self._enter()
    self._ping(1)
    self._busy &= 2


def _rare(self, op):
    # A packet that is neither PUBLISH nor a PUBACK or PINGRESP as it should be; 0: what
    # peek() has just looked at is malformed, or does not fit into the buffer.
    t = op >> 4
    if not t:
        return _head(self, self._rx)
    if op & 15 != (2 if t == 6 else 0) and self.protocol[_STRICT]:
        self._bad("flags 0x%02x [MQTT-2.2.2-2]" % op)
    elif 4 <= t <= 7:
        if self._rx.n != 2:
            self._bad("length of an acknowledgement")
        _on_ack(self, t, self._pid(self._rx.pos))
    elif t == 9 or t == 11:
        from .subscribe import on_suback

        on_suback(self, t)
    elif t != 13:
        self._bad("packet type %d" % t)
    elif self._rx.n:
        self._bad("PINGRESP")


def _head(self, rx):
    # Its fixed header is in: peek() has read a Remaining Length of one to four bytes from it.
    # Returns 0: there is no packet yet.
    op = rx.buf[rx.start]
    last = rx.buf[rx.pos - 1]
    if op < 16 or last > 127 or not last and rx.pos - rx.start > 2:
        self._bad("fixed header")
    if op >> 4 != 3:
        self._bad("packet of %d bytes" % rx.n)
    from .large import Large

    Large(self)
    return 0


def _pid(self, p):
    # The packet identifier in the receive buffer at `p`, as it is on the wire.
    p = self._rx.buf[p] << 8 | self._rx.buf[p + 1]
    return p or self._bad("packet identifier 0 [MQTT-2.3.1-1]")


def _on_ack(self, t, pid):
    if self._rx.due:
        self._rx.due.read()  # what is answered to it comes after the answers before it
    if t == 6:
        # Released: the id may come again as another message [MQTT-4.3.3-2].
        if self._inbox:
            self._inbox.in_del(pid)
        self._tx.put(0x70, pid)
        return
    if self._session:
        self._session.on_ack(t, pid)
    elif pid == self._rx.waiting:
        self._rx.code = t << 4
    elif t != 5:
        self._n[_UNEXPECTED] += 1
    if t == 5:
        self._tx.put(0x62, pid)
