"""The keep-alive's hardware timer.

Knows: machine.Timer of esp32 and rp2. Never does: write in the middle of a packet. Loaded by
connect() of a client with a keep-alive, unless it was given timer=False.
"""

from .client import MQTTClient


def tick(self, timer=None):
    """What the keep-alive timer does: for those who have a timer of their own. It
    may be called at any instant, also in the middle of another call. Never raises."""
    if self._busy & 1 or not (self.sock and self.keepalive):
        return
    self._busy |= 1
    self._tx.sleep = False
    try:
        # No room to write: a tick does not wait for it.
        if not (self._tx.waiting and self._tx.write()):
            if self._busy & 2:
                self._keep_alive(1)  # the receive buffer is in use
            else:
                self._pump(True)
    except Exception:
        self._lost()  # the next call of the application says so
    self._tx.sleep = True
    self._busy &= 2


def start(client):
    """Eight times per keep-alive, 20 times a second at most. The sender keeps the timer by its
    method and that the client: rp2 collects a timer that nobody holds."""
    if client.timer is None:
        try:
            from machine import Timer

            client.timer = Timer(-1)
        except (ImportError, AttributeError):
            client.timer = False  # a port without timers: the application's calls do it
            return
    MQTTClient.tick = tick  # type: ignore[method-assign]  # found without lazy.py from now on
    client.timer.init(period=max(client.keepalive * 125, 50), callback=client.tick)
    client._tx.stop = client.timer.deinit
