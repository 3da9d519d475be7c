"""The network between client and broker: what comes next, what the broker has, what is lost.

Knows: in which order a broker may handle and send. Must not know: what is in a packet, but whether
it is answered.
"""

from broker import CONNECT, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, SUBSCRIBE
from link import BROKEN, OPEN, Stream
from oracle import Broken

WAITS = 4000  # of one call, at most


class Network:
    """Connects the client of a world with its broker."""

    STREAM = Stream

    def __init__(self, world, case):
        self.world = world
        self.case = case
        self.link = None
        self.silent = False  # nothing comes in the call at hand

    def connect(self, host, port, timeout_ms):
        """The client's connector."""
        self.link = self.STREAM(self.world)
        self.world.oracle.connection()
        return self.link

    def is_open(self):
        """Whether there is a connection that can be written to."""
        return self.link is not None and self.link.state == OPEN

    # What comes

    def offers(self):
        """What may come next: ("the rest" of a packet), ("answer", packets that the broker handles
        before, which of its answers) or ("push", packets that it handles before)."""
        link = self.link
        if not self.is_open():
            return []
        if link.rest:
            return [("the rest", 0, 0)]
        up = link.packets()
        return self._answers(up) + self._pushes(up)

    def _answers(self, up):
        found = [("answer", 0, i) for i in range(len(self.world.broker.answers))]
        if self.case.free:
            return found + [("answer", i + 1, -1) for i, data in enumerate(up) if answered(data)]
        if found:
            return found[:1]
        return [("answer", i + 1, -1) for i, data in enumerate(up) if answered(data)][:1]

    def _pushes(self, up):
        broker = self.world.broker
        found = [("push", 0, 0)] if broker.more() else []
        quiet = 0
        while quiet < len(up) and not answered(up[quiet]):
            quiet += 1
        if quiet and (broker.plan or broker.out):
            found.append(("push", quiet, 0))
        return found

    def next_packet(self):
        """One packet, or as many as the case says, reach the client."""
        for i in range(self.case.burst):
            offers = self.offers()
            if i:
                offers = [("no more", 0, 0)] + offers
            if not offers:
                return
            what = offers[self.world.choose("comes", offers)]
            if what[0] == "no more":
                return
            self._come(*what)
            if self.link.rest or not self.is_open():
                return

    def _come(self, kind, before, index):
        world = self.world
        broker = world.broker
        link = self.link
        if kind == "the rest":
            link.arrive(link.rest)
            return
        self.handle(before)
        if broker.closing:
            link.cut()
            broker.gone()
            return
        if kind == "push" and not broker.more():
            return
        data = broker.answers.pop(index) if kind == "answer" else broker.push()
        part = 0
        if world.parts and len(data) > 2:
            part = (0, 1, 3, len(data) - 1)[world.choose(
                "part", ("whole", "its first byte", "three bytes", "all but the last"))]
            world.parts -= part > 0
        link.arrive(data, part)

    # How far the broker has come

    def handle(self, count):
        """The broker handles so many packets of those that are on their way to it."""
        world = self.world
        for data in self.link.packets()[:count]:
            del self.link.up[: len(data)]
            forget = False
            if data[0] == CONNECT:
                if world.amnesia and world.broker.session:
                    forget = world.choose("session", ("kept", "forgotten")) == 1
                    world.amnesia -= forget
                if world.broker.session and not (forget or world.oracle.clean):
                    world.oracle.resumed()
            most = 2
            if data[0] == SUBSCRIBE and world.grants:
                most -= world.choose("grants", ("QoS 2", "QoS 1", "QoS 0"))
                world.grants -= most < 2
            world.broker.process(data, forget, most)

    def handle_all(self):
        """The broker handles what is on its way."""
        if self.is_open():
            self.handle(len(self.link.packets()))

    def _reach(self):
        # How many of the packets on their way come to the broker before the end.
        n = len(self.link.packets())
        names = ["%d packets" % i for i in range(n, -1, -1)]
        self.handle(n - self.world.choose("reached the broker", names))

    # Its end

    def cut(self):
        """The network ends the connection."""
        world = self.world
        if not self.is_open():
            return
        self._reach()
        if world.broker.online and not self.link.rest:
            offers = [("nothing", 0, 0)] + self.offers()
            what = offers[world.choose("still to be read", offers)]
            if what[0] != "nothing":
                self._come(*what)
        self.link.cut()
        world.broker.gone()

    def power_lost(self):
        """The client's power is gone."""
        if self.is_open():
            self._reach()
        self.world.broker.gone()
        self.link = None

    def closed(self, link):
        """The client closes it."""
        world = self.world
        if link is not self.link or link.state != OPEN or world.board.dark():
            return
        n = len(link.packets())
        if world.cuts:
            names = ["all"] + ["%d packets" % i for i in range(n - 1, -1, -1)]
            lost = world.choose("reached the broker", names)
            world.cuts -= lost > 0
            n -= lost
        self.handle(n)
        world.broker.gone()

    # The client waits

    def waits(self, event, timeout):
        """For the network to give (event 1) or take (4), `timeout` ms at most."""
        world = self.world
        if world.in_timer():
            raise Broken("the timer waits for the network")
        if world.clock.waits > WAITS:
            raise Broken("%s waits for ever" % world.doing)
        if event == 1 and self.link and not world.board.dark() and not self.silent:
            if self.link.state == BROKEN or self.offers() and self._something():
                world.clock.move(0)
                return
        world.clock.move(1 if event == 4 else max(timeout, 1))

    def _something(self):
        # False if nothing comes from here on.
        world = self.world
        names = ["comes"] + (["the link is lost", "nothing comes"] if world.cuts else [])
        how = world.choose("while it waits", names)
        world.cuts -= how > 0
        if how == 0:
            self.next_packet()
        elif how == 1:
            self.cut()
        self.silent = how == 2
        return not self.silent


def answered(data):
    """Whether a broker answers to this packet."""
    kind = data[0] & 0xF0
    if kind in (PUBACK, PUBCOMP, DISCONNECT):
        return False
    return kind != PUBLISH or data[0] & 6 != 0
