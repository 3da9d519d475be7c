"""Stay connected: back off with jitter, subscribe again when the session is gone.

Knows: what to do after the end of a connection; backoff.py knows when. Never does: block longer
than one attempt may take.
Optional: an application that has its own idea of this does not import it.
"""

from .backoff import Backoff
from .exception import MQTTException
from .port import const

# As in errors.py
_ENOTCONN = const(107)
_STORE_FULL = const(20)
_BUSY = const(21)

_MOST = const(16777)  # seconds; three random bytes are milliseconds up to there


class Reconnect:
    """Keeps `client` connected by calling step() again and again.

    subscriptions: list of (topic filter, QoS), renewed whenever the broker has
    lost the session; first, most: seconds of the shortest and the longest pause
    between attempts; each pause is drawn evenly from 0 to the current bound
    (full jitter), which doubles with every failure; stable: seconds that a
    connection must have lasted before the bound starts at `first` again, so that a
    broker that lets everybody in and throws them out is not stormed; None: as long
    as the bound at that time; attempt: seconds that connecting may take, and
    subscribing, the longest that step() blocks; all of them 16777 (4 hours and
    39 minutes) at most. Raises ValueError.

    A subclass may add to made() and failed(), which step() calls.
    """

    def __init__(self, client, subscriptions=(), first=1, most=60, stable=30, attempt=5):
        if not hasattr(client, "check_msg"):
            from .reasons import refuse_client

            refuse_client(client)
        self.client = client
        self.subscriptions = _checked(client, subscriptions) if subscriptions else []
        names = ("first", "most", "stable", "attempt")
        for name, n in zip(names, (first, most, stable or 0, attempt)):
            if not isinstance(n, (int, float)) or not 0 <= n <= _MOST:
                raise ValueError("%s=%r: seconds, 0 to %d" % (name, n, _MOST))
        if first > most or not attempt:
            raise ValueError("first=%r: at most most=%r; attempt=%r: more than 0"
                             % (first, most, attempt))  # fmt: skip
        self.error = None  # what ended the last connection or attempt
        self._attempt = attempt
        if stable is not None:
            stable = int(stable * 1000)
        self._backoff = Backoff(int(first * 1000), int(most * 1000), stable)
        self.up = False  # connected, and subscriptions stand, when step() last looked
        # The subscriptions go out with the next connection, whatever session the broker has:
        # it began one that has not got them yet.
        self.owed = False

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
            if self.up and self.client.connected:
                self.client.check_msg()
                self._backoff.stands()
                return True
            if self.up:  # a tick of the keep-alive found it dead
                e = self.client.counters.last_error
                self.failed(MQTTException(e - 1000) if e > 1000 else OSError(e or _ENOTCONN))
            if self._backoff.ready():
                self._connect()
        except (OSError, MQTTException) as e:
            reason = getattr(e, "reason", 0)
            if reason == _BUSY:
                raise
            self.failed(e)
            thrown = self.client._thrown and self.client.counters.closed != ends
            # The callback raised it: another connection does not cure that.
            if thrown or reason == _STORE_FULL:
                raise
        except BaseException as e:
            if not self.up:  # no memory to connect: with a pause, too
                self.failed(e)
            raise
        return self.up

    def _connect(self):
        # If CONNACK gets lost nobody hears that the session is a new one: the next one says that
        # it is there.
        owed = self.owed
        self.owed = bool(self.subscriptions)
        present = self.client.connect(timeout=self._attempt)
        if present:
            self.owed = owed
        self.made(present)
        if self.owed:
            # At the QoS asked for, all in one packet. Until it is answered they stay
            # owed: the next connection may find the session, without them.
            self.client.subscribe(self.subscriptions, timeout=self._attempt)
            self.owed = False
        self.begun()

    def made(self, present):
        """A connection has been made, and the subscriptions come next. present: the broker still
        had the session."""

    def begun(self):
        """The client is connected; to be called by who connected it without step()."""
        self._backoff.began()
        self.up = True
        self.error = None

    def anew(self):
        """Disconnect, and have step() make another connection without a pause: nothing failed."""
        self.client.disconnect()
        self.up = False
        self._backoff.now()

    def failed(self, error):
        """A connection or an attempt has ended by `error`, or what the application did with it
        failed, if that calls this. Returns the ms until the next attempt."""
        self.error = error
        self.up = False
        if self.client.connected:
            self.client.disconnect()
        return self._backoff.failed()


def _checked(client, subscriptions):
    # Now, and not with every attempt to subscribe.
    from .subscribe import filters

    if isinstance(subscriptions, (str, bytes, bytearray, memoryview)):
        raise ValueError("subscriptions=%r: a list of (topic filter, QoS)" % (subscriptions,))
    return filters(client, subscriptions, 0)
