"""Takes apart every packet that a client may send, byte by byte, and names what is wrong with it.

Knows: MQTT 3.1.1 (statement ids), MQTT 3.1 and the MQIpdp draft (document and section).
Must not know: sessions, what was sent before (strict_broker.py), streams.
Written without a look at the library under test, so that both cannot share a mistake.
"""

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14
NAMES = (
    "0 CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE "
    "UNSUBACK PINGREQ PINGRESP DISCONNECT 15"
).split()


class ProtocolError(Exception):
    """The client broke the protocol: statement id or section, and what it did."""


class Level:
    """What differs between the protocol versions in what a client sends."""

    def __init__(self, level, name, id_max, topic_max, little=False, dup=(), login=True):
        self.level = level
        self.name = name
        self.id_max = id_max  # bytes of a client id; 0: no limit
        self.topic_max = topic_max
        self.little = little  # packet ids are little-endian (draft, fixed header page)
        self.dup = dup  # packet types beside PUBLISH that carry DUP when re-sent
        self.login = login  # user name and password exist


LEVELS = {
    4: Level(4, b"MQTT", 0, 65535),
    3: Level(3, b"MQIsdp", 23, 32767, dup=(PUBREL, SUBSCRIBE, UNSUBSCRIBE)),
    2: Level(2, b"MQIpdp", 23, 32767, little=True, login=False),
}


def fail(statement, what):
    """Raise ProtocolError."""
    raise ProtocolError("[%s] %s" % (statement, what))


def encode_length(n):
    """Remaining Length of n (3.1.1 section 2.2.3)."""
    out = bytearray()
    while True:
        digit = n & 127
        n >>= 7
        out.append(digit | 128 if n else digit)
        if not n:
            return bytes(out)


def decode_length(buf, i):
    """(value, index behind it); None if bytes are missing."""
    value = shift = 0
    start = i
    while i < len(buf):
        digit = buf[i]
        i += 1
        value |= (digit & 127) << shift
        shift += 7
        if digit < 128:
            if digit == 0 and i - start > 1:
                fail("2.2.3", "Remaining Length is longer than it need be")
            return value, i
        if i - start == 4:
            fail("2.2.3", "Remaining Length has more than four bytes")
    return None


def packet(op, body):
    """A whole packet."""
    return bytes((op,)) + encode_length(len(body)) + bytes(body)


def text(data):
    """A string field: two bytes of length, most significant first, and the bytes."""
    return bytes((len(data) >> 8, len(data) & 255)) + bytes(data)


def number(level, value):
    """A packet identifier in the version's byte order."""
    pair = (value >> 8, value & 255)
    return bytes((pair[1], pair[0]) if level.little else pair)


def _sequence(data, i):
    # Length of the UTF-8 sequence at i, 0 if it is not one (RFC 3629, table in section 4).
    b = data[i]
    if b < 0x80:
        return 1
    n = 2 if 0xC2 <= b <= 0xDF else 3 if 0xE0 <= b <= 0xEF else 4 if 0xF0 <= b <= 0xF4 else 0
    if not n or i + n > len(data):
        return 0
    for k in range(i + 1, i + n):
        if data[k] & 0xC0 != 0x80:
            return 0
    low = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
    first, last = low.get(b, (0x80, 0xBF))
    return n if first <= data[i + 1] <= last else 0


def check_utf8(data, where, statement="MQTT-1.5.3-1"):
    """Well-formed UTF-8 without surrogates [MQTT-1.5.3-1] and without U+0000 [MQTT-1.5.3-2]."""
    i = 0
    while i < len(data):
        n = _sequence(data, i)
        if not n:
            fail(statement, "%s is not UTF-8: %r" % (where, data))
        if data[i] == 0:
            fail("MQTT-1.5.3-2", "%s contains U+0000" % where)
        i += n


def check_topic(level, topic, statement="MQTT-3.3.2-1"):
    """A topic name."""
    check_utf8(topic, "topic name", statement)
    if not topic:
        fail("MQTT-4.7.3-1", "empty topic name")
    if len(topic) > level.topic_max:
        fail("MQTT 3.1, 2.2", "topic name of %d bytes" % len(topic))
    if b"#" in topic or b"+" in topic:
        fail("MQTT-3.3.2-2", "wildcard in the topic name %r" % topic)


def check_filter(level, topic, statement):
    """A topic filter."""
    check_utf8(topic, "topic filter", statement)
    if not topic:
        fail("MQTT-4.7.3-1", "empty topic filter")
    if len(topic) > level.topic_max:
        fail("MQTT 3.1, 2.2", "topic filter of %d bytes" % len(topic))
    levels = topic.split(b"/")
    for n, part in enumerate(levels):
        if b"#" in part and (part != b"#" or n != len(levels) - 1):
            fail("MQTT-4.7.1-2", "# out of place in %r" % topic)
        if b"+" in part and part != b"+":
            fail("MQTT-4.7.1-3", "+ out of place in %r" % topic)


class Fields:
    """Reads the fields of a body one after the other."""

    def __init__(self, level, body, name):
        self.level = level
        self.body = body
        self.name = name
        self.i = 0

    def byte(self, what):
        """One byte."""
        return self.take(1, what)[0]

    def take(self, n, what):
        """n bytes."""
        if self.i + n > len(self.body):
            fail("2.2.3", "%s ends within its %s" % (self.name, what))
        self.i += n
        return self.body[self.i - n : self.i]

    def text(self, what):
        """A string with its length."""
        pair = self.take(2, "length of " + what)
        return self.take(pair[0] << 8 | pair[1], what)

    def short(self, what):
        """16 bits, most significant byte first."""
        pair = self.take(2, what)
        return pair[0] << 8 | pair[1]

    def id(self):
        """A packet identifier, not zero."""
        pair = self.take(2, "packet identifier")
        value = pair[1] << 8 | pair[0] if self.level.little else pair[0] << 8 | pair[1]
        if not value:
            fail("MQTT-2.3.1-1", "%s with packet identifier 0" % self.name)
        return value

    @property
    def left(self):
        """Bytes not read yet."""
        return len(self.body) - self.i

    def end(self):
        """Nothing may follow."""
        if self.left:
            fail("2.2.3", "%s has %d bytes too many" % (self.name, self.left))


class Packet:
    """What was read: .type, .dup, .qos, .retain, .pid and what the type has besides."""

    def __init__(self, op, body):
        self.type = op >> 4
        self.name = NAMES[self.type]
        self.flags = op & 15
        self.dup = bool(op & 8)
        self.qos = op >> 1 & 3
        self.retain = bool(op & 1)
        self.pid = 0
        self.body = body


def _flags(level, p):
    # Reserved flags: 0010 for PUBREL, SUBSCRIBE, UNSUBSCRIBE, else 0000 [MQTT-2.2.2-1].  MQTT 3.1
    # reads the same bits as QoS 1, with DUP on what is re-sent (3.1, 2.1).
    if p.type == PUBLISH:
        return
    wanted = 2 if p.type in (PUBREL, SUBSCRIBE, UNSUBSCRIBE) else 0
    statement = {PUBREL: "MQTT-3.6.1-1", SUBSCRIBE: "MQTT-3.8.1-1", UNSUBSCRIBE: "MQTT-3.10.1-1"}
    if p.flags == wanted or p.type in level.dup and p.flags == (wanted | 8):
        return
    fail(statement.get(p.type, "MQTT-2.2.2-1"), "%s with flags %d" % (p.name, p.flags))


def parse(level, op, body):
    """Check a packet that may follow CONNECT by itself; returns a Packet."""
    p = Packet(op, body)
    _flags(level, p)
    f = Fields(level, body, p.name)
    if p.type == PUBLISH:
        _publish(level, p, f)
    elif p.type in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        p.pid = f.id()
    elif p.type == SUBSCRIBE:
        _subscribe(level, p, f)
    elif p.type == UNSUBSCRIBE:
        _unsubscribe(level, p, f)
    elif p.type not in (PINGREQ, DISCONNECT):
        fail("2.2.1", "%s is not a client's packet" % p.name)
    f.end()
    return p


def _publish(level, p, f):
    if p.qos == 3:
        fail("MQTT-3.3.1-4", "PUBLISH with QoS 3")
    if p.dup and not p.qos:
        fail("MQTT-3.3.1-2", "PUBLISH with QoS 0 and DUP")
    p.topic = f.text("topic name")
    check_topic(level, p.topic)
    if p.qos:
        p.pid = f.id()
    p.payload = f.take(f.left, "payload")


def _subscribe(level, p, f):
    p.pid = f.id()
    p.filters = []
    while f.left:
        topic = f.text("topic filter")
        check_filter(level, topic, "MQTT-3.8.3-1")
        qos = f.byte("requested QoS")
        if qos > 2:
            fail("MQTT-3-8.3-4", "requested QoS byte %d" % qos)
        p.filters.append((topic, qos))
    if not p.filters:
        fail("MQTT-3.8.3-3", "SUBSCRIBE without a topic filter")


def _unsubscribe(level, p, f):
    p.pid = f.id()
    p.filters = []
    while f.left:
        topic = f.text("topic filter")
        check_filter(level, topic, "MQTT-3.10.3-1")
        p.filters.append(topic)
    if not p.filters:
        fail("MQTT-3.10.3-2", "UNSUBSCRIBE without a topic filter")


def parse_connect(op, body):
    """Check a CONNECT; returns a Packet with .level and all its fields."""
    p = Packet(op, body)
    if p.flags:
        fail("MQTT-2.2.2-1", "CONNECT with flags %d" % p.flags)
    f = Fields(None, body, "CONNECT")
    name = f.text("protocol name")
    number = f.byte("protocol version")
    p.level = LEVELS.get(number)
    if not p.level or p.level.name != name:
        fail("MQTT-3.1.2-1", "protocol name %r with version %d" % (name, number))
    bits = f.byte("connect flags")
    _connect_flags(p, bits)
    p.keepalive = f.short("keep alive")
    _connect_payload(p, f, bits)
    f.end()
    return p


def _connect_flags(p, bits):
    if bits & 1:
        fail("MQTT-3.1.2-3", "reserved connect flag (draft: TNCOMP) is set")
    p.clean = bool(bits & 2)
    p.will = bool(bits & 4)
    p.will_qos = bits >> 3 & 3
    p.will_retain = bool(bits & 0x20)
    if not p.will and p.will_qos:
        fail("MQTT-3.1.2-13", "will QoS without a will")
    if p.will_qos == 3:
        fail("MQTT-3.1.2-14", "will QoS 3")
    if not p.will and p.will_retain:
        fail("MQTT-3.1.2-15", "will retain without a will")
    if bits & 0xC0 and not p.level.login:
        fail("MQIpdp, CONNECT", "bits 6 and 7 of the connect flags are not used")
    if bits & 0xC0 == 0x40:
        fail("MQTT-3.1.2-22", "password without user name")


def _connect_payload(p, f, bits):
    # The order is fixed [MQTT-3.1.3-1].
    p.client_id = f.text("client identifier")
    check_utf8(p.client_id, "client identifier", "MQTT-3.1.3-4")
    if p.level.id_max and not 1 <= len(p.client_id) <= p.level.id_max:
        fail("MQTT 3.1, 3.1", "client identifier of %d bytes" % len(p.client_id))
    if not p.client_id and not p.clean:
        fail("MQTT-3.1.3-7", "empty client identifier without clean session")
    p.will_topic = p.will_message = p.user = p.password = None
    if p.will:
        p.will_topic = f.text("will topic")
        check_topic(p.level, p.will_topic, "MQTT-3.1.3-10")
        p.will_message = f.text("will message")
    if bits & 0x80:
        p.user = f.text("user name")
        check_utf8(p.user, "user name", "MQTT-3.1.3-11")
    if bits & 0x40:
        p.password = f.text("password")


def matches(topic_filter, topic):
    """True if the filter covers the topic name (3.1.1 section 4.7)."""
    if topic[:1] == b"$" and topic_filter[:1] in (b"#", b"+"):
        return False
    filters = topic_filter.split(b"/")
    names = topic.split(b"/")
    for n, part in enumerate(filters):
        if part == b"#":
            return True
        if n >= len(names) or part != b"+" and part != names[n]:
            return False
    return len(filters) == len(names)
