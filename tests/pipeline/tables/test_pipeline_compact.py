"""Compaction: fewer files, the same rows at every instant, for every kind of reader."""

import random
import shutil
import threading

import duckdb
import pytest
from deltalake import DeltaTable
from pipeline_kit import NOON, clock, fill, publish, put_back, run, senml, wait_for
from pipeline_tables import arrow, files, ingest, story, table, tables
from umqtt_pipeline.gold import build as gold
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.ingest.query import InUse, Ledger, Lock
from umqtt_pipeline.tables import compaction
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import File, Tables
from umqtt_runtime import progress


def compacted(spark, root, small=2):
    held = Tables(root, ALL)
    ledger = Ledger(held)
    ledger.recover()
    return compaction.run(spark, held, ledger, small)


def test_a_row_is_not_written_again_and_again():
    """Eight files of 1,000 bytes a round, 256 rounds: at most 11 large files, and each byte was
    written log2(256) times more than once, not 128 times."""
    held, written, batch = [], 0, 0
    for _ in range(256):
        for _ in range(8):
            held.append(File(f"{batch:012d}", 1000, 1))
            batch += 1
        chosen = compaction._chosen(held, 8)
        assert len(chosen) >= 8
        size = sum(file.size for file in chosen)
        held = [file for file in held if file not in chosen]
        written += size
        held.append(File(f"{batch - 1:012d}-joined", size, 1))
    assert sum(file.size for file in held) == 1000 * batch
    assert len(held) <= 11
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
    assert compacted(spark, copy) == {}  # nothing is left to do
    order = ["group", "device", "epoch", "sequence"]
    rows = arrow(copy, "silver").select(order).to_pylist()
    assert rows == sorted(rows, key=lambda row: [row[name] for name in order])


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


def test_two_writers_at_once(spark, copy):
    """A compaction that has begun before another writer's batch is given up: it would bring back
    the files that the other has replaced."""
    slow, quick = (Tables(copy, ALL) for _ in range(2))
    behind, ahead = Ledger(slow), Ledger(quick)
    gone = slow.files("silver")
    assert compaction.run(spark, quick, ahead, 2)
    whole = tables(copy)
    with pytest.raises(InUse, match="is being written by another"):
        behind.decide("compact", {"silver": (gone, gone)})
    assert tables(copy) == whole


READERS = {
    "pyarrow": lambda path: DeltaTable(path).to_pyarrow_table(
        columns=["offset"])["offset"].to_pylist(),
    "pandas": lambda path: DeltaTable(path).to_pandas(columns=["offset"])["offset"].tolist(),
}  # fmt: skip


def _duckdb(path):
    held = duckdb.from_arrow(DeltaTable(path).to_pyarrow_dataset())
    return [n for n, in held.query("held", 'select "offset" from held').fetchall()]


def _spark(spark):
    return lambda path: [row.offset for row in Tables(
        path.rpartition("/")[0], ALL).read(spark, "quarantine").select("offset").collect()]


def test_every_reader_at_every_instant(spark, copy):
    """While real compactions and replays run: a reader sees every row once, each time."""
    path = copy / "quarantine"
    expected = sorted(arrow(copy, "quarantine")["offset"].to_pylist())
    readers = {**READERS, "duckdb": _duckdb, "spark": _spark(spark)}
    stop, reads, wrong = threading.Event(), dict.fromkeys(readers, 0), []

    def read(name):
        while not stop.is_set():
            try:
                found = sorted(readers[name](str(path)))
            except Exception as error:  # none is allowed: the files of a commit stay
                wrong.append((name, repr(error)))
                return
            reads[name] += 1
            if found != expected:
                wrong.append((name, found))

    threads = [threading.Thread(target=read, args=(name,), daemon=True) for name in readers]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            seen = dict(reads)
            replay.run(spark, copy)  # it replaces the whole quarantine
            compacted(spark, copy)
            wait_for(lambda seen=seen: wrong or all(reads[n] > seen[n] for n in reads), 60,
                     "each reader")  # fmt: skip
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert not wrong, wrong[:3]


def test_gold_is_made_while_all_is_compacted_at_each_of_its_steps(
    spark, copy, tmp_path, monkeypatch
):
    """Whatever the compaction replaces, after gold has looked or before it reads."""
    shutil.copytree(copy, tmp_path / "calm")
    gold.build(spark, tmp_path / "calm")
    held, steps = Tables(copy, ALL), []

    def disturbed(*words):
        steps.append(words[1])
        rows = held.read(spark, "silver").repartition(2 + len(steps) % 2)
        held.replace("silver", held.store(rows, "silver", 900 + len(steps)))
        real(*words)

    real = progress.Watch.doing
    monkeypatch.setattr(progress.Watch, "doing", disturbed)
    gold.build(spark, copy)
    monkeypatch.undo()
    assert len(steps) > 5
    for name in gold.TABLES:
        rows = [sorted(map(str, arrow(root, name).to_pylist()))
                for root in (copy, tmp_path / "calm")]  # fmt: skip
        assert rows[0] == rows[1] and rows[0], name


def test_killed_at_any_operation(spark, copy, cuts):
    whole = tables(copy)
    left = cuts(copy, lambda: compacted(spark, copy))
    assert len(left) > 20
    for n in sorted(random.Random(5).sample(range(len(left)), 8)):
        put_back(left[n], copy)
        assert tables(copy) == whole, f"killed at operation {n} of {len(left)}"
        compacted(spark, copy)
        assert tables(copy) == whole and len(files(copy)) == 1


def test_the_command(copy):
    held = Lock(copy)
    busy = run("compact", "--tables", copy)
    assert busy.returncode == 2 and "is being written by an ingest" in busy.stderr
    del held
    none = run("compact", "--tables", copy / "none")
    assert none.returncode == 2 and "does not exist" in none.stderr
    assert len(story()) == len(table(copy, "bronze"))
