"""For scripts written for umqtt.robust: calls that connect again by themselves.

    from umqtt_min.robust import MQTTClient     # was: from umqtt.robust import ...

Knows: which errors another connection may cure. Never does: try for ever, as
umqtt.robust does; publish twice what the store sends again. Subscriptions are the
session's, as there: connect with clean_session=False where you subscribe.
New programs are better served by reconnect.Reconnect, which does not block.
"""

import time

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

_LONGEST = 268435  # seconds that ticks_ms reckons with
_CURABLE = (CLOSED, LOST, NOT_CONNECTED, PROTOCOL, REFUSED_UNAVAILABLE, TIMEOUT)


class MQTTClient(_Client):
    """As umqtt_min.MQTTClient; its errors of the network make another connection.

    DELAY: seconds between attempts; PATIENCE: seconds after which a call gives up and
    raises the last error; DEBUG: True prints errors. delay(), log() may be overridden.
    A broker that refuses the login is an error at once.
    """

    DELAY = 2
    DEBUG = False
    PATIENCE = 600
    _inside = False
    _made = None  # when the last connection of ours was made

    def delay(self, i):
        """Wait before attempt number i + 1, i from 1."""
        time.sleep(self.DELAY)

    def log(self, in_reconnect, e):
        """Called with every error that is not passed on."""
        if self.DEBUG:
            if in_reconnect:
                print("mqtt reconnect: %r" % e)
            else:
                print("mqtt: %r" % e)

    def reconnect(self, patience=None):
        """Connect, again and again for `patience` seconds, None: PATIENCE.

        Returns what connect(False) returns. Raises its last OSError or MQTTException, ValueError.
        """
        return self._reconnect(self._until(patience))

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
                if time.ticks_diff(end, time.ticks_ms()) <= 0:
                    raise
            self._reconnect(end)

    def wait_msg(self):
        """Wait until one message has been delivered, over as many connections as it takes."""
        while True:
            try:
                return self._plain(super().wait_msg)
            except (OSError, MQTTException) as e:
                self._excuse(e)
            self.reconnect()

    def check_msg(self, attempts=2):
        """As umqtt_min's; an error makes a new connection, up to `attempts` times."""
        if self._inside:
            return super().check_msg()
        while attempts:
            try:
                return self._plain(super().check_msg)
            except (OSError, MQTTException) as e:
                self._excuse(e)
            self.reconnect()
            attempts -= 1

    def flush(self, timeout=None):
        """As umqtt_min's: an error of the network is an error."""
        return self._plain(super().flush, timeout)

    def _plain(self, f, *args):
        # The core's own call, and what it calls of this class is the core's too. Inside
        # a callback everything is: what fails there makes a connection afterwards.
        inside = self._inside
        self._inside = True
        try:
            return f(*args)
        finally:
            self._inside = inside

    def _until(self, patience):
        if patience is None:
            patience = self.PATIENCE
        if not isinstance(patience, (int, float)) or not 0 <= patience <= _LONGEST:
            raise ValueError("patience=%r: seconds, 0 to %d" % (patience, _LONGEST))
        return time.ticks_add(time.ticks_ms(), int(patience * 1000))

    def _excuse(self, e):
        # Errors that another connection does not cure pass on.
        if self._inside or isinstance(e, MQTTException) and e.reason not in _CURABLE:
            raise e
        self.log(False, e)

    def _reconnect(self, end):
        i = 0
        if self._made is not None:
            if time.ticks_diff(time.ticks_ms(), self._made) < self.DELAY * 1000:
                i = 1
                self.delay(i)  # a broker that lets everybody in and throws them out
        while True:
            try:
                present = super().connect(False)
                self._made = time.ticks_ms()
                return present
            except (OSError, MQTTException) as e:
                if isinstance(e, MQTTException) and e.reason not in _CURABLE:
                    raise
                self.log(True, e)
                if time.ticks_diff(end, time.ticks_ms()) <= 0:
                    raise
            i += 1
            self.delay(i)

    def _see_through(self, e, end):
        # The message is in the store: connect, and wait until nothing is unacknowledged.
        while True:
            left = time.ticks_diff(end, time.ticks_ms())
            if left <= 0:
                raise e
            try:
                if not self.connected:
                    self._reconnect(end)
                if self.flush(left / 1000):
                    return e.pid
            except (OSError, MQTTException) as error:
                self._excuse(error)
