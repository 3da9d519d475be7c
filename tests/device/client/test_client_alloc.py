"""What the client takes from the heap after connect(): nothing, whatever it sends.

Knows: MicroPython's heap counters.  Must not know: how the client avoids allocation.
Each operation is shown three ways: under heap_lock(); no bytes left behind (gc.mem_alloc); and no
bytes taken even for a moment (micropython.mem_total), which a frame too large for the stack does.
"""
# only: micropython
# also: micropython32

import gc
import struct
import sys

import machine
import micropython
import softtimer
from broker_stream import Echo
from strict_broker import publish
from umqtt_min import MQTTClient, RAMStore

TIMES = 20
TWO_VIEWS = 8 * struct.calcsize("P")  # bytes: each has four words


def connected(**options):
    """A client on a stream that allocates nothing."""
    echo = Echo()
    settings = {"keepalive": 60, "timer": False, "connector": echo.connect}
    settings.update(options)
    client = MQTTClient(b"dev", "broker", **settings)
    client.set_callback(_ignore)
    client.connect()
    return client, echo


def _ignore(topic, msg):
    pass


def locked(function):
    """Run it with the heap locked; never leaves it locked."""
    micropython.heap_lock()
    try:
        function()
    finally:
        micropython.heap_unlock()


def allocates(function):
    """(bytes left, bytes taken) per call, after one call to warm up."""
    function()
    gc.collect()
    gc.disable()
    taken = micropython.mem_total()
    left = gc.mem_alloc()
    for _ in range(TIMES):
        function()
    left = gc.mem_alloc() - left
    taken = micropython.mem_total() - taken
    gc.enable()
    return left // TIMES, taken // TIMES


def nothing(function):
    """It allocates nothing, shown all three ways."""
    left, taken = allocates(function)
    assert (left, taken) == (0, 0), "bytes left %d, taken %d" % (left, taken)
    locked(function)


def test_the_meter_sees_what_allocates():
    kept = []
    assert allocates(lambda: kept.append(bytes(100)))[0] >= 100
    left, taken = allocates(lambda: bytes(100))
    assert taken >= 100
    try:
        locked(lambda: bytes(100))
    except MemoryError:
        return
    raise AssertionError("heap_lock() did not show it")


def test_the_stream_itself_allocates_nothing():
    echo = Echo()
    data = publish(4, b"t", b"x", 1, pid=1)
    buf = bytearray(16)

    def go():
        echo.write(data, 0, len(data))
        echo.readinto(buf)

    nothing(go)


def test_whatever_is_published_in_turn():
    # As firmware does that keeps a view for each length of a record, and more than one topic.
    client, echo = connected()
    record = memoryview(bytearray(120))
    messages = [record[:n] for n in (0, 78, 79, 80)] + [b"x" * 50, bytearray(90), b"", b"y"]
    topics = (b"a/topic", memoryview(b"another/topic"), bytearray(b"b"), b"t" * 90)

    every = [(t, m, qos) for t in topics for m in messages for qos in (0, 1, 2)]

    def send(one):
        client.publish(one[0], one[1], False, one[2])

    def go():
        for one in every:
            send(one)

    nothing(go)


def test_publish():
    client, echo = connected()
    args = (b"a/topic", b"x" * 50)

    def plain(qos):
        return lambda: client.publish(args[0], args[1], False, qos)

    def retained(qos):
        return lambda: client.publish(args[0], args[1], retain=True, qos=qos)

    for qos in (0, 1, 2):
        before = echo.publishes
        nothing(plain(qos))
        assert echo.publishes - before == TIMES + 2
        nothing(retained(qos))


def test_publish_with_a_topic_of_another_kind():
    client, echo = connected()
    topic = bytearray(b"a/topic")
    nothing(lambda: client.publish(topic, b"x"))
    one, two = b"one", b"two"

    def turns():
        client.publish(one, b"x")
        client.publish(two, b"x")

    nothing(turns)


def test_a_prepared_publisher():
    client, echo = connected()
    publish = client.publisher(b"a/topic")
    for payload in (b"x" * 50, b"x" * 200):
        nothing(lambda p=payload: publish(p))


def test_publish_larger_than_the_buffer():
    client, echo = connected()
    msg = bytearray(1000)
    nothing(lambda: client.publish(b"t", msg))


def test_ping_and_idle_check():
    timer = machine.Timer(-1)
    client, echo = connected(timer=timer)
    nothing(client.ping)
    nothing(client.check_msg)
    nothing(timer.fire)

    def late():
        softtimer.jump(31000)
        timer.fire()
        client.check_msg()

    pings = echo.pings
    nothing(late)
    assert echo.pings - pings == TIMES + 2


def test_the_first_ticks_of_a_connection():
    # A timer's callback may be the first to meet anything.
    for _ in range(3):
        timer = machine.Timer(-1)
        client, echo = connected(timer=timer)
        locked(timer.fire)
        softtimer.jump(31000)
        locked(timer.fire)
        locked(timer.fire)
        assert client.connected and echo.pings == 1
        client.check_msg()
        client.disconnect()


def test_acknowledgements_and_releases_of_what_is_received():
    client, echo = connected()
    client.set_callback(None)
    duplicate = publish(4, b"t", b"x", 2, dup=True, pid=7)
    echo.push(publish(4, b"t", b"x", 2, pid=7))
    client.check_msg()

    def again():
        echo.push(duplicate)
        client.check_msg()

    nothing(again)


def test_views_cost_at_most_two_views():
    client, echo = connected()
    seen = [0, 0]

    def callback(topic, payload, flags, left):
        seen[0] += 1
        seen[1] += len(payload)

    client.set_view_callback(callback)
    for n in (0, 10, 200):
        packet = publish(4, b"a/topic", b"x" * n)

        def receive(packet=packet):
            echo.push(packet)
            client.check_msg()

        left, taken = allocates(receive)
        assert left <= TWO_VIEWS, (n, left)
        assert taken <= TWO_VIEWS, (n, taken)
    assert seen[0] == 3 * (TIMES + 1)
    assert seen[1] == 210 * (TIMES + 1)


class Long(Echo):
    """An Echo that plays one long PUBLISH; the bytes of its payload are whatever was there."""

    left = 0

    def begin(self, n):
        head = publish(4, b"t", b"x" * n)
        self.left = len(head) - 10
        self.push(head[:10])

    def readinto(self, buf, n=-1):
        if self._pending or self._times:
            return Echo.readinto(self, buf)
        n = min(len(buf), n if n >= 0 else self.left, self.left)
        self.left -= n
        return n or None

    def ready(self, mask):
        return mask


def test_long_messages_as_views_cost_the_same_per_piece_whatever_their_size():
    echo = Long()
    client = MQTTClient(
        b"dev", "broker", keepalive=60, timer=False, connector=echo.connect, max_message=100
    )
    pieces = [0, 0]

    def callback(topic, payload, flags, left):
        pieces[0] += 1
        pieces[1] += len(payload)

    client.set_view_callback(callback)
    client.connect()
    costs = []
    for n in (2000, 2000, 20000):
        echo.begin(n)
        pieces[0] = pieces[1] = 0
        taken = micropython.mem_total()
        while pieces[1] < n:
            client.check_msg()
        costs.append((micropython.mem_total() - taken, pieces[0]))
    short, long = costs[1:]
    more = (long[0] - short[0]) // (long[1] - short[1])
    assert short[0] <= 2300 and more <= 96, (costs, more)  # three views a piece, not more


def test_an_idle_check_with_a_durable_inbox_takes_nothing():
    echo = Echo()
    settings = {"keepalive": 60, "timer": False, "connector": echo.connect}
    client = MQTTClient(b"dev", "broker", durable_inbox=RAMStore(), **settings)
    client.set_callback(_ignore)
    client.connect()
    assert allocates(client.check_msg) == (0, 0)
    locked(client.check_msg)


def test_a_second_connect_loads_nothing():
    """What it takes are its packet and its poll object: no code, least of all on a bad link."""
    for options in ({}, {"store": RAMStore()}):
        client, echo = connected(**options)
        modules = len(sys.modules)
        client.disconnect()
        taken = micropython.mem_total()
        client.connect()
        taken = micropython.mem_total() - taken
        assert taken < 400 * struct.calcsize("P"), taken
        assert len(sys.modules) == modules
