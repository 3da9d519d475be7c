"""A journal in flash is opened with other arguments than it was written with: it takes them, or
says what does not fit, and nothing that was accepted is lost.

Knows: NOR, the Store interface.  Must not know: records.
In files: test_store_files.py. Every cut: test_powercut.py.
"""
# heap: 4M

from harness import raises
from nor import NOR
from store_kit import body, full
from umqtt_min.store.flash import FlashStore

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


def written(flash, count, keep, **options):
    """Some messages come and go, so many stay; the payloads of these."""
    store = opened(flash, **options)
    for i in range(count):
        store.put(i + 1, 2, b"t", b"%d/" % i + bytes(i % 40))
        if store.live > keep:
            store.done(store.low)
    return [b"%d/" % i + bytes(i % 40) for i in range(count - store.live, count)]


def changed(flash, payloads, back, **options):
    """Open it in other blocks: it is refused, nothing is written, and all is there where it was;
    or all is there at once, and it goes on for ever. True if it is refused."""
    flash.log = []
    try:
        store = opened(flash, **options)
    except ValueError as e:
        assert not flash.log, str(e)
        for word in ("first=", "blocks="):
            assert word in str(e), str(e)
        emptied(opened(flash, **back), payloads)
        return True
    flash.log = None
    emptied(store, payloads)
    for _ in range(2):
        store = opened(flash, **options)
        assert store.skipped == 0
        payloads = [b"x"] * full(store, b"x")
        emptied(opened(flash, **options), payloads)
    return False


def test_a_region_that_leaves_out_a_part_of_the_journal_is_refused():
    refused = taken = 0
    for block, page, once in ((512, 1, False), (1024, 1, False), (1024, 16, True)):
        for count, keep in ((20, 8), (101, 8), (190, 12)):
            for first, blocks in ((0, 9), (0, 7), (0, 5), (2, 8), (3, 7), (5, 5)):
                flash = NOR(10, block, page, once)
                payloads = written(flash, count, keep)
                if set(flash.data[first * block :]) == {255}:
                    continue  # nothing was there yet: it may be another journal's place
                if changed(flash, payloads, {}, first=first, blocks=blocks):
                    refused += 1
                else:
                    taken += 1
    print(refused, "refused,", taken, "taken")
    assert refused > 15 and taken > 4, (refused, taken)


def test_segments_that_begin_between_those_of_the_journal_are_refused():
    flash = NOR(20, 512)
    payloads = written(flash, 40, 10, segment=1024)
    assert changed(flash, payloads, {"segment": 1024}, segment=1024, first=1)


def test_more_blocks_are_more_room_and_then_belong_to_the_journal():
    for once in (False, True):
        flash = NOR(12, 1024, 16, once)
        payloads = written(flash, 60, 10, first=2, blocks=6)
        store = opened(flash, first=2, blocks=6)
        before = store.free()
        assert store.live == 10
        store = opened(flash)
        assert store.free() > before + 3 * 512
        count = full(store, bytes(60))
        payloads += [bytes(60)] * count
        assert count > 20 and changed(flash, payloads, {}, first=2, blocks=6)


def test_two_journals_on_one_device_do_not_see_each_other():
    flash = NOR(12, 1024)
    for first in (0, 6):
        written(flash, 60, 10, first=first, blocks=6)
    for first in (0, 6):
        assert opened(flash, first=first, blocks=6).live == 10
