# Receives for ever from a session the broker keeps.  Written for umqtt.robust; only the import is
# another.
from umqtt_min.robust import MQTTClient


def on_message(topic, msg):
    print((topic, msg))


def main(server="localhost", port=1883, topic=b"kept", client=b"sub", count=3):
    c = MQTTClient(client, server, port)
    c.DEBUG = True
    c.set_callback(on_message)
    if not c.connect(clean_session=False):
        print("a new session")
        c.subscribe(topic)
    print("subscribed")
    for _ in range(count):
        c.wait_msg()
    c.disconnect()
