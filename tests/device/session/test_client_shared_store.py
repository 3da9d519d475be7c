"""One store and two clients: never both at once, one after the other as often as one likes.

Knows: the public API, the strict broker.  Must not know: how a client finds it out.
"""

# heap: 4M

from harness import Bench, raises
from nor import NOR
from umqtt_min import MQTTClient
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
