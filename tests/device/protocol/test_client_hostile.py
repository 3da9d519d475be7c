"""What an application may do at the wrong moment, and what is left after it.

Knows: the client's API, its README's guarantees.  Must not know: how the client keeps them.
Each ends with a client that is closed or as it was, and connect() works.
"""
# heap: 4M

import sys

import umqtt_min
from harness import Bench, raises, reason
from strict_broker import CONNECT, publish
from strict_wire import PUBACK, SUBSCRIBE
from umqtt_min import MQTTClient, RAMStore
from umqtt_min.errors import BUSY


def viewing(b):
    """Let the bench collect the pieces that a view callback is given."""
    b.pieces = []
    b.client.set_view_callback(lambda t, p, flags, left: b.pieces.append((bytes(p), left)))
    return b


def works(b):
    """After a new connection everything does."""
    b.connect()
    b.client.publish(b"works", b"works", qos=2)
    assert b.broker.payloads()[-1] == b"works"
    b.client.check_msg()


def test_a_tick_that_finds_a_long_message_leaves_it_to_the_application():
    for qos in (0, 1, 2):
        b = viewing(Bench(keepalive=10, buffer_size=64).subscribe())
        body = bytes(i & 127 for i in range(500))
        b.conn.send(publish(4, b"t", body, qos, pid=5))
        for _ in range(5):
            b.client.tick()
        assert b.pieces == [] and b.client.connected
        b.pump(40)
        assert b"".join(p for p, _ in b.pieces) == body and b.pieces[-1][1] == 0
        works(b)


def test_a_long_message_behind_a_short_one_while_a_publish_waits():
    # wait_msg() leaves the second one in the buffer, where the wait for PUBACK finds it.
    for kept in (False, True):
        for qos in (0, 1, 2):
            store = RAMStore() if kept else None
            b = viewing(Bench(keepalive=10, buffer_size=64, store=store).subscribe())
            b.conn.send(publish(4, b"t", b"short", qos, pid=4))
            b.conn.send(publish(4, b"t", b"y" * 500, qos, pid=5))
            b.client.wait_msg()
            assert b.pieces == [(b"short", 0)]
            b.client.publish(b"out", b"x", qos=1)
            b.pump(40)
            assert sum(len(p) for p, _ in b.pieces) == 505
            works(b)


def test_an_exception_in_the_callback_of_a_piece_wherever_the_piece_is_found():
    for store in (None, RAMStore()):
        b = Bench(keepalive=10, buffer_size=64, store=store).subscribe()
        b.client.set_view_callback(lambda t, p, flags, left: p[1000])
        b.conn.send(publish(4, b"t", b"y" * 500, 1, pid=5))
        raises(IndexError, b.client.publish, b"out", b"x", qos=1)
        assert not b.client.connected and b.broker.count(PUBACK) == 0
        b.client.set_view_callback(None)
        works(b)


def refused(b):
    """Deliver a message to a callback that tries everything; the reasons it was given."""
    c = b.client
    calls = (c.connect, c.disconnect, c.check_msg, c.wait_msg, lambda: c.subscribe("u"),
             lambda: c.unsubscribe("u"))  # fmt: skip
    seen = []

    def callback(topic, msg):
        seen.extend([reason(call) for call in calls])
        c.publish(b"u", b"from the callback")

    c.set_callback(callback)
    b.broker.publish(b"t", b"x", 1)
    b.pump()
    return seen


def test_what_a_callback_may_not_do_is_refused_and_it_may_go_on():
    for store in (None, RAMStore()):
        b = Bench(store=store).subscribe()
        assert refused(b) == [BUSY] * 6
        assert b.broker.payloads() == [b"from the callback"] and b.broker.count(PUBACK) == 1
        works(b)


def test_import_everything_as_scripts_for_umqtt_simple_do():
    names = {}
    exec("from umqtt_min import *", names)
    assert names["MQTTClient"] is MQTTClient and "MQTTException" in names


def test_what_is_not_there():
    raises((ImportError, AttributeError), exec, "from umqtt_min import nothing_of_that_name", {})
    raises(AttributeError, getattr, umqtt_min, "nothing_of_that_name")


def test_connect_twice_and_disconnect_twice():
    b = Bench()
    b.client.disconnect()
    b.connect()
    b.connect()
    assert b.net.streams[0].closed and not b.net.streams[1].closed
    b.client.disconnect()
    b.client.disconnect()
    assert b.net.streams[1].closed
    works(b)


def test_on_oversize_is_a_callback_as_any_other():
    b = Bench(buffer_size=64, max_message=100).subscribe()

    def too_long(size):
        b.got.append((size, reason(b.client.check_msg)))
        b.client.publish(b"too long", b"%d" % size)

    b.client.on_oversize = too_long
    b.broker.publish(b"t", b"x" * 500, 1)
    b.pump(40)
    assert b.got == [(500, BUSY)] and b.broker.payloads() == [b"500"]
    assert b.broker.count(PUBACK) == 1
    b.client.on_oversize = [].pop
    b.broker.publish(b"t", b"x" * 500, 1)
    raises(IndexError, b.pump, 40)
    assert not b.client.connected and b.broker.count(PUBACK) == 1
    works(b)


class Mine(MQTTClient):
    """Overrides, counts, and hands on."""

    calls = 0

    def publish(self, topic, msg, retain=False, qos=0, wait=True):
        self.calls += 1
        return super().publish(topic, msg, retain, qos, wait)

    def check_msg(self):
        self.calls += 1
        return super().check_msg()

    def subscribe(self, topic, qos=0, timeout=None):
        self.calls += 1
        return super().subscribe(topic, qos, timeout=timeout)

    def connect(self, clean_session=None, timeout=None):
        self.calls += 1
        return super().connect(clean_session, timeout)

    def disconnect(self):
        self.calls += 1
        super().disconnect()

    def wait_msg(self):
        self.calls += 1
        return super().wait_msg()

    def ping(self):
        self.calls += 1
        super().ping()

    def set_callback(self, f):
        self.calls += 1
        super().set_callback(f)

    def set_last_will(self, topic, msg, retain=False, qos=0):
        self.calls += 1
        super().set_last_will(topic, msg, retain, qos)

    def unsubscribe(self, topic, timeout=None):
        self.calls += 1
        super().unsubscribe(topic, timeout)

    def flush(self, timeout=None):
        self.calls += 1
        return super().flush(timeout)


def test_a_subclass_may_override_what_it_likes():
    for store in (None, RAMStore()):
        b = Bench(store=store)
        c = b.client = Mine("dev", "broker", connector=b.net, timer=False, store=store)
        c.set_callback(b._received)
        c.set_last_will("gone", "x")
        c.connect()
        c.subscribe("t", 2)
        c.ping()
        for qos in (0, 1, 2):
            c.publish("t", "x", qos=qos)
        c.check_msg()
        b.conn.send(publish(4, b"t", b"waited for"))
        c.wait_msg()
        assert c.flush()
        c.unsubscribe("t")
        c.disconnect()
        assert len(b.got) == 4 and c.calls >= 13


def test_the_will_is_what_was_set_before_the_connection_was_made():
    b = Bench()
    b.client.set_last_will(b"will", b"1", True, 1)
    b.connect()
    b.client.set_last_will(b"will", b"2")
    b.net.cut()
    raises(OSError, b.client.check_msg)
    b.connect()
    b.client.set_last_will(b"will", b"3")
    b.net.cut()
    assert [(m.topic, m.payload) for m in b.broker.messages] == [(b"will", b"1"), (b"will", b"2")]


def test_messages_before_suback_of_every_size():
    b = viewing(Bench(buffer_size=64))
    b.connect()
    b.broker.when(SUBSCRIBE, publish(4, b"t", b"x" * 500, 0) + publish(4, b"t", b"y", 1, pid=9)
                  + b"\xd0\x00\x90\x03\x00\x01\x01")  # fmt: skip
    assert b.client.subscribe(b"t", 1) == 1
    b.pump()
    assert sum(len(p) for p, _ in b.pieces) == 501
    works(b)


def test_connected_is_said_when_the_broker_has_said_so():
    b = Bench()
    seen = []

    def look(answer):
        seen.append(b.client.connected)
        return answer

    b.broker.when(CONNECT, look)
    b.connect()
    assert seen == [False] and b.client.connected


def test_nothing_is_loaded_by_looking():
    """dir(), and TAB in the REPL, ask for every name there is."""
    b = Bench()
    b.connect()
    before = set(sys.modules)
    dir(b.client)
    hasattr(b.client, "no_such_name")
    for _ in range(2):  # MicroPython's looks for names that were there when it began
        dir(umqtt_min)
    stores = {name for name in sys.modules if name.startswith("umqtt_min.store")}
    before |= stores | {"umqtt_min.lazy", "umqtt_min.older", "umqtt_min.topics",
                        "umqtt_min.session"}
    assert set(sys.modules) - before <= {"umqtt_min.counters"}  # which it has to call
