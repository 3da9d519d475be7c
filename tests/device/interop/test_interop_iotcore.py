"""The client against iotcore, the embedded broker: MQTT 3.1.1.

Knows: that it refuses keep alive 0, enforces the keep-alive, redelivers without DUP.
Must not know: the client's inside.
"""
# needs: iotcore
# deadline: 60

import time

import interop_common as common
import machine
from umqtt_min import MQTTException, RAMStore
from umqtt_min.reconnect import Reconnect


def test_every_qos_both_ways():
    common.echo((0, 1, 50, 127, 128, 300, 5000))


def test_keep_alive_0_is_refused_and_the_error_says_what_to_do():
    c, _ = common.client(keepalive=0)
    try:
        c.connect()
    except MQTTException as e:
        assert "keepalive" in str(e)
        return
    raise AssertionError("accepted")


def test_offline_messages():
    assert common.offline() is True


def test_unacknowledged_messages_come_again():
    seen, present = common.unacknowledged(1)
    assert present is True
    assert len(seen) == 2


def test_a_release_that_it_does_not_know_any_more_holds_nothing_up():
    # It closes on such a PUBREL, every time [it should answer: MQTT-4.3.3-2].
    store = RAMStore()
    c, got = common.client(store=store)
    topic = common.unique("released").encode()
    c.connect()
    c.subscribe(topic, 2)
    c.disconnect()
    # As after a power cut between the broker's PUBCOMP and its record.
    store.rec(store.put(4711, 4, topic, b"released"))
    link = Reconnect(c, [(topic, 2)], first=0.1, most=0.2)
    end = time.ticks_add(time.ticks_ms(), 40000)
    while not got and time.ticks_diff(end, time.ticks_ms()) > 0:
        link.step()
        time.sleep_ms(5)
    assert got == [(topic, b"released")]
    assert c.counters.lost_sessions == 1
    assert c.flush(10)


def test_will():
    common.will()


def test_retained():
    common.retained()


def test_asleep_the_timer_keeps_the_link_alive():
    c, got = common.client(keepalive=2, timer=machine.Timer(-1))
    c.connect()
    time.sleep(4)
    c.publish(b"t", b"alive", qos=1)
    c.disconnect()


def test_without_a_timer_a_silent_client_is_dropped():
    c, got = common.client(keepalive=2)
    c.connect()
    time.sleep(4)
    c.keepalive = 0  # it is the broker that ends it
    try:
        for _ in range(1000):
            c.check_msg()
            time.sleep_ms(20)
    except OSError:
        return
    raise AssertionError("keep-alive is not enforced: the test above shows nothing")
