"""The contracts of a medium and of a store, as tests: the library's are held to them, and yours.

    import store_kit

    def new():                       # a new place, with nothing in it
        memory = {}                  # what outlives the power
        return lambda: DictMedium(memory)      # the medium as after power-on

    def test_my_medium():
        store_kit.check_medium(new)

    def test_a_journal_on_it():
        store_kit.check_store(store_kit.journal_on(new))

For a store of your own new() takes the options hold, policy, max_age and clock, and what it
returns gives the store as after power-on, with room for 20 to 2000 messages of 100 bytes.

Knows: the contracts, umqtt_min/store/contract.py and medium.py; the model of a store.
Must not know: which store or medium it is, the bytes of a record.
"""

import sys

import journal_model as jm
from harness import raises
from nor import Random
from umqtt_min.store import AGAIN, DROP_OLDEST, HELD, LATEST, QUEUED, RELEASED, StoreFull
from umqtt_min.store.contract import Store
from umqtt_min.store.journal import Journal
from umqtt_min.store.medium import Medium


def check_medium(new):
    """Hold a medium to its contract."""
    each(MEDIUM, (("", new),))


def check_store(new):
    """Hold a store to its contract."""
    each(STORE, (("", new),))


def each(checks, places):
    """Each check with each place: a pair of name and new(). Names where one failed."""
    for check in checks:
        for name, new in places:
            try:
                check(new)
            except BaseException:
                print("%s with %s" % (check.__name__, name or "it"))
                raise


def journal_on(new):
    """Journals on a medium, for check_store()."""

    def store(**options):
        power_on = new()
        return lambda: Journal(power_on(), **options)

    return store


# A medium.


def content(medium, segment, off=0, n=0):
    """Bytes of a segment, all without n."""
    buf = bytearray(n or medium.size)
    medium.read(segment, off, buf)
    return bytes(buf)


def ready(new):
    """A medium, open, its segments erased; the bytes that one program has."""
    medium = new()()
    medium.open()
    for segment in range(medium.count):
        medium.erase(segment)
    return medium, max(16, medium.page)


def it_has_a_geometry(new):
    medium = new()()
    assert 256 <= medium.size <= 65536 and not medium.size & medium.size - 1
    assert medium.count >= 3 + medium.spare and medium.spare >= 1 + bool(medium.once)
    assert 1 <= medium.page <= 256 and medium.size % medium.page == 0
    assert medium.chunk % 16 == 0 and 64 <= medium.chunk <= 256
    for name in dir(Medium):
        assert name.startswith("__") or hasattr(medium, name), name


def an_erased_segment_reads_as_blank(new):
    medium, _ = ready(new)
    for segment in range(medium.count):
        assert medium.noisy or content(medium, segment) == b"\xff" * medium.size


def what_was_programmed_is_read_and_nothing_else_changes(new):
    medium, n = ready(new)
    data = bytes([1 + i % 250 for i in range(n)])
    before = [content(medium, segment) for segment in range(4)]
    size = medium.size
    late = size - 256
    medium.program(2, 0, memoryview(data))
    medium.program(2, size - n, memoryview(data))
    medium.program(0, late, memoryview(data))
    for off, length in ((0, n), (size - n, n), (1, n - 1), (3, 5)):
        start = off % (size - n) if off else 0
        assert content(medium, 2, off, length) == data[start : start + length], off
    assert content(medium, 2, n, size - 2 * n) == before[2][n : size - n]
    assert content(medium, 0, late, n) == data
    assert not late or content(medium, 0, 0, late) == before[0][:late]
    for segment in (1, 3):
        assert content(medium, segment) == before[segment], segment


def every_segment_is_erased_and_programmed_to_its_end(new):
    medium, n = ready(new)
    for segment in range(medium.count):
        for off in (0, medium.size - n):
            medium.program(segment, off, memoryview(bytes([segment % 250] * n)))
    for segment in range(medium.count):
        for off in (0, medium.size - n):
            assert content(medium, segment, off, n) == bytes([segment % 250] * n), segment
        medium.erase(segment)
        medium.program(segment, 0, memoryview(bytes(n)))
        assert content(medium, segment, 0, n) == bytes(n), "%d was not erased" % segment
        medium.erase(segment)
        assert medium.noisy or content(medium, segment) == b"\xff" * medium.size, segment


def padding_changes_nothing(new):
    medium, n = ready(new)
    if medium.once:
        return
    medium.program(1, 0, memoryview(b"\x12" + b"\xff" * (n - 1)))
    if medium.page == 1:
        medium.program(1, 1, memoryview(b"\x34" + b"\xff" * (n - 1)))
        # The padding of a record's first piece may lie over its next one.
        medium.program(1, 64, memoryview(b"\x56" * n))
        medium.program(1, 63, memoryview(b"\x78" + b"\xff" * (n - 1)))
        assert content(medium, 1, 63, n + 1) == b"\x78" + b"\x56" * n, "padding was written"
    else:
        medium.program(1, 0, memoryview(b"\xff\x34" + b"\xff" * (n - 2)))
    assert content(medium, 1, 0, 3) == b"\x12\x34\xff"


def the_bytes_are_the_mediums_own(new):
    medium, n = ready(new)
    buf = bytearray(b"\x21" * n)
    medium.program(1, 0, memoryview(buf))
    buf[:] = b"\x42" * n
    assert content(medium, 1, 0, n) == b"\x21" * n, "it kept the view"
    into = bytearray(n)
    medium.read(1, 0, into)
    into[0] = 0
    assert content(medium, 1, 0, n) == b"\x21" * n, "it gave its own bytes away"


def it_is_there_after_closing_and_opening(new):
    medium, n = ready(new)
    medium.program(3, 0, memoryview(bytes(n)))
    medium.close()
    medium.open()
    assert content(medium, 3, 0, n) == bytes(n)


def what_was_programmed_outlives_the_power(new):
    power_on = new()
    medium = power_on()
    medium.open()
    for segment in (1, 2):
        medium.erase(segment)
        medium.program(segment, 0, memoryview(bytes(max(16, medium.page))))
    medium.erase(1)
    medium.program(1, 0, memoryview(b"\x11" * max(16, medium.page)))
    medium = power_on()  # not closed: the power went
    medium.open()
    assert content(medium, 1, 0, 16) == b"\x11" * 16 and content(medium, 2, 0, 16) == bytes(16)


def erasing_one_segment_leaves_the_others(new):
    medium, n = ready(new)
    for segment in (1, 2):
        medium.program(segment, 0, memoryview(bytes(n)))
    medium.erase(1)
    assert medium.noisy or content(medium, 1) == b"\xff" * medium.size
    assert content(medium, 2, 0, n) == bytes(n)


MEDIUM = (
    it_has_a_geometry,
    an_erased_segment_reads_as_blank,
    what_was_programmed_is_read_and_nothing_else_changes,
    every_segment_is_erased_and_programmed_to_its_end,
    padding_changes_nothing,
    the_bytes_are_the_mediums_own,
    it_is_there_after_closing_and_opening,
    what_was_programmed_outlives_the_power,
    erasing_one_segment_leaves_the_others,
)


# A store.


class Case:
    """A store, new and open, that may be made again."""

    def __init__(self, new, **options):
        self._power_on = new(**options)
        self.store = self._power_on()
        self.store.open()

    def again(self):
        """The store as after a reboot; RAM survives none: it is closed and opened."""
        self.store.close()
        self.store = self._power_on()
        self.store.open()
        return self.store

    def views(self):
        """The store as it is, and as after a reboot."""
        yield self.store
        yield self.again()


def body(store, seq):
    """The whole body of a live message."""
    n = store.find(seq)
    buf = bytearray(n)
    store.read(0, buf, n)
    return bytes(buf)


def full(store, payload=b""):
    """Put messages with this payload until one is refused; how many went in."""
    for n in range(10000):
        try:
            store.put(n + 1, 2, b"t", payload)
        except StoreFull:
            return n
    raise AssertionError("it is never full")


def it_has_all_that_the_contract_names(new):
    store = Case(new).store
    for name in dir(Store):
        if not name.startswith("_"):
            assert hasattr(store, name), name
            wanted, found = getattr(Store, name), getattr(store, name)
            assert callable(wanted) == callable(found) or name == "begun", name
            if callable(wanted) and sys.implementation.name == "cpython":
                import inspect

                found = [p for p in inspect.signature(type(store).__dict__.get(name) or getattr(
                    type(store), name)).parameters]
                assert found == list(inspect.signature(wanted).parameters), (name, found)


def an_empty_one_has_nothing(new):
    store = Case(new).store
    assert (store.seq, store.low, store.live, store.held, store.dropped) == (1, 1, 0, 0, 0)
    assert (store.sent, store.confirmed, store.last_pid, store.key) == (0, 0, 0, b"")
    assert store.next(0) == 0 and not store.find(1) and not store.in_has(1)
    assert store.boot == 1 and store.free() > 1000


def a_message_is_read_back_in_pieces(new):
    store = Case(new).store
    seq = store.put(0x1234, 5, b"a/b", bytes(range(250)))
    assert seq == 1 and store.find(seq) == 257
    assert (store.pid, store.flags, store.state) == (0x1234, 5, QUEUED)
    whole = b"\x00\x03a/b\x12\x34" + bytes(range(250))
    for n in (1, 7, 100, 257):
        for pos in range(0, 257 - n + 1, n):
            buf = bytearray(n)
            store.read(pos, buf, n)
            assert bytes(buf) == whole[pos : pos + n]
    assert not store.find(2) and not store.find(0)


def what_is_no_live_number_is_no_error(new):
    store = Case(new, hold=True).store
    store.put(1, 2, b"t", b"x")
    for seq in (0, 2, 99):
        for name in ("rec", "done", "drop", "sending"):
            getattr(store, name)(seq)
    assert store.again(0, 99) == 0
    store.in_del(5)
    assert (store.live, store.held, store.dropped, store.seq) == (1, 0, 0, 2)
    assert body(store, 1)[5:] == b"x" and jm.walk(store) == [1]


def numbers_go_on_over_reboots(new):
    case = Case(new)
    for expected in range(1, 60):
        assert case.store.put(1, 2, b"t", bytes(60)) == expected
        case.store.done(expected)
        if expected % 7 == 0:
            assert case.again().seq == expected + 1


def no_number_comes_twice_after_the_newest_is_gone(new):
    case = Case(new)
    for i in range(3):
        case.store.put(10 + i, 2, b"t", b"")
    case.store.done(3)
    for view in case.views():
        assert (view.seq, view.low, view.live, view.last_pid) == (4, 1, 2, 12)
    assert case.store.put(20, 2, b"t", b"") == 4


def next_goes_on_from_a_number_that_is_gone(new):
    store = Case(new).store
    for i in range(5):
        store.put(10 + i, 2, b"t", b"")
    store.done(2)
    store.done(4)
    assert [store.next(seq) for seq in range(6)] == [1, 3, 3, 5, 5, 0]


def states_survive_a_reboot(new):
    case = Case(new, hold=True)
    store = case.store
    store.session(b"key")
    for i in range(5):
        store.put(10 + i, 4, b"t", b"%d" % i)
    store.mark(3)
    store.mark(2)
    store.rec(2)
    store.done(1)
    store.in_add(77)
    store.in_add(78)
    store.in_add(78)
    store.in_del(77)
    for view in case.views():
        states = [view.find(seq) and view.state for seq in range(1, 6)]
        assert states == [HELD, RELEASED, QUEUED, QUEUED, QUEUED]
        assert (view.key, view.sent, view.last_pid, view.live, view.held) == (b"key", 3, 14, 5, 1)
        assert view.in_has(78) and not view.in_has(77)
        assert jm.walk(view) == [2, 3, 4, 5]


def a_new_session_queues_what_is_not_held(new):
    case = Case(new, hold=True)
    store = case.store
    for i in range(3):
        store.put(10 + i, 4, b"t", b"")
    store.mark(3)
    store.rec(2)
    store.done(1)
    store.in_add(5)
    store.session(b"other")
    for view in case.views():
        assert [view.find(seq) and view.state for seq in (1, 2, 3)] == [HELD, QUEUED, QUEUED]
        assert view.sent == 0 and not view.in_has(5) and view.key == b"other"
    assert "32" in str(raises(ValueError, view.session, bytes(33)))


def held_messages_are_asked_for_again(new):
    store = Case(new, hold=True).store
    for i in range(4):
        store.put(10 + i, 2, b"t", b"")
        store.done(i + 1)
    assert store.next(0) == 0 and store.held == 4
    assert store.again(2, 3) == 2 and store.held == 2
    assert store.next(0) == 2 and store.next(2) == 3 and store.next(3) == 0
    store.find(2)
    assert store.state == AGAIN
    store.sending(2)
    store.find(2)
    assert store.state == QUEUED
    store.done(2)
    assert store.held == 3
    n = store.confirm(3)
    assert (n, store.low) == (3, 4), "asked for again or not: %d %d" % (n, store.low)
    assert store.confirm(3) == 0


def confirm_releases_what_is_held_and_later_what_was_not_yet_done(new):
    case = Case(new, hold=True)
    store = case.store
    for i in range(4):
        store.put(10 + i, 2, b"t", b"")
    store.done(1)
    store.done(3)
    assert store.confirm(2) == 1 and store.low == 2
    store.done(2)
    assert not store.find(2), "confirmed before it was acknowledged"
    assert store.confirm(1000000) == 1, "numbers not yet given are not confirmed"
    store.put(20, 2, b"t", b"")
    store.done(5)
    for view in case.views():
        assert [seq for seq in range(1, 6) if view.find(seq)] == [4, 5]
        view.find(5)
        assert view.state == HELD and view.confirmed == 4


def full_it_refuses_and_takes_again_what_acknowledgements_free(new):
    case = Case(new)
    store = case.store
    n = full(store, bytes(100))
    assert n > 10
    erases = store.erases
    for _ in range(50):
        assert full(store, bytes(100)) == 0
    assert store.erases == erases, "refusing wears the flash"
    for view in case.views():
        assert (view.live, view.seq, view.last_pid) == (n, n + 1, n)
        assert len(jm.walk(view)) == n and body(view, n)[5:] == bytes(100)
    for _ in range(3 * n):
        view.done(view.low)
        full(view, bytes(100))
    assert view.live >= n - 2 and view.dropped == 0


def acknowledgements_find_room_in_a_full_one_in_any_order(new):
    for size in (0, 30, 100, 400):
        store = Case(new).store
        try:
            n = full(store, bytes(size))
        except ValueError:
            assert size > 100  # the kit asks for room for so long ones
            continue
        for seq in list(range(2, n + 1, 2)) + list(range(1, n + 1, 2)):
            store.rec(seq)
            store.done(seq)
        assert store.live == 0


def what_no_store_could_take_is_a_value_error(new):
    store = Case(new).store
    store.put(1, 2, b"t", b"x")
    raises(ValueError, store.put, 2, 2, b"t", bytes(70000))
    assert (store.live, store.seq, store.last_pid) == (1, 2, 1)


def drop_oldest_takes_everything_and_counts(new):
    store = Case(new, policy=DROP_OLDEST).store
    while store.dropped <= 100:
        assert store.seq < 3000, "it drops none"
        assert store.put(store.seq, 2, b"t", bytes(100)) == store.seq - 1
    assert store.dropped == store.seq - 1 - store.live
    assert store.low == store.seq - store.live


def latest_keeps_one_of_each_topic(new):
    case = Case(new, policy=LATEST)
    for i in range(99):
        case.store.put(i + 1, 2, b"abc"[i % 3 : i % 3 + 1], b"%d" % i)
        case.store.put(i + 1, 2, b"longer", b"")
    assert case.store.dropped == 2 * 99 - 4
    for view in case.views():
        topics = sorted([body(view, seq)[2:3] for seq in jm.walk(view)])
        assert topics == [b"a", b"b", b"c", b"l"]
        assert body(view, view.low)[-2:] == b"96"


def latest_leaves_alone_what_may_have_been_sent(new):
    store = Case(new, policy=LATEST).store
    for i in range(3):
        store.mark(store.put(i + 1, 2, b"a", b""))
    store.put(4, 2, b"a", b"")
    store.put(5, 2, b"a", b"")
    assert jm.walk(store) == [1, 2, 3, 5] and store.dropped == 1
    store.begun = lambda: 5  # the client knows more than the mark says
    store.put(6, 2, b"a", b"")
    assert jm.walk(store) == [1, 2, 3, 5, 6] and store.dropped == 1


def latest_leaves_alone_what_is_released(new):
    store = Case(new, policy=LATEST).store
    store.put(1, 4, b"a", b"")
    store.rec(1)
    store.put(2, 4, b"a", b"")
    store.put(3, 4, b"a", b"")
    assert jm.walk(store) == [1, 3] and store.find(1) and store.state == RELEASED


def latest_gives_up_the_oldest_when_too_many_topics_fill_it(new):
    case = Case(new, policy=LATEST)
    store = case.store
    while store.dropped <= 40:
        assert store.seq < 3000, "it drops none"
        store.put(store.seq, 2, b"%04d" % store.seq, bytes(50))
    last = store.seq
    assert store.dropped == last - 1 - store.live
    for view in case.views():
        assert jm.walk(view) == list(range(last - view.live, last)) and view.live > 5


def messages_that_are_too_old_are_dropped_and_counted(new):
    now = [100]
    store = Case(new, max_age=60, clock=lambda: now[0]).store
    for i in range(5):
        store.put(i + 1, 2, b"a", b"")
        now[0] += 20
    assert jm.walk(store) == [2, 3, 4, 5] and store.dropped == 1
    now[0] += 20
    store.expire()
    assert jm.walk(store) == [4, 5]
    now[0] += 60
    store.expire()
    assert store.live == 0 and store.seq == 6 and store.dropped == 5


def what_is_given_up_is_counted(new):
    case = Case(new)
    for i in range(3):
        case.store.put(i + 1, 2, b"t", b"")
    case.store.drop(2)
    assert case.store.dropped == 1
    for view in case.views():
        assert jm.walk(view) == [1, 3] and view.live == 2


def closed_it_refuses_and_opened_again_it_has_all(new):
    case = Case(new)
    store = case.store
    epoch = store.epoch
    boot = store.boot
    store.put(1, 2, b"t", b"x")
    store.close()
    raises(OSError, store.put, 2, 2, b"t", b"y")
    store.open()
    store.open()
    assert (store.live, store.seq, store.epoch) == (1, 2, epoch)
    assert store.boot in (boot, boot + 1)  # in RAM there is one boot
    assert body(store, 1)[5:] == b"x"
    assert len(epoch) == 8 and Case(new).store.epoch != epoch


def random_operations_agree_with_a_model(new):
    for seed in (5, 6):
        model = jm.Model(hold=True)
        case = Case(new, hold=True)
        scenario = jm.Scenario(Random(seed), 200)
        for _ in range(6):
            for _ in range(40):
                op = scenario.op(model)
                if jm.perform(case.store, op):
                    model.apply(op)
            for view in case.views():
                assert jm.snapshot(view, jm.PIDS) == model.snapshot()
                assert view.skipped == 0


STORE = (
    it_has_all_that_the_contract_names,
    an_empty_one_has_nothing,
    a_message_is_read_back_in_pieces,
    what_is_no_live_number_is_no_error,
    numbers_go_on_over_reboots,
    no_number_comes_twice_after_the_newest_is_gone,
    next_goes_on_from_a_number_that_is_gone,
    states_survive_a_reboot,
    a_new_session_queues_what_is_not_held,
    held_messages_are_asked_for_again,
    confirm_releases_what_is_held_and_later_what_was_not_yet_done,
    full_it_refuses_and_takes_again_what_acknowledgements_free,
    acknowledgements_find_room_in_a_full_one_in_any_order,
    what_no_store_could_take_is_a_value_error,
    drop_oldest_takes_everything_and_counts,
    latest_keeps_one_of_each_topic,
    latest_leaves_alone_what_may_have_been_sent,
    latest_leaves_alone_what_is_released,
    latest_gives_up_the_oldest_when_too_many_topics_fill_it,
    messages_that_are_too_old_are_dropped_and_counted,
    what_is_given_up_is_counted,
    closed_it_refuses_and_opened_again_it_has_all,
    random_operations_agree_with_a_model,
)
