"""The BME280: its arithmetic by the data sheets' numbers, and its registers on a bus of our own.

Temperature and pressure: the worked example of Bosch's BMP280 data sheet (BST-BMP280-DS001,
section 3.12), whose formulas for both are the BME280's. For humidity the data sheets have none:
there the double precision formulas of BST-BME280-DS002 (section 8.1) are the other side. Compared
once with Bosch's own driver in C (BME280_SensorAPI, integers): with 20,000 random calibrations and
readings it gave the same within what its divisions round (0.02 Cel, 0.1 Pa, 0.02 %RH).
"""
# also: micropython32

from struct import pack

from harness import raises
from sensors import bme280

T = (27504, 26435, -1000)
P = (36477, -10685, 3024, 2855, 140, -7, 15500, -14600, 6000)
H = (75, 371, 0, 313, 50, 30)
ADC_T, ADC_P = 519888, 415148


def registers(t=T, p=P, h=H):
    """Calibration registers as a sensor has them: bytes from 0x88, and from 0xE1."""
    h1, h2, h3, h4, h5, h6 = h
    low = pack("<HhhHhhhhhhhh", *(t + p)) + bytes((0, h1))
    e4, e6 = h4 >> 4 & 255, h5 >> 4 & 255
    high = pack("<hB", h2, h3) + bytes((e4, h4 & 15 | (h5 & 15) << 4, e6)) + pack("<b", h6)
    return low, high


def close(a, b, tolerance):
    assert abs(a - b) <= tolerance, (a, b)


def test_temperature_and_pressure_of_the_data_sheets_example():
    c = bme280.Calibration(*registers())
    fine = c.fine(ADC_T)
    assert fine == 128422 and c.temperature(fine) == 2508
    close(c.pressure(ADC_P, fine) / 256, 100653.27, 0.1)


def test_parameters_are_read_with_their_signs():
    for h in (H, (255, -1, 255, -1, -2048, -128), (0, 32767, 1, 2047, 2047, 127)):
        assert bme280.Calibration(*registers(h=h)).h == h
    c = bme280.Calibration(*registers())
    assert c.t == T and c.p == P


def humidity(adc, fine, h):
    """Section 8.1, in floating point."""
    x = fine - 76800.0
    x = (adc - (h[3] * 64.0 + h[4] / 16384.0 * x)) * (
        h[1] / 65536.0 * (1.0 + h[5] / 67108864.0 * x * (1.0 + h[2] / 67108864.0 * x)))
    return min(max(x * (1.0 - h[0] * x / 524288.0), 0.0), 100.0)


def pressure(adc, fine, p):
    """Section 8.1, in floating point."""
    a = fine / 2.0 - 64000.0
    b = a * a * p[5] / 32768.0
    b = (b + a * p[4] * 2.0) / 4.0 + p[3] * 65536.0
    a = (1.0 + (p[2] * a * a / 524288.0 + p[1] * a) / 524288.0 / 32768.0) * p[0]
    x = (1048576.0 - adc - b / 4096.0) * 6250.0 / a
    return x + (p[8] * x * x / 2147483648.0 + x * p[7] / 32768.0 + p[6]) / 16.0


def test_integers_agree_with_the_formulas_in_floating_point():
    c = bme280.Calibration(*registers())
    for adc_t in range(400000, 660000, 37001):
        fine = c.fine(adc_t)
        for adc in range(0, 65536, 3001):
            close(c.humidity(adc, fine) / 1024, humidity(adc, fine, H), 0.05)
        for adc in range(250000, 700000, 30011):
            close(c.pressure(adc, fine) / 256, pressure(adc, fine, P), 1)


class Bus:
    """machine.I2C with one BME280 on it."""

    def __init__(self, address=0x76, id=0x60):
        self.address = address
        self.memory = bytearray(256)
        self.memory[0xD0] = id
        low, high = registers()
        self.memory[0x88 : 0x88 + 26] = low
        self.memory[0xE1 : 0xE1 + 7] = high
        self.raw(ADC_P, ADC_T, 30000)
        self.written = []
        self.busy = 0
        self.gone = False

    def raw(self, p, t, h):
        """What the next measurement finds."""
        self.next = bytes((p >> 12, p >> 4 & 255, p << 4 & 255,
                           t >> 12, t >> 4 & 255, t << 4 & 255, h >> 8, h & 255))

    def _there(self, address):
        if self.gone or address != self.address:
            raise OSError(19)

    def readfrom_mem(self, address, register, count):
        self._there(address)
        if register == 0xF3 and self.busy:
            self.busy -= 1
            return b"\x08"
        return bytes(self.memory[register : register + count])

    def readfrom_mem_into(self, address, register, buf):
        self._there(address)
        buf[:] = self.memory[register : register + len(buf)]

    def writeto_mem(self, address, register, data):
        self._there(address)
        self.written.append((register, data[0]))
        if register == 0xF4 and data[0] & 3 == 1:
            self.memory[0xF7:0xFF] = self.next


def test_a_sample_is_one_forced_measurement():
    bus = Bus()
    sensor = bme280.BME280(bus)
    bus.busy = 3
    sensor.sample()
    # ctrl_hum takes effect with the write of ctrl_meas after it (section 5.4.3)
    assert bus.written == [(0xF2, 1), (0xF4, 0x25)] and bus.busy == 0
    assert sensor.values[:2] == [2508, 1006533]
    c = bme280.Calibration(*registers())
    close(sensor.values[2], 100 * humidity(30000, c.fine(ADC_T), H), 5)


def fault(sensor):
    return str(raises(OSError, sensor.sample))


def test_what_is_not_there_is_an_oserror_and_comes_back():
    bus = Bus()
    sensor = bme280.BME280(bus)
    bus.gone = True
    fault(sensor)
    bus.gone = False
    sensor.sample()
    assert sensor.values[0] == 2508
    bus.gone = True
    fault(sensor)
    bus.gone = False
    bus.memory[0x88:0x8A] = pack("<H", 27000)  # another one was plugged in
    sensor.sample()
    assert sensor.values[0] != 2508


def test_another_chip_is_named():
    assert "no BME280 at I2C address 0x76: its id is 0x58" in fault(bme280.BME280(Bus(id=0x58)))


def test_measurement_that_never_ends_is_bounded():
    bus = Bus()
    bus.busy = 1000
    assert "does not end" in fault(bme280.BME280(bus))


def test_what_was_not_measured_is_no_value():
    bus = Bus()
    sensor = bme280.BME280(bus)
    bus.raw(0x80000, ADC_T, 0x8000)
    sensor.sample()
    assert sensor.values == [2508, None, None]
    bus.raw(ADC_P, 0x80000, 30000)
    assert "has not measured" in fault(sensor)
