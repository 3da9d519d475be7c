"""From exec to exit: a wish to end is obeyed, and a Java that is killed is a sentence."""

import pytest
from pipeline_kit import QUICK, fill, publish, run, senml
from pipeline_tables import numbers, put
from process_starts import LINE, Start, begins, connects, listens
from umqtt_pipeline.tables.schema import SILVER

SLOW = """
import os, time
from pathlib import Path

def slow(topic, payload):
    Path(os.environ["BEGUN"]).touch()
    until = time.monotonic() + 300
    while not Path(os.environ["GO"]).exists() and time.monotonic() < until:
        time.sleep(0.05)
"""


@pytest.mark.parametrize("moment,how,status", [
    (listens, "group TERM", 0), (begins, "java", 1), (begins, "all TERM", 0),
    (connects, "group INT", 0), (connects, "java", 1),
])  # fmt: skip
def test_an_ingest_that_starts(tmp_path, moment, how, status):
    fill(tmp_path / "spool", [publish(senml(1))])
    begun = Start(tmp_path, "ingest", "--spool", tmp_path / "spool", "--tables", tmp_path / "t",
                  *QUICK)  # fmt: skip
    begun.wait(moment)
    begun.strike(how)
    assert begun.ended(how) == status


@pytest.mark.parametrize("moment,how,status", [(listens, "INT", 130), (connects, "java", 1)])
def test_work_that_has_an_end_starts(tmp_path, moment, how, status):
    """What was not done is no success: `gold && report` must not go on."""
    put(tmp_path / "t", "silver", SILVER, {"sequence": 1})
    begun = Start(tmp_path, "gold", "--tables", tmp_path / "t")
    begun.wait(moment)
    begun.strike(how)
    assert begun.ended(how) == status


def test_a_service_manager_ends_all_processes_in_a_batch(tmp_path, monkeypatch):
    """Java, Spark's Python workers and all: the batch is run again by the next ingest."""
    spool, root = tmp_path / "spool", tmp_path / "tables"
    (tmp_path / "slow.py").write_text(SLOW)
    for name, value in (("PYTHONPATH", tmp_path), ("GO", tmp_path / "go"),
                        ("BEGUN", tmp_path / "begun")):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    fill(spool, [publish(senml(n)) for n in (1, 2, 3)])
    command = ("ingest", "--spool", spool, "--tables", root, "--decoder", "slow:slow", *QUICK)
    begun = Start(tmp_path, *command)
    begun.wait(lambda _: (tmp_path / "begun").exists())
    begun.strike("all TERM")
    assert begun.ended("all TERM") == 0
    assert numbers(root) == []
    (tmp_path / "go").touch()
    done = run(*command, "--once", timeout=600)
    assert done.returncode == 0 and numbers(root) == [1, 2, 3]
    assert all(LINE.match(line) for line in done.stderr.splitlines())
