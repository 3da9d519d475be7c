"""reconnect.Reconnect: pauses with jitter, subscriptions renewed, never blocking for long.

Knows: the strict broker on a virtual clock.  Must not know: how the pauses are drawn.
"""

import time

from harness import Bench, raises, thrower
from strict_broker import CLOSE, DROP
from strict_wire import CONNECT, SUBSCRIBE
from umqtt_min import MQTTException, RAMStore
from umqtt_min.errors import STORE_FULL
from umqtt_min.reconnect import Reconnect


def bench(**options):
    b = Bench()
    b.link = Reconnect(b.client, [(b"t", 1), (b"u/#", 2)], **options)
    return b


def attempts(b, ms):
    """At what time, in ms from now, attempts to connect were made in so many ms."""
    start = time.ticks_ms()
    seen = len(b.net.streams)
    at = []
    while time.ticks_diff(time.ticks_ms(), start) < ms:
        b.link.step()
        if len(b.net.streams) + b.refused() > seen:
            seen = len(b.net.streams) + b.refused()
            at.append(time.ticks_diff(time.ticks_ms(), start))
        time.sleep_ms(10)
    return at


def refusing(b, n=1000000):
    b.net.refuse = n
    b.refused = lambda: n - b.net.refuse
    return b


def test_connects_and_subscribes_at_the_qos_asked_for():
    b = bench()
    assert b.link.step() is True
    b.broker.publish(b"t", b"one", 2)
    b.broker.publish(b"u/x", b"two", 2)
    b.link.step()
    assert b.got == [(b"t", b"one"), (b"u/x", b"two")]
    assert b.conn.session.subscriptions == {b"t": 1, b"u/#": 2}


def test_subscribes_again_only_when_the_session_was_lost():
    b = bench(first=0)
    b.client.connect(False)
    b.client.disconnect()
    b.make(client_id=b"dev")
    del b.broker.packets[:]
    b.link.client = Persistent(b.client)
    assert b.link.step()
    assert b.kinds() == [CONNECT]  # present: nothing to renew
    b.broker.lose_sessions()
    for _ in range(50):
        b.link.step()
        time.sleep_ms(10)
    assert b.kinds() == [CONNECT, CONNECT, SUBSCRIBE]


def test_a_subscription_that_was_cut_off_is_still_owed():
    b = bench(first=0)
    b.link.client = Persistent(b.client)
    b.broker.when(SUBSCRIBE, CLOSE)
    assert not b.link.step()  # the session is new, SUBSCRIBE came to nothing
    for _ in range(50):
        b.link.step()
        time.sleep_ms(10)
    assert b.client.session_present  # and yet
    assert b.kinds() == [CONNECT, SUBSCRIBE, CONNECT, SUBSCRIBE]


def test_subscribes_in_a_session_whose_beginning_was_not_heard():
    b = bench(first=0)
    b.link.client = Persistent(b.client)
    assert b.link.step()
    b.broker.lose_sessions()
    b.broker.when(CONNECT, CLOSE)  # the session is new, CONNACK that would say so gets lost
    for _ in range(50):
        b.link.step()
        time.sleep_ms(10)
    assert b.client.session_present  # and yet
    assert b.conn.session.subscriptions == {b"t": 1, b"u/#": 2}


def test_no_answer_to_subscribe_blocks_no_longer_than_allowed():
    b = bench(attempt=2)
    b.client.timeout = 30
    b.client._tmo = 30000
    b.broker.when(SUBSCRIBE, DROP, 0)
    start = time.ticks_ms()
    assert not b.link.step()
    assert time.ticks_diff(time.ticks_ms(), start) <= 2 * 2000 + 100


class Persistent:
    """A client whose connect() keeps the session, as one with a store does."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)

    def connect(self, timeout):
        return self._client.connect(False, timeout)


def test_pauses_grow_to_the_longest_and_are_drawn():
    b = refusing(bench(first=1, most=8))
    at = attempts(b, 200000)
    pauses = [at[i + 1] - at[i] for i in range(len(at) - 1)]
    assert max(pauses) <= 8000 + 20
    assert max(pauses[5:]) > 4000  # the bound did grow
    assert min(pauses[5:]) < 2000  # evenly from 0, not a fixed step
    # 8 s at most, 4 s in the mean: some 50 attempts
    assert 25 < len(at) < 100


def test_a_short_connection_does_not_shorten_the_pauses():
    b = bench(first=1, most=64, stable=30)
    for _ in range(8):
        while not b.link.step():
            time.sleep_ms(100)
        b.net.cut()
        b.link.step()
    assert b.link._backoff._bound == 64000


def test_a_connection_that_lasted_starts_the_pauses_anew():
    b = bench(first=1, most=64, stable=30)
    b.link._backoff._bound = 64000
    assert b.link.step()
    for _ in range(310):
        b.link.step()
        time.sleep_ms(100)
    b.net.cut()
    assert not b.link.step()
    assert b.link._backoff._bound == 2000  # the bound of the pause after next


def test_a_refused_login_is_kept_as_the_reason():
    b = bench()
    b.broker.refuse = 5
    assert not b.link.step()
    assert b.link.error.reason == 5
    assert not b.client.connected


def test_no_memory_to_connect_passes_on_and_makes_a_pause():
    def short(host, port, timeout_ms):
        tries.append(time.ticks_ms())
        raise MemoryError

    b = bench(first=16, most=16)
    b.client.connector = short
    tries = []
    start = time.ticks_ms()
    while time.ticks_diff(time.ticks_ms(), start) < 200000:
        due = len(tries)
        try:
            b.link.step()
        except MemoryError as e:
            assert b.link.error is e
        assert len(tries) - due < 2
        time.sleep_ms(100)
    assert 10 < len(tries) < 70, len(tries)  # 8 s on average


def test_what_the_callback_raises_passes_on():
    b = bench()
    b.link.step()

    def callback(topic, msg):
        raise KeyError("application")

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"x", 1)
    raises(KeyError, b.link.step)
    b.client.set_callback(None)
    for _ in range(200):
        time.sleep_ms(10)
        b.link.step()
    assert b.client.connected


def passes_on(error):
    b = bench(first=0)
    b.link.client = Persistent(b.client)
    b.link.step()
    b.disturb(thrower(error))
    assert raises(type(error), b.link.step) is error
    assert b.link.error is error
    assert not b.client.connected
    for _ in range(5):
        b.link.step()  # the network's errors stay here
    assert b.got == 2 * [(b"t", b"x")]


def test_an_oserror_of_the_callback_passes_on():
    for error in (OSError(2), OSError(103), OSError(104), MQTTException(18)):
        passes_on(error)


def test_a_link_that_dies_under_the_callback_is_the_networks():
    b = bench(first=0)
    b.link.client = Persistent(b.client)
    b.link.step()

    def act():
        b.net.stream.end()
        b.client.publish(b"answer", b"x")

    b.disturb(act)
    assert not b.link.step()
    assert isinstance(b.link.error, OSError)
    for _ in range(5):
        b.link.step()
    assert b.got == 2 * [(b"t", b"x")]


def test_an_answer_that_finds_no_room_in_the_store_passes_on():
    b = Bench(store=RAMStore(256))
    b.link = Reconnect(b.client, [(b"t", 1)], first=1, most=1)
    b.link.step()
    b.client.disconnect()
    b.broker.publish(b"t", b"x", 1)  # waits, and comes before what acknowledges ours

    def answer(topic=b"", msg=b""):
        b.client.publish(b"answer", bytes(40), qos=1, wait=False)

    while True:
        try:
            answer()
        except MQTTException:
            break
    b.client.set_callback(answer)
    seen = 0
    for _ in range(300):
        try:
            b.link.step()
        except MQTTException as e:
            assert e.reason == STORE_FULL and b.link.error is e
            assert not b.client.connected
            seen += 1
        time.sleep_ms(10)
    assert 1 < seen < 30, seen  # with the pauses of other failures
