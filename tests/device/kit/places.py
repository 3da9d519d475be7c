"""Where the tests of all media and all stores keep them: a name and new() for each, as
store_kit.py wants them. DictMedium is what somebody else would write: one class.

Knows: how each medium and each store is made.  Must not know: what is tested with it.
"""

import os

from nor import NOR, Encrypted
from store_kit import journal_on
from umqtt_min.store.files import FileStore
from umqtt_min.store.flash import FlashMedium, FlashStore
from umqtt_min.store.medium import Medium
from umqtt_min.store.plain_files import PlainFiles
from umqtt_min.store.ram import RAMStore
from umqtt_min.store.small_files import SmallFiles

SIZE = 2048
COUNT = 8


class DictMedium(Medium):
    """A dict of the segments that were programmed."""

    size = SIZE
    count = COUNT

    def __init__(self, memory, page=1, once=False):
        self.memory = memory
        self.page = page
        self.once = once
        self.spare = 2 if once else 1

    def read(self, segment, off, buf):
        whole = self.memory.get(segment) or b"\xff" * self.size
        buf[:] = whole[off : off + len(buf)]

    def program(self, segment, off, view):
        assert off % self.page == len(view) % self.page == 0
        assert off + len(view) <= self.size
        assert off // self.chunk == (off + len(view) - 1) // self.chunk or self.page == 1
        whole = self.memory.setdefault(segment, bytearray(b"\xff" * self.size))
        for i in range(len(view)):
            whole[off + i] &= view[i]

    def erase(self, segment):
        self.memory.pop(segment, None)


class LargerDict(DictMedium):
    """Where each record takes a page of its own."""

    count = 2 * COUNT


def in_dict(page=1, once=False, kind=DictMedium):
    def new():
        memory = {}
        return lambda: kind(memory, page, once)

    return new


def in_flash(page=1, once=False, encrypted=False):
    def new():
        flash = NOR(COUNT, SIZE, page, once or encrypted)
        device = Encrypted(flash) if encrypted else flash
        return lambda: FlashMedium(device, page=page, once=once, encrypted=encrypted)

    return new


_folders = []


def folder():
    """A folder that is not there yet, in the folder of this run."""
    _folders.append("%s/place%d" % (os.getcwd(), len(_folders)))
    return _folders[-1]


def whole(files):
    """With all segments made, as a journal does it."""
    files.open()
    files.begin(files.count, [0] * files.count)
    return files


def in_files(small):
    def new():
        path = folder()
        if small:
            return lambda: whole(SmallFiles(path, SIZE, COUNT, 112))
        return lambda: whole(PlainFiles(path, SIZE, COUNT))

    return new


MEDIA = (
    ("a dict", in_dict()),
    ("a dict of pages", in_dict(256)),
    ("a dict of pages, each once", in_dict(256, True)),
    ("flash of any bytes", in_flash()),
    ("flash with pages", in_flash(256)),
    ("flash with pages, each once", in_flash(256, True)),
    ("encrypted flash", in_flash(16, False, True)),
    ("plain files", in_files(False)),
    ("small files", in_files(True)),
)


def ram(**options):
    store = RAMStore(**options)
    return lambda: store


def flash(page):
    def new(**options):
        device = NOR(8, 1024, page)
        return lambda: FlashStore(device, **options)

    return new


def files(small):
    def new(**options):
        path = folder()
        return lambda: FileStore(path, size=16384, small=small, **options)

    return new


STORES = (
    ("RAMStore", ram),
    ("FlashStore, any bytes", flash(1)),
    ("FlashStore, pages", flash(256)),
    ("FileStore, plain files", files(False)),
    ("FileStore, small files", files(True)),
    ("a journal in a dict", journal_on(in_dict())),
    ("a journal in a dict of pages, each once", journal_on(in_dict(256, True, LargerDict))),
)
