"""The rows of the protocols before MQTT 3.1.1; protocol.py explains the columns.

Sources: MQTT 3.1 (section 3.1 and sections 2.1 to 2.4), the WebSphere v3 fixed
header, the MQIpdp draft of 1999 (CONNECT, 22 October; fixed header, 16 July).
Where they contradict each other: client ids of 1 to 23 characters, topics of up
to 32,767 bytes, message ids little-endian in the draft only.
"""

MQTT_3_1 = (b"\x00\x06MQIsdp\x03", 23, 32767, 3, False, False, False, True)
MQIPDP_2 = (b"\x00\x06MQIpdp\x02", 23, 32767, 0, True, False, False, False)
