"""The streaming query from a spool to bronze, silver, clock, duplicates and quarantine.

Knows the order in which a batch's tables and state are written. Must not know how a row is
decoded (silver.py) or how files are placed (tables.py).

Every batch has a number. Its work is a function of the spool between two offsets and of the state
that the batch before left, and the state of batch N is the last thing written: killed anywhere,
batch N is run again from the state of N-1 and replaces its own files; if the state of N is there,
nothing is left to do.

    TABLES/_checkpoint/      Spark's own
    TABLES/_state/ingest.json    which query counts its batches from which number
    TABLES/_state/N/         seen, clocks, unclocked as Parquet, and manifest.json, which names the
                             folder N' <= N that holds each of them
"""

import fcntl
import json
import logging
import shutil
import time
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from . import bronze, compact, metrics, silver, source
from .spool import SpoolError, replace_file
from .tables import Tables, ddl, place, staged_files

log = logging.getLogger("umqtt.ingest")

COLUMNS = {
    "bronze": bronze.COLUMNS,
    "silver": silver.COLUMNS,
    "quarantine": silver.QUARANTINE,
    "duplicates": silver.DUPLICATES,
    "clock": silver.CLOCK_ROWS,
}
# Boots with readings whose time is only bounded, and the batches that hold them.
UNCLOCKED = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int",
    "first_batch": "bigint", "last_batch": "bigint",
}  # fmt: skip
STATE = {"seen": silver.SEEN, "clocks": silver.CLOCKS, "unclocked": UNCLOCKED}
FILE_ROWS = 25_000  #: rows for which a table's batch gets another file, one per core at most


class InUse(Exception):
    """Another ingest writes these tables."""


class State:
    """The versions of the state below TABLES/_state."""

    def __init__(self, tables):
        self.tables = tables
        self.root = tables.root / "_state"
        self.root.mkdir(exist_ok=True)
        self.pointer = self.root / "ingest.json"

    def folder(self, number):
        return self.root / f"{number:012d}"

    def _known(self):
        """What the pointer says: {query, base} and, while one is at work, {replay: number}."""
        try:
            return json.loads(self.pointer.read_text())
        except FileNotFoundError:
            return None

    def number(self, query, batch, newest):
        """The number of batch `batch` of the query with that id; counts on over queries.

        newest: called when the query is a new one (Spark's checkpoint was deleted), for `again`.
        """
        known = self._known()
        if known is None or known["query"] != query:
            number = self.next()
            known = {"version": 1, "query": query, "base": number - batch,
                     "again": newest() if number else None}  # fmt: skip
            self._point(known)
        return known["base"] + batch

    def again(self):
        """Time of receipt (unix us) up to which this query may meet packets that an earlier one
        has put into bronze; None if there was none."""
        return (self._known() or {}).get("again")

    def _point(self, known):
        replace_file(self.pointer, json.dumps(known).encode())

    def next(self):
        """The number that comes behind all that are whole: a batch that was begun and is not
        known to the query any more is replaced."""
        done = [int(p.parent.name) for p in self.root.glob("*/manifest.json")]
        return max(done, default=-1) + 1

    def begin_replay(self):
        """Take a number for a batch that is none of the query's, before it changes anything: the
        query's own count on behind it."""
        known = self._known()
        number = self.next()
        self._point({**known, "base": known["base"] + 1, "replay": number})
        return number

    def replaying(self):
        """The number of a replay that was begun and not finished, or None."""
        return (self._known() or {}).get("replay")

    def end_replay(self):
        known = self._known()
        del known["replay"]
        self._point(known)

    def last(self):
        """Number of the last batch that is whole; -1 if there is none."""
        return max((n for n in range(self.next() - 2, self.next()) if self.done(n)), default=-1)

    def done(self, number):
        return (self.folder(number) / "manifest.json").exists()

    def manifest(self, number):
        """{part: number of the folder that holds it} after batch `number`; empty for none."""
        path = self.folder(number) / "manifest.json"
        return json.loads(path.read_text())["parts"] if path.exists() else {}

    def read(self, spark, name, before):
        """A part of the state as batch `before` - 1 left it."""
        if before and not self.done(before - 1):
            raise SpoolError(f"{self.folder(before - 1)} is missing: without the state of the "
                             "batch before, duplicates would not be known")  # fmt: skip
        held = self.manifest(before - 1).get(name)
        schema = ddl(STATE[name])
        if held is None:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(str(self.folder(held) / name))

    def write(self, number, parts):
        """Finish batch `number`: parts {name: DataFrame}; those left out stay as they were."""
        manifest = self.manifest(number - 1)
        folder = self.folder(number)
        shutil.rmtree(folder, ignore_errors=True)
        for name, df in parts.items():
            staged = self.tables.stage(df)
            for count, file in enumerate(staged_files(staged)):
                place(file, folder / name / f"{count:04d}.parquet")
            manifest[name] = number
            shutil.rmtree(staged)
        folder.mkdir(exist_ok=True)
        text = json.dumps({"version": 1, "parts": manifest})
        replace_file(folder / "manifest.json", text.encode())
        self._forget(number)

    def _forget(self, number):
        """Drop what neither batch `number` nor the one before, should it be asked for, needs."""
        kept = {number, number - 1, *self.manifest(number).values(),
                *self.manifest(number - 1).values()}  # fmt: skip
        for old in self.root.iterdir():
            if old.name.isdigit() and int(old.name) not in kept:
                shutil.rmtree(old)


def check(root):
    """Raises SpoolError if the tables below `root` hold batches that the state does not know:
    their rows would come a second time."""
    tables = Tables(root, COLUMNS)
    state = State(tables)
    known = state.next()  # the number that an interrupted batch may have
    for name in COLUMNS:
        for path in tables.files(name):
            if tables.span(path)[1] > known:
                raise SpoolError(f"{path} is of a batch that {state.root} does not know: put that "
                                 "folder back as it was, or begin in another folder (--tables)")


class Ingest:
    """What the streaming query does with each batch; `on_batch` gets a dict of its counts.

    compact_files: when a table's day has so many small files, they are joined after a batch (None:
    never).
    """

    def __init__(self, spark, root, on_batch=None, compact_files=None):
        self.spark = spark
        self.tables = Tables(root, COLUMNS)
        self.state = State(self.tables)
        self.checkpoint = self.tables.root / "_checkpoint"
        self.on_batch = on_batch or (lambda counts: None)
        self.compact_files = compact_files

    def _query(self):
        """The id that Spark gave the query of this checkpoint."""
        return json.loads((self.checkpoint / "metadata").read_text())["id"]

    def __call__(self, df, batch):
        """Run one batch; may be run again for the same number at any time."""
        begun = time.monotonic()
        if self.state.replaying() is not None:
            raise SpoolError(f"{self.tables.root}: a replay of the quarantine was interrupted; "
                             "run `umqtt-pipeline replay` first")
        number = self.state.number(self._query(), batch, self._newest)
        if self.state.done(number):
            return
        rows = self._left_to_do(bronze.bronze(df), number)
        files = self.tables.write(rows, "bronze", number)
        counts = self.work(self.tables.read(self.spark, "bronze", files), number)
        counts.update(batch=number, seconds=round(time.monotonic() - begun, 2))
        log.info("batch %(batch)d: %(rows)d messages: %(new)d new, %(duplicate)d duplicates, "
                 "%(quarantine)d quarantined, %(other)d other; %(seconds)s s", counts)  # fmt: skip
        if self.compact_files:
            compact.run(self.spark, self.tables, self.state.last(), self.compact_files)
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
        """Bronze rows into the tables behind bronze, and the state of batch `number`; returns
        counts. before_end(told): what else belongs to the batch, done before its state."""
        seen = self.state.read(self.spark, "seen", number)
        told = silver.with_fate(silver.decode(rows), seen).persist()
        try:
            return self._write(told, seen, number, before_end)
        finally:
            told.unpersist()

    def _write(self, told, seen, number, before_end):
        counts = self._count(told)
        parts = {}
        if counts["new"]:
            parts["seen"] = silver.seen_after(seen, told.where(F.col("fate") == "new"))
        if before_end is None:
            self._add(told, silver.quarantine, "quarantine", counts["quarantine"], number)
        self._add(told, silver.duplicates, "duplicates", counts["duplicate"], number)
        files = self._add(told, silver.clock_rows, "clock", counts["clocks"], number)
        clocks = self.state.read(self.spark, "clocks", number)
        if files:
            new = self.tables.read(self.spark, "clock", files)
            parts["clocks"] = clocks = silver.clocks_after(clocks, new).persist()
        rows = silver_of(clocks)
        written = self._add(told, rows, "silver", counts["new"], number)
        self._correct(written, clocks if files else None, parts, number)
        if before_end is not None:
            before_end(told)
        self.state.write(number, parts)
        clocks.unpersist()
        return counts

    @staticmethod
    def _count(told):
        """Rows by fate, clocks among the new, and all rows."""
        has_clock = F.exists("measurements", lambda m: m["name"] == silver.CLOCK)
        clocks = F.count_if(has_clock & (F.col("fate") == "new"))
        counts = dict.fromkeys(("new", "duplicate", "quarantine", "other"), 0)
        found = told.groupBy("fate").agg(F.count("*").alias("rows"), clocks.alias("clocks"))
        found = found.collect()
        counts.update((r["fate"], r["rows"]) for r in found)
        total = sum(counts.values())
        return {"rows": total, "clocks": sum(r["clocks"] for r in found), **counts}

    def _add(self, told, function, table, count, number):
        """Write what `function` takes of the batch to a table; count: rows at most."""
        if not count:
            for old in self.tables.files(table, number):  # of an interrupted run
                old.unlink()
            return []
        rows = function(told)
        files = min(1 + count // FILE_ROWS, self.spark.sparkContext.defaultParallelism)
        return self.tables.write(rows.coalesce(files), table, number)

    def _correct(self, written, clocks, parts, number):
        """Give readings of earlier batches their time when the clock of their boot has come.

        written: silver files of this batch; clocks: all clocks if this batch brought any.
        """
        unclocked = self.state.read(self.spark, "unclocked", number)
        late = self.tables.read(self.spark, "silver", written).where(
            F.col("time_quality") == "received"
        )
        here = F.lit(number).cast("bigint")
        added = late.select(*silver.BOOT, here.alias("first_batch"), here.alias("last_batch"))
        if clocks is None and not (written and added.head(1)):
            return
        unclocked = unclocked.unionByName(added)
        if clocks is not None:
            self._rewrite(unclocked.join(clocks, silver.BOOT), clocks)
            unclocked = unclocked.join(clocks, silver.BOOT, "left_anti")
        parts["unclocked"] = unclocked.groupBy(*silver.BOOT).agg(
            F.min("first_batch").alias("first_batch"), F.max("last_batch").alias("last_batch")
        )

    def _rewrite(self, due, clocks):
        """due: boots with readings in earlier batches, and those batches."""
        first, last = due.agg(F.min("first_batch"), F.max("last_batch")).first()
        if first is None:
            return
        spans = ((path, *self.tables.span(path)) for path in self.tables.files("silver"))
        paths = [path for path, low, high in spans if first <= high and low <= last]
        rows = self.tables.read(self.spark, "silver", paths)
        rows = rows.withColumn("_path", F.col("_metadata.file_path"))
        here = rows.join(due.select(*silver.BOOT).distinct(), silver.BOOT, "left_semi")
        wanted = sorted(r["_path"] for r in here.select("_path").distinct().collect())
        if not wanted:
            return
        index = F.array_position(F.array(*map(F.lit, wanted)), F.col("_path")) - 1
        chosen = rows.where(F.col("_path").isin(wanted)).withColumn("_file", index)
        fixed = silver.with_time(chosen, clocks)
        columns = [name for name in silver.COLUMNS if name != "date"]  # the folder's name has it
        targets = [Path(unquote(urlparse(path).path)) for path in wanted]
        log.info("a clock came late: times made anew in %d files", len(targets))
        self.tables.rewrite(fixed.select(*columns, "_file"), "_file", targets)


def silver_of(clocks):
    """The function that makes silver rows with these clocks."""
    return lambda told: silver.silver(told, clocks)


class Lock:
    """Keeps a second ingest off the same tables. A killed ingest's JVM may live on for a moment
    and still write; the next one waits for its end."""

    def __init__(self, tables_root, patience=60):
        folder = Path(tables_root, "_state")
        folder.mkdir(parents=True, exist_ok=True)
        self._file = open(folder / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"{tables_root} is being written by another ingest")
        self._file.seek(0)
        self._wait_for(self._file.read().strip(), patience)

    @staticmethod
    def _wait_for(process, patience):
        end = time.monotonic() + patience
        while process.isdigit() and time.monotonic() < end:
            try:
                if b"java" not in Path("/proc", process, "cmdline").read_bytes():
                    return
            except OSError:
                return
            time.sleep(0.1)

    def holds(self, spark):
        """Write down which JVM works under this lock."""
        handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
        self._file.truncate(0)
        self._file.write(str(handle.pid()))
        self._file.flush()


class Runner:
    """Runs the query until it is done or stopped, and again when it fails.

    spool: folder of a spool, or several separated by commas; None with `kafka`, the options of
    Spark's format("kafka"), which then is the source (bronze.from_kafka has what it must hold)
    once: take what is there and end; else a batch every `interval` seconds
    rows: most messages in a batch;   patience: failures in a row without a batch between them
    """

    def __init__(self, spark, spool, root, once=False, interval=10.0, rows=200_000,
                 consumer="ingest", on_batch=None, patience=4, compact_files=None,
                 kafka=None):  # fmt: skip
        source.register(spark)
        self.spark, self.once, self.interval = spark, once, interval
        self.kafka = kafka
        self.options = {"path": spool, "maxRowsPerBatch": str(rows), "consumer": consumer}
        self.ingest = Ingest(spark, root, self._batch, compact_files)
        self.ingest.tables.clean()
        self._told, self._left, self.patience = on_batch, patience, patience
        self._stopping = False

    def _batch(self, counts):
        self._left = self.patience
        if self._told:
            self._told(counts)

    def stop(self):
        """End soon, after the batch that runs; may be called from a signal handler."""
        self._stopping = True

    def _start(self):
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
        finally:
            self.spark.streams.removeListener(listener)

    def _run(self):
        while not self._stopping:
            query = self._start()
            try:
                while not query.awaitTermination(0.5):
                    if self._stopping:
                        self._end(query)
                        return
                if self.once:
                    return
            except StreamingQueryException as error:
                self._left -= 1
                if self._left <= 0:
                    raise
                log.warning("the query failed and is started again: %s", str(error)[:400])
                time.sleep(1)

    @staticmethod
    def _end(query):
        end = time.monotonic() + 60
        while query.status["isTriggerActive"] and time.monotonic() < end:
            time.sleep(0.1)
        query.stop()
