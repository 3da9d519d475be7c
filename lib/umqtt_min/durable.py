"""Incoming QoS 2 messages that are stored before PUBREC and given to the application after PUBREL.

    client = MQTTClient(...)
    client.set_callback(f)
    DurableInbox(client, FileStore("/inbox"))       # before connect()

Without it such a message is given to the callback first, then its packet identifier is made
durable, then comes PUBREC. With it nothing depends on the callback: the message is in flash
when the broker hears of it, and is given to the callback until that has returned once.
Source: MQTT 3.1.1, figure 4.3, method A, and its section 4.3.3.

Knows: who handles an incoming QoS 2 message when. Never knows: how a store keeps it; sockets.
"""

from .client import MQTTClient
from .inbox import Inbox
from .receive import _on_publish, called

_CALLBACK = 2  # as in client.py
_RECEIVED = 5  # as in counters.py
_RELEASED = 1  # as in store.py: PUBREL has come


class DurableInbox:
    """Keeps the incoming QoS 2 messages of `client` in `store`.

    store: a FileStore, FlashStore or RAMStore of its own, not the client's. A message that it
    does not take, because it is full or the message is longer than it or than the client's
    `buffer_size`, is handled as without it: callback, identifier, PUBREC; nothing is lost.
    Messages that were stored and wait for PUBREL when the broker loses the session, or when
    connect(True) gives it up, are given to the callback: nobody sends them again.
    Raises ValueError for a client that is connected, or its own store; OSError of the store.
    """

    def __init__(self, client, store):
        odd = not hasattr(client, "check_msg") or client.sock or store is client.store
        if odd or isinstance(store, type) or not hasattr(store, "put"):
            from .refuse import inbox

            inbox(client, store)
        store.open()
        self._client = client
        self._store = store
        self._ids = client.store or Inbox()  # of messages that were not stored
        self._kept = False  # the message at hand is in the store
        self._pid = 0
        self._views = None  # the application's, while a message is taken in
        self._due = True  # there may be released messages
        client._inbox = self
        client._on_publish = self._on_publish
        client._pump = self._pump
        if client.store:
            self._begin = client.store.session
            client.store.session = self._session

    # What the client calls in place of its own

    def _on_publish(self, op):
        c = self._client
        if op & 6 != 4:
            return _on_publish(c, op)
        self._views = c._views
        before = c._rx.message
        c._views = self._keep
        try:
            _on_publish(c, op)
        finally:
            c._views = self._views
            if self._kept:
                c._rx.message = before
            self._kept = False

    def _keep(self, topic, payload, flags, left):
        # A message that is not in the store yet: _on_publish() asked in_has().
        c = self._client
        try:
            self._store.put(self._pid, 4 | flags & 1, topic, payload)
            self._kept = True
            c._n[_RECEIVED] -= 1
        except (OSError, ValueError):  # it is full, or too small
            if self._views:
                self._views(topic, payload, flags, left)
            elif c.cb:
                c.cb(bytes(topic), bytes(payload))

    def _pump(self, tick):
        op = MQTTClient._pump(self._client, tick)
        if self._due and not tick and not (op and self._client._rx.single):
            op = self._deliver() or op
        return op

    def _session(self, key):
        # Of the client's store: the broker has lost the session, or is another one.
        self.in_clear()
        self._begin(key)

    # As inbox.Inbox

    def in_has(self, pid):
        """True if `pid` was received and not released."""
        self._pid = pid
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
            self._due = True
        else:
            self._ids.in_del(pid)

    def in_clear(self):
        """The session is gone: what is here is nobody else's."""
        if not self._client.store:
            self._ids.in_clear()  # a store does it with its session
        store = self._store
        seq = store.next(0)
        while seq:
            if store.find(seq) and store.state != _RELEASED:
                store.rec(seq)
            seq = store.next(seq)
        self._due = True

    def _find(self, pid):
        # Number of the message that waits for PUBREL of `pid`, 0 if none does.
        store = self._store
        seq = store.next(0)
        while seq:
            if store.find(seq) and store.pid == pid and store.state != _RELEASED:
                return seq
            seq = store.next(seq)
        return 0

    # To the application

    def _deliver(self):
        # All that are released, in the order in which they came; one for wait_msg().
        c = self._client
        store = self._store
        op = 0
        seq = store.next(0)
        while seq and not (op and c._rx.single):
            n = store.find(seq)
            if store.state == _RELEASED:
                op = 0x34 | store.flags & 1
                self._hand(n, op)
                store.done(seq)  # before the connection is looked at: the callback returned
                called(c)
            seq = store.next(seq)
        self._due = seq > 0
        return op

    def _hand(self, n, op):
        # The message last found, of `n` bytes: length of the topic, topic, identifier, payload.
        c = self._client
        head = bytearray(2)
        self._store.read(0, head, 2)
        topic = bytearray(head[0] << 8 | head[1])
        self._store.read(2, topic, len(topic))
        payload = bytearray(n - 4 - len(topic))
        self._store.read(4 + len(topic), payload, len(payload))
        c._n[_RECEIVED] += 1
        c._busy = _CALLBACK
        if c._views:
            c._views(memoryview(topic), memoryview(payload), op & 15, 0)
        elif c.cb:
            c.cb(bytes(topic), bytes(payload))
