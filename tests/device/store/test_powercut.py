"""The power is cut in operations of the journal: nothing accepted is lost, nothing done returns.

Knows: cuts.py.  Must not know: records, segments.
A sample of what `make powercut` does in full; each function prints how many cuts it tried.
"""
# deadline: 120
# heap: 8M

import cuts
from nor import INVISIBLE, LOOKS_DONE, NOR, PREFIX, SUBSET, PowerCut
from umqtt_min.store.flash import FlashMedium
from umqtt_min.store.journal import Journal


def sample(index, seed, steps):
    """Two cuts in each device operation of a short scenario, once segments are reclaimed."""
    run = cuts.Run(cuts.GEOMETRIES[index], seed, cuts.Sampled(seed + 3, 2))
    run.format()
    run.quietly(150)
    for _ in range(steps):
        run.step()
    print("%s: %d cuts, %d more in recovery" % (run.geometry.name, run.cuts, run.recovery_cuts))
    assert run.cuts > steps and run.recovery_cuts > steps


def test_cuts_any_byte():
    sample(0, 1, 30)


def test_cuts_any_byte_held():
    sample(1, 2, 25)


def test_cuts_any_byte_dropping_the_oldest():
    sample(2, 3, 25)


def test_cuts_pages_of_256():
    sample(3, 4, 25)


def test_cuts_pages_of_256_held_dropping():
    sample(4, 5, 15)


def test_cuts_pages_of_16_programmed_once():
    sample(5, 6, 20)


def test_cuts_pages_of_256_programmed_once():
    sample(6, 7, 15)


def test_cuts_encrypted():
    sample(7, 8, 15)


def test_cuts_encrypted_dropping_the_oldest():
    sample(8, 9, 15)


def test_last_slot_of_a_segment():
    """Cuts in the very operations that fill a segment and open the next."""
    for index in (0, 3, 5, 6, 7):
        run = cuts.Run(cuts.GEOMETRIES[index], 9, lambda program: ())
        run.format()
        run.quietly(100)
        while run.last_slot < 12:
            pick = cuts.Sampled(run.random.bits(8), 2)
            run.points = pick if run.in_last_slot() else lambda program: ()
            run.step()
        print("%s: %d cuts" % (run.geometry.name, run.last_slot))


def test_pairs_of_cuts():
    """A second cut in the recovery from the first one, or in the operation after it."""
    for geometry in cuts.SMALL:
        run = cuts.Run(geometry, 21, lambda program: ())
        run.format()
        run.quietly(60)
        run.points = cuts.Sampled(22, 1, cuts.coarse)
        while run.recovery_cuts < 20:
            run.step_in_pairs()
        print("%s: %d cuts, %d in recovery" % (geometry.name, run.cuts, run.recovery_cuts))


def test_the_emulator_can_break_a_journal():
    """Were weak bits trusted, the checks would see it: they do see a flipped byte."""
    run = cuts.Run(cuts.GEOMETRIES[0], 11, lambda program: ())
    run.format()
    while run.store.live < 3:
        run.step()
    seq = run.store.next(0)
    run.store.find(seq)
    run.flash.data[run.store._body + 5] ^= 1
    store = run.geometry.store(run.flash)
    store.open()
    assert store.skipped > 0
    assert not store.find(seq), "a message with a wrong check value was accepted"
    assert store.live == run.store.live - 1, "its neighbours were lost, too"


def test_a_message_that_was_not_there_after_a_cut_does_not_come_back():
    """Its record is torn without a trace: in the second page of a new segment, which recovery
    erases; in the last chunk of a segment, where recovery takes a new one; in the second of the
    chunks that it fills, where recovery takes the one behind them, though the first of them ends
    like a blank one. Then all weak bits read as programmed."""
    for full, payload, operation in ((700, bytes(300), 4), (770, bytes(60), 1),
                                     (170, b"\xff" * 100 + bytes(100), 2)):
        geometry = cuts.Geometry("one kilobyte", 6, 1024, 1)
        flash = geometry.flash(1)
        store = geometry.store(flash)
        store.open()
        while store._off < full:
            store.put(1, 2, b"t", bytes(30))
        flash.cut_after(operation, 0, INVISIBLE)
        try:
            store.put(1, 2, b"t", payload)
            raise AssertionError("not cut")
        except PowerCut:
            pass
        seq = store.seq
        flash.boot()
        store = geometry.store(flash)
        store.open()
        boot = store.boot
        assert store.seq == seq and not store.find(seq), "it was read although it looks blank"
        assert bool(flash.weak) == (operation < 4)
        store = geometry.store(weak_as_programmed(flash.clone()))
        store.open()
        assert (store.seq, store.boot) == (seq, boot + 1) and not store.find(seq), "it came back"
        store = geometry.store(flash)
        store.open()
        assert store.put(1, 2, b"t", b"another one") == seq
        store = geometry.store(weak_as_programmed(flash))
        store.open()
        assert (store.find(seq), store.live, store.boot) == (16, seq, boot + 2)


def test_a_settle_record_that_is_torn_in_its_second_chunk_is_gone_around():
    """What it carries fills a chunk, which ends like a blank one, and a part of the next."""
    geometry = cuts.Geometry("two kilobytes", 6, 2048, 1)
    flash = geometry.flash(1)
    store = geometry.store(flash)
    store.open()
    store.put(1, 2, b"t", b"\xff" * 280 + bytes(40))
    flash.boot()
    flash.cut_after(3, 0, INVISIBLE)  # TOUCH, then the two chunks
    try:
        geometry.store(flash).open()
        raise AssertionError("not cut")
    except PowerCut:
        pass
    flash.boot()
    store = geometry.store(flash)
    store.open()
    assert flash.weak and not sum(flash.worn[1:])
    seq = store.put(2, 2, b"t", b"another one")
    boot = store.boot
    store = geometry.store(weak_as_programmed(flash))
    store.open()
    assert (store.live, store.find(seq), store.boot) == (2, 16, boot + 1)


def test_a_boot_that_sees_less_of_a_torn_record_goes_on_where_nobody_was():
    """A mount sees the head of a long record, and is cut behind what that would fill. The next
    one does not see that head."""
    geometry = cuts.Geometry("two kilobytes", 6, 2048, 1)
    for operation in range(1, 7):
        flash = geometry.flash(1)
        store = geometry.store(flash)
        store.open()
        store.put(1, 2, b"t", bytes(10))
        before = bytes(flash.data)
        torn = power_cut(flash, 2, PREFIX, store.put, 1, 2, b"t", bytes(700))
        head = [(i, torn[i]) for i in range(2048) if torn[i] != before[i]]
        power_cut(flash, operation, INVISIBLE, geometry.store(flash).open)
        for i, _ in head:
            flash.data[i] = 255
        store = geometry.store(flash)
        store.open()
        for _ in range(20):  # across all that the record would fill
            store.put(1, 2, b"t", b"\xff" * 30)
        for i, byte in head:
            flash.data[i] &= byte
        store = geometry.store(weak_as_programmed(flash))
        store.open()
        assert store.live == 21, (operation, store.live)


def power_cut(flash, operation, mode, work, *args):
    """Cut at the beginning of that operation; the flash as it was then."""
    flash.cut_after(operation, 0, mode)
    try:
        work(*args)
    except PowerCut:
        pass
    data = bytes(flash.data)
    flash.boot()
    return data


def weak_as_programmed(flash):
    for at, mask in flash.weak.items():
        flash.data[at] &= ~mask
    return flash


def opened(flash):
    store = Journal(FlashMedium(flash), chunk=64, inbound=8)
    store.open()
    return store


def test_a_settle_record_that_shows_late_hides_no_message():
    """A mount is cut in the last byte of its SETTLE record. The next one does not see that record
    and settles in a new segment; a later one sees it."""
    for seed in range(1, 40):
        flash = NOR(5, 512, 1, seed=seed)
        store = opened(flash)
        while store._off < 275:
            store.put(1, 2, b"t", b"x")
        last = store.put(2, 2, b"t", bytes(35))
        for operation in (3, 1):
            flash.boot()
            flash.cut_after(operation, 0, (SUBSET, LOOKS_DONE)[seed & 1])
            try:
                opened(flash)
            except PowerCut:
                pass
        for _ in range(5):
            flash.boot()
            store = opened(flash)
            assert store.find(last) and store.live == last, (seed, store.live)
