"""Every medium, the library's and a third party's, held to the contract of store/medium.py, and a
journal on each of them. A new medium is added to media().

Knows: Medium, the Store interface, files, NOR.  Must not know: the bytes of a record.
"""

# heap: 4M
# deadline: 120

import os

from harness import raises
from nor import NOR
from store_kit import body, full
from umqtt_min.store import StoreFull
from umqtt_min.store.flash import FlashMedium
from umqtt_min.store.journal import Journal
from umqtt_min.store.medium import Medium
from umqtt_min.store.plain_files import PlainFiles
from umqtt_min.store.small_files import SmallFiles

SIZE = 2048
COUNT = 8


class Cut(Exception):
    """The power is cut."""


class DictMedium(Medium):
    """A third party's: a dict of the segments that were programmed."""

    size = SIZE
    count = COUNT

    def __init__(self, page=1, once=False):
        self.page = page
        self.once = once
        self.spare = 2 if once else 1
        self.segments = {}
        self.done = set()  # pages that were programmed
        self.left = -1  # operations until the power is cut

    def read(self, segment, off, buf):
        whole = self.segments.get(segment) or b"\xff" * self.size
        buf[:] = whole[off : off + len(buf)]

    def program(self, segment, off, view):
        assert off % self.page == len(view) % self.page == 0
        assert off + len(view) <= self.size
        if self.once:
            assert (segment, off) not in self.done, "a page is programmed twice"
        self.tick()
        self.done.add((segment, off))
        whole = self.segments.setdefault(segment, bytearray(b"\xff" * self.size))
        for i in range(len(view)):
            whole[off + i] &= view[i]

    def erase(self, segment):
        self.tick()
        self.segments.pop(segment, None)
        self.done = {page for page in self.done if page[0] != segment}

    def tick(self):
        """Count an operation; the power is cut before it is done."""
        self.left -= 1
        if self.left == -1:
            raise Cut()


def folder(name):
    """An empty folder."""
    path = "media_" + name
    try:
        os.mkdir(path)
    except OSError:
        for file in os.listdir(path):
            os.remove(path + "/" + file)
    return path


def media():
    """Each kind of medium, new, with COUNT segments."""
    yield DictMedium()
    yield DictMedium(256)
    yield DictMedium(256, True)
    yield FlashMedium(NOR(COUNT, SIZE))
    yield FlashMedium(NOR(COUNT, SIZE, 256), page=256)
    yield PlainFiles(folder("plain"), SIZE, COUNT)
    yield SmallFiles(folder("small"), SIZE, COUNT, 112)


def prepared():
    """Each medium, open, its segments erased, and the bytes that one program may have."""
    for medium in media():
        medium.open()
        for segment in range(medium.count):
            medium.erase(segment)
        yield medium, max(16, medium.page)


def content(medium, segment, off=0, n=SIZE):
    buf = bytearray(n)
    medium.read(segment, off, buf)
    return bytes(buf)


def test_each_is_a_medium_with_a_geometry():
    for medium in media():
        assert isinstance(medium, Medium)
        assert medium.size == SIZE and medium.count == COUNT >= 3 + medium.spare
        assert SIZE % medium.page == 0


def test_an_erased_segment_reads_as_blank():
    for medium, _ in prepared():
        for segment in range(COUNT):
            assert content(medium, segment) == b"\xff" * SIZE


def test_what_was_programmed_is_read_and_nothing_else_changes():
    for medium, n in prepared():
        data = bytes(range(1, n + 1)) if n < 255 else bytes(n)
        medium.program(2, 0, memoryview(data))
        medium.program(2, SIZE - n, memoryview(data)[:n])
        medium.program(4, 256, memoryview(data))
        whole = content(medium, 2)
        assert whole[:n] == data and whole[n : SIZE - n] == b"\xff" * (SIZE - 2 * n)
        assert content(medium, 4, 256, n) == data
        assert content(medium, 1) == content(medium, 3) == b"\xff" * SIZE


def test_padding_changes_nothing():
    for medium, n in prepared():
        if medium.once:
            continue
        medium.program(1, 0, memoryview(b"\x12" + b"\xff" * (n - 1)))
        if medium.page == 1:
            medium.program(1, 1, memoryview(b"\x34" + b"\xff" * (n - 1)))
        else:
            medium.program(1, 0, memoryview(b"\xff\x34" + b"\xff" * (n - 2)))
        assert content(medium, 1, 0, 3) == b"\x12\x34\xff"


def test_it_is_there_after_closing_and_opening():
    for medium, n in prepared():
        medium.program(3, 0, memoryview(bytes(n)))
        medium.close()
        medium.open()
        assert content(medium, 3, 0, n) == bytes(n)


def test_erasing_one_segment_leaves_the_others():
    for medium, n in prepared():
        for segment in (1, 2):
            medium.program(segment, 0, memoryview(bytes(n)))
        medium.erase(1)
        assert content(medium, 1) == b"\xff" * SIZE
        assert content(medium, 2, 0, n) == bytes(n)


def journal(medium):
    """A journal on it, open."""
    store = Journal(medium, inbound=4, window=100)
    store.open()
    return store


def test_a_journal_keeps_its_messages_over_many_rounds():
    for medium in media():
        store = journal(medium)
        for n in range(150):
            seq = store.put(n + 1, 2, b"t", b"%d" % n)
            if n > 2:
                store.done(seq - 3)
            if n % 20 == 19:
                store.close()
                store = journal(medium)
        assert store.live == 3 and store.erases + store.boot > 3
        for n in (147, 148, 149):
            assert body(store, n + 1)[5:] == b"%d" % n, type(medium)


def test_a_full_journal_says_so_and_goes_on():
    for medium in media():
        store = journal(medium)
        n = full(store, bytes(60))
        assert n > 3 and "full" in str(raises(StoreFull, store.put, 9, 2, b"t", bytes(60)))
        store.done(store.low)
        store.done(store.low)
        assert full(store, bytes(60)) > 0, type(medium)


def test_no_cut_loses_a_message():
    for page, once in ((1, False), (256, False), (256, True)):
        for cut in range(1, 40):
            medium = DictMedium(page, once)
            medium.left = cut
            stored = []
            try:
                store = journal(medium)
                while True:
                    stored.append(store.put(7, 2, b"t", bytes(100)))
                    if len(stored) % 2 == 0:
                        store.done(stored[-1])
            except Cut:
                pass
            medium.left = -1
            store = journal(medium)
            for seq in stored[:-1]:
                assert bool(store.find(seq)) == (seq % 2 == 1), (page, once, cut, seq)
