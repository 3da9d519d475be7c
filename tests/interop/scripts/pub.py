# The least there is: connect, publish, go.  Written for umqtt.simple; only the import is another.
from umqtt_min import MQTTClient


def main(server="localhost", port=1883, topic=b"first/topic"):
    c = MQTTClient("script_pub", server, port)
    c.connect()
    c.publish(topic, b"hello")
    c.disconnect()
