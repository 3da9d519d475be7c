"""What the codes of CONNACK and DISCONNECT mean.

Knows: MQTT 3.1.1, table 3.1; MQTT 5, table 2-6. Must not know: packets.
"""

RETURNED = {1: "unacceptable protocol version", 2: "identifier rejected", 3: "server unavailable",
            4: "bad user name or password", 5: "not authorized"}  # fmt: skip
REASONS = {
    4: "disconnect with will message", 128: "unspecified error", 129: "malformed packet",
    130: "protocol error", 131: "implementation specific error",
    132: "unsupported protocol version", 133: "client identifier not valid",
    134: "bad user name or password", 135: "not authorized", 136: "server unavailable",
    137: "server busy", 138: "banned", 139: "server shutting down",
    140: "bad authentication method", 141: "keep alive timeout", 142: "session taken over",
    143: "topic filter invalid", 144: "topic name invalid", 147: "receive maximum exceeded",
    148: "topic alias invalid", 149: "packet too large", 150: "message rate too high",
    151: "quota exceeded", 152: "administrative action", 153: "payload format invalid",
    154: "retain not supported", 155: "QoS not supported", 156: "use another server",
    157: "server moved", 158: "shared subscriptions not supported",
    159: "connection rate exceeded", 160: "maximum connect time",
    161: "subscription identifiers not supported", 162: "wildcard subscriptions not supported",
}  # fmt: skip
CREDENTIALS = (4, 5, 134, 135)  #: of CONNACK: user name, password or rights are not right


def returned(code, level):
    """The meaning of a code of CONNACK, as "code N (...)". A server that has no MQTT 5 answers
    with a code of its own version, which MQTT 5 has for none."""
    said = (RETURNED if code in RETURNED or level != 5 else REASONS).get(code)
    return f"code {code}" + (f" ({said})" if said else "")


def reason(code):
    """The same of DISCONNECT; nothing of a normal one."""
    said = REASONS.get(code)
    return f", reason {code}" + (f" ({said})" if said else "") if code else ""
