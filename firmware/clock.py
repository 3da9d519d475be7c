"""Clock: time since boot without a wrap, and Unix time once it is known.

Knows ticks_ms, time.time_ns and NTP. Must not know telemetry. ticks_ms wraps after 12.4 days on a
32-bit chip, so Uptime adds up differences in two small ints, and epoch seconds (no small int
there) are reckoned with only once per boot.
"""

import time

from umqtt_min.backoff import Backoff

# Unix time of the second where this port's clock begins: esp32 counts from 2000, rp2 and unix
# from 1970.
BASE = 946684800 if time.gmtime(0)[0] == 2000 else 0


class Uptime:
    """Time since it was made: `s` seconds and `ms` milliseconds 0..999."""

    def __init__(self):
        self.s = 0
        self.ms = 0
        self._last = time.ticks_ms()

    def update(self):
        """Bring s and ms up to date; call it at least once in six days."""
        now = time.ticks_ms()
        ms = self.ms + time.ticks_diff(now, self._last)
        self._last = now
        while ms >= 1000:
            ms -= 1000
            self.s += 1
        self.ms = ms


def is_set():
    """Tell whether the clock has been set: no board starts in this decade by itself."""
    return time.gmtime()[0] >= 2024


def unix_ms():
    """Return milliseconds since 1970. Allocates: for once per boot and the host."""
    return time.time_ns() // 1000000 + BASE * 1000


def unix_s():
    """Return seconds since 1970, 0 while the clock has not been set. Allocates."""
    return unix_ms() // 1000 if is_set() else 0


def ask(host):
    """Set the clock from an NTP server (blocks for about a second at most).

    Raises OSError when there is no answer, and when this port has no ntptime.
    """
    try:
        import ntptime
    except ImportError:
        raise OSError("no ntptime on this port")
    ntptime.host = host
    ntptime.settime()


class TimeServer:
    """Asks an NTP server until the clock is set, with pauses that grow.

    host  its name; "": something else sets the clock
    log   function(text)
    """

    def __init__(self, host, log):
        self._host = host
        self._log = log
        self._backoff = Backoff(1000, 600000)

    @property
    def idle(self):
        """True when there is nothing to be done just now."""
        return not self._host or not self._backoff.ready()

    def step(self, joined):
        """Ask if it is time to; return whether the clock is set.

        joined  function(): whether there is a network to ask over
        """
        if is_set():
            return True
        if not self.idle and joined():
            try:
                ask(self._host)
            except Exception as error:
                pause = self._backoff.failed()
                name = type(error).__name__
                self._log("ntp: %s: %s, next try in %d ms" % (name, error, pause))
        return False
