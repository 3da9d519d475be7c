"""The fuzzer of the firmware: spoiled marks, commands, settings and updates for a whole board.

Knows the topics and the forms of what firmware handles, and how to spoil them.
Must not know how the firmware reads them.

    FirmwareFuzzer(seed).run(cases)     # AssertionError, or whatever escapes, if there is a fault

A board with the pipeline's confirmation and a command key runs on a clock that does not wait. Each
case is one message, spoiled or not, by QoS 1. The verdict is the board's own work: over the same
connection it acknowledges the message, takes a reading, delivers it, obeys a good mark; nothing is
released that no mark covered, no reading's number is skipped, no update is put in force or begun
that is not as its fields have to be, and no exception was caught that nobody expected.
"""

import gc
import os
from binascii import hexlify

import commands
import loader
import ota
import ota_kit
import softtimer
import state
import strict_broker
from fw_board import Board
from nor import Random
from umqtt_min.store.ram import RAMStore

KEY = bytes(range(16))
BASE = b"fleet/default/oven/"
GROUP = b"fleet/default/-all/"
NAMES = (b"interval", b"report", b"restart", b"ota", b"piece", b"explode", b"\x1b[3m", b"\xc3\xa4")
KINDS = ("mark", "mark", "command", "command", "update", "piece", "bytes")
LONGEST = 2048  # of a message that the firmware reads
STEPS = 20000

# Each takes the place of one value, or of the whole. Text, so that it may be what no dump gives.
POISON = (
    b"null", b"true", b"false", b"-1", b"0", b"1", b"1.5", b"1e999", b"-1e999", b"1e-999", b"NaN",
    b"2147483647", b"2147483648", b"1073741824", b"9007199254740991", b"9007199254740993",
    b"1" + b"0" * 400, b"-" + b"9" * 400, b"[]", b"{}", b'""', b'"a"', b'"1"', b'"\\ud800"',
    b'"\\u0000"', b'"' + b"x" * 300 + b'"', b'{"ab":1}', b"[[1]]", b"[[1,2,3]]", b"[[2,1]]",
    b'[["a",1]]', b"[[null,1]]", b"[[1,1e999]]", b"[[1,2147483648]]", b"[" * 400,
    b"[" * 400 + b"]" * 400, b'{"a":' * 120 + b"1" + b"}" * 120, b"[1," * 200 + b"1" + b"]" * 200,
)  # fmt: skip


def text(value):
    """JSON text; bytes stand for themselves."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        pairs = [b'"%s":%s' % (key.encode(), text(one)) for key, one in value.items()]
        return b"{" + b",".join(pairs) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join([text(v) for v in value]) + b"]"
    return b'"%s"' % value.encode() if isinstance(value, str) else b"%d" % value


class FirmwareFuzzer:
    """One board, and a broker that passes on to it what anybody may have published."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.cases = self.mutated = self.closings = self.refused = 0
        self.kinds = {}
        self.folder = os.getcwd() + "/fw_fuzz"
        self.board = None
        self.good_mark = None  # the number of a mark that was not spoiled

    def run(self, cases):
        """So many cases; returns how many of them were mutated."""
        self._within(lambda: [self.case() for _ in range(cases)])
        return self.mutated

    def play(self, messages):
        """One case for each (topic, payload) of messages(fuzzer)."""

        def all_of_them():
            for topic, payload in messages(self):
                self.cases += 1
                self._case(topic, payload, "mark" if topic.endswith(b"/ack") else "command")

        self._within(all_of_them)

    def _within(self, work):
        saved = state.PATH, loader.ROOT
        state.PATH, loader.ROOT = self.folder + ".json", self.folder
        try:
            self._begin()
            work()
        finally:
            self._end()
            state.PATH, loader.ROOT = saved

    def _begin(self):
        self._end()
        self.board = Board(RAMStore(16384, hold=True), confirm="pipeline", readings=0, report_s=0,
                           command_key=hexlify(KEY).decode())  # fmt: skip
        self.app = self.board.app
        self.made = ota_kit.Set(ota_kit.files(1, (700, 3000, 9000)))
        self.given = self.count = 0
        self.board.run(lambda: self.app.client.connected and self.app.client.counters.acked > 1)

    def _end(self):
        if self.board:
            self.board.__exit__()
            self.board = self.app = None
            softtimer.timers.clear()
            gc.collect()
            strict_broker.check_all()
        for path in (state.PATH, state.PATH + ".new", self.folder):
            ota.remove(path)

    # What is sent

    def case(self):
        """One message, then a look at the board."""
        self.cases += 1
        below = self.random.below
        kind = KINDS[below(len(KINDS))]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.good_mark = None
        topic, payload = self._drawn(kind)
        self._case(topic, payload, kind)

    def _drawn(self, kind):
        if kind == "mark":
            return self._mark()
        if kind == "command":
            return self._command()
        if kind == "update":
            return self._update()
        return self._piece() if kind == "piece" else self._bytes()

    def _case(self, topic, payload, kind):
        self._forget()
        self.before = self._seen()
        self._publish(topic, payload[:LONGEST])
        self._look(kind)
        if self.app.remote.count > 1 << 40:
            self._begin()  # a poison was a counter, rightly signed: no command comes after it

    def _forget(self):
        # A board that goes on for thousands of cases: what the broker notes of each is not needed.
        broker = self.board.broker
        for noted in (broker.packets, broker.publishes, broker.messages, broker.acknowledged):
            noted.clear()
        for connection in broker.connections:
            connection.received.clear()
        del self.board.lines[:-20]
        gc.collect()

    def _publish(self, topic, payload):
        self.board.broker.publish(topic, payload, 1)
        session = self.board.broker.sessions[b"oven"]
        self._run(lambda: not session.outgoing, "acknowledged")

    def _mark(self):
        last = self.app.store.seq - 1
        upto = self.random.below(last + 1)
        mark = {"epoch": self.app.epoch, "upto": upto, "missing": []}
        if upto < last - 1:
            mark["missing"] = [[upto + 1, last - 1]]
        spoiled = self._spoil(mark)
        if spoiled == text(mark):
            self.good_mark = upto
        return BASE + b"ack", spoiled

    def _command(self):
        name = NAMES[self.random.below(len(NAMES))]
        body = {"count": self._next(), "interval_ms": 200 + self.random.below(1000), "why": "no"}
        return self._signed(name, self._spoil(body))

    def _update(self):
        body = dict(self.made.body)
        body["count"] = self._next()
        return self._signed(b"ota", self._spoil(body))

    def _piece(self):
        # Never the second half: a whole update restarts the board.
        half = len(self.made.pieces) // 2
        piece = self.made.pieces[min(half, self.given)]
        spoiled = piece if self._plain() else self._spoil_bytes(piece)
        if spoiled == piece:
            self.given = min(half, self.given + 1)
        return (BASE if self.random.below(2) else GROUP) + b"cmd/piece", spoiled

    def _bytes(self):
        self.mutated += 1
        data = bytes([self.random.below(256) for _ in range(self.random.below(200))])
        name = NAMES[self.random.below(len(NAMES))]
        return (BASE + b"ack", BASE + b"cmd/" + name, GROUP + b"cmd/" + name)[
            self.random.below(3)], data

    def _signed(self, name, body):
        topic = (BASE if self.random.below(2) else GROUP) + b"cmd/" + name
        signed = commands.sign(KEY, topic, body)
        # A restart that is asked for rightly is carried out.
        if name == b"restart" or not self.random.below(4):
            self.mutated += 1
            at = len(body) + 1 + self.random.below(64)
            return topic, signed[:at] + b"!" + signed[at + 1 :]
        return topic, signed

    def _next(self):
        self.count = max(self.count, self.app.remote.count) + 1 + self.random.below(3)
        return self.count

    # How it is spoiled

    def _plain(self):
        if not self.random.below(4):
            return True
        self.mutated += 1
        return False

    def _spoil(self, value):
        if self._plain():
            return text(value)
        below = self.random.below
        poison = POISON[below(len(POISON))]
        keys = sorted(value)
        key = keys[below(len(keys))]
        how = below(8)
        if how == 0:
            return poison
        if how == 1:
            return self._spoil_bytes(text(value))
        if how == 2:
            return text({k: v for k, v in value.items() if k != key})
        if how == 3:  # a second time
            return text(value)[:-1] + b',"%s":%s}' % (key.encode(), poison)
        spoiled = dict(value)
        spoiled[key] = poison
        return text(spoiled)

    def _spoil_bytes(self, data):
        below = self.random.below
        at = below(len(data)) if data else 0
        how = below(4)
        if how == 0:
            return data[:at]
        if how == 1:
            return data[:at] + bytes([below(256)]) + data[at + 1 :]
        if how == 2:
            return data[:at] + data[at : at + 40] * (1 + below(8)) + data[at:]
        return data[:at] + bytes([below(256) for _ in range(below(20))]) + data[at:]

    # What the board did

    def _seen(self):
        app = self.app
        return (app.client.counters.connects, app.confirm.mark, app.confirm.malformed,
                app.remote.refused)  # fmt: skip

    def _run(self, condition, what):
        for _ in range(STEPS):
            if condition():
                return
            self.app.step()
            softtimer.sleep_ms(max(1, self.app.pause()))
        raise AssertionError("not %s: %r" % (what, self.board.lines[-5:]))

    def _look(self, kind):
        app = self.app
        if app.interval > 2000:
            self._publish(*self.command(b"interval", {"interval_ms": 1000}))
        taken = app.sensor.taken
        self._run(lambda: app.sensor.taken > taken + 1, "measuring")
        self._run(lambda: not app.client.inflight(), "delivering")
        connects, mark, malformed, refused = self.before
        assert app.client.counters.connects == connects, ("connection lost", self.board.lines[-5:])
        assert app.troubles == 0 and app.sensor_errors == 0, self.board.lines[-5:]
        assert not [line for line in self.board.lines if " failed: " in line], self.board.lines
        assert loader.pointer() == {"slot": 0}, loader.pointer()
        if app.remote.updating:
            self._look_at_update(app.remote._update._get)
        # One number is the clock record's.
        assert app.store.seq - app.sensor.taken in (1, 2), "a number is lost"
        if kind != "mark":
            assert app.confirm.mark == mark, "released by what is no mark"
        elif self.good_mark is not None:
            assert app.confirm.mark == max(mark, self.good_mark), self.good_mark
        else:
            assert mark <= app.confirm.mark < app.store.seq
        self.refused += app.confirm.malformed - malformed + app.remote.refused - refused
        # A good mark still does its work.
        last = app.store.seq - 1
        good = {"epoch": app.epoch, "upto": last, "missing": []}
        self._publish(BASE + b"ack", text(good))
        self._run(lambda: app.confirm.mark >= last, "confirming")

    def _look_at_update(self, taken):
        for key, kind, low, high in ota._FIELDS:
            size = len(taken[key]) if kind is str else taken[key]
            assert low <= size <= high, (key, taken[key])

    def command(self, name, body, key=None, poison=None):
        """(topic, payload) of a command, rightly signed, with a poison under one key."""
        body["count"] = self._next()
        if key:
            body[key] = poison
        topic = BASE + b"cmd/" + name
        return topic, commands.sign(KEY, topic, text(body))
