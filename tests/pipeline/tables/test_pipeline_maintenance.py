"""Over years: old days are deleted, unused files removed, and a copy can be made for programs that
know only Parquet."""

import datetime
import os
import re
import shutil

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pipeline_kit import DAY_US, NOON, clock, fill, flat, publish, put_back, run, senml
from pipeline_tables import arrow, clock_of_tables, files, ingest, numbers, tables, three_days
from umqtt_pipeline import commands
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest import deleted
from umqtt_pipeline.ingest.ledger import Ledger, state_files
from umqtt_pipeline.tables import maintenance, store
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.storage import Storage
from umqtt_pipeline.tables.store import Tables

THIRD = datetime.date(2026, 1, 3)


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("made")
    three_days(spark, root)
    return root


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "all")
    return tmp_path / "all" / "tables"


def ledger(root):
    held = Ledger(Tables(root, ALL))
    held.recover()
    return held


def days(root, name):
    return sorted({str(day) for day in arrow(root, name)["date"].to_pylist()})


def test_old_days_are_deleted_and_nothing_of_them_comes_again(spark, root):
    """Numbers that were seen stay seen: a copy of a reading that was deleted is a duplicate."""
    held = ledger(root)
    gone = maintenance.expire(held.tables, held, {"silver": 1, "bronze": 2}, THIRD)
    assert set(gone) == {"silver"} and days(root, "bronze")[0] == "2026-01-01"
    assert days(root, "silver") == ["2026-01-02", "2026-01-03"]
    assert maintenance.expire(held.tables, held, {"silver": 1}, THIRD) == {}
    fill(root.parent / "spool", [publish(senml(n)) for n in (5, 50)], NOON + 3 * DAY_US)
    ingest(spark, root.parent / "spool", root)
    assert numbers(root) == [*range(11, 31), 50] and numbers(root, "duplicates") == [5]


def test_what_a_wrong_clock_calls_old_is_kept_as_long_as_anything(spark, root, caplog):
    """A bridge whose clock was years behind stamped what it received with that."""
    held = ledger(root)
    fill(root.parent / "spool", [publish(senml(n)) for n in (41, 42)], NOON - 3650 * DAY_US)
    with clock_of_tables(NOON + 2 * DAY_US):
        ingest(spark, root.parent / "spool", root)
    held = ledger(root)
    caplog.set_level("INFO", "umqtt.tables")
    assert maintenance.expire(held.tables, held, {"silver": 1}, THIRD) == {"silver": 1}
    assert numbers(root) == [*range(11, 31), 41, 42]
    assert "silver: 2 rows of 2016-01-04 to 2016-01-04 stay" in caplog.text
    later = THIRD + datetime.timedelta(days=2)
    assert maintenance.expire(held.tables, held, {"silver": 1}, later) == {"silver": 3}
    assert numbers(root) == []


def test_gold_does_not_miss_what_was_deleted(spark, root, caplog):
    held = ledger(root)
    maintenance.expire(held.tables, held, {"silver": 1}, THIRD)
    build.build(spark, root)
    assert "lacks" not in caplog.text
    DeltaTable(str(root / "silver")).delete("sequence = 25")
    build.build(spark, root)
    assert "silver lacks 1 readings of batches 2 to 2" in caplog.text


def test_gold_of_readings_that_are_all_deleted(spark, root):
    """A site that was off for longer than its readings are kept."""
    build.build(spark, root)
    held, later = ledger(root), THIRD + datetime.timedelta(days=2)
    before = arrow(root, "gold_device")["readings"].to_pylist()
    assert maintenance.expire(held.tables, held, {"silver": 1}, later) == {"silver": 3}
    done = run("gold", "--tables", str(root), timeout=300)
    assert done.returncode == 0, done.stderr
    assert arrow(root, "gold_minute").num_rows == 0
    assert before != arrow(root, "gold_device")["readings"].to_pylist()


def test_gold_says_which_numbers_were_deleted(spark, tmp_path):
    """They came, and may not be called missing: readings, a packet in quarantine, in the end a
    clock record, too, whose boot still has a clock."""
    root = tmp_path / "tables"
    first = [senml(1), clock(2, NOON // 1_000_000), senml(3), flat(4, t=None), senml(5)]
    for day, sent in enumerate((first, [senml(6)], [senml(n) for n in (8, 10)])):
        fill(tmp_path / "spool", [publish(payload) for payload in sent], NOON + day * DAY_US)
        with clock_of_tables(NOON):
            ingest(spark, tmp_path / "spool", root)
    lost = (7, 7, 1, 0, 0, "never came")
    for day, name, want in (
            (0, "silver", [(3, 5, 0, 1, 2, "deleted"), lost]),
            (0, "quarantine", [(3, 5, 0, 0, 3, "deleted"), lost]),
            (1, "silver", [(3, 7, 1, 0, 4, "never came")]), (0, "clock", [])):  # fmt: skip
        held = ledger(root)
        maintenance.expire(held.tables, held, {name: 1}, THIRD + datetime.timedelta(day))
        build.build(spark, root)
        told = [tuple(row[name] for name in ("first", "last", "missing", "quarantined", "deleted",
                                             "reason"))
                for row in arrow(root, "gaps").sort_by("first").to_pylist()]  # fmt: skip
        assert told == [*want, (9, 9, 1, 0, 0, "never came")]
        assert arrow(root, "gold_boot")["clock"].to_pylist() == [True]
    (part,) = (root / "_state" / "deleted").iterdir()
    assert f"_state/deleted/{part.name}" in state_files(root)


def test_numbers_of_many_files_become_few_ranges(tmp_path, monkeypatch, caplog):
    """A file that cannot be read does not stop what is deleted, and is named."""
    monkeypatch.setattr(deleted, "AT_ONCE", 2)
    storage, day = Storage(tmp_path), "2026-01-01"

    def file(name, *numbers):
        one = {"group": "g", "device": "d", "epoch": "e", "topic": "fleet/g/d/telemetry"}
        rows = pa.Table.from_pylist([{**one, "sequence": n} for n in numbers])
        return store.written(storage, name, 0, day, rows)

    silver = [file("silver", n, n + 1) for n in (1, 9, 3, 7, 20)]
    damaged = tmp_path / "silver" / silver[-1].path
    damaged.write_bytes(b"x")
    gone = {"silver": ([], silver), "quarantine": ([], [file("quarantine", 5, 12)]),
            "duplicates": ([], [file("duplicates", 30)])}  # fmt: skip
    first = deleted.after(storage, {"seen": ["x"]}, 1, gone)
    state = deleted.after(storage, first, 2, {"clock": ([], [file("clock", 6, 40)])})
    found = deleted.newest(storage, lambda: state).sort_by("first").to_pylist()
    assert [(row["first"], row["last"]) for row in found] == [(1, 10), (12, 12), (40, 40)]
    assert state["seen"] == ["x"] and f"{damaged}: it cannot be read" in caplog.text
    assert deleted.after(storage, {}, 3, {"duplicates": ([], [file("duplicates", 30)])}) == {}


def test_killed_at_any_operation_of_letting_go(root, cuts):
    def clean_old():
        held = ledger(root)
        maintenance.expire(held.tables, held, {"silver": 1, "bronze": 1}, THIRD)

    left, whole = cuts(root, clean_old), tables(root)
    assert len(left) > 6
    for n, copy in enumerate(left):
        put_back(copy, root)
        clean_old()
        assert tables(root) == whole, f"killed at operation {n} of {len(left)}"


def removed_by(done):
    """How many files `clean` says that it has removed, or would remove."""
    (count,) = re.findall(r": ([\d,]+) files (?:removed|that no table needs would)", done.stderr)
    return int(count)


def test_unused_files_are_removed_and_nothing_else(root):
    """All numbers that the command says are of files that are there, and a dry run says the same:
    of files whose days are deleted, too, though nobody is to read earlier versions."""
    keep = ("--keep", "quarantine=30")
    before = tables(root)
    orphan = root / "silver" / "date=2026-01-01" / "000000000009-00000000-00000000.parquet"
    shutil.copy(files(root)[0], orphan)
    replaced = {path for path in root.glob("silver/date=*/*") if path not in files(root)}
    assert orphan in replaced and len(replaced) >= 2
    old = store.dataset(root, "silver", 2).count_rows()
    done = run("clean", "--tables", root)  # none is old enough
    assert done.returncode == 0, done.stderr
    assert all(path.exists() for path in replaced)
    assert store.dataset(root, "silver", 2).to_table().num_rows == old
    counts = []
    for more in (["--dry-run"], [], ["--dry-run"], []):
        held = {path for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
        done = run("clean", "--tables", root, "--unused-days", 0, *keep, *more)
        assert done.returncode == 0, done.stderr
        counts.append(removed_by(done))
        gone = {path for path in held if not path.exists()}
        assert more or len(gone) == counts[-1]
    assert counts[0] == counts[1] > len(replaced) and counts[2:] == [0, 0]
    assert not any(path.exists() for path in replaced)
    assert tables(root) == {**before, "quarantine": []}
    assert run("verify", "--tables", root).returncode == 0


def test_files_that_gold_needs_no_more_are_removed_but_not_those_of_a_run(root):
    """Gold has no lock: a run may have files that its tables do not have yet."""
    held = store.Tables(root, {"gold_boot": build.TABLES["gold_boot"]})
    old, new = (root / "gold_boot" / f"{name}.parquet" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"rows")
    os.utime(old, (0, 0))
    assert run("clean", "--tables", root, "--unused-days", 0).returncode == 0
    assert not old.exists() and new.exists() and held.files("gold_boot") == []


def test_the_command_lets_days_go(root):
    keep = ("--keep", "quarantine=30", "--keep", "duplicates=1")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = run("clean", "--tables", root, *keep, "--dry-run")
    assert done.returncode == 0 and "nothing was changed" in done.stderr, done.stderr
    assert "quarantine: 2 rows of 2026-01-01 to 2026-01-02 would be deleted" in done.stderr
    assert before == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    done = run("clean", "--tables", root, *keep)
    assert done.returncode == 0 and "quarantine: 2 rows of 2026-01-01 to 2026-01-02" in done.stderr
    assert len(arrow(root, "bronze")) == 33 and not files(root, "quarantine")


@pytest.mark.parametrize("keep,words", [
    ("gold_minute=3", "'gold_minute' is none of bronze"), ("silver", "TABLE=DAYS"),
    ("silver=0", "a number of days"), ("silver=x", "a number of days")])  # fmt: skip
def test_what_cannot_be_kept(root, keep, words):
    done = run("clean", "--tables", root, "--keep", keep)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def test_the_help_says_what_can_be_kept():
    done = CliRunner().invoke(commands.main, ("clean", "--help"))
    said = " ".join(done.output.split())
    assert "1 to 99999" in said and "written less than that ago stays" in said


def test_a_copy_as_plain_parquet(spark, root, tmp_path):
    build.build(spark, root)
    out = tmp_path / "plain"
    done = run("export", "--tables", root, "--out", out)
    assert done.returncode == 0, done.stderr
    for name in (*ALL, *build.TABLES):
        copy = ds.dataset(out / name, partitioning="hive").to_table()
        assert sorted(copy.column_names) == sorted(
            each.name for each in DeltaTable(str(root / name)).schema().fields)  # fmt: skip
        assert copy.num_rows == len(arrow(root, name)), name
    silver = ds.dataset(out / "silver").to_table()["sequence"].to_pylist()
    assert sorted(silver) == list(range(1, 31))
    again = run("export", "--tables", root, "--out", out, "--table", "silver")
    assert again.returncode == 2 and "silver is there already: remove" in again.stderr


@pytest.mark.parametrize("options,status,words", [
    (("--table", "silver", "--version", "1"), 0, "silver: 10 rows"),
    (("--table", "silver", "--version", "99"), 2,
     "--version 99: silver has the versions 0 to "),
    (("--version", "1"), 2, "name one table"), (("--table", "gold"), 2, "no table 'gold'")])
def test_a_table_as_it_was(root, tmp_path, options, status, words):
    done = run("export", "--tables", root, "--out", tmp_path / "x", *options)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["silver", "bronze"])
def test_nothing_is_removed_of_a_table_with_an_empty_commit(root, tmp_path, name):
    """delta-rs takes that for a commit without a change, and the files of its batch for unused."""
    path = sorted((root / name / "_delta_log").glob("*.json"))[-2]
    data, before = path.read_bytes(), sorted(root.rglob("*.parquet"))
    path.write_bytes(b"")
    for command in (("clean", "--tables", root, "--unused-days", 0),
                    ("export", "--tables", root, "--out", tmp_path / "out")):  # fmt: skip
        done = CliRunner().invoke(commands.main, [str(word) for word in command])
        assert done.exit_code == 1, done.output
        assert f"{path.name} is empty, and so no action of Delta Lake" in done.output
        assert "umqtt-pipeline verify" in done.output
    assert sorted(root.rglob("*.parquet")) == before
    path.write_bytes(data)
    assert CliRunner().invoke(commands.main, ["verify", "--tables", str(root)]).exit_code == 0
