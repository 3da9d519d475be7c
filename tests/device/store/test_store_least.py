"""Journals of the least size that is allowed never come to a standstill: whatever is published,
acknowledged and rebooted, and wherever a mount is cut, they open, they record, and where messages
may be dropped each one that fits a segment is taken.

Knows: store_life.py, NOR.  Must not know: records.
On littlefs: test_store_full.py. Every cut: test_powercut.py.
"""
# heap: 8M
# deadline: 120

from nor import NOR, PowerCut
from store_life import POLICIES, Life, show
from umqtt_min.store.flash import FlashStore


def on_flash(seed, policy, steps, blocks, block, page, once=False, inbound=(8,)):
    """A life on a raw region."""
    flash = NOR(blocks, block, page, once, seed=seed)

    def make(**options):
        return FlashStore(flash, once=once, **options)

    def cut(one, store):
        flash.boot()
        flash.cut_after(1 + one.random.below(6), one.random.below(60), one.random.below(4))
        try:
            store.open()
        except PowerCut:
            pass  # else it was done before
        flash.boot()

    one = Life(seed, make, policy, cut, inbound)
    one.run(steps)
    return one


def test_four_segments_of_flash():
    show([on_flash(seed, POLICIES[seed % 3], 70, 4, block, page)
          for seed, block, page in ((2, 512, 1), (27, 1024, 1), (27, 1024, 256), (4, 2048, 256))])


def test_five_segments_that_are_programmed_once():
    show([on_flash(seed, POLICIES[seed % 3], 60, 5, block, page, True)
          for seed, block, page in ((6, 512, 16), (2, 1024, 256), (7, 2048, 256))])


def test_inbound_is_large_or_another_with_each_mount():
    show([on_flash(seed, POLICIES[seed % 3], 70, 4, block, 1, inbound=inbound)
          for seed, block, inbound in ((1, 256, (40, 8, 24)), (7, 512, (40, 8, 24)),
                                       (21, 256, (24, 8)), (33, 512, (24, 8)),
                                       (255, 512, (40,)))])


def test_reboots_alone_take_no_segment_for_good():
    """Two messages that fill a segment each, and nothing but reboots."""
    for blocks in (5, 7):
        flash = NOR(blocks, 1024, 1)
        store = FlashStore(flash)
        store.open()
        for pid in (1, 2):
            store.put(pid, 2, b"t", bytes(784))
        for boot in range(60):
            store = FlashStore(flash)
            store.open()
            assert (store.live, store.skipped) == (2, 0), "%d segments, boot %d" % (blocks, boot)
            store.done(999)  # none of it: nothing is written


def test_a_message_that_fills_a_segment_is_taken_by_an_empty_journal():
    for blocks, page, once in ((4, 1, False), (4, 256, False), (5, 16, True), (5, 256, True)):
        for policy in POLICIES:
            flash = NOR(blocks, 2048, page, once)
            one = Life(1, lambda flash=flash, once=once, **options: FlashStore(
                flash, once=once, **options), policy)
            one.size, one.equal = one.most, True
            for _ in range(4):
                one.put()
                one.reboot()
                one.do(("done", one.store.low))


def test_segments_too_small_for_any_message_are_refused():
    for page, once, segment, least in ((1, False, 256, 512), (256, True, 512, 1024)):
        for size in (segment, least):
            try:
                FlashStore(NOR(8, size, page, once), once=once, inbound=64)
                assert size == least, "%d is taken" % size
            except ValueError as e:
                assert size == segment and "segment=%d" % size in str(e), repr(e)
                assert "%d or more" % least in str(e), repr(e)
