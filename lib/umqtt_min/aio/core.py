"""The core of the asyncio face: umqtt_min.MQTTClient whose calls do not wait.

Knows: the insides of client and session. Never knows: tasks.
"""

from ..client import MQTTClient
from ..incoming import Incoming
from ..packets import pack
from ..port import const
from ..session import Session

_TYPING = const(0)  # see client.py
if _TYPING:
    pass

_QOS = const(0x06)  # as in packets.py
_MOST = const(268369912)  # payload that fits with the longest topic [MQTT 3.1.1, 2.2.3]


def send_whole(tx, op, topic, msg):
    """As large.send(), but as one packet, copied: nothing waits between its parts, and a task
    that is cancelled has its buffer back."""
    try:
        if len(msg) > _MOST:
            raise ValueError("message of %d bytes" % len(msg))
        packet = bytearray(9 + len(topic) + len(msg))
    except BaseException:
        # A message in the store ends the connection, and comes with the next.
        tx.client._busy &= 2
        raise
    n = 7 + len(topic)
    packet[5] = len(topic) >> 8
    packet[6] = len(topic) & 255
    packet[7:n] = topic
    if op & _QOS:
        packet[n] = tx.pid >> 8
        packet[n + 1] = tx.pid & 255
        n += 2
    packet[n : n + len(msg)] = msg
    n += len(msg)
    i = pack(packet, op, n - 5)
    tx.send(packet, i, n - i)


class AioSession(Session):
    """A session that says what was acknowledged."""

    def _end(self, i):
        seq = self._seqs[i]
        super()._end(i)
        self._client.ended(seq)

    def _room(self, seq):
        # A packet under way is not waited for: the pump sends the rest, then this one.
        return not self._client._tx.waiting and super()._room(seq)


class AioIncoming(Incoming):
    """Leaves the acknowledgements to an aio_inbox.Inbox: a task is not through with a message when
    the callback returns."""

    def __init__(self, client, inbox):
        super().__init__(client)
        self._inbox = inbox

    def acknowledge(self, op, pid):
        """See Incoming.acknowledge()."""
        self.alive()
        self._inbox.received(op, pid)

    def seen(self, pid):
        """See Incoming.seen(); PUBREC has its place among the other acknowledgements."""
        if not self.known(pid):
            return False
        self.counters.duplicates += 1
        self._inbox.again(pid)
        return True


class Core(MQTTClient):
    """The core, as the pump of a loop wants it: one message per call, none without room."""

    clean = None  # what connect() was asked for, for the connections that follow
    owed = False  # the broker may have begun a session without the subscriptions, unheard
    _granted = b""  # the codes of the last SUBACK

    def __init__(self, store, window, inbox, room, ended, arguments, options):
        super().__init__(*arguments, timer=False, **options)
        self._receiver().single = True
        self._rx.incoming = AioIncoming(self, inbox)
        self._tx.large = send_whole
        self.room = room
        self.ended = ended
        self.store = self._inbox = store
        self._session = AioSession(self, store, window)

    def connect(self, clean_session=None, timeout=None):
        """As the core's; None is what it was the last time."""
        if clean_session is not None:
            self.clean = clean_session
        ends = self.counters.closed
        try:
            return super().connect(self.clean, timeout)
        except BaseException:
            # CONNECT may be out, and CONNACK lost: nobody hears that the session is a new one.
            self.owed = self.owed or self.counters.closed != ends
            raise

    def check_msg(self):
        """As the core's, but it stops before a message that there is no room for and
        never waits for a packet to get out."""
        for _ in range(16):
            if self._tx.waiting or not self.room():
                return self._briefly(self._hold)
            big = self._rx.due
            # large.py takes no `sleep = False` for the application's own call.
            op = super().check_msg() if big else self._briefly(super().check_msg)
            if not op and self._rx.due is big:
                return

    def _briefly(self, f, *args):
        # f(*args); what the network does not take now stays for the pump.
        self._tx.sleep = False
        try:
            return f(*args)
        finally:
            self._tx.sleep = True

    def _hold(self):
        # All but messages: acknowledgements, the keep-alive, what is to be sent.
        self._rx.enter()
        try:
            self._rx.pump(True)
            if not self._tx.waiting:
                self._session.pump()
        except BaseException:
            self._lost()
            raise
        self._busy = 0

    def answer(self, op, pid):
        """As receive.answer(), for a message that was received some time ago."""
        self._rx.enter()
        try:
            self._briefly(self._rx.incoming.answer, op, pid)
        except BaseException:
            self._lost()
            raise
        self._busy = 0

    def send(self, *message):
        """As publish(), without waiting."""
        return self._briefly(self.publish, *message)

    def ask(self, op, wanted, codes):
        """Send SUBSCRIBE or UNSUBSCRIBE; its answer is then waited for."""
        from ..subscribe import send

        self._rx.enter()
        self._rx.code = 0
        try:
            self._rx.waiting = self._briefly(send, self, op, wanted, codes)
        except BaseException:
            self._lost()
            raise
        self._busy = 0
