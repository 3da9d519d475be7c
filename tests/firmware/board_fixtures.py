"""Fixtures of virtual boards with the firmware, of a broker and a bridge of their own.

Knows how each is started and ended. Must not know what a test is about.
"""

import functools
import os
import subprocess
import sys

import bench
import brokers
import pytest
from umqtt_demo.link import Link


@functools.cache
def image_in(folder):
    """A flash image with the firmware, made once a process: two rooms use it."""
    return bench.make_image(folder)


@pytest.fixture(scope="session")
def firmware_image(tmp_path_factory):
    """A flash image with the library and the firmware, built once for all tests."""
    return image_in(tmp_path_factory.getbasetemp() / "image")


@pytest.fixture
def boards(firmware_image, tmp_path):
    """Makes virtual boards with the firmware: boards.make(broker_port, name, **settings)."""
    made = bench.Boards(firmware_image, tmp_path)
    yield made
    made.close()


@pytest.fixture
def broker():
    """An iotcore of this test alone: it may be killed."""
    own = brokers.Broker("iotcore")
    yield own
    own.stop()


@pytest.fixture
def exact_broker():
    """A broker of this test alone that answers a PUBREL again, where one is installed: iotcore
    hangs up instead, and a cut may come between the two (lib/umqtt_min/TROUBLESHOOTING.md)."""
    own = brokers.Broker("mosquitto" if brokers.find_mosquitto() else "iotcore")
    yield own
    own.stop()


@pytest.fixture
def link(broker):
    """A link to `broker` that can be cut."""
    own = Link("127.0.0.1", broker.port).start()
    yield own
    own.stop()


@pytest.fixture
def exact_link(exact_broker):
    """A link to `exact_broker` that can be cut."""
    own = Link("127.0.0.1", exact_broker.port).start()
    yield own
    own.stop()


@pytest.fixture
def home(monkeypatch, tmp_path):
    """Keys of this test alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def bridge(broker, tmp_path):
    """Function that starts a bridge with these arguments; it is killed at the end."""
    begun = []

    def start(*arguments):
        command = [sys.executable, "-m", "umqtt_pipeline", "bridge", "--broker",
                   f"127.0.0.1:{broker.port}", "--spool", str(tmp_path / "spool")]  # fmt: skip
        begun.append(subprocess.Popen([*command, *map(str, arguments)], env=os.environ))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()
