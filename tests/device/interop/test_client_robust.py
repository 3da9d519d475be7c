"""robust.MQTTClient: umqtt.robust's calls, with an end, and nothing published twice from a store.

Knows: the strict broker on a virtual clock, what umqtt.robust promises.
Must not know: how the client waits.
"""

import time

import harness
from harness import raises, thrower
from strict_broker import CLOSE, DROP
from strict_wire import CONNECT, PUBLISH, SUBSCRIBE
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
    """A bench whose client is the robust one, or a program's own."""

    kind = Robust

    def make(self, **options):
        settings = {"keepalive": 60, "timer": False, "timeout": 5}
        settings.update(options)
        self.client = self.kind(b"dev", "broker", connector=self.net, **settings)
        self.client.set_callback(self._received)
        return self.client


def connected(kind=Robust, **options):
    class Own(Bench):
        pass

    Own.kind = kind
    b = Own(**options)
    b.client.connect(False)
    return b


class Again(Robust):
    """Subscribes again where the session is new, as programs for umqtt.robust do."""

    asked = ()

    def connect(self, clean_session=True):
        present = super().connect(clean_session)
        if not present:
            for topic in self.asked:
                self.subscribe(topic)
        return present

    def subscribe(self, topic):
        super().subscribe(topic)
        if topic not in self.asked:
            self.asked += (topic,)


class Status(Robust):
    """Says that it is there, whatever becomes of connect()."""

    def connect(self, clean_session=True):
        try:
            return super().connect(clean_session)
        finally:
            self.publish(b"status", b"on")


class Mine(Robust):
    """Has a reconnect() of its own, as umqtt.robust's README advises."""

    calls = 0

    def reconnect(self):
        self.calls += 1
        return super().reconnect()


class Weary(Robust):
    """Ends what would go on for ever."""

    def delay(self, i):
        super().delay(i)
        if len(self.delays) > 500:
            raise KeyError("it does not give up")


def thrown_out(b):
    """From now on the broker lets everybody in, and throws them out at once."""
    b.broker.when(CONNECT, lambda answer: answer + b"\xf0\x00", 0)
    b.net.stream.end()


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
        assert b.client.inflight() == 0


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
    assert b.client.inflight() == 0
    assert b.client.logged == [(False, MQTTException)] * 2
    assert b.broker.count(PUBLISH) == 3


def test_patience_ends_with_the_message_stored():
    b = Bench(store=RAMStore())
    b.client.PATIENCE = 10
    b.net.refuse = 1000000
    e = raises((OSError, MQTTException), b.client.publish, b"t", b"x", qos=1)
    assert b.client.inflight() == 1
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


def test_a_connect_of_ones_own_is_called_for_every_connection():
    for store in ({}, {"store": RAMStore()}):
        b = connected(Again, **store)
        b.client.subscribe(b"t")
        b.client.subscribe(b"u")
        b.broker.lose_sessions()
        b.net.refuse = 2
        b.net.stream.end()
        b.client.publish(b"x", b"y", qos=1)
        assert b.conn.session.subscriptions == {b"t": 0, b"u": 0}
        b.net.stream.end()
        b.client.check_msg()
        assert b.broker.count(CONNECT) == 3
        assert b.broker.count(SUBSCRIBE) == 4  # this time the session was there


def test_what_fails_in_a_connect_of_ones_own_makes_another_attempt():
    b = connected(Again)
    b.client.subscribe(b"t")
    b.broker.lose_sessions()
    b.broker.when(SUBSCRIBE, CLOSE)
    b.broker.when(SUBSCRIBE, DROP)
    b.client.asked += (b"u",)
    b.net.stream.end()
    b.client.publish(b"x", b"y", qos=1)
    assert b.broker.payloads() == [b"y"]
    assert [inside for inside, _ in b.client.logged] == [False, True]


def test_a_connect_of_ones_own_that_publishes_makes_no_nested_connections():
    b = connected(Status)
    b.client.PATIENCE = 60
    b.net.refuse = 4
    b.net.stream.end()
    b.client.check_msg()
    assert b.broker.payloads() == [b"on", b"on"]
    assert b.client.delays == [1, 2, 3, 4]
    b.net.refuse = 1000000
    b.net.stream.end()
    start = time.ticks_ms()
    raises(OSError, b.client.publish, b"t", b"x", False, 1)
    assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 70000
    assert b.client.delays == [1, 2, 3, 4] + list(range(1, len(b.client.delays) - 3))


class Loop(Status):
    """A loop of its own."""

    def reconnect(self):
        while True:
            try:
                return self.connect(False)
            except OSError as e:
                self.log(True, e)
                self.delay(1)


def test_a_loop_of_ones_own_makes_no_nested_connections():
    b = connected(Loop)
    b.net.refuse = 3
    b.net.stream.end()
    b.client.check_msg()
    assert b.broker.payloads() == [b"on", b"on"]
    assert b.client.logged == [(False, OSError)] + 3 * [(True, OSError)]


def test_a_reconnect_of_ones_own_is_called_by_every_call():
    for options in ({}, {"store": RAMStore()}):
        b = connected(Mine, **options)
        b.client.subscribe(b"t", 1)
        for n, name in enumerate(("publish", "publish", "check_msg", "wait_msg")):
            b.net.stream.end()
            b.broker.publish(b"t", b"one", 1)
            if name == "publish":
                b.client.publish(b"x", b"%d" % n, False, n)
            else:
                getattr(b.client, name)()
            assert b.client.calls == n + 1
            time.sleep_ms(5000)
        assert b.broker.payloads() == [b"0", b"1"]


class Cut(Mine):
    """The first error is followed by an outage."""

    def log(self, in_reconnect, e):
        super().log(in_reconnect, e)
        self.connector.refuse = 1000000


def test_a_reconnect_of_ones_own_has_the_patience_of_the_call():
    for options in ({}, {"store": RAMStore()}):
        b = connected(Cut, **options)
        b.client.PATIENCE = 60
        b.broker.when(PUBLISH, DROP)  # 5 s pass before the link is found dead
        start = time.ticks_ms()
        e = raises((OSError, MQTTException), b.client.publish, b"t", b"x", qos=1)
        assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 64000
        assert getattr(e, "stored", False) == bool(options)
        start = time.ticks_ms()
        raises(OSError, b.client.reconnect)
        assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 64000


def test_what_a_reconnect_of_ones_own_raises_passes_on():
    class Short(Robust):
        def reconnect(self):
            return super().reconnect(5)

    b = connected(Short)
    b.net.refuse = 1000000
    b.net.stream.end()
    start = time.ticks_ms()
    for call in (b.client.check_msg, b.client.wait_msg, lambda: b.client.publish(b"t", b"x")):
        raises(OSError, call)
    assert 15000 <= time.ticks_diff(time.ticks_ms(), start) < 30000


def test_waiting_for_a_message_has_an_end_where_everybody_is_thrown_out():
    b = connected(Weary)
    b.client.PATIENCE = 60
    thrown_out(b)
    start = time.ticks_ms()
    raises(MQTTException, b.client.wait_msg)
    assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 70000


def test_a_connection_that_lasts_ends_the_row_of_errors():
    b = connected(Weary, keepalive=0)
    b.client.subscribe(b"t", 1)
    b.client.PATIENCE = 20
    start = time.ticks_ms()

    def cut(where):
        # Each connection lasts five seconds; a message comes long after the patience.
        now = time.ticks_ms()
        if where == "read" and time.ticks_diff(now, b.begun) >= 5000:
            b.begun = now
            if time.ticks_diff(now, start) > 100000:
                b.broker.publish(b"t", b"late", 1)
            b.net.stream.end()

    b.begun = start
    b.net.hook = cut
    b.client.wait_msg()
    assert b.got == [(b"t", b"late")]
    assert len(b.client.delays) == 0


def test_looking_for_messages_has_one_patience():
    b = connected(Weary)
    b.client.PATIENCE = 60
    thrown_out(b)
    start = time.ticks_ms()
    raises(MQTTException, b.client.check_msg, 10000)
    assert 60000 <= time.ticks_diff(time.ticks_ms(), start) < 70000


def waiting_message(error, **options):
    """A client for which a message waits whose callback raises `error` the first time."""
    b = connected(**options)
    b.client.subscribe(b"t", 1)
    b.disturb(thrower(error))
    return b


def test_an_oserror_of_the_callback_passes_on():
    for error in (OSError(2), OSError(104), MQTTException(17)):
        for call in ("check_msg", "wait_msg", "flush"):
            b = waiting_message(error, store=RAMStore())
            if call == "flush":
                b.client.publish(b"a", b"b", qos=1, wait=False)
            assert raises(type(error), getattr(b.client, call)) is error
            assert b.client.logged == []
            b.client.check_msg()
            b.client.check_msg()
            assert b.got == 2 * [(b"t", b"x")]
            assert b.broker.count(CONNECT) == 2


def test_an_oserror_of_the_callback_does_not_publish_twice():
    for options in ({}, {"store": RAMStore()}):
        b = waiting_message(OSError(2), **options)
        assert raises(OSError, b.client.publish, b"a", b"b", qos=1).args[0] == 2
        b.client.check_msg()
        b.client.check_msg()
        assert set(m.pid for m in b.broker.publishes if m.payload == b"b") <= {b.client.pid}


def test_an_oserror_of_the_callback_passes_on_out_of_a_new_connection():
    b = connected(Again)
    b.client.subscribe(b"t")
    b.broker.lose_sessions()
    b.broker.when(SUBSCRIBE, lambda answer: b"\x30\x04\x00\x01tx" + answer)

    def callback(topic, msg):
        raise OSError(2)

    b.client.set_callback(callback)
    b.net.stream.end()
    assert raises(OSError, b.client.check_msg).args[0] == 2
    assert b.client.logged == [(False, OSError)]


def test_a_connection_that_the_callback_ended_is_made_again():
    b = waiting_message(KeyError())
    raises(KeyError, b.client.check_msg)
    b.client.check_msg()
    b.client.disconnect()
    b.client.check_msg()
    b.net.stream.end()
    b.client.publish(b"t", b"x", qos=1)
    assert b.broker.count(CONNECT) == 4
    b = waiting_message(KeyError(), store=RAMStore())
    raises(KeyError, b.client.check_msg)
    b.client.publish(b"a", b"b", qos=1)
    assert b.client.inflight() == 0


def test_a_connection_that_the_system_aborts_is_made_again():
    # Its error has the number that the client has for what a callback raises.
    b = connected(store=RAMStore())
    b.client.disconnect()
    b.client.publish(b"a", b"b", qos=1, wait=False)
    b.writes = 0

    def aborted(where):
        if where == "write":
            b.writes += 1
            if b.writes == 2:  # after CONNECT
                raise OSError(103)

    b.net.hook = aborted
    b.client.check_msg()
    assert b.client.delays == [1]
    assert b.client.flush()
