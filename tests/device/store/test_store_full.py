"""FileStore on a littlefs that is full, of the journal itself or of other files.

Knows: MicroPython's VfsLfs2, the client, the Store interface.
Must not know: records, how many files a journal has.
"""
# only: micropython
# heap: 4M

import os

from full_disk import folder, on_disk
from harness import Bench, raises, reason
from nor import Random
from store_kit import full
from store_life import POLICIES, Life, show
from umqtt_min import DROP_OLDEST, FileStore
from umqtt_min.errors import STORE_FULL
from umqtt_min.store import StoreFull

# seed, operations; size, segment, chunk: four segments
LEAST = ((2, 60, 2048, 512, 112), (6, 60, 4096, 1024, 112), (4, 60, 2048, 512, 64))
LARGE = bytes(80)


def publish_all(b, refused):
    """Publish without a connection until that function says that it is refused; what went in."""
    sent = []
    while True:
        payload = b"%d" % len(sent) + LARGE
        if refused(b, payload):
            return sent
        sent.append(payload)
        assert len(sent) < 2000, "it is never full"


def raise_full(b, payload):
    """Whether publish() raises STORE_FULL; any other error is the test's."""
    try:
        b.client.publish("t", payload, qos=1, wait=False)
    except Exception as e:
        assert getattr(e, "reason", None) == STORE_FULL, repr(e)
        assert not e.stored
        return True
    return False


def bench(**options):
    """A client whose messages no broker has seen yet."""
    b = Bench(store=folder(**options), window=8)
    b.connect()
    b.client.disconnect()
    return b


def delivered(b, sent):
    """Connect; all that was accepted arrives, in order, and nothing else."""
    b.connect()
    assert b.client.flush(60)
    assert b.client.inflight() == 0
    assert [m.payload for m in b.broker.messages] == sent
    b.client.disconnect()


def test_a_journal_that_fills_a_small_file_system_is_full_and_no_more():
    def journal_alone(disk):
        b = bench()
        sent = publish_all(b, raise_full)
        assert len(sent) > 50
        assert reason(b.client.publish, "t", LARGE, qos=1, wait=False) == STORE_FULL
        delivered(b, sent)
        more = publish_all(b, raise_full)  # what was acknowledged gave its room back
        assert len(more) >= len(sent) * 3 // 4
        delivered(b, sent + more)

    on_disk(32, journal_alone)


def test_a_journal_beside_files_that_left_little_is_full_and_no_more():
    def little_left(disk):
        b = bench()
        disk.fill(18)
        sent = publish_all(b, raise_full)
        assert sent
        delivered(b, sent)

    on_disk(40, little_left)


def test_other_files_that_take_all_room_leave_the_journal_its_own():
    def nothing_left(disk):
        b = bench()
        sent = [b"%d" % i + LARGE for i in range(30)]
        for payload in sent:
            b.client.publish("t", payload, qos=1, wait=False)
        disk.fill()
        sent += publish_all(b, raise_full)
        delivered(b, sent)
        again = publish_all(b, raise_full)
        assert again
        delivered(b, sent + again)

    on_disk(40, nothing_left)


def test_a_reboot_on_a_full_file_system_loses_nothing():
    def reboot(disk):
        b = bench()
        sent = publish_all(b, raise_full)
        disk.fill()
        for _ in range(2):
            disk.boot()
            b.make(store=folder(), window=8)
            assert b.client.inflight() == len(sent)
        delivered(b, sent)

    on_disk(28, reboot)


def test_publishing_goes_on_when_room_came_back():
    def room_again(disk):
        b = bench()
        disk.fill()
        sent = publish_all(b, raise_full)
        disk.empty()
        more = [b"%d" % i + LARGE for i in range(100)]
        for payload in more:
            b.client.publish("t", payload, qos=1, wait=False)
        delivered(b, sent + more)

    on_disk(40, room_again)


def test_the_oldest_is_given_up_where_the_application_says_so():
    def oldest(disk):
        b = bench(policy=DROP_OLDEST)
        sent = [b"%d" % i + LARGE for i in range(150)]
        for payload in sent:
            b.client.publish("t", payload, qos=1, wait=False)
        dropped = b.client.store.dropped
        assert 50 < dropped < 130
        assert os.statvfs("/full")[4] <= os.statvfs("/full")[2] // 4, "it was not full"
        delivered(b, sent[dropped:])

    on_disk(28, oldest)


def life(disk, seed, steps, *sizes):
    """Of a store in a folder of the disk, which is mounted anew at each boot."""

    def make(**options):
        return FileStore("/full/mq", *sizes, **options)

    one = Life(seed, make, POLICIES[seed % 3], lambda one, store: disk.boot())
    one.run(steps)
    one.store.close()
    disk.format()
    return one


def test_as_few_segments_as_there_may_be_go_on():
    def few(disk):
        show([life(disk, *least) for least in LEAST])

    on_disk(24, few)


class Link:
    """A client of a small journal that publishes, mostly offline, and reboots."""

    def __init__(self, disk, seed):
        self.disk = disk
        self.random = Random(seed)
        self.b = Bench(store=self.boot())
        self.taken = []
        self.dropped = 0

    def boot(self):
        return folder(size=8192, segment=2048, policy=DROP_OLDEST)

    def publish(self):
        n = len(self.taken)
        payload = b"%d." % n + bytes((0, 10, 100, 400)[self.random.below(4)])
        self.b.client.publish("t", payload, qos=1 + self.random.below(2), wait=False)
        self.taken.append(payload)

    def reboot(self):
        self.dropped += self.b.client.store.dropped
        self.disk.boot()
        self.b.make(store=self.boot(), window=8)

    def online(self):
        self.b.connect()
        assert self.b.client.flush(60)  # what is given up later was not under way
        for _ in range(self.random.below(12)):
            self.publish()
            assert self.b.client.flush(60)
        self.b.client.disconnect()

    def check(self):
        """All came, in order and once, but those that were dropped."""
        got = [int(m.payload.split(b".")[0]) for m in self.b.broker.messages]
        assert sorted(set(got)) == got, got
        assert self.dropped and len(got) + self.dropped == len(self.taken), (
            "%d taken, %d arrived, %d dropped" % (len(self.taken), len(got), self.dropped))


def test_a_client_with_few_segments_publishes_connects_and_reboots_for_ever():
    def link(disk):
        for seed in (1, 5, 7):
            one = Link(disk, seed)
            for _ in range(200):
                one.publish()
                if not one.random.below(60):
                    one.reboot()
                elif not one.random.below(70):
                    one.online()
            one.b.connect()
            assert one.b.client.flush(60)
            one.reboot()
            assert one.b.client.inflight() == 0
            one.check()
            disk.format()

    on_disk(24, link)


def test_what_cannot_be_recorded_is_not_taken_for_recorded():
    def no_room(disk):
        # Files that are too long to be inline: littlefs takes a block for each program.
        options = {"size": 8192, "segment": 512, "chunk": 240}
        b = bench(**options)
        store = b.client.store
        sent = [b"%d" % i + LARGE for i in range(4)]
        for payload in sent:
            b.client.publish("t", payload, qos=1, wait=False)
        disk.fill()
        assert raise_full(b, bytes(200))
        for _ in range(3):
            e = raises(OSError, b.connect)
            assert e.errno == 28 and "the file system is full" in str(e), repr(e)
            assert not b.client.connected
            e = raises(OSError, b.client.discard)
            assert e.errno == 28, repr(e)
        assert b.client.inflight() == 4
        e = raises(OSError, store.session, b"another")
        assert e.errno == 28 and store.key != b"another"
        e = raises(OSError, store.done, 1)
        assert e.errno == 28 and store.live == 4
        disk.empty()
        delivered(b, sent)

    on_disk(40, no_room)


class Failing:
    """A medium whose file system has no room for a time."""

    def __init__(self, medium):
        self._medium = medium
        self.full = False

    def __getattr__(self, name):
        return getattr(self._medium, name)

    def program(self, segment, off, view):
        if self.full:
            raise StoreFull()
        self._medium.program(segment, off, view)


def test_no_room_for_the_header_of_a_segment_changes_nothing():
    def header(disk):
        store = folder(size=8192)
        store.open()
        store.medium = medium = Failing(store.medium)
        n = full(store, LARGE)
        for seq in range(1, n + 1):
            store.done(seq)
        for _ in range(3 * n):  # each of the places where a segment may end is met
            medium.full = True
            raises(OSError, store.put, 7, 2, b"t", LARGE)
            medium.full = False
            seq = store.put(7, 2, b"t", LARGE)
            medium.full = True
            raises(OSError, store.done, seq)
            medium.full = False
            store.done(seq)
        last = store.put(7, 2, b"t", LARGE)
        store.close()
        disk.boot()
        store = folder(size=8192)
        store.open()
        assert (store.live, store.seq - 1, store.skipped) == (1, last, 0)

    on_disk(30, header)
