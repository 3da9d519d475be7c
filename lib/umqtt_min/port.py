"""What the library takes from the interpreter: clock and const(). connect.py takes the sockets.

Knows: MicroPython has all of it; CPython gets it from host.py. Never knows: MQTT.
"""

try:
    from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

    from micropython import const

    HOST = False
except ImportError:
    from .host import const, sleep_ms, ticks_add, ticks_diff, ticks_ms  # type: ignore

    HOST = True  # CPython as it is

__all__ = ("HOST", "const", "sleep_ms", "ticks_add", "ticks_diff", "ticks_ms")
