# Announces itself; its end is the will.  Written for umqtt.robust; only the import is another.
import umqtt_min.robust


class Announced(umqtt_min.robust.MQTTClient):
    DELAY = 0.2
    topic = b""

    def connect(self, clean_session=True):
        self.set_last_will(self.topic, b"offline", retain=True)
        try:
            return super().connect(clean_session)
        finally:
            self.publish(self.topic, b"online", retain=True)


def main(server="localhost", port=1883, topic=b"state", keepalive=2):
    c = Announced("script_last_will", server, port, keepalive=keepalive)
    c.topic = topic
    c.DEBUG = True
    c.connect()
    print("waiting")
    c.wait_msg()
    print("a message came")
