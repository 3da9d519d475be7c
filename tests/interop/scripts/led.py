# A lamp on a topic.  Written for umqtt.simple; only the import is another.
import machine
from machine import Pin
from umqtt_min import MQTTClient

led = Pin(2, Pin.OUT, value=1)  # active low
CLIENT_ID = b"led-" + "".join("%02x" % b for b in machine.unique_id()).encode()
state = 0


def on_message(topic, msg):
    global state
    if msg == b"on":
        led.value(0)
        state = 1
    elif msg == b"off":
        led.value(1)
        state = 0
    elif msg == b"toggle":
        led.value(state)
        state = 1 - state


def main(server="localhost", port=1883, topic=b"led", messages=4):
    c = MQTTClient(CLIENT_ID, server, port)
    c.set_callback(on_message)
    c.connect()
    c.subscribe(topic)
    print("subscribed")
    try:
        while len(led.levels) <= messages:
            c.wait_msg()
    finally:
        c.disconnect()
    print("levels", led.levels)
