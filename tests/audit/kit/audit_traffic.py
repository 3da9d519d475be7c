"""Correct clients and brokers, made up: what they say, how TCP carries it, and what can happen to
a capture of it. One seed, one capture.

Knows: audit_kit, what the specifications allow. Must not know: the audit.
"""

import audit_kit as kit

TOPICS = ("a", "dev/1/t", "a/ä/b", "x" * 40, "long/" * 30 + "end")
IDS = 6  #: few, so that each is soon used again


class _Session:
    """One client and its broker: the packets of both in an order in which they may pass."""

    def __init__(self, choice, level):
        self.choice, self.five = choice, level == 5
        self.free = [list(range(1, IDS)), list(range(1, IDS))]
        self.todo = []  # (way, packet, id that is free afterwards, whose): answers that are owed
        self.said = [(0, self._connect(level)), (1, self._connack())]

    def _connect(self, level):
        raw = kit.connect(f"dev{self.choice.randrange(9)}", 600, 2, level=level,
                          name="MQIsdp" if level == 3 else "MQTT")  # fmt: skip
        if not self.five:
            return raw
        at = 2 + len(kit.string("MQTT")) + 4
        return kit.packet(0x10, raw[2:at] + b"\0" + raw[at:])

    def _connack(self):
        return kit.packet(0x20, b"\0\0\0") if self.five else kit.connack()

    def _payload(self):
        choice = self.choice
        kind = choice.random()
        if kind < 0.3:  # what looks like packets, too
            inner = [kit.PINGREQ, kit.ack(4, 3), kit.ack(6, 2), kit.publish("b", b"y", 1, 4),
                     kit.DISCONNECT, kit.connect("in"), kit.ack(7, 2), kit.suback(1, 0)]
            return b"".join(choice.choices(inner, k=choice.randrange(1, 40)))
        return choice.randbytes(choice.choice((0, 1, 7, 50, 300, 2500, 9000)))

    def _publish(self, way):
        choice, qos = self.choice, self.choice.randrange(3)
        if qos and not self.free[way]:
            return
        ident = self.free[way].pop(choice.randrange(len(self.free[way]))) if qos else None
        payload = (b"\0" if self.five else b"") + self._payload()
        self.said.append((way, kit.publish(choice.choice(TOPICS), payload, qos, ident)))
        if qos == 1:
            self.todo.append([(1 - way, kit.ack(4, ident), way, ident)])
        elif qos == 2:
            self.todo.append([(1 - way, kit.ack(5, ident), None, 0),
                              (way, kit.ack(6, ident), None, 0),
                              (1 - way, kit.ack(7, ident), way, ident)])  # fmt: skip

    def _ask(self):
        if not self.free[0]:
            return
        ident, none = self.free[0].pop(), b"\0" if self.five else b""
        number = ident.to_bytes(2, "big")
        if self.choice.random() < 0.5:
            topic = kit.string("a/#")
            self.said.append((0, kit.packet(0x82, number + none + topic + b"\1")))
            answer = kit.packet(0x90, number + none + b"\1")
        else:
            self.said.append((0, kit.packet(0xA2, number + none + kit.string("a/#"))))
            answer = kit.packet(0xB0, number + (b"\0\0" if self.five else b""))
        self.todo.append([(1, answer, 0, ident)])

    def _answer(self):
        """The next answer that is owed, of one side in the order of the questions."""
        if not self.todo:
            return
        way, raw, owner, ident = self.todo[0].pop(0)
        self.said.append((way, raw))
        if owner is not None:
            self.free[owner].append(ident)
        done = self.todo.pop(0)
        if done:
            self.todo.append(done)

    def talk(self, steps):
        """So many steps, then all that is owed, then DISCONNECT."""
        for _ in range(steps):
            kind = self.choice.random()
            if kind < 0.5:
                self._publish(int(self.choice.random() < 0.4))
            elif kind < 0.58:
                self._ask()
            elif kind < 0.63:
                self.said += [(0, kit.PINGREQ), (1, kit.PINGRESP)]
            else:
                self._answer()
        while self.todo:
            self._answer()
        return [*self.said, (0, kit.DISCONNECT)]


def spoken(choice, level=4):
    """What one client and its broker say: [(way, packet)]."""
    return _Session(choice, level).talk(choice.randrange(10, 60))


def _carried(choice, talk, said):
    """The packets in segments: some together, some in pieces, with acknowledgements between."""
    k = 0
    while k < len(said):
        way, raw = said[k]
        k += 1
        while k < len(said) and said[k][0] == way and choice.random() < 0.4:
            raw += said[k][1]
            k += 1
        size = choice.choice((1400, 1400, 536, 100)) if len(raw) > 100 else choice.choice(
            (1400, 1400, 1400, 1, 2, 3))  # fmt: skip
        cuts = [raw[:size], *(raw[j : j + 1400] for j in range(size, len(raw), 1400))]
        for part in cuts:
            talk.wait(choice.choice((0, 0.001, 0.05))).segment(way, part)
            if choice.random() < 0.3:
                talk.segment(1 - way, flags=kit.ACK)
    return talk


def sound(choice, port=1883):
    """Frames of some connections of correct clients, Ethernet, in the order of time."""
    frames = []
    for k in range(choice.randrange(1, 4)):
        talk = kit.Talk(("10.0.0.2", 40_000 + k), ("10.0.0.1", port), step=10**5,
                        isn=(choice.randrange(1 << 32), choice.randrange(1 << 32)),
                        start=kit.START + k * 7_000_003).open()  # fmt: skip
        said = _Session(choice, choice.choice((3, 4, 4, 5, 5))).talk(choice.randrange(10, 60))
        frames += _carried(choice, talk, said).close().wrapped()
    return sorted(frames, key=lambda f: f[0])


def cut(frames, choice):
    """A piece out of the middle of a capture: it begins and ends anywhere."""
    at = choice.randrange(len(frames))
    return frames[at : at + choice.randrange(5, len(frames))]


def dropped(frames, choice):
    share = choice.choice((0.01, 0.05, 0.3))
    return [f for f in frames if choice.random() > share]


def doubled(frames, choice):
    return [f for f in frames for _ in range(1 + (choice.random() < 0.1))]


def delayed(frames, choice):
    """Each up to some places from its own, with the time that it has there."""
    far = choice.choice((2, 4, 20))
    order = sorted(range(len(frames)), key=lambda k: k + choice.random() * far)
    return [(frames[k][0], frames[j][1]) for k, j in enumerate(order)]


def gone(frames, choice):
    """Two runs of frames are missing."""
    for _ in range(2):
        at = choice.randrange(len(frames))
        frames = frames[:at] + frames[at + choice.randrange(1, 30) :] or frames[:1]
    return frames


def one_way(frames, choice):
    """Of one connection one side is missing."""
    way = choice.choice(frames)[1][26:38]
    return [f for f in frames if f[1][26:38] != way] or frames[:1]


DAMAGE = [cut, dropped, doubled, delayed, gone, one_way]


def hole_in_file(raw, choice):
    """Bytes of the file are missing in its middle."""
    at = choice.randrange(24, len(raw))
    return raw[:at] + raw[at + choice.randrange(1, 3000) :]
