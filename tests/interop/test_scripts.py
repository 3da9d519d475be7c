"""Scripts written for umqtt.simple and umqtt.robust run with only their import changed, against
mosquitto, beside the originals.

The originals are the newest that the package index has (2017), or those of PEERS=folder
(tools/bench/README.md).  Without an index their half of the tests is skipped.

Knows: the scripts' output, paho-mqtt as the other end.  Must not know: the client's inside.
"""

import hashlib
import io
import os
import queue
import re
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import urljoin

import paho.mqtt.client as mqtt
import pytest
from device_plugin import INTERPRETERS, command

HERE = Path(__file__).resolve().parent
SECONDS = 60
ORIGINAL = "original"  # umqtt itself, which runs on MicroPython only
pytestmark = pytest.mark.parametrize("interpreter", [*INTERPRETERS, ORIGINAL])


def index_address():
    """The package index that pip is set to, or its own."""
    done = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                          capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
    if done.stdout.strip():
        return done.stdout.strip().rstrip("/")
    own = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True,
                          timeout=SECONDS)  # fmt: skip
    return done.stdout.strip().rstrip("/")


def source_of(name):
    """The text of umqtt/NAME.py in the newest source distribution of micropython-umqtt.NAME.

    pip cannot unpack it: no setup.py is in it.  Raises OSError, LookupError or ValueError when
    the index does not answer or does not have it."""
    page = f"{index_address()}/micropython-umqtt-{name}/"
    with urllib.request.urlopen(page, timeout=SECONDS) as answer:
        links = re.findall(r'href="([^"]+\.tar\.gz)#sha256=(\w{64})"', answer.read().decode())
    link, digest = links[-1]
    with urllib.request.urlopen(urljoin(page, link), timeout=SECONDS) as answer:
        data = answer.read()
    assert hashlib.sha256(data).hexdigest() == digest, link
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = [m for m in tar.getmembers() if m.isfile() and m.name.endswith(f"umqtt/{name}.py")]
        return tar.extractfile(found[0]).read()


@pytest.fixture(scope="session")
def index_peers(tmp_path_factory):
    """A folder with umqtt/simple.py and umqtt/robust.py of the package index."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "umqtt").mkdir()
    try:
        for name in ("simple", "robust"):
            (folder / "umqtt" / f"{name}.py").write_bytes(source_of(name))
    except (OSError, LookupError, ValueError) as error:
        pytest.skip(f"the package index does not give umqtt.simple and umqtt.robust: {error!r}")
    return str(folder)


@pytest.fixture
def peers(interpreter, request):
    """The folder with umqtt/simple.py and umqtt/robust.py, for the original alone, else None."""
    if interpreter != ORIGINAL:
        return None
    folder = os.environ.get("PEERS", "")
    if (Path(folder) / "umqtt" / "robust.py").is_file():
        return os.path.abspath(folder)
    if request.function in OVERRIDE_CONNECT:
        pytest.skip("umqtt.robust of 2017 calls no connect() of a subclass: give PEERS=folder")
    return request.getfixturevalue("index_peers")


@pytest.fixture
def script(interpreter, peers, mosquitto):
    """script(name, option=...) starts a script; none outlives the test."""
    started = []

    def start(name, **options):
        if peers:
            options["peers"] = peers
        started.append(Script(interpreter, name, mosquitto, **options))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()


class Script:
    """A script under way; .wait(text) waits for a line, .end() for its end."""

    def __init__(self, interpreter, name, broker, **options):
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


def test_pub(interpreter, script, other):
    other.watch("pub/" + interpreter)
    script("pub", topic="pub/" + interpreter).end()
    assert other.got.get(timeout=SECONDS) == ("pub/" + interpreter, b"hello")


@pytest.mark.parametrize("blocking", [0, 1])
def test_sub(interpreter, script, other, blocking):
    topic = f"sub/{interpreter}/{blocking}"
    run = script("sub", topic=topic, blocking=blocking)
    run.wait("subscribed")
    for i in range(3):
        other.publish(topic, f"message {i}")
    out = run.end()
    assert re.findall(r"message \d", out) == ["message 0", "message 1", "message 2"]
    assert f"b'{topic}'" in out


def test_button(interpreter, script, other):
    other.watch("button/" + interpreter)
    script("button", topic="button/" + interpreter).end()
    got = [other.got.get(timeout=SECONDS)[1] for _ in range(3)]
    assert got == [b"toggle"] * 3


def test_led(interpreter, script, other):
    topic = "led/" + interpreter
    run = script("led", topic=topic)
    run.wait("subscribed")
    for msg in ("on", "off", "toggle", "toggle"):
        other.publish(topic, msg)
    assert "levels [1, 0, 1, 0, 1]" in run.end()


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


def test_last_will(interpreter, script, mosquitto, other):
    topic = "state/" + interpreter
    other.watch(topic)
    run = script("last_will", topic=topic)
    try:
        run.wait("waiting")
        assert other.got.get(timeout=SECONDS)[1] == b"online"
        if interpreter != ORIGINAL:  # whose keep-alive runs out by itself
            with pytest.raises(queue.Empty):  # four times as long as the broker has patience
                other.got.get(timeout=12)
            cut_off("script_last_will", mosquitto)
        assert [other.got.get(timeout=SECONDS)[1] for _ in range(2)] == [b"offline", b"online"]
        assert run.process.poll() is None, run.output
    finally:
        run.process.kill()
    assert "a message came" not in run.end(None)


def test_resubscribe(interpreter, script, mosquitto):
    topic = "again/" + interpreter
    run = script("resubscribe", topic=topic)
    run.wait("cut me off")
    cut_off("script_resubscribe", mosquitto)
    out = run.end()
    # The second is lost, or finds the connection gone and is published on the next one.
    assert re.search(r"got b'message 1'(?s:.*)got b'message [23]'", out), out
    assert out.count("subscribing") == 2


def test_sub_robust(interpreter, script, other):
    topic = "kept/" + interpreter
    run = script("sub_robust", topic=topic, client=topic)
    run.wait("subscribed")
    for i in range(3):
        other.publish(topic, f"message {i}", 0)
    out = run.end()
    assert re.findall(r"message \d", out) == ["message 0", "message 1", "message 2"]


def test_only_the_import_is_another(interpreter):
    for path in (HERE / "scripts").glob("*.py"):
        code = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert sum("import" in line and "umqtt_min" in line for line in code) == 1, path
        assert sum(line.count("umqtt_min") for line in code) <= 2, path


OVERRIDE_CONNECT = (test_last_will, test_resubscribe)
