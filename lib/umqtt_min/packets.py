"""The packets of MQTT by name, and what differs between the versions of the protocol.

Knows: first bytes, flags, the fixed header, one row for each version. Never does: I/O, state.

A constant with an underscore is compiled away: a module that needs it repeats it here and there,
and tests/host/test_constants.py compares them.

Sources: OASIS MQTT 3.1.1, sections 2.1 and 2.2; MQTT 3.1, section 3.1 and sections 2.1 to 2.4;
the WebSphere v3 fixed header; the MQIpdp draft of 1999 (CONNECT, 22 October; fixed header, 16
July). Where the last three contradict each other: client ids of 1 to 23 characters, topics of up
to 32,767 bytes, message ids little-endian in the draft only.
"""

from .port import const

# First byte: the type in the upper four bits, the flags that it must have in the lower.
_CONNECT = const(0x10)
_CONNACK = const(0x20)
_PUBLISH = const(0x30)  # with the flags below
_PUBACK = const(0x40)
_PUBREC = const(0x50)
_PUBREL = const(0x62)
_PUBCOMP = const(0x70)
_SUBSCRIBE = const(0x82)
_SUBACK = const(0x90)
_UNSUBSCRIBE = const(0xA2)
_UNSUBACK = const(0xB0)
_PINGREQ = const(0xC0)
_PINGRESP = const(0xD0)
_DISCONNECT = const(0xE0)
_TYPE = const(0xF0)
_FLAGS = const(0x0F)

# Flags of PUBLISH [MQTT 3.1.1, 3.3.1]
_RETAIN = const(0x01)
_QOS_1 = const(0x02)
_QOS_2 = const(0x04)
_QOS = const(0x06)  # both bits: 3 is no QoS
_DUP = const(0x08)

# Flags of CONNECT [MQTT 3.1.1, 3.1.2]
_CLEAN_SESSION = const(0x02)
_WILL = const(0x04)
_WILL_RETAIN = const(0x20)
_PASSWORD = const(0x40)
_USER = const(0x80)

_SUBACK_FAILURE = const(0x80)

# Columns of a row, which is what MQTTClient(protocol=...) takes; the other rows are in older.py.
_ROW_NAME = const(0)  # CONNECT: protocol name with its length, then the level
_ROW_ID_MAX = const(1)  # longest client id in bytes; 0: no limit but the length field
_ROW_TOPIC_MAX = const(2)  # longest topic in bytes
_ROW_DUP = const(3)  # bit 0: DUP on a re-sent PUBREL, bit 1: on SUBSCRIBE, UNSUBSCRIBE
_ROW_LITTLE = const(4)  # packet ids are little-endian
_ROW_SESSION = const(5)  # CONNACK tells Session Present, SUBACK tells failure
_ROW_STRICT = const(6)  # reserved bits in what the broker sends are an error
_ROW_LOGIN = const(7)  # CONNECT may carry user name and password

MQTT_3_1_1 = (b"\x00\x04MQTT\x04", 0, 65535, 0, False, True, True, True)


def pack(buf, op, n):
    """Put the fixed header of a packet of Remaining Length `n` before index 5.

    Returns the index of its first byte [MQTT 3.1.1, 2.2].
    """
    i = 3 if n < 128 else 2 if n < 16384 else 1 if n < 2097152 else 0
    buf[i] = op
    op = i + 1
    while op < 4:
        buf[op] = n & 127 | 128
        n >>= 7
        op += 1
    buf[4] = n
    return i
