"""FileStore in the files of a host. On littlefs: test_store_littlefs.py.

Knows: FileStore.  Must not know: the bytes of a record.
"""
# heap: 4M

import os
import sys

import journal_model as jm
from nor import Random
from umqtt_min.files import PlainFiles, SmallFiles, littlefs
from umqtt_min.store import FileStore

MICROPYTHON = sys.implementation.name == "micropython"


def fresh(name):
    """A folder that is not there yet, in the folder of this run."""
    return os.getcwd() + "/" + name


def life(folder, **options):
    """Random operations with reboots between them, beside the model."""
    model = jm.Model(hold=True)
    scenario = jm.Scenario(Random(5), 200)
    boot = 0
    for _ in range(6):
        store = FileStore(folder, hold=True, inbound=8, **options)
        store.open()
        boot += 1
        assert store.boot == boot and store.skipped == 0
        assert jm.snapshot(store, jm.PIDS) == model.snapshot()
        for _ in range(40):
            op = scenario.op(model)
            if jm.perform(store, op):
                model.apply(op)
        assert jm.snapshot(store, jm.PIDS) == model.snapshot()
        store.close()


def test_plain_files_survive_reboots():
    life(fresh("plain/a/b"), size=16384, small=False)


def test_small_files_survive_reboots():
    life(fresh("small"), size=16384, small=True)


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
    import umqtt_min.files

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
    assert umqtt_min.files.os is os


def test_small_files_are_no_longer_than_240_bytes():
    FileStore(fresh("longest"), chunk=240, small=True)
    try:
        FileStore(fresh("longer"), chunk=256, small=True)
        raise AssertionError("256 is taken")
    except ValueError as e:
        assert "chunk=256" in str(e) and "240" in str(e), str(e)
