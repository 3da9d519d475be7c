"""robust.MQTTClient: umqtt.robust's calls, with an end, and nothing published twice from a store.

Knows: the strict broker on a virtual clock, what umqtt.robust promises.
Must not know: how the client waits.
"""

import time

import harness
from harness import raises
from strict_broker import CLOSE, DROP
from strict_wire import CONNECT, PUBLISH
from umqtt_min import MQTTException, RAMStore
from umqtt_min.robust import MQTTClient


class Robust(MQTTClient):
    """Notes what it logs and how often it waits."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.logged = []
        self.delays = []

    def delay(self, i):
        self.delays.append(i)
        super().delay(i)

    def log(self, in_reconnect, e):
        self.logged.append((in_reconnect, type(e)))
        super().log(in_reconnect, e)


class Bench(harness.Bench):
    """A bench whose client is the robust one."""

    def make(self, **options):
        settings = {"keepalive": 60, "timer": False, "timeout": 5}
        settings.update(options)
        self.client = Robust(b"dev", "broker", connector=self.net, **settings)
        self.client.set_callback(self._received)
        return self.client


def connected(**options):
    b = Bench(**options)
    b.client.connect(False)
    return b


def test_names_and_defaults_of_umqtt_robust():
    assert (MQTTClient.DELAY, MQTTClient.DEBUG) == (2, False)
    for name in ("delay", "log", "reconnect", "publish", "wait_msg", "check_msg"):
        assert hasattr(MQTTClient, name), name


def test_patience_is_seconds():
    b = Bench()
    for wrong in (-1, "x", float("inf"), 1e30):
        assert "patience=" in str(raises(ValueError, b.client.reconnect, wrong))
    b.client.reconnect(5)
    assert b.client.connected


def test_publish_goes_on_over_a_lost_connection():
    for qos in (0, 1, 2):
        b = connected()
        b.net.refuse = 3
        b.net.stream.end()
        pid = b.client.publish(b"t", b"x", False, qos)
        assert b.broker.payloads() == [b"x"]
        assert bool(pid) == (qos > 0)
        assert b.client.delays == [1, 2, 3]
        assert b.client.logged == [(False, OSError)] + 3 * [(True, OSError)]
        assert b.kinds()[:2] == [CONNECT, CONNECT]


def test_an_answer_that_never_comes_makes_a_new_connection():
    b = connected()
    b.broker.when(PUBLISH, DROP)
    b.client.publish(b"t", b"x", qos=1)
    assert b.broker.payloads() == [b"x", b"x"]  # at least once: nothing is stored


def test_what_is_stored_is_not_published_twice():
    for qos in (1, 2):
        b = connected(store=RAMStore())
        b.broker.when(PUBLISH, DROP)
        b.net.cut_after_read = 4
        b.net.refuse = 2
        b.client.publish(b"t", b"first", qos=qos)
        b.client.publish(b"t", b"second", qos=qos)
        firsts = [m for m in b.broker.publishes if m.payload == b"first"]
        assert len({m.pid for m in firsts}) == 1  # one message, sent again
        assert b.client.store.seq == 3  # two were stored
        assert b.broker.payloads()[-1] == b"second"
        assert b.client.inflight == 0


def test_stored_while_offline():
    b = Bench(store=RAMStore())
    b.net.refuse = 2
    b.client.publish(b"t", b"x", qos=1)
    assert b.broker.payloads() == [b"x"]
    b.client.publish(b"t", b"y", qos=1, wait=False)
    assert b.client.flush()


def test_patience_has_an_end():
    b = connected()
    b.net.refuse = 1000000
    b.net.stream.end()
    start = time.ticks_ms()
    raises(OSError, b.client.publish, b"t", b"x")
    assert 600000 <= time.ticks_diff(time.ticks_ms(), start) < 610000
    b.client.PATIENCE = 10
    raises(OSError, b.client.check_msg)
    raises(OSError, b.client.wait_msg)
    raises(OSError, b.client.reconnect, 1)


def test_a_broker_that_throws_everybody_out_is_not_stormed_and_has_an_end():
    b = connected()
    b.client.PATIENCE = 60
    b.broker.when(PUBLISH, CLOSE, nth=0)
    start = time.ticks_ms()
    raises(OSError, b.client.publish, b"t", b"x", False, 1)
    assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 70000
    assert 25 < b.broker.count(CONNECT) < 35


def test_a_broker_that_breaks_the_protocol_does_not_end_what_is_stored():
    b = connected(store=RAMStore())
    b.broker.when(PUBLISH, CLOSE)
    b.broker.when(PUBLISH, b"\x00\x00")
    assert b.client.publish(b"t", b"x", qos=1)
    assert b.client.inflight == 0
    assert b.client.logged == [(False, MQTTException)] * 2
    assert b.broker.count(PUBLISH) == 3


def test_patience_ends_with_the_message_stored():
    b = Bench(store=RAMStore())
    b.client.PATIENCE = 10
    b.net.refuse = 1000000
    e = raises((OSError, MQTTException), b.client.publish, b"t", b"x", qos=1)
    assert b.client.inflight == 1
    b.net.refuse = 0
    b.client.connect(False)
    assert b.client.flush()
    assert b.broker.payloads() == [b"x"], e


def test_messages_come_over_a_lost_connection():
    b = connected()
    b.client.subscribe(b"t", 1)
    b.net.stream.end()
    b.broker.publish(b"t", b"one", 1)
    b.client.wait_msg()
    b.net.stream.end()
    b.broker.publish(b"t", b"two", 1)
    b.client.check_msg()
    b.pump()
    assert b.got == [(b"t", b"one"), (b"t", b"two")]


def test_check_msg_makes_so_many_connections():
    b = connected()
    b.broker.when(CONNECT, lambda answer: answer + b"\xf0\x00", 0)
    b.net.stream.end()
    assert b.client.check_msg(2) is None
    assert b.broker.count(CONNECT) == 3
    b.client.check_msg(attempts=1)
    assert b.broker.count(CONNECT) == 4


def test_what_no_connection_cures_is_an_error_at_once():
    b = connected()
    b.net.stream.end()
    b.broker.refuse = 5
    assert raises(MQTTException, b.client.publish, b"t", b"x").reason == 5
    assert b.client.delays == []
    raises(ValueError, b.client.publish, b"a/#", b"x")


def test_a_callback_that_publishes_into_a_dead_link():
    b = connected()
    b.client.subscribe(b"t", 1)
    seen = []

    def callback(topic, msg):
        seen.append(msg)
        if len(seen) == 1:
            b.net.stream.end()
        b.client.publish(b"answer", msg)

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"x", 1)
    b.client.check_msg()
    b.pump()
    assert seen == [b"x", b"x"]  # not acknowledged the first time, so it came again
    assert b.broker.payloads() == [b"x"]


def test_debug_prints():
    b = connected()
    b.client.DEBUG = True
    b.client.log(True, OSError(1))
    b.client.log(False, OSError(1))
