"""The keep-alive: its timer, PINGREQ, and a link that is dead.

Knows: section 3.1.2.10 of MQTT 3.1.1, machine.Timer of esp32 and rp2. Never does: write in the
middle of a packet. Loaded by connect() of a client with a keep-alive.

It reckons with ticks_ms: ticks of the timer get lost, it only wakes.
"""

from .port import const, ticks_diff, ticks_ms

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any


class KeepAlive:
    """Sends PINGREQ for `client` after half its keep-alive in silence."""

    stop: "Any" = None  # what stops the timer, while it runs

    def __init__(self, client):
        self._client = client
        self._tx = client._tx
        self._rx = client._receiver()

    def start(self):
        """Start the client's timer: eight times per keep-alive, 20 times a second at most."""
        c = self._client
        if c.timer is None:
            try:
                from machine import Timer

                c.timer = Timer(-1)
            except (ImportError, AttributeError):
                c.timer = False  # a port without timers: the application's calls do it
        if c.timer is False:
            return
        # By its method this object holds the timer, and the client that: rp2 collects a timer
        # that nobody holds.
        c.timer.init(period=max(c.keepalive * 125, 50), callback=c.tick)
        self.stop = c.timer.deinit

    def close(self):
        """The connection has ended."""
        if self.stop:
            self.stop()
            self.stop = None

    def tick(self):
        """See MQTTClient.tick()."""
        c = self._client
        if c._busy & 1 or c.sock is None:
            return
        c._busy |= 1
        self._tx.sleep = False
        try:
            # No room to write: a tick does not wait for it.
            if not (self._tx.waiting and self._tx.write()):
                if c._busy & 2:
                    self.check(1)  # the receive buffer is in use
                else:
                    self._rx.pump(True)
        except Exception:
            c._lost()  # the next call of the application says so
        self._tx.sleep = True
        c._busy &= 2

    def check(self, op):
        """Send PINGREQ after half the keep-alive without sending or without receiving; not a byte
        in another half: OSError, the link is dead [MQTT-3.1.2-23].

        op: not 0 where bytes may wait that cannot be read now.
        """
        rx = self._rx
        half = self._client.keepalive * 500
        now = ticks_ms()
        quiet = ticks_diff(now, self._tx.time) >= half
        if rx.request is not None:
            if not op and ticks_diff(now, rx.request) >= half:
                raise OSError(self._client._lost(110))
        elif quiet or ticks_diff(now, rx.time) >= half:
            quiet = True
            rx.request = now
        if quiet:
            rx.ping(0)
