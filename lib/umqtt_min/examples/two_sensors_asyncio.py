"""asyncio: two sensors, each with its own pace, over one connection.

Each task waits for its own acknowledgement, so that a slow one holds nobody up. A connection that
is lost is made again by itself; what was published meanwhile waits in the store.
"""

import asyncio

from umqtt_min import FileStore
from umqtt_min.aio import MQTTClient

SERVER = "192.168.1.10"


async def sensor(client, name, pause, readings):
    for n in range(readings):
        await client.publish("readings/" + name, "%d" % n, qos=1)
        await asyncio.sleep(pause)
    print(name, "done")


async def run(server, port, folder, readings, pause):
    client = MQTTClient("two-sensors", server, port, keepalive=60, store=FileStore(folder))
    async with client:
        await asyncio.gather(
            sensor(client, "temperature", pause, readings),
            sensor(client, "door", pause / 4, readings),
        )


def main(server=SERVER, port=1883, folder="/mqtt", readings=1000000, pause=1.0):
    asyncio.run(run(server, port, folder, readings, pause))


if __name__ == "__main__":
    main()
