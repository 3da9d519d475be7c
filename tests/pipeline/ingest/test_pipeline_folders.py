"""Names of the folders that a user has chosen: whatever they are, ingest, replay and gold work in
them, and Spark takes none for a pattern. (The audit's: audit/report/test_audit_run.py.)"""

import shutil

import pytest
from click.testing import CliRunner
from pipeline_kit import QUICK, batch_done, fill, publish, run, senml, spawn, wait_for
from pipeline_tables import ingest, numbers
from umqtt_pipeline import commands
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.ingest.ledger import Ledger
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Gone, Tables

NAMES = ["[x]", "{a,b}", "a[b", "a:b*", "50 %"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_of_spark_finds_what_was_written(spark, tmp_path, name):
    """And not what the name would be as a pattern."""
    for other in ("x", "a", "b", "aXb", "ab", "A"):
        (tmp_path / other).mkdir()
    tables = Tables(tmp_path / name, {"t": {"x": "bigint", "date": "string"}})
    frame = spark.createDataFrame([(1, "a")], "x bigint, date string")
    tables.replace("t", tables.store(frame, "t"))
    assert [tuple(row) for row in tables.read(spark, "t").collect()] == [(1, "a")]


@pytest.mark.parametrize("name", ["a\\b", "%41", "a\nb", "\x7f"])
def test_a_name_that_delta_lake_cannot_keep_is_refused(tmp_path, monkeypatch, name):
    """It would write to one folder and read from another."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "spool", [publish(senml(1))])
    done = CliRunner().invoke(commands.main, ["ingest", "--spool", "spool", "--tables", name])
    assert done.exit_code == 2 and "rename the folder" in done.output, done.output
    assert [path.name for path in tmp_path.iterdir()] == ["spool"]


def test_tables_in_a_folder_that_looks_like_a_pattern(spark, tmp_path):
    """All that may be special, in one name."""
    root, spool = tmp_path / '[x] {a,b}*?#:"%\u00fc', tmp_path / "s [x] {*?\\#:%41"
    fill(spool, [publish(senml(1)), publish(b"junk")])
    ingest(spark, spool, root)
    assert numbers(root) == [1]
    assert replay.run(spark, root)["quarantine"] == 1
    assert build.build(spark, root)["gold_device"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([root.name, spool.name])


@pytest.mark.parametrize("gone", [".", "silver", "clock/_delta_log", "_state"])
def test_tables_that_somebody_removes_are_not_written(tmp_path, gone):
    root = tmp_path / "tables"
    ledger = Ledger(Tables(root, ALL))
    ledger.check_place()
    shutil.rmtree(root / gone)
    with pytest.raises(Gone, match="is gone: put it back as it was"):
        ledger.decide("batch", {})
    assert not (root / "_state" / "intents" / "_delta_log" / f"{1:020d}.json").exists()


def test_an_ingest_whose_table_is_removed_says_so_and_ends(tmp_path):
    """At once, also while no message comes; a service must not begin anew in what is left."""
    spool, root, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "log"
    fill(spool, [publish(senml(1))])
    given = ("ingest", "--spool", spool, "--tables", root, "--interval", 0.5, *QUICK)
    process = spawn(*given, log=log)
    wait_for(lambda: batch_done(log), 120, "the first batch")
    shutil.rmtree(root / "silver")
    wait_for(lambda: process.poll() is not None, 60, "its end")
    said = log.read_text()
    assert process.returncode == 2 and "Traceback" not in said, said
    assert said.splitlines()[-1].startswith(f"Error: {root / 'silver'} is gone: put it back")
    again = run(*given, "--once")
    assert again.returncode == 2 and f"{root / 'silver'} is gone: put it back" in again.stderr
    assert not (root / "silver").exists()  # an empty one would look like all that there was
