"""Sessions of correct clients and brokers, simulated: one seed, one session, over connections that
are cut, captured somewhere on the way between the two.

Knows: audit_kit, what a correct program does with the packets that it reads. Must not know: the
audit.

Every packet is a question or an answer. A question is known by the type of packet that it wants:
PUBLISH wants PUBACK or PUBREC, PUBREL wants PUBCOMP. A program reads in order, now and then
slowly. It answers every question that it reads, and takes an answer for one to what it has open:
it cannot know that this is the second answer to the message before.
"""

import heapq
import itertools
import random
from types import SimpleNamespace

import audit_kit as kit
import mqtt5

MS = 10**6  #: in ns
PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK = 4, 5, 7, 9, 11
CLIENT, BROKER = 0, 1
FIRST_PORT, APART, PAUSE = 40_000, 37 * MS, 1000 * MS
POOLS = (1, 2, 3, 8)  #: so many identifiers has a side
DELAYS = (1 * MS, 25 * MS, 150 * MS, 400 * MS)  #: of a packet on its way
PLACES = (0, 0, 0.3, 0.5, 0.8, 1, 1)  #: of the capture: 0 beside the client, 1 beside the broker
RETRIES = (0.8, 1.4, 3, 30)  #: a sender waits so many delays; an answer takes two or more
MORE = 3  #: so often it sends the same again


def address(number):
    """Of the client of a conversation."""
    return ".".join(map(str, (10, 20 + (number >> 16), number >> 8 & 255, number & 255)))


def connect(level, client_id, clean):
    """CONNECT; without a keep alive, and in MQTT 5 with a session that is kept for ever."""
    if level == 5:
        return mqtt5.connect(mqtt5.prop(0x11, b"\xff" * 4), client_id=client_id, keep_alive=0,
                             flags=2 * clean)  # fmt: skip
    return kit.connect(client_id, 0, 2 * clean, "MQIsdp" if level == 3 else "MQTT", level)


def connack(level, present):
    """CONNACK; MQTT 3.1 does not say whether there is a session."""
    return kit.packet(0x20, bytes([present and level > 3, 0]) + b"\0" * (level == 5))


def question(level, wants, ident, text=b"", again=False):
    """The packet that one of type `wants` answers. MQTT 3.1 has DUP in all that is sent again."""
    number, none = ident.to_bytes(2, "big"), b"\0" * (level == 5)
    dup = 8 * (again and level == 3)
    if wants in (PUBACK, PUBREC):
        return kit.publish("t", none + text, 1 if wants == PUBACK else 2, ident, again)
    if wants == PUBCOMP:
        return kit.packet(0x62 | dup, number)
    what = kit.string("a") + b"\1" * (wants == SUBACK)
    return kit.packet((0x82 if wants == SUBACK else 0xA2) | dup, number + none + what)


def answer(level, kind, ident):
    """What a question wants."""
    number, none = ident.to_bytes(2, "big"), b"\0" * (level == 5)
    if kind == SUBACK:
        return kit.packet(0x90, number + none + b"\1")
    return kit.packet(0xB0, number + 2 * none) if kind == UNSUBACK else kit.ack(kind, ident)


class Line(kit.Talk):
    """A TCP connection: what is sent is captured on its way, and acknowledges what has arrived."""

    def __init__(self, number, port, delay, place, choice):
        isn = [choice.randrange(1 << 32) for _ in range(2)]
        super().__init__((address(number), port), isn=isn)
        self.delay, self.lag = delay, (int(place * delay), int((1 - place) * delay))
        self.heard = isn[:]  #: sequence numbers that have arrived at the client, the broker

    def send(self, now, way, raw=b"", flags=kit.ACK):
        """Returns the sequence number behind it."""
        sent, self.seq[1 - way] = self.seq[1 - way], self.heard[way]
        self.now = now + self.lag[way]
        self.segment(way, raw, flags | kit.PSH if raw else flags)
        self.seq[1 - way] = sent
        return self.seq[way]

    def in_turn(self, now, *turns):
        """(way, flags): each is sent when the one before has arrived. Returns the time then."""
        for way, flags in turns:
            self.heard[1 - way] = self.send(now, way, flags=flags)
            now += self.delay
        return now

    def begin(self, now):
        return self.in_turn(now, (CLIENT, kit.SYN), (BROKER, kit.SYN | kit.ACK), (CLIENT, kit.ACK))

    def end(self, now):
        self.heard[BROKER] = self.send(now, CLIENT, kit.DISCONNECT)
        fin = kit.FIN | kit.ACK
        return self.in_turn(now, (CLIENT, fin), (BROKER, fin), (CLIENT, kit.ACK))

    def captured(self):
        """Ethernet, in the order of time."""
        return sorted(self.wrapped(), key=lambda frame: frame[0])


class Side:
    """What a client or a broker has open, how much it has still to send, until when it is busy."""

    def __init__(self, way, pool, left):
        self.way, self.left, self.busy = way, left, 0
        self.free, self.open = list(range(1, pool + 1)), {}


class Conversation:
    """One session; its client's address is that of the seed. impatient: the side that sends more
    than it has identifiers, which is wrong; there nobody repeats anything."""

    def __init__(self, seed, level, impatient=None):
        self.choice = choice = random.Random(seed)
        self.number, self.level, self.impatient = seed, level, impatient
        self.pool, self.delay = choice.choice(POOLS), choice.choice(DELAYS)
        self.place, self.slow = choice.choice(PLACES), choice.choice((0, 1, 6)) * self.delay
        self.retry = int(choice.choice(RETRIES) * self.delay)
        self.eager = choice.random() < 0.5 and level < 5  #: PUBREL answers any PUBREC
        self.kinds = [PUBACK, PUBREC], [PUBACK, PUBREC]
        self.connections = choice.randrange(1, 5)
        least = max(POOLS) + 1
        self.sides = [Side(way, self.pool, choice.randrange(least, 2 * least)) for way in (0, 1)]
        if impatient is None:
            self.kinds[CLIENT].extend((SUBACK, UNSUBACK) * choice.randrange(2))
        else:
            self._impatient(self.sides[impatient])
        self.retry *= level < 5 and impatient is None
        one = self.connections == 1
        self.clean = one and choice.random() < 0.5
        #: All messages have one text; over connections the audit could not tell them apart.
        self.alike = one and choice.random() < 0.5 and impatient is None
        self.now = kit.START + seed % 1000 * APART
        self.events, self.count, self.texts = [], itertools.count(), itertools.count()
        self.session = False  #: the broker has one

    def _impatient(self, side):
        """Messages of QoS 1 on and on, or some of any QoS, all at once."""
        self.connections = 1
        if self.choice.random() < 0.5:
            self.kinds[side.way].remove(PUBREC)
        else:
            side.left = self.pool + 1

    def frames(self):
        """What was captured, as Ethernet, in the order of time."""
        choice, found = self.choice, []
        for port in range(FIRST_PORT, FIRST_PORT + self.connections):
            last = port == FIRST_PORT + self.connections - 1
            self.line = line = Line(self.number, port, self.delay, self.place, choice)
            self.now = line.begin(self.now)
            hello = connect(self.level, f"c{self.number}", self.clean)
            self._say(CLIENT, hello, self._welcome)
            self._run(None if last else self.now + choice.randrange(3, 40) * self.delay)
            if last:
                line.end(self.now)
            else:
                line.send(self.now, choice.randrange(2), flags=kit.RST | kit.ACK)
            self.now += choice.choice((3 * self.delay, PAUSE))
            found += line.captured()
        return found

    def _at(self, when, what, *args):
        heapq.heappush(self.events, (when, next(self.count), what, args))

    def _run(self, until):
        """What is on its way at the end never arrives."""
        while self.events and (until is None or self.events[0][0] < until):
            self.now, _, what, args = heapq.heappop(self.events)
            what(*args)
        self.now, self.events = until or self.now, []

    def _say(self, way, raw, what, *args):
        """A packet; what(side, ...) follows when the program of the other side reads it."""
        choice, reader = self.choice, self.sides[1 - way]
        arrives = self.now + self.delay
        self._at(arrives, self._arrive, 1 - way, self.line.send(self.now, way, raw))
        slow = self.slow and choice.random() < 0.3
        reader.busy = max(reader.busy, arrives) + (choice.randrange(self.slow) if slow else 0)
        self._at(reader.busy, what, reader, *args)

    def _arrive(self, way, seq):
        self.line.heard[way] = seq
        if self.choice.random() < 0.3:
            self.line.send(self.now, way)  # an acknowledgement of TCP

    def _welcome(self, broker):
        self._say(BROKER, connack(self.level, self.session), self._begin)
        self.session = not self.clean
        self._begin(broker)

    def _begin(self, side):
        """What is open goes on, in the order of old; requests do not."""
        for ident, item in list(side.open.items()):
            if item.wants < SUBACK:
                self._ask(side, ident, again=True)
            else:
                self._over(side, ident)
        self._new(side)

    def _new(self, side):
        """Some messages or requests, as far as there are identifiers, then a pause."""
        choice, wrong = self.choice, side.way == self.impatient
        some = self.pool + 1 if wrong else choice.choice((1, 1, 3, self.pool))
        for _ in range(min(some, side.left)):
            if wrong:
                ident = choice.randrange(1, self.pool + 1)
            elif side.free:
                ident = side.free.pop(choice.randrange(len(side.free)))
            else:
                break
            side.left -= 1
            text = b"m" if self.alike else b"%d" % next(self.texts)
            wants = choice.choice(self.kinds[side.way])
            side.open[ident] = SimpleNamespace(wants=wants, text=text)
            self._ask(side, ident)
        if side.left:
            self._at(self.now + choice.choice((1, 2, 5)) * self.delay // 2, self._new, side)

    def _ask(self, side, ident, again=False, more=MORE):
        """A question, for the first time or again, and maybe again later."""
        item = side.open[ident]
        packet = question(self.level, item.wants, ident, item.text, again)
        self._say(side.way, packet, self._read, item.wants, ident)
        if self.retry and more and (item.wants < SUBACK or self.level == 3):
            self._at(self.now + self.retry, self._remind, side, ident, item, item.wants, more - 1)

    def _remind(self, side, ident, item, wants, more):
        if side.open.get(ident) is item and item.wants == wants:
            self._ask(side, ident, True, more)

    def _read(self, side, wants, ident):
        """A program answers a question."""
        packet = answer(self.level, wants, ident)
        self._say(side.way, packet, self._answered, wants, ident)

    def _answered(self, side, kind, ident):
        """A program reads an answer."""
        item = side.open.get(ident)
        mine = item and item.wants == kind
        if mine and kind == PUBREC:
            item.wants = PUBCOMP
            self._ask(side, ident)
        elif mine:
            self._over(side, ident)
        elif kind == PUBREC and self.eager:
            release = question(self.level, PUBCOMP, ident)
            self._say(side.way, release, self._read, PUBCOMP, ident)

    def _over(self, side, ident):
        del side.open[ident]
        side.free.append(ident)
