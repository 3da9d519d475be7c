"""What the library takes from the interpreter: clock, sockets, poll, const().

Knows: MicroPython has all of it; CPython gets it from host.py. Never knows: MQTT.
"""

from select import poll as Poll
from socket import socket as Socket

try:
    from time import sleep_ms, ticks_add, ticks_diff, ticks_ms

    from micropython import const
except ImportError:
    from .host import Poll, Socket, const, sleep_ms, ticks_add, ticks_diff, ticks_ms  # type: ignore

__all__ = ("Poll", "Socket", "const", "sleep_ms", "ticks_add", "ticks_diff", "ticks_ms")
