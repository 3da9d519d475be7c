"""FileStore makes its files on a littlefs: too little room, power cuts, small blocks.

Knows: MicroPython's VfsLfs2, the Store interface.
Must not know: records, how many files a journal has.
"""
# only: micropython
# heap: 4M

import os

import vfs
from full_disk import folder, on_disk
from harness import raises
from nor import Random
from store_kit import body, full
from umqtt_min import DROP_OLDEST
from umqtt_min.store import StoreFull

_BLOCK = 4096
LARGE = bytes(80)


def test_a_file_system_without_room_to_begin_says_what_is_missing():
    def too_small(disk):
        disk.fill(10)
        store = folder()
        e = raises(OSError, store.open)
        assert e.errno == 28
        free = "%d bytes are free" % (os.statvfs("/full")[4] * _BLOCK)
        for word in ("/full/mq", free, "segment="):
            assert word in str(e), str(e)
        disk.empty()
        store.open()
        assert full(store) > 50
        store.close()
        os.rename("/full/mq", "/full/other")
        disk.fill()
        e = raises(OSError, store.open)
        assert e.errno == 28 and "bytes are free" in str(e), repr(e)

    on_disk(30, too_small)


def test_what_found_no_room_to_begin_leaves_nothing_behind():
    def long_files(disk):
        # Too long to be inline: each takes a block, which the size of a block does not tell.
        store = folder(chunk=240)
        free = os.statvfs("/full")[4]
        e = raises(OSError, store.open)
        now = os.statvfs("/full")[4]
        assert e.errno == 28 and "%d bytes are free" % (now * _BLOCK) in str(e), repr(e)
        assert os.listdir("/full/mq") == []
        assert now >= free - 8

    on_disk(24, long_files)


class Limit:
    """A disk whose power goes in the write of that number."""

    def __init__(self, disk, writes):
        self._disk = disk
        self.left = writes

    def ioctl(self, op, arg):
        return self._disk.ioctl(op, arg)

    def readblocks(self, n, buf, off=0):
        return self._disk.readblocks(n, buf, off) if self.left else -5

    def writeblocks(self, n, buf, off=0):
        if not self.left:
            return -5
        self.left -= 1
        return self._disk.writeblocks(n, buf, off)


def test_a_first_start_that_was_cut_begins_at_the_next():
    def begin(disk, writes):
        disk.format()
        vfs.umount("/full")
        limit = Limit(disk, writes)
        vfs.mount(vfs.VfsLfs2(limit), "/full")
        try:
            folder(size=8192).open()
        except OSError:
            assert not limit.left
        left = limit.left
        limit.left = 0  # what the collector closes later is not written any more
        disk.boot()
        return left

    def cut(disk):
        total = 1000 - begin(disk, 1000)
        for writes in range(total // 2, total, 9):
            begin(disk, writes)
            store = folder(size=8192)
            store.open()
            store.put(1, 2, b"t", LARGE)
            store.close()

    on_disk(23, cut)


def test_small_blocks_are_never_all_taken():
    def small_blocks(disk):
        # Each file takes a block, and a free one for each program; directories are split late.
        options = {"size": 8192, "segment": 1024, "chunk": 64, "policy": DROP_OLDEST}
        random = Random(3)
        for _ in range(4):
            store = folder(**options)
            store.open()
            for _ in range(150):
                seq = store.put(1, 2, b"t", bytes(random.below(120)))
                if random.below(2):
                    store.done(seq)
            assert 6 <= os.statvfs("/full")[4] < 138
            store.close()
            disk.boot()

    on_disk(138, small_blocks, 512)


def taken_up(disk, options):
    """Fill a file system to its last block, as the library once did: it kept nothing back for
    directories that are split late. What is stored when a mount finds no block."""
    random = Random(10)
    found = None
    for _ in range(20):
        store = folder(policy=DROP_OLDEST, **options)
        store.medium.room = lambda segments: (1000, 0, 512)
        try:
            store.open()
        except StoreFull:
            return found
        try:
            for _ in range(random.below(40)):
                store.put(1, 2, b"t", bytes(random.below(400)))
        except StoreFull:
            pass  # it was too late already
        found = messages(store)
        store.close()
        disk.boot()
    raise AssertionError("there is always a block")


def messages(store):
    """All that is live: number and body."""
    return [(seq, body(store, seq)) for seq in range(store.low, store.seq) if store.find(seq)]


def test_a_journal_that_took_the_last_small_block_opens_and_drains():
    def no_block(disk):
        options = {"size": 8192, "segment": 1024, "chunk": 64}
        found = taken_up(disk, options)
        disk.boot()
        for _ in range(2):
            store = folder(**options)
            store.open()
            assert found and messages(store) == found
            disk.boot()
        for seq, _ in found:
            store.done(seq)
        assert store.live == 0 and full(store, LARGE) > 3
        store.close()

    on_disk(138, no_block, 512)


def cut_while_used(disk, blocks, options):
    """A journal that has all the room it may take is filled and emptied, and the power goes again
    and again on the way; at the end it takes and gives back as much as at first."""
    store = folder(**options)
    store.open()
    most = full(store, bytes(1500))
    for seq in range(store.low, store.seq):
        store.done(seq)
    store.close()
    for writes in range(7, 60, 17):
        vfs.umount("/full")
        limit = Limit(disk, writes)
        vfs.mount(vfs.VfsLfs2(limit), "/full")
        done = 0
        try:
            store = folder(**options)
            store.open()
            while True:
                store.put(1, 2, b"t", bytes(1500))
                done += 1
                if store.live > 5:
                    store.done(store.low)
        except OSError as e:
            assert not limit.left and e.errno != 28, "%d blocks, %r" % (blocks, e)
        limit.left = 0
        disk.boot()
        before = store.seq if done else 0
        store = folder(**options)
        store.open()
        assert store.seq >= before
    for seq in range(store.low, store.seq):
        store.done(seq)
    assert full(store, bytes(1500)) == most, "%d blocks" % blocks
    for seq in range(store.low, store.seq):
        store.done(seq)
    store.close()


def test_large_files_leave_the_room_that_a_change_of_one_takes():
    # To change a file littlefs copies what is behind the change, 17 or 33 blocks of these.
    for blocks, segment in ((98, 8192), (180, 16384)):
        on_disk(blocks, lambda disk, blocks=blocks, segment=segment: cut_while_used(
            disk, blocks, {"size": 6 * segment, "segment": segment, "small": False}), 512)
