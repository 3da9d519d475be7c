"""The README's ten lines do what they say: they go on when the broker dies and comes back.

Knows: the README, a broker that is killed, paho-mqtt as the other end.
Must not know: the client's inside.
"""

import os
import queue
import re
import subprocess

import brokers
import paho.mqtt.client as mqtt
import pytest
from device_plugin import INTERPRETERS, ROOT, command

SECONDS = 60
# The shim makes CPython look like MicroPython (time.sleep_ms).
SEARCH = {"cpython": ["tests/shim", "lib"], "micropython": ["boards/unix/shim", "lib"]}


def ten_lines(port, folder):
    """The first Python block of the README, for a broker here and with shorter pauses."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    for old, new in (('"192.168.1.10"', f'"127.0.0.1", {port}'), ('"/mqtt"', repr(str(folder))),
                     ("range(100)", "range(2)")):  # fmt: skip
        assert block.count(old) == 1, f"{old} not once in the README's ten lines"
        block = block.replace(old, new)
    return block


@pytest.fixture
def broker():
    made = brokers.Broker("iotcore")
    yield made
    made.stop()


@pytest.fixture
def payloads(broker):
    """What arrives at a subscriber that stays."""
    got = queue.Queue()
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "readme-reader")
    client.reconnect_delay_set(1, 1)
    client.on_connect = lambda c, *a: c.subscribe("oven/#", 1)
    client.on_message = lambda c, u, m: got.put(m.payload)
    client.connect(broker.host, broker.port)
    client.loop_start()
    yield got
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("interpreter", INTERPRETERS)
def test_ten_lines(interpreter, broker, payloads, tmp_path):
    script = tmp_path / "ten_lines.py"
    prefix = "import mpshim\n" if interpreter == "cpython" else ""
    script.write_text(prefix + ten_lines(broker.port, tmp_path / "mqtt"))
    path = os.pathsep.join(str(ROOT / p) for p in SEARCH[interpreter])
    env = {**os.environ, "PYTHONPATH": path, "MICROPYPATH": path}
    with open(tmp_path / "out", "w+") as out:
        process = subprocess.Popen([*command(interpreter, "256K"), str(script)], env=env,
                                   stdout=out, stderr=out)  # fmt: skip
        try:
            assert payloads.get(timeout=SECONDS) == b"21.5"
            broker.kill()
            while not payloads.empty():
                payloads.get()
            broker.start()
            assert payloads.get(timeout=SECONDS) == b"21.5"
            assert process.poll() is None, (tmp_path / "out").read_text()
        finally:
            process.kill()
            process.wait()
