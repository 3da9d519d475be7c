"""DHT22 (AM2302) on one wire of its own: temperature and humidity.

Knows MicroPython's module dht, which is built into the esp32 and rp2 ports, and the five bytes
that the sensor sends (Aosong, DHT22 data sheet, section 6 (2)). Must not know which pin: it is in
the settings. The bytes are reckoned with as they come: dht's own methods make floats of them.

The sensor measures every two seconds, and each answer is the measurement before it.
"""

from sensors.base import Sensor

SHORTEST_MS = 2000


class DHT22(Sensor):
    """dht: a dht.DHT22 or what has its `measure` and `buf`."""

    fields = (("temperature", "Cel", 1), ("humidity", "%RH", 1))

    def __init__(self, dht):
        super().__init__()
        self._dht = dht

    def sample(self):
        """Ask for the last measurement: takes some 25 ms, 5 of them with interrupts off."""
        try:
            self._dht.measure()
        except OSError as error:
            raise OSError("no DHT22 answers on its pin (%s)" % error)
        except Exception as error:
            raise OSError("DHT22: %s" % error)  # its check sum is an exception of no kind
        d, values = self._dht.buf, self.values
        t = (d[2] & 0x7F) << 8 | d[3]
        values[0] = -t if d[2] & 0x80 else t  # sign and magnitude
        values[1] = d[0] << 8 | d[1]


def make(settings):
    """Return the sensor on the pin that the settings name; ValueError where that cannot be."""
    try:
        from dht import DHT22 as Driver
    except ImportError:
        raise ValueError("sensor: this board has no module dht")
    from machine import Pin

    if settings["pin"] < 0:
        raise ValueError("pin: expected the GPIO that the DHT22's data line is on")
    if settings["interval_ms"] < SHORTEST_MS:
        raise ValueError("interval_ms: a DHT22 measures every %d ms, got %d"
                         % (SHORTEST_MS, settings["interval_ms"]))
    return DHT22(Driver(Pin(settings["pin"])))
