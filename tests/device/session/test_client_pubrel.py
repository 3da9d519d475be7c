"""A PUBREL that stays without an answer: whose fault it is, and what becomes of the session.

Some brokers close on a PUBREL whose message they have completed [they should answer:
MQTT-4.3.3-2]; those are made to forget the session. A link that dies is no such broker: its
session, with all that waits in it, has to stay.
Knows: the strict broker.  Must not know: how the client counts.
"""

import softtimer
from harness import Bench, raises
from strict_broker import CLOSE, DROP
from strict_wire import CONNECT, PINGREQ, PUBLISH, PUBREL
from umqtt_min import MQTT_3_1, MQTT_3_1_1, RAMStore


def completed(**options):
    """A bench with a QoS 2 message that the broker has to the end, and whose PUBCOMP was lost."""
    b = Bench(store=RAMStore(), **options)
    b.connect()
    b.client.subscribe(b"t/in", 1)
    b.broker.when(PUBREL, DROP)
    b.client.publish(b"t", b"once", qos=2, wait=False)
    b.pump()
    b.net.stream.end()
    raises(OSError, b.pump)
    return b


def closes_on_pubrel(b):
    """Connect; the broker answers PUBREL by closing instead of PUBCOMP."""
    b.broker.when(PUBREL, CLOSE)
    b.connect()
    raises(OSError, b.pump)


def cleans(b):
    """Clean Session of each CONNECT so far, the first left out."""
    return [p.clean for p in b.broker.packets if p.type == CONNECT][1:]


def finish(b):
    """The link is good: all is acknowledged, and what has waited for the client is there."""
    b.broker.publish(b"t/in", b"waited", 1)
    if not b.client.connected:
        b.connect()
    assert b.client.flush(60)
    b.pump()


def finish_in_session(b, *sent):
    """finish(), and the session was never given up: each message once."""
    finish(b)
    assert True not in cleans(b) and b.client.counters.lost_sessions == 0
    assert b.broker.payloads() == list(sent)
    assert b.got == [(b"t/in", b"waited")]


def test_a_broker_that_closes_on_pubrel_is_made_to_forget_the_session():
    for protocol in (MQTT_3_1_1, MQTT_3_1):
        b = completed(protocol=protocol)
        for _ in range(20):
            closes_on_pubrel(b)
        assert b.client.counters.lost_sessions == 0
        assert b.connect() is False
        assert cleans(b) == [False] * 20 + [True, False]
        assert b.client.counters.lost_sessions == 1
        assert b.client.flush(60)
        assert b.broker.payloads() == [b"once", b"once"]  # at least once, and not for ever held


def test_attempts_to_connect_that_fail_in_between_change_nothing():
    """They say nothing of the broker, or a busy one is never made to forget the session."""
    b = completed()
    for n in range(20):
        closes_on_pubrel(b)
        b.net.refuse = n % 3
        for _ in range(n % 3):
            raises(OSError, b.connect)
        if n % 4 == 3:
            b.broker.when(CONNECT, CLOSE)
            raises(Exception, b.connect)
    assert b.client.counters.lost_sessions == 0
    assert b.connect() is False
    assert b.client.counters.lost_sessions == 1 and True in cleans(b)
    assert b.client.flush(60)


def test_an_answer_in_between_and_the_session_stays():
    b = completed()
    for _ in range(19):
        closes_on_pubrel(b)
    # Another message is acknowledged before the twentieth close.
    b.broker.when(PUBREL, DROP)
    b.connect()
    b.client.publish(b"t", b"next", qos=1)
    b.net.stream.end()
    raises(OSError, b.pump)
    for _ in range(19):
        closes_on_pubrel(b)
    finish_in_session(b, b"once", b"next")


def test_links_that_carry_nothing_back_but_connack_leave_the_session_alone():
    b = completed()
    b.broker.when(PINGREQ, DROP, 0)
    b.broker.when(PUBREL, DROP, 0)
    for _ in range(24):
        b.connect()
        b.pump()
        b.net.stream.end()
        raises(OSError, b.pump)
    b.broker.behave()
    finish_in_session(b, b"once")


def test_links_that_go_silent_leave_the_session_alone():
    b = completed()
    b.broker.when(PUBREL, DROP, 0)
    for _ in range(24):
        b.connect()
        b.pump()
        b.broker.when(PINGREQ, DROP, 0)
        try:
            for _ in range(20):
                softtimer.jump(15000)
                b.pump()
        except OSError as e:
            assert e.args[0] == 110
        assert not b.client.connected
        b.broker.behave(PINGREQ)
    b.broker.behave()
    finish_in_session(b, b"once")


def test_what_is_published_meanwhile_waits_its_turn():
    b = completed()
    closes_on_pubrel(b)
    b.connect()  # nothing has come back on this connection yet
    b.client.publish(b"t", b"next", qos=1, wait=False)
    kinds = b.kinds()
    assert kinds[-1] == PINGREQ, kinds
    b.pump()
    kinds = b.kinds()
    assert kinds[kinds.index(PINGREQ) :] == [PINGREQ, PUBREL, PUBLISH]
    finish(b)
    assert b.broker.payloads() == [b"once", b"next"]
