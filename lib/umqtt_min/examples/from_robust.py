"""Coming from umqtt.robust: the import is another, nothing else.

A call gives up after PATIENCE seconds (600) instead of never. With a store a message goes
through reconnections under its own identifier, so that QoS 2 stays exactly once.
"""

from umqtt_min import RAMStore
from umqtt_min.robust import MQTTClient  # was: from umqtt.robust import MQTTClient

SERVER = "192.168.1.10"


got = []


def sub_cb(topic, msg):
    print((topic, msg))
    got.append(msg)


def main(server=SERVER, port=1883, messages=3):
    c = MQTTClient("umqtt_client", server, port, keepalive=60, store=RAMStore())
    c.DEBUG = True  # print errors and go on
    c.set_callback(sub_cb)
    if not c.connect(clean_session=False):
        print("New session being set up")
        c.subscribe(b"foo_topic", qos=1)
    for n in range(messages):
        c.publish(b"foo_topic", b"%d" % n, qos=1)
        while len(got) <= n:  # it may have come while publish() waited
            c.wait_msg()
    c.disconnect()


if __name__ == "__main__":
    main()
