"""A made-up sensor for boards without one, that keeps its own exact count of what it measured.

Knows the virtual board's sensor_log: a stream on a file outside the flash. Must not know how
readings travel: its count is the other side of the demonstration's balance, and worth something
only because it does not come by way of the store.

One line before publish() is called with a reading, and one when it has returned:
    take K EPOCH SEQ VALUE UNIXMS
    done K EPOCH SEQ
K counts from 1, is given to one reading only, and is published as the measurement "reading"; VALUE
is the temperature in hundredths of a degree. A reading with both lines must reach the table. One
with the first alone was cut off: nobody can know whether the store has it, and nobody asks it.
"""

import sys
from binascii import hexlify

import clock

from sensors.base import Sensor

# The virtual board loads it before anything else and it cannot be loaded later, nor elsewhere.
vboard = sys.modules.get("vboard")


def temperature(seed, k):
    """Hundredths of a degree of reading k: a day's curve of 1440 readings, and some noise."""
    x = (k + seed % 1440) % 1440
    half = x % 720
    # A parabola instead of a sine: no floats. 350 at its top, 1.8e8 on the way there.
    swing = 1400 * half * (720 - half) // 518400
    return 2100 + (swing if x < 720 else -swing) + noise(seed, k) % 31 - 15


def humidity(seed, k):
    """Tenths of a per cent of relative humidity of reading k: falls as it gets warmer."""
    return 550 - (temperature(seed, k) - 2100) // 4 + noise(seed + 1, k) % 11 - 5


def noise(seed, k):
    """A number of 0..32767 that looks random; the same for the same seed and k. Small ints."""
    x = (k & 0x7FFF) * 25173 + (seed & 0x7FFF) * 13849 & 0x3FFFFFFF
    x = (x >> 15 ^ x) & 0x7FFF
    return (x * 25173 + 13849) >> 4 & 0x7FFF


class SimulatedSensor(Sensor):
    """seed: makes the curve; log: stream to append lines to and to read them from, or None."""

    fields = (("temperature", "Cel", 2), ("humidity", "%RH", 1), ("reading", None, 0))

    def __init__(self, seed, log):
        super().__init__()
        self._seed = seed
        self._log = log
        self._name = b""  # "K EPOCH SEQ" of the reading that is being taken

    def begin(self, store):
        """Find out how far the count had come."""
        if self._log is None:
            # No count of its own: go on where the store does.
            self.taken = store.seq - 1
        else:
            self.taken = self._last()

    def sample(self):
        """Make up the values of the next reading."""
        k = self.taken + 1
        values = self.values
        values[0] = temperature(self._seed, k)
        values[1] = humidity(self._seed, k)
        values[2] = k

    def taking(self, store):
        """Write the line of this reading, before the store gets it."""
        if self._log is not None:
            value, _, k = self.values
            self._name = b"%d %s %d" % (k, hexlify(store.epoch), store.seq)
            self._log.write(b"take %s %d %d\n" % (self._name, value, clock.unix_ms()))

    def stored(self):
        """Write that it has been accepted."""
        if self._log is not None:
            self._log.write(b"done %s\n" % self._name)
        super().stored()

    def _last(self):
        # K of the last reading that was begun.
        self._log.seek(0)
        k = 0
        while True:
            line = self._log.readline()
            if not line.endswith(b"\n"):
                break
            words = line.split()
            if len(words) == 6 and words[0] == b"take":
                k = int(words[1])
        if line:
            # A line that was cut off: what it says did not happen.
            self._log.write(b"\n")
        return k


def make(settings):
    """Return the simulated sensor of this board."""
    seed = vboard.seed if vboard else sum(settings["device"].encode())
    return SimulatedSensor(seed, vboard.sensor_log if vboard else None)
