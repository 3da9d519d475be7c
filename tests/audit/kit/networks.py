"""A network that loses segments and delivers some late, captured at both of its ends.

Knows: TCP's acknowledgements and resends, MQTT with QoS 1. Must not know: the code under test.
"""

import heapq
import itertools
import random

import audit_kit as kit

MS = 10**6
AGAIN = 250 * MS  #: after so long TCP sends again, and after twice as long once more


class Network:
    """A client that publishes in bunches of 8, and a broker that acknowledges each message.
    Both captures are (ns, frame): `ends[0]` as the client's computer has them, `ends[1]` as the
    broker's. resent: how many segments with data each sent again. loss, late: shares of segments
    that are lost, and that come 2 to 12 ms later than the others; stamps, idents: whether segments
    have time stamps, and identifications that count."""

    def __init__(self, seed, loss, late, stamps=True, idents=True, messages=200):
        self.ends, self.resent = ([], []), [0, 0]
        self._random, self._loss, self._late = random.Random(seed), loss, late
        self._stamps, self._idents, self._messages = stamps, idents, messages
        self._seq, self._expected, self._ident = [1000, 5000], [0, 0], [1000, 30_000]
        self._early, self._waiting = ({}, {}), ({}, {})  # by sequence number
        self._todo, self._number = [], itertools.count()
        self._send(kit.START, 0, b"", kit.SYN)
        while self._todo:
            now, _, what, arguments = heapq.heappop(self._todo)
            what(now, *arguments)

    def _at(self, time, what, *arguments):
        heapq.heappush(self._todo, (time, next(self._number), what, arguments))

    def _emit(self, now, way, seq, flags, payload):
        self._ident[way] += 1
        ends = kit.CLIENT, kit.BROKER
        packet = kit.tcp_ip(ends[way], ends[1 - way], seq, self._expected[way], flags, payload,
                            stamp=now // MS if self._stamps else None)  # fmt: skip
        frame = kit.ethernet(kit.identified(packet, self._ident[way] * self._idents))
        self.ends[way].append((now, frame))
        if not flags & kit.SYN and self._random.random() < self._loss:
            return
        delay = 5 * MS + self._random.randrange(MS // 5)
        if self._random.random() < self._late:
            delay += self._random.randrange(2, 12) * MS
        self._at(now + delay, self._arrive, 1 - way, seq, flags, payload, self._expected[way],
                 frame)  # fmt: skip

    def _send(self, now, way, payload, flags=kit.ACK | kit.PSH):
        seq = self._seq[way]
        self._seq[way] += len(payload) or 1
        self._waiting[way][seq] = self._seq[way]
        self._emit(now, way, seq, flags, payload)
        self._at(now + AGAIN, self._again, way, seq, flags, payload)

    def _again(self, now, way, seq, flags, payload):
        if seq in self._waiting[way]:
            self.resent[way] += bool(payload)
            self._emit(now, way, seq, flags, payload)
            self._at(now + 2 * AGAIN, self._again, way, seq, flags, payload)

    def _arrive(self, now, way, seq, flags, payload, ack, frame):
        self.ends[way].append((now, frame))
        for begin, end in list(self._waiting[way].items()):
            if end <= ack:
                del self._waiting[way][begin]
        if not payload and not flags & (kit.SYN | kit.FIN):
            return
        self._expected[way] = self._expected[way] or seq
        if seq >= self._expected[way]:
            self._early[way][seq] = flags, payload
        answered = False
        while self._expected[way] in self._early[way]:
            flags, payload = self._early[way].pop(self._expected[way])
            self._expected[way] += len(payload) or 1
            takes = self._broker if way else self._client
            answered |= takes(now + MS // 10, flags, payload)
        if not answered:
            self._emit(now + MS // 20, way, self._seq[way], kit.ACK, b"")

    def _broker(self, now, flags, payload):
        if flags & kit.SYN:
            self._send(now, 1, b"", kit.SYN | kit.ACK)
        elif flags & kit.FIN:
            self._send(now, 1, b"", kit.FIN | kit.ACK)
        elif payload[0] >> 4 == 1:
            self._send(now, 1, kit.connack())
        elif payload[0] >> 4 == 3:
            self._send(now, 1, kit.ack(4, int.from_bytes(payload[5:7], "big")))
        else:
            return False
        return True

    def _client(self, now, flags, payload):
        if flags & kit.SYN:
            self._send(now, 0, kit.connect())
            return True
        if payload and payload[0] >> 4 == 2:
            for k in range(1, self._messages + 1):
                then = now + k // 8 * 40 * MS + k % 8 * MS // 2
                self._at(then, self._send, 0, kit.publish("a", b"%d" % k, 1, k))
            self._at(then + 5000 * MS, self._send, 0, kit.DISCONNECT)
            self._at(then + 7000 * MS, self._send, 0, b"", kit.FIN | kit.ACK)
        return False
