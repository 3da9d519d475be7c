"""BME280 on I2C: temperature, pressure and humidity. The example of a driver with a bus.

Knows the registers and the compensation of the data sheet (Bosch BST-BME280-DS002, sections
4.2.2, 4.2.3 and 5). Must not know pins: they are in the settings ("i2c.*"). Integers only; those
beyond a chip's small int take something from the heap for each reading.

The sensor sleeps between readings (forced mode), and is set up anew when it was unplugged.
"""

from struct import unpack
from time import sleep_ms

from sensors.base import Sensor

ADDRESS = 0x76  # 0x77 with SDO high
_ID, _CTRL_HUM, _STATUS, _CTRL_MEAS, _DATA = 0xD0, 0xF2, 0xF3, 0xF4, 0xF7
_CALIBRATION, _CALIBRATION_H = 0x88, 0xE1
_BME280 = 0x60
_ONCE = 0x25  # temperature and pressure one sample each, forced mode
_MEASURING = 0x08
# Section 9.1: 9.3 ms at most with one sample of each.
_TYPICAL_MS = 10
_TRIES = 10
_NO_TP, _NO_H = 0x80000, 0x8000  # what stands in the registers of what was not measured


class Calibration:
    """The trimming parameters of one sensor, and the arithmetic with them (section 4.2.3).

    low   26 bytes from register 0x88, high: 7 bytes from 0xE1
    """

    def __init__(self, low, high):
        self.t = unpack("<Hhh", low[:6])
        self.p = unpack("<Hhhhhhhhh", low[6:24])
        h2, h3, e4, e5, e6, h6 = unpack("<hBbBbb", high)
        # H4 and H5 share register 0xE5.
        self.h = (low[25], h2, h3, e4 * 16 | e5 & 15, e6 * 16 | e5 >> 4, h6)

    def fine(self, adc):
        """Return t_fine, which all three need, of a 20-bit reading."""
        t1, t2, t3 = self.t
        a = ((adc >> 3) - (t1 << 1)) * t2 >> 11
        b = (adc >> 4) - t1
        return a + ((b * b >> 12) * t3 >> 14)

    def temperature(self, fine):
        """Return hundredths of a degree Celsius."""
        return fine * 5 + 128 >> 8

    def pressure(self, adc, fine):
        """Return 256ths of a pascal of a 20-bit reading; 0 when the parameters make no sense."""
        p = self.p
        a = fine - 128000
        b = a * a * p[5] + (a * p[4] << 17) + (p[3] << 35)
        a = (a * a * p[2] >> 8) + (a * p[1] << 12)
        a = ((1 << 47) + a) * p[0] >> 33
        if a == 0:
            return 0
        x = ((1048576 - adc << 31) - b) * 3125 // a
        a = p[8] * (x >> 13) * (x >> 13) >> 25
        b = p[7] * x >> 19
        return (x + a + b >> 8) + (p[6] << 4)

    def humidity(self, adc, fine):
        """Return 1024ths of a per cent of relative humidity, 0..102400, of a 16-bit reading."""
        h1, h2, h3, h4, h5, h6 = self.h
        x = fine - 76800
        gain = ((x * h6 >> 10) * ((x * h3 >> 11) + 32768) >> 10) + 2097152
        x = ((adc << 14) - (h4 << 20) - h5 * x + 16384 >> 15) * (gain * h2 + 8192 >> 14)
        x -= ((x >> 15) * (x >> 15) >> 7) * h1 >> 4
        return min(max(x, 0), 419430400) >> 12


class BME280(Sensor):
    """i2c: a machine.I2C; address: of the sensor on it."""

    fields = (("temperature", "Cel", 2), ("pressure", "Pa", 1), ("humidity", "%RH", 2))

    def __init__(self, i2c, address=ADDRESS):
        super().__init__()
        self._i2c = i2c
        self._address = address
        self._data = bytearray(8)
        self._calibration = None

    def sample(self):
        """Measure once: takes about 10 ms."""
        try:
            self._measure()
        except OSError:
            self._calibration = None  # it may be another one when it is back
            raise

    def _measure(self):
        if self._calibration is None:
            self._calibration = self._begin()
        self._write(_CTRL_HUM, 1)
        self._write(_CTRL_MEAS, _ONCE)
        sleep_ms(_TYPICAL_MS)
        for _ in range(_TRIES):
            if not self._read(_STATUS, 1)[0] & _MEASURING:
                break
            sleep_ms(1)
        else:
            raise OSError("BME280 does not end its measurement")
        self._i2c.readfrom_mem_into(self._address, _DATA, self._data)
        self._compute(self._data)

    def _begin(self):
        found = self._read(_ID, 1)[0]
        if found != _BME280:
            raise OSError("no BME280 at I2C address 0x%02x: its id is 0x%02x, not 0x60"
                          % (self._address, found))
        return Calibration(self._read(_CALIBRATION, 26), self._read(_CALIBRATION_H, 7))

    def _compute(self, d):
        c, values = self._calibration, self.values
        p = d[0] << 12 | d[1] << 4 | d[2] >> 4
        t = d[3] << 12 | d[4] << 4 | d[5] >> 4
        h = d[6] << 8 | d[7]
        if t == _NO_TP:
            raise OSError("BME280 has not measured")
        fine = c.fine(t)
        values[0] = c.temperature(fine)
        values[1] = None if p == _NO_TP else c.pressure(p, fine) * 10 + 128 >> 8
        values[2] = None if h == _NO_H else c.humidity(h, fine) * 100 + 512 >> 10

    def _read(self, register, count):
        return self._i2c.readfrom_mem(self._address, register, count)

    def _write(self, register, value):
        self._i2c.writeto_mem(self._address, register, bytes((value,)))


def make(settings):
    """Return the sensor on the bus and the pins that the settings name."""
    from sensors.bus import i2c

    return BME280(i2c(settings), settings["i2c.address"] or ADDRESS)
