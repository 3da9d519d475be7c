"""aio.MQTTClient: what a task awaits, what happens to it when the link, the broker or a task ends.

Knows: the strict broker over in-memory streams, asyncio.  Must not know: how the tasks of the
client are arranged.  The clock is real; every wait has a deadline.
"""
# heap: 2M
# deadline: 60

import asyncio

from aio_bench import SECONDS, Bench, error, eventually, run, take
from strict_broker import CLOSE, DROP, HOLD
from strict_wire import CONNECT, PINGREQ, PUBLISH, SUBSCRIBE
from umqtt_min import DROP_OLDEST
from umqtt_min.aio import MQTTClient
from umqtt_min.errors import (
    GIVEN_UP,
    LOST,
    NOT_CONNECTED,
    SUBSCRIBE_REFUSED,
    TIMEOUT,
    MQTTException,
)
from umqtt_min.store.ram import RAMStore


def test_publish_returns_when_it_is_acknowledged():
    async def test(b):
        for qos in (0, 1, 2):
            pid = await b.client.publish("t", "qos %d" % qos, False, qos)
            assert b.broker.payloads()[-1] == b"qos %d" % qos
            assert bool(pid) == (qos > 0)
            assert b.client.inflight() == 0

    run(test)


def test_publish_does_not_return_before():
    async def test(b):
        b.broker.when(PUBLISH, HOLD)
        task = asyncio.create_task(b.client.publish("t", "x", qos=1))
        await eventually(lambda: b.broker.held)
        await asyncio.sleep(0.3)
        assert not task.done()
        b.broker.release()
        assert await task == b.broker.publishes[0].pid

    run(test)


def test_many_tasks_publish_at_once():
    async def one(b, i):
        await b.client.publish("t", b"%d" % i, qos=i % 3)

    async def test(b):
        await asyncio.gather(*[one(b, i) for i in range(60)])
        assert sorted(b.broker.payloads()) == sorted([b"%d" % i for i in range(60)])
        # Within a QoS in the order of the calls.
        for qos in (1, 2):
            sent = [m.payload for m in b.broker.publishes if m.qos == qos]
            assert sent == [b"%d" % i for i in range(qos, 60, 3)]

    run(test)


def test_a_store_that_is_full_is_waited_for():
    async def test(b):
        b.broker.when(PUBLISH, HOLD)
        tasks = [asyncio.create_task(b.client.publish("t", bytes(30), qos=1)) for _ in range(20)]
        await eventually(lambda: b.broker.held)
        await asyncio.sleep(0.2)
        b.broker.release()
        await asyncio.gather(*tasks)
        assert len(b.broker.payloads()) == 20

    run(test, store=RAMStore(1024), window=2)


def test_a_message_that_the_store_drops_is_not_waited_for():
    async def test(b):
        b.broker.when(PUBLISH, HOLD)
        late = b.client.publish("t", "x", qos=1, timeout=4 * SECONDS)
        oldest = asyncio.create_task(error(late, MQTTException))
        await eventually(lambda: b.broker.held)
        for _ in range(40):
            await b.client.publish("t", "y" * 100, qos=1, wait=False)
        await eventually(oldest.done)
        e = await oldest
        assert e.reason == GIVEN_UP and not e.stored
        b.broker.release()

    run(test, store=RAMStore(2000, policy=DROP_OLDEST))


def test_messages_come_in_order():
    async def test(b):
        assert await b.client.subscribe([("a/#", 1), ("b", 2)]) == [1, 2]
        for i in range(12):
            b.broker.publish(b"a/x" if i % 2 else b"b", b"%d" % i, i % 3)
        assert await take(b.client, 12) == [b"%d" % i for i in range(12)]

    run(test)


def test_nothing_is_dropped_when_nobody_takes_the_messages():
    async def test(b):
        await b.client.subscribe("t", 2)
        for i in range(30):
            b.broker.publish(b"t", b"%d" % i, i % 3)
        await eventually(lambda: b.client.counters.received == 3)
        await asyncio.sleep(0.3)
        assert b.client.counters.received == 3
        assert await take(b.client, 30) == [b"%d" % i for i in range(30)]

    run(test, queue=3)


def test_the_link_stays_alive_while_nobody_takes_the_messages():
    async def test(b):
        await b.client.subscribe("t", 1)
        for i in range(10):
            b.broker.publish(b"t", b"%d" % i, 1)
        await eventually(lambda: b.broker.count(PINGREQ) >= 3)
        assert len(await take(b.client, 10)) == 10
        assert b.broker.count(CONNECT) == 1

    run(test, queue=2, keepalive=1)


def test_the_body_of_the_loop_may_publish():
    async def test(b):
        await b.client.subscribe("t", 1)
        for i in range(20):
            b.broker.publish(b"t", b"%d" % i, 1)
        n = 0
        async for _, msg in b.client:
            await b.client.publish("answer", msg, qos=1 + n % 2)
            n += 1
            if n == 20:
                break
        assert b.broker.payloads() == [b"%d" % i for i in range(20)]

    run(test, queue=3)


def waiting(b, n):
    """Subscribe, and leave while n messages come: they are the session's."""

    async def test():
        await b.client.connect(False)
        await b.client.subscribe("t", 1)
        await b.client.disconnect()
        for i in range(n):
            b.broker.publish(b"t", b"%d" % i, 1)
        await b.client.connect(False)

    return test()


def test_a_subscription_is_answered_behind_what_has_waited():
    async def test(b):
        await waiting(b, 20)
        await b.client.subscribe("t", 1)
        assert await take(b.client, 20) == [b"%d" % i for i in range(20)]

    run(test, queue=3)


def test_a_subscription_behind_more_messages_than_there_is_room_for():
    async def test(b):
        await waiting(b, 20)
        await b.client.subscribe("t", 1)
        assert await take(b.client, 20) == [b"%d" % i for i in range(20)]

    run(test, queue=2)


def test_a_long_message():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.publish(b"t", b"z" * 5000, 1)
        assert await take(b.client, 1) == [b"z" * 5000]
        await b.client.publish("u", b"y" * 5000)
        assert b.broker.payloads()[-1] == b"y" * 5000

    run(test)


def test_the_link_is_made_again():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(PUBLISH, DROP)
        task = asyncio.create_task(b.client.publish("u", "x", qos=1))
        await eventually(lambda: b.broker.publishes)
        b.net.refuse = 2
        b.net.cut()
        await task
        assert [m.dup for m in b.broker.publishes] == [False, True]
        b.broker.publish(b"t", b"back", 1)
        assert await take(b.client, 1) == [b"back"]
        assert b.broker.count(SUBSCRIBE) == 1  # the broker kept the session

    run(test)


def test_subscriptions_are_renewed_when_the_session_was_lost():
    async def test(b):
        await b.client.subscribe([("t", 1), ("u", 2), ("v", 0)])
        await b.client.unsubscribe("v")
        b.broker.lose_sessions()
        await eventually(lambda: b.broker.count(SUBSCRIBE) == 2, "a second SUBSCRIBE")
        b.broker.publish(b"u", b"back", 2)
        assert await take(b.client, 1) == [b"back"]
        assert b.net.stream.conn.session.subscriptions == {b"t": 1, b"u": 2}

    run(test)


def test_a_renewal_that_fails_is_made_again_although_the_session_is_there():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(SUBSCRIBE, CLOSE)
        b.broker.lose_sessions()
        await eventually(lambda: b.broker.count(CONNECT) == 3, "a third connection")
        await eventually(lambda: b.broker.count(SUBSCRIBE) == 3, "a third SUBSCRIBE")
        b.broker.publish(b"t", b"back", 1)
        assert await take(b.client, 1) == [b"back"]

    run(test)


def test_subscriptions_are_renewed_in_a_session_whose_beginning_was_not_heard():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(CONNECT, CLOSE)  # the session is new, CONNACK that would say so gets lost
        b.broker.lose_sessions()
        await eventually(lambda: b.broker.count(CONNECT) == 3, "a third connection")
        await eventually(lambda: b.broker.count(SUBSCRIBE) == 2, "a second SUBSCRIBE")
        b.broker.publish(b"t", b"back", 1)
        assert await take(b.client, 1) == [b"back"]

    run(test)


def test_publish_without_a_link_waits_for_it():
    async def test(b):
        b.net.refuse = 3
        b.net.cut()
        await eventually(lambda: not b.client.connected)
        pids = await asyncio.gather(
            b.client.publish("t", "1", qos=1), b.client.publish("t", "0")
        )  # fmt: skip
        assert pids[0] and pids[1] is None
        assert sorted(b.broker.payloads()) == [b"0", b"1"]

    run(test)


def test_time_is_over_and_the_message_stays_stored():
    async def test(b):
        b.broker.when(PUBLISH, HOLD)
        e = await error(b.client.publish("t", "x", qos=1, timeout=0.2), MQTTException)
        assert (e.reason, e.stored) == (TIMEOUT, True)
        assert b.client.inflight() == 1
        b.broker.release()
        assert await b.client.flush()
        assert b.broker.payloads() == [b"x"]

    run(test)


def test_a_task_that_is_cancelled_leaves_its_message_in_the_store():
    async def test(b):
        b.broker.when(PUBLISH, HOLD)
        task = asyncio.create_task(b.client.publish("t", "x", qos=1))
        await eventually(lambda: b.broker.held)
        task.cancel()
        await error(task, asyncio.CancelledError)
        assert not await b.client.flush(0.1)
        b.broker.release()
        assert await b.client.flush()

    run(test)


def test_a_consumer_that_is_cancelled_loses_nothing():
    async def test(b):
        await b.client.subscribe("t", 1)
        task = asyncio.create_task(take(b.client, 1))
        await asyncio.sleep(0.05)
        task.cancel()
        await error(task, asyncio.CancelledError)
        b.broker.publish(b"t", b"x", 1)
        assert await take(b.client, 1) == [b"x"]

    run(test)


def calls(client):
    """Every coroutine of a client that is connected, by name."""
    return {
        "publish 0": lambda: client.publish("t", "x"),
        "publish 1": lambda: client.publish("t", "x", qos=1),
        "publish 2": lambda: client.publish("t", "x", qos=2),
        "publish long": lambda: client.publish("t", "x" * 1000, qos=1),
        "subscribe": lambda: client.subscribe("u", 1),
        "unsubscribe": lambda: client.unsubscribe("u"),
        "flush": client.flush,
        "next": client.__anext__,
        "connect": client.connect,
        "disconnect": client.disconnect,
    }


async def cancelled(coroutine, naps):
    """Start it, cancel it after so many looks of the loop, await its end."""
    task = asyncio.create_task(coroutine)
    for _ in range(naps):
        await asyncio.sleep(0.002)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


async def goes_on(b, what):
    """The client does all that it did."""
    if not b.client.connected or not b.client._runner:
        await b.client.connect()
    await b.client.subscribe("after", 1)
    await b.client.publish("after", what, qos=2)
    assert await take(b.client, 1) == [what.encode()]
    assert await b.client.flush()
    await b.client.unsubscribe("after")
    assert not b.client._waiters


def test_a_call_that_is_cancelled_at_any_await_leaves_the_client_as_it_was():
    for name in calls(MQTTClient("dev", "broker")):

        async def test(b, name=name):
            for naps in (0, 1, 3):
                b.net.write_stalls = naps % 2 * 3
                await cancelled(calls(b.client)[name](), naps)
                await goes_on(b, "%s %d" % (name, naps))

        run(test)


def test_an_iteration_that_waits_ends_with_disconnect_from_another_task():
    async def test(b):
        await b.client.subscribe("t", 1)
        waiting = [asyncio.create_task(take(b.client, 1)) for _ in range(2)]
        await asyncio.sleep(0.02)
        await b.client.disconnect()
        for task in waiting:
            assert await asyncio.wait_for(task, SECONDS) is None
        assert await take(b.client, 1) is None

    run(test)


def test_disconnect_ends_the_loop_and_the_tasks():
    async def test(b):
        await b.client.subscribe("t", 1)
        consumer = asyncio.create_task(take(b.client, 1))
        b.broker.when(PUBLISH, DROP)
        publisher = asyncio.create_task(b.client.publish("t2", "x", qos=1))
        await eventually(lambda: b.broker.publishes)
        await b.client.disconnect()
        assert await consumer is None
        e = await error(publisher, MQTTException)
        assert (e.reason, e.stored) == (LOST, True)
        await error(b.client.publish("t", "x"), OSError)
        e = await error(b.client.publish("t", "y", qos=1), MQTTException)
        assert (e.reason, e.stored) == (NOT_CONNECTED, True)
        packets = len(b.broker.packets)
        await asyncio.sleep(0.5)
        assert len(b.broker.packets) == packets
        assert await b.client.connect()  # and again: what is stored is sent
        assert await b.client.flush()
        assert b.broker.payloads()[-2:] == [b"x", b"y"]

    run(test)


def test_without_reconnection_every_task_hears_of_the_end():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.when(PUBLISH, DROP)
        consumer = asyncio.create_task(take(b.client, 1))
        publisher = asyncio.create_task(b.client.publish("u", "x", qos=1))
        await eventually(lambda: b.broker.publishes)
        b.net.cut()
        await error(consumer, OSError)
        e = await error(publisher, MQTTException)
        assert (e.reason, e.stored) == (LOST, True)
        await error(b.client.publish("u", "y"), OSError)
        await error(b.client.subscribe("v"), OSError)
        assert b.broker.count(CONNECT) == 1
        await b.client.connect()
        assert await b.client.flush()
        assert b.broker.payloads() == [b"x", b"x"]  # sent once more, the broker did not answer

    run(test, reconnect=False)


def test_what_was_received_before_the_end_is_handed_out_first():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.publish(b"t", b"x", 0)
        await eventually(lambda: b.client.counters.received)
        b.net.cut()
        await eventually(lambda: not b.client.connected)
        assert await take(b.client, 1) == [b"x"]
        await error(take(b.client, 1), OSError)

    run(test, reconnect=False)


def test_the_first_connection_is_one_attempt():
    b = Bench()

    async def main():
        b.net.refuse = 1
        await error(b.client.connect(), OSError)
        await error(b.client.publish("t", "x"), OSError)
        b.broker.refuse = 5
        assert (await error(b.client.connect(), MQTTException)).reason == 5
        b.broker.refuse = 0
        async with b.client as c:
            await c.publish("t", "x", qos=1)
        assert b.net.stream.closed

    asyncio.run(main())
    asyncio.new_event_loop()


def test_a_refused_subscription_is_an_error_of_the_task_that_asked():
    async def test(b):
        b.broker.refused_filters.append(b"secret")
        e = await error(b.client.subscribe([("t", 1), ("secret", 1)]), MQTTException)
        assert (e.reason, e.detail) == (SUBSCRIBE_REFUSED, b"secret")
        assert await b.client.subscribe("t", 2) == 2
        await error(b.client.subscribe("a/#/b"), ValueError)

    run(test)


def test_a_filter_that_was_granted_beside_a_refused_one_is_renewed():
    async def test(b):
        b.broker.refused_filters.append(b"no")
        await error(b.client.subscribe([("yes", 1), ("no", 1)]), MQTTException)
        b.broker.lose_sessions()
        await eventually(lambda: b.broker.count(SUBSCRIBE) == 2, "the renewal")
        b.broker.publish(b"yes", b"x", 1)
        assert await take(b.client, 1) == [b"x"]

    run(test)


def test_a_consumer_hears_of_a_second_connect_that_fails():
    async def test(b):
        await b.client.subscribe("t", 1)
        task = asyncio.create_task(take(b.client, 1))
        await asyncio.sleep(0.01)
        b.broker.when(CONNECT, CLOSE)
        await error(b.client.connect(), MQTTException)
        assert await asyncio.wait_for(task, SECONDS) is None

    run(test)


def test_no_memory_for_a_renewal_makes_another_connection():
    async def test(b):
        await b.client.subscribe("t", 1)
        ask = b.client.core.ask

        def failing(*args):
            b.client.core.ask = ask
            raise MemoryError

        b.client.core.ask = failing
        b.broker.lose_sessions()
        await eventually(lambda: b.broker.count(SUBSCRIBE) == 2, "the renewal")
        b.broker.publish(b"t", b"x", 1)
        assert await take(b.client, 1) == [b"x"]

    run(test)


def test_subscribing_has_an_end():
    async def test(b):
        b.broker.when(SUBSCRIBE, DROP)
        e = await error(b.client.subscribe("t", timeout=0.2), MQTTException)
        assert e.reason == TIMEOUT
        b.broker.when(SUBSCRIBE, CLOSE)
        await error(b.client.subscribe("t"), OSError)
        assert await b.client.subscribe("t", 1) == 1  # it waited for the new connection

    run(test)


def test_two_tasks_subscribe_at_once():
    async def test(b):
        qos = await asyncio.gather(b.client.subscribe("t", 1), b.client.subscribe("u", 2))
        assert list(qos) == [1, 2]

    run(test)


def test_a_link_that_takes_nothing_does_not_block_the_loop():
    async def test(b):
        b.net.write_stalls = 1000000
        for qos in (0, 1):
            task = asyncio.create_task(b.client.publish("t", b"x%d" % qos, qos=qos))
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not task.done()
            b.net.write_stalls = 0
            await task
            b.net.write_stalls = 1000000
        b.net.write_stalls = 0
        assert b.broker.payloads() == [b"x0", b"x1"]
        assert b.client.counters.stall == 0  # no call of the core stood still

    run(test)


def test_no_answer_request_or_long_message_blocks_the_loop_on_such_a_link():
    async def test(b):
        await b.client.subscribe("t", 1)
        b.broker.publish(b"t", b"m", 1)
        jobs = [
            lambda: take(b.client, 1),
            lambda: b.client.subscribe("u", 1),
            lambda: b.client.publish("v", bytes(1000)),
            lambda: b.client.publish("v", bytes(2000), qos=1),
        ]
        for job in jobs:
            b.net.write_stalls = 1000000
            task = asyncio.create_task(job())
            for _ in range(8):
                await asyncio.sleep(0.01)
            b.net.write_stalls = 0
            await task
        assert b.client.counters.stall == 0
        assert [len(p) for p in b.broker.payloads()] == [1000, 2000]

    run(test)


def stalls_after(b, n):
    """The next write takes n bytes, and those after it none until write_stalls is 0."""
    b.net.max_write = n

    def hook(where):
        if where == "written":
            b.net.hook = None
            b.net.write_stalls = 1000000

    b.net.hook = hook


def test_a_publish_that_is_cancelled_while_it_stalls_lets_go_of_the_buffer():
    async def test(b):
        for size in (100, 5000):
            payload = bytearray(b"a" * size)
            stalls_after(b, 50)
            task = asyncio.create_task(b.client.publish("t", payload))
            await eventually(lambda: b.net.write_stalls)
            task.cancel()
            await error(task, asyncio.CancelledError)
            payload[:] = b"b" * size  # it is the caller's again
            b.net.write_stalls = 0
            await b.client.publish("t", "next", qos=1)
            assert b.broker.payloads()[-2:] == [b"a" * size, b"next"]
        assert b.broker.count(CONNECT) == 1

    run(test)


def test_a_publish_of_qos_0_whose_link_ends_half_way_is_an_error():
    async def test(b):
        stalls_after(b, 50)
        task = asyncio.create_task(b.client.publish("t", bytes(1000)))
        await eventually(lambda: b.net.write_stalls)
        b.net.cut()
        b.net.write_stalls = 0
        await error(task, OSError)
        await b.client.publish("t", "next", qos=1)
        assert b.broker.payloads() == [b"next"]

    run(test)


def test_a_link_that_takes_nothing_is_given_up():
    async def test(b):
        b.net.write_stalls = 1000000
        await error(b.client.publish("t", "x", timeout=0.3), OSError)
        assert not b.client.connected
        b.net.write_stalls = 0
        await b.client.publish("t", "y", qos=1)

    run(test)


def test_an_idle_link_is_kept_alive_and_a_dead_one_noticed():
    async def test(b):
        await eventually(lambda: b.broker.count(PINGREQ) >= 2)
        b.net.black_hole = True
        await eventually(lambda: not b.client.connected, "noticing a dead link")
        b.net.black_hole = False
        await b.client.publish("t", "x", qos=1)
        assert b.broker.count(CONNECT) == 2

    run(test, keepalive=1)


def test_a_broker_that_breaks_the_protocol_ends_only_the_connection():
    async def test(b):
        b.net.stream.conn.out.extend(b"\xf0\x00")
        await eventually(lambda: b.broker.count(CONNECT) == 2, "a second connection")
        await b.client.publish("t", "x", qos=2)

    run(test)
