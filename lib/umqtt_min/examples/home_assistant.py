"""A sensor that appears in Home Assistant by itself (MQTT discovery).

The description of the sensor is retained at the broker, so that Home Assistant finds it whenever
it starts. The last will says "offline" when the board is gone. Readings are JSON;
`value_template` in the description picks the value.
"""

import json
import time

from umqtt_min import FileStore, MQTTClient
from umqtt_min.reconnect import Reconnect

SERVER = "192.168.1.10"
NAME = "cellar"  # names the device, its topics and its entities: letters, digits, - and _


def read_sensor(n):
    return {"temperature": 21.5 + n % 4 * 0.5, "humidity": 55}


def describe(client, name):
    """Publish one description for each value: see Home Assistant's "MQTT Discovery"."""
    units = {"temperature": "\u00b0C", "humidity": "%"}
    for value in units:
        client.publish(
            "homeassistant/sensor/%s/%s/config" % (name, value),
            json.dumps(
                {
                    "name": value,
                    "unique_id": "%s-%s" % (name, value),
                    "device": {"identifiers": [name], "name": name},
                    "device_class": value,
                    "unit_of_measurement": units[value],
                    "state_topic": "readings/" + name,
                    "value_template": "{{ value_json.%s }}" % value,
                    "availability_topic": "status/" + name,
                }
            ),
            retain=True,
            qos=1,
            wait=False,
        )


def main(server=SERVER, port=1883, folder="/mqtt", device=NAME, readings=1000000, pause_ms=60000):
    client = MQTTClient(device, server, port, keepalive=60, store=FileStore(folder))
    client.set_last_will("status/" + device, "offline", retain=True, qos=1)
    link = Reconnect(client)
    describe(client, device)
    was = False  # what `status` says
    for n in range(readings):
        client.publish("readings/" + device, json.dumps(read_sensor(n)), qos=1, wait=False)
        begin = time.ticks_ms()
        while time.ticks_diff(time.ticks_ms(), begin) < pause_ms:
            up = link.step()
            if up and not was:
                client.publish("status/" + device, "online", retain=True, qos=1, wait=False)
            was = up
            time.sleep_ms(10)
    client.flush()


if __name__ == "__main__":
    main()
