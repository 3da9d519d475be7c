"""MicroPython's `time` in a replay: the clock says what the tape says. Knows: nothing else."""

from utime import *  # noqa: F403

_PERIOD = 1 << 30
_HALF = 1 << 29


class _Clock:
    """Milliseconds, as the explorer counts them."""

    now = 1000


CLOCK = _Clock()


def ticks_ms():
    """The instant."""
    return CLOCK.now


def ticks_add(ticks, delta):
    """As on a board."""
    return (ticks + delta) % _PERIOD


def ticks_diff(end, start):
    """As on a board."""
    return (end - start + _HALF) % _PERIOD - _HALF


def sleep_ms(ms):
    """Time passes."""
    CLOCK.now += ms
