"""mqtt_as by Peter Hinch, the asynchronous client. No QoS 2.

It wants a Wi-Fi interface: here is one that is always up.
"""

import asyncio
import sys
import time

from common import LIMIT_S, MSG, SUBSCRIBED, TOPIC, Count, go

OPS = ("qos0", "qos1", "window", "receive0", "receive1")
_names = {}


class _Up:
    def __getattr__(self, name):
        return lambda *a, **k: True


class _Network:
    STA_IF = 0
    WLAN = staticmethod(lambda *a: _Up())


class _Machine:
    unique_id = staticmethod(lambda: b"\x01\x02")


sys.modules["network"] = _Network
sys.modules["machine"] = _Machine


def load():
    import mqtt_as

    class Client(mqtt_as.MQTTClient):
        async def wifi_connect(self, quick=False):
            pass

    _names["client"] = Client
    _names["config"] = mqtt_as.config


def connect(host, port, name):
    _names["count"] = Count()
    config = _names["config"]
    config.update(server=host, port=port, client_id=name, keepalive=60, clean=True,
                  ssid="x", wifi_pw="x", subs_cb=_message, queue_len=0)
    c = _names["client"](config)
    asyncio.get_event_loop().run_until_complete(c.connect(quick=True))
    return c


def _message(topic, msg, retained):
    _names["count"].n += 1


def do(c, op, n):
    f = _window(c, n) if op == "window" else _publish(c, int(op[3]), n)
    asyncio.get_event_loop().run_until_complete(f)


async def _publish(c, qos, n):
    for _ in range(n):
        await c.publish(TOPIC, MSG, False, qos)


async def _window(c, n):
    share = n // 16
    await asyncio.gather(*[_publish(c, 1, share) for _ in range(16)])


def receive(c, op, n):
    return asyncio.get_event_loop().run_until_complete(_receive(c, int(op[-1]), n))


async def _receive(c, qos, n):
    await c.subscribe(SUBSCRIBED, qos)
    count = _names["count"]
    go()
    t = time.ticks_us()
    end = time.ticks_add(time.ticks_ms(), LIMIT_S * 1000)
    while count.n < n:
        await asyncio.sleep_ms(0)
        if time.ticks_diff(end, time.ticks_ms()) < 0:
            raise OSError("%d of %d messages came" % (count.n, n))
    return time.ticks_diff(time.ticks_us(), t)
