"""Parquet tables: a batch replaces its own files, a reader meets whole files only."""

import pyarrow.parquet as pq
import pytest
from umqtt_pipeline.tables import Tables

COLUMNS = {"t": {"x": "bigint", "date": "string"}}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path, COLUMNS)


@pytest.fixture
def frame(spark):
    def make(*rows, files=1):
        return spark.createDataFrame(rows, "x bigint, date string").repartition(files)

    return make


def values(tables):
    return sorted(x for path in tables.files("t")
                  for x in pq.ParquetFile(path).read().column("x").to_pylist())  # fmt: skip


def test_a_batch_run_again_replaces_all_of_its_files(tables, frame):
    tables.write(frame((1, "a"), (2, "a"), (3, "b"), files=3), "t", 0)
    tables.write(frame((9, "a")), "t", 1)
    assert values(tables) == [1, 2, 3, 9]
    placed = tables.write(frame((1, "a"), (2, "a"), (3, "a")), "t", 0)
    assert [str(p.relative_to(tables.path("t"))) for p in placed] == [
        "date=a/ingest-000000000000-0000.parquet"]  # fmt: skip
    assert values(tables) == [1, 2, 3, 9]
    assert tables.span(placed[0]) == (0, 0)


def test_readers_of_any_kind_see_nothing_else(spark, tables, frame):
    tables.write(frame((1, "a"), (2, "b"), files=2), "t", 0)
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
    one, two = tables.write(frame((5, "a"), (6, "b")), "t", 3)
    rows = spark.createDataFrame([(50, 0), (60, 1), (61, 1)], "x bigint, f int")
    tables.rewrite(rows, "f", [one, two])
    assert values(tables) == [4, 50, 60, 61]


def test_an_empty_table_has_its_columns(spark, tables):
    assert tables.read(spark, "t").columns == ["x", "date"]
