"""What is out of date before it is sent: the latest message of a topic only, and max_age.
Both interpreters, a store in RAM and one in flash.

Knows: the client's API, a broker that plays along.  Must not know: how stores count.
"""
# heap: 4M

from harness import Bench, raises
from nor import NOR
from strict_broker import HOLD, publish
from strict_wire import PUBLISH
from umqtt_min import DROP_OLDEST, LATEST, FlashStore, MQTTException, RAMStore
from umqtt_min.errors import GIVEN_UP, TIMEOUT


class Device(Bench):
    """A bench whose store is a new one, or the one in this flash."""

    def __init__(self, flash=None, **options):
        self.flash = flash
        self.options = options
        Bench.__init__(self, store=self._store())

    def _store(self):
        return FlashStore(self.flash, **self.options) if self.flash else RAMStore(**self.options)

    def reboot(self):
        """The power comes back; what is in RAM is gone."""
        self.client._close()
        self.make(store=self._store())

    def publish(self, n, topic=b"t", qos=1):
        """n messages to the topic, with their numbers."""
        for i in range(n):
            self.client.publish(topic, b"%d" % i, qos=qos, wait=False)

    def flushed(self):
        """Connect and send what waits; payloads that have come since, DUP or not."""
        seen = len(self.broker.publishes)
        self.client.connect()
        assert self.client.flush(5)
        return [(m.payload, m.dup) for m in self.broker.publishes[seen:]]


def devices(**options):
    """One without and one with flash."""
    return Device(**options), Device(NOR(8, 4096), **options)


def test_latest_replaces_what_is_unsent_also_when_something_was_sent_before():
    for qos in (1, 2):
        for d in devices(policy=LATEST):
            d.publish(1, b"before", qos)
            assert d.flushed() == [(b"0", False)]
            d.client.disconnect()
            for _ in range(3):
                d.publish(100, qos=qos)
                d.publish(5, b"other", qos)
                assert d.client.inflight() == 2
            assert d.flushed() == [(b"99", False), (b"4", False)]
            d.client.disconnect()
            d.publish(2, qos=qos)
            assert d.client.inflight() == 1


def test_latest_leaves_what_may_have_been_sent():
    for d in devices(policy=LATEST):
        d.client.connect()
        d.broker.when(PUBLISH, HOLD)
        d.publish(1)
        d.client._close()  # sent, and not acknowledged
        d.publish(50)
        assert d.client.inflight() == 2
        assert d.flushed() == [(b"0", True), (b"49", False)]


def test_latest_after_a_reboot():
    d = Device(NOR(8, 4096), policy=LATEST)
    d.publish(1, b"before")
    d.flushed()
    d.reboot()
    d.publish(100)
    assert d.client.inflight() == 1
    d.reboot()
    d.publish(100)
    # The one from before the boot may have been sent, for all that is known.
    assert d.client.inflight() <= 2
    got = d.flushed()
    assert got[-1] == (b"99", False) and len(got) <= 2


def test_what_is_first_sent_after_a_reboot_has_no_dup():
    d = Device(NOR(8, 4096))
    d.publish(1, b"before")
    d.flushed()
    d.reboot()
    d.publish(3)
    assert d.flushed() == [(b"0", False), (b"1", False), (b"2", False)]  # [MQTT-3.3.1-1]


class Aged(Device):
    """Messages are given up after 50 seconds of a clock that stands until it is set."""

    def __init__(self, flash=None, **options):
        self.now = 1000
        Device.__init__(self, flash, max_age=50, clock=lambda: self.now, **options)


def aged(**options):
    """One without and one with flash."""
    return Aged(**options), Aged(NOR(8, 4096), **options)


def test_what_is_too_old_is_not_sent_though_nothing_is_published_any_more():
    for qos in (1, 2):
        for d in aged():
            d.publish(1, b"before", qos)
            d.flushed()
            d.client.disconnect()
            d.publish(20, qos=qos)
            d.now += 51
            assert d.flushed() == []
            assert d.client.store.dropped == 20 and d.client.inflight() == 0
            d.publish(1, b"after", qos)
            d.pump()
            assert d.broker.publishes[-1].topic == b"after" and d.client.inflight() == 0


def test_only_what_is_too_old_is_given_up():
    for d in aged():
        d.publish(3, b"old")
        d.now += 30
        d.publish(3, b"new")
        d.now += 30
        assert d.flushed() == [(b"0", False), (b"1", False), (b"2", False)]
        assert {m.topic for m in d.broker.publishes} == {b"new"} and d.client.store.dropped == 3


def test_what_grows_too_old_behind_a_slow_broker_is_given_up_too():
    for d in aged():
        d.broker.when(PUBLISH, HOLD, 0)
        d.client.connect()
        d.publish(40)  # 16 are under way
        d.now += 51
        d.broker.behave()
        d.broker.release()
        assert d.client.flush(5)
        assert [m.payload for m in d.broker.publishes] == [b"%d" % i for i in range(16)]
        assert d.client.store.dropped >= 24


def given_up(d):
    """publish(wait=True), which must say that the message was given up."""
    e = raises(MQTTException, d.client.publish, b"t", b"awaited", qos=1)
    assert (e.reason, e.stored) == (GIVEN_UP, False), e
    assert b"awaited" not in [m.payload for m in d.broker.publishes]


def test_who_waits_for_a_message_that_grows_too_old_hears_that_it_was_given_up():
    for d in aged():
        d.client.connect()
        d.client.set_callback(lambda topic, msg, d=d: setattr(d, "now", d.now + 51))
        d.broker.when(PUBLISH, HOLD, 0)
        d.publish(16)  # the window is full
        d.broker.behave()
        d.conn.send(publish(4, b"t", b"x", 0))
        d.broker.release()
        given_up(d)
        assert d.client.connected


def test_who_waits_for_a_message_that_a_newer_one_replaces_hears_that_it_was_given_up():
    for d in devices(policy=LATEST):
        d.client.connect()
        d.client.set_callback(
            lambda topic, msg, d=d: d.client.publish(b"t", b"newer", qos=1, wait=False)
        )
        d.broker.when(PUBLISH, HOLD, 0)
        d.publish(16, b"before")
        d.broker.behave()
        d.conn.send(publish(4, b"t", b"x", 0))
        d.broker.release()
        given_up(d)
        assert d.client.flush(5) and d.broker.publishes[-1].payload == b"newer"


def test_who_waits_for_a_message_that_was_sent_hears_of_its_end_whatever_is_dropped():
    d = Device(size=256, policy=DROP_OLDEST)
    d.client.connect()

    def callback(topic, msg):
        for _ in range(40):
            d.client.publish(b"t", b"y" * 40, qos=1, wait=False)

    d.client.set_callback(callback)
    d.conn.send(publish(4, b"t", b"x", 0))
    assert d.client.publish(b"t", b"awaited", qos=1)
    assert d.client.store.dropped and d.broker.publishes[0].payload == b"awaited"
    d.client.disconnect()
    d.client.connect()
    d.broker.when(PUBLISH, HOLD, 0)
    e = raises(MQTTException, d.client.publish, b"t", b"never", qos=1)
    assert (e.reason, e.stored) == (TIMEOUT, True)
