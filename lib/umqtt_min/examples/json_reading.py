"""A reading as JSON, and a command as JSON: one topic out, one topic in.

What comes in is somebody else's: it is checked before it is used, and what is no command is said
and dropped.
"""

import json

from umqtt_min import MQTTClient

SERVER = "192.168.1.10"


class Lamp:
    """Obeys {"on": true} and tells its state."""

    def __init__(self, client):
        self.client = client
        self.on = False

    def tell(self):
        state = json.dumps({"on": self.on, "watts": 9 if self.on else 0})
        self.client.publish("lamp/1/state", state, retain=True)

    def obey(self, topic, msg):
        try:
            self.on = bool(json.loads(msg)["on"])
        except (ValueError, KeyError, TypeError) as e:
            print("no command:", msg, e)
            return
        print("on:", self.on)
        self.tell()


def main(server=SERVER, port=1883, commands=1000000):
    client = MQTTClient("json-lamp", server, port, keepalive=60)
    lamp = Lamp(client)
    client.connect()
    client.subscribe("lamp/1/set", qos=1, handler=lamp.obey)
    lamp.tell()
    print("listening")
    for _ in range(commands):
        client.wait_msg()
    client.disconnect()


if __name__ == "__main__":
    main()
