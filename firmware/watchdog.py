"""Watchdog: resets the board when the main loop stands still, and only then.

Knows machine.WDT and machine.Timer. Must not know the network: a broker that is away for a week is
no reason for a reset.

The hardware counts 8.3 s at most on RP2040, which is shorter than a TLS handshake or a stalled
send, so a timer feeds it, and only while the main loop's last sign of life is younger than a limit
chosen by the application. The callback neither allocates nor raises. On a port without WDT all of
this does nothing.
"""

import json
from time import ticks_diff, ticks_ms

import machine

HARDWARE_MS = 8000
_FEED_MS = 1000
# What somebody at the console gets before the sensor takes itself back.
CONSOLE_S = 900


_dog = None


def start(limit_s):
    """Return the board's watchdog, set to a limit.

    limit_s  seconds without alive() after which the board is reset, at most 3600; 0: none is
             started, and one that runs already is only ever fed.
    """
    global _dog
    if _dog is None:
        _dog = Watchdog()
    _dog.limit_ms = limit_s * 1000
    _dog.alive()
    if limit_s:
        _dog.begin()
    return _dog


def trial(seconds):
    """Reset the board that many seconds from now, whatever the main loop does; 0: no longer.

    A new set of files has this long to show that it works. Starts the hardware even where the
    settings want no watchdog: what is on trial may be what stands still.
    """
    dog = _dog or start(0)
    dog.trial_ms = seconds * 1000
    dog.trial_from = ticks_ms()
    if seconds:
        dog.begin()


def hold(path="/settings.json"):
    """Start it for somebody at the console, if the settings want a watchdog at all."""
    try:
        with open(path) as file:
            wanted = json.load(file).get("watchdog_s", 1)
    except (OSError, ValueError, AttributeError):
        return  # a board without settings is not in service
    if wanted:
        start(CONSOLE_S)


class Watchdog:
    """The hardware watchdog and the timer that feeds it; made by start()."""

    def __init__(self):
        self.limit_ms = 0
        self.trial_ms = 0
        self.trial_from = 0
        self._alive = ticks_ms()
        self._wdt = None
        self._timer = None
        self._tick = self._on_tick

    def begin(self):
        """Set the hardware going, where there is one; it cannot be stopped again."""
        if self._wdt is None and hasattr(machine, "WDT") and hasattr(machine, "Timer"):
            self._wdt = machine.WDT(timeout=HARDWARE_MS)
            self._timer = machine.Timer(-1)
            self._timer.init(period=_FEED_MS, mode=machine.Timer.PERIODIC, callback=self._tick)

    @property
    def running(self):
        """True when the hardware counts."""
        return self._wdt is not None

    def alive(self):
        """Note that the main loop goes on."""
        self._alive = ticks_ms()

    def console(self):
        """Leave time for somebody at the console; a running hardware watchdog cannot be ended."""
        self.limit_ms = CONSOLE_S * 1000
        self.trial_ms = 0
        self.alive()

    def _on_tick(self, timer):
        now = ticks_ms()
        if self.trial_ms and ticks_diff(now, self.trial_from) >= self.trial_ms:
            return
        if not self.limit_ms or ticks_diff(now, self._alive) < self.limit_ms:
            self._wdt.feed()
