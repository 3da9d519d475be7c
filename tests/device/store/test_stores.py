"""What every store promises, the one in RAM and the journal alike, one promise a test. What only
one of them does is in test_ram_store.py and test_journal.py.

Knows: the Store interface.  Must not know: slots, the bytes of a record.
"""

# heap: 4M

import journal_model as jm
from harness import raises
from nor import NOR
from store_kit import body, full
from umqtt_min.store import AGAIN, HELD, LATEST, QUEUED, StoreFull
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore


class Kind:
    """One kind of store: what makes it, and what makes it again after a reboot."""

    def __init__(self, page=0, **options):
        self.flash = NOR(8, 1024, page) if page else None
        self.options = options
        self.store = self.again()

    def again(self):
        """The store as after a reboot; RAM survives none: it is closed and opened."""
        if self.flash:
            store = FlashStore(self.flash, **self.options)
        else:
            store = getattr(self, "store", None) or RAMStore(**self.options)
            store.close()
        store.open()
        return store

    def views(self):
        """The store as it is, and as after a reboot."""
        yield self.store
        yield self.again()


def kinds(**options):
    """Each kind of store, new and open: in RAM, on flash of any bytes, on flash with pages."""
    for page in (0, 1, 256):
        yield Kind(page, **options)


def test_a_store_is_of_its_class():
    for kind in kinds():
        assert isinstance(kind.store, FlashStore if kind.flash else RAMStore)
        assert not isinstance(kind.store, RAMStore if kind.flash else FlashStore)


def test_a_message_is_read_back_in_pieces():
    for kind in kinds():
        store = kind.store
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


def test_a_new_session_queues_what_is_not_held():
    for kind in kinds(hold=True):
        store = kind.store
        for i in range(3):
            store.put(10 + i, 4, b"t", b"")
        store.mark(3)
        store.rec(2)
        store.done(1)
        store.in_add(5)
        store.session(b"other")
        for view in kind.views():
            assert [view.find(seq) and view.state for seq in (1, 2, 3)] == [HELD, QUEUED, QUEUED]
            assert view.sent == 0 and not view.in_has(5) and view.key == b"other"
        assert "32" in str(raises(ValueError, store.session, bytes(33)))


def test_held_messages_are_asked_for_again():
    for kind in kinds(hold=True):
        store = kind.store
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


def test_confirm_releases_what_is_held_and_later_what_was_not_yet_done():
    for kind in kinds(hold=True):
        store = kind.store
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
        for view in kind.views():
            assert [seq for seq in range(1, 6) if view.find(seq)] == [4, 5]
            view.find(5)
            assert view.state == HELD


def test_full_it_refuses_and_takes_again_what_acknowledgements_free():
    for kind in kinds():
        store = kind.store
        n = full(store, bytes(100))
        assert n > 10
        erases = store.erases
        for _ in range(50):
            assert full(store, bytes(100)) == 0
        assert store.erases == erases, "refusing wears the flash"
        for _ in range(3 * n):
            store.done(store.low)
            full(store, bytes(100))
        assert store.live >= n - 2 and store.dropped == 0


def test_latest_leaves_alone_what_may_have_been_sent():
    for kind in kinds(policy=LATEST):
        store = kind.store
        for i in range(3):
            store.mark(store.put(i + 1, 2, b"a", b""))
        store.put(4, 2, b"a", b"")
        store.put(5, 2, b"a", b"")
        assert jm.walk(store) == [1, 2, 3, 5] and store.dropped == 1


def test_messages_that_are_too_old_are_dropped_and_counted():
    now = [0]
    for kind in kinds(max_age=60, clock=lambda: now[0]):
        store = kind.store
        now[0] = 100
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


def test_closed_it_refuses_and_opened_again_it_has_all():
    for kind in kinds():
        store = kind.store
        epoch = store.epoch
        boot = store.boot
        store.put(1, 2, b"t", b"x")
        store.close()
        raises(OSError, store.put, 2, 2, b"t", b"y")
        store.open()
        store.open()
        assert (store.live, store.seq, store.epoch) == (1, 2, epoch)
        assert store.boot == (boot + 1 if kind.flash else boot)
        assert body(store, 1)[5:] == b"x"
        assert len(epoch) == 8 and Kind(1 if kind.flash else 0).store.epoch != epoch


def test_arguments_that_are_wrong_are_refused_with_reasons():
    for options, text in (
        ({"inbound": 0}, "inbound"),
        ({"policy": 3}, "policy"),
        ({"max_age": 5}, "clock"),
    ):
        for page in (0, 1):
            assert text in str(raises(ValueError, Kind, page, **options))


def test_what_cannot_be_written_and_what_finds_no_room_change_nothing():
    for kind in kinds():
        store = kind.store
        n = full(store, bytes(100))
        assert "the store is full" in str(raises(StoreFull, store.put, 9, 2, b"t", bytes(100)))
        assert (store.live, store.seq, store.last_pid) == (n, n + 1, n)
        for view in kind.views():
            assert len(jm.walk(view)) == n and body(view, n)[5:] == bytes(100)
