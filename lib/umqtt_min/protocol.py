"""The protocol versions: one row of one table each.

Knows: what differs between the versions on the wire. Never does: I/O, state.
A row is what `MQTTClient(protocol=...)` takes. The rows of MQTT 3.1 and of the
MQIpdp draft stand in legacy.py, so that only those who use them pay for them, that of
MQTT 3.1.1 in client.py.
"""

from .client import MQTT_3_1_1  # noqa: F401  (the row that every program has)
from .port import const

NAME = const(0)  # CONNECT: protocol name with its length, then the level
ID_MAX = const(1)  # longest client id in bytes; 0: no limit but the length field
TOPIC_MAX = const(2)  # longest topic in bytes
DUP = const(3)  # bit 0: DUP on a re-sent PUBREL, bit 1: on SUBSCRIBE, UNSUBSCRIBE
LITTLE = const(4)  # packet ids are little-endian
SESSION = const(5)  # CONNACK tells Session Present, SUBACK tells failure
STRICT = const(6)  # reserved bits in what the broker sends are an error
LOGIN = const(7)  # CONNECT may carry user name and password
