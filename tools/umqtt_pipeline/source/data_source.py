"""`format("mqtt")`: a PySpark Data Source that reads spools, as a stream or as a batch.

Knows the spool's files and PySpark's Data Source API. Must not know brokers, payloads or tables.

Options
    path             folder of a spool, or several separated by commas; a relative one is below
                     the folder in which the driver was started. s3://BUCKET/PREFIX: the logs of
                     all bridges that ship there
    maxRowsPerBatch  most rows in one micro-batch (default 200000; 0: no limit)
    maxBytesPerBatch  about the most bytes in one micro-batch (default 128 MiB; 0: no limit); one
                     packet is always taken
    largeFolder      a payload of more than 8 MiB is written to a file of its own in this folder,
                     or to an object below s3://BUCKET/PREFIX, SPOOL-OFFSET-CRC.bin (with its
                     crc32), and is null in its row; without it all payloads are in rows
    numPartitions    tasks that read one micro-batch (default 2)
    consumer         name under which a stream tells the bridge what it is done with (letters,
                     digits, - and _); without it nothing is ever deleted on its account
    checkpoint       the local folder that is the query's checkpointLocation: then the stream
                     releases its last batch, too, as soon as there is nothing new
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
from umqtt_runtime.log_lines import log_to_stderr

from ..spool import consumers, logs, offsets
from ..spool.files import SpoolError, spool_id, tell_once
from ..spool.logs import by_id
from ..spool.objects import IN_PLACE, PLACE, is_place
from . import embedded
from .rows import SCHEMA, read_range

log = logging.getLogger("umqtt.source")

PART_ROWS = 10_000  #: fewer are not worth a task of their own
DEFAULT_ROWS = 200_000
DEFAULT_BYTES = 128 << 20
NO_LIMIT = 1 << 62
OPTIONS = ("path", "maxRowsPerBatch", "maxBytesPerBatch", "numPartitions", "consumer", "broker",
           "topics", "stopFile", "skipDamaged", "largeFolder", "checkpoint")  # fmt: skip


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
        self.large = large and self._place(large)
        self.partitions = self._number(given, "numPartitions", 2, 1)
        self.consumer = given.get("consumer")
        if self.consumer is not None and not consumers.NAME.fullmatch(self.consumer):
            raise ValueError(f"option consumer={self.consumer!r}: letters, digits, - and _ only")
        checkpoint = given.get("checkpoint")
        if checkpoint is not None and "://" in checkpoint:
            raise ValueError(f"option checkpoint={checkpoint!r}: a folder of this computer")
        self.checkpoint = checkpoint and Path(checkpoint).absolute()
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
        found = [Options._place(folder) for folder in folders]
        if len({each if is_place(each) else Path(each).resolve() for each in found}) < len(found):
            raise ValueError(f"option path={path!r}: a spool is named twice")
        return found

    @staticmethod
    def _place(where):
        """A place in an object store, or a folder by its whole name: a partition is read by a
        process that may work in another one."""
        if not is_place(where):
            return str(Path(where).absolute())
        if not PLACE.fullmatch(where):
            raise ValueError(f"{where}: write s3://BUCKET/PREFIX, {IN_PLACE}")
        return where.rstrip("/")

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
    for _, block in logs.blocks(folder, position, ceiling, skip_damaged):
        count = block.count - skip
        each = block.length / max(block.count, 1)  # the packets of a block may differ
        fit = min(count, rows - taken, max(int(size // each), not taken) if each else count)
        if fit < count:
            read = block if fit else read
            return offsets.offset(block.position, skip + fit, read, start), taken + fit
        taken, size = taken + count, size - count * each
        position, skip, read = block.end, 0, block
    return offsets.offset(max(position, ceiling), 0, read, start), taken


def split(folder, start, stop, parts, skip_damaged=False):
    """Cut [start, stop) at block boundaries into at most `parts` SpoolRanges of like size."""
    (position, skip), (end, end_skip) = start[:2], stop[:2]
    found = logs.blocks(folder, position, end, skip_damaged)
    listed = [(b.position, b.count) for _, b in found]
    share = max(PART_ROWS, sum(count for _, count in listed) // parts)
    cuts, held = [], 0
    for at, count in listed:
        if held >= share and len(cuts) < parts - 1:
            cuts.append(at)
            held = 0
        held += count
    edges = [(position, skip), *((at, 0) for at in cuts), (end, end_skip)]
    key = spool_id(folder)
    return [SpoolRange(key, str(folder), *a, *b) for a, b in zip(edges, edges[1:])]


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


class SpoolReader(DataSourceReader):
    """Batch read: all that is durable when the query is planned."""

    def __init__(self, options):
        self.options = options

    def partitions(self):
        found = []
        for folder in by_id(self.options.folders).values():
            begin, end = logs.extent(folder, self.options.skip_damaged)
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
        log_to_stderr()  # a process of its own, in which nobody has said so before
        self.options = options
        self._target = None  # the end for available-now
        self._released = None  # the offset up to which the spools are released
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
        return [logs.begin(folder), 0]

    def _ends(self):
        skip = self.options.skip_damaged
        return {key: logs.extent(folder, skip)[1] for key, folder in self._spools().items()}

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
                logs.covered(folder, end, at[0], skip, offsets.COPY)
                reached[key] = at
            else:
                reached[key], taken = at, 0
                if left:
                    reached[key], taken = advance(folder, at, end, left, skip,
                                                  self.options.bytes / len(spools))  # fmt: skip
                left -= taken
        if reached == start:
            self._release(spools, start)
        return reached

    def _release(self, spools, start):
        """Release what the query has committed, up to `start`. Spark says `commit` for its last
        batch when another one begins: a bridge whose spool is full would wait for that, and the
        query for the bridge. No bridge waits for room in an object store, but others read there
        what is shipped (bridge/far_peers.py), and need some time for it."""
        options = self.options
        here = [folder for folder in spools.values() if not is_place(folder)]
        if not (here and options.consumer and options.checkpoint) or start == self._released:
            return
        if not (options.checkpoint / "metadata").exists():
            raise ValueError(f"option checkpoint: {options.checkpoint} is not the folder of this "
                             "query's checkpointLocation")  # fmt: skip
        try:
            consumers.finish(options.checkpoint, here, options.consumer)
            self._released = start
        except OSError as error:  # of a full disk, for instance: tried again at the next trigger
            tell_once(f"the spool is not released now, but later: {error}")

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
            found += self._split(folder, begin, stop)
        return found

    def _split(self, folder, begin, stop):
        skip = self.options.skip_damaged
        # Spark asks for its last batch once more when it starts: a copy may end before that.
        if not is_place(folder) and (end := logs.extent(folder, skip)[1]) < stop[0]:
            logs.covered(folder, end, stop[0], skip, offsets.COPY)
        return split(folder, begin, stop, self.options.partitions, skip)

    def read(self, partition):
        yield from read_range(partition, self.options.skip_damaged, self.options.large)

    def commit(self, end):
        if self.options.consumer is not None:
            for key, folder in self._spools().items():
                if key in end:
                    logs.advance(folder, self.options.consumer, key, end)

    def stop(self):
        if self._bridge is not None:
            self._bridge.stop()


def register(spark):
    """Make `format("mqtt")` known to a session."""
    spark.dataSource.register(MqttSource)


