"""What the tests of the asyncio face share: a client on a strict broker, and ways to wait.

Knows: Network, StrictBroker, aio.MQTTClient's arguments.  Must not know: what is tested.  The
clock is real; every wait has a deadline.
"""

import asyncio
import time

from broker_stream import Network
from strict_broker import StrictBroker
from umqtt_min.aio import MQTTClient

SECONDS = 60
FAST = {"first": 0.05, "most": 0.2, "attempt": 20}


class Bench:
    """A broker, a network, a client."""

    def __init__(self, **options):
        self.broker = StrictBroker()
        self.broker.patience = 20000
        self.net = Network(self.broker)
        settings = {"keepalive": 60, "timeout": 20, "reconnect": FAST, "connector": self.net}
        settings.update(options)
        self.client = MQTTClient("dev", "broker", **settings)


async def eventually(condition, what="the condition"):
    """Wait until condition() is true."""
    end = time.ticks_add(time.ticks_ms(), SECONDS * 1000)
    while time.ticks_diff(end, time.ticks_ms()) > 0:
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("%s did not come about in %d s" % (what, SECONDS))


async def cut(b):
    """The link is lost, made again, and what the broker then sends is read."""
    n = b.client.counters.connects
    b.net.cut()
    await eventually(lambda: b.client.counters.connects > n and b.client.connected, "a new link")
    await eventually(lambda: not b.net.stream.conn.out and not b.client.core._rx.peek())


async def error(coroutine, kind):
    """The exception of that kind that awaiting the coroutine must raise."""
    try:
        await coroutine
    except kind as e:
        return e
    raise AssertionError("%s was not raised" % kind)


async def take(client, n):
    """The payloads of the next n messages."""
    got = []
    async for _, msg in client:
        got.append(msg)
        if len(got) == n:
            return got


def run(test, **options):
    """Run test(bench) with a client, connected; the loop has to end in time."""
    b = Bench(**options)

    async def main():
        await b.client.connect()
        await asyncio.wait_for(test(b), 2 * SECONDS)
        await b.client.disconnect()

    asyncio.run(main())
    asyncio.new_event_loop()  # MicroPython keeps the old one's tasks
    return b
