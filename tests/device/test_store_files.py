"""FileStore: in the files of a host, and on a real littlefs that loses its power.

Knows: FileStore, NOR, MicroPython's VfsLfs2.  Must not know: the bytes of a record.
"""
# heap: 4M
# deadline: 120

import os
import sys

import journal_model as jm
from nor import NOR, PREFIX, PowerCut, Random
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


class Gate:
    """The way from one mount to the flash. Shut after a cut: MicroPython's collector closes
    files that were open then, with the heap locked."""

    def __init__(self, flash):
        self.flash = flash
        self.shut = False

    def ioctl(self, op, arg):
        return -5 if self.shut else self.flash.ioctl(op, arg)

    def readblocks(self, n, buf, off=0):
        return -5 if self.shut else self.flash.readblocks(n, buf, off)

    def writeblocks(self, n, buf, off=0):
        return -5 if self.shut else self.flash.writeblocks(n, buf, off)


class Board:
    """A littlefs on a NOR flash, as a port configures it; mounted at /lfs."""

    def __init__(self, prog, seed):
        import vfs

        self._vfs = vfs
        self._prog = prog
        self.flash = NOR(64, 4096, 1, seed=seed)
        vfs.VfsLfs2.mkfs(self.flash, progsize=prog)
        self._mount()

    def _mount(self):
        self._gate = Gate(self.flash)
        self._vfs.mount(self._vfs.VfsLfs2(self._gate, progsize=self._prog), "/lfs")

    def reboot(self):
        """The power is back. littlefs does not claim to live with weak bits: they are drawn
        once."""
        self._gate.shut = True
        self._vfs.umount("/lfs")
        self.flash.boot()
        self.flash.weak = {}
        self._mount()

    def end(self):
        """Leave no mount behind."""
        self.flash.boot()
        self._vfs.umount("/lfs")


def littlefs_cuts(prog, chunk, seed, cuts):
    """Operations on a FileStore, cut at random device operations of littlefs."""
    board = Board(prog, seed)
    random = Random(seed)
    model = jm.Model()
    scenario = jm.Scenario(Random(seed + 1), 300)
    outcomes = [(model.snapshot(), model)]
    boot = done = 0
    try:
        assert littlefs("/lfs/mqtt")
        while done < cuts:
            board.flash.cut_after(1 + random.below(60), random.below(40), PREFIX)
            op = None
            try:
                store = FileStore("/lfs/mqtt", 16384, chunk=chunk, inbound=8)
                store.open()
                found = jm.snapshot(store, jm.PIDS)
                allowed = [m for s, m in outcomes if s == found]
                assert allowed, "found %s, allowed %s" % (found, [s for s, _ in outcomes])
                model = allowed[0]
                assert store.boot > boot
                boot = store.boot
                while True:
                    op = scenario.op(model)
                    outcomes = model.outcomes(op)
                    if jm.perform(store, op):
                        model.apply(op)
                    outcomes = [(model.snapshot(), model)]
            except PowerCut:
                done += 1
                board.reboot()
    finally:
        board.end()


def test_littlefs_of_esp32_is_cut():
    if MICROPYTHON:
        littlefs_cuts(32, 112, 3, 5)


def test_littlefs_of_rp2_is_cut():
    if MICROPYTHON:
        littlefs_cuts(256, 224, 4, 8)
