"""What all tests share: the search path of the plugin modules and the broker fixtures.

Knows: where the plugins lie.  Must not know: any test.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import brokers  # noqa: E402
import hypothesis  # noqa: E402
import pytest  # noqa: E402
from device_plugin import (  # noqa: E402, F401
    pytest_configure,
    pytest_pycollect_makemodule,
    pytest_sessionfinish,
)
from spark_fixtures import none_left_running, spark  # noqa: E402, F401

# A test of properties depends on no time either: on a machine with much to do the first inputs may
# take a second, for which hypothesis would fail it.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

# Rooms with files that take minutes come first, so that no worker is left alone with one of them
# at the end. Spark and the compiled audit use every core; demonstrations and boards mostly wait.
# With files of both kinds side by side no core stands idle.
BUSY = [HERE / name for name in ("explore", "pipeline", "audit")]
WAITING = [HERE / name for name in ("demo", "attacks", "firmware", "boards")]


def pytest_addoption(parser):
    parser.addoption("--campaigns", action="store_true",
                     help="also the tests that take minutes and widen another one")


def _woven(items):
    """The tests of long rooms, their files spread evenly among each other, then all others.

    Within a room, and within a file, the order stays.
    """
    kinds = [[], [], []]
    for rooms, kind in zip((BUSY, WAITING), kinds):
        for room in rooms:
            kind += dict.fromkeys(item.path for item in items if room in item.path.parents)
    kinds[2] += dict.fromkeys(item.path for item in items)
    place = {}
    for kind, files in enumerate(kinds):
        for number, path in enumerate(files):
            place.setdefault(path, (kind == 2, number / len(files)))
    return sorted(items, key=lambda item: place[item.path])


def pytest_collection_modifyitems(config, items):
    """Order the rooms. Campaigns are for who asks for them."""
    if not config.getoption("--campaigns"):
        left = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    items[:] = _woven(items)


@pytest.fixture(autouse=True, scope="session")
def config_home(tmp_path_factory):
    """Keys of boards go into a folder of the tests, not into that of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def mosquitto():
    """A running mosquitto; the test is skipped only when none is installed."""
    return brokers.get("mosquitto")


@pytest.fixture
def iotcore():
    """A running iotcore (it refuses keep alive 0)."""
    return brokers.get("iotcore")
