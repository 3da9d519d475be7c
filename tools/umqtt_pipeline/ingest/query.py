"""The streaming query from a spool to bronze, silver, clock, duplicates and quarantine.

Knows the order in which a batch is worked on, and what Spark is asked to do. Must not know how a
row is decoded (decode/), what becomes of it (dedup.py) or how it is committed (ledger.py,
tables/store.py).

The work of a batch is a function of the spool between two offsets and of what the batch before it
left: the tables and the state. Nothing that is there is changed until the batch is decided, by one
intent; killed before it, the batch is run again, killed after it, the next start makes the commits
that are missing.

    TABLES/_checkpoint/      Spark's own
    TABLES/_state/           ledger.py, state.py
    TABLES/_staging/         files from one step of a batch to the next
"""

import datetime
import json
import logging
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from umqtt_runtime import failures, progress

from ..decode.own import NO_DECODERS
from ..decode.signed import NO_KEYS
from ..source import data_source as source
from ..source import jetstream
from ..spool import consumers, logs
from ..spool.files import SpoolError, tell_once
from ..tables import compaction, quarantine
from ..tables.lock import InUse, Lock
from ..tables.schema import ALL, BATCHES, PARTITION, STATE, arrow_schema
from ..tables.schema import TABLES as COLUMNS
from ..tables.storage import is_object_store
from ..tables.store import Tables, file_of, written
from . import agreement, batch_tasks, bronze, checkpoint, metrics, state
from .ledger import Ledger, ready

__all__ = ["COLUMNS", "InUse", "Ingest", "Ledger", "Lock", "Runner", "ready"]

log = logging.getLogger("umqtt.ingest")

END_S = 600  #: how long a batch, with a compaction, may take to end when ingest is stopped
END_KAFKA_S = 60  #: the same with Kafka, which does not know that its batch is to be the last
#: Spark's words for a Python that has not started in time. It is a limit of its own, without an
#: option (PythonWorkerFactory.createSimpleWorker), so that another try is all there is.
LATE_PYTHON = "Python worker failed to connect back"
LATE_TRIES = 30  #: in a row; they are no failures of the query
FEW_ROWS = 25_000  #: readings for which one task, and one file of a table, will do
MOST_REASONS = 3  #: of what a batch refused, that are told


class Batch:
    """The work of one batch in Spark: files that were written, and what was told of them.

    work: batch_tasks.Work;   watch: a progress.Watch, or what has its `name` and `doing`
    """

    def __init__(self, spark, work, watch):
        self.spark, self.work, self.watch = spark, work, watch
        self.told = []

    def run(self, df, stage):
        """Have a stage of batch_tasks.py work on the rows of `df`."""
        self.told += df.mapInArrow(stage, batch_tasks.RESULT).collect()

    def of(self, kind):
        return [row for row in self.told if row["kind"] == kind]

    def names(self, kind):
        return [row["name"] for row in self.of(kind)]

    def files(self, kind):
        """The Files of a table that were written, by name."""
        found = (file_of(row) for row in self.of(kind) if row["path"])
        return sorted(found, key=lambda file: file.path)

    def rows(self, kind):
        return sum(row["rows"] for row in self.of(kind))

    def receive(self, rows, places, decoders, keys):
        """Bronze rows to files of readings, quarantine and, unless places is None, bronze."""
        self.watch.doing("receiving")
        self.run(rows, batch_tasks.Receive(self.work, places, decoders, keys))

    def settle(self, held):
        """Readings to files of the tables behind bronze and of the state; held: that before."""
        found = {}
        for row in self.of(batch_tasks.READ):
            found.setdefault(row["bucket"], []).append(row["name"])
        if found:
            self.watch.doing(f"settling {self.rows(batch_tasks.READ)} readings")
            buckets = self.work.buckets
            tasks = buckets if self.rows(batch_tasks.READ) > FEW_ROWS else 1
            stage = batch_tasks.Settle(self.work, found, held)
            self.run(self.spark.range(0, buckets, 1, tasks), stage)

    def correct(self, tables):
        """Give readings of earlier batches their time when the clock of their boot has come.
        Returns (Files that come in their place, those of silver that go)."""
        due = self.names(batch_tasks.DUE)
        if not due:
            return [], []
        first, last = batch_tasks.span(self.work.storage, due)
        within = [file for file in tables.files("silver")
                  if file.told.least.get("batch", first) <= last
                  and first <= file.told.greatest.get("batch", last)]  # fmt: skip
        paths = self.spark.createDataFrame([(file.path,) for file in within], "path string")
        self.run(paths.repartition(self.work.buckets), batch_tasks.Correct(self.work, due))
        gone = set(self.names(batch_tasks.CORRECTED))
        log.info("a clock came late: times made anew in %d files", len(gone))
        return self.files(batch_tasks.CORRECTED), [f for f in within if f.path in gone]

    def check(self):
        """Raises SpoolError unless every packet has its place: before anything is decided."""
        counts = self.counts()
        placed = sum(counts[fate] for fate in ("new", "duplicate", "quarantine", "other"))
        if placed != counts["rows"]:
            raise SpoolError(f"batch {self.work.number}: of {counts['rows']} packets {placed} "
                             "have a place: nothing of it is in the tables")  # fmt: skip

    def places(self, before):
        """{spool: highest offset} after this batch."""
        found = dict(before)
        for row in self.of(batch_tasks.PLACE):
            found[row["name"]] = max(found.get(row["name"], -1), row["rows"])
        return found

    def counts(self):
        told = {name: self.rows(kind) for name, kind in (
            ("new", batch_tasks.NEW), ("duplicate", batch_tasks.COPIES),
            ("quarantine", "quarantine"), ("other", batch_tasks.OTHER),
            ("clocks", batch_tasks.CLOCKS), ("known", batch_tasks.KNOWN))}  # fmt: skip
        return {"rows": self.rows("bronze"), **told}


class Ingest:
    """What the streaming query does with each batch; `on_batch` gets a dict of its counts.

    compact_files: when a table's day has so many small files, they are joined after a batch (None:
    never). decoders: of one's own. keys: of the devices that sign. local: a folder of this machine
    for what only it needs, Spark's checkpoint among it; by default that of the tables.
    """

    def __init__(self, spark, root, on_batch=None, compact_files=None, decoders=NO_DECODERS,
                 local=None, keys=NO_KEYS):  # fmt: skip
        self.spark, self.decoders, self.keys = spark, decoders, keys
        self.tables = Tables(root, ALL)
        self.ledger = Ledger(self.tables)
        self.ledger.recover()
        self.local = Path(local or self.tables.storage.root)
        self.checkpoint = self.local / "_checkpoint"
        self.on_batch = on_batch or (lambda counts: None)
        self.compact_files = compact_files
        self.begun = threading.Event()  # a batch
        self.stopping = False  # no more is begun than the batch that runs

    def _query(self, batch):
        """What a batch of the query of this checkpoint is known by: the query's id, the batch's
        number there, and up to where it reads."""
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        try:
            end = (self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2:]
        except FileNotFoundError:
            end = None
        return {"id": query, "batch": batch, "end": end}

    def __call__(self, df, batch):
        """Run one batch; may be run again for the same number at any time."""
        begun = time.monotonic()
        self.begun.set()
        self.ledger.finish()
        query = self._query(batch)
        if self.ledger.last["query"] == query:
            return
        counts = self.work(bronze.bronze(df), query=query)
        number = self.ledger.last["number"]
        counts.update(batch=number, seconds=round(time.monotonic() - begun, 2))
        log.info("batch %(batch)d: %(rows)d messages: %(new)d new, %(duplicate)d duplicates, "
                 "%(quarantine)d quarantined, %(other)d other; %(seconds)s s", counts)  # fmt: skip
        if counts["known"]:
            log.info("batch %d: %d messages more were in bronze already", number, counts["known"])
        if self.compact_files and not self.stopping:
            with progress.Watch(self.spark, f"after batch {number}") as watch:
                watch.doing("joining small files")
                compaction.run(self.spark, self.tables, self.ledger, self.compact_files)
        self.on_batch(counts)

    def work(self, rows, **more):
        """Decide and commit a batch of bronze rows; returns its counts. more: for the intent."""
        return self._worked(rows, "batch", self.ledger.last["places"], **more)

    def replay(self):
        """Decode again what is in quarantine; returns counts. What is still no reading stays, with
        the reason that it has now."""
        rows = self.tables.read(self.spark, "quarantine")
        before = (F.col(name).alias(alias) for alias, name in batch_tasks.BEFORE.items())
        return self._worked(rows.select(*bronze.COLUMNS, *before), "replay", None)

    def _worked(self, rows, kind, places, **more):
        number = self.ledger.next()
        work = batch_tasks.Work(self.tables.storage, self.tables.staging(), number,
                                self._buckets(), state.LITTLE)  # fmt: skip
        with progress.Watch(self.spark, f"batch {number}") as watch:
            batch = Batch(self.spark, work, watch)
            refused = self.tables.files("quarantine") if kind == "replay" else []
            try:
                self.keys.refresh()
                batch.receive(rows, places, self.decoders, self.keys)
                batch.settle(self.ledger.last["state"])
                watch.doing("committing")
                batch.check()
                self._decide(batch, kind, refused, more)
            except Exception:
                self.ledger.forget_undecided()
                raise
            finally:
                self.tables.storage.remove(work.folder)
        if kind == "batch":
            self._tell_refused(batch)
        return batch.counts()

    def _decide(self, batch, kind, refused, more):
        """The instant from which on the batch is a fact, and its commits."""
        corrected, gone = batch.correct(self.tables)
        changes = {name: (batch.files(name), []) for name in COLUMNS if batch.files(name)}
        if corrected:
            changes["silver"] = (batch.files("silver") + corrected, gone)
        if refused:
            changes["quarantine"] = (batch.files("quarantine"), refused)
        changes["batches"] = ([self._row(batch)], [])
        made = [(part, name) for part in STATE for name in batch.names(part)]
        now = state.after(self.ledger.last["state"], made, batch.names(batch_tasks.FORGOTTEN))
        places = batch.places(self.ledger.last["places"])
        old = self.ledger.decide(kind, changes, state=now, places=places, **more)
        self.ledger.finish()
        state.forget(self.tables.storage, old["state"], now)

    def _row(self, batch):
        """The File with the row of `batches`: when all rows of a batch were in the tables."""
        now = datetime.datetime.now(datetime.UTC)
        columns = {name: kind for name, kind in BATCHES.items() if name != PARTITION}
        number = batch.work.number
        row = {"batch": number, "rows": batch.rows("bronze"), "readings": batch.rows("silver"),
               "committed_at": now}  # fmt: skip
        table = pa.Table.from_pylist([row], arrow_schema(columns))
        return written(self.tables.storage, "batches", number, str(now.date()), table)

    def _tell_refused(self, batch):
        """Say what no decoder took: a device that is not understood must not look like none."""
        names = (f"quarantine/{file.path}" for file in batch.files("quarantine"))
        wrong = quarantine.examples(self.tables.storage.read_parquet(
            name, columns=["topic", "reason"]) for name in names)  # fmt: skip
        if wrong:
            plain = quarantine.plain
            kinds = "; ".join(f"{count}: {plain(reason)} (such as {plain(topic)})"
                              for reason, count, topic in wrong[:MOST_REASONS])  # fmt: skip
            more = "; and others" if len(wrong) > MOST_REASONS else ""
            log.warning("batch %d: messages that are no readings, by reason: %s%s; to see them: "
                        "umqtt-pipeline quarantine --tables %s", batch.work.number, kinds, more,
                        self.tables.storage.root)  # fmt: skip

    def _buckets(self):
        return max(1, self.spark.sparkContext.defaultParallelism)  # it may be set to anything


class Runner:
    """Runs the query until it is done or stopped, and again when it fails.

    spool: folder of a spool, or several separated by commas, or s3://BUCKET/PREFIX, where all
    bridges that ship there have their logs; None with `kafka`, the options of
    Spark's format("kafka"), which then is the source (bronze.from_kafka has what it must hold),
    or with `nats`, nats://HOST:PORT/STREAM of JetStream
    once: take what is there and end; else a batch every `interval` seconds
    rows, size: most messages in a batch, and about the most bytes of them
    patience: failures in a row without a batch between them; late: starts in a row, above those,
    for which Spark's Python comes too late, as it does where a computer has much to do
    skip_damaged: leave out, and log, what of the spool is damaged or missing, or is deleted while
    the tables lack it
    decoders: of one's own; keys: of the devices that sign their readings

    work: with tables in an object store, the folder of Spark's checkpoint and metrics; by default
    beside the first spool, SPOOL.CONSUMER, or CONSUMER.work if that is away, too. It may be lost:
    the tables say how far ingest is.
    """

    def __init__(self, spark, spool, root, once=False, interval=10.0, rows=200_000,
                 consumer="ingest", on_batch=None, patience=4, compact_files=None,
                 kafka=None, skip_damaged=False, size=source.DEFAULT_BYTES,
                 decoders=NO_DECODERS, keys=NO_KEYS, work=None, nats=None,
                 late=LATE_TRIES):  # fmt: skip
        source.register(spark)
        self.spark, self.once, self.interval = spark, once, interval
        self.kafka, self.nats, self.consumer = kafka, nats, consumer
        self.folders = [part.strip() for part in spool.split(",")] if spool else []
        self.skip_damaged = skip_damaged
        away = is_object_store(root)
        local = (work or self._beside(consumer)) if away else None
        self.ingest = Ingest(spark, root, self._batch, compact_files, decoders, local, keys)
        self.options = {"path": spool, "maxRowsPerBatch": str(rows), "consumer": consumer,
                        "maxBytesPerBatch": str(size), "skipDamaged": str(skip_damaged),
                        "checkpoint": str(self.ingest.checkpoint),
                        "largeFolder": f"{root if away else self.ingest.local}/_large"}
        self.ingest.tables.clean()
        self._last = self.ingest.local / "_state" / "stop"
        self._last.parent.mkdir(parents=True, exist_ok=True)
        self._last.unlink(missing_ok=True)  # of one that was killed when it had been told to end
        self.options["stopFile"] = str(self._last)
        self._told, self._left, self.patience = on_batch, patience, patience
        self._late, self.late = 0, late
        self._stopping = False

    def _beside(self, consumer):
        here = [folder for folder in self.folders[:1] if not is_object_store(folder)]
        return f"{here[0]}.{consumer}" if here else f"{consumer}.work"

    def _batch(self, counts):
        self._left, self._late = self.patience, 0
        self._tell_stored()
        if self._told:
            self._told(counts)

    def _tell_stored(self):
        """Let bridges know how far their spools are in the tables, for their metrics."""
        end = self.ingest.ledger.last["query"]["end"] if self.folders else None
        try:
            for folder in (each for each in self.folders if end and not is_object_store(each)):
                consumers.stored(folder, self.consumer, json.loads(end[0]))
        except (OSError, ValueError, SpoolError) as error:
            tell_once(f"the bridge does not know what is stored: {error}")

    def stop(self):
        """End after the batch that runs; may be called from a signal handler, and by on_batch."""
        self._stopping = self.ingest.stopping = True
        try:
            self._last.touch()
        except OSError as error:
            log.warning("%s: %s: further batches may be begun", self._last, error)

    def _release(self):
        """Have the spools freed of what is in the tables for good; while no query runs."""
        try:
            spools = logs.spools(self.folders)
            consumers.finish(self.ingest.checkpoint, spools, self.consumer)
            for spool in spools:
                logs.trim(spool)
        except (OSError, ValueError, SpoolError) as error:
            # Once: if it is the reason why the query fails, that is said, too.
            tell_once(f"the spool is not released now, but with a later batch: {error}")

    def _start(self):
        self.ingest.ledger.recover()
        checkpoint.tidy(self.ingest.checkpoint)
        self._release()  # what a run that was killed had done
        if self.kafka:
            held = self.spark.readStream.format("kafka").options(**self.kafka).load()
            frame = bronze.from_kafka(held)
        elif self.nats:
            jetstream.register(self.spark)
            given = ("maxRowsPerBatch", "maxBytesPerBatch", "skipDamaged", "stopFile")
            named = {"path": self.nats, **{name: self.options[name] for name in given}}
            frame = self.spark.readStream.format("jetstream").options(**named).load()
        else:
            frame = self.spark.readStream.format("mqtt").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self.ingest).queryName("ingest")
        writer = writer.option("checkpointLocation", str(self.ingest.checkpoint))
        if self.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{int(self.interval * 1000)} milliseconds").start()

    def run(self):
        """Raises StreamingQueryException when it keeps failing, SpoolError when the tables are
        not those that it has written: at once, and nothing more is written."""
        if self.folders:
            agreement.reach(self.ingest, self.consumer, self.folders, self.skip_damaged)
        listener = metrics.Progress(self.ingest.local, "ingest")
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
        source = "Kafka" if self.kafka else self.nats or ", ".join(self.folders)
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
                    self.ingest.ledger.check_place()
                if self.once:
                    return
            except StreamingQueryException as error:
                if self._stopping:
                    self._told_unfinished(error)
                    return
                self._failed(error)
                time.sleep(1)

    def _failed(self, error):
        """Tell why the query is started again. Raises the error when it is to be given up."""
        if LATE_PYTHON in str(error) and self._late < self.late:
            self._late += 1
            log.warning("Spark's Python was not there within the 10 s that Spark waits for it: "
                        "this computer has much to do; try %d of %d", self._late + 1,
                        self.late + 1)  # fmt: skip
            return
        self._left -= 1
        if self._left <= 0:
            raise error
        log.warning("the query failed and is started again: %s", failures.why(str(error)))

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
