"""The hardware timer of the keep-alive.

Knows: machine.Timer. Never does: write to the stream; it only wakes the client,
which reckons with ticks_ms, for ticks get lost.
"""


class KeepAlive:
    """Calls client.tick() eight times per keep-alive while started.

    timer: a machine.Timer, or None for Timer(-1) where the port has one.
    """

    def __init__(self, client, timer):
        if timer is None:
            try:
                from machine import Timer

                timer = Timer(-1)
            except (ImportError, AttributeError):
                pass  # a port without timers: the pumps keep the link alive
        # References are kept: rp2 collects a timer that nobody holds, and a
        # method that is looked up in the callback would allocate there.
        self._timer = timer
        self._tick = client.tick
        self._call = self._on_timer

    def start(self, seconds):
        """Tick eight times in `seconds`, 20 times a second at most."""
        if self._timer:
            self._timer.init(period=max(seconds * 125, 50), callback=self._call)

    def stop(self):
        """Stop ticking."""
        if self._timer:
            self._timer.deinit()

    def _on_timer(self, timer):
        self._tick()
