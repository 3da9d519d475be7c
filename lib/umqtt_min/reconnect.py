"""Stay connected: back off with jitter, subscribe again when the session is gone.

Knows: what to do after the end of a connection; backoff.py knows when. Never does: block longer
than one attempt may take.
Optional: an application that has its own idea of this does not import it.
"""

from .backoff import Backoff
from .errors import BUSY, ENOTCONN, STORE_FULL, MQTTException, by_callback
from .port import const

_MOST = const(16777)  # seconds; three random bytes are milliseconds up to there


class Reconnect:
    """Keeps `client` connected by calling step() again and again.

    subscriptions: list of (topic filter, QoS), renewed whenever the broker has
    lost the session; first, most: seconds of the shortest and the longest pause
    between attempts; each pause is drawn evenly from 0 to the current bound
    (full jitter), which doubles with every failure; stable: seconds that a
    connection must have lasted before the bound starts at `first` again, so that a
    broker that lets everybody in and throws them out is not stormed; attempt:
    seconds that connecting may take, and subscribing, the longest that step() blocks;
    all of them 16777 (4 hours and 39 minutes) at most. Raises ValueError.
    """

    def __init__(self, client, subscriptions=(), first=1, most=60, stable=30, attempt=5):
        if not hasattr(client, "check_msg"):
            from .reasons import refuse_client

            refuse_client(client)
        self.client = client
        self.subscriptions = _checked(client, subscriptions) if subscriptions else []
        names = ("first", "most", "stable", "attempt")
        for name, n in zip(names, (first, most, stable, attempt)):
            if not isinstance(n, (int, float)) or not 0 <= n <= _MOST:
                raise ValueError("%s=%r: seconds, 0 to %d" % (name, n, _MOST))
        if first > most or not attempt:
            raise ValueError("first=%r: at most most=%r; attempt=%r: more than 0"
                             % (first, most, attempt))  # fmt: skip
        self.error = None  # what ended the last connection or attempt
        self._attempt = attempt
        self._backoff = Backoff(int(first * 1000), int(most * 1000), int(stable * 1000))
        self._ready = False  # connected, and subscriptions stand
        self._owed = False  # the broker began a session that has not got them yet

    def step(self):
        """One check_msg(), or one attempt to connect when it is due.

        Returns True while connected and subscribed. Errors of network and broker are
        kept in `error` and make another attempt; what the application's callback
        raises passes on, an OSError too (but where its publish() found the connection
        ended), and the next steps connect again. Blocks `attempt` seconds at most to
        connect, and as long to subscribe if that is due.
        """
        ends = self.client.counters.closed
        try:
            if self._ready and self.client.connected:
                self.client.check_msg()
                self._backoff.stands()
                return True
            if self._ready:  # a tick of the keep-alive found it dead
                e = self.client.counters.last_error
                self._ended(MQTTException(e - 1000) if e > 1000 else OSError(e or ENOTCONN))
            if self._backoff.ready():
                self._connect()
        except (OSError, MQTTException) as e:
            reason = getattr(e, "reason", 0)
            if reason == BUSY:
                raise
            self._ended(e)
            if reason == STORE_FULL or by_callback(self.client, ends):
                raise  # the application's own
        except BaseException as e:
            if not self._ready:  # no memory to connect: with a pause, too
                self._ended(e)
            raise
        return self._ready

    def _connect(self):
        # If CONNACK gets lost nobody hears that the session is a new one: the next one says that
        # it is there.
        owed = self._owed
        self._owed = bool(self.subscriptions)
        if self.client.connect(timeout=self._attempt):
            self._owed = owed
        if self._owed:
            # At the QoS asked for, all in one packet. Until it is answered they stay
            # owed: the next connection may find the session, without them.
            self.client.subscribe(self.subscriptions, timeout=self._attempt)
            self._owed = False
        self.begun()

    def begun(self):
        """The client is connected; to be called by who connected it without step()."""
        self._backoff.began()
        self._ready = True
        self.error = None

    def anew(self):
        """Disconnect, and have step() make another connection without a pause: nothing failed."""
        self.client.disconnect()
        self._ready = False
        self._backoff.now()

    def _ended(self, e):
        self.error = e
        self._ready = False
        if self.client.connected:
            self.client.disconnect()
        self._backoff.failed()


def _checked(client, subscriptions):
    # Now, and not with every attempt to subscribe.
    from .subscribe import filters

    if isinstance(subscriptions, (str, bytes, bytearray, memoryview)):
        raise ValueError("subscriptions=%r: a list of (topic filter, QoS)" % (subscriptions,))
    return filters(client, subscriptions, 0)
