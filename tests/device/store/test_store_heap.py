"""What the stores take from the heap after open(): nothing, on RAM and on flash.

Knows: MicroPython's heap counters, the Store interface.  Must not know: the bytes of a record.
Each operation three ways: under heap_lock(); no bytes left behind (gc.mem_alloc); no bytes taken
even for a moment (micropython.mem_total), which a frame too large for the stack does.
"""
# only: micropython
# also: micropython32

import gc
import sys

import micropython
from quiet_flash import Flash
from umqtt_min.store import DROP_OLDEST, LATEST
from umqtt_min.store.flash import FlashMedium, FlashStore
from umqtt_min.store.journal import Journal
from umqtt_min.store.ram import RAMStore

TOPIC = b"fleet/hall/one/telemetry"
PAYLOAD = bytearray(100)
BUFFER = bytearray(256)


def one(store):
    """The life of a message, all operations."""
    seq = store.put(7, 2, TOPIC, PAYLOAD)
    store.next(0)
    store.next(seq - 1)
    store.mark(seq)
    n = store.find(seq)
    store.read(0, BUFFER, n)
    store.rec(seq)
    store.in_add(9)
    store.in_has(9)
    store.in_del(9)
    store.done(seq)
    store.confirm(seq)


def held(store):
    """The life of a message that is held and asked for again."""
    seq = store.put(7, 2, TOPIC, PAYLOAD)
    store.done(seq)
    store.again(seq, seq)
    store.next(0)
    store.find(seq)
    store.sending(seq)
    store.done(seq)
    store.confirm(seq)
    store.session(b"12345678")


def filled(store):
    """A message into a full journal."""
    store.put(7, 2, TOPIC, PAYLOAD)


def bytes_taken(store, work, count):
    """Left behind, taken in all, by count times work under a locked heap."""
    for _ in range(3):
        work(store)
    gc.collect()
    gc.disable()
    left = gc.mem_alloc()
    total = micropython.mem_total()
    for _ in range(count):
        work(store)
    total = micropython.mem_total() - total
    left = gc.mem_alloc() - left
    gc.enable()
    micropython.heap_lock()
    try:
        for _ in range(count):
            work(store)
    finally:
        micropython.heap_unlock()
    return left, total


def turns(store):
    """How often its space was taken anew, at least."""
    return store.seq * len(PAYLOAD) // 4096 if isinstance(store, RAMStore) else store.erases


def nothing(store, work, count=200):
    store.open()
    before = turns(store)
    left, total = bytes_taken(store, work, count)
    assert turns(store) > before + 5, "no space was reclaimed: nothing is shown"
    # the probe itself costs a float or two
    assert (left, total) == (0, 0), "%d bytes left behind, %d taken" % (left, total)


def test_ram_store_takes_nothing():
    nothing(RAMStore(4096), one)


def test_ram_store_with_held_messages_takes_nothing():
    nothing(RAMStore(4096, hold=True), held)


def test_ram_store_that_drops_the_oldest_takes_nothing():
    nothing(RAMStore(4096, policy=DROP_OLDEST), filled)


def test_ram_store_that_closes_gaps_takes_nothing():
    store = RAMStore(4096, policy=LATEST)
    store.open()
    store.put(1, 2, b"rare", PAYLOAD)
    for _ in range(100):  # the code for it is loaded with the first gap
        filled(store)
    nothing(store, filled)
    assert store.live == 2


def test_flash_of_any_bytes_takes_nothing():
    nothing(FlashStore(Flash(1)), one)


def test_flash_of_any_bytes_with_held_messages_takes_nothing():
    nothing(FlashStore(Flash(1), hold=True), held)


def test_flash_with_pages_takes_nothing():
    nothing(FlashStore(Flash(256)), one)


def test_flash_with_16_byte_pages_once_takes_nothing():
    nothing(Journal(FlashMedium(Flash(16), once=True)), held)


def test_flash_that_keeps_the_latest_takes_nothing():
    nothing(FlashStore(Flash(1), policy=LATEST), filled)


def test_flash_with_an_age_limit_takes_nothing():
    now = [5]
    nothing(FlashStore(Flash(1), policy=DROP_OLDEST, max_age=3, clock=lambda: now[0]), filled)


def test_flash_that_drops_the_oldest_takes_nothing():
    nothing(FlashStore(Flash(256), policy=DROP_OLDEST), filled)


def test_the_code_of_a_mount_does_not_stay():
    FlashStore(Flash(1)).open()
    from umqtt_min import store

    for name in ("recovery", "scan", "replay", "settle", "crc32"):
        assert "umqtt_min.store." + name not in sys.modules
        assert not hasattr(store, name), name + " is still there"
