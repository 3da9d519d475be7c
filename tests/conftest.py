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

# Rooms with files that take minutes (Spark, whole demonstrations, boards, every order of events)
# come first, so that no worker is left alone with one of them at the end.
LONG = [HERE / name for name in ("pipeline", "demo", "audit", "explore", "attacks", "firmware",
                                 "boards")]  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--campaigns", action="store_true",
                     help="also the tests that take minutes and widen another one")


def pytest_collection_modifyitems(config, items):
    """Order the rooms; within them all stays as it is. Campaigns are for who asks for them."""
    if not config.getoption("--campaigns"):
        left = [item for item in items if item.get_closest_marker("campaign")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]
    place = {item: next((i for i, room in enumerate(LONG) if room in item.path.parents), len(LONG))
             for item in items}  # fmt: skip
    items.sort(key=place.get)


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
