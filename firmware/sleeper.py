"""Deep sleep: one waking of a board that sleeps between its readings.

Knows the order of a waking and when it is over. Must not know how a reading gets to the broker.
Wake, measure, connect, publish, wait for the acknowledgements, sleep: all of it within `awake_s`.
What is not acknowledged by then waits in flash for the next waking.

A chip starts anew from boot.py after deep sleep, so each waking is a boot of its own with its own
clock record: on esp32 the clock goes on through the sleep, on rp2 it is asked for each time.
"""

import json
from time import sleep_ms, ticks_diff, ticks_ms

import resets
from console import log

# What the broker has kept for this board while it slept comes right after the connection.
LINGER_MS = 700
# Shorter makes no sense: a chip needs most of a second to start.
SHORTEST_MS = 1000


class Waking:
    """One waking of the app.App `app`, from a moment after its start until the board sleeps."""

    def __init__(self, app):
        self._app = app
        self._from = ticks_ms()
        self._limit = app.settings["awake_s"] * 1000
        self._first = app.store.seq  # numbers below it are of earlier wakings
        self._linked = None
        self._again = False
        app.take_one()

    def run(self):
        """Work until the waking is over, then sleep: does not return."""
        app = self._app
        while not self.over():
            app.step()
            sleep_ms(app.pause())
        self.sleep()

    def over(self):
        """Tell whether there is nothing left to do, or no time left to do it in."""
        app, now = self._app, ticks_ms()
        if app.remote.updating:
            return False  # it has the time that it takes
        if ticks_diff(now, self._from) >= self._limit:
            return True
        if not app.link.up:
            self._linked = None
            return False
        if self._linked is None:
            self._linked = now
        if ticks_diff(now, self._linked) < LINGER_MS:
            return False
        self._catch_up()
        return app.idle

    def _catch_up(self):
        # The mark of the pipeline stood still over at least stall_s of sleep: once per waking, or
        # per so many wakings, what earlier ones hold is published again.
        app = self._app
        if self._again or not app.confirm or not app.store.held:
            return
        self._again = True
        wakings = -(-app.settings["stall_s"] * 1000 // app.interval)
        if app.store.boot % max(1, wakings) == 0 and self._first > app.store.low:
            count = app.client.republish(app.store.low, self._first - 1)
            app.confirm.republished += count
            log("%d readings of earlier wakings published again" % count)

    def sleep(self):
        """Leave the broker and sleep until the next reading is due; does not return."""
        app = self._app
        ms = max(SHORTEST_MS, app.interval - ticks_diff(ticks_ms(), self._from))
        log("sleeping for %d ms, %d stored" % (ms, app.store.live))
        asleep = {"online": False, "asleep_ms": ms, "stored": app.store.live}
        app.leave(json.dumps(asleep).encode())
        resets.lasted()
        import machine

        machine.deepsleep(ms)

