"""The smallest program: import, connect, publish QoS 1."""

import sys

from umqtt_min import MQTTClient

c = MQTTClient("small", sys.argv[1], int(sys.argv[2]), keepalive=60)
c.connect()
c.publish(b"bench/t", b"small", qos=1)
print("done")
