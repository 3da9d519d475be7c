"""The two steps of a batch, as Spark's Python workers do them: over Arrow, file by file.

`Receive` takes the packets of a part of the batch: it writes their bronze file, and those that are
readings into files by bucket (a hash of group and device). `Settle` takes a bucket's readings, of
all parts, beside the state that the batch before left, and makes of them silver, duplicates, clock
and the new state. Only the names of files and counts go through Spark (RESULT).

Everything is written below the folder of the batch in TABLES/_staging, under names that nobody
else has: what a task wrote that failed is not looked at. query.py puts the files in place.

Knows which rows go into which file. Must not know how a row is decoded (decode/, silver/), what
becomes of it (dedup.py), or where files end up.
"""

import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from ..decode import firmware_packs
from ..tables.schema import BRONZE, QUARANTINE, READINGS, STATE
from ..tables.store import PARTITION, arrow_schema
from . import dedup
from .state import read_part

RESULT = "kind string, folder string, bucket int, path string, rows bigint"
REST = "rest"  #: kind of a file with bronze rows that decode/firmware_packs.py does not know
READ = "readings"  #: kind of a file with the readings of a bucket
OTHER = "other"  #: kind of a mere count: packets of topics that carry no readings
NEW, COPIES, CLOCKS, DUE = "silver_and_clock", "duplicate", "clocks_told", "due"
CHUNK_ROWS = 250_000  #: so many rows are worked on together, or
CHUNK_BYTES = 64 << 20  #: so many bytes
# These have another value in nearly every row.
VARIED = {"payload", "received_at", "offset", "sequence", "uptime_ms", "time", "first", "last"}


class Folder:
    """The folder of a batch, as one task writes into it; collects what to tell of it."""

    def __init__(self, path):
        self.path = Path(path)
        self.part = TaskContext.get().partitionId()
        self.results = []

    def file(self, kind, suffix):
        """A path that nobody else has; in the order of tasks and of calls."""
        name = f"{kind}-{self.part:05d}-{len(self.results):05d}-{uuid.uuid4().hex[:8]}.{suffix}"
        return str(self.path / name)

    def tell(self, kind, rows, folder=None, bucket=None, path=None):
        self.results.append((kind, folder, bucket, path, rows))

    def parquet(self, kind, rows, folder=None, bucket=None):
        """Write a Parquet file."""
        path = self.file(kind, "parquet")
        names = [n for n in rows.schema.names if n not in VARIED and n != "measurements"]
        names += [f"measurements.list.element.{n}" for n in ("name", "unit")]
        pq.write_table(rows, path, compression="zstd", use_dictionary=names)
        self.tell(kind, len(rows), folder, bucket, path)

    def table(self, kind, rows):
        """Write what a table gets, a file for each day."""
        day = rows[PARTITION]
        for date in sorted(pc.unique(day).to_pylist()):
            part = rows.filter(pc.equal(day, pa.scalar(date, day.type)))
            self.parquet(kind, part.drop_columns([PARTITION]), f"{PARTITION}={date}")

    def readings(self, rows, buckets):
        """Write readings, a file for each bucket."""
        number = firmware_packs.buckets_of(rows, buckets)
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(buckets + 1))
        rows = rows.take(order)
        for bucket, (a, b) in enumerate(zip(edges, edges[1:])):
            if b > a:
                path = self.file(READ, "arrow")
                with pa.ipc.new_file(path, rows.schema) as out:
                    out.write_table(rows.slice(a, b - a))
                self.tell(READ, int(b - a), bucket=bucket, path=path)

    def told(self):
        """RESULT rows as a record batch."""
        columns = zip(*self.results) if self.results else [()] * 5
        kinds = (pa.string(), pa.string(), pa.int32(), pa.string(), pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds)]
        names = [column.split()[0] for column in RESULT.split(", ")]
        return pa.RecordBatch.from_arrays(arrays, names)


def chunks(batches):
    """Record batches -> tables of about CHUNK_ROWS rows."""
    held, rows, size = [], 0, 0
    for batch in batches:
        held.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held).combine_chunks()


class Receive:
    """Bronze rows -> files of bronze, of readings by bucket, and of the rest.

    own: name of a bool column: rows for decoders of one's own, which are left to silver.decode;
    bronze: False if the rows are in that table already.
    """

    def __init__(self, folder, buckets, bronze=True, own=None):
        self.folder, self.buckets, self.bronze, self.own = str(folder), buckets, bronze, own

    def __call__(self, batches):
        folder = Folder(self.folder)
        schema = arrow_schema(BRONZE)
        for chunk in chunks(batches):
            rows = chunk.select(schema.names).cast(schema)
            if self.bronze:
                folder.table("bronze", rows)
            else:
                folder.tell("bronze", len(rows))
            free = rows if self.own is None else rows.filter(pc.invert(chunk[self.own]))
            found, known = firmware_packs.readings(free)
            folder.readings(found, self.buckets)
            rest = free.filter(pa.array(~known))
            if self.own is not None:
                rest = pa.concat_tables([rest, rows.filter(chunk[self.own])])
            if len(rest):
                folder.parquet(REST, rest)
        yield folder.told()


class Sort:
    """Rows of silver.decode -> files of readings by bucket and of quarantine."""

    def __init__(self, folder, buckets):
        self.folder, self.buckets = str(folder), buckets

    def __call__(self, batches):
        folder = Folder(self.folder)
        for chunk in chunks(batches):
            bad = pc.is_valid(chunk["reason"])
            good = pc.invert(pc.or_(bad, chunk["other"]))
            schema, wrong = arrow_schema(READINGS), arrow_schema(QUARANTINE)
            folder.readings(chunk.filter(good).select(schema.names).cast(schema), self.buckets)
            folder.table("quarantine", chunk.filter(bad).select(wrong.names).cast(wrong))
            folder.tell(OTHER, pc.sum(chunk["other"]).as_py())
        yield folder.told()


class Settle:
    """Buckets (a column of their numbers) -> files of silver, duplicates, clock and of the state.

    buckets   how many there are
    number    of the batch
    readings  {bucket: [path]}
    state     {part: [path]} as the batch before left it
    """

    def __init__(self, folder, buckets, number, readings, state):
        self.folder, self.buckets, self.number = str(folder), buckets, number
        self.found, self.state = readings, state

    def __call__(self, batches):
        mine = sorted(n for batch in batches for n in batch.column(0).to_pylist())
        if not mine:
            return
        folder = Folder(self.folder)
        rows = [arrow_schema(READINGS).empty_table()]
        for n in mine:
            for path in self.found.get(n, ()):
                with pa.memory_map(path) as file:
                    rows.append(pa.ipc.open_file(file).read_all())
        self._settle(folder, pa.concat_tables(rows), mine)
        yield folder.told()

    def _settle(self, folder, rows, mine):
        seen, clocks, unclocked = (self._held(part, mine) for part in STATE)
        new, copies, seen_now = dedup.told_apart(rows, seen)
        told = dedup.clock_rows(new)
        clocks_now = dedup.clocks_after(clocks, told) if len(told) else clocks
        silver = dedup.silver(new, clocks_now, self.number)
        folder.tell(NEW, len(new))
        folder.tell(COPIES, len(copies))
        folder.tell(CLOCKS, len(told))
        for name, found in (("duplicates", dedup.duplicates(copies)), ("clock", told),
                            ("silver", silver)):  # fmt: skip
            folder.table(name, found)
        still, due = dedup.unclocked_after(unclocked, silver, clocks_now, self.number)
        if len(due):
            folder.parquet(DUE, due)
        self._keep(folder, "seen", seen_now, len(new), mine)
        self._keep(folder, "clocks", clocks_now, len(clocks_now) > len(clocks), mine)
        self._keep(folder, "unclocked", still, not still.equals(unclocked), mine)

    def _held(self, part, mine):
        """A part of the state, as far as it is of these buckets. Files that were written for
        another number of buckets are all looked through."""
        schema = arrow_schema(STATE[part])
        found = [schema.empty_table()]
        for path in self.state[part]:
            whose, _, of = Path(path).stem.partition("-of-")
            if of != f"{self.buckets:04d}":
                rows = read_part(path, schema)
                here = np.isin(firmware_packs.buckets_of(rows, self.buckets), mine)
                found.append(rows.filter(pa.array(here)))
            elif int(whose) in mine:
                found.append(read_part(path, schema))
        return pa.concat_tables(found).combine_chunks()

    def _keep(self, folder, part, rows, changed, mine):
        """Write a part of the state, if it is not as it was."""
        old = any(not path.endswith(f"-of-{self.buckets:04d}.parquet")
                  for path in self.state[part])  # fmt: skip
        if not changed and not old:
            return
        number = firmware_packs.buckets_of(rows, self.buckets)
        for bucket in mine:
            folder.parquet(part, rows.filter(pa.array(number == bucket)), bucket=bucket)


def span(due):
    """The first and the last batch with readings of boots that are due; due: files, as below."""
    rows = pa.concat_tables([pq.read_table(path) for path in due])
    return pc.min(rows["first_batch"]).as_py(), pc.max(rows["last_batch"]).as_py()


class Correct:
    """Paths of silver files -> new files in their place, where boots have got a clock.

    due: files of what Settle found to be due.
    """

    def __init__(self, folder, due):
        self.folder, self.due = str(folder), due

    def __call__(self, batches):
        clocks = pa.concat_tables([pq.read_table(path) for path in self.due])
        folder = Folder(self.folder)
        for path in [p for batch in batches for p in batch.column(0).to_pylist()]:
            made = dedup.corrected(pq.ParquetFile(path).read(), clocks)
            if made is not None:
                folder.parquet("silver", made, folder=path)
        yield folder.told()
