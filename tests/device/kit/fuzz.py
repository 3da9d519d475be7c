"""The fuzzer: spoiled broker traffic for a client in every state, and a check of what it did.

Knows: MQTTClient's API, streams, the reference of fuzz_traffic.py.
Must not know: how the client works inside.

    Fuzzer(seed).run(cases)     # AssertionError, or whatever escapes, if something is wrong

A seed draws protocol version, store, form of the callback, then one case after the other on the
same client. After each case: nothing but MQTTException and OSError came out; the messages that
were delivered and the acknowledgements that were sent are those of the reference, byte by byte;
the client is open or closed as it must be; the store holds what it must, unharmed; and a message
each way gets through, over a new connection if need be.
"""

import fuzz_traffic as ft
import softtimer
from nor import NOR, Random
from strict_wire import LEVELS, decode_length, text
from umqtt_min import FlashStore, MQTTClient, MQTTException, RAMStore
from umqtt_min.older import MQIPDP_2, MQTT_3_1
from umqtt_min.packets import MQTT_3_1_1

BUFFER = 64
MAX_MESSAGE = 200
CALLS = 4000  # of the stream, in one case: more would be a hang
POLLIN, POLLOUT, POLLHUP = 1, 4, 16
ROWS = {4: MQTT_3_1_1, 3: MQTT_3_1, 2: MQIPDP_2}

CONNECTING, IDLE, FLYING, RECEIVING, DRAINING, WAITING, SUBSCRIBING = range(7)
STATES = ("connecting", "idle", "publishes in flight", "receiving QoS 2", "draining",
          "waiting for PUBACK", "waiting for SUBACK")  # fmt: skip


class Wire:
    """A stream to a broker that is played: what is fed is read, what is written is kept."""

    def __init__(self, world):
        self._world = world
        self._in = b""
        self._at = 0
        self._out = bytearray()
        self.ended = self.closed = False
        self.chunk = 0  # most bytes of one read, 0: any
        self.pause = 0  # so many bytes further, nothing comes for once
        self.grudging = False  # takes half of what it is given
        self.refused = 0  # bytes of the last write that it did not take

    def feed(self, data):
        """Let the client read these bytes."""
        self._in = bytes(self._in[self._at :]) + bytes(data)
        self._at = 0

    @property
    def left(self):
        """Bytes that were fed and not read."""
        return len(self._in) - self._at

    def setblocking(self, flag):
        """Never blocks."""

    def close(self):
        """The client closes."""
        self.closed = True

    def _count(self):
        assert not self.closed, "a closed stream is used"
        self._world.calls += 1
        assert self._world.calls < CALLS, "hangs"

    def write(self, buf, *where):
        """write(buf), (buf, n), (buf, off, n)."""
        self._count()
        view = memoryview(buf)
        if len(where) == 2:
            view = view[where[0] : where[0] + where[1]]
        elif where:
            view = view[: where[0]]
        given = len(view)
        if self.grudging and given > 1:
            view = view[: given // 2]
        self.refused = given - len(view)
        self._out.extend(view)
        self._packets()
        return len(view)

    def _packets(self):
        while len(self._out) > 1:
            head = decode_length(self._out, 1)
            if head is None or head[0] + head[1] > len(self._out):
                return
            body = bytes(self._out[head[1] : head[0] + head[1]])
            op = self._out[0]
            self._out = self._out[head[0] + head[1] :]
            self._world.written(self, op, body)

    def readinto(self, buf, n=-1):
        """None if there is nothing, 0 at the end."""
        self._count()
        if self.pause < 0:
            self.pause = 0
            return None
        if not self.left:
            return 0 if self.ended else None
        n = min(len(buf), n if n >= 0 else 65535, self.left)
        n = min(n, self.chunk or 65535, self.pause or 65535)
        if self.pause:
            self.pause -= n
            if not self.pause:
                self.pause = -1
        buf[:n] = self._in[self._at : self._at + n]
        self._at += n
        return n

    def ready(self, mask):
        """Events for poll."""
        self._world.calls += 1
        assert self._world.calls < CALLS, "hangs"
        return mask if self.left or self.ended else mask & POLLOUT


class Fuzzer:
    """One client and the broker that is played to it."""

    def __init__(self, seed):
        softtimer.set_virtual(True)
        self.random = random = Random(seed)
        self.seed = seed
        self.cases = self.mutated = self.closings = self.calls = 0
        self.states = [0] * len(STATES)
        level = (4, 4, 3, 2)[random.below(4)]
        stores = (None, RAMStore(2048), RAMStore(2048), None, RAMStore(4096),
                  FlashStore(NOR(6, 1024)))  # fmt: skip
        self.store = stores[random.below(6)]
        views = not random.below(3)
        self.session = ft.Session(LEVELS[level], self.store is not None, views, BUFFER,
                                  MAX_MESSAGE)
        self.traffic = ft.Traffic(random, self.session)
        self.client = MQTTClient(
            b"dev", "broker", timer=False, connector=self._connector, store=self.store,
            protocol=ROWS[level], buffer_size=BUFFER, timeout=2, max_message=MAX_MESSAGE,
            window=8)  # fmt: skip
        self.client.pid = 1 + random.below(65535)  # else it begins anywhere
        if views:
            self.client.set_view_callback(self._viewed)
        else:
            self.client.set_callback(self._received)
        self.good = True  # the broker answers as it should
        self.trigger = None  # f(op, body): gives what is fed when that packet comes
        self.setup = (0, False)
        self.pause = 0
        self.packets = None  # what is sent instead of something random
        self.got = []
        self._pieces = b""
        self.replies = []
        self.wire = None
        self._connect()

    # The broker.

    def _connector(self, host, port, timeout_ms):
        self.wire = Wire(self)
        self.wire.chunk, self.wire.grudging = self.setup
        if self.trigger:
            self.wire.pause = self.pause
        return self.wire

    def written(self, wire, op, body):
        """The client has written a whole packet."""
        kind = op >> 4
        if self.trigger:
            data = self.trigger(kind, body)
            if data is not None:
                self.trigger = None
                wire.feed(data)
                return
        if kind in (4, 5, 6, 7):
            self.replies.append((op, body[0] << 8 | body[1]))
        if self.good:
            self._answer(wire, op, body)

    def _answer(self, wire, op, body):
        kind = op >> 4
        if kind == 1:
            present = self.store is not None and self.session.level.level == 4
            wire.feed(bytes((0x20, 2, 1 if present else 0, 0)))
        elif kind == 3 and op & 6:
            at = 2 + (body[0] << 8 | body[1])
            wire.feed(bytes((0x40 if op & 2 else 0x50, 2, body[at], body[at + 1])))
        elif kind == 6:
            wire.feed(bytes((0x70, 2)) + body)
        elif kind == 12:
            wire.feed(b"\xd0\x00")

    # The application.

    def _received(self, topic, msg):
        self.got.append((bytes(topic), bytes(msg)))

    def _viewed(self, topic, payload, flags, left):
        if not self.client.piece:
            self._pieces = b""
        self._pieces += bytes(payload)
        if not left:
            self.got.append((bytes(topic), self._pieces))

    def _connect(self):
        """A good connection; everything in flight gets to its end."""
        self.good = True
        self.trigger = None
        self.setup = (0, False)
        self._pieces = b""
        self.client.connect()
        if self.store is None:
            del self.session.inbox[:]
            self.session.fly.clear()
        else:
            assert self.client.flush(5), "not all is acknowledged"
            self.session.fly.clear()
            assert self.store.live == 0 and not self.store.next(0)

    def _publish(self, wait):
        below = self.random.below
        payload = bytes([below(256)]) * below(30)
        topic = ft.TOPICS[below(len(ft.TOPICS))]
        qos = 1 + below(2)
        pid = self.client.publish(topic, payload, qos=qos, wait=wait)
        if self.store is not None:
            self._note(pid, qos, topic, payload)

    def _note(self, pid, qos, topic, payload):
        raw = pid
        if self.session.level.little:
            raw = pid >> 8 | (pid & 255) << 8
        body = text(topic) + bytes((raw >> 8, raw & 255)) + payload
        self.session.fly[self.store.seq - 1] = ft.Flight(raw, qos, body)

    # A case.

    def run(self, cases):
        """So many cases; returns how many of them were mutated."""
        for _ in range(cases):
            self.case()
        return self.mutated

    def case(self):
        """One stream of traffic, then a look at everything."""
        below = self.random.below
        self.setup = ((0, 1, 1 + below(8), 1 + below(100))[below(4)], not below(4))
        self.wire.chunk, self.wire.grudging = self.setup
        self.end = not below(8)
        self._case(below(7))

    def exact(self, state, packets, cut=None, pause=0):
        """A state, and no mutation. packets: what the broker sends beside the right answer.
        cut: the stream ends behind so many bytes. pause: after so many bytes nothing comes for
        once, the rest later. Returns the number of bytes of the whole stream."""
        self.packets = packets
        self.pause = self.wire.pause = pause
        self.traffic.plain = True
        self.traffic.cut = cut
        self.end = cut is not None
        self._case(state)
        return len(self.data)

    def _case(self, state):
        self.cases += 1
        self.state = state
        self.calls = 0
        self.states[state] += 1
        self.session.begin()
        del self.got[:], self.replies[:]
        self.data = None
        self.verdict = ft.OPEN
        self.error = None
        self.good = False
        self._play()
        self._drain()
        self._check()
        self._settle()

    def _play(self):
        try:
            _PLAYS[self.state](self)
        except (OSError, MQTTException) as e:
            self.error = e

    def _spoiled(self, packets):
        """Spoil packets, and let the reference read them."""
        self.data = self.traffic.stream(packets, 3)
        self.mutated += self.traffic.mutations > 0
        if self.end:
            self.wire.ended = True
        return self.data

    def _feed(self, packets):
        self.wire.feed(self._spoiled(packets))
        self.verdict = self.session.read(self.data)

    def _some(self, n, large=False):
        if self.packets is not None:
            return self.packets[:]
        return [self.traffic.some(large) for _ in range(1 + self.random.below(n))]

    def _mix(self, some, packets):
        if self.packets is not None:
            return packets + some
        for one in packets:
            some.insert(self.random.below(len(some) + 1), one)
        return some

    def _connecting(self):
        self.client.disconnect()
        self.session.asked = None
        if self.store is None:
            del self.session.inbox[:]
        present = self.store is not None and self.random.below(2)
        data = self._connack(bytes((0x20, 2, 1 if present else 0, 0)))

        def first(kind, body):
            if self.end:
                self.wire.ended = True
            return data

        self.trigger = first
        self.client.connect()

    def _connack(self, good):
        """CONNACK and more, spoiled; what the reference says of it."""
        self.data = data = self.traffic.stream([good] + self._some(4, True), 3)
        self.mutated += self.traffic.mutations > 0
        strict = self.session.level.level == 4
        n = 0
        if len(data) > 1 and data[0] >> 4 == 2 and data[1] == 2:
            n = 4
        self.verdict = ft.BAD
        if n > len(data) or len(data) < 2 and not (data and self.end):
            self.verdict = ft.BAD  # no answer in time
        elif n and not (strict and (data[0] & 15 or data[2] & 0xFE or data[2] and data[3])):
            clean = self.store is None
            if not data[3] and not (strict and clean and data[2]):
                if strict and not data[2]:
                    self.session.renew()
                self.verdict = self.session.read(data[4:])
        return data

    def _idle(self):
        self._feed(self._some(5))

    def _flying(self):
        if self.store is None:
            return self._idle()
        for _ in range(1 + self.random.below(4)):
            self._publish(False)
        self._feed(self._mix(self._some(2), self.traffic.answers()))

    def _receiving(self):
        packets = [self.traffic.message(2, False) for _ in range(1 + self.random.below(4))]
        rels = [ft.short(0x62, one) for one in self.session.inbox]
        self._feed(self._mix(packets + rels, packets[:2]))

    def _draining(self):
        self._feed(self._some(4, True))

    def _waiting(self):
        below = self.random.below
        topic = ft.TOPICS[below(len(ft.TOPICS))]
        payload = bytes([below(256)]) * below(100)
        qos = 1 + below(2)

        def answer(kind, body):
            if kind != 3:
                return None
            return self._answer_publish(qos, topic, payload, body)

        self.trigger = answer
        self.client.publish(topic, payload, qos=qos)
        kind = ft.PUBACK if qos == 1 else ft.PUBCOMP
        assert (kind, self.raw) in self.session.acks, "publish() returned without %d" % kind

    def _answer_publish(self, qos, topic, payload, body):
        at = 2 + (body[0] << 8 | body[1])
        self.raw = body[at] << 8 | body[at + 1]
        if self.store is not None:
            self.session.fly[self.store.seq - 1] = ft.Flight(self.raw, qos, body)
            answers = self.traffic.answers()
        elif qos == 1:
            answers = [ft.short(0x40, self.raw)]
        else:
            answers = [ft.short(0x50, self.raw), ft.short(0x70, self.raw)]
        data = self._spoiled(self._mix(self._some(2), answers))
        self.verdict = self.session.read(data)
        return data

    def _subscribing(self):
        below = self.random.below
        n = 1 + below(3)
        kind = ft.SUBACK if below(3) else ft.UNSUBACK

        def answer(_, body):
            raw = body[0] << 8 | body[1]
            self.session.asked = (kind, raw, n)
            codes = bytes([(0, 1, 2, 0x80)[below(4)] for _ in range(n)])
            good = ft.short(0xB0, raw)
            if kind == ft.SUBACK:
                good = bytes((0x90, 2 + n)) + good[2:] + codes
            self.verdict = self.session.read(self._spoiled(self._mix(self._some(3), [good])))
            return self.data

        self.trigger = answer
        if kind == ft.SUBACK:
            self.client.subscribe([(b"f/%d" % i, i % 3) for i in range(n)])
        else:
            self.client.unsubscribe([b"f/%d" % i for i in range(n)])
        assert self.session.asked is None, "it returned without an answer"

    def _drain(self):
        """Let the client handle all that was fed."""
        try:
            for _ in range(self.wire.left + 3):
                if not self.client.connected:
                    return
                self.client.check_msg()
                if not self.wire.left and not self.wire.ended:
                    return
        except (OSError, MQTTException) as e:
            self.error = e

    # What must hold.

    def _check(self):
        s = self.session
        closed = not self.client.connected
        where = "seed %d, case %d, %s: %s (%s); %r" % (
            self.seed, self.cases, STATES[self.state], self.verdict, s.why, self.error)
        if self.verdict == ft.BAD or self.end:
            assert closed, where + " is still open"
        elif not s.doubt:
            assert not closed, where + " is closed"
        if closed:
            self.closings += 1
        n = len(self.got) if s.doubt else len(s.delivered)
        assert self.got == s.delivered[:n], "%s\n%s\n%s" % (where, self.got, s.delivered)
        # Acknowledgements of four bytes may be on their way when the connection is closed: those
        # of one read go out with one write.
        n = len(self.replies) if s.doubt or closed else len(s.replies)
        assert n >= len(s.replies) - (self.wire.refused + 3) // 4 or s.doubt, where
        assert self.replies == s.replies[:n], "%s\n%s\n%s" % (where, self.replies, s.replies)
        if self.store is not None:
            if s.doubt and closed:
                s.look_again(self._stored())
            self._check_store(where)

    def _stored(self):
        """{number: whether it waits for PUBCOMP} of what lies in the store."""
        found = {}
        for seq in list(self.session.fly) + list(self.session.over):
            if self.store.find(seq):
                found[seq] = self.store.state == 1
        return found

    def _check_store(self, where):
        store = self.store
        fly = self.session.fly
        assert store.live == len(fly), "%s: %d stored, %s" % (where, store.live, fly)
        for seq, one in fly.items():
            n = store.find(seq)
            buf = bytearray(n)
            store.read(0, buf, n)
            assert bytes(buf) == one.body, where + ": a stored message is not what it was"
            assert store.flags >> 1 == one.qos
            assert (store.state == 1) == (one.awaits == ft.PUBCOMP), where + ": its state"

    def _settle(self):
        """A message each way; over a new connection if there is none, or half a packet in it."""
        self.trigger = None
        self.session.asked = None
        if not self.client.connected or self.verdict == ft.PART:
            self._connect()
        self.calls = 0
        self.wire.chunk = self.wire.pause = 0
        self.wire.grudging = False
        self.good = True
        del self.got[:], self.replies[:]
        packets = [ft.short(0x62, raw) for raw in self.session.touched]
        self.session.begin()
        packets += self.traffic.answers() + [ft.publish(0x32, b"probe", 9, b"in")]
        data = b"".join(packets)
        self.session.read(data)
        self.wire.feed(data)
        for _ in range(3):
            self.client.check_msg()
        if self.store is not None:
            assert self.client.flush(5) and self.store.live == 0
        assert self.got == [(b"probe", b"in")], "not in step any more: %s" % self.got
        assert (0x40, 9) in self.replies
        self.session.fly.clear()
        self.client.publish(b"probe", b"out", qos=1 + self.cases % 2)
        assert self.client.connected


_PLAYS = (Fuzzer._connecting, Fuzzer._idle, Fuzzer._flying, Fuzzer._receiving, Fuzzer._draining,
          Fuzzer._waiting, Fuzzer._subscribing)  # fmt: skip
