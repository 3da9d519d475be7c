"""The board: flash that may lose its power at any operation, stores in it, the client.

Knows: how the library is set up, what a mount finds. Must not know: when something happens.
"""

import device  # noqa: F401, I001  first: it stands in for a board
import disk
from case import FIRST_IN, FIRST_OUT
from nor import NOR, PowerCut, Random
from oracle import Broken
from umqtt_min import MQTTClient
from umqtt_min.store import opened
from umqtt_min.store.files import FileStore
from umqtt_min.store.flash import FlashStore
from umqtt_min.store.ram import RAMStore

TIMEOUT = 5  # seconds, of the client
INBOUND = 2  # incoming identifiers that flash remembers, or as many as the case has
BUFFER = 64  # bytes of topic and payload that the client sends in one piece
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

    def readblocks(self, n, buf, off=0):
        """As a block device's: the timer may fire behind it."""
        super().readblocks(n, buf, off)
        self.board.world.enter("flash is read")
        return 0

    def writeblocks(self, n, buf, off=None):
        """As a block device's: from here on the block may take nothing any more."""
        self._wear(n)
        return super().writeblocks(n, buf, off)

    def erase(self, n):
        """See NOR.erase()."""
        self._wear(n)
        return super().erase(n)

    def _wear(self, n):
        world = self.board.world
        if world.fails and not self.dead and n not in self.stuck:
            worn = world.choose("block %d" % n, ("works", "is worn, and says so", "is worn"))
            if worn:
                world.fails -= 1
                self.stuck.add(n)
                self.failing = worn == 1


class Files(disk.Disk):
    """A folder of the board's. small: as littlefs keeps it."""

    def __init__(self, name, cut, small, durable=None):
        super().__init__(cut, small, durable)
        self.folder = name
        disk.mount(name, self)


class Board:
    """One device over all its boots."""

    CHIP = Chip

    def __init__(self, world, case):
        self.world = world
        self.case = case
        self.views = Views()
        self.client = self.store = self.inbox = None
        self.opened = opened  # in RAM: a boot begins without
        self.media = []  # of the store, and of the inbox
        for i in range(1 + case.inbox):
            if case.store == "flash":
                self.media.append(self._chip())
            elif case.store != "ram":
                self.media.append(Files("/board/%d" % i, self.cut, case.store == "small files"))

    def _chip(self):
        chip = self.CHIP(self.case.blocks, self.case.block, self.case.page, self.case.once)
        chip.board = self
        return chip

    def boot(self):
        """The power comes; a client is made."""
        case = self.case
        self.opened.clear()
        for medium in self.media:
            medium.boot()
        options = {"policy": case.policy, "hold": case.hold, "max_age": case.max_age}
        if case.max_age:
            options["clock"] = now
        if self.media:
            self._brown_out(case.boots - 1, options)
            self.store = self._journal(self.media[0], **options)
            if case.inbox:
                self.inbox = self._journal(self.media[1], messages=case.inbox_room)
        else:
            self.store = RAMStore(case.size, messages=case.room, **options)
            if case.inbox:
                self.inbox = RAMStore(512, messages=case.inbox_room)
        client = MQTTClient(
            b"c", "broker", keepalive=case.keepalive, store=self.store, timer=False,
            buffer_size=BUFFER, timeout=TIMEOUT, window=case.window,
            connector=self.world.network.connect, durable_inbox=self.inbox)  # fmt: skip
        client.set_callback(self.world.got)
        self.client = client

    def _brown_out(self, times, options):
        # The power comes and goes so often; what a cut within a mount does, other cases show.
        self.store = self.inbox = None
        kind, self.world.kind = self.world.kind, True
        for _ in range(times):
            self._journal(self.media[0], **options).open()
        self.world.kind = kind

    def _journal(self, medium, **options):
        case = self.case
        inbound = case.ids or max(INBOUND, case.inbound.count(2))
        options.setdefault("messages", case.room)
        if isinstance(medium, Files):
            return FileStore(medium.folder, case.blocks * case.block, case.block,
                             small=medium.whole, chunk=64 if medium.whole else 0,
                             inbound=inbound, **options)  # fmt: skip
        return FlashStore(medium, page=case.page, once=case.once, inbound=inbound, **options)

    # The power

    def dark(self):
        """Whether the power is gone."""
        for medium in self.media:
            if medium.dead:
                return True
        return False

    def cut(self, program, whole=False):
        """Where an operation of the flash, or of a file, is cut, -1: nowhere. whole: it cannot
        be torn."""
        world = self.world
        world.enter("flash")
        if world.kind or not world.crashes:
            return -1
        n = len(program) or self.case.block
        places = [0, n]
        if whole:
            pass
        elif self.case.torn == "middle":
            places = [0, n // 2, n]
        elif self.case.torn == "words":
            places = list(range(0, n, 4 if program else n // 2)) + [n]
        what = "program" if program else "erase"
        names = ["no"] + ["%s torn at %d of %d" % (what, at, n) for at in places]
        cut = world.choose("power", names)
        if not cut:
            return -1
        for medium in self.media:  # the same bits are weak whatever was before
            if isinstance(medium, Chip):
                medium.random = Random(places[cut - 1] + 1)
        return places[cut - 1]

    def off(self):
        """The power is gone: what was in RAM is, too."""
        for medium in self.media:
            medium.dead = True
        self.client = self.store = self.inbox = None

    # What is durable

    def view(self):
        """(messages in flash: {number: state}, incoming identifiers, {number: state} of the
        inbox): what a boot would find if the power went now."""
        if not self.media:
            live, ids = _look(self.store, FIRST_OUT)
            return live, ids, _look(self.inbox, FIRST_IN)[0]
        live, ids = self._mounted(self.media[0], FIRST_OUT)
        if not self.case.inbox:
            return live, ids, {}
        return live, ids, self._mounted(self.media[1], FIRST_IN)[0]

    def in_store(self):
        """Numbers of the messages that the store has, as the running client sees them; none where
        it finds no messages at the places that it knows."""
        try:
            return sorted(_look(self.store, FIRST_OUT)[0])
        except OSError:
            return []

    def waiting(self):
        """Numbers of the messages that the store wants to send; nothing is read from flash."""
        fields = vars(self.store).copy()
        names = {seq: number for number, seq in self.world.seqs.items()}  # what a cut left gives
        found = []  # its number to the next one
        seq = self.store.next(0)
        while seq:
            found.append(names[seq])
            seq = self.store.next(seq)
        vars(self.store).update(fields)
        return found

    def _mounted(self, medium, first):
        files = isinstance(medium, Files)
        key = tuple(medium.durable.items()) if files else bytes(medium.data)
        found = self.views.get(key)
        if found is None:
            if files:
                copy = Files("/view", never, medium.whole, dict(medium.durable))
            else:
                copy = NOR(medium.blocks, medium.block, medium.page, False, 1, bytearray(key))
            store = self._journal(copy)
            known = self.opened.copy()
            try:
                store.open()
            except Exception as e:
                raise Broken("a mount fails: %r" % e)
            self.opened.clear()  # the board knows nothing of this mount
            self.opened.update(known)
            if len(self.views) > KEPT:
                self.views.clear()
            found = self.views[key] = _look(store, first)
        return found


def never(changed, whole):
    """The power does not go."""
    return -1


def now():
    """The store's clock: it counts milliseconds, so that an age is exact."""
    return device.CLOCK.now


def _look(store, first):
    # A client may be about to use what its store's find() has found: it is put back.
    if store is None:
        return {}, []
    fields = vars(store).copy()
    live = {}
    for seq in range(store.low, store.seq):
        n = store.find(seq)
        if n:
            body = bytearray(n)
            store.read(0, body, n)
            at = 4 + body[1]  # behind topic and identifier
            live[body[at] - first] = store.state
    ids = [pid for pid in range(1, 5) if store.in_has(pid)]
    vars(store).update(fields)
    return live, ids
