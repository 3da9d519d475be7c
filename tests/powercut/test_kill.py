"""Boards are killed (SIGKILL) at random instants while they publish to a real broker that counts.

Knows: the virtual board, the program in board/, brokers, a wire tap.
Must not know: records, segments, the client's inside.

Both interpreters: the virtual board with FlashStore in its flash image, and the same program on
CPython with FileStore. Nothing accepted is lost, what was acknowledged is not sent again, a
number never has two contents, a message that is sent again has its packet identifier and DUP,
and QoS 2 arrives once while the broker keeps the session. iotcore does not: it forgets which
QoS 2 messages it has received when a connection ends, and closes the next one on their PUBREL
[MQTT-4.4.0-1 asks for both]. So with it there is QoS 1 only.
"""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import brokers
import paho.mqtt.client as mqtt
import pytest
from device_plugin import find_micropython
from tap import Tap
from umqtt_board.flash.build import build
from umqtt_board.virtual.board import VirtualBoard
from umqtt_demo import sensorlog

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KILLS = 12
PATIENCE = 60
MAIN = """
import vboard
import publisher
from umqtt_min import FlashStore
publisher.main("127.0.0.1", {port}, {most}, FlashStore(vboard.journal),
               lambda line: vboard.sensor_log.write(line + "\\n"))
"""


def wait_until(condition, what):
    """Wait for a condition."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, f"within {PATIENCE} s not: {what}"
        time.sleep(0.01)


class Virtual:
    """The virtual board: MicroPython, FlashStore in the journal region."""

    def __init__(self, folder, port, most):
        program = folder / "program"
        program.mkdir()
        (program / "main.py").write_text(MAIN.format(port=port, most=most))
        (program / "publisher.py").write_text((HERE / "board/publisher.py").read_text())
        self._board = VirtualBoard(folder / "board", name="board")
        files = folder / "files"
        for item in build(firmware=program, out=folder / "out"):
            path = files / item.path.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(item.data)
        size = self._board.config["filesystem"]
        self._board.flash_image.write_bytes(b"\xff" * (size + self._board.config["journal"]))
        subprocess.run([find_micropython(), HERE / "board/write_image.py",
                        self._board.flash_image, str(size // 4096), files],
                       env={"MICROPYPATH": str(ROOT / "boards/unix/shim")},
                       check=True, capture_output=True, text=True, timeout=PATIENCE)
        self.log = self._board.sensor_log

    def start(self):
        """Power on."""
        self._board.power_on()

    def kill(self):
        """SIGKILL, and it is dead."""
        self._board.cut()

    def said(self):
        """The end of what it printed."""
        return self._board.printed()[-1500:]

    def end(self):
        """Take everything away."""
        self._board.power_off()


class Host:
    """CPython, FileStore in a folder."""

    def __init__(self, folder, port, most):
        self.log = folder / "log"
        self._out = folder / "out"
        self._command = [sys.executable, str(HERE / "board/on_host.py"), "127.0.0.1", str(port),
                         str(most), str(folder / "mqtt"), str(self.log)]
        self._process = None

    def start(self):
        """Begin."""
        with open(self._out, "ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def kill(self):
        """SIGKILL, and it is dead."""
        self._process.kill()
        self._process.wait()

    def said(self):
        """The end of what it printed."""
        return self._out.read_text()[-1500:]

    def end(self):
        """Take everything away."""
        if self._process:
            self.kill()


class Counter:
    """Subscribes to what the board publishes and keeps it in order; sends to the board."""

    def __init__(self, port):
        self.received = {1: [], 2: []}
        self.sent = []
        self._ready = threading.Event()
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="counter",
                                   clean_session=False)
        self._client.on_connect = lambda client, *_: client.subscribe("from/#", 2)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = self._on_message
        self._client.connect("127.0.0.1", port, keepalive=60)
        self._client.loop_start()
        assert self._ready.wait(PATIENCE), "no SUBACK"

    def _on_message(self, _client, _userdata, message):
        number, boot = map(int, message.payload.split())
        self.received[int(message.topic[-1])].append((number, boot))

    def count(self):
        """Messages so far."""
        return sum(map(len, self.received.values()))

    def send(self, text):
        """A QoS 2 message for the board."""
        self.sent.append(text)
        self._client.publish("to/board", text, qos=2).wait_for_publish(PATIENCE)

    def close(self):
        """Leave."""
        self._client.disconnect()
        self._client.loop_stop()


def pairs(takes):
    """{(number, boot)} of what a SensorLog has taken or cut off, as a message has them."""
    return {(take.sequence, take.ordinal) for take in takes.values()}


class Run:
    """One board, its broker, tap and counter."""

    def __init__(self, make, folder, broker):
        self.kills = 0
        self.done_at = []  # for each connection: up to which number all was acknowledged before
        self.most = 2 if broker.name == "mosquitto" else 1
        self.counter = Counter(broker.port)
        self.tap = Tap("127.0.0.1", broker.port, self._connected)
        self.board = make(folder, self.tap.port, self.most)

    def taken(self):
        """What was given to publish(), as the demo counts it: a SensorLog of (boot, number)."""
        text = self.board.log.read_text() if self.board.log.exists() else ""
        return sensorlog.parse("".join(line for line in text.splitlines(keepends=True)
                                       if line.startswith(("take ", "done "))))

    def lines(self, word):
        """What the board logged under a word; a line that a kill tore does not count."""
        if not self.board.log.exists():
            return []
        whole = self.board.log.read_text().split("\n")[:-1]
        return [line.split()[-1] for line in whole if line.split()[:1] == [word]]

    def _connected(self):
        self.done_at.append(max(map(int, self.lines("f")), default=0))

    def play(self, rng):
        """Kill it again and again, then let it come to its end."""
        while self.kills < KILLS or self.kills < 5 * KILLS and not self.sent_again():
            self._kill(rng)
        self.board.start()
        wait_until(lambda: len(self.taken().taken) > 10 * KILLS, self._what("enough messages"))
        self.counter.send("stop")
        wait_until(lambda: self.lines("end"), self._what("the end"))
        wait_until(lambda: not self.missing(), "all that was accepted at the subscriber")

    def missing(self):
        """(number, boot) that were accepted and did not reach the subscriber at their QoS."""
        accepted = pairs(self.taken().taken)
        for qos in range(1, self.most + 1):
            accepted -= {(n, boot) for n, boot in self.counter.received[qos]
                         if 1 + n % self.most == qos}
        return accepted

    def _kill(self, rng):
        boots, before = len(self.lines("boot")), self.counter.count()
        subscribed = len(self.lines("s"))
        self.board.start()
        if self.kills % 3:
            wait_until(lambda: self.counter.count() > before, self._what("a message"))
            if self.kills % 3 == 1:
                # What the store held goes out before the board subscribes: a message of the
                # board does not show that it would get one.
                wait_until(lambda: len(self.lines("s")) > subscribed,
                           self._what("a subscription"))
                self.counter.send(f"command-{self.kills}")
            time.sleep(rng.uniform(0, 0.2))
        else:  # perhaps while it mounts
            until = time.monotonic() + rng.uniform(0, 0.4)
            wait_until(lambda: len(self.lines("boot")) > boots or time.monotonic() > until,
                       self._what("a boot"))
        self.board.kill()
        self.kills += 1

    def sent_again(self):
        """How often a message was on the wire once more."""
        packets = [p.payload for packets in self.tap.connections for p in packets]
        return len(packets) - len(set(packets))

    def _what(self, event):
        return f"{event}; the board said: {self.board.said()}"

    def close(self):
        """Leave nothing behind."""
        self.board.end()
        self.tap.close()
        self.counter.close()


@pytest.fixture(params=["iotcore", "mosquitto"])
def broker(request):
    """A broker of this test alone."""
    if request.param == "mosquitto":
        brokers.need_mosquitto()
    own = brokers.Broker(request.param)
    yield own
    own.stop()


@pytest.mark.parametrize("make", [Virtual, Host])
def test_killed_at_random_instants(make, broker, tmp_path):
    run = Run(make, tmp_path, broker)
    try:
        run.play(random.Random(7))
        check_received(run)
        check_wire(run)
        check_incoming(run)
    finally:
        run.close()


def check_received(run):
    """At the subscriber: all of it, in order, QoS 2 once, a number has one content."""
    assert not run.missing(), f"accepted and lost: {sorted(run.missing())}"
    taken = run.taken()
    assert not taken.complaints, taken.complaints
    # A kill between the two lines around publish(): one message each time.
    assert len(taken.cut_off) <= run.kills
    begun = pairs(taken.taken) | pairs(taken.cut_off)
    for qos in range(1, run.most + 1):
        got = run.counter.received[qos]
        first = list(dict.fromkeys(got))
        numbers = [n for n, _ in first]
        assert len(set(numbers)) == len(numbers), f"a number came with two contents: {first}"
        assert numbers == sorted(numbers), f"out of order: {numbers}"
        assert set(got) <= begun, f"never published: {sorted(set(got) - begun)}"
    got = run.counter.received[2]
    assert len(set(got)) == len(got), f"QoS 2 twice: {sorted(n for n in got if got.count(n) > 1)}"


def check_wire(run):
    """On the wire: nothing that was acknowledged, and what was sent before with DUP and its id."""
    assert run.sent_again(), "no message was ever sent again: the kills show nothing"
    known = {}
    for done, packets in zip(run.done_at, run.tap.connections, strict=True):
        for p in packets:
            number = int(p.payload.split()[0])
            assert number > done, f"{number} was sent again; all up to {done} was acknowledged"
            if number in known:
                assert p.dup, f"{number} was sent again without DUP"
                assert (p.pid, p.payload) == known[number], f"{number}: another id or content"
            known[number] = p.pid, p.payload


def check_incoming(run):
    """Every message for the board was delivered; twice only if the kill came in between."""
    heard = run.lines("i")
    assert set(heard) == set(run.counter.sent)
    assert len(heard) - len(set(heard)) <= run.kills
