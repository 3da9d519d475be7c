"""Prepared publishers, and what the client says of arguments and errors.

Knows: the client's API, the strict broker.  Must not know: what a publisher keeps.
"""

from harness import Bench, raises
from strict_wire import PUBLISH
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
