"""A made-up sensor for boards without one, that keeps its own exact count of what it measured.

Knows the virtual board's sensor_log: a stream on a file outside the flash. Must not know how
readings travel: its count is the other side of the demonstration's balance, and worth something
only because it does not come by way of the store.

One line before each reading goes into the store, and one line at the next start when it did not
get there:
    take K EPOCH SEQ VALUE UNIXMS
    void K EPOCH SEQ
K counts from 1 and is published as the measurement "reading"; VALUE is the temperature in
hundredths of a degree. Readings taken = lines "take" - lines "void".
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

    def begin(self, store):
        """Find out how far the count had come, and whether its last reading became durable."""
        if self._log is None:
            # No count of its own: go on where the store does.
            self.taken = store.seq - 1
            return
        k, epoch, seq, open_ = self._last()
        self.taken = k
        if open_ and epoch == hexlify(store.epoch) and store.seq <= seq:
            self._log.write(b"void %d %s %d\n" % (k, epoch, seq))
            self.taken = k - 1

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
            line = (k, hexlify(store.epoch), store.seq, value, clock.unix_ms())
            self._log.write(b"take %d %s %d %d %d\n" % line)

    def _last(self):
        # (K, epoch, seq, whether it is a reading) of the last line; a void one takes K back.
        self._log.seek(0)
        k, epoch, seq, open_ = 0, b"", 0, False
        while True:
            line = self._log.readline()
            if not line.endswith(b"\n"):
                break
            words = line.split()
            if len(words) == 6 and words[0] == b"take":
                k, epoch, seq, open_ = int(words[1]), words[2], int(words[3]), True
            elif len(words) == 4 and words[0] == b"void":
                k, open_ = int(words[1]) - 1, False
        if line:
            # A line that was cut off: nothing was published after it.
            self._log.write(b"\n")
        return k, epoch, seq, open_


def make(settings):
    """Return the simulated sensor of this board."""
    seed = vboard.seed if vboard else sum(settings["device"].encode())
    return SimulatedSensor(seed, vboard.sensor_log if vboard else None)
