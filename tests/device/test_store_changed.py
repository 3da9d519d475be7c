"""A journal in flash is opened with other arguments than it was written with: it takes them, or
says what does not fit, and nothing that was accepted is lost.

Knows: NOR, the Store interface.  Must not know: records.
In files: test_store_files.py. Every cut: test_powercut.py.
"""
# heap: 4M

from harness import raises
from nor import NOR
from store_kit import body, full
from umqtt_min.store import FlashStore

# Segments, their bytes, smallest program, each page once only; least and largest inbound.
SMALLEST = ((5, 256, 1, False, 1, 32), (5, 512, 1, False, 1, 64), (6, 512, 16, True, 32, 64),
            (5, 512, 64, False, 1, 64), (6, 1024, 64, True, 1, 64))


def opened(flash, **options):
    store = FlashStore(flash, once=flash.once, **options)
    store.open()
    return store


def emptied(store, expected):
    """Take out all that is in a store; these payloads are expected, in this order."""
    seqs = []
    seq = store.next(0)
    while seq:
        seqs.append(seq)
        seq = store.next(seq)
    assert [body(store, seq)[5:] for seq in seqs] == expected
    for seq in seqs:
        store.rec(seq)
        store.done(seq)
    assert store.live == 0


def test_a_full_journal_takes_a_larger_inbound():
    for blocks, block, page, once, least, most in SMALLEST:
        for n in (0, 7, 60):
            flash = NOR(blocks, block, page, once)
            payload = b"x" * n
            count = full(opened(flash, inbound=least), payload)
            assert count > 1
            for boot in range(3):  # a cut link, a reboot: identifiers come and go
                store = opened(flash, inbound=most)
                assert (store.live, store.skipped) == (count, 0)
                for pid in range(1, 21):
                    store.in_add(100 * boot + pid)
                for pid in range(1, 21):
                    assert store.in_has(100 * boot + pid)
                    store.in_del(100 * boot + pid)
            store = opened(flash, inbound=(least, most)[n & 1])
            emptied(store, [payload] * count)
            assert full(store) > 1


def test_a_larger_inbound_is_kept_in_flash_as_soon_as_it_fits():
    flash = NOR(5, 512)
    store = opened(flash, inbound=1)
    count = full(store, bytes(60))
    store = opened(flash, inbound=64)
    for seq in range(1, count + 1):
        store.done(seq)
    store = opened(flash, inbound=64)
    for pid in range(1, 65):
        store.in_add(pid)
    store = opened(flash, inbound=64)
    assert [store.in_has(pid) for pid in range(1, 66)] == [True] * 64 + [False]


def test_a_smaller_inbound_forgets_none_that_is_open():
    for blocks, block, page, once, _, most in SMALLEST:
        flash = NOR(blocks, block, page, once)
        store = opened(flash, inbound=most)
        for pid in range(1, 21):
            store.in_add(pid)
        store.put(1, 2, b"t", b"p")
        for _ in range(3):
            store = opened(flash, inbound=1)
            assert [store.in_has(pid) for pid in range(1, 22)] == [True] * 20 + [False]
        for pid in range(1, 21):
            store.in_del(pid)
        store = opened(flash, inbound=1)
        assert not [pid for pid in range(1, 22) if store.in_has(pid)]
        emptied(store, [b"p"])


def test_identifiers_for_which_messages_leave_no_room_stay_until_a_reboot():
    """As the library once wrote it: it remembered what inbound= said in any case."""
    for extra in range(0, 100, 20):
        flash = NOR(6, 1024)
        store = opened(flash, inbound=1)
        count = full(store, bytes(59))
        store.done(1)
        store._inbound = bytearray(128)
        for pid in range(1, 13):
            store.in_add(pid)
        for seq in range(extra):
            store.mark(seq)
        store = opened(flash, inbound=64)
        assert [store.in_has(pid) for pid in range(1, 14)] == [True] * 12 + [False]
        for pid in range(1, 13):
            store.in_del(pid)
        store = opened(flash, inbound=64)
        # None that was released: a new message with that identifier would be taken for it.
        assert not [pid for pid in range(1, 13) if store.in_has(pid)]
        emptied(store, [bytes(59)] * (count - 1))


def test_an_inbound_that_leaves_no_room_for_messages_says_what_fits():
    flash = NOR(8, 256)
    store = opened(flash, inbound=1)
    store.put(1, 2, b"t", b"p")
    flash.log = []
    text = str(raises(ValueError, lambda: opened(flash, inbound=64)))
    assert not flash.log
    most = int(text.split("inbound=")[1].split()[0])
    assert "(now 64)" in text and 1 < most < 64, text
    raises(ValueError, lambda: opened(flash, inbound=most + 1))
    emptied(opened(flash, inbound=most), [b"p"])
