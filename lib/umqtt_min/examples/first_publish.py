"""The shortest program: connect, publish, hear what others publish.

Wi-Fi is up already (boot.py). Change SERVER, then `mpremote run first_publish.py`.
"""

import time

from umqtt_min import MQTTClient

SERVER = "192.168.1.10"


def main(server=SERVER, port=1883):
    client = MQTTClient("first-publish", server, port, keepalive=60)
    client.set_callback(lambda topic, msg: print(topic, msg))
    client.connect()
    client.subscribe("greetings", qos=1)
    client.publish("greetings", "hello", qos=1)  # the broker has it when this returns
    for _ in range(50):
        client.check_msg()  # messages come here, and in every call that waits
        time.sleep_ms(10)
    client.disconnect()


if __name__ == "__main__":
    main()
