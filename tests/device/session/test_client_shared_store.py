"""One store and two clients: never both at once, one after the other as often as one likes.

Knows: the public API, the strict broker.  Must not know: how a client finds it out.
"""

# heap: 4M

from harness import Bench, raises
from nor import NOR
from places import flash, folder, in_dict
from store_kit import journal_on
from umqtt_min import FileStore, MQTTClient
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore


def stores():
    """A store of each kind."""
    yield RAMStore()
    yield FlashStore(NOR(8, 1024))


def other(bench, store):
    """A second client that has the store, too."""
    return MQTTClient("other", "broker", store=store, connector=bench.net, timer=False)


def test_a_connected_clients_store_is_no_other_clients():
    for store in stores():
        bench = Bench(store=store)
        bench.client.connect()
        assert "b'dev' is connected" in str(raises(ValueError, other, bench, store))
        bench.client.publish(b"t", b"still works", qos=1)
        assert bench.client.inflight() == 0


def test_the_store_goes_to_whoever_connects_first():
    for store in stores():
        bench = Bench(store=store)
        second = other(bench, store)
        bench.client.connect()
        raises(ValueError, second.connect)
        raises(ValueError, second.publish, b"t", b"x", qos=1)
        assert store.live == 0
        bench.client.disconnect()
        second.connect()
        raises(ValueError, bench.client.connect)
        second.disconnect()
        assert bench.client.connect() in (True, False)


def test_clients_that_take_turns_give_each_identifier_once():
    for store in stores():
        bench = Bench(store=store)
        pids = [bench.client.publish(b"t", b"0", qos=1, wait=False)]
        clients = bench.client, other(bench, store)
        for n in range(1, 6):
            pids.append(clients[n % 2].publish(b"t", b"%d" % n, qos=1, wait=False))
        assert len(set(pids)) == 6 and store.live == 6
        clients[0].connect()
        while clients[0].inflight():
            clients[0].wait_msg()
        assert bench.broker.payloads() == [b"%d" % n for n in range(6)]


def two_at_one_place():
    """Two stores at one place, of each kind that can have that."""
    path = folder()
    yield FileStore(path), FileStore(path)
    new = flash(1)()
    yield new(), new()


def test_of_two_stores_at_one_place_the_later_one_goes_on_and_the_other_says_so():
    """Both would take messages, and each destroy what the other has stored."""
    for first, second in two_at_one_place():
        clients = [Bench(store=store).client for store in (first, second)]
        text = str(raises(OSError, clients[0].publish, b"t", b"x", qos=1, wait=False))
        assert "another store was opened at the place of this one" in text
        for n in range(5):
            clients[1].publish(b"t", b"%d" % n, qos=1, wait=False)
        assert second.live == 5
        second.close()
        first.close()
        first.open()
        assert first.live == 5
        first.put(9, 2, b"t", b"x")
        raises(OSError, clients[1].publish, b"t", b"x", qos=1, wait=False)


def test_a_durable_inbox_at_the_clients_own_place_is_told():
    path = folder()
    bench = Bench(store=FileStore(path), durable_inbox=FileStore(path))
    raises(OSError, bench.client.publish, b"t", b"x", qos=1, wait=False)


def test_a_store_that_is_empty_is_one():
    class Sized(RAMStore):
        def __len__(self):
            return self.live

    bench = Bench(store=Sized())
    bench.client.publish(b"t", b"x", qos=1, wait=False)
    assert bench.client.inflight() == 1
    for wrong in ("", 0, False, [], {}):
        assert "store=" in str(raises(ValueError, Bench, store=wrong))


def test_media_that_say_no_place_are_places_of_their_own():
    stores = []
    for times in (1, 3):
        new = journal_on(in_dict())()
        for _ in range(times):
            stores.append(new())
            stores[-1].open()
    for store in (stores[0], stores[-1]):
        assert store.put(1, 2, b"t", b"x") == 1
