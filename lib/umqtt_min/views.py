"""Messages as views of the receive buffer, for set_view_callback().

Knows: how a message is handed out without a copy. Loaded by those who ask for it.
"""

from .receive import called, hear, listener

_CALLBACK = 2  # as in client.py
_RECEIVED = 5  # as in counters.py

piece = 0  # an attribute of MQTTClient: see set_view_callback()


def set_view_callback(self, f):
    """f(topic, payload, flags, left) is called for each message, and nothing is copied.

    topic, payload: memoryviews of the receive buffer, good until f returns;
    flags: retain | QoS << 1 | DUP << 3; left: bytes of the payload still to come.
    A message longer than the buffer comes in pieces: `client.piece` is then
    where the piece stands in the payload, and left is 0 with the last one; after
    a lost connection it begins again at 0. It is acknowledged after the last.
    f=None: the messages go to the callback of set_callback(). Raises ValueError for what
    cannot be called.
    """
    self._views = listener(self, f)


def _hand(self, topic, at, op):
    # topic: a view; at: where the payload begins in the buffer.
    if topic != self._heard:
        hear(self, topic)
    self._n[_RECEIVED] += 1
    at = self._rx.target[0][at : self._rx.next]
    self.piece = 0
    call(self, topic, at, op & 15, 0)


def call(client, topic, payload, flags, left):
    """Call the application with one message, or one piece of it."""
    client._busy = _CALLBACK
    client._views(topic, payload, flags, left)
    called(client)
