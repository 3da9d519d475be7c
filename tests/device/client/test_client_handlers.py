"""A function for each topic filter, beside the one callback.

Knows: the client's API, a broker that plays along.  Must not know: how the client finds a handler.
"""
# heap: 4M

from harness import Bench, raises, reason
from strict_broker import SUBSCRIBE, publish
from umqtt_min import MQTTException, RAMStore
from umqtt_min.errors import BUSY, TIMEOUT
from umqtt_min.topics import matches


class Told:
    """A handler that keeps what it was told."""

    def __init__(self):
        self.got = []

    def __call__(self, topic, msg):
        assert isinstance(topic, bytes) and isinstance(msg, bytes)
        self.got.append((topic, msg))


def sent(b, *messages, qos=0):
    """The broker sends them; the client handles them."""
    for pid, (topic, msg) in enumerate(messages):
        b.conn.send(publish(4, topic, msg, qos, pid=pid + 1 if qos else 0))
    b.pump()


def test_filters_match_as_the_specification_says():
    # MQTT 3.1.1, 4.7.1.2 and 4.7.1.3, with their examples
    for wanted, topic in (
        (b"sport/tennis/player1/#", b"sport/tennis/player1"),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/ranking"),
        (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon"),
        (b"sport/#", b"sport"),
        (b"#", b"sport/tennis"),
        (b"#", b"/finance"),
        (b"sport/tennis/+", b"sport/tennis/player1"),
        (b"sport/+", b"sport/"),
        (b"+/+", b"/finance"),
        (b"/+", b"/finance"),
        (b"+/tennis/#", b"sport/tennis"),
        (b"$SYS/#", b"$SYS/monitor/Clients"),
        (b"$SYS/monitor/+", b"$SYS/monitor/Clients"),
        (b"a/b", b"a/b"),
    ):
        assert matches(wanted, topic), (wanted, topic)
        assert matches(memoryview(wanted), memoryview(topic))


def test_filters_do_not_match_what_the_specification_excludes():
    for wanted, topic in (
        (b"sport/tennis/+", b"sport/tennis/player1/ranking"),
        (b"sport/+", b"sport"),
        (b"sport/#", b"sports"),
        (b"+", b"/finance"),
        (b"#", b"$SYS/monitor"),  # [MQTT-4.7.2-1]
        (b"+/monitor/Clients", b"$SYS/monitor/Clients"),
        (b"a/b", b"a/bc"),
        (b"a/bc", b"a/b"),
        (b"a/+/c", b"a/b/d"),
        (b"A", b"a"),
    ):
        assert not matches(wanted, topic), (wanted, topic)


def test_each_filter_has_its_function_and_the_callback_gets_the_rest():
    for qos in (0, 1, 2):
        b = Bench()
        b.connect()
        lamps, doors = Told(), Told()
        assert b.client.subscribe("lamp/+/set", qos, lamps) == qos
        b.client.subscribe([(b"door/#", 1), (b"gate", 0)], 0, doors)
        b.client.subscribe(b"other", qos)
        sent(
            b,
            (b"lamp/1/set", b"on"),
            (b"door/a/b", b"open"),
            (b"gate", b"shut"),
            (b"other", b"x"),
            qos=qos,
        )
        assert lamps.got == [(b"lamp/1/set", b"on")]
        assert doors.got == [(b"door/a/b", b"open"), (b"gate", b"shut")]
        assert b.got == [(b"other", b"x")] and b.client.counters.received == 4


def test_all_that_match_are_called_and_a_new_one_takes_the_place_of_the_old():
    b = Bench()
    b.connect()
    old, new, wide = Told(), Told(), Told()
    b.client.subscribe(b"a/b", 0, old)
    b.client.subscribe(b"a/b", 1, new)
    b.client.subscribe(b"a/#", 0, wide)
    b.client.subscribe(b"a/b")  # without one it stays
    sent(b, (b"a/b", b"x"))
    assert (old.got, new.got, wide.got) == ([], [(b"a/b", b"x")], [(b"a/b", b"x")])
    b.client.unsubscribe([b"a/b", b"a/#"])
    sent(b, (b"a/b", b"y"))
    assert b.got == [(b"a/b", b"y")] and len(new.got) == len(wide.got) == 1


def test_a_message_before_suback_has_its_handler_and_a_refused_filter_has_none():
    b = Bench()
    b.connect()
    told = Told()
    b.broker.when(SUBSCRIBE, publish(4, b"t", b"retained", 0) + b"\x90\x03\x00\x01\x00")
    b.client.subscribe(b"t", 0, told)
    assert told.got == [(b"t", b"retained")]
    assert "handler=5" in str(raises(ValueError, b.client.subscribe, b"u", 0, 5))
    b.client.disconnect()
    raises(OSError, b.client.subscribe, b"v", 0, told)
    b.connect()
    sent(b, (b"v", b"x"))
    assert b.got == [(b"v", b"x")]


def test_of_a_list_the_filters_that_are_granted_keep_their_handler():
    b = Bench()
    b.connect()
    before, told = Told(), Told()
    b.client.subscribe(b"no", 0, before)
    b.broker.refused_filters = [b"no"]
    e = raises(MQTTException, b.client.subscribe, [(b"yes", 0), (b"no", 0)], 0, told)
    assert e.detail == b"no"
    sent(b, (b"yes", b"1"), (b"no", b"2"))
    assert (told.got, before.got, b.got) == ([(b"yes", b"1")], [(b"no", b"2")], [])


def test_a_suback_that_is_late_leaves_the_handler():
    """The broker has subscribed the client, and sends what it is to handle."""
    b = Bench()
    b.connect()
    told = Told()
    b.broker.when(SUBSCRIBE, b"")
    e = raises(MQTTException, b.client.subscribe, b"t", 1, told, 1)
    assert e.reason == TIMEOUT and "no SUBACK" in str(e)
    sent(b, (b"t", b"x"), qos=1)
    assert told.got == [(b"t", b"x")] and not b.got


def test_handlers_with_views_with_long_messages_and_over_a_reconnection():
    b = Bench(buffer_size=64)
    views = []
    b.client.set_view_callback(lambda topic, msg, flags, left: views.append(bytes(msg)))
    b.connect()
    told = Told()
    b.client.subscribe(b"t", 0, told)
    b.client.disconnect()
    b.connect()
    sent(b, (b"t", b"short"), (b"t", b"x" * 500), (b"u", b"view"))
    assert told.got == [(b"t", b"short"), (b"t", b"x" * 500)] and views == [b"view"]


def test_a_handler_may_publish_and_not_wait_and_its_exception_ends_the_connection():
    b = Bench(store=RAMStore())
    b.connect()

    def handler(topic, msg):
        b.client.publish(b"answer", msg, qos=1, wait=False)
        assert reason(b.client.check_msg) == BUSY
        if msg == b"bad":
            raise KeyError(msg)

    b.client.subscribe(b"t", 1, handler)
    sent(b, (b"t", b"good"), qos=1)
    assert [m.payload for m in b.broker.publishes] == [b"good"]
    b.conn.send(publish(4, b"t", b"bad", 1, pid=9))
    raises(KeyError, b.client.check_msg)
    assert not b.client.connected


def test_the_durable_inbox_has_handlers():
    b = Bench(durable_inbox=RAMStore())
    b.connect()
    told = Told()
    b.client.subscribe(b"t/#", 2, told)
    b.broker.publish(b"t/1", b"x", 2)
    b.pump()
    assert told.got == [(b"t/1", b"x")] and b.got == []
