"""Tables of Delta Lake: a batch is committed once, whoever reads sees the rows of a commit."""

import subprocess
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pipeline_tables import arrow, files
from umqtt_pipeline.tables import store
from umqtt_pipeline.tables.schema import arrow_schema
from umqtt_pipeline.tables.storage import Storage
from umqtt_pipeline.tables.store import Tables, written

COLUMNS = {"t": {"x": "bigint", "date": "string"}}


@pytest.fixture
def tables(tmp_path):
    return Tables(tmp_path, COLUMNS)


def file(tables, number, *values, day="2026-01-01"):
    """A File of so many rows, which does not count yet."""
    rows = pa.table({"x": pa.array(values, pa.int64())})
    return written(tables.storage, "t", number, day, rows)



def held(tmp_path):
    rows = arrow(tmp_path, "t")
    return sorted(rows["x"].to_pylist()) if rows.num_columns else []


def test_a_batch_is_committed_once(tables, tmp_path):
    """By any handle, fresh or not, and whoever else commits."""
    one, two = file(tables, 0, 1, 2), file(tables, 1, 3)
    tables.commit("t", 0, [one])
    assert held(tmp_path) == [1, 2] and tables.number("t") == 0
    for _ in range(2):
        Tables(tmp_path, COLUMNS).commit("t", 0, [one])
        tables.commit("t", 1, [two], [one])
    assert held(tmp_path) == [3] and tables.number("t") == 1


def test_a_commit_comes_behind_those_of_others(tables, tmp_path, monkeypatch):
    """A vacuum, say, between the look at the table and the commit."""
    find, between = Tables.find, [9, 8, 7]

    def found(self, name, version=None):
        handle = find(self, name, version)
        if between:
            other = DeltaTable(str(tmp_path / "t"))
            other.alter.set_table_description(f"version {between.pop()}")
        return handle

    monkeypatch.setattr(Tables, "find", found)
    tables.commit("t", 0, [file(tables, 0, 1)])
    assert held(tmp_path) == [1] and not between


def test_what_was_written_and_not_committed_does_not_count(spark, tables, tmp_path):
    tables.commit("t", 0, [file(tables, 0, 1)])
    file(tables, 1, 2)
    assert held(tmp_path) == [1]
    assert [row.x for row in tables.read(spark, "t").collect()] == [1]
    assert store.dataset(tmp_path, "t").to_table()["x"].to_pylist() == [1]


def test_a_table_is_replaced_at_one_instant(spark, tables, tmp_path):
    frame = spark.createDataFrame([(1, "2026-01-01"), (2, "2026-01-02")], "x bigint, date string")
    for factor in (1, 10):
        rows = frame.selectExpr(f"x * {factor} as x", "date").repartition("date")
        tables.replace("t", tables.store(rows, "t"))
        assert held(tmp_path) == [factor, 2 * factor]
    assert [path.parent.name for path in files(tmp_path, "t")] == [
        "date=2026-01-01", "date=2026-01-02"]  # fmt: skip
    versions = [sorted(store.dataset(tmp_path, "t", n).to_table()["x"].to_pylist())
                for n in range(3)]  # fmt: skip
    assert versions == [[], [1, 2], [10, 20]]
    tables.replace("t", tables.store(frame.where("x = 7"), "t"))
    assert tables.read(spark, "t").columns == ["x", "date"] and not tables.read(spark, "t").count()


DATED = {"t": {"x": "bigint", "date": "date"}}
READERS = {
    "pandas": "DeltaTable(path).to_pandas()",
    "pyarrow": "DeltaTable(path).to_pyarrow_dataset().to_table().to_pandas()",
    "duckdb": "duckdb.from_arrow(DeltaTable(path).to_pyarrow_dataset()).df()",
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_readers_find_the_rows_and_the_columns_of_an_empty_table(tmp_path, reader):
    """As TABLES.md shows it, in a process of its own."""
    tables = Tables(tmp_path, DATED)
    program = (f"import duckdb; from deltalake import DeltaTable; path = {str(tmp_path / 't')!r}; "
               f"rows = {READERS[reader]}; import os; "
               "print(list(rows.columns), rows['x'].tolist(), flush=True); os._exit(0)")

    def read():
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert read() == "['x', 'date'] []"
    tables.commit("t", 0, [file(tables, 0, 5)])
    assert read() == "['x', 'date'] [5]"


def test_columns_that_come_later_are_null_in_old_rows(spark, tables, tmp_path):
    tables.commit("t", 0, [file(tables, 0, 1)])
    more = Tables(tmp_path, {"t": {"x": "bigint", "y": "array<double>", "date": "string"}})
    rows = pa.table({"x": [2], "y": [[0.5]]}, arrow_schema({"x": "bigint", "y": "array<double>"}))
    more.commit("t", 1, [written(more.storage, "t", 1, "2026-01-01", rows)])
    found = {row.x: row.y for row in more.read(spark, "t").collect()}
    assert found == {1: None, 2: [0.5]}
    assert [each.name for each in DeltaTable(str(tmp_path / "t")).schema().fields] == [
        "x", "date", "y"]  # fmt: skip


def test_the_log_tells_what_a_file_holds(tables, tmp_path):
    """So that a reader looks into no file that cannot have what it wants."""
    tables.commit("t", 0, [file(tables, 0, 3, 1, 2)])
    (found,) = tables.files("t")
    assert (found.rows, found.told.least, found.told.greatest) == (3, {"x": 1}, {"x": 3})
    (path,) = files(tmp_path, "t")
    assert pq.read_metadata(path).num_rows == 3 and path.stat().st_size == found.size


def test_a_flipped_bit_is_an_error(tables, tmp_path):
    tables.commit("t", 0, [file(tables, 0, *range(1000))])
    (path,) = files(tmp_path, "t")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 3] ^= 4
    path.write_bytes(raw)
    with pytest.raises(OSError, match="CRC"):
        store.dataset(tmp_path, "t").to_table()
    assert duckdb  # DuckDB and polars do not look at checksums: `umqtt-pipeline verify` does


@pytest.mark.parametrize("write", [Storage.put, Storage.keep])
def test_a_full_disk_is_told_with_the_file(write):
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write(Storage("/dev"), "full", b"x")
