"""For scripts written for umqtt.robust: calls that connect again by themselves.

    from umqtt_min.robust import MQTTClient     # was: from umqtt.robust import ...

Knows: which errors another connection may cure. Never does: try for ever, as
umqtt.robust does; publish twice what the store sends again. Subscriptions are the
session's, as there: connect with clean_session=False where you subscribe.
New programs are better served by reconnect.Reconnect, which does not block.
"""

from .client import MQTTClient as _Client
from .errors import (
    CLOSED,
    LOST,
    NOT_CONNECTED,
    PROTOCOL,
    REFUSED_UNAVAILABLE,
    TIMEOUT,
    MQTTException,
)
from .port import sleep_ms, ticks_add, ticks_diff, ticks_ms

_LONGEST = 268435  # seconds that ticks_ms reckons with
_CURABLE = (CLOSED, LOST, NOT_CONNECTED, PROTOCOL, REFUSED_UNAVAILABLE, TIMEOUT)


class MQTTClient(_Client):
    """As umqtt_min.MQTTClient; its errors of the network make another connection.

    DELAY: seconds between attempts; PATIENCE: seconds after which a call gives up and
    raises the last error; DEBUG: True prints errors. delay(), log(), reconnect() and
    connect() may be overridden: the calls use them, with no other arguments than
    umqtt.robust gives. What a connect() or reconnect() of your own calls of this class does
    not connect again by itself: what fails in connect() makes another attempt, what
    reconnect() raises passes on. So do, at once, what the callback raises, OSError too, and
    a broker's refusal of the login.
    """

    DELAY = 2
    DEBUG = False
    PATIENCE = 600
    _inside = False
    _own = False  # the last error was raised by the callback
    _made = None  # when the last connection of ours was made, until it has lasted
    _end = None  # until when the call that is under way has patience

    def delay(self, i):
        """Wait before attempt number i + 1, i from 1."""
        sleep_ms(int(self.DELAY * 1000))

    def log(self, in_reconnect, e):
        """Called with every error that is not passed on."""
        if self.DEBUG:
            if in_reconnect:
                print("mqtt reconnect: %r" % e)
            else:
                print("mqtt: %r" % e)

    def reconnect(self, patience=None):
        """Connect, again and again for `patience` seconds; None: as long as the call that needs
        it may still take, PATIENCE where there is none.

        Returns what connect(False) returns. Raises its last OSError or MQTTException, ValueError.
        """
        end = self._end
        if end is None or patience is not None:
            end = self._until(patience)
        i = 0
        if self._made is not None:
            if ticks_diff(ticks_ms(), self._made) < self.DELAY * 1000:
                i = 1
                self.delay(i)  # a broker that lets everybody in and throws them out
        while True:
            try:
                present = self._plain(self.connect, False)
                self._made = ticks_ms()
                return present
            except (OSError, MQTTException) as e:
                if not self._curable(e):
                    raise
                self.log(True, e)
                if _over(end):
                    raise
            i += 1
            self.delay(i)

    def publish(self, topic, msg, retain=False, qos=0, wait=True):
        """As umqtt_min's, over as many connections as it takes. A message that is in the
        store is not published again: its acknowledgement is waited for."""
        end = self._until(None)
        while True:
            try:
                return self._plain(super().publish, topic, msg, retain, qos, wait)
            except (OSError, MQTTException) as e:
                self._excuse(e)
                if getattr(e, "stored", False):
                    return self._see_through(e, end)
                self._renew(e, end)

    def wait_msg(self):
        """As umqtt_min's: wait for one packet, over as many connections as it takes.

        PATIENCE is for errors in a row, which ends with a connection that lasts (DELAY, 1 s at
        least).
        """
        end = None
        self._receiver().waits = self._look
        while True:
            try:
                return self._plain(super().wait_msg)
            except (OSError, MQTTException) as e:
                self._excuse(e)
                if end is None or self._made is None:
                    end = self._until(None)
                self._renew(e, end)

    def check_msg(self, attempts=2):
        """As umqtt_min's; an error makes a new connection, up to `attempts` times."""
        if self._inside:
            self._look()
            return super().check_msg()
        end = None
        while attempts:
            try:
                return self._plain(super().check_msg)
            except (OSError, MQTTException) as e:
                self._excuse(e)
                if end is None:
                    end = self._until(None)
                self._renew(e, end)
            attempts -= 1

    def flush(self, timeout=None):
        """As umqtt_min's: an error of the network is an error."""
        return self._plain(super().flush, timeout)

    def _plain(self, f, *args):
        # The core's own call, or one that may be the application's; what it calls of this class
        # is the core's. Inside a callback everything is: what fails there makes a connection
        # afterwards.
        inside = self._inside
        ends = self.counters.closed
        self._inside = True
        try:
            return f(*args)
        except (OSError, MQTTException):
            # The callback raised it: another connection does not cure that.
            self._own = self._thrown and self.counters.closed != ends
            raise
        finally:
            self._inside = inside

    def _until(self, patience):
        if patience is None:
            patience = self.PATIENCE
        if not isinstance(patience, (int, float)) or not 0 <= patience <= _LONGEST:
            raise ValueError("patience=%r: seconds, 0 to %d" % (patience, _LONGEST))
        return ticks_add(ticks_ms(), int(patience * 1000))

    def _curable(self, e):
        # By another connection; not what the callback did, nor a login that is refused.
        return not self._own and (isinstance(e, OSError) or e.reason in _CURABLE)

    def _excuse(self, e):
        if self._inside or not self._curable(e):
            raise e
        self.log(False, e)

    def _renew(self, e, end):
        # After error `e`, by reconnect(), which may be the application's own.
        if _over(end):
            raise e
        self._end = end
        try:
            self._plain(self.reconnect)
        except (OSError, MQTTException) as error:
            if getattr(e, "stored", False) and self._curable(error):
                raise e  # it tells that the message is not to be published again
            raise
        finally:
            self._end = None

    def _look(self):
        # Whether the connection has lasted; often, for ticks_ms() begins again after days.
        if self._made is not None:
            if ticks_diff(ticks_ms(), self._made) >= max(self.DELAY, 1) * 1000:
                self._made = None

    def _see_through(self, e, end):
        # The message is in the store: connect, and wait until nothing is unacknowledged.
        while True:
            left = max(0, ticks_diff(end, ticks_ms()))
            try:
                if self.connected and self.flush(left / 1000):
                    return e.pid
            except (OSError, MQTTException) as error:
                self._excuse(error)
            if _over(end):
                raise e
            if not self.connected:
                self._renew(e, end)


def _over(end):
    return ticks_diff(end, ticks_ms()) <= 0
