"""The two steps of a batch, as Spark's Python workers do them: over Arrow, file by file.

`Receive` takes the packets of a part of the batch: it writes their bronze file, decodes them, and
writes readings into files by bucket (a hash of group and device), what is none into quarantine.
`Settle` takes a bucket's readings, of all parts, beside the state that the batch before left, and
makes of them silver, duplicates, clock and what is new in the state. Only the names of files and
counts go through Spark (RESULT).

Files of tables and of the state are written where they stay; they count when the driver has
decided the batch (ledger.py). What goes from one step to the next is below the folder of the batch
in TABLES/_staging. No name is used twice: what a task wrote that failed is not looked at.

Knows which rows go into which file. Must not know how a row is decoded (decode/) or what becomes
of it (dedup.py).
"""

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ..decode import firmware_packs
from ..decode import rows as one_by_one
from ..decode.own import NO_DECODERS
from ..decode.signed import NO_KEYS
from ..tables import large
from ..tables.schema import BRONZE, QUARANTINE, READINGS, STATE, arrow_schema
from ..tables.storage import parquet
from ..tables.store import FILES, by_day, dataset, file_batch, file_row, written
from . import dedup
from .state import LITTLE, Part

RESULT = f"kind string, bucket int, name string, {FILES}"
READ = "readings"  #: kind of a file with the readings of a bucket
OTHER = "other"  #: kind of a mere count: packets of topics that carry no readings
FORGOTTEN = "forgotten"  #: kind of a file of the state whose rows are in another one now
BEFORE = {"epoch_before": "epoch", "sequence_before": "sequence"}  #: in a replay, of its rows
KNOWN = "known"  #: kind of a mere count: packets that bronze has from an earlier batch
PLACE = "place"  #: kind of what tells how far a spool is read: name and highest offset
CORRECTED = "corrected"  #: kind of a file of silver that takes the place of the one named
NEW, COPIES, CLOCKS, DUE = "silver_and_clock", "duplicate", "clocks_told", "due"
PART_OF = 4  #: a batch with readings for so much of the numbers seen writes all of these
CHUNK_ROWS = 250_000  #: so many rows are worked on together, or
CHUNK_BYTES = 64 << 20  #: so many bytes


class Work:
    """What a batch gives its tasks. storage: of the tables; folder: its name in the staging
    folder; number: of the batch; buckets: how many there are; little: rows of a file of the state
    that is not worth being one."""

    def __init__(self, storage, folder, number, buckets, little=LITTLE):
        self.storage, self.folder = storage, folder
        self.number, self.buckets, self.little = number, buckets, little


class Folder:
    """The files of one task; collects what to tell of them."""

    def __init__(self, work):
        self.work = work
        self.part = TaskContext.get().partitionId()
        self.results, self.files = [], []

    def tell(self, kind, rows, bucket=None, name=None):
        """Tell of a number of rows, or of another one."""
        self._told(kind, bucket, name, (None, None, rows, None, None))

    def _told(self, kind, bucket, name, file):
        self.results.append((kind, bucket, name))
        self.files.append(file)

    def stage(self, kind, data, rows, bucket=None):
        """Write bytes that only this batch reads; the name is in the order of tasks and calls."""
        number = f"{self.part:05d}-{len(self.results):05d}-{uuid.uuid4().hex[:8]}"
        name = f"{self.work.folder}/{kind}-{number}"
        self.work.storage.put(name, data)
        self.tell(kind, rows, bucket, name)

    def table(self, name, rows):
        """Write what a table gets, a file for each day."""
        for day, part in by_day(rows):
            made = written(self.work.storage, name, self.work.number, day, part)
            self._told(name, None, None, file_row(made))

    def corrected(self, path, rows):
        """Write what takes the place of a file of silver."""
        day = path.partition("/")[0].partition("=")[2]
        made = written(self.work.storage, "silver", self.work.number, day, rows)
        self._told(CORRECTED, None, path, file_row(made))

    def readings(self, rows):
        """Write readings, a file for each bucket."""
        buckets = self.work.buckets
        number = firmware_packs.buckets_of(rows, buckets)
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(buckets + 1))
        rows = rows.take(order)
        for bucket, (a, b) in enumerate(zip(edges, edges[1:])):
            if b > a:
                out = pa.BufferOutputStream()
                with pa.ipc.new_file(out, rows.schema) as file:
                    file.write_table(rows.slice(a, b - a))
                self.stage(READ, out.getvalue(), int(b - a), bucket)

    def kept(self, part, written):
        """Tell of what was written of a part of the state, and of what it takes the place of."""
        for bucket, name, rows, gone in written:
            if name is not None:
                self.tell(part, rows, bucket, name)
            for old in gone:
                self.tell(FORGOTTEN, 0, bucket, old)

    def told(self):
        """RESULT rows as a record batch."""
        columns = zip(*self.results) if self.results else [()] * 3
        kinds = (pa.string(), pa.int32(), pa.string())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds)]
        names = [column.split()[0] for column in RESULT.split(", ")]
        return pa.RecordBatch.from_arrays([*arrays, *file_batch(self.files).columns], names)


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
    """Bronze rows -> files of bronze, of readings by bucket, and of quarantine.

    places    {spool: offset} up to which bronze has packets already; None: the rows are those of
              the quarantine, with BEFORE, are in bronze, and are not written to it again
    decoders  of one's own: with any, every packet is decoded one by one; they are asked first
    keys      of the devices that sign their readings
    """

    def __init__(self, work, places, decoders=NO_DECODERS, keys=NO_KEYS):
        self.work, self.places, self.decoders, self.keys = work, places, decoders, keys

    def __call__(self, batches):
        folder = Folder(self.work)
        schema = arrow_schema(BRONZE)
        for chunk in chunks(batches):
            if self.places is not None:
                chunk = self._left_to_do(folder, chunk)
            rows = chunk.select(schema.names).cast(schema)
            if self.places is None:
                folder.tell("bronze", len(rows))
                for name in BEFORE:
                    rows = rows.append_column(name, chunk[name])
            else:
                folder.table("bronze", rows)
                self._tell_places(folder, rows)
            self._sort(folder, rows)
        yield folder.told()

    def _sort(self, folder, rows):
        """Readings and what is none, each to its files."""
        schema, wrong = arrow_schema(READINGS), arrow_schema(QUARANTINE)
        found = schema.empty_table()
        if not self.decoders:
            there = pc.is_valid(rows["payload"])  # else it was too large for a row
            free = rows.filter(there)
            found, known = firmware_packs.readings(free, self.keys)
            rows = pa.concat_tables([free.filter(pa.array(~known)), rows.filter(pc.invert(there))])
        payloads = large.Payloads(self.work.storage)
        rest = one_by_one.decode(rows, self.decoders, self.keys, payloads.of)
        if self.places is None:
            rest = _still_known(rest)
        bad = pc.is_valid(rest["reason"])
        good = rest.filter(pc.invert(pc.or_(bad, rest["other"])))
        folder.readings(pa.concat_tables([found, good.select(schema.names).cast(schema)]))
        folder.table("quarantine", rest.filter(bad).select(wrong.names).cast(wrong))
        folder.tell(OTHER, pc.sum(rest["other"], min_count=0).as_py())

    @staticmethod
    def _tell_places(folder, rows):
        ends = rows.group_by("spool").aggregate([("offset", "max")]).to_pylist()
        for end in ends:
            folder.tell(PLACE, end["offset_max"], name=end["spool"])

    def _left_to_do(self, folder, chunk):
        """The rows that bronze has not. A query that begins anew reads a spool from its beginning;
        any other has no row below the places, and pays one comparison of numbers. What is there
        is known by its place, its time and all that it says: an older copy of a spool that was put
        back and went on has other packets at the same places."""
        spool, offset = chunk["spool"].combine_chunks(), chunk["offset"]
        coded = spool.dictionary_encode()
        ends = [self.places.get(name, -1) for name in coded.dictionary.to_pylist()]
        ends = np.array(ends or [-1], np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
        below = offset.to_numpy() <= ends
        if not below.any():
            return chunk
        known = _held(self.work.storage.root, chunk.filter(pa.array(below)))
        new = np.array([row not in known for row in _packets(chunk)], bool)
        folder.tell(KNOWN, int((~new).sum()))
        return chunk.filter(pa.array(new))


def _still_known(rows):
    """Rows with BEFORE and MADE: what came with a number is still known by it if this decoding
    finds none, with fewer decoders, say, or without the file of a large payload."""
    for before, name in BEFORE.items():
        both = pc.coalesce(rows[name], rows[before])
        rows = rows.set_column(rows.column_names.index(name), name, both)
    return rows


PACKET = ["spool", "offset", "received_at", "topic", "payload"]


def _packets(rows):
    """What each packet is known by, as tuples."""
    columns = [rows[name] for name in PACKET]
    columns[2] = columns[2].cast(pa.int64())
    return zip(*(column.to_pylist() for column in columns))


def _held(root, rows):
    """The packets of bronze that lie where those of `rows` do."""
    found = set()
    bronze = dataset(root, "bronze")
    for name in pc.unique(rows["spool"]).to_pylist():
        ends = pc.min_max(rows.filter(pc.equal(rows["spool"], name))["offset"]).as_py()
        at = pc.field("offset")
        there = (pc.field("spool") == name) & (at >= ends["min"]) & (at <= ends["max"])
        found.update(_packets(bronze.to_table(PACKET, filter=there)))
    return found


class Settle:
    """Buckets (a column of their numbers) -> files of silver, duplicates, clock, and of what the
    batch adds to the state.

    readings  {bucket: [name]}
    state     {part: [name]} as the batch before left it
    """

    def __init__(self, work, readings, state):
        self.work, self.found, self.state = work, readings, state
        self.storage, self.buckets, self.number = work.storage, work.buckets, work.number

    def __call__(self, batches):
        mine = sorted(n for batch in batches for n in batch.column(0).to_pylist())
        if not mine:
            return
        folder = Folder(self.work)
        rows = [arrow_schema(READINGS).empty_table()]
        for n in mine:
            for name in self.found.get(n, ()):
                rows.append(pa.ipc.open_file(self.storage.read(name)).read_all())
        self._settle(folder, pa.concat_tables(rows), mine)
        yield folder.told()

    def _settle(self, folder, rows, mine):
        parts = {part: Part(self.work, part, self.state.get(part, ()), mine) for part in STATE}
        devices = pc.unique(rows["device"])
        seen, clocks, unclocked = (parts[part] for part in STATE)
        # Most of it is looked through and changed anyway: then it is as cheap to write it anew.
        whole = len(rows) * PART_OF >= seen.rows
        new, copies, seen_now = dedup.told_apart(rows, seen.of(None if whole else devices), whole)
        known, told = clocks.of(devices), dedup.clock_rows(new)
        more = dedup.clocks_added(known, told)
        silver = dedup.silver(new, pa.concat_tables([known, more]), self.number)
        folder.tell(NEW, len(new))
        folder.tell(COPIES, len(copies))
        folder.tell(CLOCKS, len(told))
        for name, found in (("duplicates", dedup.duplicates(copies)), ("clock", told),
                            ("silver", silver)):  # fmt: skip
            folder.table(name, found)
        due = dedup.due(unclocked.of(devices), more)
        if len(due):
            folder.stage(DUE, parquet(due), len(due))

        def waiting(rows):
            there = clocks.of(pc.unique(rows["device"]))
            return dedup.joined_unclocked(rows, pa.concat_tables([there, more]))

        if not whole:
            folder.kept(seen.part, seen.add(seen_now, dedup.joined_seen))
        elif len(new) or seen.dealt_otherwise:
            folder.kept(seen.part, seen.replace(seen_now))
        folder.kept(clocks.part, clocks.add(more, lambda rows: rows))
        late = dedup.unclocked_added(silver, self.number)
        folder.kept(unclocked.part, unclocked.add(late, waiting))


def _read(storage, names):
    """Staged Parquet files as one table."""
    return pa.concat_tables([storage.read_parquet(name) for name in names])


def span(storage, due):
    """The first and the last batch with readings of boots that are due; due: files, as below."""
    rows = _read(storage, due)
    return pc.min(rows["first_batch"]).as_py(), pc.max(rows["last_batch"]).as_py()


class Correct:
    """Names of silver's files -> new files in their place, where boots have got a clock.

    due: files of what Settle found to be due.
    """

    def __init__(self, work, due):
        self.work, self.due = work, due

    def __call__(self, batches):
        clocks = _read(self.work.storage, self.due)
        folder = Folder(self.work)
        for path in [p for batch in batches for p in batch.column(0).to_pylist()]:
            rows = self.work.storage.read_parquet(f"silver/{path}")
            made = dedup.corrected(rows, clocks)
            if made is not None:
                folder.corrected(path, made)
        yield folder.told()
