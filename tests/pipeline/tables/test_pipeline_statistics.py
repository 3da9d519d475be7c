"""What the log tells of files lets no reader leave one out that has a row for it.

Knows: pipeline_tables, deltalake's and DuckDB's readers. Must not know: how statistics are made.
"""

import datetime
import math
import random
import sys

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pipeline_kit import NOON, fill
from pipeline_tables import ingest, story
from umqtt_pipeline.gold import build
from umqtt_pipeline.tables import verifying
from umqtt_pipeline.tables.intents import NONE, Intents
from umqtt_pipeline.tables.statistics import LONGEST, Statistics, ends_of
from umqtt_pipeline.tables.store import Tables, written

UTC = datetime.UTC
PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string,
         pa.types.is_date, pa.types.is_timestamp)  # fmt: skip


@pytest.fixture(scope="module")
def root(spark, tmp_path_factory):
    """All tables of a story in two batches, gold's too."""
    root, sent = tmp_path_factory.mktemp("told"), story()
    for part in (sent[: len(sent) // 2], sent[len(sent) // 2 :]):
        fill(root / "spool", part, NOON)
        ingest(spark, root / "spool", root / "tables")
    build.build(spark, root / "tables")
    return root / "tables"


def filters(name, column):
    """What somebody may ask of a column, with each of a few of its values."""
    known = [value for value in pc.unique(column).to_pylist() if value is not None]
    here = ds.field(name)
    for value in sorted(known)[:: max(1, len(known) // 3)]:
        yield from (here == value, here >= value, here <= value, here != value)
    yield from (here.is_null(), here.is_valid(), ~here.is_null())


def test_every_filter_finds_the_rows_that_it_finds_in_the_whole_table(root):
    asked = 0
    for name in sorted(path.parent.name for path in root.glob("*/_delta_log")):
        found = DeltaTable(str(root / name)).to_pyarrow_dataset()
        whole = found.to_table()
        for column in whole.column_names:
            if not any(kind(whole[column].type) for kind in PLAIN):
                continue
            for asks in filters(column, whole[column]):
                told = found.to_table(filter=asks).num_rows
                assert told == whole.filter(asks).num_rows, (name, str(asks))
                asked += 1
    assert asked > 800


def test_duckdb_finds_times_booleans_and_nulls(root):
    duckdb = pytest.importorskip("duckdb")
    silver, bronze, quarantine = (
        duckdb.from_arrow(DeltaTable(str(root / name)).to_pyarrow_dataset())
        for name in ("silver", "bronze", "quarantine"))

    def count(table, where="true"):
        return table.filter(where).aggregate("count(*)").fetchall()[0][0]

    assert count(silver, "received_at > timestamptz '2020-01-01'") == count(silver) > 100
    assert count(silver, "time > timestamptz '2020-01-01'") == count(silver, "not time is null")
    assert count(bronze, "dup = true") == count(bronze, "dup") == 15
    assert count(bronze, "dup = false") + 15 == count(bronze)
    assert count(quarantine, "sequence is null") == 2


@pytest.mark.parametrize("rows,least,greatest,nulls", [
    ([1, None, -3], -3, 1, 1), ([True, False], False, True, 0), ([None, 2.5], 2.5, 2.5, 1),
    ([0.1 + 0.2, -2 / 3], -2 / 3, 0.1 + 0.2, 0), ([1e300, -5e-324], -5e-324, 1e300, 0),
    ([math.inf, -math.inf], -sys.float_info.max, sys.float_info.max, 0),
    (["b", "ä"], "b", "ä", 0), (["x" * 300, "y" * 300], "x" * LONGEST,
                                "y" * LONGEST + "\U0010ffff", 0),
    (["a", "\U0010ffff" * 210], "a", "\U0010ffff" * 210, 0),
    (["a" * 199 + "\U0010ffff" * 9 + "bc"], "a" * 199 + "\U0010ffff",
     "a" * 199 + "\U0010ffff" * 10, 0),
    ([datetime.date(2026, 1, 2), datetime.date(2025, 1, 1)], "2025-01-01", "2026-01-02", 0),
    ([datetime.datetime(2026, 1, 1, 0, 0, 0, 1, UTC), datetime.datetime(2026, 1, 1, tzinfo=UTC)],
     "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z", 0),
    ([datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)],
     "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z", 0),
])  # fmt: skip
def test_no_value_lies_outside_of_the_ends(rows, least, greatest, nulls):
    kind = pa.timestamp("us", "UTC") if isinstance(rows[0], datetime.datetime) else None
    told = Statistics.of(pa.table({"x": pa.array(rows, kind)}))
    assert (told.least, told.greatest, told.nulls) == ({"x": least}, {"x": greatest}, {"x": nulls})
    assert Statistics(*told.kept()) == told == Statistics.of_log(told.in_log(len(rows)))


def test_a_column_of_nulls_has_no_ends_and_bytes_and_lists_are_not_told_of():
    rows = pa.table({"x": pa.array([None, None], pa.int64()), "b": [b"1", b"2"], "l": [[1], []]})
    assert Statistics.of(rows) == Statistics({}, {}, {"x": 2})


def test_the_last_time_that_there_is_stays_as_it_is():
    last = datetime.datetime.max.replace(tzinfo=UTC)
    assert ends_of(last, last) == ("9999-12-31T23:59:59.999Z",) * 2


def test_what_delta_reads_of_a_log_is_what_was_written(root):
    for name in ("silver", "bronze", "gold_device", "batches"):
        for file in Tables(root, {}).files(name):
            path = root / name / file.path
            assert file.told == Statistics.of(pq.ParquetFile(path).read()), path


@pytest.mark.parametrize("text", ["\U0001f321", "\U00020000", "\U0010ffff" * 210, "\0\n\"\\"])
def test_no_letter_is_read_as_another_one(tmp_path, text):
    rows = pa.table({"x": [text, text + "z"]})
    held = Tables(tmp_path, {"t": {"x": "string"}})
    held.replace("t", [written(held.storage, "t", 0, None, rows)])
    (found,) = held.files("t")
    assert found.told == Statistics.of(rows)
    whole = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    assert whole.to_table(filter=ds.field("x") >= text).num_rows == 2
    assert verifying.damaged(str(tmp_path), "t") is None


def test_the_largest_floats_are_found_and_no_file_of_them_is_damaged(tmp_path):
    most = sys.float_info.max
    rows = pa.table({"x": [most, -most, 1.0], "y": [21.5, math.inf, -math.inf], "z": [1e308] * 3})
    held = Tables(tmp_path, {"t": dict.fromkeys("xyz", "double")})
    held.replace("t", [written(held.storage, "t", 0, None, rows)])
    for commit in (tmp_path / "t" / "_delta_log").glob("*.json"):
        assert "Infinity" not in commit.read_text()
    whole = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    for asks in (ds.field("x") >= most, ds.field("x") <= -most, ds.field("x") == 1):
        assert whole.to_table(filter=asks).num_rows == 1
    assert whole.to_table(filter=ds.field("y") > 20).num_rows == 2
    assert whole.to_table(filter=ds.field("z") > 20).num_rows == 3
    assert verifying.damaged(str(tmp_path), "t") is None


def test_what_delta_reads_of_a_float_is_what_was_written(tmp_path):
    """Of any size and with any number of digits: 64 bits by chance, times in us, powers of ten."""
    choose = random.Random(1)
    some = [choose.uniform(-1, 1) * 10.0 ** choose.randrange(-300, 300) for _ in range(200)]
    some += [1767268800123456.0, 345e12, 1e20, 1e-20, 1e300, 0.1 + 0.2]
    held = Tables(tmp_path, {"t": {"x": "double"}})
    made = [written(held.storage, "t", 0, None, pa.table({"x": [value]})) for value in some]
    held.replace("t", made)
    assert {file.path: file.told.least for file in held.files("t")} == {
        file.path: {"x": value} for file, value in zip(made, some)}  # fmt: skip
    assert verifying.damaged(str(tmp_path), "t") is None


def test_an_intent_keeps_each_float_as_it_is(tmp_path):
    """delta-rs reads one of some twenty as its neighbour, and an intent has a check value."""
    choose = random.Random(1)
    rows = pa.table({"x": [choose.uniform(-1e6, 1e6) for _ in range(2)],
                     **{f"x{k}": [choose.random()] * 2 for k in range(30)}})  # fmt: skip
    held = Tables(tmp_path, {"t": dict.fromkeys(rows.column_names, "double")})
    decided = Intents(held, "intents", ["t"], NONE, "test")
    file = written(held.storage, "t", 0, None, rows)
    decided.decide("made", {"t": ([file], [])})
    again = Intents(held, "intents", ["t"], NONE, "test")
    assert again.last == decided.last
    again.finish()
    (found,) = held.files("t")
    assert found.told == file.told
