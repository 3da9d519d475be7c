"""The tables, read without Spark while they grow."""

import datetime
import os

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from umqtt_demo import tables

EPOCH = "00000000000000aa"
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


def silver(sequences, device="b1"):
    return [{"group": "g", "device": device, "epoch": EPOCH, "sequence": n, "time": NOON,
             "received_at": NOON, "measurements": [
                 {"name": "temperature", "unit": "Cel", "value": 20.5},
                 {"name": "reading", "unit": None, "value": float(n - 1)}]} for n in sequences]


def put(root, table, rows, at=None):
    """Add rows to a table, in a file of their own; at: its time, in seconds."""
    before = set(tables.files(root, table))
    write_deltalake(str(root / table), pa.Table.from_pylist(rows), mode="append")
    (path,) = set(tables.files(root, table)) - before
    if at is not None:
        os.utime(path, (at, at))


def test_watch_sees_each_reading_from_when_it_came(tmp_path):
    watch = tables.Watch(tmp_path)
    assert watch.look() == {}
    put(tmp_path, "silver", silver([2, 3]), 1000)
    assert watch.look() == {"b1": 2}
    put(tmp_path, "silver", silver([4]) + silver([2], "b2"), 2000)
    assert watch.look() == {"b1": 3, "b2": 1}
    # Rows that are written anew with other times do not become younger.
    DeltaTable(str(tmp_path / "silver")).delete("sequence = 3")
    put(tmp_path, "silver", silver([3]), 3000)
    assert watch.look() == {"b1": 3, "b2": 1}
    assert watch.arrived["b1", EPOCH, 2] == 1000_000 and watch.arrived["b1", EPOCH, 4] == 2000_000
    assert watch.arrived["b1", EPOCH, 3] == 1000_000


def test_watch_sees_rows_go(tmp_path):
    watch = tables.Watch(tmp_path)
    put(tmp_path, "silver", silver([2, 3]))
    assert watch.look() == {"b1": 2}
    DeltaTable(str(tmp_path / "silver")).delete()
    assert watch.look() == {}


def test_files_that_no_commit_names_do_not_count(tmp_path):
    put(tmp_path, "silver", silver([2]))
    (tmp_path / "silver" / "half.parquet").write_bytes(b"PAR1 half a file")
    assert tables.Watch(tmp_path).look() == {"b1": 1}


def test_rows_are_readings_and_clock_records_with_their_copies(tmp_path):
    put(tmp_path, "silver", silver([2, 3]))
    ids = [{"device": "b1", "epoch": EPOCH, "sequence": n} for n in (1, 3)]
    put(tmp_path, "clock", ids[:1])
    put(tmp_path, "duplicates", [ids[1], ids[1], ids[0]])
    rows = {row.sequence: row for row in tables.rows(tmp_path, {("b1", EPOCH, 2): 5.0})}
    assert {n: row.ordinal for n, row in rows.items()} == {1: None, 2: 1, 3: 2}
    assert {n: row.copies for n, row in rows.items()} == {1: 2, 2: 1, 3: 3}
    assert rows[2].table_ms == 5.0 and rows[2].bridge_ms == NOON.timestamp() * 1000
    assert rows[2].value["temperature"] == 20.5


def test_a_row_twice_in_silver_stays_twice(tmp_path):
    put(tmp_path, "silver", silver([2]))
    put(tmp_path, "silver", silver([2]))
    assert len(tables.rows(tmp_path)) == 2


def test_messages_count_telemetry_per_device(tmp_path):
    put(tmp_path, "bronze",
        [{"topic": "fleet/g/b1/telemetry"}] * 3 + [{"topic": "fleet/g/b1/status"}])
    assert tables.messages(tmp_path) == {"b1": 3}


def test_no_tables_yet(tmp_path):
    assert tables.rows(tmp_path) == [] and tables.by_spark(tmp_path) == {}
    assert tables.quarantined(tmp_path) == {} and tables.messages(tmp_path) == {}
