"""Adds MicroPython's tick functions to CPython's `time`, and nothing else.

For host tests that use a device module in a process that stays CPython: mpshim patches much more.
Knows: the 2**30 period.  Must not know: anything else.
"""

import time

PERIOD = 1 << 30


def ticks_ms():
    """Milliseconds 0..2**30-1."""
    return (time.monotonic_ns() // 1_000_000) % PERIOD


def ticks_diff(end, start):
    """Signed difference, -2**29..2**29-1."""
    return ((end - start + PERIOD // 2) % PERIOD) - PERIOD // 2


if not hasattr(time, "ticks_ms"):
    time.ticks_ms = ticks_ms
    time.ticks_diff = ticks_diff
