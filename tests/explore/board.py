"""The board: flash that may lose its power at any operation, stores in it, the client.

Knows: how the library is set up, what a mount finds. Must not know: when something happens.
"""

import device  # noqa: F401, I001  first: it stands in for a board
from nor import NOR, PowerCut, Random
from oracle import Broken
from umqtt_min import MQTTClient
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore

TIMEOUT = 5  # seconds, of the client
INBOUND = 2  # incoming identifiers that flash remembers
KEPT = 20000  # images whose mount is remembered


class Views(dict):
    """What a mount finds in an image of the flash: of no state, but of all."""

    FROZEN = True


class Chip(NOR):
    """The flash, which asks at each of its operations whether the power goes."""

    board = None

    def _count(self, program):
        if self.dead:
            raise PowerCut()
        return self.board.cut(program)


class Board:
    """One device over all its boots."""

    def __init__(self, world, case):
        self.world = world
        self.case = case
        self.views = Views()
        self.client = self.store = self.inbox = None
        self.chips = []
        if case.store == "flash":
            self.chips = [self._chip() for _ in range(1 + case.inbox)]

    def _chip(self):
        chip = Chip(self.case.blocks, self.case.block, self.case.page, self.case.once)
        chip.board = self
        return chip

    def boot(self):
        """The power comes; a client is made."""
        case = self.case
        self.store = self.inbox = None
        for chip in self.chips:
            chip.boot()
        if self.chips:
            self.store = self._journal(self.chips[0], policy=case.policy, hold=case.hold)
            if case.inbox:
                self.inbox = self._journal(self.chips[1])
        else:
            self.store = RAMStore(512, policy=case.policy, hold=case.hold, **case.options)
            if case.inbox:
                self.inbox = RAMStore(512)
        client = MQTTClient(
            b"c", "broker", keepalive=case.keepalive, store=self.store, timer=False,
            buffer_size=64, timeout=TIMEOUT, window=case.window,
            connector=self.world.network.connect, durable_inbox=self.inbox)  # fmt: skip
        client.set_callback(self.world.got)
        self.client = client

    def _journal(self, chip, **options):
        return FlashStore(chip, page=self.case.page, once=self.case.once, inbound=INBOUND,
                          **self.case.options, **options)  # fmt: skip

    # The power

    def dark(self):
        """Whether the power is gone."""
        for chip in self.chips:
            if chip.dead:
                return True
        return False

    def cut(self, program):
        """Where an operation of the flash is cut, -1: nowhere."""
        world = self.world
        if world.kind or not world.crashes:
            return -1
        world.enter("flash")
        n = len(program) or self.case.block
        places = [0, n]
        if self.case.torn == "middle":
            places = [0, n // 2, n]
        elif self.case.torn == "words":
            places = list(range(0, n, 4 if program else n // 2)) + [n]
        what = "program" if program else "erase"
        names = ["no"] + ["%s torn at %d of %d" % (what, at, n) for at in places]
        cut = world.choose("power", names)
        if not cut:
            return -1
        for chip in self.chips:  # the same bits are weak whatever was before
            chip.random = Random(places[cut - 1] + 1)
        return places[cut - 1]

    def off(self):
        """The power is gone: what was in RAM is, too."""
        for chip in self.chips:
            chip.dead = True
        self.client = self.store = self.inbox = None

    # What is durable

    def view(self):
        """(messages in flash: {number: state}, incoming identifiers, {number: state} of the
        inbox): what a boot would find if the power went now."""
        if not self.chips:
            live, ids = _look(self.store, 65)
            return live, ids, _look(self.inbox, 97)[0]
        live, ids = self._mounted(self.chips[0], 65)
        if not self.case.inbox:
            return live, ids, {}
        return live, ids, self._mounted(self.chips[1], 97)[0]

    def _mounted(self, chip, first):
        key = bytes(chip.data)
        found = self.views.get(key)
        if found is None:
            copy = NOR(chip.blocks, chip.block, chip.page, False, 1, bytearray(chip.data))
            store = self._journal(copy)
            try:
                store.open()
            except Exception as e:
                raise Broken("a mount fails: %r" % e)
            if len(self.views) > KEPT:
                self.views.clear()
            found = self.views[key] = _look(store, first)
        return found


def _look(store, first):
    # A client may be about to use what its store's find() has found: it is put back.
    if store is None:
        return {}, []
    fields = vars(store).copy()
    live = {}
    for seq in range(store.low, store.seq):
        n = store.find(seq)
        if n:
            payload = bytearray(n)
            store.read(0, payload, n)
            live[payload[n - 1] - first] = store.state
    ids = [pid for pid in range(1, 5) if store.in_has(pid)]
    vars(store).update(fields)
    return live, ids
