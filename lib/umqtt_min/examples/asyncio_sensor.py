"""asyncio: one task publishes readings, one obeys commands, both over one connection.

The link is made again by itself. While it is, `connect` may hold the loop for `attempt`
seconds: see aio.py.
"""

import asyncio

from umqtt_min.aio import MQTTClient

SERVER = "192.168.1.10"


class Sensor:
    """Publishes every `pause` seconds; the payload of commands/sensor is a new pause."""

    def __init__(self, client, pause):
        self.client = client
        self.pause = pause

    async def publish(self):
        n = 0
        while True:
            await self.client.publish("readings/sensor", "%d" % n, qos=1)
            n += 1
            await asyncio.sleep(self.pause)

    async def obey(self):
        async for _, msg in self.client:
            if msg == b"stop":
                return
            self.pause = float(msg)
            print("pause", self.pause)


async def run(server, port, pause):
    client = MQTTClient("asyncio-sensor", server, port, keepalive=60, reconnect={"attempt": 3})
    async with client:
        sensor = Sensor(client, pause)
        # Begun first: what has waited at the broker comes before it answers subscribe().
        obeying = asyncio.create_task(sensor.obey())
        await client.subscribe("commands/sensor", 1)
        print("listening")
        publishing = asyncio.create_task(sensor.publish())
        await obeying
        publishing.cancel()


def main(server=SERVER, port=1883, pause=10):
    asyncio.run(run(server, port, pause))


if __name__ == "__main__":
    main()
