"""What only the journal promises, one promise a test; test_stores.py has what every store
promises. Cuts are in test_powercut.py.

Knows: the Store interface, NOR.  Must not know: the bytes of a record.
"""

# heap: 4M
# deadline: 120

import journal_model as jm
import umqtt_min.store.segment_log as bits
from cuts import GEOMETRIES, Geometry, Run
from nor import NOR, Encrypted
from store_kit import body, full
from umqtt_min.store import AGAIN, LATEST, StoreFull
from umqtt_min.store.crc32 import plain_copy as copy
from umqtt_min.store.crc32 import plain_crc32 as crc32
from umqtt_min.store.crc32 import plain_same as same
from umqtt_min.store.flash import FlashStore


def flash_store(flash=None, **options):
    store = FlashStore(flash or NOR(8, 1024), **options)
    store.open()
    return store


def test_reading_near_the_end_of_the_region_stays_inside():
    store = flash_store(NOR(4, 1024))
    buf = bytearray(900)
    for _ in range(40):
        seq = store.put(1, 2, b"t", bytes(300))
        n = store.find(seq)
        store.read(0, buf, n)
        assert bytes(buf[5:n]) == bytes(300)
        store.done(seq)


def test_numbers_go_on_over_reboots_and_reclaim():
    flash = NOR(5, 1024)
    expected = 1
    for _ in range(12):
        store = flash_store(flash)
        assert store.seq == expected
        for _ in range(20):
            assert store.put(1, 2, b"t", bytes(60)) == expected
            store.done(expected)
            expected += 1
    assert sum(flash.worn) > 12 and store.boot == 12


def test_the_epoch_stays_with_the_journal_and_is_new_on_an_erased_flash():
    flash = NOR(8, 1024)
    epoch = flash_store(flash).epoch
    assert len(epoch) == 8 and flash_store(flash).epoch == epoch
    for i in range(8):
        flash.ioctl(6, i)
    other = flash_store(flash)
    assert other.epoch != epoch and other.seq == 1 and other.boot == 1


def test_more_incoming_messages_than_there_is_room_for_are_remembered_until_a_reboot():
    """A broker may keep any number open between PUBREC and PUBREL [MQTT-4.3.3-2]."""
    flash = NOR(8, 1024)
    store = flash_store(flash, inbound=8)
    for pid in range(1, 301):
        assert not store.in_has(pid)
        store.in_add(pid)
        store.in_add(pid)
    assert [pid for pid in range(1, 400) if store.in_has(pid)] == list(range(1, 301))
    for pid in (3, 299):
        store.in_del(pid)
        assert not store.in_has(pid)
    store = flash_store(flash, inbound=8)
    assert [pid for pid in range(1, 400) if store.in_has(pid)] == [1, 2, 4, 5, 6, 7, 8]
    for pid in range(1, 301):
        store.in_add(pid)
    store.session(b"new")
    assert not any([store.in_has(pid) for pid in range(1, 301)])


def test_asking_again_is_forgotten_by_a_reboot():
    flash = NOR(5, 1024)
    store = flash_store(flash, hold=True)
    for i in range(4):
        store.put(10 + i, 2, b"t", b"")
        store.done(i + 1)
    assert store.again(2, 3) == 2
    store.find(2)
    assert store.state == AGAIN
    store.sending(2)
    for i in range(60):  # until the messages are moved
        store.mark(100 + i)
    assert store.held == 2
    store = flash_store(flash, hold=True)
    assert store.held == 4


def topics(store):
    return [body(store, seq)[2:3] for seq in jm.walk(store)]


def test_latest_is_not_full_when_one_topic_is_seldom_heard_of():
    flash = NOR(6, 4096)
    store = flash_store(flash, policy=LATEST, messages=64)
    store.put(1, 2, b"seldom", b"")
    store.mark(1)  # and it may even have been sent
    for i in range(300):
        store.put(i + 2, 2, b"often", b"%d" % i)
        assert store.live == (2 if i < 63 else 1), i
    for view in (store, flash_store(flash, policy=LATEST, messages=64)):
        assert topics(view) == [b"o"]
        assert body(view, view.seq - 1)[-3:] == b"299"
    assert store.dropped == 300


def test_messages_are_young_again_after_a_reboot():
    now = [100]
    flash = NOR(6, 1024)
    store = flash_store(flash, max_age=60, clock=lambda: now[0])
    store.put(1, 2, b"a", b"")
    now[0] += 50
    store.put(2, 2, b"a", b"")
    store = flash_store(flash, max_age=60, clock=lambda: now[0])
    now[0] += 60
    store.expire()
    assert store.live == 2
    now[0] += 1
    store.expire()
    assert store.live == 0 and store.seq == 3


def test_messages_limits_how_far_numbers_reach():
    store = flash_store(NOR(16, 1024), messages=16)
    assert full(store, b"") == 16
    store.done(5)
    assert full(store, b"") == 0, "the oldest is still live"
    store.done(1)
    assert full(store, b"") == 1


def with_fewer(flash, numbers, **options):
    """Mounted with messages=16 these numbers are there, with their bytes, and take no new one
    while they are too many; when they are done there is room for 16 again."""
    for _ in range(2):
        store = flash_store(flash, messages=16, **options)
        assert jm.walk(store) == numbers and store.live == len(numbers)
        assert (store.dropped, store.skipped) == (0, 0)
        for seq in numbers:
            assert body(store, seq).endswith(b"%d" % seq)
    assert full(store) == 0
    for seq in numbers:
        store.done(seq)
    store = flash_store(flash, messages=16, **options)
    assert (store.live, store.dropped) == (0, 0) and full(store) == 16


def test_what_came_with_more_messages_is_kept_with_fewer():
    flash = NOR(8, 1024)
    store = flash_store(flash, messages=64)
    for i in range(1, 41):
        store.put(i, 2, b"t", b"%d" % i)
    with_fewer(flash, list(range(1, 41)))


def test_what_was_moved_is_kept_with_fewer_messages():
    flash = NOR(8, 1024)
    store = flash_store(flash, messages=1000, max_age=9, clock=lambda: 1)
    for i in range(1, 601):
        store.put(i, 2, b"t", b"%d" % i)
        if i % 40:
            store.done(i)
    assert store.erases > 12, "nothing was reclaimed"
    with_fewer(flash, list(range(40, 601, 40)), max_age=9, clock=lambda: 1)


def test_what_is_done_takes_no_room_with_fewer_messages():
    flash = NOR(8, 1024)
    store = flash_store(flash, messages=64)
    for i in range(40):
        store.put(i + 1, 2, b"t", b"")
    for i in range(40):
        store.done(i + 1)
    store = flash_store(flash, messages=16)
    assert (store.live, store.dropped) == (0, 0) and full(store) == 16


def test_bad_arguments_are_refused_with_reasons():
    for make, text in (
        (lambda: FlashStore(NOR(3, 1024)), "segments"),
        (lambda: FlashStore(NOR(8, 1024), segment=1500), "multiple"),
        (lambda: FlashStore(NOR(8, 1024), first=4, blocks=5), "blocks"),
        (lambda: flash_store().put(1, 2, b"t", bytes(2000)), "segment"),
    ):
        try:
            make()
        except ValueError as e:
            assert text in str(e), str(e)
        else:
            raise AssertionError("accepted: " + text)


def test_a_message_too_large_is_refused_with_the_largest_that_is_taken():
    for page in (1, 16, 256):
        for store in (flash_store(NOR(8, 2048, page)),
                      flash_store(NOR(8, 2048, page), once=True)):
            try:
                store.put(1, 2, b"t", bytes(2100))
                raise AssertionError("accepted")
            except ValueError as e:
                text = str(e)
            assert "have 2101 bytes" in text and "of 2048" in text and "segment=" in text
            most = int(text.split("at most ")[1].split()[0])
            store.put(1, 2, b"t", bytes(most - 1))
            assert store.find(1) == most + 4
            try:
                store.put(1, 2, b"t", bytes(most))
                raise AssertionError("one byte more is accepted")
            except ValueError:
                pass
            assert store.live == 1


def test_only_its_own_blocks_are_touched():
    flash = NOR(12, 1024)
    flash.data[:] = b"\x5a" * len(flash.data)
    store = flash_store(flash, first=3, blocks=5)
    for i in range(100):
        store.put(1, 2, b"t", bytes(100))
        store.done(i + 1)
    assert bytes(flash.data[: 3 * 1024]) == b"\x5a" * 3072
    assert bytes(flash.data[8 * 1024 :]) == b"\x5a" * 4096


def test_mounting_whatever_is_there():
    random = __import__("nor").Random(7)
    for _ in range(20):
        flash = NOR(5, 1024)
        flash.data[:] = bytes([random.bits(8) for _ in range(len(flash.data))])
        store = flash_store(flash)
        assert store.live == 0 and store.skipped > 5000
        store.put(1, 2, b"t", b"x")
        assert flash_store(flash).live == 1


def test_damage_costs_one_message_and_is_counted():
    random = __import__("nor").Random(8)
    for i in range(45):
        page, once = (1, False) if i % 3 else (16, True)
        flash = NOR(7, 1024, page, once)
        store = flash_store(flash, once=once)
        for i in range(20):
            store.put(i + 1, 2, b"t", bytes(50))
        place = store._places[1 + random.below(19)]
        flash.data[place + random.below(60)] ^= 1 << random.below(8)
        store = flash_store(flash, once=once)
        assert store.live >= 18 and store.skipped > 0 and store.seq == 21


def test_a_segment_of_another_journal_is_not_read():
    """It has the serial number of one that is in the log, and lies before that."""
    flashes = [NOR(6, 1024), NOR(6, 1024)]
    stores = []
    for first, flash in zip((0, 1000), flashes):
        store = flash_store(flash)
        for i in range(60):
            seq = store.put(first + i + 1, 2, b"t", bytes(50))
            if seq > 20:
                store.done(seq - 20)
        stores.append(store)
    store = stores[0]
    at = store._places[store.low % store._span] & -1024
    free = list(store._serials).index(0) * 1024
    assert free < at
    flashes[0].data[free : free + 1024] = flashes[1].data[at : at + 1024]
    found = flash_store(flashes[0])
    assert (found.live, found.seq, found.epoch) == (20, 61, store.epoch)
    for seq in range(41, 61):
        found.find(seq)
        assert found.pid == seq


def test_a_journal_of_another_version_is_not_read():
    flash = NOR(6, 1024)
    newer = FlashStore(flash)
    newer._magic = newer._magic[:4] + b"\x02" + newer._magic[5:]
    newer.open()
    newer.put(1, 2, b"t", b"of the newer one")
    store = flash_store(flash)
    assert (store.live, store.seq) == (0, 1) and store.epoch != newer.epoch


def test_a_stuck_sector_is_gone_around():
    for failing in (False, True):
        for block in range(8):
            flash = NOR(8, 1024)
            store = flash_store(flash, messages=256)
            seq = store.put(1, 2, b"t", b"kept")
            flash.stuck.add(block)
            flash.failing = failing
            for _ in range(150):
                store.done(store.put(2, 2, b"t", bytes(100)))
            assert body(store, seq)[5:] == b"kept"
            store = flash_store(flash, messages=256)
            assert body(store, seq)[5:] == b"kept" and store.live == 1


def test_with_a_stuck_sector_it_takes_messages_again_once_it_was_full():
    flash = NOR(4, 1024)
    store = flash_store(flash)
    flash.stuck.add(3)
    for size in (300, 400):
        waiting = [store.put(1, 2, b"t", bytes(size))]
        while len(waiting) < 4:
            try:
                waiting.append(store.put(2, 2, b"t", bytes(800)))
            except StoreFull:
                break
        assert len(waiting) < 4
        for seq in waiting:
            store.done(seq)
        store.done(store.put(3, 2, b"t", bytes(800)))


def test_a_dead_flash_is_an_error_not_a_hang():
    flash = NOR(4, 1024)
    flash.stuck.update(range(4))
    try:
        flash_store(flash)
    except OSError:
        return
    raise AssertionError("a journal on a flash that takes nothing")


def test_encrypted_flash():
    flash = Encrypted(NOR(8, 1024, 16, True))
    live = 0
    for boot in range(1, 20):
        store = flash_store(flash, encrypted=True)
        assert (store.boot, store.live, store.skipped) == (boot, live, 0)
        for _ in range(5):
            store.put(1, 2, b"t", bytes(60))
        for _ in range(4):
            store.done(store.low)
        live += 1


def test_wear_is_even_and_near_the_limit():
    for page in (1, 256):
        flash = NOR(16, 4096, page)
        store = flash_store(flash)
        for i in range(300):
            seq = store.put(i + 1, 2, b"fleet/hall/telemetry", bytes(100))
            if not i % 16:
                store.mark(seq + 15)
            store.done(seq)
        used = (store.erases * 4096 - (4096 - store._off)) / 300
        assert used < 1.35 * (20 + 100 + 7), "%d bytes of flash for each message" % used
    assert max(flash.worn) - min(flash.worn) <= 1


def test_random_operations_agree_with_the_model():
    quiet = Geometry("roomy", 8, 1024, 1, hold=True)
    for geometry in (quiet,) + GEOMETRIES:
        run = Run(geometry, 77, lambda program: ())
        run.format()
        run.quietly(150)


def test_checks_in_bytecode_are_those_of_the_fast_code():
    data = bytes([i * 31 & 255 for i in range(300)])
    a = bytearray(4)
    b = bytearray(4)
    for off, n in ((0, 1), (1, 100), (101, 0), (101, 199)):
        crc32(a, data, off, n)
        bits.crc32(b, data, off, n)
        assert a == b
    assert a == __import__("binascii").crc32(data).to_bytes(4, "big")
    buf = bytearray(10)
    copy(buf, 2, data, 5, 6)
    assert buf[2:8] == data[5:11] and buf[0] == buf[9] == 0
    assert same(buf, 2, data, 5, 6) and not same(buf, 1, data, 5, 6)
    bits.copy(buf, 1, buf, 2, 6)
    assert bits.same(buf, 1, data, 5, 6) and not bits.same(buf, 0, data, 5, 6)
