"""The wheel, in a fresh environment, outside the project: the client, the boards, the bridge.

Knows: pip, venv, the commands that the distribution installs; an embedded broker.
Must not know: how the wheel is built.

Spark, numba and esptool are not installed there: who runs the bridge alone needs none of them.
"""

import os
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600
CLIENT = """
from umqtt_min import MQTTClient
c = MQTTClient("wheel", "127.0.0.1", {port}, keepalive=30)
got = []
c.set_callback(lambda topic, msg: got.append(msg))
c.connect()
c.subscribe(b"wheel", 1)
c.publish(b"wheel", b"hello", qos=1)
while not got:
    c.wait_msg()
c.disconnect()
print(got[0].decode())
"""


class Environment:
    """A virtual environment with the wheel, and a folder that is not the project's."""

    def __init__(self, folder, wheel):
        self.bin = folder / "venv" / "bin"
        self.work = folder / "work"
        self.work.mkdir()
        venv.create(folder / "venv", with_pip=True)
        self.wheel = wheel
        self.install()

    def install(self, extras=""):
        done = self.run("python", "-m", "pip", "install", "--quiet", f"{self.wheel}{extras}")
        assert done.returncode == 0, done.stderr

    def run(self, *command, **env):
        """Run a command of the environment in that folder."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run([self.bin / command[0], *map(str, command[1:])], cwd=self.work,
                              capture_output=True, text=True, timeout=SECONDS,
                              env={**environment, **env})

    def has(self, *modules):
        """Which of these modules can be imported there."""
        code = ("import importlib.util as u, sys; "
                "print(*[m for m in sys.argv[1:] if u.find_spec(m)])")
        return self.run("python", "-c", code, *modules).stdout.split()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
                           "--wheel-dir", folder, ROOT],
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    return Environment(tmp_path_factory.mktemp("installed"), wheel)


def test_it_holds_everything_and_nothing_else(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "lib/umqtt_min", "tools", "firmware",
                              "boards"], capture_output=True, text=True, check=True).stdout
    wanted = set()
    for path in map(Path, tracked.split()):
        if not (ROOT / path).exists():
            continue
        if path.parts[0] in ("firmware", "boards"):
            wanted.add(str("umqtt_board/data" / path))
        elif (ROOT / Path(*path.parts[:2]) / "__init__.py").exists() and len(path.parts) > 2:
            wanted.add(str(path.relative_to(path.parts[0])))
    assert wanted <= inside, sorted(wanted - inside)
    assert not [name for name in inside if name.endswith(".pyc")]


def test_the_client_publishes(installed, iotcore):
    done = installed.run("python", "-c", CLIENT.format(port=iotcore.port))
    assert done.stdout == "hello\n", done.stderr


def test_the_boards_are_there(installed):
    done = installed.run("umqtt-board", "boards")
    assert done.returncode == 0, done.stderr
    for name in ("esp32", "rp2040", "unix"):
        assert name in done.stdout


def test_a_virtual_board_is_flashed_and_runs(installed, iotcore):
    done = installed.run("umqtt-board", "settings", "--broker", f"127.0.0.1:{iotcore.port}",
                         "--confirm", "broker")  # fmt: skip
    assert done.returncode == 0, done.stderr
    try:
        done = installed.run("umqtt-board", "flash", "--board", "unix")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "the broker has acknowledged the first publish" in done.stdout
    finally:
        stopped = installed.run("umqtt-board", "stop")
    assert stopped.returncode == 0, stopped.stderr


def test_what_is_missing_is_said_with_the_extra_that_brings_it(installed, tmp_path):
    done = installed.run("umqtt-pipeline", "--help")
    assert done.returncode == 0 and "bridge" in done.stdout, done.stderr
    if not installed.has("pyarrow"):
        done = installed.run("umqtt-pipeline", "bridge", "--broker", "127.0.0.1:1",
                             "--spool", tmp_path / "spool")  # fmt: skip
        assert done.returncode == 2 and "'.[bridge]'" in done.stderr, done.stderr


def test_the_demonstration_says_which_extra_it_needs(installed):
    done = subprocess.run([installed.bin / "python", "-m", "umqtt_demo"], cwd=installed.work,
                          capture_output=True, text=True, timeout=120)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "pip install '.[demo]'" in done.stderr


def test_the_bridge_needs_no_spark(installed, iotcore, tmp_path):
    installed.install("[bridge]")
    assert installed.has("pyspark", "numba", "esptool", "pandas", "mypy") == []
    log = tmp_path / "log"
    with open(log, "w") as out:
        bridge = subprocess.Popen(
            [installed.bin / "umqtt-pipeline", "bridge", "--broker", f"127.0.0.1:{iotcore.port}",
             "--spool", tmp_path / "spool"], cwd=installed.work, stdout=out, stderr=out)
    try:
        until = time.monotonic() + 120
        while "subscribed" not in log.read_text():
            assert bridge.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
    finally:
        bridge.terminate()
        bridge.wait(60)
    (tmp_path / "tables").mkdir()
    done = installed.run("umqtt-pipeline", "ingest", "--spool", tmp_path / "spool",
                         "--tables", tmp_path / "tables", "--once")  # fmt: skip
    assert done.returncode == 2 and "'.[pipeline]'" in done.stderr, done.stderr
    done = installed.run("umqtt-board", "flash", "--board", "esp32", "--port", "/dev/null",
                         "--firmware", "x.bin")  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
