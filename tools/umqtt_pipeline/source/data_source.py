"""`format("mqtt")`: a PySpark Data Source that reads spools, as a stream or as a batch.

Knows the spool's files and PySpark's Data Source API. Must not know brokers, payloads or tables.

Options
    path             folder of a spool, or several separated by commas; a relative one is below
                     the folder in which the driver was started
    maxRowsPerBatch  most rows in one micro-batch (default 200000; 0: no limit)
    maxBytesPerBatch  about the most bytes in one micro-batch (default 128 MiB; 0: no limit); one
                     packet is always taken
    largeFolder      a payload of more than 8 MiB is written to a file of its own in this folder,
                     SPOOL-OFFSET.bin, and is null in its row; without it all payloads are in rows
    numPartitions    tasks that read one micro-batch (default 2)
    consumer         name under which a stream tells the bridge what it is done with (letters,
                     digits, - and _); without it nothing is ever deleted on its account
    broker           HOST:PORT: run the bridge inside the source (embedded.py), with path as its
                     spool, for a laptop; topics: its topic filters, separated by commas
    stopFile         while there is a file of this name a stream has nothing new: the batch that
                     runs is its last, whatever waits in the spool
    skipDamaged      true: leave out blocks that fail their check, and what is missing, instead of
                     failing the query; each is logged

An offset is {spool id: [position of a block, packets of it to skip, ...]} (spool/offsets.py); the
id makes a spool that was deleted and begun anew a new series. The classes are made in several
processes (planner, driver, workers), so no constructor opens anything.
"""

import difflib
import logging
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .. import wire
from ..decode.firmware import slices
from ..spool import consumers, files, offsets
from ..spool import reader as spooling
from ..spool.reader import SpoolError, blocks
from ..spool.segment import BLOCK
from . import embedded

log = logging.getLogger("umqtt.source")

SCHEMA = (
    "topic string, payload binary, qos int, retain boolean, dup boolean, packet_id int, "
    "received_at timestamp, spool string, offset bigint"
)
BATCH_ROWS = 20_000  #: about so many rows make one Arrow record batch, or
BATCH_BYTES = 32 << 20  #: so many bytes
LATEST_US = 253_402_128_000_000_000  #: 9999-12-30; not every reader of Parquet knows later times
PART_ROWS = 10_000  #: fewer are not worth a task of their own
DEFAULT_ROWS = 200_000
DEFAULT_BYTES = 128 << 20
NO_LIMIT = 1 << 62
LARGE = 8 << 20  #: bytes of a payload; a row goes several times through Spark's memory
OPTIONS = ("path", "maxRowsPerBatch", "maxBytesPerBatch", "numPartitions", "consumer", "broker",
           "topics", "stopFile", "skipDamaged", "largeFolder")  # fmt: skip


@dataclass
class SpoolRange(InputPartition):
    """Packets from [position, skip] up to and without [stop, stop_skip] of the spool `id`."""

    id: str
    folder: str
    position: int
    skip: int
    stop: int
    stop_skip: int


class Options:
    """The options of the module's text, checked. Raises ValueError naming the option."""

    def __init__(self, given):
        self._known(given)
        self.folders = self._folders(given.get("path") or "")
        self.broker, self.topics = given.get("broker"), given.get("topics")
        if self.broker:
            embedded.check(self.folders)
        self.rows = self._number(given, "maxRowsPerBatch", DEFAULT_ROWS, 0)
        self.bytes = self._number(given, "maxBytesPerBatch", DEFAULT_BYTES, 0) or NO_LIMIT
        large = given.get("largeFolder")
        self.large = large and str(Path(large).absolute())
        self.partitions = self._number(given, "numPartitions", 2, 1)
        self.consumer = given.get("consumer")
        if self.consumer is not None and not consumers.NAME.fullmatch(self.consumer):
            raise ValueError(f"option consumer={self.consumer!r}: letters, digits, - and _ only")
        self.stop_file = given.get("stopFile")
        skip = (given.get("skipDamaged") or "false").lower()
        if skip not in ("true", "false"):
            raise ValueError(f"option skipDamaged={skip!r}: true or false")
        self.skip_damaged = skip == "true"

    @staticmethod
    def _known(given):
        """Spark hands over names as they were written or in small letters; both are ours."""
        known = {name.lower(): name for name in OPTIONS}
        for name in given:
            if name.lower() not in known:
                near = difflib.get_close_matches(name.lower(), known, 1, 0)
                raise ValueError(f'format("mqtt") has no option {name!r}: the nearest is '
                                 f"{known[near[0]]}; all: {', '.join(OPTIONS)}")  # fmt: skip

    @staticmethod
    def _folders(path):
        if not path.strip():
            raise ValueError('format("mqtt") needs the option path: the folder of a spool')
        folders = [part.strip() for part in path.split(",")]
        if not all(folders):
            raise ValueError(f"option path={path!r}: a folder's name is empty")
        if len({Path(folder).resolve() for folder in folders}) < len(folders):
            raise ValueError(f"option path={path!r}: a spool is named twice")
        # A partition is read by a process that may work in another folder.
        return [str(Path(folder).absolute()) for folder in folders]

    @staticmethod
    def _number(given, name, default, low):
        raw = given.get(name)
        if raw is None:
            return default
        try:
            value = int(raw)
        except ValueError:
            value = low - 1
        if value < low:
            raise ValueError(f"option {name}={raw!r}: an integer of at least {low}")
        return value


def advance(folder, start, ceiling, rows, skip_damaged=False, size=NO_LIMIT):
    """How far `rows` packets, and about `size` bytes, reach from the offset `start`, which is at
    least one packet: (offset, packets counted)."""
    position, skip = start[:2]
    taken, read = 0, None
    for _, block in blocks(folder, position, ceiling, skip_damaged):
        count = block.count - skip
        each = block.length / max(block.count, 1)  # the packets of a block may differ
        fit = min(count, rows - taken, max(int(size // each), not taken) if each else count)
        if fit < count:
            read = block if fit else read
            return offsets.offset(folder, block.position, skip + fit, read, start), taken + fit
        taken, size = taken + count, size - count * each
        position, skip, read = block.end, 0, block
    return offsets.offset(folder, max(position, ceiling), 0, read, start), taken


def split(folder, start, stop, parts, skip_damaged=False):
    """Cut [start, stop) at block boundaries into at most `parts` SpoolRanges of like size."""
    (position, skip), (end, end_skip) = start[:2], stop[:2]
    found = blocks(folder, position, end, skip_damaged)
    listed = [(b.position, b.count) for _, b in found]
    share = max(PART_ROWS, sum(count for _, count in listed) // parts)
    cuts, held = [], 0
    for at, count in listed:
        if held >= share and len(cuts) < parts - 1:
            cuts.append(at)
            held = 0
        held += count
    edges = [(position, skip), *((at, 0) for at in cuts), (end, end_skip)]
    key = spooling.spool_id(folder)
    return [SpoolRange(key, str(folder), *a, *b) for a, b in zip(edges, edges[1:])]


def _batch(key, held, large):
    """One Arrow record batch of some (Block, body, first, last): packets [first, last) of each.
    key: the spool's id;   large: the folder for large payloads, or None"""
    import pyarrow as pa

    parts, offsets, received, at = [], [], [], 0
    for block, body, first, last in held:
        frames = wire.frames(body).part(slice(first, last))
        parts.append(frames.moved(at))
        offsets.append(frames.start + (block.position + BLOCK.size))
        received.append(np.full(len(frames), min(block.received, LATEST_US)))
        at += len(body)
    raw = np.frombuffer(b"".join(body for _, body, _, _ in held), np.uint8)
    frames, places = wire.joined(parts), np.concatenate(offsets)
    arrays = [
        _topics(slices(raw, frames.topic, frames.topic_end)),
        _payloads(raw, frames, places, large and Path(large, key)),
        pa.array(frames.qos.astype(np.int32)),
        pa.array(frames.head & 1 != 0),
        pa.array(frames.head & 8 != 0),
        pa.array(frames.packet_ids(raw), mask=frames.qos == 0),
        pa.array(np.concatenate(received)).cast(pa.timestamp("us", tz="UTC")),
        pa.repeat(key, len(frames)),
        pa.array(places),
    ]
    return pa.RecordBatch.from_arrays(arrays, [column.split()[0] for column in SCHEMA.split(",")])


def _payloads(raw, frames, places, large):
    """The payloads as Arrow array; one that is too large goes to the file `large`-PLACE.bin, and
    is null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kept = (frames.end - frames.payload <= LARGE) | (large is None)
    found = slices(raw, frames.payload, np.where(kept, frames.end, frames.payload))
    if kept.all():
        return found
    files.make_folder(large.parent)
    for n in np.flatnonzero(~kept):
        data = raw[frames.payload[n] : frames.end[n]].tobytes()
        files.replace_file(large.with_name(f"{large.name}-{places[n]}.bin"), data)
    return pc.if_else(pa.array(kept), found, pa.scalar(None, found.type))


def _topics(raw):
    """Topics as text; bytes that are no UTF-8, which no broker should let through, as U+FFFD."""
    import pyarrow as pa

    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        names = [name.decode("utf-8", "replace") for name in raw.to_pylist()]
        return pa.array(names, pa.string())


def read_range(part, skip_damaged, large=None):
    """Arrow record batches of one SpoolRange; large: the folder for large payloads."""
    held, rows, size = [], 0, 0
    # A stop inside a block needs that block, too: ask for one byte more.
    stop = part.stop + (1 if part.stop_skip else 0)
    for reader, block in blocks(part.folder, part.position, stop, skip_damaged):
        body = reader.body(block)
        first = part.skip if block.position == part.position else 0
        last = part.stop_skip if block.position == part.stop else block.count
        held.append((block, body, first, last))
        rows += last - first
        size += len(body)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _batch(part.id, held, large)
            held, rows, size = [], 0, 0
    if rows:
        yield _batch(part.id, held, large)


class MqttSource(DataSource):
    """Register it with `spark.dataSource.register(MqttSource)`."""

    @classmethod
    def name(cls):
        return "mqtt"

    def schema(self):
        return SCHEMA

    def reader(self, schema):
        options = Options(self.options)
        if options.broker is not None:
            raise ValueError("option broker: it is for streams; a batch reads what is spooled")
        return SpoolReader(options)

    def streamReader(self, schema):  # noqa: N802 (the API's name)
        return SpoolStreamReader(Options(self.options))


def by_id(folders):
    """{id: folder} of spools. Raises SpoolError where there is none, and for two with one id: a
    copy has the same readings at the same positions."""
    found = {}
    for folder in folders:
        key = spooling.spool_id(folder)
        if key in found:
            raise SpoolError(f"{found[key]} and {folder} are copies of one spool (both have the "
                             f"id {key}): name one of them")  # fmt: skip
        found[key] = folder
    return found


def covered(folder, end, position, skip):
    """Look whether a spool that is durable up to `end` has all up to `position`, where a query
    goes on. Raises SpoolError; with skip it is logged: nothing of it is read up to there."""
    try:
        spooling.covering(folder, end, position, skip)
    except SpoolError as error:
        raise SpoolError(f"{error}. {offsets.COPY}")
    listed = spooling.segments(folder)
    if listed and listed[-1].base + listed[-1].size() < position:
        files.tell_once(f"{folder}: it ends before position {position}, nothing of it is "
                              f"read until it is longer. {offsets.COPY}")  # fmt: skip


class SpoolReader(DataSourceReader):
    """Batch read: all that is durable when the query is planned."""

    def __init__(self, options):
        self.options = options

    def partitions(self):
        found = []
        for folder in by_id(self.options.folders).values():
            begin, end = spooling.extent(folder, self.options.skip_damaged)
            if end > begin:
                found += split(folder, [begin, 0], [end, 0], self.options.partitions,
                               self.options.skip_damaged)  # fmt: skip
        return found

    def read(self, partition):
        if isinstance(partition, SpoolRange):  # Spark makes a partition of its own for none
            yield from read_range(partition, self.options.skip_damaged, self.options.large)


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches; one object per query lives in the driver's planner process."""

    def __init__(self, options):
        self.options = options
        self._target = None  # the end for available-now
        self._bridge = None

    def _spools(self):
        if self.options.broker:
            if self._bridge is None:
                given = self.options
                self._bridge = embedded.Embedded(given.broker, given.folders[0], given.topics)
            self._bridge.ensure()
        return by_id(self.options.folders)

    @staticmethod
    def _begin(folder):
        return [spooling.begin(folder), 0]

    def _ends(self):
        skip = self.options.skip_damaged
        return {key: spooling.extent(folder, skip)[1] for key, folder in self._spools().items()}

    def initialOffset(self):  # noqa: N802
        start = {key: self._begin(folder) for key, folder in self._spools().items()}
        if self.options.consumer is not None:
            for key, folder in self._spools().items():
                consumers.register(folder, self.options.consumer, start[key][0])
        return start

    def getDefaultReadLimit(self):  # noqa: N802
        return ReadMaxRows(self.options.rows) if self.options.rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self):  # noqa: N802
        self._target = self._ends()

    def latestOffset(self, start, limit):  # noqa: N802
        if self.options.stop_file and Path(self.options.stop_file).exists():
            return start
        spools, skip = self._spools(), self.options.skip_damaged
        ends = self._target or self._ends()
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else math.inf
        reached = dict(start)
        for key, folder in spools.items():
            at = list(start.get(key) or self._begin(folder))
            offsets.check(folder, at)
            end = ends.get(key, 0)
            if end <= at[0]:
                # After a power cut `durable` may be behind what was read; the segments are not.
                covered(folder, end, at[0], skip)
                reached[key] = at
            else:
                reached[key], taken = at, 0
                if left:
                    reached[key], taken = advance(folder, at, end, left, skip,
                                                  self.options.bytes / len(spools))  # fmt: skip
                left -= taken
        return reached

    def reportLatestOffset(self):  # noqa: N802
        return {key: [end, 0] for key, end in self._ends().items()}

    def partitions(self, start, end):
        folders = self._spools()
        found = []
        for key, stop in end.items():
            folder = folders.get(key)
            begin = start.get(key) or (self._begin(folder) if folder else None)
            if begin == stop:
                continue
            if folder is None:
                raise SpoolError(f"the spool {key} is gone, but its packets up to position "
                                 f"{stop[0]} are not yet in the tables: put it back. If it was "
                                 f"salvaged into a new one: {offsets.CURE}")  # fmt: skip
            offsets.check(folder, begin)
            offsets.check(folder, stop)
            found += split(folder, begin, stop, self.options.partitions,
                           self.options.skip_damaged)  # fmt: skip
        return found

    def read(self, partition):
        yield from read_range(partition, self.options.skip_damaged, self.options.large)

    def commit(self, end):
        if self.options.consumer is not None:
            for key, folder in self._spools().items():
                if key in end:
                    consumers.advance(folder, self.options.consumer, key, end)

    def stop(self):
        if self._bridge is not None:
            self._bridge.stop()


def register(spark):
    """Make `format("mqtt")` known to a session."""
    spark.dataSource.register(MqttSource)


