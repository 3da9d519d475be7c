"""What the library takes from the interpreter: clock, const(), and a way round a fault of its
imports. connect.py takes the sockets.

Knows: MicroPython has all of it; CPython gets it from host.py. Never knows: MQTT.
"""

from sys import modules

try:
    from time import sleep_ms, ticks_add, ticks_diff, ticks_ms  # noqa: F401

    from micropython import const

    HOST = False
except ImportError:
    from .host import const, sleep_ms, ticks_add, ticks_diff, ticks_ms  # type: ignore # noqa: F401

    HOST = True  # CPython as it is


def mend_imports():
    """Forget modules for which there was no memory: MicroPython keeps an entry without a value for
    them, and crashes with the next import of that name."""
    for key in modules:
        if modules.get(key, key) is key:
            modules.pop(key, None)
            return mend_imports()  # the dictionary has changed
