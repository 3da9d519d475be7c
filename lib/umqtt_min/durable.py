"""Incoming QoS 2 messages that are stored before PUBREC and given to the application after PUBREL.

    client = MQTTClient(..., durable_inbox=FileStore("/inbox"))
    client.set_callback(f)

Without it such a message is given to the callback first, then its packet identifier is made
durable, then comes PUBREC. With it nothing depends on the callback: the message is in flash
when the broker hears of it, and is given to the callback until that has returned once.
Handing out has precedence over taking in: what is released is with the application before more
is read, so that a backlog waits at the broker and not here.
Source: MQTT 3.1.1, figure 4.3, method A, and its section 4.3.3.

Knows: who handles an incoming QoS 2 message when. Never knows: how a store keeps it; sockets.
"""


from .incoming import Incoming
from .port import const, ticks_add, ticks_diff, ticks_ms
from .receiver import Receiver
from .store import StoreFull
from .store.inbound import InboundIds

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any

_CALLBACK = const(2)  # as in client.py
_RELEASED = const(1)  # as in store/__init__.py: PUBREL has come

# As in packets.py
_PUBLISH = const(0x30)
_FLAGS = const(0x0F)
_RETAIN = const(0x01)
_QOS_2 = const(0x04)
_QOS = const(0x06)

_INSIDE = const(1)  # no first byte of a PUBLISH: something has changed in the inbox
# One call goes on with what has arrived for so many steps, and begins none after so many ms:
# each step may be a few programs of flash, and then the application's callback.
_STEPS = const(64)
_SPELL = const(100)


class DurableReceiver(Receiver):
    """A Receiver whose pump hands out messages from a DurableInbox, too."""

    inbox: "Any" = None

    def pump(self, tick, exact=False):
        """See Receiver.pump()."""
        return self.look(True) if tick else self.inbox.pump(exact)

    def look(self, tick, exact=False):
        """The pump of a client without such an inbox."""
        return super().pump(tick, exact)


class DurableInbox(Incoming):
    """Keeps the incoming QoS 2 messages of `client` in `store`.

    store: a FileStore, FlashStore or RAMStore of its own, not the client's. A message that is
    longer than it or than the client's `buffer_size` is handled as without it: callback,
    identifier, PUBREC; nothing is lost. Where the broker has more in flight than it has room
    for, the oldest are given to the callback before their PUBREL, so that the order is kept.
    Messages that were stored and wait for PUBREL when the broker loses the session, or when
    connect(True) gives it up, are given to the callback: nobody sends them again.
    Raises ValueError for what is no store, or the client's own; OSError of the store.
    """

    def __init__(self, client, store):
        if store is client.store or isinstance(store, type) or not hasattr(store, "put"):
            from .reasons import refuse_inbox

            refuse_inbox(client, store)
        store.open()
        client._rx = DurableReceiver(client, len(client._tx.buf) - 5)
        client._rx.inbox = self
        super().__init__(client)
        self._store = store
        # Of messages that were not stored.
        self._ids = InboundIds() if client.store is None else client.store
        self._kept = False  # the message at hand is in the store
        self._at = 0  # its identifier
        self._low = 0  # no identifier below it, and none above _high, waits for its PUBREL
        self._high = 65535
        self._due = store.live  # so many may be released: 0 when none is found
        client._inbox = client._rx.incoming = client._durable = self

    # What the client calls

    def on_publish(self, op):
        """See Incoming.on_publish()."""
        try:
            super().on_publish(op)
        finally:
            if self._kept:
                self._kept = False
                self._rx.message = _INSIDE

    def hand(self, topic, at, op):
        """See Incoming.hand(). One of QoS 2 is new: on_publish() has looked."""
        if op & _QOS != _QOS_2:
            super().hand(topic, at, op)
            return
        if topic != self._heard:
            self.hear(topic)
        at = self._rx.target[0][at : self._rx.next]
        self._client._busy = _CALLBACK
        if self._put(_QOS_2 | op & _RETAIN, topic, at):
            self._kept = True
        else:
            self.counters.received += 1
            self._client._busy = _CALLBACK
            self._show(topic, at, op)
        self.called()

    def _show(self, topic, payload, op):
        c = self._client
        if self.handlers and self.dispatch(bytes(topic), bytes(payload)):
            return
        if self.views:
            c.piece = 0
            self.views(topic, payload, op & _FLAGS, 0)
        elif c.cb:
            c.cb(bytes(topic), bytes(payload))

    def _put(self, flags, topic, payload):
        # False if the store does not take it. Where it is full the oldest go to the application
        # without waiting for their PUBREL, which may stand behind what comes now: the order stays.
        while True:
            try:
                self._store.put(self._at, flags, topic, payload)
                self._range(self._at)
                return True
            except StoreFull:
                if not self._early():
                    return False
            except (OSError, ValueError):  # it is too small
                return False

    def _range(self, pid):
        # Most brokers count up: what is new is seen without a look at all that is stored.
        if self._store.live == 1:
            self._low = self._high = pid
        self._low = min(self._low, pid)
        self._high = max(self._high, pid)

    def _passed(self, pid):
        # It does not wait any more, and no two that wait have the same.
        if pid == self._low:
            self._low += 1

    def _early(self):
        # Hand out the oldest; False if there is none.
        seq = self._store.next(0)
        if not seq:
            return False
        self._give(seq, self._store.find(seq))
        return True

    def pump(self, exact):
        """All that has arrived, for whoever waits or looks: packet by packet, and a message
        that is released with one goes to the application before the next is read."""
        self._exact = exact
        self._single = self._rx.single
        self._rx.single = True
        try:
            self._spell()
        finally:
            self._rx.single = self._single
        return self._op

    def _spell(self):
        rx = self._rx
        one = self._exact or self._single
        self._op = 0  # as what Receiver.pump() returns
        self._end = ticks_add(ticks_ms(), _SPELL)
        for _ in range(_STEPS):
            if not self._step() or one and self._op or rx.waiting and rx.code:
                break
            if ticks_diff(ticks_ms(), self._end) >= 0:
                break
        if self._due:
            self._hold()

    def _step(self):
        # One packet is read if nothing is due, one message handed out if it is then. Returns 0
        # if there was neither.
        op = _INSIDE
        if not self._due:
            op = self._rx.look(False, self._exact)
            if op > _INSIDE:
                self._op = op
        if self._due:
            self._deliver()
        return op

    def _hold(self):
        # More is due than one call hands out, so no message is read: acknowledgements and
        # PINGRESP up to the next one are, and what is to be sent is.
        c = self._client
        self._rx.look(True)
        if c._session and not c._tx.waiting:
            c._session.pump()

    # As inbound.InboundIds

    def in_has(self, pid):
        """True if `pid` was received and not released."""
        self._at = pid
        return self._find(pid) > 0 or self._ids.in_has(pid)

    def in_add(self, pid):
        """Remember `pid`, whose message was given to the callback; one that was stored is."""
        if not self._kept:
            self._ids.in_add(pid)

    def in_del(self, pid):
        """`pid` is released, before PUBCOMP is sent: its message is due."""
        seq = self._find(pid)
        if seq:
            self._store.rec(seq)
            self._due += 1
            self._passed(pid)
        else:
            self._ids.in_del(pid)
        self._rx.message = _INSIDE

    def in_clear(self):
        """The session is gone: what is here is nobody else's."""
        if self._client.store is None:
            self._ids.in_clear()  # a store does it with its session
        store = self._store
        seq = store.next(0)
        while seq:
            if store.find(seq) and store.state != _RELEASED:
                store.rec(seq)
            seq = store.next(seq)
        self._due = store.live

    def _find(self, pid):
        # Number of the message that waits for PUBREL of `pid`, 0 if none does.
        store = self._store
        seq = store.next(0) if self._low <= pid <= self._high else 0
        while seq:
            if store.find(seq) and store.pid == pid and store.state != _RELEASED:
                return seq
            seq = store.next(seq)
        return 0

    # To the application

    def _deliver(self):
        # The first that is released, in the order in which they came.
        store = self._store
        seq = store.next(0)
        while seq:
            n = store.find(seq)
            if n and store.state == _RELEASED:
                self._give(seq, n)
                self._due -= 1
                return
            seq = store.next(seq)
        self._due = 0

    def _give(self, seq, n):
        # The message last found. If its PUBREL has not come its identifier is remembered from now
        # on: no sooner, or a cut would leave both, and the identifier for ever.
        store = self._store
        pid = 0 if store.state == _RELEASED else store.pid
        self._op = _PUBLISH | _QOS_2 | store.flags & _RETAIN
        self._hand_out(n, self._op)
        store.done(seq)  # before the connection is looked at: the callback returned
        if pid:
            self._ids.in_add(pid)
            self._passed(pid)
        self.called()
        self.alive()

    def _hand_out(self, n, op):
        # The message last found, of `n` bytes: length of the topic, topic, identifier, payload.
        c = self._client
        head = bytearray(2)
        self._store.read(0, head, 2)
        topic = bytearray(head[0] << 8 | head[1])
        self._store.read(2, topic, len(topic))
        payload = bytearray(n - 4 - len(topic))
        self._store.read(4 + len(topic), payload, len(payload))
        c.counters.received += 1
        c._busy = _CALLBACK
        self._show(memoryview(topic), memoryview(payload), op)
