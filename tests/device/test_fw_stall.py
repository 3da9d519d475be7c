"""A send that stands still for ten seconds, as rp2's lwIP may hold one: no crash, and no reset.

The whole application on a clock that does not wait, with a watchdog that notes how long it was not
fed. The stalled write runs timers meanwhile, as on a chip.
"""

import app
import resets
import settings
import softtimer
import stores
import watchdog
from broker_stream import Network
from sensors.base import Sensor
from strict_broker import StrictBroker
from umqtt_min.store import RAMStore

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

    def __init__(self, **changes):
        softtimer.set_virtual(True)
        self.machine = Machine()
        self._saved = stores.make, app.sensors.make, app.log, watchdog.machine, resets.PATH
        resets.PATH = "fw_stall_resets.json"
        resets._data = {}
        resets.began("pwron")
        watchdog.machine, watchdog._dog = self.machine, None
        self.lines = []
        stores.make = lambda *args: RAMStore(16384, hold=args[1])
        app.sensors.make = lambda flat: Steady()
        app.log = self.lines.append
        flat = {"device": "oven", "broker.host": "broker", "interval_ms": 1000, "connect_s": 30,
                "watchdog_s": 60, "keepalive": 300, "report_s": 5, "readings": 60}
        flat.update(changes)
        self.broker = StrictBroker()
        self.net = Network(self.broker)
        self.app = app.App(settings.complete(flat))
        self.app.client.connector = self.net

    def __enter__(self):
        return self

    def __exit__(self, *args):
        stores.make, app.sensors.make, app.log, watchdog.machine, resets.PATH = self._saved
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


def test_sends_that_stall_starve_no_watchdog_and_are_no_crash():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        board.stall(8)
        board.run(lambda: board.app._finished)
        assert board.left == 0
        assert board.machine.longest < HARDWARE_MS, board.machine.longest
        assert resets.counts() == {"power": 1, "watchdog": 0, "request": 0, "crash": 0,
                                   "other": 0, "row": 0}
        assert board.app.client.counters.acked == 61 and board.app.troubles == 0


def test_connections_that_stall_at_every_step_are_none_either():
    # CONNECT, SUBSCRIBE and each part of the report: together more than watchdog_s.
    with Board(confirm="pipeline") as board:
        for n in (1, 2, 3):
            board.stall(5, 15000)
            board.run(lambda n=n: board.app.client.counters.connects == n and board.left == 0)
            board.net.cut()
        assert board.machine.longest < HARDWARE_MS, board.machine.longest
        assert resets.row() == 0


def test_a_main_loop_that_stands_still_is_not_fed():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        softtimer.sleep_ms(60000)
        assert board.machine.longest < HARDWARE_MS
        last = board.machine.fed
        softtimer.sleep_ms(HARDWARE_MS)
        assert softtimer.ticks_diff(softtimer.ticks_ms(), last) >= HARDWARE_MS - 1000
        assert board.machine.fed == last


def test_a_new_set_gets_its_time_and_no_more_though_its_loop_goes_round():
    with Board() as board:
        board.run(lambda: board.app.client.counters.acked > 5)
        watchdog.trial(20)
        start = softtimer.ticks_ms()
        board.run(lambda: softtimer.ticks_diff(softtimer.ticks_ms(), start) > 40000)
        assert softtimer.ticks_diff(board.machine.fed, start) <= 20000
        watchdog.trial(0)
        board.run(lambda: softtimer.ticks_diff(softtimer.ticks_ms(), start) > 45000)
        assert softtimer.ticks_diff(board.machine.fed, start) > 40000
