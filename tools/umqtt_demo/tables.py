"""The pipeline's tables as any reader of Delta Lake sees them: by pyarrow, without Spark.

Knows the columns of the tables that the verdict needs (tools/umqtt_pipeline/TABLES.md) and that a
file is never written twice. Must not know how they are written.
"""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from .verdict import Row

ID = ["device", "epoch", "sequence"]


def files(tables, name):
    """Data files of a table as it is now, sorted; [] if there is no such table yet."""
    try:
        held = DeltaTable(str(Path(tables, name)))
    except TableNotFoundError:
        return []
    named = held.get_add_actions()["path"].to_pylist()
    return sorted(Path(tables, name, path) for path in named)


def read_file(path, columns):
    """One data file as a list of dicts."""
    with pq.ParquetFile(path) as file:
        return file.read(columns=columns).to_pylist()


def read(tables, name, columns):
    """All rows of a table, as dicts of `columns`."""
    return [row for path in files(tables, name) for row in read_file(path, columns)]


def count(path):
    """Number of rows of one data file."""
    with pq.ParquetFile(path) as file:
        return file.metadata.num_rows


def _ms(moment):
    return None if moment is None else moment.timestamp() * 1000


def silver_row(row, copies=1, table_ms=None):
    """A verdict.Row of a dict with silver's columns."""
    value = {m["name"]: m["value"] for m in row["measurements"]}
    ordinal = value.get("reading")
    if ordinal is not None:
        ordinal = int(ordinal) if ordinal == int(ordinal) else ordinal
    return Row(row["device"], row["epoch"], row["sequence"], ordinal, copies,
               _ms(row["time"]), _ms(row["received_at"]), table_ms, value)


SILVER = [*ID, "measurements", "time", "received_at"]


class Watch:
    """Follows the silver table while it grows: which readings are in it, and since when.

    arrived: {(device, epoch, sequence): Unix milliseconds at which its file was written}
    """

    def __init__(self, tables):
        self.tables = tables
        self.arrived = {}
        self._known = {}

    def look(self):
        """Read what is new; returns {device: number of readings in silver now}."""
        known = {}
        for path in files(self.tables, "silver"):
            keys = self._known.get(path)
            if keys is None:
                keys = self._keys(path)
            known[path] = keys
            for key in keys:
                self.arrived.setdefault(key, path.stat().st_mtime_ns / 1e6)
        self._known = known
        here = {key for keys in known.values() for key in keys}
        return Counter(device for device, _, _ in here)

    @staticmethod
    def _keys(path):
        return [tuple(row[name] for name in ID)
                for row in read_file(path, [*ID, "measurements"])
                if any(m["name"] == "reading" for m in row["measurements"])]


def rows(tables, arrived=None):
    """Every record that came, once: silver's rows, and the clock records, as verdict.Row."""
    copies = Counter(tuple(row[name] for name in ID) for row in read(tables, "duplicates", ID))
    found = []
    for row in read(tables, "silver", SILVER):
        key = tuple(row[name] for name in ID)
        found.append(silver_row(row, 1 + copies[key], (arrived or {}).get(key)))
    there = {(row.device, row.epoch, row.sequence) for row in found}
    for row in read(tables, "clock", ID):
        key = tuple(row[name] for name in ID)
        # A record may hold a clock and readings; it counts once.
        if key not in there:
            found.append(Row(*key, copies=1 + copies[key]))
    return found


def messages(tables):
    """{device: number of telemetry messages in bronze}."""
    topics = Counter(row["topic"] for row in read(tables, "bronze", ["topic"]))
    found = Counter()
    for topic, count in topics.items():
        levels = topic.split("/")
        if levels[-1] == "telemetry":
            found[levels[-2]] += count
    return found


def quarantined(tables):
    """{reason: number of messages} of the quarantine table."""
    return Counter(row["reason"] for row in read(tables, "quarantine", ["reason"]))


def by_spark(tables):
    """Spark's own result per device (gold_device), summed over its epochs.

    Returns {device: {"rows", "gaps", "duplicates"}}; {} if there is no such table.
    """
    found = {}
    for row in read(tables, "gold_device", None):
        mine = found.setdefault(row["device"], Counter())
        for name, column in (("rows", "readings"), ("gaps", "missing"),
                             ("duplicates", "duplicates")):
            if row.get(column) is not None:
                mine[name] += row[column]
    return {device: dict(counts) for device, counts in found.items()}
