"""What esp32 and rp2 have in `machine` and a host lacks: Timer, WDT, reset, unique_id.

Knows: softtimer; the environment variables and exit statuses agreed with whoever supervises the
process (the virtual board).  Runs on the unix MicroPython and on CPython.
Must not know: flash, the pseudo-terminal.
"""

import os
import sys

import softtimer
from softtimer import Timer

PWRON_RESET = 1
HARD_RESET = 2
WDT_RESET = 3
DEEPSLEEP_RESET = 4
SOFT_RESET = 5

RESET_STATUS = 75  # exit status that asks the supervisor for a hard reset
WDT_STATUS = 76  # exit status after a watchdog that was not fed


def reset():
    """End the interpreter with the status that the supervisor takes for a reset."""
    sys.exit(RESET_STATUS)


def reset_cause():
    """The cause that the supervisor put in BOARD_RESET_CAUSE; a power-on without it."""
    return int(os.getenv("BOARD_RESET_CAUSE") or PWRON_RESET)


def unique_id():
    """The bytes of BOARD_ID (hexadecimal, set by the supervisor); a fixed id without it."""
    return bytes.fromhex(os.getenv("BOARD_ID") or "756e697800000001")


def lightsleep(time_ms=0):
    """Sleep time_ms without running a timer; those that fell due run at the next wait."""
    softtimer._pass(time_ms)


class WDT:
    """A watchdog: the process ends when `feed()` did not come for timeout ms.

    It is looked at where timers are: in waits.  A loop that never waits is not caught.
    """

    def __init__(self, id=0, timeout=5000):
        self._timer = Timer(-1)
        self._timeout = timeout
        self.feed()

    def feed(self):
        """Start the timeout anew."""
        self._timer.init(mode=Timer.ONE_SHOT, period=self._timeout, callback=_bite)


def _bite(timer):
    print("watchdog: not fed in time")
    raise SystemExit(WDT_STATUS)
