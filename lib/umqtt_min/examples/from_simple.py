"""Coming from umqtt.simple: the import is another, nothing else.

What you may then drop: your own pings (keepalive=60 is kept for you), the loop around
check_msg() that empties it (one call handles all that arrived), `except AssertionError`.
What you may then add: qos=2, store=..., unsubscribe(), lists of topics.
"""

import time

from umqtt_min import MQTTClient  # was: from umqtt.simple import MQTTClient

SERVER = "192.168.1.10"


def sub_cb(topic, msg):
    print((topic, msg))


def main(server=SERVER, port=1883):
    c = MQTTClient("umqtt_client", server, port, keepalive=60)
    c.set_callback(sub_cb)
    c.set_last_will(b"status/umqtt_client", b"gone", retain=True)
    c.connect()
    c.subscribe(b"foo_topic")
    c.publish(b"foo_topic", b"hello", qos=1)
    for _ in range(20):
        c.check_msg()  # never waits
        time.sleep_ms(10)
    c.disconnect()


if __name__ == "__main__":
    main()
