"""The strict broker catches what it is there for: raw bytes against it, no client.

Knows: packets as bytes.  Must not know: the library under test.
"""

import time

import softtimer
from broker_stream import Echo, Network
from strict_broker import (
    ANSWER_CLOSE,
    CLOSE,
    DROP,
    HOLD,
    StrictBroker,
    check_all,
    publish,
)
from strict_wire import (
    CONNECT,
    PINGREQ,
    PUBACK,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    ProtocolError,
    packet,
    text,
)

CONNECT_4 = packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c" + text(b"dev"))
CONNECT_KEEP = packet(0x10, b"\x00\x04MQTT\x04\x00\x00\x3c" + text(b"dev"))
CONNECT_3 = packet(0x10, b"\x00\x06MQIsdp\x03\x00\x00\x3c" + text(b"dev"))
CONNECT_2 = packet(0x10, b"\x00\x06MQIpdp\x02\x00\x00\x3c" + text(b"dev"))
OK = b"\x20\x02\x00\x00"


def pub(qos, pid, payload=b"x", dup=0, retain=0, topic=b"t"):
    """A PUBLISH of a client at 3.1.1."""
    return publish(4, topic, payload, qos, retain, dup, pid)


def connected(connect=CONNECT_4, broker=None):
    """A broker and a connection that has had its CONNACK."""
    broker = broker or StrictBroker()
    conn = broker.accept()
    conn.feed(connect)
    assert conn.take(4)[:3] in (b"\x20\x02\x00", b"\x20\x02\x01")
    return broker, conn


def again(broker, conn, connect=CONNECT_KEEP):
    """The connection is cut and made anew."""
    conn.gone(False)
    conn = broker.accept()
    conn.feed(connect)
    assert conn.take(4)[:2] == b"\x20\x02"
    return conn


def caught(statement, broker, conn, data):
    """data must raise ProtocolError with that id, and leave it in broker.errors."""
    try:
        conn.feed(data)
    except ProtocolError as e:
        assert statement in str(e), "%s, not %s" % (e, statement)
        broker.expect(statement)
        return
    raise AssertionError("%s: %r was accepted" % (statement, data))


def connect_packet(name=b"MQTT", level=4, flags=2, payload=None):
    return packet(
        0x10,
        text(name) + bytes((level, flags, 0, 60)) + (text(b"dev") if payload is None else payload),
    )


BAD_CONNECTS = (
    ("MQTT-3.1.0-1", b"\xc0\x00"),
    ("MQTT-3.1.0-1", b"\x30\x03\x00\x01t"),
    ("MQTT-2.2.2-1", b"\x11" + CONNECT_4[1:]),
    ("MQTT-3.1.2-1", connect_packet(b"MQTt")),
    ("MQTT-3.1.2-1", connect_packet(b"MQIsdp", 4)),
    ("MQTT-3.1.2-1", connect_packet(level=5)),
    ("MQTT-3.1.2-3", connect_packet(flags=3)),
    ("MQTT-3.1.2-13", connect_packet(flags=2 | 8)),
    ("MQTT-3.1.2-14", connect_packet(flags=2 | 4 | 24)),
    ("MQTT-3.1.2-15", connect_packet(flags=2 | 32)),
    ("MQTT-3.1.2-22", connect_packet(flags=2 | 64, payload=text(b"dev") + text(b"p"))),
    ("will topic", connect_packet(flags=2 | 4)),
    ("will message", connect_packet(flags=2 | 4, payload=text(b"dev") + text(b"w"))),
    ("MQTT-3.1.3-10", connect_packet(flags=6, payload=text(b"dev") + text(b"\xff") + text(b""))),
    ("MQTT-3.3.2-2", connect_packet(flags=6, payload=text(b"dev") + text(b"a/#") + text(b""))),
    ("user name", connect_packet(flags=2 | 128)),
    ("MQTT-3.1.3-11", connect_packet(flags=2 | 128, payload=text(b"dev") + text(b"\xc0\x80"))),
    ("password", connect_packet(flags=2 | 192, payload=text(b"dev") + text(b"u"))),
    ("too many", connect_packet(payload=text(b"dev") + text(b"u"))),
    ("MQTT-3.1.3-4", connect_packet(payload=text(b"\xed\xa0\x80"))),
    ("MQTT-1.5.3-2", connect_packet(payload=text(b"a\x00"))),
    ("MQTT-3.1.3-7", connect_packet(flags=0, payload=text(b""))),
    ("MQTT 3.1, 3.1", connect_packet(b"MQIsdp", 3, payload=text(b""))),
    ("MQTT 3.1, 3.1", connect_packet(b"MQIsdp", 3, payload=text(b"d" * 24))),
    ("MQTT 3.1, 3.1", connect_packet(b"MQIpdp", 2, payload=text(b"d" * 24))),
    ("MQIpdp", connect_packet(b"MQIpdp", 2, 128, text(b"dev") + text(b"u"))),
    ("MQTT-3.1.2-3", connect_packet(b"MQIpdp", 2, 1)),
)


def test_bad_connects_are_caught():
    for statement, data in BAD_CONNECTS:
        broker = StrictBroker()
        caught(statement, broker, broker.accept(), data)


def test_good_connects_are_accepted():
    full = text(b"dev") + text(b"w") + text(b"\xff") + text(b"user") + text(b"\xff")
    for data in (
        CONNECT_4,
        connect_packet(payload=text(b"")),
        connect_packet(payload=text(b"d" * 300)),
        connect_packet(flags=2 | 4 | 16 | 32 | 192, payload=full),
        connect_packet(b"MQIsdp", 3, payload=text(b"d" * 23)),
        connect_packet(b"MQIpdp", 2, 0x0E, text(b"dev") + text(b"w") + text(b"m")),
    ):
        broker = StrictBroker()
        conn = broker.accept()
        conn.feed(data)
        assert conn.take(9) == OK


def test_second_connect_is_caught():
    broker, conn = connected()
    caught("MQTT-3.1.0-2", broker, conn, CONNECT_4)


def test_level_of_the_broker_is_enforced():
    broker = StrictBroker(level=3)
    caught("MQTT-3.1.2-2", broker, broker.accept(), CONNECT_4)


BAD_PACKETS = (
    ("MQTT-2.2.2-1", b"\xc1\x00"),
    ("MQTT-2.2.2-1", b"\xe2\x00"),
    ("too many", b"\xc0\x01x"),
    ("2.2.3", b"\xc0\x80\x00"),
    ("2.2.3", b"\x30\xff\xff\xff\xff\x01"),
    ("2.2.1", b"\x00\x00"),
    ("2.2.1", b"\xf0\x00"),
    ("2.2.1", b"\x20\x02\x00\x00"),
    ("2.2.1", b"\xd0\x00"),
    ("MQTT-3.3.1-4", b"\x36\x05\x00\x01t\x00\x01"),
    ("MQTT-3.3.1-2", b"\x38\x03\x00\x01t"),
    ("MQTT-4.7.3-1", b"\x30\x02\x00\x00"),
    ("2.2.3", b"\x30\x02\x00\x05"),
    ("2.2.3", b"\x30\x00"),
    ("2.2.3", b"\x32\x03\x00\x01t"),
    ("MQTT-2.3.1-1", b"\x32\x05\x00\x01t\x00\x00"),
    ("MQTT-3.3.2-2", b"\x30\x05\x00\x03a/+"),
    ("MQTT-3.3.2-1", b"\x30\x04\x00\x02\xc3\x28"),
    ("MQTT-1.5.3-2", b"\x30\x04\x00\x02a\x00"),
    ("MQTT-3.3.1-1", b"\x3a\x05\x00\x01t\x00\x01"),
    ("MQTT-2.3.1-6", b"\x40\x02\x00\x01"),
    ("MQTT-2.3.1-6", b"\x50\x02\x00\x01"),
    ("MQTT-2.3.1-6", b"\x70\x02\x00\x01"),
    ("MQTT-4.3.3-1", b"\x62\x02\x00\x01"),
    ("MQTT-3.6.1-1", b"\x60\x02\x00\x01"),
    ("MQTT-3.6.1-1", b"\x6a\x02\x00\x01"),
    ("MQTT-3.8.1-1", b"\x80\x06\x00\x01\x00\x01t\x00"),
    ("MQTT-3.8.1-1", b"\x8a\x06\x00\x01\x00\x01t\x00"),
    ("MQTT-2.3.1-1", b"\x82\x06\x00\x00\x00\x01t\x00"),
    ("MQTT-3.8.3-3", b"\x82\x02\x00\x01"),
    ("MQTT-3-8.3-4", b"\x82\x06\x00\x01\x00\x01t\x03"),
    ("MQTT-3-8.3-4", b"\x82\x06\x00\x01\x00\x01t\x80"),
    ("MQTT-3.8.3-1", b"\x82\x06\x00\x01\x00\x01\xff\x00"),
    ("MQTT-4.7.3-1", b"\x82\x05\x00\x01\x00\x00\x00"),
    ("MQTT-4.7.1-2", b"\x82\x07\x00\x01\x00\x02a#\x00"),
    ("MQTT-4.7.1-2", b"\x82\x08\x00\x01\x00\x03#/a\x00"),
    ("MQTT-4.7.1-3", b"\x82\x07\x00\x01\x00\x02a+\x00"),
    ("MQTT-3.10.1-1", b"\xa0\x05\x00\x01\x00\x01t"),
    ("MQTT-3.10.3-2", b"\xa2\x02\x00\x01"),
    ("MQTT-3.10.3-1", b"\xa2\x05\x00\x01\x00\x01\xff"),
    ("MQTT-3.14.4-2", b"\xe0\x00\xc0\x00"),
)


def test_bad_packets_are_caught():
    for statement, data in BAD_PACKETS:
        broker, conn = connected()
        caught(statement, broker, conn, data)


def test_good_packets_pass_split_anywhere():
    data = (
        pub(0, 0)
        + pub(0, 0, b"", retain=1)
        + pub(1, 1)
        + pub(2, 2, b"y" * 200)
        + b"\x82\x0a\x00\x03\x00\x01#\x02\x00\x01+\x01"
        + b"\xa2\x05\x00\x04\x00\x01#"
        + b"\xc0\x00"
    )
    for step in (1, 2, 3, 7, 1000):
        broker, conn = connected()
        for i in range(0, len(data), step):
            conn.feed(data[i : i + step])
        # The client's own message comes back to it only once it has subscribed.
        assert conn.take(100) == (
            b"\x40\x02\x00\x01\x50\x02\x00\x02\x90\x04\x00\x03\x02\x01\xb0\x02\x00\x04\xd0\x00"
        )
        conn.feed(b"\x62\x02\x00\x02")
        assert conn.take(100) == b"\x70\x02\x00\x02"
        conn.feed(b"\xe0\x00")
        conn.gone()
        broker.check()


def test_utf8_by_the_table_of_rfc_3629():
    good = (b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xed\x9f\xbf", b"\xee\x80\x80",
            b"\xef\xbb\xbf", b"\xf0\x90\x80\x80", b"\xf4\x8f\xbf\xbf")  # fmt: skip
    bad = (b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80",
           b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xc2",
           b"\xe2\x82", b"\xe2\x28\xa1")  # fmt: skip
    broker, conn = connected()
    for topic in good:
        conn.feed(publish(4, topic, b""))
    for topic in bad:
        broker, conn = connected()
        caught("MQTT-3.3.2-1", broker, conn, publish(4, topic, b""))


def test_id_in_flight_may_not_be_used_again():
    for second in (pub(1, 7), pub(2, 7), pub(1, 7, dup=1),
                   b"\x82\x06\x00\x07\x00\x01t\x00", b"\xa2\x05\x00\x07\x00\x01t"):  # fmt: skip
        broker, conn = connected()
        conn.feed(pub(1, 7))
        try:
            conn.feed(second)
        except ProtocolError:
            broker.errors.clear()
            continue
        raise AssertionError(second)


def test_id_may_be_used_again_once_the_acknowledgement_is_read():
    broker, conn = connected()
    for _ in range(2):
        conn.feed(pub(1, 7))
        assert conn.take(4) == b"\x40\x02\x00\x07"
    for _ in range(2):
        conn.feed(b"\x82\x06\x00\x07\x00\x01t\x00")
        assert conn.take(5)[0] == 0x90
    caught("MQTT-3.3.1-1", broker, conn, pub(1, 7, dup=1))


def test_subscribe_id_counts_as_in_flight():
    broker, conn = connected()
    conn.feed(b"\x82\x06\x00\x07\x00\x01z\x00")
    caught("MQTT-2.3.1-2", broker, conn, pub(1, 7))


def test_redelivery_needs_dup_and_the_same_content():
    for statement, second in (
        ("MQTT-3.3.1-1", pub(1, 7)),
        ("MQTT-2.3.1-2", pub(1, 7, b"other", dup=1)),
        ("MQTT-2.3.1-2", pub(2, 7, dup=1)),
        ("MQTT-4.4.0-1", pub(1, 8)),
    ):
        broker, conn = connected(CONNECT_KEEP)
        conn.feed(pub(1, 7))
        conn = again(broker, conn)
        caught(statement, broker, conn, second)


def test_redelivery_in_the_original_order():
    broker, conn = connected(CONNECT_KEEP)
    conn.feed(pub(1, 7) + pub(2, 8) + pub(1, 9))
    conn = again(broker, conn)
    conn.feed(pub(1, 7, dup=1))
    caught("MQTT-4.6.0-1", broker, conn, pub(1, 9, dup=1))


def test_redelivery_as_it_should_be():
    broker, conn = connected(CONNECT_KEEP)
    conn.feed(pub(1, 7, b"a") + pub(2, 8, b"b") + pub(1, 9, b"c"))
    conn = again(broker, conn)
    conn.feed(pub(1, 7, b"a", dup=1) + pub(2, 8, b"b", dup=1) + pub(1, 9, b"c", dup=1))
    conn.take(100)
    conn.feed(b"\x62\x02\x00\x08" + pub(1, 10, b"d"))
    conn.take(100)
    assert broker.payloads() == [b"a", b"b", b"c", b"a", b"c", b"d"]
    assert not conn.session.incoming


def test_resend_within_a_connection_is_caught():
    broker, conn = connected()
    broker.when(PUBLISH, DROP)
    conn.feed(pub(1, 7))
    caught("MQTT-4.4.0-1", broker, conn, pub(1, 7, dup=1))


def test_dup_for_what_the_broker_never_got_is_allowed_in_a_resumed_session_only():
    broker, conn = connected(CONNECT_KEEP)
    conn = again(broker, conn)
    conn.feed(pub(1, 7, dup=1))
    conn = again(broker, conn, CONNECT_4)
    caught("MQTT-3.3.1-1", broker, conn, pub(1, 7, dup=1))


def test_pubrel_only_after_pubrec_was_read_and_in_order():
    broker, conn = connected()
    conn.feed(pub(2, 1) + pub(2, 2))
    assert conn.take(4) == b"\x50\x02\x00\x01"
    caught("MQTT-4.6.0-4", broker, conn, b"\x62\x02\x00\x02")
    broker, conn = connected()
    conn.feed(pub(2, 1))
    caught("MQTT-4.3.3-1", broker, conn, b"\x62\x02\x00\x01")


def test_publish_after_its_pubrel_is_caught():
    broker, conn = connected(CONNECT_KEEP)
    conn.feed(pub(2, 1))
    conn.take(100)
    conn.feed(b"\x62\x02\x00\x01")
    conn = again(broker, conn)
    caught("MQTT-4.3.3-1", broker, conn, pub(2, 1, dup=1))


def test_pubrel_is_repeated_after_a_cut():
    broker, conn = connected(CONNECT_KEEP)
    conn.feed(pub(2, 1))
    conn.take(100)
    for _ in range(3):
        conn.feed(b"\x62\x02\x00\x01")
        conn = again(broker, conn)
    conn.feed(b"\x62\x02\x00\x01")
    assert conn.take(100) == b"\x70\x02\x00\x01"
    caught("MQTT-4.3.3-1", broker, conn, b"\x62\x02\x00\x01")
    assert broker.payloads() == [b"x"]
    conn = again(broker, conn)
    conn.feed(b"\x62\x02\x00\x01")  # PUBCOMP was read but not written down before the cut
    assert conn.take(100) == b"\x70\x02\x00\x01"
    caught("MQTT-4.3.3-1", broker, conn, b"\x62\x02\x00\x02")


def test_3_1_dup_on_a_repeated_pubrel():
    broker, conn = connected(CONNECT_3)
    conn.feed(pub(2, 1))
    conn.take(100)
    caught("MQTT 3.1, 2.1", broker, conn, b"\x6a\x02\x00\x01")
    broker, conn = connected(CONNECT_3)
    conn.feed(pub(2, 1))
    conn.take(100)
    conn.feed(b"\x62\x02\x00\x01")
    conn = again(broker, conn, CONNECT_3)
    caught("MQTT 3.1, 2.1", broker, conn, b"\x62\x02\x00\x01")
    conn = again(broker, conn, CONNECT_3)
    conn.feed(b"\x6a\x02\x00\x01")
    assert conn.take(100) == b"\x70\x02\x00\x01"


def test_3_1_topic_limit_and_no_session_present():
    broker, conn = connected(CONNECT_3)
    conn.feed(publish(3, b"t" * 32767, b""))
    caught("MQTT 3.1, 2.2", broker, conn, publish(3, b"t" * 32768, b""))
    conn = again(broker, conn, CONNECT_3)
    broker, conn = connected(CONNECT_KEEP)
    conn.gone(False)
    conn = broker.accept()
    conn.feed(CONNECT_KEEP)
    assert conn.take(4) == b"\x20\x02\x01\x00"


def test_draft_ids_are_little_endian():
    broker, conn = connected(CONNECT_2)
    conn.feed(b"\x32\x06\x00\x01t\x01\x02x")
    assert broker.messages[0].pid == 0x0201
    assert conn.take(4) == b"\x40\x02\x01\x02"
    conn.feed(b"\x82\x06\x01\x00\x00\x01t\x01")
    assert conn.take(5) == b"\x90\x03\x01\x00\x01"
    broker.publish(b"t", b"y", 1)
    assert conn.take(100) == b"\x32\x06\x00\x01t\x01\x00y"
    caught("MQTT-2.3.1-6", broker, conn, b"\x40\x02\x00\x01")


def test_draft_pubrel_never_carries_dup():
    broker, conn = connected(CONNECT_2)
    conn.feed(b"\x34\x06\x00\x01t\x01\x00x")
    conn.take(100)
    caught("MQTT-3.6.1-1", broker, conn, b"\x6a\x02\x01\x00")


def subscribed(qos):
    broker, conn = connected(CONNECT_KEEP)
    conn.feed(b"\x82\x06\x00\x63\x00\x01t" + bytes((qos,)))
    assert conn.take(5) == b"\x90\x03\x00\x63" + bytes((qos,))
    return broker, conn


def test_acknowledgements_in_order_and_not_before_reading():
    for qos, op, statement in ((1, 0x40, "MQTT-4.6.0-2"), (2, 0x50, "MQTT-4.6.0-3")):
        broker, conn = subscribed(qos)
        broker.publish(b"t", b"a", qos)
        broker.publish(b"t", b"b", qos)
        conn.take(100)
        caught(statement, broker, conn, bytes((op, 2, 0, 2)))
        broker, conn = subscribed(qos)
        broker.publish(b"t", b"a", qos)
        conn.take(3)
        caught(statement, broker, conn, bytes((op, 2, 0, 1)))


def test_acknowledgement_of_the_wrong_qos_is_caught():
    for qos, wrong in ((1, 0x50), (2, 0x40), (0, 0x40)):
        broker, conn = subscribed(qos)
        broker.publish(b"t", b"a", qos)
        conn.take(100)
        caught("MQTT-2.3.1-6", broker, conn, bytes((wrong, 2, 0, 1)))


def test_outgoing_qos_2_goes_through_all_steps():
    broker, conn = subscribed(2)
    broker.publish(b"t", b"a", 2)
    assert conn.owed() == [(PUBREC, 1)]
    assert conn.take(100) == b"\x34\x06\x00\x01t\x00\x01a"
    conn.feed(b"\x50\x02\x00\x01")
    assert conn.take(100) == b"\x62\x02\x00\x01"
    conn = again(broker, conn)
    assert conn.take(100) == b"\x62\x02\x00\x01"
    conn.feed(b"\x70\x02\x00\x01")
    assert conn.owed() == []
    assert [m.payload for m in broker.acknowledged] == [b"a"]


def test_what_was_not_acknowledged_comes_again_with_dup_and_offline_messages_wait():
    broker, conn = subscribed(1)
    broker.publish(b"t", b"a", 1)
    conn.gone(False)
    broker.publish(b"t", b"b", 1)
    broker.publish(b"t", b"lost at QoS 0", 0)
    conn = broker.accept()
    conn.feed(CONNECT_KEEP)
    assert conn.take(4) == b"\x20\x02\x01\x00"
    assert conn.take(100) == b"\x3a\x06\x00\x01t\x00\x01a" + b"\x32\x06\x00\x01t\x00\x02b"


def test_lost_sessions_are_gone():
    broker, conn = subscribed(1)
    broker.lose_sessions()
    assert not conn.open
    conn = broker.accept()
    conn.feed(CONNECT_KEEP)
    assert conn.take(4) == OK
    broker.publish(b"t", b"a", 1)
    assert conn.take(100) == b""


def test_retained_messages():
    broker, conn = connected()
    conn.feed(pub(1, 1, b"kept", retain=1))
    conn.take(100)
    conn.feed(b"\x82\x06\x00\x02\x00\x01#\x00")
    assert conn.take(100) == b"\x90\x03\x00\x02\x00" + b"\x31\x07\x00\x01tkept"
    conn.feed(pub(0, 0, b"", retain=1))
    assert broker.retained == {}


def test_will_unless_disconnect():
    data = connect_packet(flags=0x0E, payload=text(b"dev") + text(b"w") + text(b"gone"))
    broker, conn = connected(data)
    conn.gone(False)
    assert [(m.topic, m.payload, m.qos, m.will) for m in broker.messages] == [
        (b"w", b"gone", 1, True)
    ]
    broker, conn = connected(data)
    conn.feed(b"\xe0\x00")
    conn.gone()
    assert broker.messages == []


def test_not_closing_after_disconnect_is_caught():
    broker, conn = connected()
    conn.feed(b"\xe0\x00")
    try:
        check_all()
    except ProtocolError as e:
        assert "MQTT-3.14.4-1" in str(e)
        return
    raise AssertionError("not caught")


def test_an_error_that_nobody_expected_fails_the_test_at_its_end():
    broker, conn = connected()
    try:
        conn.feed(b"\xc1\x00")
    except ProtocolError:
        pass
    try:
        check_all()
    except ProtocolError:
        return
    raise AssertionError("not caught")


def test_keep_alive_is_checked():
    softtimer.set_virtual(True)
    broker, conn = connected()
    time.sleep(59)
    conn.feed(b"\xc0\x00")
    assert conn.take(2) == b"\xd0\x00"
    time.sleep(61)
    caught("MQTT-3.1.2-23", broker, conn, b"\xc0\x00")


def test_takeover_closes_the_older_connection():
    broker, conn = connected(CONNECT_KEEP)
    other = broker.accept()
    other.feed(CONNECT_KEEP)
    assert not conn.open
    assert other.take(4) == b"\x20\x02\x01\x00"


def test_misbehaviour_by_script():
    broker, conn = connected()
    broker.when(PUBLISH, DROP, 2)
    conn.feed(pub(1, 1) + pub(1, 2) + pub(1, 3))
    assert conn.take(100) == b"\x40\x02\x00\x01\x40\x02\x00\x03"
    broker.when(PINGREQ, HOLD)
    conn.feed(b"\xc0\x00")
    assert conn.take(100) == b""
    broker.release()
    assert conn.take(100) == b"\xd0\x00"
    broker.when(PINGREQ, b"\xd0\x01")
    conn.feed(b"\xc0\x00")
    assert conn.take(100) == b"\xd0\x01"
    broker.when(PINGREQ, lambda a: a + a, 0)
    conn.feed(b"\xc0\x00\xc0\x00")
    assert conn.take(100) == b"\xd0\x00" * 4
    broker.when(SUBSCRIBE, ANSWER_CLOSE)
    conn.feed(b"\x82\x06\x00\x09\x00\x01z\x00")
    assert conn.take(100) == b"\x90\x03\x00\x09\x00"
    assert not conn.open


def test_scripted_close_and_refusal():
    broker = StrictBroker()
    broker.when(CONNECT, CLOSE)
    conn = broker.accept()
    conn.feed(CONNECT_4)
    assert not conn.open
    assert conn.take(100) == b""
    broker.refuse = 5
    conn = broker.accept()
    conn.feed(CONNECT_4)
    assert conn.take(100) == b"\x20\x02\x00\x05"
    assert not conn.open


def test_a_second_pubrec_may_be_answered_or_not():
    for answers in (1, 2):
        broker, conn = connected()
        broker.when(PUBLISH, lambda a: a + a)
        conn.feed(pub(2, 1) + pub(2, 2))
        conn.take(100)
        conn.feed(b"\x62\x02\x00\x01" * answers + b"\x62\x02\x00\x02")
        caught("MQTT-4.3.3-1", broker, conn, b"\x62\x02\x00\x01" * (3 - answers))


def test_refused_filters_get_0x80():
    broker, conn = connected()
    broker.refused_filters = [b"no"]
    conn.feed(b"\x82\x0b\x00\x01\x00\x01t\x01\x00\x02no\x01")
    assert conn.take(100) == b"\x90\x04\x00\x01\x01\x80"


def test_stream_moves_no_more_than_it_is_told():
    broker = StrictBroker()
    net = Network(broker)
    net.max_write, net.max_read, net.write_stalls = 3, 2, 1
    stream = net("host", 1883, 1000)
    assert stream.write(CONNECT_4) is None
    sent = 0
    while sent < len(CONNECT_4):
        sent += stream.write(CONNECT_4, sent, len(CONNECT_4) - sent)
    buf = bytearray(10)
    net.read_stalls = 1
    assert stream.readinto(buf) is None
    assert stream.readinto(buf) == 2
    assert stream.readinto(buf, 1) == 1
    assert stream.readinto(buf) == 1
    assert stream.readinto(buf) is None
    stream.close()
    for use in (lambda: stream.write(b"x"), lambda: stream.readinto(buf)):
        try:
            use()
        except OSError:
            continue
        raise AssertionError("used after close")


def test_stream_is_cut_after_so_many_bytes():
    broker = StrictBroker()
    net = Network(broker)
    net.cut_after_write = 5
    stream = net("host", 1883, 1000)
    assert stream.write(CONNECT_4) == 5
    assert stream.readinto(bytearray(4)) == 0
    try:
        stream.write(CONNECT_4, 5, 1)
    except OSError:
        pass
    else:
        raise AssertionError("written after the cut")
    net.cut_after_read = 3
    stream = net("host", 1883, 1000)
    stream.write(CONNECT_4)
    assert stream.readinto(bytearray(4)) == 3
    assert stream.readinto(bytearray(4)) == 0


def test_hooks_are_called_around_every_call_and_never_nested():
    broker = StrictBroker()
    net = Network(broker)
    stream = net("host", 1883, 1000)
    seen = []

    def hook(where):
        seen.append(where)
        if where == "written" and broker.count(PUBACK) == 0:
            stream.readinto(bytearray(0))

    net.hook = hook
    stream.write(CONNECT_4)
    stream.readinto(bytearray(1))
    assert seen == ["write", "written", "read", "done"]


def test_echo_acknowledges():
    echo = Echo()
    stream = echo.connect("host", 1883, 1000)
    buf = bytearray(16)
    stream.write(CONNECT_4, 0, len(CONNECT_4))
    assert stream.readinto(buf) == 4
    for qos, want in ((1, b"\x40\x02\x12\x34"), (2, b"\x50\x02\x12\x34")):
        for payload in (b"x", b"y" * 300):
            data = b"??" + pub(qos, 0x1234, payload, topic=b"a/topic")
            assert stream.write(data, 2, len(data) - 2) == len(data) - 2
            assert stream.readinto(buf) == 4
            assert bytes(buf[:4]) == want
    stream.write(b"\x62\x02\x12\x34", 0, 4)
    assert stream.readinto(buf) == 4
    assert bytes(buf[:4]) == b"\x70\x02\x12\x34"
    assert stream.readinto(buf) is None
    stream.push(b"abc", 2)
    assert [stream.readinto(buf) for _ in range(3)] == [3, 3, None]


def test_publish_helper_and_kinds():
    assert pub(1, 258, b"z", dup=1, retain=1) == b"\x3b\x06\x00\x01t\x01\x02z"
    assert (CONNECT, PUBREL) == (1, 6)
