"""Publishing: what goes out, however the stream takes it, and what happens when it does not.

Knows: the client's API, the strict broker.  Must not know: how the client buffers.
"""
# heap: 4M

from array import array

import softtimer
from harness import Bench, raises, reason
from strict_broker import ANSWER_CLOSE, CLOSE, DROP, publish
from strict_wire import CONNECT, PINGREQ, PUBACK, PUBLISH, PUBREL, SUBSCRIBE
from umqtt_min import MQTTClient, MQTTException, RAMStore
from umqtt_min.errors import BUSY, SUBSCRIBE_REFUSED, TIMEOUT


def sizes(buffer_size=256):
    """Payload sizes around every border: of the buffer and of the Remaining Length."""
    near = (buffer_size, 127, 128, 16383, 16384)
    return [0, 1] + [n + d for n in near for d in range(-12, 6)]


def test_every_qos_and_flag():
    b = Bench()
    b.connect()
    for qos in (0, 1, 2):
        for retain in (False, True):
            b.client.publish(b"t/%d" % qos, b"x", retain, qos)
    seen = [(m.topic, m.qos, m.retain, m.dup) for m in b.broker.messages]
    assert seen == [(b"t/%d" % q, q, r, False) for q in (0, 1, 2) for r in (False, True)]
    assert b.client.counters.sent == 6
    assert b.client.counters.acked == 4


def test_bytes_like_and_str():
    b = Bench()
    b.connect()
    view = memoryview(b"xxpayloadxx")[2:9]
    for msg in ("h\u00e9", b"bytes", bytearray(b"array"), view, ""):
        b.client.publish("t", msg)
    b.client.publish(bytearray(b"t"), array("B", b"typed"), qos=1)
    b.client.publish(memoryview(b"t"), b"last", qos=2)
    want = [b"h\xc3\xa9", b"bytes", b"array", b"payload", b"", b"typed", b"last"]
    assert b.broker.payloads() == want
    raises(ValueError, b.client.publish, b"t", 7)
    raises(ValueError, b.client.publish, b"t", None)
    b.client.publish(b"t", b"still in step", qos=1)


def test_a_view_of_wide_items_goes_out_whole():
    # Also on ports whose views do not tell how wide their items are.
    b = Bench()
    b.connect()
    wide = array("H", (0x4142, 0x4344, 0x4546))
    b.client.publish(b"t", memoryview(wide))
    b.client.publish(b"t", memoryview(wide)[1:], qos=1)
    b.client.publish(b"t", memoryview(b"narrow")[2:])
    assert b.broker.payloads() == [bytes(wide), bytes(wide)[2:], b"rrow"]
    wide = memoryview(array("H", [0x4142] * 300))
    for n in (0, 1, 120, 124, 125, 126, 127, 128, 246, 247, 248, 249, 250, 254, 256, 300):
        b.client.publish(b"topic", wide[:n])
        b.client.publish(b"topic", memoryview(bytes(300))[:n], qos=1)
        assert b.broker.payloads()[-2:] == [b"BA" * n, bytes(n)], n


def test_a_client_id_may_be_a_view():
    assert MQTTClient(memoryview(b"xdev")[1:], "broker").client_id == b"dev"


def test_a_topic_buffer_that_changes_is_checked_each_time():
    b = Bench()
    b.connect()
    topic = bytearray(b"a/b")
    b.client.publish(topic, b"1")
    topic[2] = 35
    raises(ValueError, b.client.publish, topic, b"2")
    topic[2] = 99
    b.client.publish(topic, b"3")
    assert [(m.topic, m.payload) for m in b.broker.messages] == [(b"a/b", b"1"), (b"a/c", b"3")]


def test_a_topic_is_whole_behind_a_message_that_was_longer_than_the_buffer():
    b = Bench()
    b.connect()
    topic = b"short"
    for sent in (topic, b"a/longer/one", topic):
        b.client.publish(sent, b"x" * (10 if sent is topic else 1000))
    assert [m.topic for m in b.broker.messages] == [topic, b"a/longer/one", topic]


def test_sizes_around_every_border():
    for buffer_size in (64, 256):
        b = Bench(buffer_size=buffer_size)
        b.connect()
        for n in sizes(buffer_size):
            b.client.publish(b"topic", b"x" * n, qos=n % 3)
        assert [len(p) for p in b.broker.payloads()] == sizes(buffer_size)
        assert not b.broker.errors


def test_sizes_through_a_stream_that_takes_little_at_a_time():
    for limit in (1, 2, 3, 50):
        b = Bench(buffer_size=64)
        b.net.max_write = b.net.max_read = limit
        b.connect()
        for n in (0, 1, 50, 57, 58, 59, 60, 64, 65, 120, 127, 128, 129, 300):
            b.client.publish(b"topic", b"x" * n, qos=n % 3)
        assert [len(p) for p in b.broker.payloads()][-1] == 300
        assert len(b.broker.messages) == 14


def test_one_write_per_packet():
    b = Bench()
    b.connect()
    b.client.subscribe(b"t", 2)
    b.client.publish(b"t", b"x" * 200, qos=2)
    b.client.publish(b"t", b"y" * 245)
    b.client.ping()
    b.pump()
    b.client.unsubscribe(b"t")
    b.client.disconnect()
    assert len(b.net.stream.writes) == len(b.broker.packets)


def test_random_stalls_and_splits_never_break_the_step():
    state = [12345]

    def rnd(n):
        state[0] = (state[0] * 1103515245 + 12345) & 0x3FFFFFFF
        return (state[0] >> 8) % n

    b = Bench(buffer_size=64)
    b.connect()
    b.client.subscribe(b"t", 2)

    def hook(where):
        if where == "write":
            b.net.write_stalls = rnd(3)
        elif where == "read":
            b.net.read_stalls = rnd(2)

    b.net.hook = hook
    b.net.max_write = lambda: 1 + rnd(20)
    b.net.max_read = lambda: 1 + rnd(20)
    sent = []
    for i in range(60):
        sent.append(b"%d" % i * rnd(60))
        b.client.publish(b"t", sent[-1], qos=i % 3)
    b.pump(1000)
    assert b.broker.payloads() == sent
    assert [m for _, m in b.got] == sent


def test_not_connected_is_an_oserror():
    b = Bench()
    for qos in (0, 1, 2):
        raises(OSError, b.client.publish, b"t", b"x", qos=qos)
    assert not b.client.connected


def test_no_store_and_no_wait_is_refused_and_says_what_to_do():
    b = Bench()
    b.connect()
    e = raises(ValueError, b.client.publish, b"t", b"x", qos=1, wait=False)
    assert "RAMStore" in str(e)
    assert b.kinds() == [CONNECT]


def test_no_acknowledgement_ends_after_the_timeout():
    for qos, kind, missed in (
        (1, PUBLISH, "PUBACK"), (2, PUBLISH, "PUBREC"), (2, PUBREL, "PUBCOMP")
    ):  # fmt: skip
        b = Bench(timeout=3)
        b.connect()
        b.broker.when(kind, DROP)
        e = raises(MQTTException, b.client.publish, b"t", b"x", qos=qos)
        assert e.reason == TIMEOUT and "(no %s)" % missed in str(e)
        assert e.pid == b.client.pid
        assert not e.stored


def test_a_detail_of_any_type_is_said():
    assert "a/#" in str(MQTTException(SUBSCRIBE_REFUSED, bytearray(b"a/#")))


def test_messages_that_come_while_waiting_are_delivered():
    b = Bench().subscribe()
    b.broker.when(PUBLISH, lambda ack: publish(4, b"t", b"first", 1, pid=9) + ack, 1)
    b.client.publish(b"other", b"x", qos=1)
    assert b.got == [(b"t", b"first")]
    assert b.conn.owed() == []


def test_a_cut_at_every_byte_of_every_packet_raises_oserror_and_connect_works():
    def session(b):
        b.connect()
        b.client.subscribe(b"t", 2)
        b.client.publish(b"t", b"x" * 70, qos=1)
        b.client.publish(b"t", b"y", qos=2)
        b.client.ping()
        b.pump(3)
        b.client.unsubscribe(b"t")

    b = Bench(buffer_size=64)
    session(b)
    total = sum(b.net.stream.writes)
    for n in range(total):
        for reset in (False, True):
            b = Bench(buffer_size=64)
            b.net.reset = reset
            b.net.cut_after_write = n
            raises((OSError, MQTTException), session, b)
            assert not b.client.connected
            b.connect()
            b.client.publish(b"t", b"again", qos=2)
            assert b.broker.payloads()[-1] == b"again"


def test_the_end_at_every_byte_read_raises_and_connect_works():
    def session(b):
        b.connect()
        b.client.subscribe(b"t", 2)
        b.client.publish(b"t", b"y", qos=2)
        b.client.ping()
        b.pump(3)
        b.client.unsubscribe(b"t")

    b = Bench()
    session(b)
    total = b.conn.read
    for n in range(total):
        b = Bench()
        b.net.cut_after_read = n
        raises((OSError, MQTTException), session, b)
        assert not b.client.connected
        b.connect()
        b.client.publish(b"t", b"again", qos=2)
        assert b.broker.payloads()[-1] == b"again"


def test_a_broker_that_closes_instead_of_answering():
    for kind, action in ((PUBLISH, CLOSE), (PUBREL, CLOSE), (SUBSCRIBE, CLOSE), (PUBLISH, DROP)):
        b = Bench()
        b.connect()
        b.broker.when(kind, action)
        if kind == SUBSCRIBE:
            raises((OSError, MQTTException), b.client.subscribe, b"t")
        else:
            raises((OSError, MQTTException), b.client.publish, b"t", b"x", qos=2)


def test_a_write_that_stands_still_ends_after_the_timeout():
    b = Bench(timeout=2)
    b.connect()
    b.net.write_stalls = 1 << 29
    raises(OSError, b.client.publish, b"t", b"x")
    assert not b.client.connected
    assert b.client.counters.stall >= 2000


def test_from_the_callback_qos_0_goes_out_and_nothing_is_received():
    b = Bench().subscribe()

    def callback(topic, msg):
        b.got.append(bytes(msg))
        b.client.publish(b"answer", msg)
        assert reason(b.client.subscribe, b"u") == BUSY
        assert reason(b.client.wait_msg) == BUSY
        assert reason(b.client.check_msg) == BUSY
        assert reason(b.client.connect) == BUSY
        raises(ValueError, b.client.publish, b"answer", msg, qos=1)

    b.client.set_callback(callback)
    for i in range(3):
        b.broker.publish(b"t", b"%d" % i, 2)
    b.pump()
    assert b.got == [b"0", b"1", b"2"]
    assert b.broker.payloads() == [b"0", b"1", b"2"]
    assert b.client.connected
    assert b.conn.owed() == []


def test_a_timer_that_publishes_in_the_middle_of_a_packet_is_refused():
    b = Bench(buffer_size=64)
    b.connect()
    refused = []

    def hook(where):
        try:
            b.client.publish(b"from/timer", b"z")
        except MQTTException as e:
            refused.append(e.reason)

    b.net.hook = hook
    b.net.max_write = 3
    b.client.publish(b"t", b"x" * 200)
    b.net.hook = None
    assert refused and set(refused) == {BUSY}
    assert b.broker.payloads() == [b"x" * 200]


def test_unexpected_acknowledgements_are_counted_and_harmless():
    b = Bench()
    b.connect()
    for data in (b"\x40\x02\x11\x11", b"\x70\x02\x11\x11", b"\x90\x03\x11\x11\x00"):
        b.conn.send(data)
    b.client.check_msg()
    assert b.client.counters.unexpected == 3
    b.client.publish(b"t", b"x", qos=1)
    assert b.client.counters.acked == 1


def test_duplicate_acknowledgements_are_harmless():
    b = Bench()
    b.connect()
    b.broker.when(PUBLISH, lambda a: a + a, 0)
    b.broker.when(PUBREL, lambda a: a + a, 0)
    for i in range(6):
        b.client.publish(b"t", b"%d" % i, qos=1 + i % 2)
    b.pump()
    assert b.broker.payloads() == [b"%d" % i for i in range(6)]
    assert b.client.counters.acked == 6


def test_answer_and_close_at_once_is_still_an_acknowledgement():
    b = Bench()
    b.connect()
    b.broker.when(PUBLISH, ANSWER_CLOSE)
    b.client.publish(b"t", b"x", qos=1)
    raises(OSError, b.pump)


def test_counters_tell_the_story():
    b = Bench()
    b.connect()
    b.client.publish(b"t", b"x", qos=1)
    b.net.cut()
    raises(OSError, b.pump)
    b.connect()
    c = b.client.counters
    assert (c.connects, c.closed, c.sent, c.acked) == (2, 1, 1, 1)
    assert c.last_error
    assert softtimer.virtual
    assert b.broker.count(PINGREQ) == b.broker.count(PUBACK) == 0


def test_a_topic_that_was_refused_is_not_published_to_by_another_call():
    for store in (None, RAMStore()):
        b = Bench(store=store)
        b.connect()
        raises(ValueError, b.client.publish, None, b"x")
        for topic in (b"a/#", "", 5):
            raises(ValueError, b.client.publish, topic, b"x", qos=1)
            raises(ValueError, b.client.publish, None, b"x", qos=1)
        b.client.publish(bytearray(b"good"), b"1")
        raises(ValueError, b.client.publish, None, b"2")
        b.client.publish(b"good", b"3", qos=1)
        assert b.broker.payloads() == [b"1", b"3"] and not b.client.inflight()


def _with_nodelay(make_option):
    # A client whose stream has setsockopt(); what was asked for, 1 is TCP_NODELAY on.
    b = Bench()
    asked = []
    b.connect()
    stream = b.net.stream

    class Socket:
        def setsockopt(self, level, name, value):
            make_option(asked, (level, name, value))

        def __getattr__(self, name):
            return getattr(stream, name)

    b.client.sock = b.client._tx.sock = Socket()
    return b, asked


def test_small_packets_are_held_back_in_bursts_of_qos_0_only():
    """No write may wait for a TCP acknowledgement while an MQTT one is awaited; a burst of
    QoS 0 goes out in few segments, also after a message of QoS 1."""
    b, asked = _with_nodelay(list.append)
    b.client.publish(b"t", b"0")
    assert asked == []
    b.client.publish(b"t", b"1", qos=1)
    b.client.publish(b"t", b"2", qos=2)
    assert asked == [(6, 1, 1)]
    for _ in range(15):
        b.client.publish(b"t", b"0")
    assert asked == [(6, 1, 1)], "one of each by turns must not cost a call each"
    for _ in range(50):
        b.client.publish(b"t", b"0")
    assert asked == [(6, 1, 1), (6, 1, 0)]
    b.client.publish(b"t", b"1", qos=1)
    assert asked == [(6, 1, 1), (6, 1, 0), (6, 1, 1)]
    prepared = b.client.publisher(b"t")
    for _ in range(50):
        prepared(b"0")
    assert asked[3:] == [(6, 1, 0)]


def test_a_stream_that_has_no_such_option_is_asked_once():
    def refuse(asked, option):
        asked.append(option)
        raise OSError(92)

    b, asked = _with_nodelay(refuse)
    for _ in range(40):
        b.client.publish(b"t", b"1", qos=1)
        b.client.publish(b"t", b"0")
    assert asked == [(6, 1, 1)]
    assert len(b.broker.messages) == 80
