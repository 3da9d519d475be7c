"""What a client with a store takes from the heap in the steady state: nothing.

Knows: MicroPython's heap counters.  Must not know: how client and stores avoid allocation.
"""
# only: micropython
# also: micropython32
# heap: 2M

import gc
import struct

import micropython
from broker_stream import Echo
from quiet_flash import Flash
from strict_broker import publish
from umqtt_min import FlashStore, MQTTClient, RAMStore

TIMES = 10
MSG = b"xyz"
RELEASE = b"\x62\x02\x00\x09"


class Broker(Echo):
    """An Echo that may keep its acknowledgements to itself."""

    mute = False
    dups = 0

    def connect(self, host, port, timeout_ms):
        self.say(0x20, 2, 1, 0)  # the session is there
        return self

    def _acknowledge(self, buf, i, op):
        if not self.mute:
            super()._acknowledge(buf, i, op)

    def _publish(self, buf, off):
        self.dups += buf[off] >> 3 & 1
        super()._publish(buf, off)


def clients(hold=False):
    """(client, broker) for each store that allocates nothing."""
    for store in (
        RAMStore(8192, hold),
        FlashStore(Flash(1, 8), hold=hold),
        FlashStore(Flash(256, 8), hold=hold),
    ):
        echo = Broker()
        client = MQTTClient(
            b"dev", "broker", keepalive=60, timer=False, connector=echo.connect, store=store
        )
        client.connect()
        yield client, echo


def taken(f, times=TIMES):
    """(bytes left behind, bytes taken even for a moment) by so many calls."""
    gc.collect()
    gc.disable()
    total = micropython.mem_total()
    left = gc.mem_alloc()
    for _ in range(times):
        f()
    left = gc.mem_alloc() - left
    total = micropython.mem_total() - total
    gc.enable()
    return left, total


def nothing(f):
    f()
    assert taken(f) == (0, 0), taken(f)
    micropython.heap_lock()
    try:
        f()
    finally:
        micropython.heap_unlock()


def test_publish_and_acknowledge():
    for client, echo in clients():
        for qos in (0, 1, 2):

            def go(client=client, qos=qos):
                client.publish(b"a/topic", MSG, False, qos, True)

            def go_on(client=client, qos=qos):
                client.publish(b"a/topic", MSG, False, qos, False)
                client.check_msg()
                client.check_msg()

            before = echo.publishes
            nothing(go)
            nothing(go_on)
            assert echo.publishes - before == 2 * (TIMES + 2)
        assert client.inflight() == 0


def test_ping_and_idle_check():
    for client, _ in clients():
        nothing(client.ping)
        nothing(client.check_msg)


def test_confirm_and_republish():
    for client, _ in clients(hold=True):
        for qos in (1, 2):

            def go(client=client, qos=qos):
                client.publish(b"a/topic", MSG, False, qos, True)
                qos = client.store.seq - 1
                assert client.republish(qos, qos) == 1
                assert client.flush(5)
                assert client.confirm(qos) == 1

            nothing(go)


def test_flush():
    for client, _ in clients():

        def go(client=client):
            client.publish(b"a/topic", MSG, False, 1, False)
            assert client.flush(5)

        nothing(go)


def test_what_is_received_is_acknowledged():
    for client, echo in clients():
        seen = [0]

        def callback(topic, payload, flags, left, seen=seen):
            seen[0] += 1

        client.set_view_callback(callback)
        for qos in (0, 1, 2):
            packet = publish(4, b"a/topic", b"x" * 50, qos, pid=9)

            def receive(client=client, echo=echo, packet=packet):
                echo.push(packet)
                client.check_msg()
                echo.push(RELEASE)
                client.check_msg()

            receive()
            left, total = taken(receive)
            most = 8 * struct.calcsize("P") * TIMES  # two views for each message
            assert left <= most and total <= most, (qos, left, total)
        assert seen[0] == 3 * (TIMES + 1)


def test_redelivery():
    # connect() takes what a connection costs; messages sent again with it add nothing.
    for client, echo in clients():
        echo.mute = True
        costs = []
        for n in (1, 1, 1, 2, 8, 16):
            while client.inflight() < n:
                client.publish(b"a/topic", MSG, qos=1, wait=False)
            client.disconnect()
            dups = echo.dups
            costs.append(taken(client.connect, 1))
            assert echo.dups - dups == n
        # At the first two the tables of names may grow. Loading code may cost a block more or
        # less; one for each message would be 15 more.
        for cost in (0, 1):
            found = [c[cost] for c in costs[2:]]
            assert max(found) - min(found) < 15 * 4 * struct.calcsize("P"), costs
