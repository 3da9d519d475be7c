"""A story that has everything in it, and the tables that come of it, as pyarrow reads them.
Must not know what a test asserts."""

import pyarrow.parquet as pq
from pipeline_kit import NOON, clock, flat, publish, senml, senml_text
from umqtt_pipeline.ingest.query import COLUMNS, Runner


def table(root, name):
    """All rows of a table as dicts, in a fixed order; nothing but Parquet files is looked at.
    Which batch brought a row is left out: that depends on when the batches were cut."""
    files = sorted((root / name).rglob("*"))
    assert all(f.is_dir() or f.suffix == ".parquet" for f in files)
    rows = [row for f in files if f.is_file() for row in pq.ParquetFile(f).read().to_pylist()]
    for row in rows:
        row.pop("batch", None)
    return sorted(rows, key=lambda row: row["offset"])


def tables(root):
    return {name: table(root, name) for name in COLUMNS}


def numbers(root, name="silver", device="dev1"):
    return sorted(r["sequence"] for r in table(root, name) if r["device"] == device)


def ingest(spark, folder, root, rows=100_000, patience=1):
    """Ingest the spool; patience: failures in a row, 1 lets the first one out."""
    Runner(spark, str(folder), str(root), once=True, rows=rows, patience=patience).run()


def story():
    """Packets of two devices: all encodings, duplicates, gaps, two boots, malformed ones; the
    clock of the first boot comes long after its first readings."""
    sent = [publish(senml(n, boot=1), packet_id=n) for n in range(1, 40)]
    sent += [publish(senml_text(n, device="dev2"), "dev2") for n in range(1, 30)]
    sent += [publish(senml(n, boot=1), packet_id=n, dup=True) for n in range(30, 45)]
    sent += [publish(b"\xff nonsense"), publish(senml(1, device="dev2")), publish(b"")]
    sent += [publish(b"{}", topic="fleet/g/dev1/status")]
    sent += [publish(flat(n, device="dev2", boot=2, x=n), "dev2") for n in range(25, 60)]
    sent += [publish(clock(45, NOON // 1_000_000 - 500, boot=1, uptime_ms=60_000))]
    sent += [publish(senml(n, boot=1 + n // 70)) for n in (*range(46, 80), 90, 91, 88, 46)]
    sent += [publish(clock(92, NOON // 1_000_000, boot=2, uptime_ms=1_000))]
    sent += [publish(senml(n, boot=1)) for n in range(1, 10)]
    return sent


class Killed(BaseException):
    """Stands for SIGKILL at one operation on a file."""
