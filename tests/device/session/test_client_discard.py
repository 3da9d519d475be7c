"""A message that the broker will not take: the application finds out, and can give it up.

Knows: a broker that hangs up on a topic that it forbids, as mosquitto does on a packet too large.
Must not know: how the client counts.
"""
# heap: 4M
# deadline: 60

import time

from harness import Bench, raises, reason
from nor import NOR
from strict_broker import CLOSE, DROP, HOLD
from strict_wire import CONNECT, DISCONNECT, PUBLISH, PUBREL
from umqtt_min import FlashStore, MQTTException, RAMStore
from umqtt_min.errors import BUSY
from umqtt_min.reconnect import Reconnect


class Forbidding(Bench):
    """The broker hangs up on a publish to b"no"."""

    def __init__(self, store=None, **options):
        Bench.__init__(self, store=store or RAMStore(), **options)
        self.broker.forbidden.append(b"no")

    def publish(self, *topics, qos=1):
        """One message to each topic, with a number for its payload."""
        for i, topic in enumerate(topics):
            self.client.publish(topic, b"%d" % i, qos=qos, wait=False)

    def fail(self):
        """One more connection that comes to its end."""
        try:
            self.client.connect()
            self.pump()
        except OSError:
            return
        raise AssertionError("the broker did not hang up")


def test_one_forbidden_message_stops_nobody_once_it_is_given_up():
    for qos in (1, 2):
        flash = NOR(8, 4096)
        b = Forbidding(FlashStore(flash))
        link = Reconnect(b.client, first=0)
        b.publish(b"a", b"b", b"no", b"c", b"no", b"d", qos=qos)
        given = []
        for _ in range(200):
            link.step()
            if b.client.stuck() >= 5:
                given.append(b.client.discard())
            time.sleep_ms(10)
        assert [topic for _, topic in given] == [b"no", b"no"]
        pids = [m.pid for m in b.broker.publishes if m.topic == b"no"]
        assert [pid for pid, _ in given] == [min(pids), max(pids)]
        assert b.client.inflight() == 0 and b.client.store.dropped == 2
        seen = [m.payload for m in b.broker.messages]
        assert [p for i, p in enumerate(seen) if p not in seen[:i]] == [b"0", b"1", b"3", b"5"]
        assert qos == 1 or len(seen) == 4
        assert not b.broker.sessions[b"dev"].incoming  # no identifier is left open


def test_a_reboot_and_a_new_session_do_not_bring_it_back():
    for lose in (False, True):
        flash = NOR(8, 4096)
        b = Forbidding(FlashStore(flash))
        b.publish(b"no", b"a")
        b.fail()
        assert b.client.discard()[1] == b"no"
        flash.boot()
        b.make(store=FlashStore(flash))
        assert b.client.inflight() == 1 and b.client.stuck() == 0
        if lose:
            b.broker.lose_sessions()
        b.connect()
        assert b.client.flush(60) and b.broker.payloads() == [b"1"]


def test_connections_in_vain_are_counted_until_something_comes_of_it():
    b = Forbidding()
    assert b.client.stuck() == 0
    b.publish(b"no", b"a")
    assert b.client.stuck() == 0
    for n in range(1, 6):
        b.fail()
        assert b.client.stuck() == n
        assert b.client.stuck() == n
    del b.broker.forbidden[:]
    b.connect()
    assert b.client.stuck() == 5  # so far
    assert b.client.flush(60) and b.client.stuck() == 0
    assert b.broker.payloads() == [b"0", b"1"]
    assert b.client.discard() is None


def test_a_refused_connection_is_not_the_messages_fault():
    b = Forbidding()
    b.publish(b"no")
    b.fail()
    b.broker.refuse = 3
    for _ in range(3):
        raises(MQTTException, b.client.connect)
    assert b.client.stuck() == 1
    b.broker.refuse = 0
    b.fail()
    assert b.client.stuck() == 2


def test_a_connection_that_the_application_ends_was_not_in_vain():
    b = Bench(store=RAMStore())
    for n in range(1, 6):
        b.client.publish(b"a", b"%d" % n, qos=1, wait=False)
        b.connect()
        b.client.disconnect()  # before any acknowledgement was read
        assert b.client.stuck() == 0
        assert b.conn.received[-1].type == DISCONNECT and len(b.conn.received) == n + 2
    b.connect()
    assert b.client.flush(60)


def test_after_two_connections_in_vain_it_goes_out_alone():
    b = Forbidding()
    b.publish(b"a", b"no", b"b")
    for _ in range(2):
        b.broker.when(PUBLISH, CLOSE)  # the acknowledgement of the first is lost
        b.fail()
    assert b.client.stuck() == 2
    del b.broker.publishes[:]
    b.fail()
    assert [m.topic for m in b.broker.publishes] == [b"a", b"no"]
    assert b.client.stuck() == 1  # it is the other's turn
    b.fail()
    b.fail()
    assert b.client.discard()[1] == b"no"
    b.connect()
    assert b.client.flush(60)
    assert b.broker.payloads()[-1] == b"2"


def test_what_the_broker_has_taken_is_not_given_up():
    b = Forbidding()
    b.connect()
    b.publish(b"a", b"no", qos=2)
    raises(OSError, b.pump)
    assert b.client.discard()[1] == b"no"
    assert b.client.discard() is None and b.client.inflight() == 1
    b.publish(b"no", b"b", qos=2)
    for _ in range(2):
        b.broker.when(PUBREL, DROP)
        b.fail()
    del b.broker.packets[:]
    b.fail()
    assert b.kinds() == [CONNECT, PUBREL, PUBLISH]  # alone, but for what it has
    assert b.client.stuck() == 3 and b.client.discard()[1] == b"no"
    b.connect()
    assert b.client.flush(60) and b.broker.payloads() == [b"0", b"1"]


def test_an_identifier_under_way_is_not_used_again_on_that_connection():
    for qos in (1, 2):
        b = Forbidding()
        b.connect()
        b.broker.when(PUBLISH, HOLD)
        b.publish(b"a", qos=qos)
        pid, topic = b.client.discard()
        assert (pid, topic) == (b.client.pid, b"a") and b.client.store.live == 0
        b.client.pid = pid - 1
        b.publish(b"b", qos=qos)
        assert b.client.pid == pid + 1
        b.broker.release()  # the acknowledgement comes after all
        b.pump()
        assert b.client.flush(60) and b.client.counters.unexpected == 0
        b.client.pid = pid - 1
        b.publish(b"c", qos=qos)
        assert b.client.pid == pid and b.client.flush(60)
        assert not b.conn.session.incoming


def test_held_messages_stay():
    b = Forbidding(RAMStore(hold=True))
    b.connect()
    b.publish(b"a")
    assert b.client.flush(60)
    assert b.client.discard() is None and b.client.store.held == 1
    b.broker.forbidden.append(b"a")
    assert b.client.republish(1, 1) == 1  # asked for again it is one like any other
    raises(OSError, b.pump)
    assert b.client.discard()[1] == b"a" and b.client.store.live == 0


def test_without_a_store_and_in_a_callback():
    b = Bench()
    assert b.client.stuck() == 0 and b.client.discard() is None
    b = Forbidding()
    b.subscribe()
    b.client.set_callback(lambda topic, msg: b.got.append(reason(b.client.discard)))
    b.broker.publish(b"t", b"x")
    b.pump()
    assert b.got == [BUSY]
