"""Incoming QoS 2 messages in a store of their own: stored, PUBREC, PUBREL, callback, once.

Knows: the strict broker, a disk that outlives a reboot.  Must not know: how they are stored.
"""
# heap: 4M

import softtimer
from harness import Bench, raises
from model_store import Disk, ModelStore
from nor import NOR
from strict_broker import publish
from strict_wire import PUBCOMP, PUBREC
from umqtt_min import MQTT_3_1, FlashStore, RAMStore


class Cut(Exception):
    """The power went."""


def bench(disk, main=None, **options):
    """A bench with such an inbox, connected and subscribed."""
    b = Bench(store=ModelStore(main) if main else None, **options)
    return again(b, disk, main, **options)


def again(b, disk, main=None, clean=False, **options):
    """The device after a reboot; what was received stays in b.got."""
    main = ModelStore(main) if main else None
    b.make(store=main, durable_inbox=ModelStore(disk), **options)
    if not b.client.connect(clean):
        b.client.subscribe(b"t", 2)
    return b


def collect(b, views):
    """The payloads that the client hands out from now on, as bytes or as views."""
    seen = []
    if views:
        b.client.set_view_callback(lambda t, p, flags, left: seen.append(bytes(p)))
    else:
        b.client.set_callback(lambda t, m: seen.append(m))
    return seen


def test_before_pubrel_it_is_in_the_store_and_after_it_given_to_the_callback():
    disk = Disk()
    b = bench(disk)
    b.broker.when(PUBREC, b"")
    b.conn.send(publish(4, b"t", b"x", 2, pid=5, retain=True))
    b.pump()
    assert b.got == [] and b.kinds()[-1] == PUBREC and len(disk.records) == 1
    b.conn.send(publish(4, b"t", b"x", 2, pid=5, retain=True, dup=True))
    b.pump()
    assert b.got == [] and b.client.counters.duplicates == 1 and b.client.counters.received == 0
    b.conn.send(b"\x62\x02\x00\x05")
    b.pump()
    assert b.got == [(b"t", b"x")] and b.kinds()[-1] == PUBCOMP and not disk.records
    assert b.client.counters.received == 1
    b.conn.send(b"\x62\x02\x00\x05")
    b.pump()
    assert len(b.got) == 1 and b.kinds()[-1] == PUBCOMP


def test_every_size_as_bytes_and_as_views_and_the_other_qos():
    for views in (False, True):
        b = bench(Disk(), buffer_size=64)
        seen = collect(b, views)
        sizes = [0, 1, 40, 50, 60, 70, 500]
        for i, n in enumerate(sizes):
            b.broker.publish(b"t", b"%d" % (i % 10) * n, 2)
            b.pump(60)
            b.broker.publish(b"t", b"-", i % 2)
            b.pump(2)
        assert b"".join(seen) == b"".join([b"%d" % i * n + b"-" for i, n in enumerate(sizes)])
        assert not b.conn.session.outgoing


def test_what_is_handed_out_begins_at_its_first_byte():
    """A longer message came by in pieces while this one waited for its PUBREL."""
    b = bench(Disk(), buffer_size=64)
    seen = []
    b.client.set_view_callback(lambda t, p, flags, left: seen.append((bytes(p), b.client.piece)))
    b.broker.when(PUBREC, b"")
    b.conn.send(publish(4, b"t", b"short", 2, pid=5))
    b.pump()
    b.conn.send(publish(4, b"t", b"long" * 50))
    b.pump(20)
    assert b"".join([p for p, _ in seen]) == b"long" * 50 and seen[-1][1] > 0
    b.conn.send(b"\x62\x02\x00\x05")
    b.pump()
    assert seen[-1] == (b"short", 0)


def test_a_tick_takes_it_in_and_never_calls_the_application():
    b = bench(Disk(), keepalive=10)
    b.broker.when(PUBREC, b"")
    b.conn.send(publish(4, b"t", b"x", 2, pid=5))
    b.client.check_msg()
    b.conn.send(b"\x62\x02\x00\x05")
    for _ in range(5):
        b.client.tick()
    assert b.got == [] and b.kinds()[-1] == PUBCOMP
    b.client.check_msg()
    assert b.got == [(b"t", b"x")]


def test_wait_msg_returns_with_one_that_was_given_to_the_callback():
    b = bench(Disk())
    for i in range(3):
        b.broker.publish(b"t", b"%d" % i, 2)
    for i in range(3):
        assert b.client.wait_msg() == 0x34
        assert [m for _, m in b.got] == [b"%d" % k for k in range(i + 1)]


def test_a_callback_that_raises_gets_it_again_also_after_a_reboot():
    disk = Disk()
    b = bench(disk)
    b.client.set_callback(lambda t, m: m[1000])
    b.broker.publish(b"t", b"x", 2)
    raises(IndexError, b.pump)
    assert not b.client.connected
    again(b, disk)
    b.pump()
    b.pump()
    assert b.got == [(b"t", b"x")]


def test_a_connection_that_ends_while_the_callback_runs_does_not_repeat_it():
    disk = Disk()
    b = bench(disk)

    def callback(topic, msg):
        b.got.append(msg)
        b.net.cut()
        raises(OSError, b.client.publish, b"answer", b"x")

    b.client.set_callback(callback)
    b.broker.publish(b"t", b"x", 2)
    raises(OSError, b.client.check_msg)
    again(b, disk)
    b.pump()
    assert b.got == [b"x"]


def test_a_lost_session_and_a_clean_one_give_up_what_is_stored_to_the_callback():
    for main in (None, Disk()):
        for protocol in (None, MQTT_3_1):
            options = {"protocol": protocol} if protocol else {}
            disk = Disk()
            b = bench(disk, main, **options)
            b.conn.send(publish(4, b"t", b"x", 2, pid=5))
            b.broker.when(PUBREC, b"")
            b.pump()
            assert b.got == []
            again(b, disk, main, True, **options)
            b.pump()
            assert b.got == [(b"t", b"x")], (main, protocol)
            b.conn.send(publish(4, b"t", b"other", 2, pid=5))
            b.conn.send(b"\x62\x02\x00\x05")
            b.pump()
            assert b.got[1:] == [(b"t", b"other")]


def test_a_full_store_gives_the_oldest_to_the_callback_and_one_that_is_too_small_all_of_it():
    for views in (False, True):
        b = Bench(durable_inbox=RAMStore(64))
        seen = collect(b, views)
        b.connect()
        b.client.subscribe(b"t", 2)
        b.broker.when(PUBREC, b"", 2)
        for pid, n in ((1, 40), (2, 41), (3, 100)):
            b.conn.send(publish(4, b"t", b"x" * n, 2, pid=pid))
            b.conn.send(publish(4, b"t", b"x" * n, 2, pid=pid, dup=True))
        b.pump()
        assert [len(m) for m in seen] == [40, 100]
        for pid in (1, 2, 3):
            b.conn.send(bytes((0x62, 2, 0, pid)))
        b.pump()
        assert [len(m) for m in seen] == [40, 100, 41]


def test_an_identifier_of_what_was_not_stored_is_forgotten_with_the_session():
    b = Bench(durable_inbox=RAMStore(64))
    for _ in range(2):
        b.client.connect(True)
        b.broker.when(PUBREC, b"")
        b.conn.send(publish(4, b"t", b"x" * 100, 2, pid=5))
        b.pump()
    assert len(b.got) == 2


class Window:
    """A broker's window: `size` messages of QoS 2 under way, and `more` for each PUBCOMP."""

    def __init__(self, b, count, size=20, more=1):
        self.left = ["%03d" % i for i in range(count)]
        self.b = b
        self.more = more
        self.conn = b.conn
        self.feed = b.conn.feed
        b.conn.feed = self.fed
        self.send(size)

    def send(self, n):
        for payload in self.left[:n]:
            self.b.broker.publish(b"t", payload.encode(), 2)
        del self.left[:n]

    def fed(self, data):
        before = len(self.conn.session.outgoing)
        self.feed(data)
        self.send(self.more * max(0, before - len(self.conn.session.outgoing)))


def small(limit, **options):
    """A bench whose inbox holds `limit` messages; the store too, which sees all of them."""
    store = ModelStore(Disk(limit))
    b = Bench(durable_inbox=store, **options)
    b.client.connect(False)
    b.client.subscribe(b"t", 2)
    return b, store


def test_a_backlog_is_handed_out_as_it_comes_and_in_order():
    b, store = small(21)
    most = []
    put = store.put
    store.put = lambda *message: most.append(store.live) or put(*message)
    Window(b, 150)
    for _ in range(40):
        before = len(b.got)
        b.client.check_msg()
        assert len(b.got) - before <= 64
    assert [m for _, m in b.got] == [b"%03d" % i for i in range(150)]
    assert max(most) <= 20 and len(most) == 150 and not b.conn.session.outgoing


def test_what_is_released_is_handed_out_before_more_is_read():
    b, store = small(0)
    for pid in range(1, 4):
        store.put(pid, 4, b"t", b"%d" % pid)
        b.client._inbox.in_del(pid)
    b.broker.publish(b"t", b"new", 0)
    b.client.check_msg()
    assert [m for _, m in b.got] == [b"1", b"2", b"3", b"new"]


def test_more_in_flight_than_there_is_room_for_comes_in_order_and_once():
    # mosquitto 2.0.11 sends twenty further ones for each PUBCOMP, whatever its window is.
    for main in (None, Disk()):
        b, store = small(30, **({"store": ModelStore(main)} if main else {}))
        Window(b, 200, 20, 20)
        b.pump(60)
        assert [m for _, m in b.got] == [b"%03d" % i for i in range(200)]
        assert store.live == 0 and not b.conn.session.outgoing
        assert b.client.counters.received == 200 and not (main and main.inbox)


def test_one_handed_out_before_its_pubrel_is_known_when_it_comes_again():
    b, store = small(1)
    b.broker.when(PUBREC, b"", 2)
    b.conn.send(publish(4, b"t", b"1", 2, pid=1))
    b.conn.send(publish(4, b"t", b"2", 2, pid=2))
    b.pump()
    assert [m for _, m in b.got] == [b"1"] and store.live == 1
    b.conn.send(publish(4, b"t", b"1", 2, pid=1, dup=True))
    b.conn.send(b"\x62\x02\x00\x01" + b"\x62\x02\x00\x02")
    b.pump()
    assert [m for _, m in b.got] == [b"1", b"2"] and b.client.counters.duplicates == 1


def test_a_view_callback_of_what_is_handed_out_for_want_of_room():
    b, store = small(1)
    seen = collect(b, True)
    for i in range(5):
        b.broker.publish(b"t", b"%d" % i, 2)
    b.pump()
    assert seen == [b"%d" % i for i in range(5)] and not b.got and store.live == 0


def test_a_slow_callback_is_called_once_a_call_and_the_link_lives():
    b, store = small(0, keepalive=10)
    for pid in range(1, 31):
        store.put(pid, 4, b"t", b"%03d" % pid)
        store.rec(pid)
    b.make(keepalive=10, durable_inbox=store)

    def slow(topic, msg):
        b.got.append(msg)
        softtimer.jump(3000)

    b.client.set_callback(slow)
    b.client.connect(False)
    for i in range(1, 31):
        # PINGRESP comes behind a message that is not read yet.
        b.broker.publish(b"t", b"later", 0)
        b.client.check_msg()
        assert b.got == [b"%03d" % k for k in range(1, i + 1)] and b.client.connected
    assert b.client.counters.pings >= 10, b.client.counters.pings
    b.pump(60)
    assert b.got[30:] == [b"later"] * 30 and b.client.connected


def test_who_waits_for_an_acknowledgement_hands_out_meanwhile():
    for waits in ("publish", "flush", "subscribe"):
        b, store = small(4, store=ModelStore(Disk()))
        for pid in range(1, 5):
            store.put(pid, 4, b"t", b"%d" % pid)
            b.client._inbox.in_del(pid)
        b.broker.publish(b"t", b"5", 2)
        if waits == "publish":
            b.client.publish(b"x", b"y", qos=1)
        elif waits == "flush":
            b.client.publish(b"x", b"y", qos=1, wait=False)
            assert b.client.flush()
        else:
            assert b.client.subscribe(b"u", 1) == 1
        b.pump(2)
        assert [m for _, m in b.got] == [b"1", b"2", b"3", b"4", b"5"], waits


def test_power_cuts_at_every_program():
    cuts = 0
    for at in range(200):
        disk = Disk()
        b = bench(disk)
        left = [at]

        def program(left=left):
            left[0] -= 1
            if left[0] == -1:
                raise Cut

        disk.on_program = program
        for i in range(4):
            b.broker.publish(b"t", b"%d" % i, 2)
        try:
            b.pump(40)
        except Cut:
            cuts += 1
        disk.on_program = None
        again(b, disk)
        b.pump(40)
        got = [m for _, m in b.got]
        assert sorted(set(got)) == [b"0", b"1", b"2", b"3"], (at, got)
        assert len(got) <= 5, (at, got)  # the one whose end was not written comes once more
        if left[0] >= 0:
            break
    assert cuts > 8


def test_in_flash_over_a_reboot_between_pubrec_and_pubrel_and_before_the_callback():
    for page in (1, 256):
        flash = NOR(blocks=8, block=4096, page=page)
        for released in (False, True):
            flash.boot()
            b = Bench(durable_inbox=FlashStore(flash))
            b.client.connect(False)
            b.broker.when(PUBREC, b"")
            b.conn.send(publish(4, b"t", b"y" * 200, 2, pid=5))
            b.pump()
            if released:
                b.conn.send(b"\x62\x02\x00\x05")
                b.client.tick()
            flash.boot()
            b.make(durable_inbox=FlashStore(flash))
            b.client.connect(False)
            assert b.got == []
            b.conn.send(b"\x62\x02\x00\x05")
            b.pump()
            b.pump()
            assert b.got == [(b"t", b"y" * 200)]


def test_not_the_clients_own_store():
    store = RAMStore()
    raises(ValueError, Bench, store=store, durable_inbox=store)
