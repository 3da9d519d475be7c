"""RAMStore: what only a store in RAM does; what all stores do is in test_stores.py.

Knows: the Store interface, the model of journal_model.py.  Must not know: slots and places.
"""

import sys

import journal_model as jm
from harness import raises
from nor import Random
from quiet_flash import Flash
from store_kit import body, full
from umqtt_min.store import DROP_OLDEST, LATEST, RAISE, StoreFull
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore

QUEUED = 0


def opened(*args, **options):
    store = RAMStore(*args, **options)
    store.open()
    return store


def compare(store, model):
    for found, expected in zip(jm.snapshot(store, jm.PIDS), model.snapshot()):
        assert found == expected, "%s is not %s" % (found, expected)


def play(seed, count, size, policy, hold, messages=0):
    """Random operations on a store and a model; the store refuses and drops only if it must."""
    store = opened(size, hold=hold, policy=policy, messages=messages)
    model = jm.Model(hold, policy)
    scenario = jm.Scenario(Random(seed), size // 3)
    slots = messages or max(32, size // 96)
    refused = 0
    for i in range(count):
        op = scenario.op(model)
        used = sum([len(m[2]) for m in model.live.values()])
        fits = jm.perform(store, op)
        while model.live and model.low() < store.low and op[0] == "put":
            assert policy == DROP_OLDEST
            model._drop()
        if fits:
            model.apply(op)
        else:
            n = len(op[3]) + len(op[4]) + 4
            # Less than one message's length may be lost at the end of the block.
            assert used + n > size - size // 3 - 20 or len(model.live) == slots, (used, n)
            refused += 1
        if i % 4 == 0 or i > count - 50:
            compare(store, model)
    return store, refused


def test_it_agrees_with_the_model():
    for seed in range(6):
        size = (256, 900, 3000)[seed % 3]
        store, refused = play(seed, 500, size, RAISE, seed % 2 == 1)
        assert refused or size == 3000, "never full: nothing is shown"
        store, refused = play(seed, 500, size, DROP_OLDEST, seed % 2 == 1)
        assert not refused
        assert store.dropped or size == 3000


def test_it_agrees_with_the_model_when_slots_run_out():
    for seed in range(4):
        assert play(seed, 400, 4000, RAISE, False, 5)[1]
        assert play(seed, 400, 4000, DROP_OLDEST, True, 7)[0].dropped


def test_a_block_above_64_kib():
    store = opened(70000)
    for i in range(6):
        store.put(i + 1, 2, b"t", bytes([i]) * 20000)
        assert body(store, i + 1)[5:] == bytes([i]) * 20000
        if i > 1:
            store.done(i - 1)
    assert store.live == 2


def test_a_message_is_read_in_pieces_wherever_it_lies():
    store = opened(300)
    for i in range(40):
        payload = bytes([(i + k) & 255 for k in range(70 + i)])
        seq = store.put(i + 1, 5, b"a/b", payload)
        whole = b"\x00\x03a/b" + bytes((0, i + 1)) + payload
        assert store.find(seq) == len(whole)
        assert (store.pid, store.flags, store.state) == (i + 1, 5, QUEUED)
        for n in (1, 7, 50, len(whole)):
            for pos in range(0, len(whole) - n + 1, n):
                buf = bytearray(n)
                store.read(pos, buf, n)
                assert bytes(buf) == whole[pos : pos + n]
        if i:
            store.done(seq - 1)


def test_all_of_the_block_can_be_used():
    store = opened(300)
    store.put(1, 2, b"t", bytes(295))
    assert store.free() == 0
    raises(StoreFull, store.put, 2, 2, b"", b"")
    store.done(1)
    assert store.free() == 300
    e = raises(ValueError, store.put, 2, 2, b"t", bytes(296))
    assert "297" in str(e) and "296" in str(e)
    assert store.put(2, 2, b"t", bytes(295)) == 2


def test_what_is_acknowledged_in_the_middle_makes_room():
    store = opened(1000)
    n = full(store, bytes(20))
    for seq in range(2, n + 1):
        store.done(seq)
    assert full(store, bytes(20)) >= n - 2
    assert body(store, 1) == b"\x00\x01t\x00\x01" + bytes(20)
    assert jm.walk(store)[0] == 1 and len(jm.walk(store)) == store.live


def test_latest_of_each_topic_though_one_is_never_sent_again():
    store = opened(400, policy=LATEST, messages=8)
    store.put(1, 2, b"rare", b"once")
    for i in range(500):
        store.put(2, 2, b"b", b"%d" % i)
        store.put(3, 2, b"longer", b"%d" % i)
    assert store.live == 3 and store.dropped == 998
    assert [body(store, seq)[2:] for seq in jm.walk(store)] == [
        b"rare\x00\x01once", b"b\x00\x02499", b"longer\x00\x03499"]


def test_latest_gives_up_the_oldest_when_all_may_have_been_sent():
    for size, options in ((4096, {"messages": 8}), (400, {})):
        store = opened(size, policy=LATEST, **options)
        for i in range(100):
            # As a client with a window of 16 marks what may have been sent.
            store.mark(store.put(i + 1, 2, b"a", b"%050d" % i) + 15)
        assert store.dropped == 100 - store.live > 80
        store.session(b"")  # unsent again: the latest is enough
        store.put(1, 2, b"a", b"latest")
        assert store.live == 1 and body(store, store.low)[-6:] == b"latest"


def test_the_ages_move_with_the_messages():
    now = [100]
    store = opened(200, max_age=60, clock=lambda: now[0])
    for i in range(5):
        store.put(i + 1, 2, b"a", b"")
        now[0] += 20
    store.done(3)
    for _ in range(10):  # gaps are closed
        store.done(store.put(9, 2, b"a", bytes(100)))
    now[0] += 20
    store.expire()
    assert jm.walk(store) == [4, 5]
    now[0] += 40
    store.expire()
    assert store.live == 0 and store.seq == 16


def test_messages_limits_how_many():
    store = opened(16384, messages=16)
    assert full(store, b"") == 16
    store.done(5)
    assert full(store, b"") == 1


def test_a_message_that_cannot_be_written_changes_nothing():
    store = opened()
    store.put(1, 2, b"t", b"x")
    raises(TypeError, store.put, 2, 2, b"t", [1, 2])
    assert (store.live, store.seq, store.last_pid) == (1, 2, 1)
    assert store.put(2, 2, b"t", b"y") == 2 and body(store, 1)[5:] == b"x"


def test_bad_arguments_are_refused_with_reasons():
    for options, text in (
        ({"size": 63}, "size"),
    ):
        assert text in str(raises(ValueError, RAMStore, **options))


def loaded_by(name, *arguments):
    """A client over a fresh store of this name, which has published; what was loaded for it."""
    saved = {name: m for name, m in sys.modules.items() if name.startswith("umqtt_min")}
    for module in saved:
        del sys.modules[module]
    try:
        import umqtt_min
        from broker_stream import Echo

        store = getattr(umqtt_min, name)(*arguments)
        client = umqtt_min.MQTTClient(
            "d", "b", store=store, connector=Echo().connect, timer=False)  # fmt: skip
        client.connect()
        client.publish(b"t", b"x", qos=1)
        loaded = [name for name in sys.modules if name.startswith("umqtt_min.")]
    finally:
        sys.modules.update(saved)
    assert client.counters.acked == 1
    return loaded


def test_it_loads_nothing_of_the_journal():
    loaded = loaded_by("RAMStore")
    assert "umqtt_min.store.ram" in loaded
    for name in ("journal", "segment_log", "recovery", "crc32", "inbound"):
        assert "umqtt_min.store." + name not in loaded


def test_a_journal_loads_nothing_of_it():
    loaded = loaded_by("FlashStore", Flash(1))
    assert "umqtt_min.store.journal" in loaded
    for name in ("ram", "files", "inbound"):
        assert "umqtt_min.store." + name not in loaded


def test_their_attributes_leave_room_in_their_hash_tables():
    """MicroPython's tables have 29, 37, 47, 59, 73, 97 places: in a full one each method is looked
    for at all of them, and a publish took a third longer."""
    for store, least, most in ((RAMStore(), 23, 31), (FlashStore(Flash(1)), 73, 82)):
        store.open()
        store.session(b"key")
        assert least < len(store.__dict__) <= most, len(store.__dict__)
