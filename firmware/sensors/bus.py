"""The I2C bus of the settings, for drivers that need one.

Knows machine.I2C and the keys "i2c.*". Must not know what hangs on the bus.
"""


def i2c(settings):
    """Return a machine.I2C; raise ValueError when this board has no such bus or pin."""
    import machine

    if not hasattr(machine, "I2C"):
        raise ValueError("i2c: this board has no I2C")
    bus, scl, sda = settings["i2c.bus"], settings["i2c.scl"], settings["i2c.sda"]
    try:
        if scl < 0:
            return machine.I2C(bus, freq=100000)
        return machine.I2C(bus, scl=machine.Pin(scl), sda=machine.Pin(sda), freq=100000)
    except ValueError as error:
        raise ValueError("i2c: bus %d, scl %d, sda %d: %s" % (bus, scl, sda, error))
