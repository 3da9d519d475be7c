"""MQTT 3.1 and the MQIpdp draft: every byte table and example of the documents, both ways.

Knows: MQTT 3.1 (document 003), the v3 fixed header (001), the draft's fixed header (16 July 1999,
000) and CONNECT (22 October 1999, 004); where they err, their errata.
Must not know: how the client tells the versions apart.
"""
# also: micropython32

from harness import Bench, raises, reason
from strict_broker import DROP, StrictBroker, publish
from strict_wire import CONNECT, PUBACK, PUBLISH, PUBREL, SUBSCRIBE, UNSUBSCRIBE, encode_length
from umqtt_min import MQIPDP_2, MQTT_3_1, MQTTException
from umqtt_min.errors import PROTOCOL, TIMEOUT


def bench(level, **options):
    """A client of that version with a broker that speaks no other."""
    return Bench(
        StrictBroker(level), protocol={3: MQTT_3_1, 2: MQIPDP_2}[level], **options
    )  # fmt: skip


def raw_writes(b):
    """Record every byte that the client writes, as one list of writes."""
    written = []
    feed = b.conn.feed

    def record(data):
        written.append(bytes(data))
        feed(data)

    b.conn.feed = record
    return written


def test_003_remaining_length_table():
    """MQTT 3.1, 2.1; row 2 of the errata: 321 is 193, 2."""
    for value, code in ((0, b"\x00"), (64, b"\x40"), (127, b"\x7f"), (128, b"\x80\x01"),
                        (321, b"\xc1\x02"), (16383, b"\xff\x7f"), (16384, b"\x80\x80\x01"),
                        (2097151, b"\xff\xff\x7f"), (2097152, b"\x80\x80\x80\x01"),
                        (268435455, b"\xff\xff\xff\x7f")):  # fmt: skip
        assert encode_length(value) == code
    b = bench(3)
    b.connect()
    written = raw_writes(b)
    b.client.publish(b"a/b", b"x" * (321 - 5))
    assert written[0][:3] == b"\x30\xc1\x02"


def test_003_connect_example():
    """MQTT 3.1, 3.1: flags 0xCE, keep alive 10."""
    b = bench(3, keepalive=10, user="u", password="p")
    b.client.set_last_will("w", "m", qos=1)
    b.connect(True)
    assert b.broker.packets[0].body == (
        b"\x00\x06MQIsdp\x03\xce\x00\x0a" + b"\x00\x03dev\x00\x01w\x00\x01m\x00\x01u\x00\x01p"
    )


def test_004_connect_example():
    """MQIpdp, CONNECT: flags 0x0E, keep alive 10 big-endian; row 24: the name is MQIpdp."""
    b = bench(2, keepalive=10)
    b.client.set_last_will("w", "m", qos=1)
    b.connect(True)
    assert b.broker.packets[0].body == (
        b"\x00\x06MQIpdp\x02\x0e\x00\x0a" + b"\x00\x03dev\x00\x01w\x00\x01m"
    )


def test_004_no_user_name():
    """Row 26: the draft has no user name; asking for one is refused."""
    raises(ValueError, bench, 2, user="u")
    raises(ValueError, bench, 2, user="u", password="p")


def test_003_publish_subscribe_unsubscribe_examples():
    """MQTT 3.1, 3.3, 3.8, 3.10: "a/b" with id 10, and so on."""
    b = bench(3)
    b.connect()
    written = raw_writes(b)
    b.client.pid = 9
    b.client.publish(b"a/b", b"", qos=1)
    b.client.pid = 9
    b.client.subscribe([(b"a/b", 1), (b"c/d", 2)])
    b.client.pid = 9
    b.client.unsubscribe([b"a/b", b"c/d"])
    b.client.ping()
    b.client.disconnect()
    assert written == [
        b"\x32\x07\x00\x03a/b\x00\x0a",
        b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02",
        b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d",
        b"\xc0\x00",
        b"\xe0\x00",
    ]


def test_000_ids_are_little_endian_string_lengths_are_not():
    """Row 1: message ids LSB first, both ways, in every packet that has one."""
    b = bench(2)
    b.connect()
    written = raw_writes(b)
    for call in (
        lambda: b.client.publish(b"a/b", b"", qos=1),
        lambda: b.client.publish(b"a/b", b"", qos=2),
        lambda: b.client.subscribe(b"t", 2),
        lambda: b.client.unsubscribe(b"z"),
    ):
        b.client.pid = 0x0109
        call()
    assert written == [
        b"\x32\x07\x00\x03a/b\x0a\x01",
        b"\x34\x07\x00\x03a/b\x0a\x01",
        b"\x62\x02\x0a\x01",
        b"\x82\x06\x0a\x01\x00\x01t\x02",
        b"\xa2\x05\x0a\x01\x00\x01z",
    ]
    del written[:]
    b.conn.session.last_pid = 0x0203
    b.broker.publish(b"t", b"x", 1)
    b.broker.publish(b"t", b"y", 2)
    b.pump()
    assert b.got == [(b"t", b"x"), (b"t", b"y")]
    assert written == [b"\x40\x02\x04\x02", b"\x50\x02\x05\x02", b"\x70\x02\x05\x02"]


def test_every_qos_both_ways_and_no_session_present():
    for level in (3, 2):
        b = bench(level)
        b.connect(False)
        assert b.client.session_present is None
        b.client.subscribe(b"t", 2)
        for qos in (0, 1, 2):
            for n in (0, 10, 300):
                b.client.publish(b"t", b"x" * n, qos=qos)
                b.pump(30)
        assert [len(m) for _, m in b.got] == [0, 10, 300] * 3
        assert b.conn.owed() == []
        b.net.cut()
        raises(OSError, b.pump)
        b.connect(False)
        b.broker.publish(b"t", b"again", 2)
        b.pump()
        assert b.got[-1] == (b"t", b"again")


def test_client_ids_of_1_to_23_characters():
    """MQTT 3.1, 3.1 and the draft; row 11."""
    for level in (3, 2):
        for bad in (b"", b"d" * 24):
            raises(ValueError, bench, level, client_id=bad)
        for good in (b"d", b"d" * 23):
            bench(level, client_id=good).connect()


def test_topics_up_to_32767_bytes():
    """Row 15: 2.2 of MQTT 3.1."""
    b = bench(3)
    b.connect()
    b.client.publish(b"t" * 32767, b"")
    raises(ValueError, b.client.publish, b"t" * 32768, b"")
    raises(ValueError, b.client.subscribe, b"t" * 32768)
    assert b.client.connected


def test_connack_byte_1_is_reserved():
    """Rows 13 and 23: ignored, session unknown."""
    for level in (3, 2):
        b = bench(level)
        b.broker.when(CONNECT, b"\x20\x02\xff\x00")
        assert b.connect() is False
        assert b.client.session_present is None


def test_without_connack_nothing_is_known_of_a_session():
    for level in (3, 2):
        for answer in (DROP, b"\x20\x02"):
            b = bench(level, timeout=1)
            b.broker.when(CONNECT, answer)
            assert reason(b.connect) == TIMEOUT
            assert b.client.session_present is None


def test_connack_codes():
    """MQTT 3.1, 3.2: 1 to 5."""
    for code in (1, 2, 3, 4, 5):
        b = bench(3)
        b.broker.refuse = code
        assert reason(b.connect) == code


def test_unused_flag_bits_are_ignored_when_received():
    """Row 22: 2.6 of MQTT 3.1 sets them to zero, its tables print x."""
    for level in (3, 2):
        b = bench(level)
        b.connect()
        b.broker.when(PUBLISH, lambda a: bytes((a[0] | 0x0F,)) + a[1:], 0)
        b.broker.when(SUBSCRIBE, lambda a: bytes((a[0] | 0x06,)) + a[1:])
        b.broker.when(UNSUBSCRIBE, lambda a: bytes((a[0] | 0x02,)) + a[1:])
        b.client.publish(b"t", b"x", qos=1)
        b.client.subscribe(b"t", 1)
        b.client.unsubscribe(b"t")
        b.conn.send(b"\xdf\x00")
        b.pump()
        assert b.client.connected


def test_suback_low_two_bits_are_the_qos_and_there_is_no_refusal():
    """Row 14."""
    b = bench(3)
    b.connect()
    b.broker.when(SUBSCRIBE, lambda a: a[:-1] + b"\xfd")
    assert b.client.subscribe(b"t", 2) == 1


def test_dup_on_publish_received():
    for level in (3, 2):
        b = bench(level).subscribe()
        b.conn.send(publish(level, b"t", b"x", 1, dup=True, pid=3))
        b.pump()
        assert b.got == [(b"t", b"x")]
        assert b.kinds() == [PUBACK]


def test_a_retained_message_may_come_at_any_qos():
    """Row 5."""
    b = bench(3)
    b.connect()
    b.client.subscribe(b"t", 0)
    b.conn.send(publish(3, b"t", b"x", 2, retain=True, pid=3))
    b.pump()
    assert b.got == [(b"t", b"x")]


def test_3_1_1_is_strict_where_3_1_is_not():
    b = Bench()
    b.connect()
    b.conn.send(b"\xdf\x00")
    assert reason(b.client.check_msg) == PROTOCOL
    assert issubclass(MQTTException, Exception)
    assert PUBREL == 6


def test_flags_that_connack_does_not_use_byte_by_byte():
    # 3.1, section 3.2, and the draft: "not used" in CONNACK. 3.1.1 reserves them [MQTT-2.2.2-2].
    for level in (2, 3, 4):
        b = bench(level) if level < 4 else Bench()
        b.net.max_read = 1
        b.broker.when(CONNECT, b"\x24\x02\x00\x00")
        if level == 4:
            assert reason(b.connect) == PROTOCOL
        else:
            b.connect()
            assert b.client.connected
