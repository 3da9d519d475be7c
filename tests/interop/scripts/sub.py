# Receive in a loop, blocking or polling.  Written for umqtt.simple; only the import is another.
import time

from umqtt_min import MQTTClient

received = []


def on_message(topic, msg):
    print((topic, msg))
    received.append((topic, msg))


def main(server="localhost", port=1883, topic=b"first/topic", blocking=True, count=3):
    c = MQTTClient("script_sub", server, port)
    c.set_callback(on_message)
    c.connect()
    c.subscribe(topic)
    print("subscribed")
    while len(received) < count:
        if blocking:
            c.wait_msg()
        else:
            c.check_msg()
            time.sleep(0.02)
    c.disconnect()
