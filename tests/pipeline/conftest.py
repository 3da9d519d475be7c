"""Fixtures of the pipeline's tests: brokers to be killed, a story, moments to kill at."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent, HERE.parent / "audit"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from brokers import broker  # noqa: E402, F401
from signed_readings import signers  # noqa: E402, F401


@pytest.fixture(autouse=True)
def end_programs(none_left_running):
    """Every test's."""


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """An object store."""
    from object_store import ObjectStore

    made = ObjectStore(tmp_path_factory.mktemp("objects"))
    yield made
    made.close()


@pytest.fixture
def place(server, tmp_path, monkeypatch):
    """Where a test's objects may lie; its process and those it starts can get at it."""
    from object_store import BUCKET

    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"


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
    """Arm with n: the n-th operation of the driver on a file or a log from now on does not happen;
    returns the count. Spark's tasks write files that no log names yet."""
    from deltalake import DeltaTable
    from pipeline_tables import Killed
    from umqtt_pipeline.tables.storage import Storage

    state = {"left": -1, "done": 0}

    def guard(real):
        def guarded(*args, **kwargs):
            state["done"] += 1
            if state["left"] == 0:
                raise Killed(real.__name__)
            state["left"] -= 1
            return real(*args, **kwargs)

        return guarded

    for name in ("keep", "put", "sync", "remove", "remove_matching"):
        monkeypatch.setattr(Storage, name, guard(getattr(Storage, name)))
    commit = DeltaTable.create_write_transaction
    monkeypatch.setattr(DeltaTable, "create_write_transaction", guard(commit))

    def arm(left):
        state["left"], state["done"] = left, 0
        return state

    return arm
