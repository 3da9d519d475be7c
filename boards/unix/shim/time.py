"""The unix port's `time` with sleeps that let timers run, and a clock that tests can move.

Knows: softtimer.  Must not know: anything else.
"""

import sys

import softtimer
import utime
from utime import *  # noqa: F403

if softtimer._real_ticks is None:
    import uselect

    softtimer.setup(utime.ticks_ms, utime.sleep_ms, uselect.poll, sys.print_exception)

ticks_ms = softtimer.ticks_ms
ticks_diff = softtimer.ticks_diff  # 2**30 period, as the chips; the port's own is 2**62
sleep_ms = softtimer.sleep_ms


def ticks_add(ticks, delta):
    """ticks moved by delta (-2**29 < delta < 2**29), within the 2**30 period of the chips."""
    if not -(1 << 29) < delta < (1 << 29):
        raise OverflowError("ticks interval overflow")
    return (ticks + delta) & softtimer._MASK


def ticks_us():
    """Microseconds 0..2**30-1 (not moved by softtimer.jump)."""
    return utime.ticks_us() & softtimer._MASK


def sleep_us(us):
    """Sleep microseconds; short by nature, so not sliced."""
    utime.sleep_us(us)


def sleep(seconds):
    """Sleep seconds (int or float) in slices that end when a timer is due."""
    softtimer.sleep_ms(int(seconds * 1000))
