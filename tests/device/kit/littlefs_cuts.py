"""Cuts the power in the middle of a FileStore's operations on a real littlefs on a NOR flash.

Knows: MicroPython's VfsLfs2, NOR, the model of a journal.  Must not know: records, small files.
Used by test_store_files.py (a sample) and by `make powercut`, for which it is a program, too:

    micropython littlefs_cuts.py PROG CHUNK SEED OPERATIONS SECONDS

A scenario of OPERATIONS is cut in every device operation that littlefs makes of it, torn in one of
four ways; the recovery from it is cut at random, too. Weak bits are drawn once, at the boot after
a cut: littlefs does not claim to live with bits that change later.
"""

import sys
import time

import journal_model as jm
import vfs
from nor import INVISIBLE, LOOKS_DONE, NOR, PREFIX, SUBSET, PowerCut, Random
from umqtt_min.store.files import FileStore, littlefs

MODES = (PREFIX, SUBSET, INVISIBLE, LOOKS_DONE)


class Gate:
    """The way from one mount to the flash. Shut after a cut: MicroPython's collector closes
    files that were open then, with the heap locked."""

    def __init__(self, flash):
        self.flash = flash
        self.shut = False

    def ioctl(self, op, arg):
        """As NOR."""
        return -5 if self.shut else self.flash.ioctl(op, arg)

    def readblocks(self, n, buf, off=0):
        """As NOR."""
        return -5 if self.shut else self.flash.readblocks(n, buf, off)

    def writeblocks(self, n, buf, off=0):
        """As NOR."""
        return -5 if self.shut else self.flash.writeblocks(n, buf, off)


class Board:
    """A littlefs on a NOR flash, as a port configures it; mounted at /lfs."""

    def __init__(self, prog, seed):
        self._prog = prog
        self._gate = None
        self.flash = NOR(64, 4096, 1, seed=seed)
        vfs.VfsLfs2.mkfs(self.flash, progsize=prog)

    def boot(self, data=None, weak=None):
        """Power on, on what is in flash or on a copy of it that was kept."""
        self.off()
        if data is not None:
            self.flash.data[:] = data
            self.flash.weak = {}
        self.flash.boot()
        self.flash.weak = {}
        self._gate = Gate(self.flash)
        vfs.mount(vfs.VfsLfs2(self._gate, progsize=self._prog), "/lfs")

    def off(self):
        """Leave no mount behind."""
        if self._gate:
            self._gate.shut = True
            vfs.umount("/lfs")
            self._gate = None


class Run:
    """A scenario that is played again and again from one image, each time cut elsewhere."""

    def __init__(self, prog, chunk, seed, operations):
        self.board = Board(prog, seed)
        self.random = Random(seed)
        self.cuts = self.again = 0
        self.where = ""
        self._chunk = chunk
        self._seed = seed
        self._operations = operations
        self._prepare()

    def _open(self):
        store = FileStore("/lfs/mqtt", 8192, chunk=self._chunk, inbound=8)
        store.open()
        return store

    def _prepare(self):
        """An image of a store in use, and how many device operations the scenario takes."""
        self.board.boot()
        assert littlefs("/lfs/mqtt")
        store = self._open()
        self._model = jm.Model()
        scenario = jm.Scenario(Random(self._seed + 1), 300)
        for _ in range(60):
            self._do(store, self._model, scenario.op(self._model))
        self._boot = store.boot
        self._image = bytes(self.board.flash.data)
        self.board.boot(self._image)
        self.board.flash.cut_after(0)
        self._play(self._model.copy())
        self.total = self.board.flash.operations

    @staticmethod
    def _do(store, model, op):
        if jm.perform(store, op):
            model.apply(op)

    def _play(self, model):
        """Mount, then the scenario; at each moment self._allowed is what a cut may leave."""
        self._allowed = [(model.snapshot(), model)]
        store = self._open()
        self._agree(store)
        scenario = jm.Scenario(Random(self._seed + 2), 300)
        for _ in range(self._operations):
            op = scenario.op(model)
            self._allowed = model.outcomes(op)
            self._do(store, model, op)
            self._allowed = [(model.snapshot(), model)]

    def cut(self, n):
        """The power goes in the n-th device operation (from 1); then several boots."""
        mode = MODES[self.random.below(4)]
        self.board.boot(self._image)
        self.board.flash.cut_after(n, self.random.below(300), mode)
        self.where = "operation %d, mode %d" % (n, mode)
        try:
            self._play(self._model.copy())
            raise AssertionError("no cut: " + self.where)
        except PowerCut:
            self.cuts += 1
        for _ in range(self.random.below(3)):
            self._cut_again()
        boot = self._boot
        for _ in range(2):
            self.board.boot()
            store = self._open()
            assert store.boot > boot, "%s: boot %d again" % (self.where, store.boot)
            boot = store.boot
            model = self._agree(store).copy()
            self._do(store, model, jm.Scenario(self.random, 100).op(model))
            self._allowed = [(model.snapshot(), model)]

    def _cut_again(self):
        """A mount that is cut in one of its first operations, if it gets that far."""
        self.board.boot()
        mode = MODES[self.random.below(4)]
        self.board.flash.cut_after(1 + self.random.below(6), self.random.below(60), mode)
        try:
            self._open()
        except PowerCut:
            self.again += 1

    def _agree(self, store):
        found = jm.snapshot(store, jm.PIDS)
        for snapshot, model in self._allowed:
            if snapshot == found:
                return model
        raise AssertionError("%s:\nfound %s\nallowed %s" % (
            self.where, found, [s for s, _ in self._allowed]))

    def end(self):
        """Leave no mount behind."""
        self.board.off()


def main(prog, chunk, seed, operations, seconds):
    """Every cut, as long as the time lasts: in an order that spreads them."""
    run = Run(prog, chunk, seed, operations)
    until = time.ticks_add(time.ticks_ms(), 1000 * seconds)
    stride = 7
    while run.total % stride == 0:
        stride += 2
    for i in range(run.total):
        if time.ticks_diff(until, time.ticks_ms()) < 0:
            break
        run.cut(1 + i * stride % run.total)
    run.end()
    print("cuts", run.cuts, "of", run.total, "again", run.again)


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
