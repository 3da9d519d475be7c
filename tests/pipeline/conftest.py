"""One SparkSession for all tests of the pipeline; started when the first test asks for it."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """A local session with the settings of the command line, but plans are interpreted."""
    from pipeline_kit import INTERPRETED
    from umqtt_pipeline.session import session
    from umqtt_pipeline.source import register

    made = session("pipeline-tests", extra=INTERPRETED)
    register(made)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def none_left_running():
    """What a failing test has left running would load the machine for all that follow."""
    yield
    from pipeline_kit import end_all

    end_all()


@pytest.fixture
def broker(request):
    """A broker of this test alone, by indirect parameter (iotcore if none): it may be killed."""
    import brokers

    name = getattr(request, "param", "iotcore")
    if name == "mosquitto" and not brokers.find_mosquitto():
        pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
    own = brokers.Broker(name)
    yield own
    own.stop()


@pytest.fixture(scope="session")
def told(spark, tmp_path_factory):
    """The story's spool, and its tables after an undisturbed run in one batch."""
    from pipeline_kit import fill
    from pipeline_tables import ingest, story

    root = tmp_path_factory.mktemp("story")
    fill(root / "spool", story(), per_block=7)
    ingest(spark, root / "spool", root / "tables", patience=4)  # a stall is not what is tested
    return root


@pytest.fixture
def kill_at(monkeypatch):
    """Arm with n: the n-th operation on a file from now on does not happen; returns the count."""
    import umqtt_pipeline.tables
    from pipeline_tables import Killed

    state = {"left": -1, "done": 0}

    def guard(real):
        def guarded(*args, **kwargs):
            state["done"] += 1
            if state["left"] == 0:
                raise Killed(real.__name__)
            state["left"] -= 1
            return real(*args, **kwargs)

        return guarded

    for name in ("replace", "unlink", "rmdir", "mkdir", "link"):
        monkeypatch.setattr(os, name, guard(getattr(os, name)))
    exchange = umqtt_pipeline.tables.exchange
    monkeypatch.setattr(umqtt_pipeline.tables, "exchange", guard(exchange))

    def arm(left):
        state["left"], state["done"] = left, 0
        return state

    return arm
