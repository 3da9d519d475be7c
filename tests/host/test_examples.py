"""Every example runs as it stands, on both interpreters, against mosquitto.

Knows: what each example says it does; paho-mqtt as the other end.
Must not know: the client's inside.
"""

import json
import queue
import subprocess
import threading
import time
from pathlib import Path

import brokers
import paho.mqtt.client as mqtt
import pytest
from device_plugin import INTERPRETERS, ROOT, command

HERE = Path(__file__).resolve().parent
EXAMPLES = ROOT / "lib" / "umqtt_min" / "examples"
SECONDS = 60
TESTED = set()
both = pytest.mark.parametrize("interpreter", INTERPRETERS)


class Example:
    """An example under way."""

    def __init__(self, interpreter, name, **arguments):
        argv = command(interpreter, "1M")
        argv += ["-u"] if interpreter == "cpython" else []
        argv += [str(HERE / "run_example.py"), name]
        argv += [f"{key}={value}" for key, value in arguments.items()]
        self.output = ""
        self._seen = queue.Queue()
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.output += line
            self._seen.put(line)

    def wait(self, text):
        """Wait until it prints a line with that text."""
        until = time.monotonic() + SECONDS
        while True:
            try:
                if text in self._seen.get(timeout=max(0, until - time.monotonic())):
                    return
            except queue.Empty:
                self.process.kill()
                pytest.fail(f"no {text!r} within {SECONDS} s:\n{self.output}")

    def end(self):
        """Wait for its end and return what it printed; it must have ended well."""
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"it did not end within {SECONDS} s:\n{self.output}")
        self._thread.join(SECONDS)
        assert status == 0, self.output
        return self.output


@pytest.fixture
def start(interpreter, request):
    """start(name, broker, ...) starts an example; none outlives the test."""
    started = []

    def start(name, broker=None, **arguments):
        if broker:
            arguments = {"server": broker.host, "port": broker.port, **arguments}
        started.append(Example(interpreter, name, **arguments))
        return started[-1]

    yield start
    for example in started:
        if example.process.poll() is None:
            example.process.kill()
        example.process.wait()


@pytest.fixture
def other(mosquitto):
    """The other end: other(filter) subscribes; its `get(n)` gives the next n payloads."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    messages, ready = queue.Queue(), queue.Queue()
    client.on_message = lambda c, u, m: messages.put(m.payload.decode())
    client.on_subscribe = lambda *a: ready.put(1)
    client.connect(mosquitto.host, mosquitto.port)
    client.loop_start()

    def watch(topic):
        client.subscribe(topic, 1)
        ready.get(timeout=SECONDS)

    client.watch = watch
    client.get = lambda n: [messages.get(timeout=SECONDS) for _ in range(n)]
    yield client
    client.disconnect()
    client.loop_stop()


@both
def test_first_publish(start, mosquitto):
    out = start("first_publish", mosquitto).end()
    assert out == "b'greetings' b'hello'\n"


@both
def test_store_and_forward(interpreter, start, mosquitto, other, tmp_path):
    other.watch("readings/cellar")
    folder = tmp_path / "mqtt"
    arguments = {"folder": folder, "pause_ms": 20}
    nowhere = {"server": "127.0.0.1", "port": brokers.free_port()}
    out = start("store_and_forward", readings=5, **nowhere, **arguments).end()
    assert "not acknowledged yet: 5" in out
    # Another process, as after a power cut; another server is another session.
    out = start("store_and_forward", mosquitto, readings=2, **{**arguments, "pause_ms": 500}).end()
    assert "not acknowledged yet: 0" in out
    assert other.get(7) == ["200", "201", "202", "203", "204", "200", "201"]


@both
def test_deep_sleep(start, mosquitto, other, tmp_path):
    other.watch("readings/garden")
    arguments = {"folder": tmp_path / "mqtt", "asleep": 60}
    out = start("deep_sleep", server="127.0.0.1", port=brokers.free_port(), reading="first",
                **arguments).end()  # fmt: skip
    assert "later:" in out and "deepsleep 60000" in out
    out = start("deep_sleep", mosquitto, reading="second", **arguments).end()
    assert "all acknowledged: True" in out and "deepsleep 60000" in out
    assert other.get(2) == ["first", "second"]


@both
def test_secure(start):
    broker = brokers.get("tls")
    where = {"server": "localhost", "port": broker.port}
    start("secure", ca=broker.folder / "ca.der", **where).end()
    start("secure", ca=broker.folder / "ca.pem", **where).end()


@both
@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_secure_refuses(start, wrong):
    broker = brokers.get("tls")
    ca = broker.folder / ("other.der" if wrong == "authority" else "ca.der")
    host = "127.0.0.1" if wrong == "name" else "localhost"
    example = start("secure", server=host, port=broker.port, ca=ca)
    assert example.process.wait(SECONDS) != 0
    example._thread.join(SECONDS)
    assert "Error" in example.output


@both
def test_asyncio_sensor(start, mosquitto, other):
    other.watch("readings/sensor")
    example = start("asyncio_sensor", mosquitto, pause=30)
    example.wait("listening")
    assert other.get(1) == ["0"]
    other.publish("commands/sensor", "0.1", 1)
    example.wait("pause 0.1")
    other.publish("commands/sensor", "stop", 1)
    example.end()


@both
def test_home_assistant(interpreter, start, mosquitto, other, tmp_path):
    device = "attic-" + interpreter
    for topic in ("homeassistant/sensor/%s/+/config", "readings/%s", "status/%s"):
        other.watch(topic % device)
    start("home_assistant", mosquitto, folder=tmp_path / "mqtt", device=device, readings=2,
          pause_ms=300).end()  # fmt: skip
    got = other.get(5)
    described = [json.loads(m) for m in got if "unique_id" in m]
    names = sorted(d["unique_id"] for d in described)
    assert names == [device + "-humidity", device + "-temperature"]
    assert {d["unit_of_measurement"] for d in described} == {"\u00b0C", "%"}
    assert {d["state_topic"] for d in described} == {"readings/" + device}
    assert {d["availability_topic"] for d in described} == {"status/" + device}
    readings = [json.loads(m) for m in got if m.startswith("{") and "unique_id" not in m]
    assert [r["temperature"] for r in readings] == [21.5, 22.0]
    assert got.count("online") == 1


@both
def test_json_reading(start, mosquitto, other):
    other.publish("lamp/1/state", None, 1, retain=True).wait_for_publish(SECONDS)  # what was there
    other.watch("lamp/1/state")
    example = start("json_reading", mosquitto, commands=3)
    example.wait("listening")
    assert json.loads(other.get(1)[0]) == {"on": False, "watts": 0}
    for command_ in ('{"on": true}', "on", '{"off": 1}'):
        other.publish("lamp/1/set", command_, 1)
    assert json.loads(other.get(1)[0]) == {"on": True, "watts": 9}
    assert example.end().count("no command") == 2


@both
def test_button(start, mosquitto, other, tmp_path):
    other.watch("door/bell")
    folder = tmp_path / "mqtt"
    out = start("button", server="127.0.0.1", port=brokers.free_port(), folder=folder).end()
    assert "later:" in out and "deepsleep" in out
    out = start("button", mosquitto, folder=folder).end()
    assert "all presses have arrived: True" in out and "deepsleep" in out
    assert len(set(other.get(2))) == 2


@both
def test_two_sensors_asyncio(start, mosquitto, other, tmp_path):
    other.watch("readings/+")
    out = start("two_sensors_asyncio", mosquitto, folder=tmp_path / "mqtt", readings=3,
                pause=0.2).end()  # fmt: skip
    assert "temperature done" in out and "door done" in out
    assert sorted(other.get(6)) == ["0", "0", "1", "1", "2", "2"]


@both
def test_from_simple(start, mosquitto):
    assert "(b'foo_topic', b'hello')" in start("from_simple", mosquitto).end()


@both
def test_from_robust(start, mosquitto):
    out = start("from_robust", mosquitto).end()
    got = [line for line in out.splitlines() if "foo_topic" in line]
    assert got == [f"(b'foo_topic', b'{n}')" for n in range(3)]
    assert "mqtt:" not in out


@both
def test_from_mqtt_as(start, mosquitto):
    out = start("from_mqtt_as", mosquitto).end()
    assert out.splitlines() == [f"b'foo_topic' b'{n}'" for n in range(5)]


def test_every_example_is_tested():
    text = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'start("{path.stem}"' in text, f"{path.name} is not executed by a test"


def test_no_example_has_the_name_of_a_module_of_micropython():
    # On a board `import NAME` would give that one instead of the example.
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    script = f"""
import sys
sys.path[:] = [".frozen"]
for name in {names!r}:
    try:
        __import__(name)
        print(name)
    except ImportError:
        pass
"""
    out = subprocess.run([*command("micropython", "1M"), "-c", script], check=True,
                         capture_output=True, text=True, timeout=SECONDS)  # fmt: skip
    assert out.stdout == ""


def test_examples_coming_from_elsewhere_name_the_import_they_had():
    for name in ("simple", "robust"):
        text = (EXAMPLES / f"from_{name}.py").read_text()
        assert f"# was: from umqtt.{name} import MQTTClient" in text
