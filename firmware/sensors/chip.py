"""The temperature of the chip itself: every esp32 and rp2 has one, no wiring.

Knows the ports' calls and the RP2040/RP2350 formula. It reads the die, which is warmer than the
room by what the radio takes.
"""

import sys

from sensors.base import Sensor


class ChipSensor(Sensor):
    """read: function() -> temperature in hundredths of a degree Celsius."""

    fields = (("temperature", "Cel", 2),)

    def __init__(self, read):
        super().__init__()
        self._read = read

    def sample(self):
        """Read the die's temperature."""
        self.values[0] = self._read()


def rp2_centi(raw):
    """Hundredths of a degree from a 16-bit reading of the sensor's ADC channel.

    T = 27 - (V - 0.706) / 0.001721 (RP2040 datasheet section 4.9.5, RP2350 section 12.4.6). In
    small ints: 5035/100 is 3.3 V in microvolts over 65535.
    """
    microvolts = raw * 5035 // 100
    return 2700 - (microvolts - 706000) * 100 // 1721


def _rp2():
    from machine import ADC

    adc = ADC(ADC.CORE_TEMP)
    return lambda: rp2_centi(adc.read_u16())


def _esp32():
    import esp32

    if hasattr(esp32, "mcu_temperature"):
        return lambda: esp32.mcu_temperature() * 100
    # The first ESP32 gives whole degrees Fahrenheit, and not very true ones.
    return lambda: (esp32.raw_temperature() - 32) * 500 // 9


def make(settings):
    """Return the sensor of this chip; raise ValueError where there is none."""
    if sys.platform == "rp2":
        return ChipSensor(_rp2())
    if sys.platform == "esp32":
        return ChipSensor(_esp32())
    raise ValueError('sensor: "chip" is for esp32 and rp2, this board is %r; try "simulated"'
                     % sys.platform)
