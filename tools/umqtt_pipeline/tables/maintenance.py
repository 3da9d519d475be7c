"""What keeps tables in order over years: old days deleted, files that nobody needs removed, and
the tables copied for programs that know only Parquet.

Knows Files and days. Must not know what a row means.
"""

import datetime
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from .schema import PARTITION
from .store import Tables, dataset

log = logging.getLogger("umqtt.tables")

EXPORT_ROWS = 1 << 20  #: of a file, at most


def expire(tables, ledger, keep, today=None, dry_run=False):
    """Delete what was received longer ago than it is to be kept; returns {table: files}.

    keep    {table: days};   today: datetime.date, by default that of UTC
    dry_run    only say what would go

    A file that was written less than that ago stays, because a bridge whose clock was years behind
    stamped with that what it received. The files stay on the disk until `vacuum` removes them.
    """
    today = today or datetime.datetime.now(datetime.UTC).date()
    gone, expired = {}, {} if dry_run else dict(ledger.last.get("expired", {}))
    for name, days in keep.items():
        first = today - datetime.timedelta(days=days)
        since = datetime.datetime(*first.timetuple()[:3], tzinfo=datetime.UTC).timestamp() * 1000
        old = [file for file in tables.files(name)
               if file.day is not None and file.day < str(first)]  # fmt: skip
        late = [file for file in old if file.written >= since]
        old = [file for file in old if file.written < since]
        if late:
            log.info("%s: %s stay: they were written less than %d days ago",
                     name, _told(late), days)  # fmt: skip
        if old:
            gone[name] = ([], old)
            last = max(file.told.greatest.get("batch", -1) for file in old)
            expired[name] = max(last, expired.get(name, -1))
    if gone and not dry_run:
        ledger.delete(gone, expired)
    for name, (_, old) in gone.items():
        log.info("%s: %s %s deleted", name, _told(old), "would be" if dry_run else "are")
    return {name: len(old) for name, (_, old) in gone.items()}


def _told(files):
    """The rows of some Files, and their days, in words."""
    days = [file.day for file in files]
    return f"{sum(file.rows for file in files)} rows of {min(days)} to {max(days)}"


def vacuum(tables, days, dry_run=False):
    """Remove the files that no commit of the last `days` days needs, those of killed batches among
    them; returns how many. Beyond those days a table cannot be read as it was.
    dry_run: only count them"""
    count = 0
    for name in tables.columns:
        held = tables.there(name)
        how = {"retention_hours": 24 * days, "enforce_retention_duration": False, "full": True}
        # It names files, too, that it has removed before: the log knows them for longer.
        there = set(tables.storage.listed(name))
        found = sum(f"{name}/{path}" in there for path in held.vacuum(dry_run=True, **how))
        if found and not dry_run:  # each run is two commits
            held.vacuum(dry_run=False, **how)
        count += found
    return count


def versions(root, name):
    """(oldest, newest) version in which a table can be read, by its log: from a commit 0 on, or
    from a checkpoint on if Delta Lake has removed older commits. Raises Gone, DeltaError."""
    tables = Tables(root, {})
    newest, log_of = tables.there(name).version(), f"{name}/_delta_log"
    found = [file.rpartition("/")[2] for file in tables.storage.listed(log_of)]
    kept = [int(file[:20]) for file in found
            if file == f"{0:020d}.json" or file[:20].isdigit() and ".checkpoint" in file]
    return min(kept, default=newest), newest


def export(root, name, out, version=None):
    """Write a table as plain Parquet files below the folder `out`, which is not there yet, by
    day; returns how many rows. Raises KeyError if there is no such table, FileExistsError."""
    held = dataset(root, name, version)
    if held is None:
        raise KeyError(name)
    target = Path(out, name)
    if target.exists():
        raise FileExistsError(f"{target} is there already: remove it, or name another folder")
    days = None
    if PARTITION in held.schema.names:
        days = ds.partitioning(pa.schema([held.schema.field(PARTITION)]), flavor="hive")
    hidden = target.with_name(f".{name}")
    ds.write_dataset(held, hidden, format="parquet", partitioning=days, max_partitions=100_000,
                     max_rows_per_file=EXPORT_ROWS, max_rows_per_group=EXPORT_ROWS // 8,
                     existing_data_behavior="delete_matching")  # fmt: skip
    if not hidden.exists():  # no row: a file with the columns
        hidden.mkdir(parents=True)
        pq.write_table(held.schema.empty_table(), hidden / "part-0.parquet")
    hidden.rename(target)
    return held.count_rows()
