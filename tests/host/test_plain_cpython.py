"""The library on CPython as it is: no shim on the path, none of CPython's modules changed.

Knows: a program of the library's, real brokers.  Must not know: the client's inside.
"""

import subprocess
import sys

import brokers
import pytest
from device_plugin import ROOT

PROGRAM = """
import sys, time, select, socket
before = set(dir(time)) | set(dir(select)) | set(dir(socket.socket))
sys.path.insert(0, {lib!r})
from umqtt_min import MQTTClient
got = []
c = MQTTClient("plain-cpython", {host!r}, {port}, keepalive=60, ssl={ssl!r}, ssl_params={params!r})
c.set_callback(lambda topic, msg: got.append((topic, msg)))
c.connect()
c.subscribe("plain/cpython", 1)
for n in range(3):
    c.publish("plain/cpython", b"x" * 10000 * n, qos=1)
while len(got) < 3:
    c.wait_msg()
c.disconnect()
assert set(dir(time)) | set(dir(select)) | set(dir(socket.socket)) == before
print([(topic, len(msg)) for topic, msg in got])
"""


@pytest.mark.parametrize("kind", ["iotcore", "mosquitto", "tls"])
def test_publishes_and_receives(kind, tmp_path):
    broker = brokers.get(kind)
    tls = kind == "tls"
    params = {"cafile": str(broker.folder / "ca.pem")} if tls else None
    host = "localhost" if tls else broker.host
    program = PROGRAM.format(lib=str(ROOT / "lib"), host=host, port=broker.port, ssl=tls or None,
                             params=params)  # fmt: skip
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, timeout=240,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == str([(b"plain/cpython", 10000 * n) for n in range(3)])


STORES = """
import sys
sys.path.insert(0, {lib!r})
from umqtt_min.store import StoreFull
from umqtt_min.store.files import FileStore
from umqtt_min.store.ram import RAMStore
for store in (FileStore({folder!r}, size=16384), RAMStore(size=200)):
    store.open()
    try:
        while True:
            store.put(1, 2, b"t", bytes(50))
    except StoreFull as e:
        print(type(store).__name__, store.live > 1, e.args[1])
"""


def test_stores_messages(tmp_path):
    program = STORES.format(lib=str(ROOT / "lib"), folder=str(tmp_path / "journal"))
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, timeout=240,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:2] == [name + " True the store is full"
                                           for name in ("FileStore", "RAMStore")]
