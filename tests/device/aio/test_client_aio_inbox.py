"""When the asyncio face acknowledges a message: the task that took it has come for the next one.

Knows: the strict broker, which checks that acknowledgements are in order.  Must not know: where
messages wait in the client.
"""
# heap: 2M
# deadline: 60

import asyncio

from aio_bench import FAST, Bench, cut, error, eventually, run, take
from strict_wire import PUBACK, PUBREC
from umqtt_min.aio import MQTTClient

NUMBERS = [b"%d" % i for i in range(6)]


async def begin(b, qos=1, n=6):
    """Subscribe; n messages come."""
    await b.client.connect(False)
    await b.client.subscribe("t", qos)
    for i in range(n):
        b.broker.publish(b"t", b"%d" % i, qos)
    await eventually(lambda: b.client.counters.received == n)


def unacknowledged(b):
    return len(b.net.stream.conn.session.outgoing)


def reset_in_the_body(qos, ack):
    async def test(b):
        await begin(b, qos)
        got = []
        async for _, msg in b.client:
            got.append(msg)
            if len(got) == 3:
                break  # the power goes in the body of the third
        assert b.broker.count(ack) == 2
        b.net.stream.end()
        other = MQTTClient("dev", "broker", reconnect=FAST, connector=b.net, keepalive=60)
        assert await other.connect(False) is True
        assert got + await take(other, 4) == NUMBERS[:3] + NUMBERS[2:]
        await other.disconnect()

    run(test)


def test_what_a_reset_finds_in_the_queue_or_in_the_body_comes_again():
    reset_in_the_body(1, PUBACK)
    reset_in_the_body(2, PUBREC)


def links_lost(qos):
    async def test(b):
        await begin(b, qos)
        got = []
        async for _, msg in b.client:
            got.append(msg)
            if len(got) in (2, 4):  # in the body, with others in the queue
                await cut(b)
            if len(got) == 6:
                break
        assert got == NUMBERS and b.client.counters.duplicates
        b.broker.publish(b"t", b"last", qos)
        assert await take(b.client, 1) == [b"last"]
        await eventually(lambda: unacknowledged(b) == 1)

    run(test, queue=8)


def test_a_lost_link_doubles_nothing():
    links_lost(1)
    links_lost(2)


def test_what_is_handled_without_a_link_is_not_given_again():
    async def test(b):
        await begin(b, 2)
        stream = b.net.stream
        b.net.refuse = True
        got = []
        async for _, msg in b.client:
            got.append(msg)
            if not stream.ended:
                stream.end()
                await eventually(lambda: not b.client.connected)
            if len(got) == 6:
                break
        b.net.refuse = False
        await eventually(lambda: b.client.connected)
        b.broker.publish(b"t", b"last", 2)
        assert got + await take(b.client, 1) == NUMBERS + [b"last"]

    run(test)


def test_a_lost_session_takes_no_acknowledgement_of_the_old_one():
    async def test(b):
        await begin(b)
        b.net.stream.end()
        b.broker.lose_sessions()
        await eventually(lambda: b.client.counters.connects == 3)
        await eventually(lambda: b.client.connected)
        await b.client.subscribe("t", 1)
        for i in range(3):  # with identifiers that those in the queue had
            b.broker.publish(b"t", b"%d" % i, 1)
        assert await take(b.client, 9) == NUMBERS + NUMBERS[:3]
        await b.client.disconnect()
        assert b.broker.count(PUBACK) == 3

    run(test, queue=12)


def test_two_tasks_acknowledge_in_order():
    async def test(b):
        await begin(b, 2)
        handled = []

        async def worker(pause):
            async for _, msg in b.client:
                await asyncio.sleep(pause)
                handled.append(msg)

        tasks = [asyncio.create_task(worker(pause)) for pause in (0.3, 0.01)]
        await eventually(lambda: len(handled) == 6)
        assert handled != NUMBERS
        await eventually(lambda: not unacknowledged(b))
        for task in tasks:
            task.cancel()

    run(test)


def test_a_task_that_fails_or_is_cancelled_holds_nobody_up():
    async def test(b):
        await begin(b, 2)
        got = []

        async def worker(wrong):
            async for _, msg in b.client:
                if wrong:
                    raise KeyError(msg)
                got.append(msg)
                if msg == b"3" and got.count(msg) == 1:
                    await asyncio.sleep(60)

        await error(worker(True), KeyError)
        failing = asyncio.create_task(worker(True))
        await eventually(failing.done)
        await error(failing, KeyError)
        cancelled = asyncio.create_task(worker(False))
        await eventually(lambda: b"3" in got)
        cancelled.cancel()
        last = asyncio.create_task(worker(False))
        await eventually(lambda: len(got) >= 6)
        b.client.handled()  # what worker(True) took in this very task
        await eventually(lambda: len(set(got)) == 5 and not unacknowledged(b))
        assert sorted(got) == sorted(NUMBERS[1:] + [b"3"]), got
        last.cancel()

    run(test, queue=12)


def leave(wrong):
    """How many are acknowledged when `async with` ends in the body of the second."""
    b = Bench(reconnect=False)

    async def main():
        async with b.client:
            await b.client.subscribe("t", 1)
            for i in range(3):
                b.broker.publish(b"t", b"%d" % i, 1)
            await take(b.client, 2)
            if wrong:
                raise KeyError("in the body")

    try:
        asyncio.run(main())
    except KeyError:
        assert wrong
    asyncio.new_event_loop()
    return b.broker.count(PUBACK)


def test_what_one_task_has_handled_while_another_holds_up_its_acknowledgement():
    async def test(b):
        await begin(b, 2, 2)
        handled = []

        async def worker():
            async for _, msg in b.client:
                if msg == b"0":
                    await eventually(lambda: b.client.counters.connects >= 4)
                    await asyncio.sleep(0.3)
                handled.append(msg)

        tasks = [asyncio.create_task(worker()) for _ in range(2)]
        await eventually(lambda: handled == [b"1"])
        b.net.cut_after_read = 4  # the next connection carries CONNACK and nothing else
        b.net.stream.end()
        await eventually(lambda: b.client.counters.connects >= 3)
        b.net.cut_after_read = -1
        await cut(b)
        await eventually(lambda: not unacknowledged(b))
        assert handled == [b"1", b"0"]
        for task in tasks:
            task.cancel()

    run(test)


def test_the_end_of_the_block_is_the_end_of_the_body_but_for_an_error():
    assert leave(False) == 2
    assert leave(True) == 1


def test_a_message_that_is_too_long_is_acknowledged_in_its_turn():
    async def test(b):
        await begin(b, 1, 1)
        b.broker.publish(b"t", b"x" * 2000, 1)
        await eventually(lambda: b.client.counters.oversize == 1)
        b.broker.publish(b"t", b"next", 1)
        assert b.broker.count(PUBACK) == 0
        await cut(b)
        assert await take(b.client, 2) == [b"0", b"next"]
        await eventually(lambda: b.broker.count(PUBACK) == 2)

    run(test, max_message=1000)
