"""Compaction: fewer files, the same rows at every instant, for every kind of reader."""

import os
import random
import shutil
import threading

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pipeline_kit import NOON, clock, fill, publish, run, senml, wait_for
from pipeline_tables import Killed, ingest, story, table, tables
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from umqtt_pipeline.gold import build as gold
from umqtt_pipeline.ingest.query import COLUMNS, Lock, State
from umqtt_pipeline.tables import compaction
from umqtt_pipeline.tables import store as tables_module
from umqtt_pipeline.tables.schema import SILVER
from umqtt_pipeline.tables.store import EMPTY, Tables
from umqtt_runtime import progress


def files(root, name="silver"):
    return sorted(p for p in (root / name).rglob("*.parquet") if p.name != EMPTY)


def compacted(spark, root, small=2, **more):
    held = Tables(root, COLUMNS)
    return compaction.run(spark, held, State(held).last(), small, **more)


def test_a_row_is_not_written_again_and_again(tmp_path):
    """Eight files of 1,000 bytes a round, 256 rounds: at most 11 large files, and each byte was
    written log2(256) times more than once, not 128 times."""
    held = Tables(tmp_path, COLUMNS)
    folder = tmp_path / "silver" / "date=2026-11-21"
    folder.mkdir(parents=True, exist_ok=True)
    written, batch = 0, 0
    for _ in range(256):
        for _ in range(8):
            (folder / f"ingest-{batch:012d}-00000000-0000.parquet").write_bytes(bytes(1000))
            batch += 1
        paths = sorted(folder.iterdir())
        chosen = compaction._chosen(held, "silver", paths, batch, 8, False)
        assert len(chosen) >= 8
        size = sum(path.stat().st_size for path in chosen)
        for path in chosen:
            path.unlink()
        written += size
        name = f"compact-{0:012d}-{batch - 1:012d}-{batch:08x}-0000.parquet"
        (folder / name).write_bytes(bytes(size))
    assert sum(path.stat().st_size for path in folder.iterdir()) == 1000 * batch
    assert len(list(folder.iterdir())) <= 11
    assert written <= 9 * 1000 * batch


@pytest.fixture(scope="module")
def many(spark, told, tmp_path_factory):
    """The story's tables in four batches, and so in many files."""
    root = tmp_path_factory.mktemp("many")
    ingest(spark, told / "spool", root, 45)
    return root


@pytest.fixture
def copy(many, tmp_path):
    shutil.copytree(many, tmp_path / "tables")
    return tmp_path / "tables"


def test_fewer_files_and_the_same_rows(spark, told, copy):
    assert len(files(copy)) > 3
    joined = compacted(spark, copy)
    assert joined["silver"] > 3 and len(files(copy)) == 1
    assert tables(copy) == tables(told / "tables")
    assert all(p.name.startswith("swapped-") for p in (copy / "_staging").iterdir())
    assert spark.read.parquet(str(copy / "silver")).count() == len(table(copy, "silver"))
    assert compacted(spark, copy) == {}  # nothing is left to do


def test_what_comes_after_finds_its_way(spark, tmp_path):
    """A clock that comes late corrects readings in a compacted file; copies are still known."""
    folder, root = tmp_path / "spool", tmp_path / "tables"
    for first in (1, 4, 7):
        fill(folder, [publish(senml(n, boot=4)) for n in range(first, first + 3)])
        ingest(spark, folder, root)
    compacted(spark, root)
    late = [clock(10, NOON // 1_000_000, boot=4, uptime_ms=10_000), senml(2, boot=4)]
    fill(folder, [publish(payload) for payload in late])
    ingest(spark, folder, root)
    rows = table(root, "silver")
    assert [r["sequence"] for r in rows] == list(range(1, 10)) and len(files(root)) == 1
    assert {r["time_quality"] for r in rows} == {"clock"}
    assert [r["time"].timestamp() - NOON / 1e6 for r in rows] == [*range(-9, 0)]
    assert [r["sequence"] for r in table(root, "duplicates")] == [2]


READERS = {
    "pyarrow": lambda path: pq.read_table(path, columns=["offset"])["offset"].to_pylist(),
    "pandas": lambda path: pd.read_parquet(path, columns=["offset"])["offset"].tolist(),
    "duckdb": lambda path: [n for n, in duckdb.sql(
        f"select \"offset\" from read_parquet('{path}/**/*.parquet')").fetchall()],
}  # fmt: skip


def _cut(rows, folder, number, parts):
    """The same rows in so many files, under names that were never used: {file: name}."""
    files = {}
    for part in range(parts):
        file = folder / f"{part}.parquet"
        pq.write_table(rows.take(list(range(part, len(rows), parts))), file)
        files[file] = f"compact-{0:012d}-{0:012d}-{number:08x}-{part:04d}.parquet"
    return files


def test_who_has_opened_a_folder_still_finds_its_files(copy, monkeypatch):
    """A reader that is between opendir() and readdir() while the folder is swapped would take it
    for empty, without an error, if its files were deleted at once."""
    held = Tables(copy, COLUMNS)
    day = held.files("bronze")[0].parent
    rows = pq.read_table(copy / "bronze", columns=["offset", "payload"])
    for number in (1, 2):
        before = sorted(os.listdir(day))
        with os.scandir(day) as listing:  # it is open; nothing has been read of it
            held.swap(day, _cut(rows, held.root / "_staging", number, 3), [])
            assert sorted(entry.name for entry in listing) == before
        assert len(list((copy / "_staging").glob("swapped-*"))) == 1  # what is old enough is gone
        monkeypatch.setattr(tables_module, "LISTING_S", -1)
        held.clean()
        monkeypatch.undo()


def _spark_reader(spark):
    return lambda path: [r[0] for r in spark.read.parquet(path).select("offset").collect()]


GONE = (FileNotFoundError, duckdb.IOException, PySparkException, Py4JError)


def _chain(error):
    """What a reader's error says, with the causes that Java keeps to itself."""
    said, cause = str(error), getattr(error, "_origin", None)
    while cause is not None:
        said += f"\n{cause.toString()}"
        cause = cause.getCause()
    return said


def _gone(error):
    """Whether a reader's error is that a file which it had listed is not there any more."""
    gone = ("No such file", "NoSuchFile", "FILE_NOT_EXIST", "does not exist")
    return any(words in _chain(error) for words in gone)


def test_every_reader_at_every_instant(spark, copy):
    """While real compactions run. Readers list again when a file that they listed is gone, as the
    text of tables/store.py says; what they read is right each time."""
    rows = pq.read_table(copy / "bronze")
    expected = sorted(rows["offset"].to_pylist())
    readers = {**READERS, "spark": _spark_reader(spark)}
    stop, reads, wrong = threading.Event(), dict.fromkeys(readers, 0), []

    def read(name):
        while not stop.is_set():
            try:
                found = sorted(readers[name](str(copy / "bronze")))
            except GONE as error:
                if not _gone(error):
                    wrong.append((name, _chain(error)))
                continue
            reads[name] += 1
            if found != expected:
                wrong.append((name, len(found)))

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in readers]
    for thread in threads:
        thread.start()
    held = Tables(copy, {"bronze": COLUMNS["bronze"]})
    day = held.files("bronze")[0].parent
    try:
        for number in range(6):
            seen = dict(reads)
            pieces = _cut(rows.drop(["date"]), held.root / "_staging", number, 2 + number % 4)
            held.swap(day, pieces, [])
            assert compaction.run(spark, held, 0, 2) == {"bronze": len(pieces)}
            # Or, on a busy machine, a slow reader's files would be gone each time.
            wait_for(lambda seen=seen: all(reads[n] > seen[n] for n in reads), 60, "each reader")
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not wrong, wrong[:3]


def test_every_reader_between_any_two_file_operations(copy, monkeypatch):
    """The same without luck: the readers look before and after each change of the disk."""
    rows = pq.read_table(copy / "bronze", columns=["offset", "payload"])
    expected, looks = sorted(rows["offset"].to_pylist()), []

    def look():
        looks.append({name: sorted(read(str(copy / "bronze"))) == expected
                      for name, read in READERS.items()})  # fmt: skip

    def watched(real):
        def operation(*args, **kwargs):
            look()
            return real(*args, **kwargs)

        return operation

    held = Tables(copy, COLUMNS)
    day = held.files("bronze")[0].parent
    files = _cut(rows, held.root / "_staging", 1, 2)
    for name in ("replace", "rename", "unlink", "rmdir", "mkdir", "link"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    monkeypatch.setattr(tables_module, "exchange", watched(tables_module.exchange))
    held.swap(day, files, [])
    look()
    assert len(looks) > 5 and all(all(found.values()) for found in looks), looks


def test_gold_is_made_while_every_day_is_compacted_at_each_of_its_steps(
    spark, copy, tmp_path, monkeypatch
):
    """Whatever the compaction replaces, after gold has looked or before it reads."""
    shutil.copytree(copy, tmp_path / "calm")
    gold.build(spark, tmp_path / "calm")
    held, steps = Tables(copy, COLUMNS), []

    def disturbed(*words):
        steps.append(words[1])
        for day in sorted({file.parent for file in files(copy)}):
            rows = pa.concat_tables([pq.ParquetFile(f).read() for f in files(copy)
                                     if f.parent == day])  # fmt: skip
            made = held.staging()
            held.swap(day, _cut(rows, made, len(steps), 2), [])
        real(*words)

    real = progress.Watch.doing
    monkeypatch.setattr(progress.Watch, "doing", disturbed)
    gold.build(spark, copy)
    monkeypatch.undo()
    assert len(steps) > 5
    for name in gold.TABLES:
        rows = [sorted(map(str, pq.read_table(root / name).to_pylist()))
                for root in (copy, tmp_path / "calm")]  # fmt: skip
        assert rows[0] == rows[1] and rows[0], name
    assert not list((copy / "_staging").glob("gold-*"))


def test_killed_at_any_file_operation(spark, copy, kill_at, tmp_path):
    whole = tables(copy)
    kept = tmp_path / "kept"
    shutil.copytree(copy, kept)
    state = kill_at(-1)
    compacted(spark, copy)
    operations = state["done"]
    assert operations > 20
    for n in sorted(random.Random(5).sample(range(operations), 5)):
        shutil.rmtree(copy)
        shutil.copytree(kept, copy)
        kill_at(n)
        with pytest.raises(Killed):
            compacted(spark, copy)
        kill_at(-1)
        assert tables(copy) == whole, f"killed at operation {n} of {operations}"
        Tables(copy, COLUMNS).clean()
        compacted(spark, copy)
        assert tables(copy) == whole and len(files(copy)) == 1


def test_a_batch_that_is_not_whole_is_left_alone(spark, copy):
    last = State(Tables(copy, COLUMNS)).last()
    shutil.rmtree(copy / "_state" / f"{last:012d}")  # as if it had been killed before its end
    compacted(spark, copy)
    assert [p for p in files(copy) if p.name.startswith(f"ingest-{last:012d}")]


def test_a_new_column_is_in_every_file_afterwards(spark, copy, monkeypatch):
    """Old files have it as null at once for most readers, and for any after a compaction."""
    *names, date = SILVER
    more = {**{n: SILVER[n] for n in names}, "battery": "double", date: "date"}
    monkeypatch.setitem(COLUMNS, "silver", more)
    before = table(copy, "silver")
    held = Tables(copy, COLUMNS)
    seen = held.read(spark, "silver")
    assert seen.where("battery is null").count() == len(before)
    every = f"'{copy}/silver/**/*.parquet'"
    by_name = duckdb.sql(f"select battery from read_parquet({every}, union_by_name=true)")
    for found in (by_name.fetchall(), pq.read_table(copy / "silver")["battery"].to_pylist(),
                  pd.read_parquet(copy / "silver")["battery"].tolist()):
        assert len(found) == len(before)
    with pytest.raises(duckdb.Error, match="battery"):  # as the README says
        duckdb.sql(f"select * from read_parquet({every})").fetchall()
    compacted(spark, copy, 10_000, columns=True)
    assert len(duckdb.sql(f"select * from read_parquet({every})").fetchall()) == len(before)
    assert ds.dataset(copy / "silver").schema.field("battery").type == "double"
    assert [{**row, "battery": None} for row in before] == table(copy, "silver")


def test_the_command(copy):
    held = Lock(copy)
    busy = run("compact", "--tables", copy)
    assert busy.returncode == 2 and "another ingest, compact or replay" in busy.stderr
    del held
    none = run("compact", "--tables", copy / "none")
    assert none.returncode == 2 and "does not exist" in none.stderr
    assert len(story()) == len(table(copy, "bronze"))
