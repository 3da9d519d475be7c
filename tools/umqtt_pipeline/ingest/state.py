"""The state of ingest: which numbers were seen, whose clock is known.

Knows the files of the state, and the devices that a row is of. Must not know what a row means
(dedup.py), nor which of the files count: the intents say that (ledger.py), as {part: [name]}.

    TABLES/_state/PART/NNNNNNNNNNNN-KKKK-of-BBBB-CCCCCCCC.parquet

what batch N wrote of bucket K (of B) of a part; C is the CRC-32 of the file. A batch writes the
rows that it adds. If the newest files before it are not much larger, it takes their rows into its
own file and they go. So a bucket has few files, each at least twice as large as the next one, and
no row is written more often than the logarithm of their number.
"""

import re
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..decode.firmware_packs import buckets_of
from ..spool.files import SpoolError
from ..tables.schema import DELETED, STATE, arrow_schema
from ..tables.storage import parquet

NAME = re.compile(r"\d{12}-(\d{4})-of-(\d{4})-([0-9a-f]{8})\.parquet")
DAMAGED = "is damaged ({}): put that file back as it was, or begin in another folder (--tables)"
LITTLE = 20_000  #: rows; files of less always become one
GROWTH = 2  #: a file goes into the next one unless it is so many times as large


def bucket_of(name):
    """(bucket, of how many) of a file of the state."""
    return tuple(map(int, NAME.fullmatch(name.rpartition("/")[2]).groups()[:2]))


class Held:
    """A file of the state. Raises SpoolError if it is damaged or missing."""

    def __init__(self, storage, name, schema):
        self.name, self.schema = name, schema
        self.bucket, self.buckets = bucket_of(name)
        try:
            data = storage.read(name)
        except OSError as error:
            raise SpoolError(f"{storage.path(name)} {DAMAGED.format(error.strerror)}")
        if f"{zlib.crc32(data):08x}" != NAME.fullmatch(name.rpartition("/")[2])[3]:
            why = "its bytes are not those that were written"
            raise SpoolError(f"{storage.path(name)} {DAMAGED.format(why)}")
        self._file = pq.ParquetFile(pa.BufferReader(data))
        self.rows = self._file.metadata.num_rows

    def all(self):
        """Its rows as an Arrow table."""
        return self._file.read().cast(self.schema)

    def of(self, devices):
        """The rows of devices with these names, in whatever group."""
        rows = self.all()
        return rows.filter(pc.is_in(rows["device"], value_set=devices))


class Part:
    """What the batches before have left of a part of the state, for some buckets.

    work: batch_tasks.Work;   names: of all its files;   mine: the buckets. Raises SpoolError.
    """

    def __init__(self, work, part, names, mine):
        self.work, self.part, self.mine = work, part, mine
        self.schema = arrow_schema(STATE[part])
        self.files = []
        for name in sorted(names):
            bucket, buckets = bucket_of(name)
            if buckets != work.buckets or bucket in mine:
                self.files.append(Held(work.storage, name, self.schema))

    @property
    def rows(self):
        """How many rows it has of these buckets, about."""
        return sum(held.rows for held in self.files)

    def of(self, devices=None):
        """The rows of devices with these names, an Arrow array; None: all rows, and where
        `dealt_otherwise` those of other buckets with them."""
        found = [held.all() if devices is None else held.of(devices) for held in self.files]
        return pa.concat_tables([self.schema.empty_table(), *found]).combine_chunks()

    @property
    def dealt_otherwise(self):
        """Whether files were written for another number of buckets: each bucket has to take over
        its own, all of them at once."""
        return any(held.buckets != self.work.buckets for held in self.files)

    def replace(self, rows):
        """Write what the state is after the batch, all of it; of other buckets' rows none. Yields
        as `add`."""
        number = buckets_of(rows, self.work.buckets)
        gone = [held.name for held in self.files]
        for bucket in self.mine:
            yield self._kept(bucket, rows.filter(pa.array(number == bucket)), gone)

    def add(self, rows, joined):
        """Write what the batch adds; yields (bucket, name of the new file, its rows, [names of the
        files whose rows it has taken in]). The name is None if there is no row.

        joined(rows): fewer rows that mean the same
        """
        if self.dealt_otherwise:
            yield from self.replace(joined(pa.concat_tables([self.of(), rows])))
            return
        number = buckets_of(rows, self.work.buckets)
        for bucket in self.mine:
            came = rows.filter(pa.array(number == bucket))
            if len(came):
                gone = self._little([h for h in self.files if h.bucket == bucket], len(came))
                parts = [came, *(held.all() for held in gone)]
                found = joined(pa.concat_tables(parts)) if gone else came
                yield self._kept(bucket, found, [held.name for held in gone])

    def _little(self, files, rows):
        """The newest files, up to one that is not to be written again."""
        chosen = []
        for held in reversed(files):
            if held.rows > max(GROWTH * rows, self.work.little):
                break
            chosen.append(held)
            rows += held.rows
        return chosen

    def _kept(self, bucket, rows, gone):
        """Write rows as a file in the place of `gone`; returns what `add` yields. Raises
        OSError."""
        if not len(rows):
            return bucket, None, 0, gone
        work, data = self.work, parquet(rows)
        name = (f"_state/{self.part}/{work.number:012d}-{bucket:04d}-of-{work.buckets:04d}-"
                f"{zlib.crc32(data):08x}.parquet")  # fmt: skip
        work.storage.keep(name, data)
        return bucket, name, len(rows), gone


def after(held, made, gone):
    """The state {part: [name]} when a batch has left `held`, has written the files `made`, a list
    of (part, name), and taken the rows of the files `gone` into those."""
    found = {part: set(held.get(part, ())) - set(gone) for part in (*STATE, DELETED)}
    for part, name in made:
        found[part].add(name)
    return {part: sorted(names) for part, names in found.items()}


def forget(storage, old, now):
    """Remove the files of the state `old` that the state `now` does not need."""
    needed = {name for names in now.values() for name in names}
    for name in {name for names in old.values() for name in names} - needed:
        storage.remove(name)
