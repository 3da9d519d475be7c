"""The DHT22: its five bytes as integers, and what happens when it does not answer."""
# also: micropython32

import sys

from harness import raises
from sensors import dht22, make


class Wire:
    """A dht.DHT22 whose sensor sends what the test says."""

    def __init__(self, pin=None):
        self.pin = pin
        self.buf = bytearray(5)
        self.answer = b"\x02\x8c\x01\x5f\xee"
        self.error = None

    def measure(self):
        if self.error:
            raise self.error
        self.buf[:] = self.answer


def sampled(answer):
    wire = Wire()
    wire.answer = answer
    sensor = dht22.DHT22(wire)
    sensor.sample()
    return sensor.values


def test_the_data_sheets_examples():
    # Section 6 (2): 65.2 %RH and 35.1 C; a temperature below zero has its highest bit set.
    assert sampled(b"\x02\x8c\x01\x5f\xee") == [351, 652]
    assert sampled(b"\x02\x8c\x80\x65\x73") == [-101, 652]
    assert sampled(b"\x00\x00\x00\x00\x00") == [0, 0]
    assert sampled(b"\x03\xe8\x81\x90\xfc") == [-400, 1000]


def fault(sensor):
    return str(raises(OSError, sensor.sample))


def test_no_answer_and_a_wrong_sum_are_oserrors_and_it_comes_back():
    wire = Wire()
    sensor = dht22.DHT22(wire)
    wire.error = OSError(110)
    assert "no DHT22 answers on its pin" in fault(sensor)
    wire.error = Exception("checksum error")
    assert "DHT22: checksum error" in fault(sensor)
    wire.error = None
    sensor.sample()
    assert sensor.values == [351, 652]


class Module:
    """A stand-in for a module."""


def refused(**changes):
    try:
        made(**changes)
    except ValueError as error:
        return str(error)
    raise AssertionError(changes)


def made(**changes):
    settings = {"sensor": "dht22", "pin": 15, "interval_ms": 10000}
    settings.update(changes)
    return make(settings)


def test_it_is_made_on_the_pin_of_the_settings():
    dht, machine = Module(), Module()
    dht.DHT22, machine.Pin = Wire, lambda number: "GPIO%d" % number
    before = {name: sys.modules.get(name) for name in ("dht", "machine")}
    try:
        sys.modules.update({"dht": dht, "machine": machine})
        sensor = made()
        assert sensor._dht.pin == "GPIO15"
        sensor.sample()
        assert sensor.values == [351, 652]
        assert "pin: expected the GPIO" in refused(pin=-1)
        assert "measures every 2000 ms, got 1000" in refused(interval_ms=1000)
    finally:
        for name in before:
            if before[name] is None:
                del sys.modules[name]
            else:
                sys.modules[name] = before[name]


def test_a_port_without_the_module_says_so():
    assert "this board has no module dht" in refused()
