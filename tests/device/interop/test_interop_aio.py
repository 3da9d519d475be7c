"""aio.MQTTClient against mosquitto, over real sockets.

Knows: the client's API.  Must not know: the client's inside.
"""
# needs: mosquitto
# heap: 2M
# deadline: 60

import asyncio

import interop_common as common
from aio_bench import SECONDS, take
from umqtt_min.aio import MQTTClient


def client(**options):
    """A client of the session's broker."""
    return MQTTClient(common.unique("aio"), common.HOST, common.PORT, keepalive=30, **options)


def test_tasks_publish_and_one_takes_it_all():
    async def publish(c, topic, task):
        for i in range(10):
            await c.publish(topic, b"%d/%d" % (task, i), qos=i % 3)

    async def main():
        topic = common.unique("aio/tasks")
        async with client() as c, client(queue=3) as other:
            await other.subscribe(topic, 2)
            consumer = asyncio.create_task(take(other, 50))
            await asyncio.gather(*[publish(c, topic, task) for task in range(5)])
            got = await asyncio.wait_for(consumer, SECONDS)
        for task in range(5):
            # Within a task all in order: each was sent before the next was published.
            mine = [m for m in got if m.startswith(b"%d/" % task)]
            assert mine == [b"%d/%d" % (task, i) for i in range(10)]

    asyncio.run(main())
    asyncio.new_event_loop()


def test_the_link_is_made_again():
    async def main():
        topic = common.unique("aio/again")
        c = client(reconnect={"first": 0.05, "most": 0.2})
        await c.connect()
        await c.subscribe(topic, 1)
        c.core.sock.close()
        assert await c.publish(topic, "x", qos=1)
        assert await asyncio.wait_for(c.__anext__(), SECONDS) == (topic.encode(), b"x")
        assert c.counters.connects == 2
        await c.disconnect()

    asyncio.run(main())
    asyncio.new_event_loop()
