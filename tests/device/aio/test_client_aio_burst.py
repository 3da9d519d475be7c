"""The asyncio face under a burst of more messages than it has room for, while a task awaits an
acknowledgement that stands behind them: it goes on, in bounded room, and loses nothing but QoS 0.

Knows: the strict broker, which sends all that it has at once.  Must not know: where messages wait
in the client.
"""
# heap: 3M
# deadline: 90

import asyncio

from aio_bench import error, eventually, run, take
from strict_broker import HOLD
from strict_wire import CONNECT, PUBLISH, SUBSCRIBE
from umqtt_min.errors import STORE_FULL, TIMEOUT, MQTTException
from umqtt_min.store.ram import RAMStore


def numbers(n):
    return [b"%d" % i for i in range(n)]


def burst(b, n, qos):
    """n messages at once; qos: of all of them, or a function of the number of each."""
    for i in range(n):
        b.broker.publish(b"t", b"%d" % i, qos(i) if callable(qos) else qos)


class Room:
    """How many messages the client has received and the test has not been given."""

    def __init__(self, b):
        self.b = b
        self.given = self.most = 0

    def look(self):
        waiting = self.b.client.counters.received - self.given - self.b.client.dropped
        self.most = max(self.most, waiting)

    async def watch(self):
        while True:
            self.look()
            await asyncio.sleep(0)


async def answer_all(b, last, qos=1):
    """Answer each message from the body of the loop, to the last one; the payloads, and the most
    that ever waited."""
    room = Room(b)
    watching = asyncio.create_task(room.watch())
    got = []
    async for _, msg in b.client:
        room.given += 1
        await b.client.publish("answer", msg, qos=qos)
        got.append(msg)
        if msg == last:
            break
    b.client.handled()
    watching.cancel()
    return got, room.most


def test_of_qos_0_the_oldest_go():
    async def test(b):
        await b.client.subscribe("t", 0)
        burst(b, 300, 0)
        got, most = await answer_all(b, b"299")
        assert got == sorted(got, key=int)
        assert len(got) + b.client.dropped == 300 and len(got) >= 64
        assert got[-64:] == numbers(300)[-64:]
        assert b.broker.payloads() == got and most <= 65, most
        assert b.broker.count(CONNECT) == 1

    run(test)


def all_answered(qos, n=300, **options):
    async def test(b):
        await b.client.connect(False)
        await b.client.subscribe("t", 2)
        burst(b, n, qos)
        got, most = await answer_all(b, b"%d" % (n - 1))
        assert got == numbers(n), got
        assert b.broker.payloads() == got and not b.client.dropped
        assert most <= 8 * options.get("queue", 8) + 1, most
        await eventually(lambda: not b.net.stream.conn.session.outgoing)
        assert b.broker.count(SUBSCRIBE) == 1  # the sessions were kept

    return run(test, **options)


def test_of_qos_1_all_are_answered():
    b = all_answered(1)
    assert b.broker.count(CONNECT) > 2  # what found no room came again


def test_of_qos_2_all_are_answered():
    all_answered(2)


def test_qos_1_and_2_with_a_queue_of_one():
    all_answered(lambda i: 1 + i % 2, 100, queue=1)


def test_qos_1_among_qos_0():
    async def test(b):
        await b.client.connect(False)
        await b.client.subscribe("t", 1)
        burst(b, 300, lambda i: i % 3 == 0)
        got, _ = await answer_all(b, b"297", 2)
        assert [m for m in got if int(m) % 3 == 0] == numbers(300)[::3]

    run(test)


def test_where_they_would_not_come_again_they_are_kept():
    for clean, reconnect in ((True, {}), (False, False)):

        async def test(b, clean=clean):
            await b.client.connect(clean)
            await b.client.subscribe("t", 1)
            burst(b, 150, 1)
            got, _ = await answer_all(b, b"149")
            assert got == numbers(150)
            assert b.broker.count(CONNECT) == 2

        run(test, reconnect=reconnect)


def test_flush_in_the_body():
    async def test(b):
        await b.client.subscribe("t", 0)
        b.broker.when(PUBLISH, HOLD)
        try:
            await b.client.publish("u", "x", qos=1, timeout=0.05)
        except MQTTException as e:
            assert e.reason == TIMEOUT
        burst(b, 300, 0)
        await take(b.client, 1)
        b.broker.release()
        assert await b.client.flush()

    run(test)


def test_a_store_that_is_full_in_the_body():
    async def test(b):
        await b.client.subscribe("t", 0)
        b.broker.when(PUBLISH, HOLD, 0)
        e = None
        while not (e and e.reason == STORE_FULL):
            e = await error(b.client.publish("u", bytes(200), qos=1, timeout=0), MQTTException)
            assert e.reason in (TIMEOUT, STORE_FULL)
        burst(b, 300, 0)
        await take(b.client, 1)
        b.broker.behave()
        b.broker.release()
        await b.client.publish("u", bytes(200), qos=1)

    run(test, store=RAMStore(1024))


def test_another_task_publishes_while_nobody_takes():
    async def test(b):
        await b.client.connect(False)
        await b.client.subscribe("t", 1)
        burst(b, 100, 1)
        await eventually(lambda: b.client.counters.received == 2)
        for i in range(5):
            await b.client.publish("u", b"%d" % i, qos=1 + i % 2)
        await b.client.subscribe("v", 1)
        assert b.broker.count(CONNECT) == 2
        assert await take(b.client, 100) == numbers(100)

    run(test, queue=2)


def test_what_finds_no_room_takes_none_from_qos_0():
    async def test(b):
        await b.client.connect(False)
        await b.client.subscribe("t", 1)
        b.broker.when(PUBLISH, HOLD, 0)
        waiting = asyncio.create_task(b.client.publish("u", "x", qos=1))
        burst(b, 9, 1)
        await eventually(lambda: b.client.counters.received == 8 and not b.net.stream.conn.out)
        got = await take(b.client, 2)
        burst(b, 2, 0)
        burst(b, 5, 1)
        await eventually(lambda: not b.net.stream.conn.out and not b.client.core._rx.peek())
        assert b.client.dropped == 0
        b.broker.behave()
        b.broker.release()
        await waiting
        got += await take(b.client, 14)
        assert got == numbers(8) + numbers(2) + numbers(9)[8:] + numbers(5)

    run(test, queue=1)


def test_a_link_lost_with_messages_that_found_no_room():
    async def test(b):
        await b.client.connect(False)
        await b.client.subscribe("t", 2)
        burst(b, 100, lambda i: 1 + i % 2)
        got = []
        async for _, msg in b.client:
            await b.client.publish("answer", msg, qos=1)
            got.append(msg)
            if len(got) in (5, 30):
                n = b.client.counters.connects
                b.net.cut()
                await eventually(lambda n=n: b.client.counters.connects > n)
            if len(got) == 100:
                break
        assert got == numbers(100)

    run(test, queue=2)


def test_an_answer_that_is_not_waited_for():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(PUBLISH, HOLD, 0)  # as rumqttd, which first wants its own acknowledged
        burst(b, 20, 1)
        async for _, msg in b.client:
            assert await b.client.publish("answer", msg, qos=1, wait=False)
            if msg == b"19":
                break
        b.client.handled()
        await eventually(lambda: not b.net.stream.conn.session.outgoing)
        assert b.client.inflight() == 20
        b.broker.behave()
        b.broker.release()
        assert await b.client.flush() and b.broker.payloads() == numbers(20)

    run(test)


def test_who_waits_for_what_the_broker_holds_back_is_told():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(PUBLISH, HOLD)
        burst(b, 3, 1)
        await take(b.client, 1)
        e = await error(b.client.publish("u", "x", qos=1, timeout=0.2), MQTTException)
        assert (e.reason, e.stored) == (TIMEOUT, True)
        assert "3 are acknowledged: see wait=" in str(e), e

    run(test)
