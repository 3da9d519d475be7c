"""The rows of the older versions of the protocol; packets.py names the columns.

Knows: what CONNECT says of a version, and its limits. Never does: I/O, state. Loaded when a
program names one: a row takes heap.
"""

MQTT_3_1 = (b"\x00\x06MQIsdp\x03", 23, 32767, 3, False, False, False, True)
MQIPDP_2 = (b"\x00\x06MQIpdp\x02", 23, 32767, 0, True, False, False, False)
