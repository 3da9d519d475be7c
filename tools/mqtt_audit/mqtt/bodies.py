"""CONNECT, CONNACK, SUBSCRIBE, UNSUBSCRIBE and SUBACK taken apart, and what MQTT 5 has in every
packet: properties and reason codes. They are rare, so in Python.

Knows: their payloads, the rules about them. Must not know: files, connections.
A password is passed over, never returned.
"""

from dataclasses import dataclass, field

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
from ..rules.statements import (
    CLIENT_ID,
    IN_PROPERTY,
    TOPIC_FILTER,
    TOPIC_NAME,
    USER_NAME,
    WILL_TOPIC,
)  # fmt: skip
from .properties import BINARY, BYTE, FOUR, PAIR, PROPERTIES, TWO, VARIABLE
from .reasons import RETURNED
from .wording import shared_rules, together_rules, value_rules

NAMES = {(b"MQTT", 4): "3.1.1", (b"MQIsdp", 3): "3.1", (b"MQIpdp", 2): "MQIpdp", (b"MQTT", 5): "5"}
NAME = b"MQTT"  #: of MQTT 3.1.1 and of all that come after it
LEVELS = {level for _, level in NAMES}
SHORT = 2  #: bytes of a CONNACK before MQTT 5, which has no properties

WILL = 16  #: in ALLOWED: the properties of the will
OF_WILL = {61: 62, 100: 108}  #: rules of properties: the same of the will
#: The properties that a packet may have (MQTT 5, table 2-4).
ALLOWED = {
    CONNECT: {0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27},
    WILL: {0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26},
    CONNACK: {0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27,
              0x28, 0x29, 0x2A},
    PUBLISH: {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26},
    SUBSCRIBE: {0x0B, 0x26},
    UNSUBSCRIBE: {0x26},
    DISCONNECT: {0x11, 0x1C, 0x1F, 0x26},
    AUTH: {0x15, 0x16, 0x1F, 0x26},
    **dict.fromkeys((PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK), {0x1F, 0x26}),
}
_RECEIVED = {0, 16, 128, 131, 135, 144, 145, 151, 153}
#: The reason codes that a packet may have (MQTT 5, table 2-6).
REASONS = {
    CONNACK: {0, 128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 138, 140, 144, 149, 151, 153,
              154, 155, 156, 157, 159},
    PUBACK: _RECEIVED, PUBREC: _RECEIVED, PUBREL: {0, 146}, PUBCOMP: {0, 146},
    SUBACK: {0, 1, 2, 128, 131, 135, 143, 145, 151, 158, 161, 162},
    UNSUBACK: {0, 17, 128, 131, 135, 143, 145},
    DISCONNECT: {0, 4, 128, 129, 130, 131, 135, 137, 139, 141, 142, 143, 144, 147, 148, 149, 150,
                 151, 152, 153, 154, 155, 156, 157, 158, 159, 160, 161, 162},
    AUTH: {0, 24, 25},
}  # fmt: skip
_NONE = frozenset()
#: Those of them that only the server, only the client may send (tables 3-10 and 3-11, "Sent by";
#: 3.4.2.1 and 3.5.2.1). Brokers, too, end a connection with 0, and nobody is misled by it.
OF_SERVER = {PUBACK: {16}, PUBREC: {16}, AUTH: {0},
             DISCONNECT: {135, 137, 139, 141, 142, 143, *range(154, 163)}}  # fmt: skip
OF_CLIENT = {DISCONNECT: {4}, AUTH: {25}}


def text(raw):
    """Bytes as text; what is no UTF-8 as \\xHH."""
    return raw.decode("utf-8", "backslashreplace")


@dataclass
class Body:
    """What was read. `values`: columns of the packet table; `broken`: [(code, value)]; `unknown`:
    the protocol level of a CONNECT that no version has, else None."""

    values: dict = field(default_factory=dict)
    unknown: int | None = None
    broken: list = field(default_factory=list)


class _Reader:
    def __init__(self, raw, out):
        self.raw, self.at, self.out = raw, 0, out

    def byte(self):
        self.at += 1
        return self.raw[self.at - 1]  # raises IndexError at the end

    def number(self):
        self.at += 2
        if self.at > len(self.raw):
            raise IndexError
        return int.from_bytes(self.raw[self.at - 2 : self.at], "big")

    def string(self, is_text=True, field=TOPIC_NAME):
        n = self.number()
        self.at += n
        if self.at > len(self.raw):
            raise IndexError
        found = self.raw[self.at - n : self.at]
        if is_text:
            if _not_utf8(found):
                self.out.broken.append((26, field))
            elif 0 in found:
                self.out.broken.append((27, field))
        return found

    def more(self):
        return self.at < len(self.raw)


def _not_utf8(raw):
    try:
        raw.decode()
    except UnicodeDecodeError:
        return True
    return False


def _filter_rules(raw, out):
    levels = raw.split(b"/")
    if not raw:
        out.broken.append((24, 0))
    if any(b"#" in level and (level != b"#" or k != len(levels) - 1)
           for k, level in enumerate(levels)):  # fmt: skip
        out.broken.append((45, 0))
    if any(b"+" in level and level != b"+" for level in levels):
        out.broken.append((46, 0))


def _varied(reader):
    """A Variable Byte Integer."""
    n = 0
    for shift in (0, 7, 14, 21):
        b = reader.byte()
        n |= (b & 127) << shift
        if b < 128:
            if not b and shift:
                reader.out.broken.append((90, n))
            return n
    raise IndexError


def _value(reader, kind, ident):
    """(key, value) of the property `ident`, as texts; binary data in hexadecimal digits."""
    sizes = {BYTE: 1, TWO: 2, FOUR: 4}
    if kind in sizes:
        return None, str(int.from_bytes(bytes(reader.byte() for _ in range(sizes[kind])), "big"))
    if kind == VARIABLE:
        return None, str(_varied(reader))
    if kind == BINARY:
        return None, reader.string(False).hex()
    here = IN_PROPERTY | ident
    key = text(reader.string(field=here)) if kind == PAIR else None
    return key, text(reader.string(field=here))


class _Unknown(Exception):
    """A property of a number that MQTT 5 does not have."""


def _one_by_one(reader, end, kind, out):
    """Properties up to `end`: [{name, key, value}]; `kind`: of ALLOWED."""
    found, seen = [], set()
    while reader.at < end:
        ident = reader.byte()
        if ident not in PROPERTIES:
            out.broken.append((60, ident))
            raise _Unknown
        name, type_ = PROPERTIES[ident]
        known = len(out.broken)
        if ident not in ALLOWED[kind]:
            out.broken.append((60, ident))
        often = ident == 0x26 or ident == 0x0B and kind == PUBLISH
        if ident in seen and not often:
            out.broken.append((61, ident))
        seen.add(ident)
        key, value = _value(reader, type_, ident)
        value_rules(ident, value, out)
        if kind == WILL:
            out.broken[known:] = [(OF_WILL.get(code, code), n) for code, n in out.broken[known:]]
        secret = ident == 0x16  # Authentication Data may be a password
        found.append({"name": name, "key": key, "value": None if secret else value})
    if reader.at != end:
        raise IndexError
    together_rules(seen, out)
    return found


def _properties(reader, kind, out):
    """MQTT 5's properties with their length."""
    n = _varied(reader)
    if reader.at + n > len(reader.raw):
        raise IndexError
    found = _one_by_one(reader, reader.at + n, kind, out)
    if found:
        out.values["will_properties" if kind == WILL else "properties"] = found


def _said_to_be_text(properties):
    return any(p["name"] == "Payload Format Indicator" and p["value"] == "1" for p in properties)


def _reason(code, kind, out):
    if code not in REASONS[kind]:
        out.broken.append((70 + kind, code))


def of_other_side(kind, by_server, values):
    """Which rules a packet of MQTT 5 breaks because of who sent it: [(code, value)]."""
    code = values.get("reason_code", 0)
    if code in (OF_CLIENT if by_server else OF_SERVER).get(kind, _NONE):
        yield 130 + kind, code


def _flag_rules(flags, level, out):
    will, qos = flags >> 2 & 1, flags >> 3 & 3
    if flags & 1:
        out.broken.append((5, 0))
    if qos == 3:
        out.broken.append((7, 0))
    elif qos and not will:
        out.broken.append((6, qos))
    if flags & 32 and not will:
        out.broken.append((8, 0))
    if flags & 64 and not flags & 128 and 2 < level < 5:
        out.broken.append((9, 0))


def _identity_rules(raw, level, clean, out):
    if level in (2, 3) and not 1 <= len(raw) <= 23:
        out.broken.append((14, len(raw)))
    elif level == 4 and not raw and not clean:
        out.broken.append((13, 0))


def _will(reader, out, level, flags):
    values = out.values
    values["will_qos"], values["will_retain"] = flags >> 3 & 3, bool(flags & 32)
    if level == 5:
        _properties(reader, WILL, out)
    topic = reader.string(field=WILL_TOPIC)
    if not topic:
        out.broken.append((24, 0))
    elif b"+" in topic or b"#" in topic:
        out.broken.append((119, 0))
    values["will_topic"] = text(topic)
    will = reader.string(False)
    values["will_length"] = len(will)
    if _said_to_be_text(values.get("will_properties", ())) and _not_utf8(will):
        out.broken.append((125, 0))


def connect(reader, out):
    """CONNECT (3.1.1 section 3.1; the draft's has the same order of fields)."""
    name = reader.string(False)
    shown = reader.byte()
    level = shown & 127  # bit 7: a bridge of mosquitto
    values = out.values
    values["protocol_level"] = shown
    protocol = NAMES.get((bytes(name), level))
    if protocol is None:
        if all(name != its for its, _ in NAMES):
            out.broken.append((4, 0))
        elif level in LEVELS:
            out.broken.append((150, shown))  # a server may take it by what it knows
        elif name == NAME:
            out.unknown = shown  # the client may ask for it, the server must refuse
    values["protocol"] = protocol or f"{text(name)[:20]} {level}"
    flags = reader.byte()
    values["clean_session"] = bool(flags & 2)
    values["will"] = bool(flags & 4)
    values["user_name"], values["password"] = bool(flags & 128), bool(flags & 64)
    values["keep_alive"] = reader.number()
    if level not in LEVELS:
        return  # nobody knows what comes next
    _flag_rules(flags, level, out)
    if level == 5:
        _properties(reader, CONNECT, out)
    ident = reader.string(field=CLIENT_ID)
    values["client_id"] = text(ident)
    _identity_rules(ident, level, flags & 2, out)
    if flags & 4:
        _will(reader, out, level, flags)
    if level > 2:
        for flag in (128, 64):
            # MQTT 3.1, 3.1: the flag may be set and the string missing.
            if flags & flag and (level != 3 or reader.more()):
                reader.string(flag == 128, USER_NAME)
    if reader.more():
        out.broken.append((12, 0))


def connack(reader, out, level):
    """CONNACK; the first byte is reserved before 3.1.1. A server that has no MQTT 5 answers a
    CONNECT of MQTT 5 with that of its own version [MQTT 3.1.1: MQTT-3.1.2-2]."""
    present = reader.byte()
    if level not in (2, 3):
        out.values["session_present"] = bool(present & 1)
    out.values["return_code"] = code = reader.byte()
    if level == 5 and code in RETURNED and len(reader.raw) == SHORT:
        pass  # a server that does not know MQTT 5 refuses as 3.1.1 has it
    elif level == 5:
        out.values["reason_code"] = code
        _reason(code, CONNACK, out)
        _properties(reader, CONNACK, out)
    elif code > 5:
        out.broken.append((19, code))
    if present > 1 and level in (4, 5):
        out.broken.append((95, present))
    if present & 1 and code:
        out.broken.append((17, code))


def _options(byte, level, out):
    """The QoS that is asked for, and MQTT 5's options with it."""
    if level != 5:
        if byte > 2:
            out.broken.append((40, byte))
        return byte
    if byte & 0xC0:
        out.broken.append((88, byte))
    elif byte & 3 == 3 or byte & 0x30 == 0x30:
        out.broken.append((55, byte))
    out.values.setdefault("options", []).append(byte)
    return byte & 3


def subscribe(reader, out, level, with_qos=True):
    """SUBSCRIBE, and UNSUBSCRIBE (without QoS)."""
    reader.number()
    if level == 5:
        _properties(reader, SUBSCRIBE if with_qos else UNSUBSCRIBE, out)
    filters, wanted = [], []
    out.values["filters"] = filters
    if with_qos:
        out.values["qos_list"] = wanted
    while reader.more():
        raw = asked = reader.string(field=TOPIC_FILTER)
        filters.append(text(raw))
        if with_qos:
            byte = reader.byte()
            wanted.append(_options(byte, level, out))
        if level == 5:
            asked = shared_rules(raw, with_qos and byte & 4, out)
        if asked is not None:
            _filter_rules(asked, out)
    if not filters:
        out.broken.append((39 if with_qos else 41, 0))


def suback(reader, out, level, kind=SUBACK):
    """SUBACK: granted QoS, 128 (MQTT 5: and more) for failure; UNSUBACK of MQTT 5."""
    reader.number()
    if level == 5:
        _properties(reader, kind, out)
    codes = list(reader.raw[reader.at :])
    if not codes:
        raise IndexError
    if kind == SUBACK:
        out.values["qos_list"] = codes
    if level == 5:
        out.values["reason_codes"] = codes
        for code in codes:
            _reason(code, kind, out)
    elif level in (0, 4):
        out.broken += [(42, c) for c in codes if c > 2 and c != 128]


def reasoned(kind, reader, out):
    """Acknowledgements of a PUBLISH, DISCONNECT and AUTH of MQTT 5: a reason code, which may be
    left out, and properties."""
    if kind not in (DISCONNECT, AUTH):
        reader.number()
    if reader.more():
        out.values["reason_code"] = code = reader.byte()
        _reason(code, kind, out)
    if reader.more():
        _properties(reader, kind, out)
    if reader.more():
        out.broken.append((129, 0))


def read(kind, raw, level):
    """Take a body apart (of PUBLISH: its properties, without their length); returns Body. What is
    there is read even if the rest is missing."""
    out = Body()
    reader = _Reader(raw, out)
    try:
        if kind == CONNECT:
            connect(reader, out)
        elif kind == CONNACK:
            connack(reader, out, level)
        elif kind == PUBLISH:
            out.values["properties"] = _one_by_one(reader, len(raw), kind, out)
        elif kind in (SUBACK, UNSUBACK):
            suback(reader, out, level, kind)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            subscribe(reader, out, level, kind == SUBSCRIBE)
        else:
            reasoned(kind, reader, out)
    except _Unknown:
        pass  # nobody knows where the next one begins
    except IndexError:
        short = kind in (CONNACK, SUBACK, UNSUBACK)
        out.broken.append((12, 0) if kind == CONNECT else (49, len(raw)) if short else (50, 0))
    return out
