"""FileStore with one file a segment: on the host's file system, and on FAT and littlefs in RAM.

Knows: FileStore, MicroPython's file systems.  Must not know: the bytes of a record.
"""
# heap: 4M

import os
import sys

from store_kit import body
from umqtt_min.store.files import FileStore

MICROPYTHON = sys.implementation.name == "micropython"
_BLOCK = 512


class Disk:
    """A block device in RAM, of 64 KiB."""

    def __init__(self):
        self._memory = bytearray(128 * _BLOCK)

    def ioctl(self, op, arg):
        return 128 if op == 4 else _BLOCK if op == 5 else 0

    def readblocks(self, n, buf, off=0):
        off += n * _BLOCK
        buf[:] = memoryview(self._memory)[off : off + len(buf)]

    def writeblocks(self, n, buf, off=0):
        off += n * _BLOCK
        self._memory[off : off + len(buf)] = buf


def everywhere(test):
    """The test with a folder that is not there yet, of each file system that there is."""
    test(os.getcwd() + "/" + test.__name__)
    if MICROPYTHON:
        import vfs

        for kind in (vfs.VfsFat, vfs.VfsLfs2):
            disk = Disk()
            kind.mkfs(disk)
            vfs.mount(kind(disk), "/plain")
            try:
                test("/plain/q")
            finally:
                vfs.umount("/plain")


def test_an_empty_file_system_is_not_full():
    """All its blocks are free, and the journal lies in its root."""
    if MICROPYTHON:
        import vfs

        disk = Disk()
        vfs.VfsFat.mkfs(disk)
        vfs.mount(vfs.VfsFat(disk), "/plain")
        try:
            store = FileStore("/plain", size=8192, segment=1024)
            store.open()
            assert store.put(1, 2, b"t", b"x") == 1
        finally:
            vfs.umount("/plain")


def opened(folder):
    store = FileStore(folder, size=2048, segment=512, small=False)
    store.open()
    return store


def last_record_crosses_a_page(folder):
    """The last message begins in the first of two pages and ends in the other: so there is no
    page left to settle in, and a mount writes it once more where it is."""
    for n in range(130, 190, 12):
        place = "%s%d" % (folder, n)
        sent = [bytes(n), b"last" * 10]
        store = opened(place)
        for i in range(2):
            store.put(i + 1, 2, b"t", sent[i])
        store.close()
        for boot in range(2, 5):
            store = opened(place)
            assert (store.live, store.boot) == (2, boot), (place, store.live, store.boot)
            for i in range(2):
                assert body(store, i + 1).endswith(sent[i]), (place, boot, i)
            store.close()


def test_a_message_across_two_pages_survives_reboots():
    everywhere(last_record_crosses_a_page)


def test_a_folder_without_a_root_stays_where_it_was():
    here = os.getcwd()
    os.mkdir("elsewhere")
    for small in (False, True):
        store = FileStore("own%d/q" % small, size=2048, segment=512, small=small)
        os.chdir("elsewhere")  # before the first file is made
        try:
            store.open()
            for i in range(40):  # more than a segment
                store.put(i + 1, 2, b"t", b"x" * 30)
                if i > 2:
                    store.done(store.next(0))
            assert os.listdir(".") == []
        finally:
            os.chdir(here)
        seen = store.live
        store.close()
        store = FileStore("%s/own%d/q" % (here, small), size=2048, segment=512, small=small)
        store.open()
        assert store.live == seen
        store.close()


def test_the_root_is_a_folder():
    here = os.getcwd()
    os.chdir("/")
    try:
        store = FileStore(here[1:] + "/r", size=2048, segment=512, small=False)
    finally:
        os.chdir(here)
    assert store.medium.folder == here + "/r"
