# Subscribes again in a session that is new.  Written for umqtt.robust; only the import is another.
import time

import umqtt_min.robust


class Subscriber(umqtt_min.robust.MQTTClient):
    DELAY = 0.2

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.topics = []

    def connect(self, clean_session=True):
        if super().connect(clean_session):
            return True
        for topic in self.topics:
            self.subscribe(topic)
        return False

    def subscribe(self, topic):
        print("subscribing", topic)
        super().subscribe(topic)
        if topic not in self.topics:
            self.topics.append(topic)


def main(server="localhost", port=1883, topic=b"again", keepalive=60):
    c = Subscriber("script_resubscribe", server, port, keepalive=keepalive)
    c.DEBUG = True
    c.set_callback(lambda topic, msg: print("got", msg))
    c.connect()
    c.subscribe(topic)
    c.publish(topic, b"message 1")
    c.wait_msg()
    print("cut me off")
    time.sleep(2)
    c.publish(topic, b"message 2")  # may be lost
    c.check_msg()
    c.publish(topic, b"message 3")
    c.wait_msg()
    c.disconnect()
