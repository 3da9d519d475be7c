"""What the shipped library finds in place of a board: a clock that moves only when somebody waits,
a poll that asks the explorer's link, and random bytes that are the same in every run.

Knows: the names that lib/umqtt_min takes from MicroPython's `time`, `select` and `os`.
Must not know: the library, the explorer.

Import it before the library: it changes the process that it is imported in.
"""

import os
import select
import sys
import time
from pathlib import Path

from library import library

TESTS = Path(__file__).resolve().parent.parent
PERIOD = 1 << 30
# Identifiers begin with 65535, so that two messages already go over the end of their range.
RANDOM = b"\xff\xfe"


class Clock:
    """Milliseconds since the device was made; `waits` counts the waits of the call at hand."""

    def __init__(self):
        self.now = 1000
        self.waits = 0

    def move(self, ms):
        """Time passes."""
        self.now += ms
        self.waits += 1


CLOCK = Clock()


class Poll:
    """select.poll() of one stream: what waits for the network lets the explorer's link act."""

    def __init__(self):
        self.stream = None
        self.event = 0

    def register(self, stream, event):
        """Wait for this stream. OSError for what is no stream of the explorer."""
        if not hasattr(stream, "idle"):
            raise OSError(22)
        self.stream = stream
        self.event = event

    def modify(self, stream, event):
        """Wait for another event of it."""
        self.event = event

    def ipoll(self, timeout):
        """Wait, `timeout` ms at most. 0: does not, and tells whether something can be read."""
        if timeout:
            self.stream.idle(self.event, timeout)
        elif self.event == 1 and self.stream.ready():
            return ((self.stream, 1),)
        return ()

    poll = ipoll


def ticks_diff(end, start):
    """As MicroPython's."""
    return (end - start + PERIOD // 2) % PERIOD - PERIOD // 2


def urandom(n):
    """Bytes that are always the same."""
    return (RANDOM * n)[:n]


def install():
    """Change this process."""
    time.ticks_ms = lambda: CLOCK.now % PERIOD
    time.ticks_add = lambda ticks, delta: (ticks + delta) % PERIOD
    time.ticks_diff = ticks_diff
    time.sleep_ms = CLOCK.move
    select.poll = Poll
    os.urandom = urandom
    sys.path[:0] = [library(), str(TESTS / "shim"), str(TESTS / "device" / "kit")]


install()
