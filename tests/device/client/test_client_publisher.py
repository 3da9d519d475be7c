"""Prepared publishers, and what the client says of arguments and errors.

Knows: the client's API, the strict broker.  Must not know: what a publisher keeps.
"""

import time

from harness import Bench, raises
from strict_broker import publish
from strict_wire import PINGREQ, PUBLISH
from umqtt_min import MQTTException


def sent(b):
    """(topic, payload, QoS, retain) of each PUBLISH that the broker got."""
    return [(p.topic, p.payload, p.qos, p.retain) for p in b.broker.packets if p.type == PUBLISH]


def test_a_publisher_sends_what_publish_sends():
    b = Bench()
    b.connect()
    payloads = (b"", b"x", "text", bytearray(b"y"), b"z" * 100, b"z" * 122, b"z" * 123, b"z" * 400)
    for qos, retain in ((0, False), (0, True), (1, False), (2, True)):
        del b.broker.packets[:]
        p = b.client.publisher("a/b", retain, qos)
        for payload in payloads:
            p(payload)
            b.client.publish(b"a/b", payload, retain, qos)
            b.client.publish(b"another", b"between")
        got = [m for m in sent(b) if m[0] == b"a/b"]
        assert len(got) == 2 * len(payloads)
        assert got[::2] == got[1::2]
        assert [len(m[1]) for m in got[::2]] == [len(payload) for payload in payloads]


def test_two_publishers_take_turns():
    b = Bench()
    b.connect()
    one, two = b.client.publisher("one"), b.client.publisher("two")
    for i in range(5):
        one(b"%d" % i)
        one(b"again")
        two(b"%d" % i)
    assert [m[0] for m in sent(b)] == [b"one", b"one", b"two"] * 5


def prepared(topic=b"t"):
    """A bench and a publisher that has nothing in its way: the quick path is taken."""
    b = Bench(keepalive=10)
    b.connect()
    return b, b.client.publisher(topic)


def test_what_the_stream_does_not_take_at_once_follows():
    b, p = prepared()
    for limit in (1, 2, 7):
        b.net.max_write = limit
        b.net.write_stalls = limit
        p(b"payload")
        b.client.publish(b"u", b"after")
        p(b"")
    assert [m[1] for m in sent(b)] == [b"payload", b"after", b""] * 3


def test_a_write_that_fails_ends_the_connection_and_the_next_one_works():
    for ends, stalls in ((0, 0), (3, 0), (-1, 10**9)):
        b, p = prepared()
        b.net.cut_after_write = ends
        b.net.write_stalls = stalls
        raises(OSError, p, b"lost")
        assert not b.client.connected
        raises(OSError, p, b"lost")
        b.net.cut_after_write, b.net.write_stalls = -1, 0
        b.connect()
        p(b"through")
        assert sent(b)[-1][1] == b"through"


def test_a_tick_in_the_middle_of_it_writes_nothing_into_the_packet():
    b, p = prepared()
    b.net.max_write = 3
    time.sleep_ms(6000)  # a PINGREQ is due

    def hook(where):
        b.client.tick()

    b.net.hook = hook
    p(b"payload")
    b.net.hook = None
    b.client.tick()
    assert b.kinds()[-2:] == [PUBLISH, PINGREQ] and sent(b)[-1][1] == b"payload"


def test_what_it_publishes_keeps_the_link_alive():
    b, p = prepared()
    for _ in range(5):
        time.sleep_ms(4000)
        p(b"x")
        b.conn.send(publish(4, b"in", b"x"))  # something comes, too
        b.client.check_msg()
    assert b.client.counters.sent == 5 and len(b.got) == 5
    assert b.client.counters.pings == 0


def test_a_publisher_in_a_callback_and_after_qos_1():
    b, p = prepared(b"out")
    b.client.set_callback(lambda topic, msg: p(msg))
    b.client.subscribe(b"in", 0)
    b.client.publish(b"in", b"1", qos=1)
    b.pump()
    for i in range(40):
        p(b"%d" % i)
    assert [m[1] for m in sent(b)][1:] == [b"1"] + [b"%d" % i for i in range(40)]


def test_a_publisher_without_a_connection_says_so_and_its_topic_is_checked():
    b = Bench()
    p = b.client.publisher("t")
    raises(OSError, p, b"x")
    for topic in ("", "a/#", "+", b"\xff"):
        raises(ValueError, b.client.publisher, topic)
    raises(ValueError, b.client.publisher, "t", False, 3)


def test_a_number_is_no_payload_and_the_error_says_what_is():
    b = Bench()
    b.connect()
    assert "bytes-like" in str(raises(ValueError, b.client.publish, "a/b", 21.5))
    b.client.publish("a/b", "21.5")
    assert sent(b)[-1][:2] == (b"a/b", b"21.5")


def test_an_exception_shows_its_words():
    e = MQTTException(5)
    assert e.args[0] == 5
    assert repr(e) == "MQTTException: " + str(e)
    assert "authorise" in repr(e)
