"""Schedules drawn at random, with all that the client sees of them: for another interpreter.

Knows: what passes between a client and the world. Must not know: what it means; how it is replayed
(replay/replay.py).

    record.py FILE COUNT NAME...       # so many schedules of each case, one event a line
"""

import sys
from random import Random

import device  # noqa: F401, I001  first: it stands in for a board
from board import Board, Chip
from cases import CASES
from link import Stream
from network import Network
from world import World

STEPS = 30
ODDS = 0.3  # that a question is not answered with its first option
CALLS = ("connect", "subscribe", "publish", "check_msg", "tick", "confirm", "republish", "discard",
         "flush")


class TapedStream(Stream):
    """Notes what is written and read, and when a wait ends."""

    def write(self, buf, off, n):
        """See Stream.write()."""
        data = bytes(memoryview(buf)[off : off + n])
        taken = -1
        try:
            taken = super().write(buf, off, n)
            return taken
        finally:
            self.world.tape.append(("write", data, taken))

    def readinto(self, buf, n):
        """See Stream.readinto()."""
        got = super().readinto(buf, n)
        data = None if got is None else bytes(memoryview(buf)[:got])
        self.world.tape.append(("read", data))
        return got

    def idle(self, event, timeout):
        """See Stream.idle()."""
        super().idle(event, timeout)
        self.world.tape.append(("wait", self.world.clock.now))

    def ready(self):
        """See Stream.ready()."""
        ready = super().ready()
        self.world.tape.append(("ready", ready))
        return ready


class TapedNetwork(Network):
    """Makes such streams."""

    STREAM = TapedStream


class TapedChip(Chip):
    """Notes what is in the flash when the power comes."""

    def boot(self):
        """See NOR.boot()."""
        super().boot()
        self.board.world.tape.append(("boot", bytes(self.data)))

    def readblocks(self, n, buf, off=0):
        """See Chip.readblocks(). Where the timer may fire each read counts."""
        super().readblocks(n, buf, off)
        if self.board.client and self.board.case.ticks:
            self.board.world.tape.append(("looked",))
        return 0


class TapedBoard(Board):
    """Notes where the power goes and comes, and what the application calls."""

    CHIP = TapedChip

    def boot(self):
        """See Board.boot()."""
        if not self.media:
            self.world.tape.append(("boot", b""))
        super().boot()
        self.client = Calls(self.world, self.client)

    def cut(self, program, whole=False):
        """See Board.cut()."""
        cut = super().cut(program, whole)
        self.world.tape.append(("flash", cut))
        return cut

    def in_store(self):
        """See Board.in_store(): it is the judge who looks."""
        n = len(self.world.tape)
        found = super().in_store()
        del self.world.tape[n:]
        return found

    def off(self):
        """See Board.off()."""
        self.world.tape.append(("off",))
        super().off()


class Calls:
    """A client whose calls are noted."""

    def __init__(self, world, client):
        self.world = world
        self.client = client

    def __getattr__(self, name):
        found = getattr(self.client, name)
        return Call(self.world, found) if name in CALLS else found


class Call:
    """A method of it."""

    def __init__(self, world, method):
        self.world = world
        self.method = method

    def __call__(self, *args, **options):
        if self.world.ticking:
            self.world.tape.append(("tick", self.world.where))
        else:
            self.world.tape.append(("call", self.method.__name__, args, options))
        return self.method(*args, **options)


class Taped(World):
    """A case, with one schedule of it."""

    NETWORK = TapedNetwork
    BOARD = TapedBoard

    def __init__(self, case, seed):
        self.random = Random(seed)
        self.tape = []
        self.where = ""
        super().__init__(case, self._draw)

    def _draw(self, name, options):
        return self.random.randrange(len(options)) if self.random.random() < ODDS else 0

    def enter(self, where):
        """See World.enter()."""
        self.where = where
        super().enter(where)

    def got(self, topic, payload):
        """See World.got()."""
        self.tape.append(("got", topic, payload))
        super().got(topic, payload)

    def run(self):
        """Some steps, then a kind world; returns the tape."""
        for _ in range(STEPS):
            found = self.actions()
            if not found:
                break
            self.do(self.random.choice(found))
        self.drain()
        return self.tape


def main(words):
    """Write the file."""
    with open(words[0], "w") as file:
        for name in words[2:]:
            case = CASES[name]
            for seed in range(int(words[1])):
                head = {"name": name, "seed": seed, "store": case.store, "window": case.window,
                        "keepalive": case.keepalive, "hold": case.hold, "policy": case.policy,
                        "room": case.room, "blocks": case.blocks, "block": case.block,
                        "ticks": case.ticks}  # fmt: skip
                for event in [("case", head), *Taped(case, seed).run()]:
                    file.write("%r\n" % (event,))


if __name__ == "__main__":
    main(sys.argv[1:])
