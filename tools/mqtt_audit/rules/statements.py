"""What the audit calls a violation: the statement of MQTT 3.1.1 and of 5, the section of 3.1.

Knows: codes, ids, what they say. Must not know: how a violation is found.

A code without a section of 3.1 is not looked for in 3.1 and in the draft (whose pages that we
have say no more than 3.1).
"""

from ..compiled.layout import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
)  # fmt: skip

_IN_FLIGHT = "packet id {} is still in flight, with another message"

#: Of rules on texts the value is a place here, or IN_PROPERTY and the number of a property.
FIELDS = ("the topic name", "the client id", "the topic of the will", "the user name",
          "a topic filter")  # fmt: skip
TOPIC_NAME, CLIENT_ID, WILL_TOPIC, USER_NAME, TOPIC_FILTER = range(len(FIELDS))
IN_PROPERTY = 1 << 8
#: Of rules on properties the value is the number of one and, BESIDE bits higher, what it has.
BESIDE = 8

#: code: (statement of MQTT 3.1.1 or None, section of MQTT 3.1 or None, text; {} is the value)
RULES = {
    1: ("MQTT-2.2.2-1", None, "reserved flags of the fixed header are {}"),
    2: ("MQTT-3.1.0-1", "3.1", "the first packet of the client is no CONNECT"),
    3: ("MQTT-3.1.0-2", "3.1", "a second CONNECT"),
    4: ("MQTT-3.1.2-1", "3.1", "protocol name is wrong"),
    52: ("MQTT-3.1.2-2", "3.1", "accepts protocol level {}, which no version has"),
    5: ("MQTT-3.1.2-3", None, "the reserved bit of the connect flags is 1"),
    6: ("MQTT-3.1.2-13", "3.1", "will flag 0 and will QoS {}"),
    7: ("MQTT-3.1.2-14", "3.1", "will QoS 3"),
    8: ("MQTT-3.1.2-15", None, "will flag 0 and will retain 1"),
    9: ("MQTT-3.1.2-22", "3.1", "password without user name"),
    10: ("MQTT-3.1.2-23", "3.1", "{seconds:.1f} s without a packet, longer than the keep alive"),
    149: (None, None, "{seconds:.1f} s without a packet, longer than the Server Keep Alive"),
    11: ("MQTT-3.1.2-24", "3.1", "{seconds:.1f} s without a packet, over one and a half times the "
         "keep alive, and still connected"),
    12: ("MQTT-3.1.3-1", "3.1", "the payload of CONNECT does not hold what its flags announce"),
    13: ("MQTT-3.1.3-7", "3.1", "an empty client id with clean session 0"),
    14: (None, "3.1", "a client id of {} bytes (3.1: 1 to 23)"),
    15: ("MQTT-3.2.0-1", "3.2", "the first packet of the server is no CONNACK"),
    16: ("MQTT-3.2.2-1", None, "session present after clean session 1"),
    17: ("MQTT-3.2.2-4", None, "session present and return code {}"),
    18: ("MQTT-3.2.2-5", "3.2", "packets after return code {}"),
    19: ("MQTT-3.2.2-6", "3.2", "return code {} is reserved"),
    20: ("MQTT-3.3.1-2", None, "DUP 1 at QoS 0"),
    21: ("MQTT-3.3.1-4", "2.1", "QoS 3"),
    22: ("MQTT-3.3.2-1", "3.3", "the topic name does not fit the packet"),
    23: ("MQTT-3.3.2-2", "3.3", "a wildcard in a topic name"),
    24: ("MQTT-4.7.3-1", "2.2", "an empty topic name or filter"),
    25: ("MQTT-4.7.3-2", None, "U+0000 in a topic name or filter"),
    26: ("MQTT-1.5.3-1", "2.5", "text that is not UTF-8: {field}"),
    27: ("MQTT-1.5.3-2", None, "U+0000 in a text: {field}"),
    28: ("MQTT-2.3.1-1", "2.4", "packet id 0"),
    29: ("MQTT-2.3.1-2", "2.4", _IN_FLIGHT),
    30: ("MQTT-2.3.1-4", "2.4", _IN_FLIGHT),
    31: ("MQTT-2.3.1-6", "2.4", "packet id {} acknowledged, which is not in flight"),
    32: ("MQTT-3.3.1-1", "2.1", "PUBLISH with packet id {} sent again without DUP"),
    33: ("MQTT-4.3.2-2", "4.1", "QoS 1 not answered by PUBACK"),
    34: ("MQTT-4.3.3-2", "4.1", "QoS 2 not answered by PUBREC"),
    35: ("MQTT-4.3.3-1", "4.1", "PUBLISH with packet id {} sent again after its PUBREL"),
    54: ("MQTT-4.3.3-1", "4.1", "PUBREL with packet id {} sent before PUBREC came"),
    36: ("MQTT-3.6.1-1", None, "flags of PUBREL are {}, not 2"),
    37: ("MQTT-3.8.1-1", None, "flags of SUBSCRIBE are {}, not 2"),
    38: ("MQTT-3.10.1-1", None, "flags of UNSUBSCRIBE are {}, not 2"),
    39: ("MQTT-3.8.3-3", "3.8", "SUBSCRIBE without a topic filter"),
    40: ("MQTT-3-8.3-4", "3.8", "requested QoS byte {}"),
    41: ("MQTT-3.10.3-2", "3.10", "UNSUBSCRIBE without a topic filter"),
    42: ("MQTT-3.9.3-2", None, "return code {} in SUBACK"),
    43: ("MQTT-3.8.4-5", "3.9", "SUBACK has another number of codes than SUBSCRIBE has filters"),
    44: ("MQTT-3.14.4-2", "3.14", "a packet after DISCONNECT"),
    45: ("MQTT-4.7.1-2", "A", "'#' is not the last level of a topic filter"),
    46: ("MQTT-4.7.1-3", "A", "'+' is not a whole level of a topic filter"),
    53: ("MQTT-3.1.4-4", "3.2",
         "CONNECT without CONNACK for {seconds:.1f} s, and still connected"),
    47: ("MQTT-3.12.4-1", "3.13", "PINGREQ without PINGRESP for {seconds:.1f} s"),
    48: ("MQTT 3.1.1, 2.2.1", "2.1", "a packet type that only the other side sends"),
    152: ("MQTT 3.1.1, 2.2.1", "2.1", "packet type {} is reserved"),
    150: ("MQTT 3.1.1, 3.1.2.2", "3.1",
          "protocol level {}, which is that of a version with another name"),
    151: ("MQTT-3.3.1-3", None, "DUP 1 in the first PUBLISH of a new session, packet id {}"),
    49: ("MQTT 3.1.1, 2.2.3", "2.1", "the length does not fit the packet type"),
    50: ("MQTT 3.1.1, 3.8.3", "3.8", "the payload of the packet is cut short"),
    57: ("MQTT-4.3.3-2", "4.1", "PUBCOMP with packet id {} answers no PUBREL"),
    56: ("MQTT-2.3.1-6", "2.4", "PUBREL with packet id {} of a message that is not in flight"),
    109: ("MQTT 3.1.1, 2.2.3", "2.1", "a Remaining Length of more than four bytes"),
    123: (None, None, "a Server Reference in a DISCONNECT of the client"),
    124: (None, None, "Payload Format Indicator 1 and a payload that is not UTF-8"),
    125: (None, None, "Payload Format Indicator 1 and a will that is not UTF-8"),
    126: ("MQTT-3.1.3-8", None, "an empty client id with clean session 0 is accepted"),
    127: ("MQTT-3.1.2-24", "3.1", "closed after {seconds:.1f} s without a packet, limit "
          "{limit:g} s (one and a half times the keep alive)"),
    51: ("MQTT-2.3.1-7", "3.9", "SUBACK or UNSUBACK with packet id {}, which nothing asked for"),
    58: (None, None, "a topic alias of 0"),
    59: (None, None, "topic alias {}, more than the server allows"),
    63: (None, None, "topic alias {}, more than the client allows"),
    60: (None, None, "property {property} is none of this packet"),
    61: (None, None, "property {property} twice"),
    62: (None, None, "property {property} twice in the will"),
    64: (None, None, "more messages in flight than the server's Receive Maximum, {}"),
    65: (None, None, "more messages in flight than the client's Receive Maximum, {}"),
    66: (None, None, "a packet of {} bytes, more than the client's Maximum Packet Size"),
    67: (None, None, "a packet of {} bytes, more than the server's Maximum Packet Size"),
    86: (None, None, "a QoS above the server's Maximum QoS, {}"),
    87: (None, None, "RETAIN 1, which the server does not support"),
    88: (None, None, "reserved bits in subscription options, {}"),
    55: (None, None, "subscription options {}: QoS 3, or Retain Handling 3"),
    89: ("MQTT-6.0.0-1", None, "a packet in a WebSocket frame that is not binary"),
    90: (None, None, "a length in more bytes than it needs"),
    91: (None, None, "Response Information, which the client did not request"),
    92: (None, None, "Reason String or User Property, which the client did not want"),
    93: (None, None, "a packet before CONNACK, while the server authenticates the client"),
    94: ("MQTT 3.1.1, 3.2", "3.2", "a second CONNACK"),
    146: (None, None, "accepts a will with QoS {}, above the Maximum QoS that it names"),
    147: (None, None, "accepts a will with RETAIN 1, which it does not support"),
    148: (None, None, "DISCONNECT of the server before its CONNACK"),
    95: ("MQTT 3.1.1, 3.2.2.1", None, "reserved bits in the flags of CONNACK, {}"),
    96: (None, None, "no Assigned Client Identifier for a client without one"),
    97: (None, None, "topic alias {}, which has no topic"),
    98: (None, None, "a wildcard in a Response Topic"),
    99: (None, None, "a Subscription Identifier in a PUBLISH of the client"),
    100: (None, None, "property {property} has the value {rest}, which it must not have"),
    101: (None, None, "Authentication Data without an Authentication Method"),
    102: (None, None, "No Local on a shared subscription"),
    103: (None, None, "UNSUBACK has another number of codes than UNSUBSCRIBE has filters"),
    104: (None, None, "Session Expiry Interval in a DISCONNECT of the server"),
    105: (None, None, "DISCONNECT keeps a session that CONNECT let end with the connection"),
    106: (None, None, "PUBLISH with packet id {} sent again on the same connection"),
    128: (None, None, "PUBREL with packet id {} sent again on the same connection"),
    136: (None, None, "PUBREC with packet id {} sent again on the same connection"),
    129: (None, None, "bytes follow the properties of the packet"),
    107: (None, None, "DISCONNECT of the server after a CONNACK that refuses, {}"),
    108: (None, None,
          "property {property} of the will has the value {rest}, which it must not have"),
    110: (None, None, "a shared subscription without a ShareName"),
    111: (None, None, "a ShareName with a wildcard, or without a filter behind it"),
    112: (None, None, "the server authenticates a client that named no Authentication Method"),
    113: (None, None, "AUTH of a client that named no Authentication Method"),
    114: (None, None, "not the Authentication Method of CONNECT"),
    115: ("MQTT-4.6.0-2", None, "PUBACK with packet id {} is sent after that of a later PUBLISH"),
    116: ("MQTT-4.6.0-3", None, "PUBREC with packet id {} is sent after that of a later PUBLISH"),
    117: ("MQTT-4.6.0-4", None, "PUBREL with packet id {} is sent after that of a later PUBREC"),
    118: ("MQTT-4.6.0-1", None,
          "PUBLISH with packet id {} sent again after one that was first sent later"),
    119: ("MQTT-4.7.1-1", "A", "a wildcard in the topic of the will"),
    120: (None, None, "a wildcard in a topic filter, which the server does not support"),
    121: (None, None, "a Subscription Identifier, which the server does not support"),
    122: (None, None, "a shared subscription, which the server does not support"),
    **{70 + kind: (None, None, "reason code {} is none of this packet")
       for kind in (2, 4, 5, 6, 7, 9, 11, 14, 15)},
    **{130 + kind: (None, None, "reason code {}, which only the other side may send")
       for kind in (4, 5, 14, 15)},
}  # fmt: skip
#: code: statement of MQTT 5, or its section where that has none.
FIVE = {
    1: "MQTT-2.1.3-1", 2: "MQTT-3.1.0-1", 3: "MQTT-3.1.0-2", 4: "MQTT-3.1.2-1",
    52: "MQTT-3.1.2-2", 5: "MQTT-3.1.2-3", 6: "MQTT-3.1.2-11", 7: "MQTT-3.1.2-12",
    8: "MQTT-3.1.2-13", 10: "MQTT-3.1.2-20", 149: "MQTT-3.1.2-21",
    11: "MQTT-3.1.2-22", 12: "MQTT-3.1.3-1",
    15: "MQTT-3.2.0-1", 16: "MQTT-3.2.2-2", 17: "MQTT-3.2.2-6", 18: "MQTT-3.2.2-7",
    20: "MQTT-3.3.1-2", 21: "MQTT-3.3.1-4", 22: "MQTT-3.3.2-1", 23: "MQTT-3.3.2-2",
    24: "MQTT-4.7.3-1", 25: "MQTT-4.7.3-2", 26: "MQTT-1.5.4-1", 27: "MQTT-1.5.4-2",
    28: "MQTT-2.2.1-3", 29: "MQTT-2.2.1-3", 30: "MQTT-2.2.1-4", 31: "MQTT-2.2.1-5",
    32: "MQTT-3.3.1-1", 33: "MQTT-4.3.2-4", 34: "MQTT-4.3.3-8", 35: "MQTT-4.3.3-6",
    36: "MQTT-3.6.1-1", 37: "MQTT-3.8.1-1", 38: "MQTT-3.10.1-1", 39: "MQTT-3.8.3-2",
    41: "MQTT-3.10.3-2", 43: "MQTT-3.8.4-6", 44: "MQTT-3.14.4-1", 45: "MQTT-4.7.1-1",
    46: "MQTT-4.7.1-2", 47: "MQTT-3.12.4-1", 48: "MQTT 5, 2.1.2", 49: "MQTT 5, 2.1.4",
    50: "MQTT 5, 1.2", 51: "MQTT-2.2.1-6", 53: "MQTT-3.1.4-5", 57: "MQTT-4.3.3-11",
    58: "MQTT-3.3.2-8", 59: "MQTT-3.3.2-9", 63: "MQTT-3.3.2-11", 60: "MQTT 5, 2.2.2.2",
    62: "MQTT 5, 3.1.3.2", 108: "MQTT 5, 3.1.3.2", 64: "MQTT-3.3.4-7", 65: "MQTT-3.3.4-9",
    66: "MQTT-3.1.2-24",
    67: "MQTT-3.2.2-15", 86: "MQTT-3.2.2-11", 87: "MQTT-3.2.2-14", 88: "MQTT-3.8.3-5",
    72: "MQTT-3.2.2-8", 74: "MQTT-3.4.2-1", 75: "MQTT-3.5.2-1", 76: "MQTT-3.6.2-1",
    77: "MQTT-3.7.2-1", 79: "MQTT-3.9.3-2", 81: "MQTT-3.11.3-2", 84: "MQTT-3.14.2-1",
    90: "MQTT-1.5.5-1", 91: "MQTT-3.1.2-28", 92: "MQTT-3.1.2-29", 93: "MQTT-3.1.2-30",
    94: "MQTT-3.2.0-2", 95: "MQTT-3.2.2-1", 96: "MQTT-3.2.2-16", 97: "MQTT 5, 3.3.4",
    98: "MQTT-3.3.2-14", 99: "MQTT-3.3.4-6", 102: "MQTT-3.8.3-4", 103: "MQTT-3.11.3-1",
    104: "MQTT-3.14.2-2", 105: "MQTT 5, 3.14.2.2.2", 106: "MQTT-4.4.0-1",
    128: "MQTT-4.4.0-1", 136: "MQTT-4.4.0-1", 129: "MQTT 5, 1.2", 107: "MQTT-3.14.0-1",
    110: "MQTT-4.8.2-1", 111: "MQTT-4.8.2-2", 112: "MQTT-4.12.0-6", 113: "MQTT-4.12.0-7",
    114: "MQTT-4.12.0-5", 115: "MQTT-4.6.0-2", 116: "MQTT-4.6.0-3", 117: "MQTT-4.6.0-4",
    118: "MQTT-4.6.0-1", 119: "MQTT-4.7.0-1", 120: "MQTT 5, 3.2.2.3.11",
    121: "MQTT 5, 3.2.2.3.12", 122: "MQTT 5, 3.2.2.3.13",
    56: "MQTT-2.2.1-5", 109: "MQTT 5, 2.1.4", 123: "MQTT 5, 3.14.2.2.5",
    124: "MQTT 5, 3.3.2.3.2", 125: "MQTT 5, 3.1.3.2.3", 127: "MQTT-3.1.2-22",
    146: "MQTT-3.2.2-12", 147: "MQTT-3.2.2-13", 148: "MQTT-3.14.0-1",
    134: "MQTT-3.4.2-1", 135: "MQTT-3.5.2-1", 144: "MQTT-3.14.2-1", 145: "MQTT-3.15.2-1",
    85: "MQTT-3.15.2-1", 89: "MQTT-6.0.0-1", 54: "MQTT-4.3.3-4", 55: "MQTT 5, 3.8.3.1",
    150: "MQTT 5, 3.1.2.2", 151: "MQTT-3.3.1-3", 152: "MQTT 5, 2.1.2",
}  # fmt: skip
#: The same of what the server sent, where that has a statement of its own.
OF_SERVER = {28: "MQTT-2.2.1-4"}
#: Codes on properties: given twice, of a wrong value, one without the other.
OF_PROPERTIES = (61, 100, 101)
#: Type of the packet: the section on its properties, which says what they may be.
ONCE = {CONNECT: "3.1.2.11", CONNACK: "3.2.2.3", PUBLISH: "3.3.2.3", PUBACK: "3.4.2.2",
        PUBREC: "3.5.2.2", PUBREL: "3.6.2.2", PUBCOMP: "3.7.2.2", SUBSCRIBE: "3.8.2.1",
        SUBACK: "3.9.2.1", UNSUBSCRIBE: "3.10.2.1", UNSUBACK: "3.11.2.1",
        DISCONNECT: "3.14.2.2", AUTH: "3.15.2.2"}  # fmt: skip
KEEP_ALIVE = (10, 11, 127, 149)
SILENCE = (10, 11, 47, 53, 127, 149)  #: what is told from time alone; the value is in ms
AGAIN, RELEASED, OVERTAKEN = 32, 35, 118
#: Not held against a connection whose CONNECT was not seen: what they say is no fault in MQTT 5.
_NOT_IN_5 = frozenset((19, 24, 26, 39, 40, 41, 43, 45, 46, 48, 49, 50, 152))


def statement(code, level, kind, from_server):
    """The id for a protocol level and a packet (its type, whether the server sent it):
    'MQTT-x.y.z-n', or the document and section; None if the rule does not hold there."""
    if level == 5 and code in OF_PROPERTIES:
        return ONCE.get(kind) and f"MQTT 5, {ONCE[kind]}"
    if level == 5:
        return OF_SERVER.get(code) if from_server and code in OF_SERVER else FIVE.get(code)
    ident, section, _ = RULES[code]
    if level == 3 or level == 2:
        return section and f"MQTT 3.1, {section}"
    if not level and (not section or code in _NOT_IN_5):
        return None  # the version is not known
    return ident
