# A button that publishes.  Written for umqtt.simple; only the import is another.
import time

import machine
from machine import Pin
from umqtt_min import MQTTClient

button = Pin(0, Pin.IN)
CLIENT_ID = "button-" + "".join("%02x" % b for b in machine.unique_id())


def main(server="localhost", port=1883, topic=b"led", presses=3):
    c = MQTTClient(CLIENT_ID, server, port)
    c.connect()
    print("connected to %s, waiting for the button" % server)
    for _ in range(presses):
        while button.value() != 0:
            time.sleep_ms(1)
        print("pressed")
        c.publish(topic, b"toggle")
        time.sleep_ms(10)
    c.disconnect()
