"""The streaming query from a spool to bronze, silver, clock, duplicates and quarantine.

Knows the order in which a batch's files are put in place, and what Spark is asked to do. Must not
know how a row is decoded (decode/, silver/), what becomes of it (dedup.py) or how files are placed
(tables/store.py).

Every batch has a number. Its work is a function of the spool between two offsets and of the state
that the batch before left, and the state of batch N is the last thing written: killed anywhere,
batch N is run again from the state of N-1 and replaces its own files; if the state of N is there,
nothing is left to do.

    TABLES/_checkpoint/      Spark's own
    TABLES/_state/           state.py
    TABLES/_staging/         files on their way
"""

import datetime
import json
import logging
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from umqtt_runtime import failures, progress
from umqtt_runtime.files import reader

from .. import silver
from ..source import data_source as source
from ..spool import consumers
from ..spool.files import SpoolError, tell_once
from ..tables import compaction, quarantine
from ..tables.lock import InUse, Lock
from ..tables.schema import ALL, BATCHES
from ..tables.schema import TABLES as COLUMNS
from ..tables.store import PARTITION, Tables, arrow_schema, ddl, place
from . import batch_tasks, bronze, checkpoint, metrics
from .state import State, check

__all__ = ["COLUMNS", "InUse", "Ingest", "Lock", "Runner", "State", "check"]

log = logging.getLogger("umqtt.ingest")

END_S = 600  #: how long a batch, with a compaction, may take to end when ingest is stopped
END_KAFKA_S = 60  #: the same with Kafka, which does not know that its batch is to be the last
FEW_ROWS = 25_000  #: readings for which one task, and one file of a table, will do
MOST_REASONS = 3  #: of what a batch refused, that are told
MANY_REST = 10_000  #: packets to be decoded the long way that are told of beforehand


class Batch:
    """The work of one batch in Spark: files below a folder, and what was told of them.

    watch: a progress.Watch, or what has its `name` and `doing`
    """

    def __init__(self, spark, folder, buckets, watch):
        self.spark, self.folder, self.buckets = spark, folder, buckets
        self.watch = watch
        self.told = []

    def run(self, df, stage):
        """Have a stage of batch_tasks.py work on the rows of `df`."""
        self.told += df.mapInArrow(stage, batch_tasks.RESULT).collect()

    def of(self, kind):
        return [row for row in self.told if row["kind"] == kind]

    def rows(self, kind):
        return sum(row["rows"] for row in self.of(kind))

    def receive(self, rows, bronze):
        """Bronze rows to files of readings, quarantine and, if wanted, bronze."""
        own = None
        if silver.registered():
            own = "_own"
            rows = rows.withColumn(own, silver.own(rows))
        self.watch.doing("receiving")
        self.run(rows, batch_tasks.Receive(self.folder, self.buckets, bronze, own))
        rest = [row["path"] for row in self.of(batch_tasks.REST)]
        if rest:
            count = f"{self.rows(batch_tasks.REST)} of {self.rows('bronze')} messages"
            self.watch.doing(f"decoding {count}")
            if self.rows(batch_tasks.REST) >= MANY_REST:
                log.info("%s: %s are JSON, or not as the firmware packs", self.watch.name, count)
            held = reader(self.spark, ddl(COLUMNS["bronze"])).parquet(*rest)
            self.run(silver.decode(held), batch_tasks.Sort(self.folder, self.buckets))

    def settle(self, number, state):
        """Readings to files of the tables behind bronze and of the state."""
        found = {}
        for row in self.of(batch_tasks.READ):
            found.setdefault(row["bucket"], []).append(row["path"])
        if found:
            self.watch.doing(f"settling {self.rows(batch_tasks.READ)} readings")
            tasks = self.buckets if self.rows(batch_tasks.READ) > FEW_ROWS else 1
            stage = batch_tasks.Settle(self.folder, self.buckets, number, found, state)
            self.run(self.spark.range(0, self.buckets, 1, tasks), stage)

    def check(self, number):
        """Raises SpoolError unless every packet has its place: before anything is in a table."""
        counts = self.counts()
        placed = sum(counts[fate] for fate in ("new", "duplicate", "quarantine", "other"))
        if placed != counts["rows"]:
            raise SpoolError(f"batch {number}: of {counts['rows']} packets {placed} have a place: "
                             "nothing of it is in the tables")  # fmt: skip

    def counts(self):
        told = {name: self.rows(kind) for name, kind in (
            ("new", batch_tasks.NEW), ("duplicate", batch_tasks.COPIES),
            ("quarantine", "quarantine"), ("other", batch_tasks.OTHER),
            ("clocks", batch_tasks.CLOCKS))}  # fmt: skip
        return {"rows": self.rows("bronze"), **told}


def _rows(paths, columns):
    """The rows of Parquet files as a set of tuples."""
    found = set()
    for path in paths:
        held = pq.ParquetFile(path).read(columns).to_pydict()
        found.update(zip(*(held[name] for name in columns)))
    return found


class Ingest:
    """What the streaming query does with each batch; `on_batch` gets a dict of its counts.

    compact_files: when a table's day has so many small files, they are joined after a batch (None:
    never).
    """

    def __init__(self, spark, root, on_batch=None, compact_files=None):
        self.spark = spark
        self.tables = Tables(root, ALL)
        self.state = State(self.tables)
        self.checkpoint = self.tables.root / "_checkpoint"
        self.on_batch = on_batch or (lambda counts: None)
        self.compact_files = compact_files
        self.begun = threading.Event()  # a batch
        self._first = True  # batch since this program was started

    def _query(self):
        """The id that Spark gave the query of this checkpoint."""
        return json.loads((self.checkpoint / "metadata").read_text())["id"]

    def __call__(self, df, batch):
        """Run one batch; may be run again for the same number at any time."""
        begun = time.monotonic()
        self.begun.set()
        if self.state.replaying() is not None:
            raise SpoolError(f"{self.tables.root}: a replay of the quarantine was interrupted; "
                             "run `umqtt-pipeline replay` first")
        number = self.state.number(self._query(), batch, self._newest)
        if self.state.done(number):
            return
        rows = self._left_to_do(bronze.bronze(df), number)
        counts = self.work(rows, number)
        counts.update(batch=number, seconds=round(time.monotonic() - begun, 2))
        log.info("batch %(batch)d: %(rows)d messages: %(new)d new, %(duplicate)d duplicates, "
                 "%(quarantine)d quarantined, %(other)d other; %(seconds)s s", counts)  # fmt: skip
        if self.compact_files:
            with progress.Watch(self.spark, f"after batch {number}") as watch:
                watch.doing("joining small files")
                compaction.run(self.spark, self.tables, self.state.last(), self.compact_files)
        self.on_batch(counts)

    def _newest(self):
        """Time of receipt (unix us) of the last packet in bronze, or None."""
        rows = self.tables.read(self.spark, "bronze")
        return rows.agg(F.unix_micros(F.max("received_at"))).first()[0]

    def _left_to_do(self, rows, number):
        """A batch's bronze rows without those that an earlier batch has: a query that begins anew
        reads the whole spool again. A packet is known by its place and time; the rest tells two
        spools apart."""
        until = self.state.again()
        if until is None:
            return rows
        time = F.unix_micros("received_at")
        first, last = rows.agg(F.min(time), F.max(time)).first()
        if first is None or first > until:
            return rows
        log.info("Spark's checkpoint is new: what bronze has already is left out")
        paths = [p for p in self.tables.files("bronze") if self.tables.span(p)[1] < number]
        same = ["offset", "received_at", "topic", "payload"]
        begin, end = (F.timestamp_micros(F.lit(at)) for at in (first, last))
        held = self.tables.read(self.spark, "bronze", paths).select(*same)
        return rows.join(held.where(F.col("received_at").between(begin, end)), same, "left_anti"
                         ).select(*bronze.COLUMNS)  # fmt: skip

    def work(self, rows, number, before_end=None):
        """Bronze rows into the tables, and the state of batch `number`; returns counts.

        before_end(told): for rows that are in a table already: they are not written to bronze or
        quarantine; what else belongs to the batch is done by it, before the state. told has
        offset, received_at, fate ("quarantine" or "settled") and reason of each of the rows.
        """
        with progress.Watch(self.spark, f"batch {number}") as watch:
            return self._work(rows, number, before_end, watch)

    def _work(self, rows, number, before_end, watch):
        state = self.state.files(number)
        batch = Batch(self.spark, self.tables.staging(), self._buckets(), watch)
        try:
            batch.receive(rows, before_end is None)
            batch.settle(number, state)
            watch.doing("putting files in place")
            batch.check(number)
            if before_end is None:
                self._keep_what_is_there(batch, number)
            self._correct(batch)
            wrong = quarantine.examples(row["path"] for row in batch.of("quarantine"))
            self._put(batch, number, before_end is None)
            if before_end is not None:
                before_end(self._fates(batch, rows))
            self._commit(batch, number)
            self.state.write(number, [(part, row["bucket"], batch.buckets, Path(row["path"]))
                                      for part in state for row in batch.of(part)])
        finally:
            shutil.rmtree(batch.folder, ignore_errors=True)
        if before_end is None:
            self._tell_refused(number, wrong)
        return batch.counts()

    def _tell_refused(self, number, wrong):
        """Say what no decoder took: a device that is not understood must not look like none."""
        if wrong:
            plain = quarantine.plain
            kinds = "; ".join(f"{count}: {plain(reason)} (such as {plain(topic)})"
                              for reason, count, topic in wrong[:MOST_REASONS])  # fmt: skip
            more = "; and others" if len(wrong) > MOST_REASONS else ""
            log.warning("batch %d: messages that are no readings, by reason: %s%s; to see them: "
                        "umqtt-pipeline quarantine --tables %s", number, kinds, more,
                        self.tables.root)  # fmt: skip

    def _buckets(self):
        return max(1, self.spark.sparkContext.defaultParallelism)  # it may be set to anything

    def _keep_what_is_there(self, batch, number):
        """Raises SpoolError unless a batch that is run again brings all that the interrupted run
        has left: else it is another batch, and its files must not replace those."""
        if not self._first:
            return
        self._first = False
        rows = ["offset", "received_at"]
        paths = [p for p in self.tables.files("bronze") if self.tables.span(p)[1] >= number]
        held, new = (_rows(found, rows) for found in (
            paths, [row["path"] for row in batch.of("bronze")]))  # fmt: skip
        if held - new:
            raise SpoolError(
                f"bronze has {len(held - new)} messages of batch {number} that the spool does not "
                f"give again: {self.state.root} is from before that batch. Put back the one that "
                "belongs to these tables, or begin in another folder (--tables)")  # fmt: skip

    def _put(self, batch, number, whole):
        """Put the files of a batch into the tables. whole: all of them are the batch's own."""
        for name in COLUMNS:
            if whole or name not in ("bronze", "quarantine"):
                files = [(row["folder"], Path(row["path"])) for row in batch.of(name)]
                self.tables.put(name, number, sorted(files))

    def _commit(self, batch, number):
        """Write down when all rows of a batch were in the tables; a batch that is run again for
        want of its state replaces that."""
        now = datetime.datetime.now(datetime.UTC)
        columns = {name: kind for name, kind in BATCHES.items() if name != PARTITION}
        row = {"batch": number, "rows": batch.rows("bronze"), "readings": batch.rows("silver"),
               "committed_at": now}  # fmt: skip
        staged = Path(batch.folder, "batches.parquet")
        pq.write_table(pa.Table.from_pylist([row], arrow_schema(columns)), staged)
        self.tables.put("batches", number, [(f"{PARTITION}={now.date()}", staged)])

    def _fates(self, batch, rows):
        known = ["offset", "received_at"]
        wrong = self.spark.createDataFrame([], ddl(COLUMNS["quarantine"]))
        paths = [row["path"] for row in batch.of("quarantine")]
        if paths:
            wrong = reader(self.spark, wrong.schema).parquet(*paths)
        joined = rows.select(*known).join(wrong.select(*known, "reason"), known, "left")
        settled = F.when(F.col("reason").isNull(), "settled").otherwise("quarantine")
        return joined.withColumn("fate", settled)

    def _correct(self, batch):
        """Give readings of earlier batches their time when the clock of their boot has come: their
        files are replaced one by one, by one rename each, so it may be repeated."""
        due = [row["path"] for row in batch.of(batch_tasks.DUE)]
        if not due:
            return
        first, last = batch_tasks.span(due)
        spans = ((path, *self.tables.span(path)) for path in self.tables.files("silver"))
        paths = [str(path) for path, low, high in spans
                 if first <= high and low <= last]
        rows = self.spark.createDataFrame([(path,) for path in paths], "path string")
        again = Batch(self.spark, batch.folder, batch.buckets, batch.watch)
        again.run(rows.repartition(batch.buckets), batch_tasks.Correct(batch.folder, due))
        files = again.of("silver")
        log.info("a clock came late: times made anew in %d files", len(files))
        for row in files:
            place(Path(row["path"]), Path(row["folder"]))


class Runner:
    """Runs the query until it is done or stopped, and again when it fails.

    spool: folder of a spool, or several separated by commas; None with `kafka`, the options of
    Spark's format("kafka"), which then is the source (bronze.from_kafka has what it must hold)
    once: take what is there and end; else a batch every `interval` seconds
    rows: most messages in a batch;   patience: failures in a row without a batch between them
    skip_damaged: leave out, and log, what of the spool is damaged or missing
    """

    def __init__(self, spark, spool, root, once=False, interval=10.0, rows=200_000,
                 consumer="ingest", on_batch=None, patience=4, compact_files=None,
                 kafka=None, skip_damaged=False):  # fmt: skip
        source.register(spark)
        self.spark, self.once, self.interval = spark, once, interval
        self.kafka, self.consumer = kafka, consumer
        self.folders = [] if kafka else [part.strip() for part in spool.split(",")]
        self.options = {"path": spool, "maxRowsPerBatch": str(rows), "consumer": consumer,
                        "skipDamaged": str(skip_damaged)}  # fmt: skip
        self.ingest = Ingest(spark, root, self._batch, compact_files)
        self.ingest.tables.clean()
        self._last = self.ingest.state.root / "stop"
        self._last.unlink(missing_ok=True)  # of one that was killed when it had been told to end
        self.options["stopFile"] = str(self._last)
        self._told, self._left, self.patience = on_batch, patience, patience
        self._stopping = False

    def _batch(self, counts):
        self._left = self.patience
        if self._told:
            self._told(counts)

    def stop(self):
        """End after the batch that runs; may be called from a signal handler, and by on_batch."""
        self._stopping = True
        try:
            self._last.touch()
        except OSError as error:
            log.warning("%s: %s: further batches may be begun", self._last, error)

    def _release(self):
        """Have the spools freed of what is in the tables for good; while no query runs."""
        try:
            consumers.finish(self.ingest.checkpoint, self.folders, self.consumer)
        except (OSError, ValueError, SpoolError) as error:
            # Once: if it is the reason why the query fails, that is said, too.
            tell_once(f"the spool is not released now, but with a later batch: {error}")

    def _start(self):
        checkpoint.tidy(self.ingest.checkpoint)
        self._release()  # what a run that was killed had done
        if self.kafka:
            held = self.spark.readStream.format("kafka").options(**self.kafka).load()
            frame = bronze.from_kafka(held)
        else:
            frame = self.spark.readStream.format("mqtt").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self.ingest).queryName("ingest")
        writer = writer.option("checkpointLocation", str(self.ingest.checkpoint))
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(self.interval * 1000)} milliseconds").start()

    def run(self):
        """Raises StreamingQueryException when it keeps failing."""
        listener = metrics.Progress(self.ingest.tables.root, "ingest")
        self.spark.streams.addListener(listener)
        try:
            self._run()
            self._release()
        finally:
            self.spark.streams.removeListener(listener)
            self._last.unlink(missing_ok=True)

    def _begin(self):
        """Start the query; returns it when it has begun a batch, or has none to do."""
        self.ingest.begun.clear()
        source = "Kafka" if self.kafka else ", ".join(self.folders)
        with progress.Watch(self.spark, "ingest", doing=f"looking for messages in {source}"):
            query = self._start()
            while not (self.ingest.begun.wait(0.1) or self._stopping or not query.isActive):
                if query.lastProgress and not query.status["isTriggerActive"]:
                    log.info("there is no new message in %s: waiting", source)
                    break
        return query

    def _run(self):
        while not self._stopping:
            query = self._begin()
            try:
                while not query.awaitTermination(0.5):
                    if self._stopping:
                        self._end(query)
                        return
                if self.once:
                    return
            except StreamingQueryException as error:
                if self._stopping:
                    self._told_unfinished(error)
                    return
                self._left -= 1
                if self._left <= 0:
                    raise
                log.warning("the query failed and is started again: %s",
                            failures.why(str(error)))
                time.sleep(1)

    def _end(self, query):
        """Let the batch that runs come to its end: stopped in the middle it would be run again."""
        end = time.monotonic() + (END_KAFKA_S if self.kafka else END_S)
        said = False
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < end:
            if not said:
                log.info("told to stop: the batch that runs is brought to its end")
            said = True
            time.sleep(0.1)
        if query.exception() is not None:
            self._told_unfinished(query.exception())
        query.stop()

    def _told_unfinished(self, error):
        log.warning("the batch that ran did not come to its end, and is run again by the next "
                    "ingest: %s", failures.why(str(error)))  # fmt: skip
