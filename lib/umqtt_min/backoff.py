"""How long to wait before trying again.

Knows: failures, a random source. Never knows: what is being tried.

Exponential with full jitter: a thousand sensors that lose one broker together come back spread
over the whole pause instead of in step. A connection counts as a success only when it lasted: a
broker that accepts and hangs up at once is not to be hammered either.
"""

import os

from .port import ticks_add, ticks_diff, ticks_ms


class Backoff:
    """Pauses between attempts.

    first_ms: bound of the first random pause, 0 to 16777215; most_ms: bound that the pauses grow
    to, likewise; stable_ms: how long a connection must have lasted for the bound to start at
    `first_ms` again; None: as long as the bound at that time.
    """

    def __init__(self, first_ms, most_ms, stable_ms=None):
        self._first = first_ms
        self._most = most_ms
        self._stable = stable_ms
        self._bound = first_ms
        self._due = ticks_ms()
        self._since = None

    def ready(self):
        """Whether the next attempt may be made."""
        return ticks_diff(ticks_ms(), self._due) >= 0

    def now(self):
        """Nothing failed: the next attempt may be made at once."""
        self._due = ticks_ms()

    def began(self):
        """A connection stands."""
        self._since = ticks_ms()

    def stands(self):
        """The connection still stands: once it has lasted, its end is not a failure. To be called
        often, for ticks_ms() begins again after twelve days."""
        if self._since is not None:
            stable = self._bound if self._stable is None else self._stable
            if ticks_diff(ticks_ms(), self._since) >= stable:
                self._bound = self._first
                self._since = None

    def failed(self):
        """An attempt has failed, or a connection has ended. Returns the pause in ms."""
        self.stands()
        self._since = None
        # The system's: the generator of some ports begins with the same number at each boot.
        r = os.urandom(3)
        pause = (r[0] << 16 | r[1] << 8 | r[2]) % (self._bound + 1)
        self._due = ticks_add(ticks_ms(), pause)
        self._bound = min(2 * self._bound, self._most)
        return pause
