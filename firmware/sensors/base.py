"""What a sensor driver is to the firmware.

Knows nothing of MQTT, the store's layout or the packing. A driver fills `values` with integers:
a value counts units of 10**-digits of its field, so that no float is needed.
"""


class Sensor:
    """A sensor. A driver overrides `fields` and sample(), and the rest where it needs to.

    fields   tuple of (name, unit or None, digits): SenML name and unit (RFC 8428 section 12.1)
    values   list of integers, one per field, as of the last sample(); None: no value
    taken    readings taken; of this boot, or of all boots where the driver can tell
    """

    fields: tuple = ()

    def __init__(self):
        self.values: list = [None] * len(self.fields)
        self.taken = 0

    def begin(self, store):
        """The store is open and nothing has been put into it yet in this boot."""

    def sample(self):
        """Measure, and fill `values`. Raises OSError when the sensor does not answer."""

    def taking(self, store):
        """The sampled values are about to be put into the store, with number store.seq."""

    def stored(self):
        """They are durable."""
        self.taken += 1
