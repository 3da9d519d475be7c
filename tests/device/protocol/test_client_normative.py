"""MQTT 3.1.1, statement by statement: those that bind a client, each by its id.

Knows: the normative statements (OASIS, Appendix B) and the client's API.
Must not know: how the client does it.  The strict broker checks every byte in all of these tests;
tests/host/test_statements.py checks that no statement is left out.
"""
# heap: 2M

import time

from harness import Bench, raises, reason
from strict_broker import publish
from strict_wire import (
    CONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    matches,
)
from umqtt_min import MQTTException
from umqtt_min.errors import PROTOCOL

BAD_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"a\xf5\x80\x80\x80")


def breaks(bench, data, function=None):
    """The broker sends data; the client must report a protocol error and close."""
    bench.conn.send(data)
    assert reason(function or bench.client.check_msg) == PROTOCOL
    assert bench.net.stream.closed
    assert not bench.client.connected


# 1.5.3, 2: strings, fixed header, packet identifier


def test_1_5_3_1_strings_sent_are_utf8():
    """[MQTT-1.5.3-1] [MQTT-3.3.2-1] [MQTT-3.8.3-1] [MQTT-3.10.3-1]"""
    b = Bench()
    b.connect()
    for bad in BAD_UTF8:
        raises(ValueError, b.client.publish, bad, b"")
        raises(ValueError, b.client.subscribe, bad)
        raises(ValueError, b.client.unsubscribe, bad)
        raises(ValueError, b.client.set_last_will, bad, b"")
    b.client.publish("\u00e9/\u65e5\u672c", b"")
    assert b.broker.messages[0].topic == b"\xc3\xa9/\xe6\x97\xa5\xe6\x9c\xac"
    assert b.kinds() == [CONNECT, PUBLISH]


def test_1_5_3_1_a_topic_received_that_is_not_utf8_ends_the_connection():
    """[MQTT-1.5.3-1]"""
    for bad in BAD_UTF8:
        b = Bench().subscribe()
        breaks(b, publish(4, bad, b"x"))
        assert b.got == []


def test_1_5_3_2_no_nul():
    """[MQTT-1.5.3-2] [MQTT-4.7.3-2]"""
    b = Bench()
    b.connect()
    for function in (b.client.subscribe, b.client.unsubscribe):
        raises(ValueError, function, b"a\x00b")
    raises(ValueError, b.client.publish, b"a\x00b", b"")
    b.client.publish(b"t", b"a\x00b")
    assert b.broker.payloads() == [b"a\x00b"]
    b.client.subscribe(b"#")
    breaks(b, publish(4, b"a\x00", b"x"))


def test_1_5_3_3_a_byte_order_mark_is_kept():
    """[MQTT-1.5.3-3]"""
    topic = b"\xef\xbb\xbft"
    b = Bench().subscribe(topic)
    b.client.publish(topic, b"x")
    b.pump()
    assert b.got == [(topic, b"x")]


def test_2_2_2_1_reserved_flags_are_sent_as_listed():
    """[MQTT-2.2.2-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1]"""
    b = Bench()
    b.connect()
    b.client.subscribe(b"t", 2)
    b.client.publish(b"t", b"x", qos=2)
    b.pump()
    b.client.publish(b"t", b"x", qos=1)
    b.pump()
    b.client.ping()
    b.client.unsubscribe(b"t")
    b.client.disconnect()
    seen = {p.type: p.flags for p in b.broker.packets if p.type != PUBLISH}
    assert seen == {1: 0, 4: 0, 5: 0, 6: 2, 7: 0, 8: 2, 10: 2, 12: 0, 14: 0}


def test_2_2_2_2_invalid_flags_received_end_the_connection():
    """[MQTT-2.2.2-2]"""
    for data in (b"\x41\x02\x00\x01", b"\x52\x02\x00\x01", b"\x60\x02\x00\x01",
                 b"\x6a\x02\x00\x01", b"\x78\x02\x00\x01", b"\x91\x03\x00\x01\x00",
                 b"\xb2\x02\x00\x01", b"\xd4\x00"):  # fmt: skip
        b = Bench()
        b.connect()
        breaks(b, data)


def test_2_3_1_1_ids_are_not_zero_also_when_they_wrap():
    """[MQTT-2.3.1-1]"""
    b = Bench()
    b.connect()
    b.client.pid = 65533
    for _ in range(3):
        b.client.publish(b"t", b"x", qos=1)
    b.client.subscribe(b"t")
    b.client.pid = 65535
    b.client.unsubscribe(b"t")
    assert [p.pid for p in b.broker.packets[1:]] == [65534, 65535, 1, 2, 1]


def test_2_3_1_1_id_zero_received_ends_the_connection():
    """[MQTT-2.3.1-1]"""
    for data in (publish(4, b"t", b"x", 1, pid=0), publish(4, b"t", b"x", 2, pid=0),
                 b"\x40\x02\x00\x00", b"\x50\x02\x00\x00", b"\x62\x02\x00\x00",
                 b"\x70\x02\x00\x00", b"\x90\x03\x00\x00\x00", b"\xb0\x02\x00\x00"):  # fmt: skip
        b = Bench()
        b.connect()
        breaks(b, data)


def test_2_3_1_2_a_new_packet_takes_an_id_not_in_use():
    """[MQTT-2.3.1-2] (with messages in flight: test_client_store)"""
    b = Bench()
    b.connect()
    for i in range(20):
        b.client.publish(b"t", b"%d" % i, qos=1 + i % 2)
        b.client.subscribe(b"u%d" % i)
    assert not b.broker.errors


def test_2_3_1_5_no_id_at_qos_0():
    """[MQTT-2.3.1-5]"""
    b = Bench()
    b.connect()
    assert b.client.publish(b"t", b"") is None
    assert b.broker.packets[1].body == b"\x00\x01t"


def test_2_3_1_6_acknowledgements_carry_the_id_of_the_publish():
    """[MQTT-2.3.1-6]"""
    b = Bench().subscribe()
    b.conn.session.last_pid = 0x1233
    b.broker.publish(b"t", b"x", 1)
    b.broker.publish(b"t", b"y", 2)
    b.pump()
    assert [(p.type, p.pid) for p in b.broker.packets] == [
        (PUBACK, 0x1234),
        (PUBREC, 0x1235),
        (PUBCOMP, 0x1235),
    ]
    b.client.pid = 0x4320
    b.client.publish(b"t", b"x", qos=2)
    assert [(p.type, p.pid) for p in b.broker.packets if p.type in (PUBLISH, PUBREL)] == [
        (PUBLISH, 0x4321),
        (PUBREL, 0x4321),
    ]


def test_2_3_1_7_suback_and_unsuback_of_another_id_answer_nothing():
    """[MQTT-2.3.1-7] the client checks the id that the server echoes."""
    for kind, wrong in ((SUBSCRIBE, b"\x90\x03\x77\x77\x00"), (UNSUBSCRIBE, b"\xb0\x02\x77\x77")):
        b = Bench()
        b.connect()
        b.broker.when(kind, wrong)
        call = b.client.subscribe if kind == SUBSCRIBE else b.client.unsubscribe
        raises(MQTTException, call, b"t")
        assert b.client.counters.unexpected == 1


# 3.1, 3.2: CONNECT and CONNACK


def test_a_return_code_that_means_nothing_is_not_one_of_our_reasons():
    # [MQTT-3.2.2-6] names five of them; 6 to 255 are reserved (3.2.2.3).
    for code in (6, 16, 20, 21, 128, 255):
        b = Bench()
        b.broker.when(CONNECT, bytes((0x20, 2, 0, code)))
        e = raises(MQTTException, b.connect)
        assert e.reason == PROTOCOL and "return code %d" % code in str(e)
        b.connect()


def test_suback_for_what_is_no_subscribe_is_passed_over():
    b = Bench()
    b.connect()
    b.broker.when(PUBLISH, lambda answer: b"\x90\x03" + answer[2:] + b"\x00" + answer)
    b.client.publish(b"t", b"x", qos=1)
    assert b.client.counters.unexpected == 1 and b.client.connected


def test_3_1_0_1_connect_is_the_first_packet():
    """[MQTT-3.1.0-1] [MQTT-3.1.0-2]"""
    b = Bench()
    for call in (b.client.ping, b.client.check_msg):
        raises(OSError, call)
    raises(OSError, b.client.publish, b"t", b"x")
    b.connect()
    b.client.publish(b"t", b"x")
    b.connect()
    assert b.kinds() == [CONNECT, PUBLISH, CONNECT]
    assert len(b.net.streams) == 2
    assert b.net.streams[0].closed


def test_3_1_2_connect_flags_and_payload():
    """[MQTT-3.1.2-3] [MQTT-3.1.2-9] [MQTT-3.1.2-18] [MQTT-3.1.2-19] [MQTT-3.1.2-20]
    [MQTT-3.1.2-21] [MQTT-3.1.3-1] [MQTT-3.1.3-3]"""
    b = Bench(user="user", password=b"\xff\x00")
    b.client.set_last_will("w", b"\xff\x00gone", retain=True, qos=2)
    b.connect(True)
    p = b.broker.packets[0]
    assert p.body[7] == 0b11110110
    assert (p.client_id, p.will_topic, p.will_message) == (b"dev", b"w", b"\xff\x00gone")
    assert (p.user, p.password, p.keepalive, p.clean) == (b"user", b"\xff\x00", 60, True)
    assert (p.will_qos, p.will_retain) == (2, True)


def test_3_1_2_11_without_a_will_its_bits_are_zero_and_its_fields_absent():
    """[MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-15]"""
    b = Bench()
    b.connect(True)
    assert b.broker.packets[0].body == b"\x00\x04MQTT\x04\x02\x00\x3c\x00\x03dev"


def test_3_1_2_14_will_qos_is_0_1_or_2():
    """[MQTT-3.1.2-14]"""
    b = Bench()
    for qos in (-1, 3, 4):
        raises(ValueError, b.client.set_last_will, b"w", b"", qos=qos)
    for qos in (0, 1, 2):
        b.client.set_last_will(b"w", b"", qos=qos)
        b.connect()
        assert b.broker.packets[-1].will_qos == qos
        b.client.disconnect()


def test_3_1_2_22_no_password_without_user_name():
    """[MQTT-3.1.2-22]"""
    raises(ValueError, Bench, password="secret")


def test_3_1_2_4_a_session_is_kept_with_clean_session_0():
    """[MQTT-3.1.2-4] [MQTT-4.1.0-1] [MQTT-4.1.0-2]"""
    b = Bench()
    assert b.connect(False) is False
    b.client.subscribe(b"t", 1)
    b.net.cut()
    b.broker.publish(b"t", b"while away", 1)
    assert b.connect(False) is True
    b.pump()
    assert b.got == [(b"t", b"while away")]


def test_3_1_2_6_clean_session_1_forgets_what_was_received():
    """[MQTT-3.1.2-6] the id of an incoming QoS 2 message of the old session is a new message."""
    b = Bench()
    b.connect(False)
    b.conn.send(publish(4, b"t", b"old", 2, pid=5))
    b.client.check_msg()
    b.connect(True)
    b.conn.send(publish(4, b"t", b"new", 2, pid=5))
    b.client.check_msg()
    assert [m for _, m in b.got] == [b"old", b"new"]


def test_3_1_2_23_pingreq_when_nothing_else_is_sent():
    """[MQTT-3.1.2-23]"""
    b = Bench(keepalive=10)
    b.connect()
    for _ in range(100):
        time.sleep(1)
        b.client.check_msg()
    assert b.broker.count(PINGREQ) >= 10


def test_3_1_3_2_the_client_id_names_the_session():
    """[MQTT-3.1.3-2]"""
    b = Bench()
    b.connect(False)
    b.client.disconnect()
    b.make(client_id="other")
    assert b.connect(False) is False
    b.client.disconnect()
    b.make(client_id="dev")
    assert b.connect(False) is True


def test_3_1_3_4_client_id_and_user_name_are_utf8():
    """[MQTT-3.1.3-4] [MQTT-3.1.3-10] [MQTT-3.1.3-11]"""
    for bad in BAD_UTF8:
        raises(ValueError, Bench, client_id=bad)
        raises(ValueError, Bench, user=bad)
        raises(ValueError, Bench().client.set_last_will, bad, b"")
    Bench(client_id="\u00e9", user="\u00e9").connect()


def test_3_1_3_7_an_empty_client_id_needs_clean_session():
    """[MQTT-3.1.3-7]"""
    b = Bench(client_id=b"")
    raises(ValueError, b.connect, False)
    b.connect(True)
    assert b.kinds() == [CONNECT]


def test_3_2_0_1_connack_is_the_first_packet_of_the_broker():
    """[MQTT-3.2.0-1]"""
    for data in (b"\xd0\x00", publish(4, b"t", b"x"), b"\x90\x03\x00\x01\x00"):
        b = Bench()
        b.broker.when(CONNECT, data)
        assert reason(b.connect) == PROTOCOL
        assert not b.client.connected


def test_3_2_2_session_present_as_sent():
    """[MQTT-3.2.2-2] [MQTT-3.2.2-3]"""
    b = Bench()
    assert b.connect(False) is False
    assert b.connect(False) is True


def test_3_2_2_1_session_present_after_clean_session_is_an_error():
    """[MQTT-3.2.2-1]"""
    b = Bench()
    b.broker.when(CONNECT, b"\x20\x02\x01\x00")
    assert reason(b.connect, True) == PROTOCOL


def test_3_2_2_4_session_present_with_a_refusal_is_an_error():
    """[MQTT-3.2.2-4] and reserved bits, wrong length, codes beyond 5 [MQTT-3.2.2-6]"""
    for data in (b"\x20\x02\x01\x05", b"\x20\x02\x02\x00", b"\x20\x02\xff\x00",
                 b"\x21\x02\x00\x00", b"\x20\x03\x00\x00\x00", b"\x20\x01\x00",
                 b"\x20\x00"):  # fmt: skip
        b = Bench()
        b.broker.when(CONNECT, data)
        assert reason(b.connect, False) == PROTOCOL
        assert b.net.stream.closed


def test_3_2_2_5_a_refusal_raises_its_code_and_closes():
    """[MQTT-3.2.2-5]"""
    for code in (1, 2, 3, 4, 5):
        b = Bench()
        b.broker.refuse = code
        assert reason(b.connect) == code
        assert b.net.stream.closed
        b.broker.refuse = 0
        b.connect()


# 3.3 to 3.14


def test_3_3_1_1_dup_and_3_3_1_2():
    """[MQTT-3.3.1-2] [MQTT-4.3.1-1] QoS 0 never carries DUP ([MQTT-3.3.1-1]: test_client_store)"""
    b = Bench()
    b.connect()
    b.client.publish(b"t", b"x", retain=True)
    assert b.broker.packets[1].flags == 1


def test_3_3_1_4_qos_3():
    """[MQTT-3.3.1-4]"""
    b = Bench()
    b.connect()
    for qos in (3, 4, -1):
        raises(ValueError, b.client.publish, b"t", b"x", qos=qos)
        raises(ValueError, b.client.subscribe, b"t", qos)
    assert b.client.connected
    breaks(b, b"\x36\x05\x00\x01t\x00\x01")


def test_3_3_2_2_no_wildcards_in_a_topic_name():
    """[MQTT-3.3.2-2] [MQTT-4.7.1-1]"""
    b = Bench()
    b.connect()
    for topic in ("a/#", "#", "+", "a/+/b", "a+"):
        raises(ValueError, b.client.publish, topic, b"")
        raises(ValueError, b.client.set_last_will, topic, b"")
    assert b.kinds() == [CONNECT]


def test_3_3_4_1_respond_by_qos():
    """[MQTT-3.3.4-1] [MQTT-4.5.0-2] also without a callback"""
    for qos, kinds in ((0, []), (1, [PUBACK]), (2, [PUBREC, PUBCOMP])):
        for callback in (None, lambda topic, msg: None):
            b = Bench().subscribe()
            b.client.set_callback(callback)
            b.broker.publish(b"t", b"x", qos)
            b.pump()
            assert b.kinds() == kinds
            assert b.conn.owed() == []


def test_3_8_3_3_at_least_one_filter():
    """[MQTT-3.8.3-3] [MQTT-3.10.3-2]"""
    b = Bench()
    b.connect()
    raises(ValueError, b.client.subscribe, [])
    raises(ValueError, b.client.unsubscribe, [])
    b.client.subscribe([(b"a", 0), (b"b/#", 2)])
    b.client.unsubscribe([b"a", b"b/#"])
    assert b.broker.packets[1].filters == [(b"a", 0), (b"b/#", 2)]
    assert b.broker.packets[2].filters == [b"a", b"b/#"]


def test_3_8_3_4_requested_qos():
    """[MQTT-3-8.3-4]"""
    b = Bench()
    b.connect()
    for qos in (3, -1, 128):
        raises(ValueError, b.client.subscribe, b"t", qos)
        raises(ValueError, b.client.subscribe, [(b"t", qos)])
    assert b.kinds() == [CONNECT]


def test_3_9_3_suback_codes():
    """[MQTT-3.8.4-5] [MQTT-3.9.3-1] one code per filter, in order; [MQTT-3.9.3-2] 0, 1, 2, 0x80"""
    for codes in (b"\x00", b"\x00\x01\x02", b"\x03\x00", b"\x00\x81", b"\x00\xff", b"\x40\x00"):
        b = Bench()
        b.connect()
        b.broker.when(SUBSCRIBE, bytes((0x90, 2 + len(codes))) + b"\x00\x01" + codes)
        b.client.pid = 0
        call = b.client.subscribe
        assert raises(MQTTException, call, [(b"a", 2), (b"b", 2)]).reason == PROTOCOL
        assert not b.client.connected
    b = Bench()
    b.connect()
    b.client.pid = 0
    b.broker.when(SUBSCRIBE, b"\x90\x04\x00\x01\x01\x00")
    assert b.client.subscribe([(b"a", 2), (b"b", 2)]) == [1, 0]
    b.broker.refused_filters = [b"no"]
    e = raises(MQTTException, b.client.subscribe, [(b"a", 2), (b"no", 2)])
    assert (e.reason, e.detail) == (0x80, b"no")
    assert b.client.connected


def test_3_14_4_1_close_after_disconnect_and_send_nothing():
    """[MQTT-3.14.4-1] [MQTT-3.14.4-2]"""
    b = Bench()
    b.connect()
    b.client.disconnect()
    assert b.net.stream.closed
    raises(OSError, b.client.publish, b"t", b"x")
    raises(OSError, b.client.ping)
    b.client.disconnect()
    assert b.broker.packets[-1].body == b""


# 4: sessions, QoS, order, topics, errors


def test_4_3_2_1_qos_1_sender():
    """[MQTT-4.3.2-1] fresh id, DUP 0, finished by PUBACK ([MQTT-4.4.0-1]: test_client_store)"""
    b = Bench()
    b.connect()
    ids = [b.client.publish(b"t", b"x", qos=1) for _ in range(5)]
    assert len(set(ids)) == 5
    assert [m.dup for m in b.broker.messages] == [False] * 5
    assert b.client.counters.acked == 5


def test_4_3_2_2_qos_1_receiver_after_puback_the_same_id_is_a_new_message():
    """[MQTT-4.3.2-2]"""
    b = Bench().subscribe()
    for dup in (0, 1, 0):
        b.conn.send(publish(4, b"t", b"x", 1, dup=dup, pid=7))
        b.client.check_msg()
    assert len(b.got) == 3
    assert b.kinds() == [PUBACK] * 3


def test_4_3_3_1_qos_2_sender():
    """[MQTT-4.3.3-1] PUBREL with the id of the PUBREC, done at PUBCOMP"""
    b = Bench()
    b.connect()
    pid = b.client.publish(b"t", b"x", qos=2)
    assert [(p.type, p.pid) for p in b.broker.packets[1:]] == [(PUBLISH, pid), (PUBREL, pid)]
    assert b.broker.payloads() == [b"x"]
    assert b.client.counters.acked == 1


def test_4_3_3_2_qos_2_receiver_delivers_once_until_pubrel():
    """[MQTT-4.3.3-2]"""
    b = Bench().subscribe()
    for dup in (0, 1, 1):
        b.conn.send(publish(4, b"t", b"x", 2, dup=dup, pid=7))
        b.client.check_msg()
    assert b.got == [(b"t", b"x")]
    assert b.kinds() == [PUBREC] * 3
    assert b.client.counters.duplicates == 2
    for _ in range(2):
        b.conn.send(b"\x62\x02\x00\x07")
        b.client.check_msg()
    assert b.kinds()[3:] == [PUBCOMP] * 2
    b.conn.send(publish(4, b"t", b"y", 2, pid=7))
    b.client.check_msg()
    assert b.got == [(b"t", b"x"), (b"t", b"y")]


def test_4_3_3_2_also_over_a_reconnect():
    """[MQTT-4.3.3-2] [MQTT-4.1.0-1]"""
    b = Bench()
    b.connect(False)
    b.client.subscribe(b"t", 2)
    b.broker.publish(b"t", b"x", 2)
    b.net.cut_after_write = 2  # in the middle of PUBREC
    raises(OSError, b.pump)
    b.connect(False)
    b.pump()
    assert b.got == [(b"t", b"x")]
    assert [m.payload for m in b.broker.acknowledged] == [b"x"]


def test_4_6_0_acknowledgements_in_the_order_received():
    """[MQTT-4.6.0-2] [MQTT-4.6.0-3]"""
    b = Bench().subscribe()
    for i in range(30):
        b.broker.publish(b"t", b"%d" % i, 1 + i % 2)
    b.pump(100)
    assert [m for _, m in b.got] == [b"%d" % i for i in range(30)]
    assert b.conn.owed() == []


def test_4_7_filters():
    """[MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1]"""
    b = Bench()
    b.connect()
    for bad in ("", "a#", "#/a", "a/#/b", "a+", "+a", "a/b+/c", "a/+b", "##", "++"):
        raises(ValueError, b.client.subscribe, bad)
        raises(ValueError, b.client.unsubscribe, bad)
    raises(ValueError, b.client.publish, "", b"x")
    for good in ("#", "+", "a/#", "+/#", "a/+/b", "/", "//", "/+", "a/+", " ", "$SYS/#"):
        b.client.subscribe(good)
        b.client.unsubscribe(good)
    assert matches(b"a/+", b"a/")


def test_4_7_3_3_topics_up_to_65535_bytes():
    """[MQTT-4.7.3-3]"""
    b = Bench()
    b.connect()
    b.client.publish(b"t" * 65535, b"x")
    assert len(b.broker.messages[0].topic) == 65535
    raises(ValueError, b.client.publish, b"t" * 65536, b"x")
    raises(ValueError, b.client.subscribe, b"t" * 65536)
    b.client.publish(b"t", b"x")
    assert len(b.broker.messages) == 2


def test_4_8_0_1_a_protocol_violation_ends_the_connection():
    """[MQTT-4.8.0-1] (the whole table: test_client_faults) [MQTT-4.8.0-2]"""
    b = Bench()
    b.connect()
    breaks(b, b"\xf0\x00")
    b.connect()
    b.client.publish(b"t", b"x", qos=1)


def test_7_0_0_2_nothing_but_the_standard_is_needed():
    """[MQTT-7.0.0-2] a broker that grants no more than QoS 0 and has no session is enough."""
    b = Bench()
    b.connect()
    b.broker.when(SUBSCRIBE, lambda a: a[:4] + b"\x00")
    assert b.client.subscribe(b"t", 2) == 0
