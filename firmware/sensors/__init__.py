"""Sensor drivers: one module each, chosen by name in the settings; nothing else is loaded.

A driver is a module with a function make(settings) that returns a base.Sensor.
"""


def make(settings):
    """Return the sensor that settings["sensor"] names.

    Raises ValueError when there is no such driver, or when it does not run on this board.
    """
    name = settings["sensor"]
    if name == "auto":
        name = _default()
    try:
        module = __import__("sensors." + name, None, None, ("make",))
    except ImportError as error:
        raise ValueError("sensor: no driver %r on this board (%s)" % (name, error))
    return module.make(settings)


def _default():
    import sys

    return "chip" if sys.platform in ("esp32", "rp2") else "simulated"
