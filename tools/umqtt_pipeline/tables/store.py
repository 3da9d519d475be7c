"""The tables, as Delta Lake keeps them: Parquet files, and a log that says which of them count.

Knows Delta Lake, by the package `deltalake`. Must not know what a row means, nor in which order
the tables of a batch are committed (ingest/ledger.py).

    ROOT/TABLE/_delta_log/                                  the log of a table
    ROOT/TABLE/[date=YYYY-MM-DD/]NNNNNNNNNNNN-XXXXXXXX-CCCCCCCC.parquet

N is the number of the batch that wrote a file, X is random, C the CRC-32 of the whole file: no
name is used twice, and `umqtt-pipeline verify` finds any bit that has flipped. Whoever writes a
file makes it durable first; it counts from the commit on that adds it to the log. A file that no
commit has named is an orphan, as a killed batch leaves them; `vacuum` removes it.
"""

import json
import os
import re
import time
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from umqtt_runtime import failures
from umqtt_runtime.files import reader

from ..spool.files import SpoolError
from .schema import PARTITION, arrow_schema, ddl
from .statistics import Statistics
from .storage import parquet, storage_of

APPLICATION = "umqtt-ingest"  #: in whose name a commit counts the numbers of batches
PANIC = "pyo3_runtime"  #: where the exception is from when delta-rs trips over damaged Parquet
TRIES = 20  #: commits that may come between: of a vacuum, or of somebody else
CONFIGURATION = {"delta.checkpointInterval": "20"}
#: These have another value in nearly every row.
VARIED = {"payload", "received_at", "offset", "sequence", "uptime_ms", "time", "first", "last"}
MEASURED = [f"measurements.list.element.{name}" for name in ("name", "unit")]
_DISK_FULL = re.compile(r"\(os error (28|122)\)")  #: ENOSPC, EDQUOT: in the words of delta-rs


class Gone(SpoolError):
    """A table is not there any more, though it was."""


@dataclass(frozen=True)
class File:
    """A data file of a table: its name below the table's folder, its bytes and rows, the day that
    it is of (None in a table without days), and what the log tells of its rows.
    written: when it came into the table, unix ms; 0 as long as it is in none."""

    path: str
    size: int
    rows: int
    day: str | None = None
    told: Statistics = field(default_factory=Statistics, compare=False)
    written: int = field(default=0, compare=False)

    def kept(self):
        """The same as JSON takes it. What it tells of its rows is a text: delta-rs, which writes
        intents, reads not every float of JSON as it stands there."""
        return [self.path, self.size, self.rows, self.day, json.dumps(self.told.kept())]

    @classmethod
    def of(cls, path, size, rows, day, told):
        """The File that kept() tells of."""
        return cls(path, size, rows, day, Statistics(*json.loads(told)))

    @property
    def partition(self):
        return {} if self.day is None else {PARTITION: self.day}

    @property
    def statistics(self):
        """What a commit says of its rows."""
        return self.told.in_log(self.rows)

    def added(self, change):
        # delta-rs reads letters from U+20000 on as others if they are escaped.
        return AddAction(self.path, self.size, self.partition, _now_ms(), change,
                         json.dumps(self.statistics, ensure_ascii=False))

    def removed(self, change):
        return RemoveAction(self.path, change, _now_ms(), self.size, self.partition)


def _now_ms():
    return int(time.time() * 1000)


def opened(storage, name, version=None):
    """The DeltaTable of a name, None if there is none. Raises DeltaError in delta-rs's words."""
    try:
        return DeltaTable(storage.uri(name), version, storage_options=storage.options)
    except TableNotFoundError:
        return None
    except BaseException as error:
        if type(error).__module__ != PANIC:
            raise
        raise DeltaError(str(error)) from None


@contextmanager
def naming(path):
    """That the disk is full while Delta Lake writes a log is said as Python says it, with the name
    of the log."""
    try:
        yield
    except OSError as error:
        told = _DISK_FULL.search(str(error))
        if error.filename is not None or told is None:
            raise
        raise OSError(int(told[1]), os.strerror(int(told[1])), path)


def begin(storage, name, schema, **how):
    """The DeltaTable of a name, made by one of all who do so at a time. delta-rs would make it
    once more, as version 1, after another has made version 0."""
    place = {"storage_options": storage.options}
    try:
        with naming(storage.path(f"{name}/_delta_log")):
            return DeltaTable.create(storage.uri(name), schema, mode="ignore", **place, **how,
                                     commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError:
        return DeltaTable(storage.uri(name), **place)


def written(storage, table, number, day, rows):
    """Write rows, without the column of their day, as a file of a table; returns the File. It does
    not count until it is committed. Raises OSError.

    number  of the batch;   day: such as "2026-01-31", or None
    """
    names = [n for n in rows.schema.names if n not in VARIED and n != "measurements"]
    data = parquet(rows, names + (MEASURED if "measurements" in rows.schema.names else []))
    name = f"{number:012d}-{uuid4().hex[:8]}-{zlib.crc32(data):08x}.parquet"
    path = name if day is None else f"{PARTITION}={day}/{name}"
    storage.keep(f"{table}/{path}", data)
    return File(path, len(data), len(rows), day, Statistics.of(rows))


def by_day(rows):
    """[(day, the rows of it without that column)] of an Arrow table; [(None, rows)] of one without
    days."""
    if PARTITION not in rows.schema.names:
        return [(None, rows)]
    of = rows[PARTITION]
    return [(str(day), rows.filter(pc.equal(of, pa.scalar(day, of.type)))
             .drop_columns([PARTITION])) for day in sorted(pc.unique(of).to_pylist())]  # fmt: skip


class Tables:
    """The tables below one place. columns: {table: {name: type}, the partition column last};
    owner: whose files in the staging folder these are."""

    def __init__(self, root, columns, owner="ingest"):
        self.storage = storage_of(root)
        self.owner = owner
        self.columns = columns
        for name, kinds in columns.items():
            self._ensure(name, kinds)

    def _ensure(self, name, kinds):
        """Have a table with these columns: made, or given those that it lacks."""
        self.storage.put_torn_aside(f"{name}/_delta_log")
        held = self.find(name)
        if held is None:
            held = begin(self.storage, name, arrow_schema(kinds),
                         partition_by=[PARTITION] if PARTITION in kinds else None,
                         configuration=CONFIGURATION)  # fmt: skip
            self._sync(name, held)
        there = {each.name for each in held.schema().fields}
        wanted = Schema.from_arrow(arrow_schema(kinds)).fields
        more = [Field(each.name, each.type) for each in wanted if each.name not in there]
        if more:
            held.alter.add_columns(more)
            self._sync(name, self.find(name))

    def find(self, name, version=None):
        """The DeltaTable of that name, as it is now or was at a version; None if there is none.
        Raises DeltaError that names it."""
        try:
            if empty := self.storage.empty_commit(f"{name}/_delta_log", version):
                raise DeltaError(f"{empty} is empty, and so no action of Delta Lake")
            return opened(self.storage, name, version)
        except DeltaError as error:
            raise DeltaError(f"{self.storage.path(name)}: its log cannot be read: "
                             f"{failures.plain(error)}") from None  # fmt: skip

    def there(self, name, version=None):
        """The same of a table that has been made. Raises Gone."""
        held = self.find(name, version)
        if held is None:
            raise self._gone(name)
        return held

    def _gone(self, name):
        return Gone(f"{self.storage.path(name)} is gone: put it back as it was, or begin in "
                    "another folder (--tables)")  # fmt: skip

    def check_place(self, *more):
        """Raises Gone if somebody has removed a table from its folder, or one of `more`. An object
        store is not asked."""
        if not self.storage.shared:
            self.check_made(*self.columns, *more)

    def check_made(self, *names):
        """Raises Gone if one of these tables is not there."""
        for name in names:
            if not self.storage.exists(f"{name}/_delta_log"):
                raise self._gone(name)

    def number(self, name):
        """The highest number of a batch that a table has a commit of; -1 for none. Raises
        Gone."""
        return last_of(self.there(name))

    def files(self, name, version=None):
        """The Files that a table consists of, oldest first. Raises Gone."""
        return files_of(self.there(name, version))

    def commit(self, name, number, added=(), removed=(), change=True):
        """Add Files to a table and remove others, at one instant and once: if the table has batch
        `number` already nothing is done. change: False if the rows stay the same."""
        done = CommitProperties(app_transactions=[Transaction(APPLICATION, number)],
                                max_commit_retries=0)  # fmt: skip
        actions = [*(each.added(change) for each in added),
                   *(each.removed(change) for each in removed)]  # fmt: skip
        self._commit(name, lambda held: actions, done, lambda held: last_of(held) >= number)

    def replace(self, name, added):
        """Have a table consist of these Files and of nothing else, at one instant."""
        def actions(held):
            return [*(each.removed(True) for each in files_of(held)),
                    *(each.added(True) for each in added)]  # fmt: skip

        self._commit(name, actions, CommitProperties(max_commit_retries=0), lambda held: False)

    def _commit(self, name, actions, properties, done):
        """Commit what `actions` gives for the table as it is, unless that is `done`."""
        for left in range(TRIES, 0, -1):
            held = self.there(name)
            if done(held):
                return
            try:
                with naming(self.storage.path(f"{name}/_delta_log")):
                    held.create_write_transaction(
                        actions(held), mode="append", schema=held.schema(),
                        partition_by=held.metadata().partition_columns,
                        commit_properties=properties)  # fmt: skip
                held.update_incremental()
                self._sync(name, held)
                return
            except CommitFailedError:  # somebody came between: look again
                if left == 1:
                    raise

    def _sync(self, name, held):
        """Make the last commit of a table durable: the log is written without it."""
        for end in ("json", "checkpoint.parquet"):
            self.storage.sync(f"{name}/_delta_log/{held.version():020d}.{end}")
        self.storage.sync(f"{name}/_delta_log/_last_checkpoint")

    def read(self, spark, name, files=None, version=None):
        """A table, or some of its Files, as a DataFrame with the table's columns."""
        kinds = ddl(self.columns[name])
        paths = self.files(name, version) if files is None else files
        if not paths:
            return spark.createDataFrame([], kinds)
        if self.storage.shared:
            return self._loaded(spark, name, paths)
        base = self.storage.path(name)
        within = reader(spark, kinds).option("basePath", base)
        return within.parquet(*(f"{base}/{each.path}" for each in paths))

    def load(self, name, files):
        """Some Files of a table as an Arrow table with the table's columns, without Spark."""
        schema = arrow_schema(self.columns[name])
        days = [{"name": f"{name}/{each.path}", "day": each.day} for each in files]
        held = _Load(self.storage, self.columns[name])([pa.Table.from_pylist(days)])
        return pa.Table.from_batches(held if days else (), schema)

    def _loaded(self, spark, name, files):
        """The same without Spark's own reader, which knows no object store."""
        days = [(f"{name}/{each.path}", each.day) for each in files]
        parts = min(len(days), 4 * spark.sparkContext.defaultParallelism)
        held = spark.createDataFrame(days, "name string, day string").repartition(parts)
        return held.mapInArrow(_Load(self.storage, self.columns[name]), ddl(self.columns[name]))

    def store(self, df, name, number=0):
        """Write a DataFrame as Files of a table, by Spark's tasks; returns the Files, which do not
        count yet. A task writes a file for each day that it has rows of."""
        told = df.mapInArrow(_Store(self.storage, name, number, self.columns[name]), FILES)
        return [file_of(row) for row in told.collect()]

    def staging(self):
        """The name of a new place where nobody looks."""
        return f"_staging/{self.owner}-{uuid4().hex}"

    def clean(self, older_than=0):
        """Remove what killed runs of this owner left staged, if older than so many seconds."""
        age = max(older_than, self.storage.patience)
        for name in self.storage.children("_staging", age):
            if name.startswith(f"_staging/{self.owner}-"):
                self.storage.remove(name)


FILES = "path string, size bigint, rows bigint, day string, stats string"


def file_row(made):
    """A File as a row of FILES."""
    return tuple(made.kept())


def file_of(row):
    """The File that a row of FILES is."""
    return File.of(*(row[name] for name in ("path", "size", "rows", "day", "stats")))


def file_batch(rows):
    """Rows of FILES as an Arrow record batch."""
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string())
    columns = zip(*rows) if rows else [()] * 5
    names = [column.split()[0] for column in FILES.split(", ")]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, kinds)], names)  # fmt: skip


class _Load:
    """Names and days of files -> their rows, with the columns of the table."""

    def __init__(self, storage, columns):
        self.storage, self.columns = storage, columns

    def __call__(self, batches):
        schema = arrow_schema(self.columns)
        for row in [row for batch in batches for row in batch.to_pylist()]:
            held = self.storage.read_parquet(row["name"])
            known = {PARTITION: pa.repeat(row["day"] or "", len(held)), **dict(
                zip(held.column_names, held.columns))}  # fmt: skip
            arrays = [known[at.name].cast(at.type) if at.name in known
                      else pa.nulls(len(held), at.type) for at in schema]  # fmt: skip
            table = pa.Table.from_arrays(arrays, schema=schema)
            yield from table.to_batches(max_chunksize=20_000)


class _Store:
    """A part of a DataFrame -> its files."""

    def __init__(self, storage, table, number, columns):
        self.storage, self.table, self.number, self.columns = storage, table, number, columns

    def __call__(self, batches):
        schema = arrow_schema(self.columns)
        parts = [pa.Table.from_batches([batch]).select(schema.names).cast(schema)
                 for batch in batches]  # fmt: skip
        held = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
        made = [written(self.storage, self.table, self.number, day, rows)
                for day, rows in by_day(held) if len(rows)]  # fmt: skip
        yield file_batch([file_row(each) for each in made])


def last_of(held):
    """The highest number of a batch that a DeltaTable has a commit of; -1 for none."""
    number = held.transaction_version(APPLICATION)
    return -1 if number is None else number


def file_added(told):
    """The File of which a commit tells, the content of an `add`. Raises ValueError, KeyError."""
    stats, days = json.loads(told.get("stats") or "{}"), told.get("partitionValues") or {}
    return File(unquote(told["path"]), told["size"], stats.get("numRecords"), days.get(PARTITION),
                Statistics.of_log(stats), told.get("modificationTime", 0))


def files_of(held):
    """The Files of a DeltaTable, oldest first."""
    rows = pa.table(held.get_add_actions(flatten=True)).to_pylist()
    found = []
    for row in rows:
        day = row.get(f"partition.{PARTITION}")
        found.append(File(row["path"], row["size_bytes"], row["num_records"],
                          None if day is None else str(day), Statistics.of_actions(row),
                          int(row["modification_time"])))  # fmt: skip
    return sorted(found, key=lambda each: each.path.rpartition("/")[2])


def existing(root):
    """The Tables that there are below `root`, whoever has made them."""
    storage = storage_of(root)
    names = sorted(name.rpartition("/")[2] for name in storage.children(""))
    held = {name: {} for name in names if storage.listed(f"{name}/_delta_log")}
    found = Tables(root, {})
    found.columns = held
    return found


def dataset(root, name, version=None, last=None):
    """A table as a pyarrow dataset, for readers without Spark; None if there is no such table.
    Page checksums are verified. last: only so many of the newest days."""
    import pyarrow.dataset as ds  # it loads pandas, which the commands and workers of ingest spare

    storage, held = storage_of(root), Tables(root, {}).find(name, version)
    if held is None:
        return None
    schema = pa.schema(held.schema().to_arrow())
    files = files_of(held)
    since = sorted({each.day for each in files})[-last:][0] if last and files else None
    paths = [f"{storage.key(name)}/{each.path}" for each in files
             if since is None or each.day >= since]  # fmt: skip
    if not paths:
        return ds.dataset(schema.empty_table())
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    days = None
    if held.metadata().partition_columns:
        days = ds.partitioning(pa.schema([(PARTITION, pa.date32())]), flavor="hive")
    return ds.dataset(paths, schema, ds.ParquetFileFormat(default_fragment_scan_options=checked),
                      storage.files, days, storage.key(name))  # fmt: skip
