"""The whole chain in one process: a board with the firmware's marks, a broker that forgets,
bridge, spool and ingest; what happens is drawn from a seed.

Knows: the parts, what goes wrong, what must hold. Must not know: how the parts decide.

    Chain(seed).run()       # raises Broken, with the step

Every reading that publish() has taken is in silver once, with its value; no mark covers a reading
that is not durable. The same seed takes the same steps.
"""

import random
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "explore"), str(TESTS.parent / "firmware")]

import device  # noqa: E402, F401, I001  first: it stands in for a board
from broker import SENT, Broker, Outgoing, parse_publish, publish  # noqa: E402
from case import Case  # noqa: E402
from confirm import Confirm  # noqa: E402
from nor import PowerCut  # noqa: E402
from oracle import PERHAPS, YES, Broken  # noqa: E402
from server import TOPIC, Bridge, Ingest  # noqa: E402
from telemetry import Packer  # noqa: E402
from umqtt_min import MQTTException  # noqa: E402
from umqtt_pipeline.decode.payloads import identity  # noqa: E402
from world import World  # noqa: E402

# The journal is small, so that each of its segments is reclaimed and filled again several times.
CASE = Case("chain", inbound=[1], window=4, block=512, blocks=4, hold=True, torn="middle",
            burst=3, free=True, crashes=10, cuts=12, amnesia=4, parts=6, short=6, keepalive=60,
            ticks=8)  # fmt: skip
CASE.watched = False  # what counts is in silver
STEPS = 320
READINGS = 60
STALL_S = 30
KIND_STEPS = 900
FIELDS = (("n", None, 0),)
SECOND = 1000000
SERVER = ("the bridge takes", "the bridge takes and syncs", "the bridge takes and syncs",
          "the bridge saves its marks", "the bridge is killed", "ingest is killed in a batch",
          "a batch comes again", "a batch")
# How often the bad of two ways is taken.
ODDS = {"power": 0.004, "session": 0.4, "while it waits": 0.05, "part": 0.1, "stall": 0.1,
        "timer": 0.003}  # fmt: skip


class Hub(Broker):
    """The broker between board and bridge: QoS 1 to the board from `marks`, to the bridge from
    `queue`. What it holds is in its memory only."""

    def __init__(self, case, told):
        super().__init__(case, told)
        self.plan = []
        self.retained = None
        self.queue = []  # packets that the bridge has not acknowledged

    def tell(self, payload):
        """A mark is published, retained."""
        self.retained = payload
        if self.subscribed >= 0:
            self.plan.append(payload)
            del self.plan[:-8]

    def _publish(self, data):
        if parse_publish(data)[1] != TOPIC:
            raise Broken("a reading has come under topic %r" % parse_publish(data)[1])
        super()._publish(data)

    def _subscribe(self, data, most):
        super()._subscribe(data, most)
        if self.retained is not None:
            self.plan = [self.retained]

    def forget(self):
        """It is restarted: everything is gone."""
        super().forget()
        self.plan = []
        self.queue = []
        self.retained = None

    def push(self):
        """As Broker.push(), with marks."""
        for message in self.out:
            if not message.here:
                return self._send(message)
        message = Outgoing(0, min(1, self.subscribed), self._free())
        message.payload = self.plan.pop(0)
        if message.qos:
            self.out.append(message)
        return self._send(message)

    def _send(self, message):
        message.here = True
        again = message.state == SENT
        message.state = SENT
        return publish(b"fleet/g/d/ack", message.payload, message.qos, message.pid, again)


class Ear:
    """Hears what the world tells its oracle, and has no opinion but on what the broker gets."""

    def __init__(self, chain):
        self.chain = chain
        self.stock = self

    def broker_got(self, payload, qos, again, pid):
        """A reading is with the broker."""
        body = len(TOPIC).to_bytes(2, "big") + TOPIC + payload
        packet = bytes((0x30, len(body))) + body
        known = identity(payload)
        if known is None:
            raise Broken("the board has sent what is no reading: %r" % payload)
        self.chain.numbers[packet] = known[1]
        self.chain.broker.queue.append(packet)

    def __getattr__(self, name):
        return lambda *args: None


class Chain(World):
    """One run."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.seed = seed
        self.steps = 0
        self.taken = {}  # number: (value, PERHAPS or YES)
        self.numbers = {}  # packet: number of the reading in it
        self.notes = []  # what has happened, line by line
        self.value = 0
        self.confirm = self.packer = None
        self.now = 1_700_000_000 * SECOND
        self.bridge = Bridge()
        self.ingest = Ingest(self.bridge)
        super().__init__(CASE, self._draw)
        self.oracle = Ear(self)
        self.broker = Hub(CASE, self.oracle)
        self._booted()

    def _draw(self, name, options):
        if name in ODDS:
            if self.random.random() >= ODDS[name]:
                return 0
            answer = self.random.randrange(1, len(options))
        else:
            answer = self.random.randrange(len(options))
        self.note("    %s: %s" % (name, options[answer]))
        return answer

    def note(self, text):
        """Something happens."""
        self.notes.append("%4d  %s" % (self.steps, text))

    def do(self, action):
        """As World.do()."""
        self.note(action)
        super().do(action)

    # The board: what firmware/app.py does with readings and marks

    def _booted(self):
        store = self.board.store
        self.confirm = Confirm(self.board.client, store, STALL_S, 1000, lambda text: None)
        self.packer = Packer("d", store.epoch, store.boot, FIELDS)

    def _boot(self):
        super()._boot()
        self._booted()

    def _publish(self):
        store = self.board.store
        self.value += 1
        number = store.seq
        n = self.packer.pack(number, min(store.low, number), 1, 0, (self.value,))
        self.taken[number] = self.value, PERHAPS
        try:
            self.board.client.publish(TOPIC, bytes(self.packer.view(n)), qos=1, wait=False)
        except PowerCut:
            raise
        except (MQTTException, OSError):
            if store.seq == number:
                del self.taken[number]
            return
        self.taken[number] = self.value, YES

    def _connect(self):
        client = self.board.client
        subscribed = self.subscribed  # as firmware/link.py does it
        self.subscribed = False
        self.subscribed = client.connect() and subscribed
        if not self.subscribed:
            client.subscribe(b"fleet/g/d/ack", 1)
            self.subscribed = True
        self.confirm.connected()

    def _poll(self):
        super()._poll()
        self.confirm.step()

    def _receive(self):
        super()._receive()
        self.confirm.step()

    def got(self, topic, payload):
        """A mark has come."""
        self.confirm.received(payload)

    # The server

    def _tell(self, due):
        for _, payload in due:
            self._covered(payload)
            self.broker.tell(payload)

    def _covered(self, payload):
        upto = int(payload.split(b'"upto":')[1].split(b",")[0])
        spool = self.bridge.spool[: self.bridge.durable]
        durable = {self.numbers[packet] for _, packet in spool}
        for number, (_, how) in self.taken.items():
            if number <= upto and how == YES and number not in durable:
                raise Broken("a mark covers reading %d, which is not durable" % number)

    def _serve(self):
        kind = self.random.randrange(8)
        most = self.random.randrange(1, 9)
        if not self.kind and self.amnesia and self.random.random() < 0.02:
            self.note("the broker is restarted")
            self.amnesia -= 1
            self.network.cut()
            self.broker.forget()
        self.note(SERVER[kind])
        if kind < 3:
            self._take(most)
            if kind:
                self._sync()
        elif kind == 3:
            self.bridge.save()
        elif kind == 4 and not self.kind:
            self._tell(self.bridge.kill())
        elif kind == 5 and not self.kind:
            self.ingest.batch(most, killed=True)
        elif kind == 6 and not self.kind:
            self.ingest.again()
        else:
            self.ingest.batch(most)

    def _take(self, most):
        for packet in self.broker.queue[:most]:
            self.bridge.take(packet, self.now)

    def _sync(self):
        # The broker's queue goes as the acknowledgements reach it, or not: then all comes again.
        due = self.bridge.sync()
        if self.kind or self.random.random() < 0.7:
            held = {packet for _, packet in self.bridge.spool}
            self.broker.queue = [p for p in self.broker.queue if p not in held]
        self._tell(due)

    # Its steps

    def run(self):
        """All steps, then a kind world. Raises Broken."""
        try:
            for _ in range(STEPS):
                self.steps += 1
                self._step()
            self.kind = True
            for _ in range(KIND_STEPS):
                self.steps += 1
                if self._is_done():
                    break
                self._step()
            self._judge()
        except Broken as e:
            raise Broken("seed %d, step %d: %s" % (self.seed, self.steps, e))
        return self

    def _step(self):
        if self.random.random() < 0.35:
            self._serve()
            return
        if self.random.random() < 0.05:
            jump = self.random.choice((1, 40, 3600)) if self.kind else self.random.choice(
                (1, 40, 3600, -86400, 30 * 86400))  # fmt: skip
            self.now += jump * SECOND
            self.clock.move(min(abs(jump), 300) * 1000)
        found = self._choices()
        self.do(self.random.choice(found))

    def _choices(self):
        found = [action for action in self.actions() if action not in ("crash", "lose")]
        if self.board.client is not None:
            if self.value < READINGS:
                found.append("publish")
            if self.board.client.sock is not None:
                found.append("poll")
        if not self.kind and self.board.client is not None and self.random.random() < 0.06:
            found = [a for a in self.actions() if a in ("crash", "lose")] or found
        return found

    def _is_done(self):
        store = self.board.store
        if self.value < READINGS or store is None or store.live:
            return False
        return self.ingest.place == len(self.bridge.spool) and not self.broker.queue

    def _judge(self):
        rows = sorted(self.ingest.silver)
        if len({number for number, _ in rows}) < len(rows):
            raise Broken("a reading is in silver twice")
        rows = dict(rows)
        for number, (value, how) in self.taken.items():
            if number not in rows and how == YES:
                raise Broken("reading %d is not in silver" % number)
            if rows.get(number, value) != value:
                raise Broken("reading %d has value %d in silver, was %d"
                             % (number, rows[number], value))
        if set(rows) - set(self.taken):
            raise Broken("silver has readings that nobody took")
        if not self._is_done():
            raise Broken("the store is never empty, in a kind world")
