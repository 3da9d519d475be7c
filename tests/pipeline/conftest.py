"""Fixtures of the pipeline's tests: brokers to be killed, a story, what a kill leaves."""

import shutil
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
def cuts(monkeypatch, tmp_path):
    """What a kill would leave: `cuts(root, call)` runs `call` and gives a list of copies of the
    folder `root`, the n-th as it was before the n-th operation of the driver on a file or a log.
    Spark's tasks write files that no log names yet."""
    from deltalake import DeltaTable
    from umqtt_pipeline.tables.storage import Storage

    def cut(root, call):
        made = []

        def copied_first(real):
            def operation(*args, **kwargs):
                made.append(tmp_path / "cuts" / str(len(made)))
                shutil.copytree(root, made[-1])
                return real(*args, **kwargs)

            return operation

        with monkeypatch.context() as patch:
            for name in ("keep", "put", "sync", "remove", "remove_matching"):
                patch.setattr(Storage, name, copied_first(getattr(Storage, name)))
            commit = DeltaTable.create_write_transaction
            patch.setattr(DeltaTable, "create_write_transaction", copied_first(commit))
            call()
        return made

    return cut
