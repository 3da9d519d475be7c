"""CONNECT, CONNACK, SUBSCRIBE, UNSUBSCRIBE and SUBACK taken apart; they are rare, so in Python.

Knows: their payloads, the rules about them. Must not know: files, connections.
A password is passed over, never returned.
"""

from dataclasses import dataclass, field

from ..compiled.layout import CONNACK, CONNECT, SUBACK, SUBSCRIBE, UNSUBSCRIBE

NAMES = {(b"MQTT", 4): "3.1.1", (b"MQIsdp", 3): "3.1", (b"MQIpdp", 2): "MQIpdp", (b"MQTT", 5): "5"}


def text(raw):
    """Bytes as text; what is no UTF-8 as \\xHH."""
    return raw.decode("utf-8", "backslashreplace")


@dataclass
class Body:
    """What was read. `values`: columns of the packet table; `broken`: [(code, value)]."""

    values: dict = field(default_factory=dict)
    broken: list = field(default_factory=list)


class _Reader:
    def __init__(self, raw, out):
        self.raw, self.at, self.out = raw, 0, out

    def byte(self):
        self.at += 1
        return self.raw[self.at - 1]

    def number(self):
        self.at += 2
        if self.at > len(self.raw):
            raise IndexError
        return int.from_bytes(self.raw[self.at - 2 : self.at], "big")

    def string(self, is_text=True):
        n = self.number()
        self.at += n
        if self.at > len(self.raw):
            raise IndexError
        found = self.raw[self.at - n : self.at]
        if is_text:
            if _not_utf8(found):
                self.out.broken.append((26, 0))
            elif 0 in found:
                self.out.broken.append((27, 0))
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


def _properties(reader):
    """Pass over MQTT 5's properties."""
    n, shift = 0, 0
    while True:
        b = reader.byte()
        n |= (b & 127) << shift
        shift += 7
        if b < 128 or shift > 21:
            break
    reader.at += n


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
    if flags & 64 and not flags & 128 and level > 2:
        out.broken.append((9, 0))


def _identity_rules(raw, level, clean, out):
    if level in (2, 3) and not 1 <= len(raw) <= 23:
        out.broken.append((14, len(raw)))
    elif level == 4 and not raw and not clean:
        out.broken.append((13, 0))


def connect(reader, out):
    """CONNECT (3.1.1 section 3.1; the draft's has the same order of fields)."""
    name = reader.string(False)
    level = reader.byte() & 127
    flags = reader.byte()
    protocol = NAMES.get((bytes(name), level))
    if protocol is None:
        known = any(name == its for its, _ in NAMES)
        out.broken.append((52, level) if known else (4, 0))
    values = out.values
    values["protocol"] = protocol or f"{text(name)[:20]} {level}"
    values["protocol_level"] = level
    values["clean_session"] = bool(flags & 2)
    values["will"] = bool(flags & 4)
    values["user_name"], values["password"] = bool(flags & 128), bool(flags & 64)
    values["keep_alive"] = reader.number()
    if level == 5:
        _properties(reader)
    else:
        _flag_rules(flags, level, out)
    ident = reader.string()
    values["client_id"] = text(ident)
    _identity_rules(ident, level, flags & 2, out)
    if flags & 4:
        values["will_qos"], values["will_retain"] = flags >> 3 & 3, bool(flags & 32)
        if level == 5:
            _properties(reader)
        values["will_topic"] = text(reader.string())
        values["will_length"] = len(reader.string(False))
    if level > 2:
        for flag in (128, 64):
            if flags & flag:
                reader.string(flag == 128)
    if reader.more():
        out.broken.append((12, 0))


def connack(reader, out, level):
    """CONNACK; the first byte is reserved before 3.1.1."""
    present = reader.byte()
    if level not in (2, 3):
        out.values["session_present"] = bool(present & 1)
    out.values["return_code"] = code = reader.byte()
    if code > 5:
        out.broken.append((19, code))
    if present & 1 and code:
        out.broken.append((17, code))


def subscribe(reader, out, with_qos=True):
    """SUBSCRIBE, and UNSUBSCRIBE (without QoS)."""
    reader.number()
    filters, wanted = [], []
    out.values["filters"] = filters
    if with_qos:
        out.values["qos_list"] = wanted
    while reader.more():
        raw = reader.string()
        _filter_rules(raw, out)
        filters.append(text(raw))
        if with_qos:
            wanted.append(reader.byte())
            if wanted[-1] > 2:
                out.broken.append((40, wanted[-1]))
    if not filters:
        out.broken.append((39 if with_qos else 41, 0))


def suback(reader, out, level):
    """SUBACK: granted QoS, 128 for failure."""
    reader.number()
    codes = list(reader.raw[2:])
    out.values["qos_list"] = codes
    if level in (0, 4):
        out.broken += [(42, c) for c in codes if c > 2 and c != 128]


def read(kind, raw, level):
    """Take a body apart; returns Body. What is there is read even if the rest is missing."""
    out = Body()
    reader = _Reader(raw, out)
    try:
        if kind == CONNECT:
            connect(reader, out)
        elif kind == CONNACK:
            connack(reader, out, level)
        elif level == 5:
            pass
        elif kind == SUBACK:
            suback(reader, out, level)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            subscribe(reader, out, kind == SUBSCRIBE)
    except IndexError:
        out.broken.append((12 if kind == CONNECT else 49 if kind == CONNACK else 50, 0))
    return out
