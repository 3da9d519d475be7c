"""Parquet tables: a batch replaces its own files, a reader meets whole files only."""

import shutil

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline_tables import Killed
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest.query import COLUMNS as INGEST
from umqtt_pipeline.tables.schema import SILVER
from umqtt_pipeline.tables.store import EMPTY, Tables, ddl, staged_files

COLUMNS_OF_ALL = {**INGEST, "gold_minute": build.MINUTE}
COLUMNS = {"t": {"x": "bigint", "date": "string"}}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path, COLUMNS)


@pytest.fixture
def frame(spark):
    def make(*rows, files=1):
        return spark.createDataFrame(rows, "x bigint, date string").repartition(files)

    return make


def write(tables, df, name, number):
    """Put a DataFrame into a table as what batch `number` adds to it."""
    staged = tables.stage(df, "date")
    files = [(file.parent.name, file) for file in staged_files(staged)]
    placed = tables.put(name, number, files)
    shutil.rmtree(staged)
    return placed


def values(tables):
    return sorted(x for path in tables.files("t")
                  for x in pq.ParquetFile(path).read().column("x").to_pylist())  # fmt: skip


def test_a_batch_run_again_replaces_all_of_its_files(tables, frame):
    write(tables, frame((1, "a"), (2, "a"), (3, "b"), files=3), "t", 0)
    write(tables, frame((9, "a")), "t", 1)
    assert values(tables) == [1, 2, 3, 9]
    placed = write(tables, frame((1, "a"), (2, "a"), (3, "a")), "t", 0)
    assert [str(p.relative_to(tables.path("t"))) for p in placed] == [
        "date=a/ingest-000000000000-0000.parquet"]  # fmt: skip
    assert values(tables) == [1, 2, 3, 9]
    assert tables.span(placed[0]) == (0, 0)


def test_readers_of_any_kind_see_nothing_else(spark, tables, frame):
    write(tables, frame((1, "a"), (2, "b"), files=2), "t", 0)
    assert all(p.is_dir() or p.suffix == ".parquet" for p in tables.path("t").rglob("*"))
    tables.stage(frame((7, "a")))  # as a killed run leaves it
    assert pq.read_table(tables.path("t")).num_rows == 2
    assert sorted(r.x for r in spark.read.parquet(str(tables.path("t"))).collect()) == [1, 2]
    other = Tables(tables.root, COLUMNS, owner="other")
    other.clean()
    assert len(list((tables.root / "_staging").iterdir())) == 1
    tables.clean()
    assert not list((tables.root / "_staging").iterdir())


def test_replace_and_rewrite(spark, tables, frame):
    tables.replace(frame((1, "a"), (2, "b"), (3, "b"), files=3), "t", "date")
    assert [p.parent.name for p in tables.files("t")] == ["date=a", "date=b"]
    tables.replace(frame((4, "c")), "t", "date")
    assert values(tables) == [4]
    one, two = write(tables, frame((5, "a"), (6, "b")), "t", 3)
    rows = spark.createDataFrame([(50, 0), (60, 1), (61, 1)], "x bigint, f int")
    tables.rewrite(rows, "f", [one, two])
    assert values(tables) == [4, 50, 60, 61]


def test_an_empty_table_has_its_columns(spark, tables):
    assert tables.read(spark, "t").columns == ["x", "date"]


READERS = {
    "spark": lambda spark, path: spark.read.parquet(path).toArrow(),
    "pandas": lambda spark, path: pa.Table.from_pandas(pd.read_parquet(path)),
    "pyarrow": lambda spark, path: pq.read_table(path),
    "duckdb": lambda spark, path: duckdb.sql(
        f"select * from read_parquet('{path}/**/*.parquet', hive_partitioning = true)"
    ).to_arrow_table(),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_finds_the_columns_of_an_empty_table(spark, tmp_path, reader):
    """Right at any time, also before the first row, and no reader is disturbed by it after."""
    tables = Tables(tmp_path, COLUMNS_OF_ALL)
    for name, kinds in COLUMNS_OF_ALL.items():
        found = READERS[reader](spark, str(tables.path(name)))
        assert found.num_rows == 0 and set(found.column_names) == set(kinds)
    rows = spark.sql("select 5L as sequence, date'2026-01-02' as date")
    blank = spark.createDataFrame([], ddl(SILVER)).drop("sequence", "date")
    rows = rows.join(blank, rows.sequence == 0, "left").select(*SILVER)
    write(tables, rows, "silver", 0)
    found = READERS[reader](spark, str(tables.path("silver")))
    assert found.column("sequence").to_pylist() == [5]
    assert [str(day) for day in found.column("date").to_pylist()] == ["2026-01-02"]
    written, empty = (pq.read_schema(p) for p in sorted(tables.path("silver").rglob("*.parquet"),
                                                        key=lambda p: p.name == EMPTY))
    assert [(f.name, f.type) for f in empty] == [(f.name, f.type) for f in written]


def test_a_table_that_is_replaced_by_nothing_keeps_its_columns(spark, tables, frame):
    tables.replace(frame((1, "a")), "t", "date")
    tables.replace(frame((1, "a")).where("x = 2"), "t", "date")
    assert tables.files("t") == [] and pq.read_table(tables.path("t")).num_rows == 0
    assert spark.read.parquet(str(tables.path("t"))).columns == ["x", "date"]


def test_a_table_is_never_a_folder_without_a_file(tmp_path, kill_at):
    """Whichever of its steps is the last one before a kill; and one without is mended."""
    steps = 0
    for left in range(100):
        root = tmp_path / str(left)
        kill_at(left)
        try:
            Tables(root, COLUMNS)
            break
        except Killed:
            steps += 1
        finally:
            kill_at(-1)
        if (root / "t").exists():
            assert pq.read_table(root / "t").column_names == ["x", "date"]
        Tables(root, COLUMNS)
        assert pq.read_table(root / "t").column_names == ["x", "date"]
    assert 4 <= steps < 100
    (tmp_path / "old" / "t").mkdir(parents=True)
    Tables(tmp_path / "old", COLUMNS)
    assert pq.read_table(tmp_path / "old" / "t").column_names == ["x", "date"]


def test_columns_that_come_later_are_shown_in_an_empty_table_too(tables):
    more = Tables(tables.root, {"t": {"x": "bigint", "y": "array<double>", "date": "string"}})
    assert pq.read_table(more.path("t")).column_names == ["x", "y", "date"]
