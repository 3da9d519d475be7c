"""A story that has everything in it, and the tables that come of it, as anybody would read them:
by the log that Delta Lake's specification describes and by pyarrow, without the pipeline's own
code. Must not know what a test asserts."""

import datetime
import json
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake.transaction import AddAction
from pipeline_kit import DAY_US, NOON, clock, fill, flat, publish, senml, senml_text
from umqtt_pipeline.ingest.query import COLUMNS, Runner
from umqtt_pipeline.tables import store
from umqtt_pipeline.tables.schema import arrow_schema


def files(root, name="silver"):
    """The data files that the log of a table names, sorted; [] if there is no such table."""
    named = set()
    for commit in sorted((root / name / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                named.remove(action["remove"]["path"])
            if "add" in action:
                assert action["add"]["path"] not in named
                named.add(action["add"]["path"])
    return sorted(root / name / path for path in named)


def arrow(root, name):
    """A table as pyarrow reads its files, with the date of their folder."""
    parts = []
    for path in files(root, name):
        rows = pq.ParquetFile(path, page_checksum_verification=True).read()
        day = path.parent.name.partition("date=")[2]
        if day:
            value = pa.scalar(datetime.date.fromisoformat(day))
            rows = rows.append_column("date", pa.repeat(value, len(rows)))
        parts.append(rows)
    return pa.concat_tables(parts) if parts else pa.table({})


def table(root, name):
    """All rows of a table as dicts, in a fixed order. Which batch brought a row is left out: that
    depends on when the batches were cut."""
    rows = arrow(root, name).to_pylist()
    for row in rows:
        row.pop("batch", None)
        row.pop("date", None)
    return sorted(rows, key=lambda row: row["offset"])


def put(root, name, columns, *rows):
    """Write rows, of which only some columns are given, as the whole of a table."""
    day = {"date": datetime.date(2026, 1, 1)} if "date" in columns else {}
    full = [{**dict.fromkeys(columns), **day, **row} for row in rows]
    kept = store.Tables(root, {name: columns})
    made = pa.Table.from_pylist(full, arrow_schema(columns))
    kept.replace(name, [store.written(kept.storage, name, 0, day, part)
                        for day, part in store.by_day(made)])  # fmt: skip


def tables(root):
    return {name: table(root, name) for name in COLUMNS}


def numbers(root, name="silver", device="dev1"):
    return sorted(r["sequence"] for r in table(root, name) if r["device"] == device)


def ingest(spark, folder, root, rows=100_000, patience=1, **more):
    """Ingest the spool; patience: failures in a row, 1 lets the first one out."""
    Runner(spark, str(folder), str(root), once=True, rows=rows, patience=patience, **more).run()


@contextmanager
def clock_of_tables(now_us):
    """The files that are committed in here say that they were written then."""
    def then(path, size, partition, written_ms, *rest):
        return AddAction(path, size, partition, now_us // 1000, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "AddAction", then)
        yield


def three_days(spark, folder, last=1):
    """A spool and tables of three days in `folder`, a batch for each day. The third day brings the
    clock of the first one's boot, so that a file of it is replaced, and comes `last` times."""
    for day in range(3):
        sent = [senml(n, boot=1) for n in range(1 + 10 * day, 11 + 10 * day)]
        sent += [clock(40, NOON // 1_000_000, boot=1, uptime_ms=40_000)] if day == 2 else [b"junk"]
        for _ in range(last if day == 2 else 1):
            fill(folder / "spool", [publish(payload) for payload in sent], NOON + day * DAY_US)
            with clock_of_tables(NOON):  # what is rewritten is not kept for longer than the rest
                ingest(spark, folder / "spool", folder / "tables")


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
