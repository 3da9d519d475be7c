"""The byte tables and examples of the documents, literally and both ways.

Knows: the bytes that the tables print: document 000 (MQIpdp fixed header), 001 (v3 fixed header),
002 (a broker's guide to MQTT 3.1.1), 003 (MQTT 3.1); rows of the errata where they err. What is
particular to the old versions is in test_client_legacy.py.
Must not know: how a packet is built or taken apart, here or in the client.
"""
# heap: 12M
# deadline: 60

from harness import raises, reason
from umqtt_min import MQIPDP_2, MQTT_3_1, MQTTClient, MQTTException, RAMStore
from umqtt_min.errors import PROTOCOL, SUBSCRIBE_REFUSED

CONNACK = b"\x20\x02\x00\x00"


class Tape:
    """A stream that plays: what the client has to write next, then what it reads."""

    def __init__(self, *lines):
        self.lines = list(lines)  # (to be written, to be read then)
        self.written = b""
        self.out = b""

    def connect(self, host, port, timeout_ms):
        return self

    def setblocking(self, flag):
        """Never blocks."""

    def close(self):
        """Nothing is open."""

    def ready(self, mask):
        return mask if self.out else mask & 4

    def write(self, buf, off=0, n=-1):
        n = len(buf) if n < 0 else n
        self.written += bytes(memoryview(buf)[off : off + n])
        while self.lines and self.written.startswith(self.lines[0][0]):
            told, answer = self.lines.pop(0)
            self.written = self.written[len(told) :]
            self.out += answer
        return n

    def readinto(self, buf, n):
        n = min(len(buf), n, len(self.out))
        buf[:n] = self.out[:n]
        self.out = self.out[n:]
        return n or None

    def done(self):
        """All was played, nothing else was written."""
        assert not self.lines and not self.written, (self.lines, self.written)


HELLO = (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01d", CONNACK)


def client(*lines, **options):
    """A client of id "d" on a tape."""
    tape = Tape(*lines)
    settings = {"client_id": b"d", "server": "b", "timer": False, "timeout": 2}
    settings.update(options)
    made = MQTTClient(connector=tape.connect, **settings)
    made.got = []
    made.set_callback(lambda topic, msg: made.got.append((topic, msg)))
    return made, tape


def connected(*lines, **options):
    """The same, after CONNECT without flags."""
    made, tape = client(HELLO, *lines, **options)
    made.connect(True)
    return made, tape


def test_002_connect_every_flag():
    """CONNECT, byte 8: user name, password, will retain, will QoS, will flag, clean session, 0."""
    for bits in range(64):
        user, password, will, retain = bits & 1, bits & 2, bits & 4, bits & 8
        qos = (bits >> 4) % 3
        if password and not user or not will and (retain or bits >> 4):
            continue
        flags = 2 | (0x80 if user else 0) | (0x40 if password else 0)
        payload = b"\x00\x01d"
        if will:
            flags |= 4 | qos << 3 | (0x20 if retain else 0)
            payload += b"\x00\x01w\x00\x02wm"
        payload += b"\x00\x01u" if user else b""
        payload += b"\x00\x02pw" if password else b""
        head = b"\x00\x04MQTT\x04" + bytes((flags, 0, 10))
        packet = bytes((0x10, len(head + payload))) + head + payload
        made, tape = client((packet, CONNACK), keepalive=10, user="u" if user else None,
                            password="pw" if password else None)  # fmt: skip
        if will:
            made.set_last_will(b"w", b"wm", bool(retain), qos)
        made.connect(True)
        tape.done()


def test_002_connect_keep_alive_most_significant_byte_first():
    packet = b"\x10\x0d\x00\x04MQTT\x04\x00\x12\x34\x00\x01d"
    made, tape = client((packet, b"\x20\x02\x01\x00"), keepalive=0x1234)
    assert made.connect(False) is True, "CONNACK: session present"
    tape.done()


def test_002_connack_table():
    made, tape = connected()
    assert made.session_present is False
    for code in range(1, 6):
        made, tape = client((HELLO[0], bytes((0x20, 2, 0, code))))
        assert reason(made.connect, True) == code
        assert not made.connected
    for wrong in (b"\x20\x02\x02\x00", b"\x21\x02\x00\x00", b"\x20\x03\x00\x00\x00"):
        made, tape = client((HELLO[0], wrong))
        assert reason(made.connect, True) == PROTOCOL


def test_002_publish_and_its_answers():
    """PUBLISH with DUP 0; none, PUBACK, or PUBREC, PUBREL and PUBCOMP (row 10: id from QoS 1)."""
    made, tape = connected(
        (b"\x30\x0a\x00\x03a/bhello", b""),
        (b"\x31\x0a\x00\x03a/bhello", b""),
        (b"\x32\x0c\x00\x03a/b\x12\x35hello", b"\x40\x02\x12\x35"),
        (b"\x33\x0c\x00\x03a/b\x12\x36hello", b"\x40\x02\x12\x36"),
        (b"\x34\x0c\x00\x03a/b\x12\x37hello", b"\x50\x02\x12\x37"),
        (b"\x62\x02\x12\x37", b"\x70\x02\x12\x37"),
    )
    made.pid = 0x1234
    for qos, retain in ((0, False), (0, True), (1, False), (1, True), (2, False)):
        made.publish(b"a/b", b"hello", retain, qos)
    tape.done()


def test_002_publish_received_at_each_qos():
    made, tape = connected()
    tape.out = b"\x31\x06\x00\x01txyz" + b"\x3a\x08\x00\x01t\x12\x34xyz"
    tape.out += b"\x34\x08\x00\x01t\x00\x0axyz"
    tape.lines = [(b"\x40\x02\x12\x34", b""), (b"\x50\x02\x00\x0a", b"\x62\x02\x00\x0a"),
                  (b"\x70\x02\x00\x0a", b"")]  # fmt: skip
    for _ in range(4):
        made.check_msg()
    assert made.got == [(b"t", b"xyz")] * 3
    tape.done()


def test_002_subscribe_and_suback():
    """Type 8 (row 7); SUBACK 0, 1, 2 or failure (row 8); PUBLISH may come before it (row 9)."""
    wanted = [(b"a/b", 1), (b"c/d", 2), (b"e", 0)]
    packet = b"\x82\x12\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02\x00\x01e\x00"
    early = b"\x30\x04\x00\x01tx"
    made, tape = connected((packet, early + b"\x90\x05\x00\x0a\x01\x02\x00"))
    made.pid = 9
    assert made.subscribe(wanted) == [1, 2, 0]
    assert made.got == [(b"t", b"x")]
    tape.done()
    made, tape = connected((packet, b"\x90\x05\x00\x0a\x01\x80\x00"))
    made.pid = 9
    e = raises(MQTTException, made.subscribe, wanted)
    assert (e.reason, e.detail) == (SUBSCRIBE_REFUSED, b"c/d")
    for code in range(3, 256):
        if code != 0x80:
            made, tape = connected((packet, b"\x90\x05\x00\x0a\x01\x02" + bytes((code,))))
            made.pid = 9
            assert reason(made.subscribe, wanted) == PROTOCOL


def test_002_unsubscribe_pingreq_disconnect():
    """UNSUBSCRIBE with flags 0010 (row 6)."""
    made, tape = connected(
        (b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d", b"\xb0\x02\x00\x0a"),
        (b"\xc0\x00", b"\xd0\x00"),
        (b"\xe0\x00", b""),
    )
    made.pid = 9
    made.unsubscribe([b"a/b", b"c/d"])
    made.ping()
    made.check_msg()
    made.disconnect()
    tape.done()
    assert made.counters.pings == 1 and not made.connected


def test_000_001_003_types_0_and_15_are_reserved():
    """Message type table of all three: neither is ever valid."""
    for first in (0x00, 0x0F, 0xF0, 0xFF):
        for row, hello in ((None, HELLO), (MQTT_3_1, OLD[3]), (MQIPDP_2, OLD[2])):
            options = {"protocol": row} if row else {}
            made, tape = client(hello, **options)
            made.connect(True)
            tape.out = bytes((first, 0))
            assert reason(made.check_msg) == PROTOCOL
            assert not made.connected


OLD = {
    3: (b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x00\x00\x01d", CONNACK),
    2: (b"\x10\x0f\x00\x06MQIpdp\x02\x02\x00\x00\x00\x01d", CONNACK),
}

# Digits from and to, as the table of 000, 001 and 003 has them; 64 and 321 are its examples
# (row 2: 321 is 193, 2).
LENGTHS = (
    (4, b"\x04"),
    (64, b"\x40"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (321, b"\xc1\x02"),
    (16383, b"\xff\x7f"),
    (16384, b"\x80\x80\x01"),
    (2097151, b"\xff\xff\x7f"),
    (2097152, b"\x80\x80\x80\x01"),
)


class Sink(Tape):
    """Takes everything after CONNECT and keeps its beginning."""

    def write(self, buf, off=0, n=-1):
        if self.lines:
            return super().write(buf, off, n)
        n = len(buf) if n < 0 else n
        self.total += n
        if len(self.written) < 16:
            self.written += bytes(memoryview(buf)[off : off + min(n, 16)])
        return n


def test_000_001_003_remaining_length_as_the_client_sends_it():
    payload = memoryview(bytearray(2097152))
    for row, hello in ((None, HELLO), (MQTT_3_1, OLD[3]), (MQIPDP_2, OLD[2])):
        sink = Sink(hello)
        options = {"protocol": row} if row else {}
        made = MQTTClient(b"d", "b", timer=False, connector=sink.connect, **options)
        made.connect(True)
        for n, digits in LENGTHS:
            sink.written = b""
            sink.total = 0
            made.publish(b"t", payload[: n - 3])
            assert sink.written.startswith(b"\x30" + digits + b"\x00\x01t")
            assert sink.total == 1 + len(digits) + n


def test_000_001_003_remaining_length_as_the_client_reads_it():
    for n, digits in LENGTHS[:7]:
        made, tape = connected()
        tape.out = b"\x30" + digits + b"\x00\x01t" + b"x" * (n - 3) + b"\x30\x04\x00\x01ty"
        for _ in range(n // 256 + 9):
            made.check_msg()
        assert made.got == [(b"t", b"x" * (n - 3)), (b"t", b"y")]
    # The largest is not refused for its length; a fifth digit is.
    made, tape = connected()
    tape.out = b"\x30\xff\xff\xff\x7f\x00\x01t" + b"x" * 1000
    for _ in range(9):
        made.check_msg()
    assert made.connected and not made.got
    made, tape = connected()
    tape.out = b"\x30\x80\x80\x80\x80\x01\x00\x01t"
    assert reason(made.check_msg) == PROTOCOL


def test_003_acknowledgements_of_id_10_both_ways():
    """PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK (0 and 2) and UNSUBACK examples, Message ID 10."""
    made, tape = client(
        OLD[3],
        (b"\x32\x07\x00\x03a/b\x00\x0a", b"\x40\x02\x00\x0a"),
        (b"\x34\x07\x00\x03a/b\x00\x0a", b"\x50\x02\x00\x0a"),
        (b"\x62\x02\x00\x0a", b"\x70\x02\x00\x0a"),
        (b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02", b"\x90\x04\x00\x0a\x00\x02"),
        (b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d", b"\xb0\x02\x00\x0a"),
        protocol=MQTT_3_1,
    )
    made.connect(True)
    for call in (
        lambda: made.publish(b"a/b", b"", qos=1),
        lambda: made.publish(b"a/b", b"", qos=2),
        lambda: made.subscribe([(b"a/b", 1), (b"c/d", 2)]),
        lambda: made.unsubscribe([b"a/b", b"c/d"]),
    ):
        made.pid = 9
        answer = call()
        if isinstance(answer, list):
            assert answer == [0, 2]
    tape.done()


def test_dup_on_what_is_sent_again():
    """DUP flag: PUBLISH in 000, 001 and 002; in 003 PUBREL, too (row 4)."""
    for row, name, release in (
        (None, b"\x00\x04MQTT\x04", 0x62),
        (MQTT_3_1, b"\x00\x06MQIsdp\x03", 0x6A),
        (MQIPDP_2, b"\x00\x06MQIpdp\x02", 0x62),
    ):
        hello = bytes((0x10, len(name) + 6)) + name + b"\x00\x00\x00\x00\x01d"
        made, tape = client(
            (hello, CONNACK),
            (b"\x32\x08\x00\x03a/b\x01\x01x", b""),
            (b"\x34\x08\x00\x03a/b\x02\x02y", b"\x50\x02\x02\x02"),
            (b"\x62\x02\x02\x02", b""),
            (hello, CONNACK if row else b"\x20\x02\x01\x00"),
            (b"\x3a\x08\x00\x03a/b\x01\x01x", b"\x40\x02\x01\x01"),
            (bytes((release, 2, 2, 2)), b"\x70\x02\x02\x02"),
            store=RAMStore(),
            **({"protocol": row} if row else {})
        )
        made.connect()
        for pid, payload in ((0x0100, b"x"), (0x0201, b"y")):
            made.pid = pid
            made.publish(b"a/b", payload, qos=1 + (pid >> 9), wait=False)
        made.check_msg()
        made.connect()
        assert made.flush(2)
        tape.done()


def test_003_the_string_otwp():
    """Section 2.5: length, most significant byte first, and the UTF-8 bytes."""
    made, tape = client(
        (b"\x10\x12\x00\x06MQIsdp\x03\x02\x00\x00\x00\x04OTWP", CONNACK),
        (b"\x30\x06\x00\x04OTWP", b""),
        client_id="OTWP",
        protocol=MQTT_3_1,
    )
    made.connect(True)
    made.publish("OTWP", b"")
    tape.done()


def test_003_appendix_a_topics():
    """Wildcards: which filters are valid; case, spaces and a leading "/" are kept."""
    for good in (b"#", b"finance/#", b"finance/stock/ibm/#", b"+", b"+/finance", b"finance/+",
                 b"finance/+/ibm", b"+/+", b"/+", b"/finance", b"ACCOUNTS",
                 b"Accounts payable"):  # fmt: skip
        n = len(good)
        packet = bytes((0x82, n + 5, 0, 10, 0, n)) + good + b"\x00"
        made, tape = client(OLD[3], (packet, b"\x90\x03\x00\x0a\x00"), protocol=MQTT_3_1)
        made.connect(True)
        made.pid = 9
        made.subscribe(good)
        tape.done()
    made, tape = client(OLD[3], protocol=MQTT_3_1)
    made.connect(True)
    for bad in (b"finance#", b"finance/#/closingprice", b"finance+", b""):
        raises(ValueError, made.subscribe, bad)
    for bad in (b"finance/#", b"finance/+", b""):
        raises(ValueError, made.publish, bad, b"")
    tape.done()
