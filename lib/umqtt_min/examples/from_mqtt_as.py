"""Coming from mqtt_as: what stood in `config` are arguments, the rest reads alike.

    mqtt_as                                 umqtt_min.aio
    config["server"], "client_id", ...      MQTTClient(client_id, server, ...)
    config["ssid"], "wifi_pw"               none: Wi-Fi is yours (esp32 and rp2 keep it up by
                                            themselves once network.WLAN.connect() was called)
    config["will"] = (t, m, retain, qos)    client.set_last_will(t, m, retain, qos)
    config["clean"]                         connect(clean_session=...), False by default
    await client.up.wait(), then subscribe  once is enough: it is renewed when need be
    async for topic, msg, retained in ...   async for topic, msg in client
    await client.publish(t, m, qos=1)       the same; also at QoS 2, and up to 16 at once
    queue_len, messages discarded           queue=8; of QoS 1 and 2 nothing is discarded
"""

import asyncio

from umqtt_min.aio import MQTTClient

SERVER = "192.168.1.10"


async def messages(client):
    async for topic, msg in client:
        print(topic, msg)


async def run(server, port, count):
    client = MQTTClient("from-mqtt-as", server, port, keepalive=60)
    client.set_last_will("status/from-mqtt-as", "gone", True, 0)
    await client.connect()
    await client.subscribe("foo_topic", 1)
    task = asyncio.create_task(messages(client))
    for n in range(count):
        # If the link is down this waits until it is up again, timeout= seconds at most.
        await client.publish("foo_topic", "%d" % n, qos=1)
        await asyncio.sleep(0.1)
    task.cancel()
    await client.disconnect()


def main(server=SERVER, port=1883, count=5):
    asyncio.run(run(server, port, count))


if __name__ == "__main__":
    main()
