"""FileStore in the files of a host. On littlefs: test_store_littlefs.py.

Knows: FileStore.  Must not know: the bytes of a record.
"""
# heap: 4M

import os
import sys

from harness import raises
from store_kit import body
from umqtt_min.store.files import FileStore, littlefs
from umqtt_min.store.plain_files import PlainFiles
from umqtt_min.store.small_files import SmallFiles

MICROPYTHON = sys.implementation.name == "micropython"


def fresh(name):
    """A folder that is not there yet, in the folder of this run."""
    return os.getcwd() + "/" + name


def test_the_layout_fits_the_file_system():
    assert isinstance(FileStore(fresh("auto")).medium, PlainFiles)
    assert isinstance(FileStore(fresh("auto"), small=True).medium, SmallFiles)
    assert not littlefs(os.getcwd())


def test_files_that_are_gone_or_short_read_as_blank():
    folder = fresh("gone")
    store = FileStore(folder, size=16384)
    store.open()
    for i in range(3):
        store.put(i + 1, 2, b"t", b"x")
    store.close()
    name = folder + "/" + sorted(os.listdir(folder))[0]
    with open(name, "rb") as file:
        data = file.read(200)
    with open(name, "wb") as file:
        file.write(data)
    store = FileStore(folder, size=16384)
    store.open()
    assert store.live == 3
    store.close()
    os.remove(name)
    store = FileStore(folder, size=16384)
    store.open()
    assert store.boot >= 1


def test_plain_files_are_synced_one_by_one():
    if MICROPYTHON:
        return  # flush() syncs there: a C function that cannot be watched
    import umqtt_min.store.files

    synced = []
    fsync = os.fsync

    def watch(handle):
        synced.append(handle)
        fsync(handle)

    os.fsync = watch
    try:
        store = FileStore(fresh("synced"), size=16384)
        store.open()
        before = len(synced)
        store.put(1, 2, b"t", b"x")
        assert len(synced) == before + 1
        store.done(1)
        assert len(synced) == before + 2
    finally:
        os.fsync = fsync
    assert umqtt_min.store.files.os is os


def test_small_files_are_no_longer_than_240_bytes():
    FileStore(fresh("longest"), chunk=240, small=True)
    try:
        FileStore(fresh("longer"), chunk=256, small=True)
        raise AssertionError("256 is taken")
    except ValueError as e:
        assert "chunk=256" in str(e) and "240" in str(e), str(e)


def stored(folder, count, **options):
    """So many messages in a journal; what is in its files then."""
    store = FileStore(folder, **options)
    store.open()
    for i in range(count):
        store.put(i + 1, 2, b"t", b"%d" % i + bytes(40))
    store.close()
    return contents(folder)


def contents(folder):
    """Each file and its bytes."""
    files = {}
    for name in os.listdir(folder):
        with open(folder + "/" + name, "rb") as file:
            files[name] = file.read()
    return files


def refused(folder, words, **options):
    """Opening says these words, and changes nothing."""
    before = contents(folder)
    store = FileStore(folder, **options)
    for _ in range(2):
        text = str(raises(ValueError, store.open))
        for word in words:
            assert word in text, text
    assert contents(folder) == before


def all_there(folder, count, **options):
    """The messages that stored() put, in order, and nothing dropped."""
    store = FileStore(folder, **options)
    store.open()
    assert (store.live, store.dropped, store.skipped) == (count, 0, 0)
    for i in range(count):
        assert body(store, i + 1).endswith(b"%d" % i + bytes(40))
    store.close()


def test_a_journal_of_more_segments_than_size_has_is_refused_and_keeps_all():
    for name, small, size in (("larger", False, 16384), ("larger-small", True, 8192)):
        folder = fresh(name)
        made = stored(folder, 200, small=small)
        segments = {name.split(".")[0] for name in made}
        large = len(segments) * size // 4
        assert large > size
        refused(folder, (folder, "size=%d or more" % large), size=size, small=small)
        all_there(folder, 200, size=large, small=small)


def test_a_journal_that_never_had_more_segments_is_opened_with_a_smaller_size():
    folder = fresh("grown-little")
    stored(folder, 20, size=65536)
    all_there(folder, 20, size=16384)


def test_a_journal_of_the_other_layout_is_refused_and_keeps_all():
    for small in (False, True):
        folder = fresh("layout-%d" % small)
        stored(folder, 20, size=16384, small=small)
        refused(folder, (folder, "small=%s;" % small), size=16384, small=not small)
        all_there(folder, 20, size=16384, small=small)
