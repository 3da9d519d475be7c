"""The keep-alive: when a PINGREQ is due, when a link is dead, and the timer that asks.

Knows: section 3.1.2.10 of MQTT 3.1.1, machine.Timer. It reckons with ticks_ms:
ticks of the timer get lost, it only wakes. Loaded where keepalive is not 0.
"""

from time import ticks_diff, ticks_ms

from .errors import ETIMEDOUT

_TICK = 3  # as in client.py
_CALLBACK = 2


class KeepAlive:
    """Keeps the link of `client` alive while started.

    timer: a machine.Timer; None for Timer(-1) where the port has one; False for none.
    """

    def __init__(self, client, timer):
        if timer is None:
            try:
                from machine import Timer

                timer = Timer(-1)
            except (ImportError, AttributeError):
                pass  # a port without timers: the application's calls keep the link alive
        self._client = client
        self._half = client.keepalive * 500
        self._sent = ticks_ms()  # of the PINGREQ that is not answered
        self.waiting = False
        # References are kept: rp2 collects a timer that nobody holds, and to look
        # the method up in the callback would allocate there.
        self._timer = timer
        self._call = self.tick

    def start(self):
        """A connection begins: tick eight times per keep-alive, 20 times a second at most."""
        self.waiting = False
        if self._timer:
            self._timer.init(period=max(self._half // 4, 50), callback=self._call)

    def stop(self):
        """The connection has ended."""
        if self._timer:
            self._timer.deinit()

    def check(self, reading):
        """PINGREQ after half the keep-alive without sending or without receiving; not
        a byte in another half: OSError, the link is dead [MQTT-3.1.2-23].

        reading: False where bytes may wait that cannot be read now.
        """
        rx = self._client._rx
        now = ticks_ms()
        if self.waiting and rx.heard:
            self.waiting = False
        quiet = ticks_diff(now, self._client._tx.time) >= self._half
        if self.waiting:
            if reading and ticks_diff(now, self._sent) >= self._half:
                raise self._client._lost(OSError(ETIMEDOUT))
        elif quiet or ticks_diff(now, rx.time) >= self._half:
            rx.heard = False
            self.waiting = quiet = True
            self._sent = now
        if quiet:
            self._client._pingreq()

    def tick(self, timer):
        """The timer's callback: it may come at any instant, and never raises."""
        timer = self._client
        busy = timer._busy
        if not (busy & 1 or timer.sock is None):
            timer._busy = _TICK
            timer._tx.patient = False
            self._guarded(busy)
            timer._tx.patient = True
            if timer.sock:
                timer._busy = busy

    def _guarded(self, busy):
        try:
            self._tick(busy)
        except Exception:
            self._client._failed()  # the next call of the application says so

    def _tick(self, b):
        c = self._client
        if c._tx.left and c._tx.write():
            return  # no room to write: a tick does not wait for it
        if b == _CALLBACK:
            self.check(False)  # the receive buffer is in use
        else:
            c._pump(True)
