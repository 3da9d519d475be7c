"""Scripts written for umqtt.simple and umqtt.robust run with only their import changed, against
mosquitto; with PEERS=folder (tools/bench/README.md) the originals run the same scripts, too.

Knows: the scripts' output, paho-mqtt as the other end.  Must not know: the client's inside.
"""

import os
import queue
import re
import subprocess
import threading
import time
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from device_plugin import INTERPRETERS, command

HERE = Path(__file__).resolve().parent
SECONDS = 60
ORIGINAL = "original"  # umqtt itself, which runs on MicroPython only
pytestmark = pytest.mark.parametrize("interpreter", [*INTERPRETERS, ORIGINAL])


def peers():
    """The folder with umqtt/simple.py and umqtt/robust.py; skips the test without one."""
    folder = os.environ.get("PEERS", "")
    if not (Path(folder) / "umqtt" / "robust.py").is_file():
        pytest.skip("PEERS=folder with umqtt/simple.py and umqtt/robust.py is not given")
    return os.path.abspath(folder)


class Script:
    """A script under way; .wait(text) waits for a line, .end() for its end."""

    def __init__(self, interpreter, name, broker, **options):
        if interpreter == ORIGINAL:
            options["peers"] = peers()
        argv = command("cpython" if interpreter == "cpython" else "micropython", "256K")
        argv += [str(HERE / "run_script.py"), name]
        argv += [broker.host, str(broker.port)] + [f"{k}={v}" for k, v in options.items()]
        if interpreter == "cpython":
            argv.insert(1, "-u")
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = queue.Queue()
        self.output = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def wait(self, text):
        """Wait for a line that contains text (None: for the end)."""
        until = time.monotonic() + SECONDS
        while True:
            try:
                line = self.lines.get(timeout=max(0, until - time.monotonic()))
            except queue.Empty:
                self.process.kill()
                pytest.fail(f"no {text!r} within {SECONDS} s:\n{self.output}")
            if line is None:
                assert text is None, f"ended without {text!r}:\n{self.output}"
                return self.output
            self.output += line
            if text and text in line:
                return self.output

    def end(self, status=0):
        """Wait for its end; the output.  AssertionError unless it ends so; None: however."""
        self.wait(None)
        assert self.process.wait(SECONDS) == status or status is None, self.output
        return self.output


@pytest.fixture
def other(mosquitto):
    """The other end: .got is a queue of (topic, payload), .watch() and .publish() as they say."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.got = queue.Queue()
    subscribed = queue.Queue()
    client.on_message = lambda c, u, m: client.got.put((m.topic, m.payload))
    client.on_subscribe = lambda *a: subscribed.put(1)
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()

    def watch(topic):
        client.subscribe(topic, 1)
        subscribed.get(timeout=SECONDS)

    client.watch = watch
    yield client
    client.disconnect()
    client.loop_stop()


def test_pub(interpreter, mosquitto, other):
    other.watch("pub/" + interpreter)
    Script(interpreter, "pub", mosquitto, topic="pub/" + interpreter).end()
    assert other.got.get(timeout=SECONDS) == ("pub/" + interpreter, b"hello")


@pytest.mark.parametrize("blocking", [0, 1])
def test_sub(interpreter, mosquitto, other, blocking):
    topic = f"sub/{interpreter}/{blocking}"
    script = Script(interpreter, "sub", mosquitto, topic=topic, blocking=blocking)
    script.wait("subscribed")
    for i in range(3):
        other.publish(topic, f"message {i}")
    out = script.end()
    assert re.findall(r"message \d", out) == ["message 0", "message 1", "message 2"]
    assert f"b'{topic}'" in out


def test_button(interpreter, mosquitto, other):
    other.watch("button/" + interpreter)
    Script(interpreter, "button", mosquitto, topic="button/" + interpreter).end()
    got = [other.got.get(timeout=SECONDS)[1] for _ in range(3)]
    assert got == [b"toggle"] * 3


def test_led(interpreter, mosquitto, other):
    topic = "led/" + interpreter
    script = Script(interpreter, "led", mosquitto, topic=topic)
    script.wait("subscribed")
    for msg in ("on", "off", "toggle", "toggle"):
        other.publish(topic, msg)
    assert "levels [1, 0, 1, 0, 1]" in script.end()


def cut_off(name, broker):
    """Another client of that name takes its connection."""
    other = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name)
    there = queue.Queue()
    other.on_connect = lambda *a: there.put(1)
    other.connect(broker.host, broker.port)
    other.loop_start()
    there.get(timeout=SECONDS)
    other.disconnect()
    other.loop_stop()


def test_last_will(interpreter, mosquitto, other):
    topic = "state/" + interpreter
    other.watch(topic)
    script = Script(interpreter, "last_will", mosquitto, topic=topic)
    try:
        script.wait("waiting")
        assert other.got.get(timeout=SECONDS)[1] == b"online"
        if interpreter != ORIGINAL:  # whose keep-alive runs out by itself
            with pytest.raises(queue.Empty):  # four times as long as the broker has patience
                other.got.get(timeout=12)
            cut_off("script_last_will", mosquitto)
        assert [other.got.get(timeout=SECONDS)[1] for _ in range(2)] == [b"offline", b"online"]
        assert script.process.poll() is None, script.output
    finally:
        script.process.kill()
    assert "a message came" not in script.end(None)


def test_resubscribe(interpreter, mosquitto):
    topic = "again/" + interpreter
    script = Script(interpreter, "resubscribe", mosquitto, topic=topic)
    script.wait("cut me off")
    cut_off("script_resubscribe", mosquitto)
    out = script.end()
    # The second is lost, or finds the connection gone and is published on the next one.
    assert re.search(r"got b'message 1'(?s:.*)got b'message [23]'", out), out
    assert out.count("subscribing") == 2


def test_sub_robust(interpreter, mosquitto, other):
    topic = "kept/" + interpreter
    script = Script(interpreter, "sub_robust", mosquitto, topic=topic, client=topic)
    script.wait("subscribed")
    for i in range(3):
        other.publish(topic, f"message {i}", 0)
    out = script.end()
    assert re.findall(r"message \d", out) == ["message 0", "message 1", "message 2"]


def test_only_the_import_is_another(interpreter):
    for path in (HERE / "scripts").glob("*.py"):
        code = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert sum("import" in line and "umqtt_min" in line for line in code) == 1, path
        assert sum(line.count("umqtt_min") for line in code) <= 2, path
