"""Backoff: how long to wait before trying again.

Knows a count of failures and a random source. Must not know what is being tried.

Exponential with full jitter: a thousand sensors that lose one broker together come back spread
over the whole pause instead of in step. A connection counts as a success only when it lasted: a
broker that accepts and hangs up at once is not to be hammered either.
"""

from random import getrandbits
from time import ticks_add, ticks_diff, ticks_ms


class Backoff:
    """Pauses between attempts.

    first_ms  bound of the first random pause, 1..60000
    max_ms    bound the pauses grow to, at most 3600000
    """

    def __init__(self, first_ms, max_ms):
        self._first = first_ms
        self._max = max_ms
        self._bound = first_ms
        self._due = ticks_ms()
        self._since = None

    def ready(self):
        """Tell whether the next attempt may be made."""
        return ticks_diff(ticks_ms(), self._due) >= 0

    def began(self):
        """Note a success: a connection stands."""
        self._since = ticks_ms()

    def failed(self):
        """Note a failed attempt, or the end of a connection; return the pause in milliseconds."""
        now = ticks_ms()
        if self._since is not None and ticks_diff(now, self._since) >= self._bound:
            self._bound = self._first
        self._since = None
        # 30 random bits: a small int on every chip
        pause = getrandbits(30) % (self._bound + 1)
        self._due = ticks_add(now, pause)
        self._bound = min(self._bound * 2, self._max)
        return pause
