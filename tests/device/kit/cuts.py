"""Cuts the power in the middle of a store's operations and checks what is left.

Knows: NOR, Model, how to make a journal over a NOR.  Must not know: records, segments.
Used by store/test_powercut.py (both interpreters, a sample) and tests/powercut (everything).
"""

import sys
from array import array

import journal_model as jm
import umqtt_min.store.journal
import umqtt_min.store.settle  # noqa: F401  (its os is replaced)
from nor import INVISIBLE, LOOKS_DONE, NOR, PREFIX, SUBSET, Encrypted, PowerCut, Random
from umqtt_min.store.flash import FlashMedium
from umqtt_min.store.journal import Journal

umqtt_min.store.journal.give_back = lambda *names: None  # thousands of mounts: they share the code


class Epochs:
    """Stands for the module os in a mount: the same epochs in every run."""

    def __init__(self, random):
        self._random = random

    def urandom(self, n):
        """n bytes."""
        return bytes([self._random.bits(8) for _ in range(n)])


class Geometry:
    """A flash and a journal's options."""

    def __init__(self, name, blocks, block, page, once=False, unit=256, longest=300,
                 encrypted=False, **options):
        self.name = name
        self.nor = (blocks, block, page, once or encrypted)
        self.once = once
        self.encrypted = encrypted
        self.longest = longest
        self.options = dict(options)
        self.options["chunk"] = unit
        self.options["inbound"] = 8

    def flash(self, seed):
        """A blank flash."""
        return NOR(*self.nor, seed=seed)

    def store(self, flash):
        """A journal on it, not yet open."""
        medium = FlashMedium(self.device(flash), once=self.once, encrypted=self.encrypted)
        return Journal(medium, **self.options)

    def device(self, flash):
        """The flash as a journal sees it."""
        return Encrypted(flash) if self.encrypted else flash

    def model(self):
        """What an empty one must hold."""
        return jm.Model(self.options.get("hold", False), self.options.get("policy", 0))


GEOMETRIES = (
    Geometry("any byte", 6, 512, 1, unit=64, longest=250),
    Geometry("any byte, held", 5, 512, 1, unit=64, longest=250, hold=True),
    Geometry("any byte, 256", 5, 1024, 1, longest=500, policy=jm.DROP_OLDEST),
    Geometry("pages of 256", 5, 1024, 256, longest=500),
    Geometry("pages of 256, held, drop", 5, 1024, 256, longest=500, hold=True,
             policy=jm.DROP_OLDEST),
    Geometry("16 bytes once", 7, 512, 16, once=True, unit=64, longest=250, hold=True),
    Geometry("256 bytes once", 7, 2048, 256, once=True, longest=900),
    Geometry("encrypted", 8, 512, 16, encrypted=True, unit=64, longest=250, hold=True),
    Geometry("encrypted, drop", 7, 1024, 16, encrypted=True, longest=500,
             policy=jm.DROP_OLDEST),
)
# As small as they can be: for pairs of cuts.
SMALL = (
    Geometry("small, any byte", 4, 256, 1, unit=64, longest=60, hold=True),
    Geometry("small, 16 bytes once", 5, 512, 16, once=True, unit=64, longest=120),
    Geometry("small, 256-byte pages", 4, 512, 256, longest=150, policy=jm.DROP_OLDEST),
    Geometry("small, 256 bytes once", 6, 2048, 256, once=True, longest=200),
    Geometry("small, encrypted", 6, 512, 16, encrypted=True, unit=64, longest=120),
)


def clone(geometry, store, flash):
    """A second journal in the same state, on a second flash."""
    flash = flash.clone()
    other = geometry.store(flash)
    other.medium.where = None  # it counts its boots by itself
    for name, value in store.__dict__.items():
        if isinstance(value, (bytearray, array)):
            mine = getattr(other, name)
            for i in range(len(value)):
                mine[i] = value[i]
        elif isinstance(value, (int, bytes)):
            setattr(other, name, value)
    return other, flash


class Run:
    """A scenario on one geometry. Each step is first tried with every cut that `points` names,
    each on a copy, then done."""

    def __init__(self, geometry, seed, points):
        self.geometry = geometry
        self.random = Random(seed)
        sys.modules["umqtt_min.store.settle"].os = Epochs(Random(seed + 2))
        self.points = points
        self.cuts = self.recovery_cuts = self.steps = self.last_slot = 0
        self.flash = geometry.flash(seed)
        self.store = geometry.store(self.flash)
        self.model = geometry.model()
        self.scenario = jm.Scenario(Random(seed + 1), geometry.longest)
        self.epoch = None
        self.where = ""

    def format(self):
        """The first mount, cut everywhere, too: it must come to an empty journal."""
        plain = self.flash.clone()
        plain.log = []
        self.geometry.store(plain).open()
        for k in range(len(plain.log)):
            for at, mode in self.points(plain.log[k]):
                self.where = "formatting, operation %d, byte %d, mode %d" % (k, at, mode)
                flash = self.flash.clone()
                flash.cut_after(k + 1, at, mode)
                self._expect_cut(self.geometry.store(flash).open)
                self.cuts += 1
                self._recover(flash, [(self.model.snapshot(), self.model)], 0)
        self.store.open()
        self.epoch = self.store.epoch

    def step(self):
        """One operation of the scenario, cut wherever `points` says."""
        self._cut_step(self._trial)

    def step_in_pairs(self):
        """One operation, cut wherever `points` says; then the recovery from each of these cuts,
        and the operation after it, cut wherever it says, too."""
        self._cut_step(self._pair)

    def _cut_step(self, trial):
        op = self.scenario.op(self.model)
        copy, flash = clone(self.geometry, self.store, self.flash)
        flash.log = []
        jm.perform(copy, op)
        outcomes = self.model.outcomes(op)
        last = self.in_last_slot()
        before = self.cuts
        for k in range(len(flash.log)):
            for at, mode in self.points(flash.log[k]):
                self.where = "step %d %s, operation %d, byte %d, mode %d" % (
                    self.steps, op[:2], k, at, mode)
                for _ in range(3 if last else 1):
                    trial(op, k, at, mode, outcomes)
        self.last_slot += last * (self.cuts - before)
        self._really(op)
        self.steps += 1

    def in_last_slot(self):
        """Whether the head has no room for two more records of a usual size."""
        return self.store._end - self.store._off < self.store._up(70)

    def quietly(self, count):
        """So many operations without a cut."""
        for _ in range(count):
            self._really(self.scenario.op(self.model))

    def _really(self, op):
        if op[0] == "put":
            before = self.store.dropped
            if jm.perform(self.store, op):
                for _ in range(self.store.dropped - before):
                    self.model._drop()
                self.model.apply(op)
        else:
            assert jm.perform(self.store, op), "%s refused: full" % (op,)
            self.model.apply(op)
        found = jm.snapshot(self.store, jm.PIDS)
        assert found == self.model.snapshot(), "%s: %s, not %s" % (
            op, found, self.model.snapshot())

    def _expect_cut(self, work, *args):
        try:
            work(*args)
        except PowerCut:
            return
        raise AssertionError("no cut: " + self.where)

    def _trial(self, op, k, at, mode, outcomes):
        store, flash = self._cut_in(self.store, self.flash, op, k, at, mode)
        self._recover(flash, outcomes, store.boot)

    def _cut_in(self, store, flash, op, k, at, mode):
        """A copy of a store and its flash, dead in the operation."""
        store, flash = clone(self.geometry, store, flash)
        flash.random = Random(self.random.bits(16) + 1)
        flash.cut_after(k + 1, at, mode)
        self._expect_cut(jm.perform, store, op)
        self.cuts += 1
        return store, flash

    def _pair(self, op, k, at, mode, outcomes):
        _, flash = self._cut_in(self.store, self.flash, op, k, at, mode)
        flash.boot()
        plain = flash.clone()
        plain.log = []
        store = self.geometry.store(plain)
        store.open()
        model = self._agree(store, outcomes)
        first = self.where
        for m in range(len(plain.log)):
            for at, mode in self.points(plain.log[m]):
                self.where = "%s; mount, operation %d, byte %d, mode %d" % (first, m, at, mode)
                again = flash.clone()
                again.random = Random(self.random.bits(16) + 1)
                again.cut_after(m + 1, at, mode)
                self._expect_cut(self.geometry.store(again).open)
                self.recovery_cuts += 1
                self._twice(again, outcomes)
        self._next_cut(store, plain, model, first)

    def _next_cut(self, store, flash, model, first):
        """The second cut comes in the operation after the recovery."""
        op = jm.Scenario(self.random, 40).op(model)
        copy, plain = clone(self.geometry, store, flash)
        plain.log = []
        if not jm.perform(copy, op):
            return
        outcomes = model.outcomes(op)
        for k in range(len(plain.log)):
            for at, mode in self.points(plain.log[k]):
                self.where = "%s; then %s, operation %d, byte %d, mode %d" % (
                    first, op[:2], k, at, mode)
                _, cut = self._cut_in(store, flash, op, k, at, mode)
                self._twice(cut, outcomes)

    def _twice(self, flash, outcomes):
        """What one mount finds, the next one does."""
        model = self._agree(self._mount(flash), outcomes)
        self._agree(self._mount(flash), [(model.snapshot(), model)])

    def _recover(self, flash, outcomes, boot):
        """Boot, perhaps with cuts in the recovery; what was found once must stay found."""
        model = None
        # Where a mount must take a new segment it has most to decide.
        most = 5 if self.in_last_slot() else 3
        for again in range(self.random.below(3), -1, -1):
            for _ in range(self.random.below(most)):
                self._cut_mount(flash)
            store = self._mount(flash)
            assert store.boot > boot, "%s: boot number %d again" % (self.where, store.boot)
            boot = store.boot
            model = self._agree(store, outcomes)
            outcomes = [(model.snapshot(), model)]
            if again:
                model = self._go_on(store, flash, model)
                outcomes = [(model.snapshot(), model)]
        for _ in range(most - 2):
            self._agree(self._mount(flash), outcomes)

    def _mount(self, flash):
        flash.boot()
        store = self.geometry.store(flash)
        store.open()
        if self.epoch is not None:
            assert store.epoch == self.epoch, "%s: another epoch" % self.where
        return store

    def _cut_mount(self, flash):
        """A mount that is cut in one of its operations, if it gets that far."""
        flash.boot()
        mode = (PREFIX, SUBSET, INVISIBLE, LOOKS_DONE)[self.random.below(4)]
        flash.cut_after(1 + self.random.below(4), self.random.below(60), mode)
        try:
            self.geometry.store(flash).open()
        except PowerCut:
            self.recovery_cuts += 1

    def _agree(self, store, outcomes):
        try:
            found = jm.snapshot(store, jm.PIDS)
        except AssertionError as e:
            raise AssertionError("%s: %s" % (self.where, e))
        for snapshot, model in outcomes:
            if snapshot == found:
                return model
        raise AssertionError("%s:\nfound %s\nallowed %s" % (
            self.where, found, "\n        ".join([str(s) for s, _ in outcomes])))

    def _go_on(self, store, flash, model):
        """A few operations more, on what recovery left behind."""
        model = model.copy()
        scenario = jm.Scenario(self.random, 100)
        for _ in range(self.random.below(4)):
            op = scenario.op(model)
            before = store.dropped
            if jm.perform(store, op):
                for _ in range(store.dropped - before):
                    model._drop()
                model.apply(op)
            else:
                assert op[0] == "put", "%s, then %s refused: full" % (self.where, op)
        return model


def coarse(program):
    """As every(), but not at every byte: for pairs."""
    if not program:
        return [(40, PREFIX), (4096, PREFIX), (0, SUBSET), (0, INVISIBLE), (0, LOOKS_DONE)]
    n = len(program)
    return [(1, PREFIX), (n // 2, PREFIX), (n, PREFIX), (n, SUBSET), (0, INVISIBLE),
            (0, LOOKS_DONE)]


def every(program):
    """Points of a program, given its bytes, or of an erase, given none: before every byte that
    changes something and at the end, and the ways in which bits can be torn."""
    if not program:
        return [(at, PREFIX) for at in (0, 1, 40, 200, 4096)] + [
            (0, SUBSET), (0, SUBSET), (0, INVISIBLE), (0, LOOKS_DONE)]
    n = len(program)
    return [(at, PREFIX) for at in range(n) if program[at] != 255] + [(n, PREFIX)] + [
        (at, mode) for mode in (SUBSET, INVISIBLE, LOOKS_DONE) for at in (0, n // 2)]


class Sampled:
    """Some points of each operation, drawn from a generator."""

    def __init__(self, seed, count=2, source=every):
        self._random = Random(seed)
        self._count = count
        self._source = source

    def __call__(self, program):
        points = self._source(program)
        return [points[self._random.below(len(points))] for _ in range(self._count)]
