"""What the firmware's tests on CPython share: the search path, and boards with the firmware."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("tests/device/kit", "tests/firmware", "firmware", "lib"):
    path = str(ROOT / folder)
    if path not in sys.path:
        sys.path.insert(0, path)

import bench  # noqa: E402
import brokers  # noqa: E402
import pytest  # noqa: E402
from umqtt_demo.link import Link  # noqa: E402


@pytest.fixture(scope="session")
def firmware_image(tmp_path_factory):
    """A flash image with the library and the firmware, built once for all tests."""
    return bench.make_image(tmp_path_factory.mktemp("image"))


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
def link(broker):
    """A link to that broker that can be cut."""
    own = Link("127.0.0.1", broker.port).start()
    yield own
    own.stop()
