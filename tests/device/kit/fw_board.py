"""The whole application as a chip would run it, in one process and on a clock that does not wait.

Knows what has to stand in for hardware and for the network: a watchdog that only takes notes, a
strict broker, a store in RAM that outlives a restart. Must not know what is tested with it.
"""

import os

import app
import console
import resets
import settings
import softtimer
import stores
import watchdog
from broker_stream import Network
from sensors.base import Sensor
from strict_broker import StrictBroker
from umqtt_min.store.ram import RAMStore

HARDWARE_MS = watchdog.HARDWARE_MS
STALL_MS = 10000


class Steady(Sensor):
    """A sensor that always says the same."""

    fields = (("temperature", "Cel", 2),)

    def sample(self):
        self.values[0] = 2150


class Machine:
    """The module machine with a watchdog that bites only in its notes."""

    Timer = softtimer.Timer

    def __init__(self):
        self._longest = 0
        self.fed = softtimer.ticks_ms()

    def WDT(self, timeout):
        self.timeout = timeout
        self.feed()
        return self

    @property
    def longest(self):
        """Longest time without feed(), up to now."""
        return max(self._longest, softtimer.ticks_diff(softtimer.ticks_ms(), self.fed))

    def feed(self):
        self._longest = self.longest
        self.fed = softtimer.ticks_ms()


class Board:
    """The application on a network whose writes may stall; its settings may be changed."""

    def __init__(self, store=None, broker=None, **changes):
        softtimer.set_virtual(True)
        self.machine = Machine()
        self._saved = stores.make, app.sensors.make, watchdog.machine, resets.PATH
        # Two boards may be tried at once in one folder, and neither leaves its file there.
        resets.PATH = "fw_board_resets_%x.json" % id(self)
        resets._data = {}
        resets.began("pwron")
        watchdog.machine, watchdog._dog = self.machine, None
        self.lines = []
        stores.make = lambda *args: store or RAMStore(16384, hold=args[1])
        app.sensors.make = lambda flat: Steady()
        console.print = lambda _, text: self.lines.append(text)
        flat = {"device": "oven", "broker.host": "broker", "interval_ms": 1000, "connect_s": 30,
                "watchdog_s": 60, "keepalive": 300, "report_s": 5, "readings": 60}
        flat.update(changes)
        self.broker = broker or StrictBroker()
        self.net = Network(self.broker)
        self.app = app.App(settings.complete(flat))
        self.app.client.connector = self.net

    def __enter__(self):
        return self

    def __exit__(self, *args):
        for path in (resets.PATH, resets.PATH + ".new"):
            try:
                os.remove(path)
            except OSError:
                pass  # nothing was counted, or it was renamed
        stores.make, app.sensors.make, watchdog.machine, resets.PATH = self._saved
        del console.print
        resets._data = {}
        watchdog._dog = None

    def run(self, condition, most=20000):
        """Step until the condition holds."""
        for _ in range(most):
            if condition():
                return
            self.app.step()
            softtimer.sleep_ms(max(1, self.app.pause()))
        raise AssertionError(self.lines[-5:])

    def stall(self, times, ms=STALL_MS):
        """The next so many writes take ten seconds each, or as long as is said."""
        self.left = times

        def hook(where):
            if where == "write" and self.left:
                self.left -= 1
                softtimer.sleep_ms(ms)

        self.net.hook = hook
