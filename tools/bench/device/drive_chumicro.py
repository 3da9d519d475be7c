"""chumicro-mqtt from PyPI. No QoS 2.

It takes a socket and a clock from outside; both are given here, none is counted.
"""

import errno
import socket
import time

from common import LIMIT_S, MSG, SUBSCRIBED, TOPIC, Count, until

OPS = ("qos0", "qos1", "window", "receive0", "receive1")
_names = {}
_MSG = MSG
_TOPIC = TOPIC.decode()


class _Socket:
    """recv_into() and send() as CPython and CircuitPython have them."""

    def __init__(self, host, port):
        s = socket.socket()
        s.connect(socket.getaddrinfo(host, port)[0][-1])
        s.setblocking(False)
        self._read = s.readinto
        self._write = s.write
        self.close = s.close

    def recv_into(self, buf, n):
        n = self._read(buf, n)
        if n is None:
            raise OSError(errno.EAGAIN)
        return n

    def send(self, buf):
        return self._write(buf) or 0


class _Ticks:
    ticks_ms = staticmethod(time.ticks_ms)
    ticks_add = staticmethod(time.ticks_add)
    ticks_diff = staticmethod(time.ticks_diff)


def load():
    from chumicro_mqtt import MQTTClient

    _names["client"] = MQTTClient


def _step(c):
    c.handle(time.ticks_ms())


def _wait(c, done):
    end = time.ticks_add(time.ticks_ms(), LIMIT_S * 1000)
    while not done():
        _step(c)
        if c.state == "failed" or time.ticks_diff(end, time.ticks_ms()) < 0:
            raise OSError("chumicro-mqtt: %s" % c.last_error)


def connect(host, port, name):
    c = _names["client"](_Socket(host, port), client_id=name, ticks=_Ticks)
    c.connect()
    _wait(c, lambda: c.state == "connected")
    return c


def do(c, op, n):
    most = 16 if op == "window" else 1
    qos = 0 if op == "qos0" else 1
    for _ in range(n):
        c.publish(_TOPIC, _MSG, qos=qos)
        _step(c)
        while len(c._in_flight) >= most or c._tx_queue:
            _step(c)
            if c.state == "failed":
                raise OSError("chumicro-mqtt: %s" % c.last_error)
    _wait(c, lambda: not (c._in_flight or c._tx_queue))


def receive(c, op, n):
    count = Count()
    c.on_message = count.two
    c.subscribe(SUBSCRIBED.decode(), int(op[-1]))
    _wait(c, lambda: not (c._pending_responses or c._tx_queue))
    return until(count, n, lambda: _step(c))
