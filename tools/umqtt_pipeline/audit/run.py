"""The audit as a run of Spark: first pass, second pass, exchanges across connections, summaries.

Knows: the order of the steps, folders, progress. Must not know: bytes of captures.

Everything is written below OUT/_staging and moved into place at the end, so OUT holds one whole
audit or the one before it.
"""

import json
import logging
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import summaries, work
from .captures import NotACapture, content, magic, packed
from .columns import FLOWS, PIECES, TABLES

MARK = "audit.json"  #: a folder with this file is an earlier audit and may be replaced
BUCKET_BYTES = 128 << 20  #: of capture per task of the second pass
MAX_BUCKETS = 1024
MADE = ("devices", "brokers")


class Refused(Exception):
    """The audit cannot be made; the text says why and what to do."""


def readable(paths):
    """(captures, [(file, why it cannot be read)])."""
    good, bad = [], []
    for path in dict.fromkeys(str(Path(p).absolute()) for p in paths):
        try:
            magic(path)
            good.append(path)
        except NotACapture as error:
            bad.append((path, str(error)))
    return good, bad


def check(paths, out):
    """Raise Refused if no capture can be read or OUT is not to be written."""
    good, bad = readable(paths)
    if not good:
        raise Refused("\n".join(why for _, why in bad))
    out = Path(out)
    try:
        if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
            left = {p.name for p in out.iterdir()} - {"_staging"}
            if left:
                raise Refused(f"{out}: holds other things than an audit ({min(left)}); "
                              "name an empty or a new folder")  # fmt: skip
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{out}: {error.strerror}")
    if not os.access(out, os.W_OK):
        raise Refused(f"{out}: Permission denied")


def warm():
    """Have the inner loops compiled here, once, before several workers would do it."""
    import numpy as np

    from .decode import Decoder
    from .headers import Endpoints
    from .layout import FRAME
    from .records import pcap, pcapng

    started = time.monotonic()
    data, frames = content(os.devnull), np.zeros(0, FRAME)
    problems = Endpoints(1).problems[0]
    pcap(data, 0, np.zeros(10, np.int64), frames, problems)
    pcapng(data, 0, np.zeros(10, np.int64), np.zeros((1, 4), np.int64), frames, problems)
    rows = Endpoints().segments(data, 1, frames)
    decoder = Decoder(lambda *_: None, (), set(), (0, 0))
    decoder.warm(rows)
    return time.monotonic() - started


def _tasks(spark, n, task):
    """Run task(0..n-1) as n tasks of Spark, each giving a dict; they come in any order."""
    if not n:
        return []

    def run(batches):
        for batch in batches:
            for k in batch.column(0).to_pylist():
                yield work.answer(task(k))

    found = spark.range(0, n, 1, n).mapInArrow(run, "result string").collect()
    return [json.loads(row.result) for row in found]


class _Progress:
    """Says now and then how many of a step's tasks are done."""

    EVERY = 10.0

    def __init__(self, spark, what, total):
        self.tracker, self.what, self.total = spark.sparkContext.statusTracker(), what, total
        self._over = threading.Event()

    def _say(self):
        while not self._over.wait(self.EVERY):
            done = 0
            for stage in self.tracker.getActiveStageIds():
                info = self.tracker.getStageInfo(stage)
                done = max(done, info.numCompletedTasks if info else 0)
            logging.info("%s: %d of %d parts", self.what, done, self.total)

    def __enter__(self):
        threading.Thread(target=self._say, daemon=True).start()

    def __exit__(self, *_):
        self._over.set()


def in_order(split):
    """Files by the time of their first frame."""
    return sorted(split, key=lambda s: (s["first"] is None, s["first"], s["number"]))


class Audit:
    """An audit of `paths` into the folder `out`. ports: of brokers, beside those found by their
    CONNECT. Step by step, so that a benchmark can time the steps."""

    def __init__(self, spark, paths, out, ports=(1883,)):
        self.spark, self.ports = spark, ports
        self.paths, self.unread = readable(paths)
        self.out = Path(out).absolute()
        self.staging = self.out / "_staging"
        self.tables, self.scratch = self.staging / "tables", self.staging / "scratch"
        self.split = []
        self.rows = {}
        self.figures = None  # of the report, when complete() is over

    def packets(self):
        """Both passes: packets, connections, exchanges within a connection, violations."""
        shutil.rmtree(self.staging, ignore_errors=True)
        for folder in (self.tables, self.scratch):
            folder.mkdir(parents=True)
        paths, names, scratch, tables = self._unpacked(), self.paths, *map(
            str, (self.scratch, self.tables))  # fmt: skip
        size = sum(os.path.getsize(p) for p in paths)
        cores = self.spark.sparkContext.defaultParallelism
        buckets = min(MAX_BUCKETS, max(2 * cores, -(-size // BUCKET_BYTES)))
        with _Progress(self.spark, "reading headers", len(paths)):
            self.split = in_order(_tasks(self.spark, len(paths), lambda k: work.split(
                k, paths[k], names[k], buckets, scratch, tables)))  # fmt: skip
        plan = work.plan(self.split, paths, names, self.ports)
        with _Progress(self.spark, "decoding", buckets):
            made = _tasks(self.spark, buckets, lambda k: work.decode(
                k, buckets, plan, scratch, tables))  # fmt: skip
        for rows in made:
            for table, n in rows.items():
                self.rows[table] = self.rows.get(table, 0) + n
        shutil.rmtree(self.scratch)

    def _unpacked(self):
        """Where the captures lie, those of gzip unpacked; what cannot be read gets a row."""
        paths, scratch = list(self.paths), str(self.scratch)
        todo = [k for k, path in enumerate(paths) if packed(path)]
        wrong = [(file, "no capture", why) for file, why in self.unread]
        for made in _tasks(self.spark, len(todo), lambda k: work.unpack(
                todo[k], paths[todo[k]], scratch)):  # fmt: skip
            if made["wrong"]:
                what = f"only the beginning could be unpacked: {made['wrong']}"
                wrong.append((paths[made["number"]], "gzip", what))
            paths[made["number"]] = made["path"]
        work.note(wrong, self.tables)
        return paths

    def read(self, table):
        """A table made so far, as a DataFrame."""
        schema = {**TABLES, "_pieces": PIECES}[table]
        folder = self.tables / table
        if not folder.exists():
            return summaries.empty(self.spark, schema)
        return self.spark.read.schema(summaries.spark_schema(schema)).parquet(str(folder))

    def complete(self):
        """Exchanges across connections, summaries, figures; then all is moved into place."""
        from . import report

        if self.rows.get("_pieces"):
            joined = summaries.joined(self.read("_pieces")).select(FLOWS.names).persist()
            self._write(joined, "flows")
            self._write(summaries.latencies(joined), "latencies")
            joined.unpersist()
        found = [self.read(t) for t in ("connections", "latencies", "violations")]
        # Side by side, as most of such a small job is done by the driver; the figures of the
        # report need none of the summaries.
        with ThreadPoolExecutor(len(MADE) + 1) as pool:
            figures = pool.submit(report.figures, self.tables)
            list(pool.map(self._write, [getattr(summaries, n)(*found) for n in MADE], MADE))
            self.figures = figures.result()
        self._place()

    def _write(self, frame, table):
        frame.write.mode("append").parquet(str(self.tables / table))

    def _place(self):
        shutil.rmtree(self.tables / "_pieces", ignore_errors=True)
        for name in (*TABLES, *MADE):
            folder = self.tables / name
            if not folder.exists():
                folder.mkdir()
                if name in TABLES:
                    summaries.write_empty(TABLES[name], folder / "part-none.parquet")
            for extra in [*folder.glob("_SUCCESS"), *folder.glob(".*.crc")]:
                extra.unlink()
        for name in (*TABLES, *MADE):
            shutil.rmtree(self.out / name, ignore_errors=True)
            os.replace(self.tables / name, self.out / name)
        (self.out / MARK).write_text(json.dumps(self.facts(), indent=1) + "\n")
        shutil.rmtree(self.staging)

    def facts(self):
        """Files and frames, for the report."""
        return {"files": [{"file": self.paths[s["number"]], **{k: s[k] for k in (
            "frames", "segments", "bytes", "first", "last")}} for s in self.split],
            "ports": list(self.ports)}  # fmt: skip


def build(spark, paths, out, ports=(1883,)):
    """Make the whole audit with its report. Raises Refused."""
    from . import report

    check(paths, out)
    took = warm()
    if took > 5:
        logging.info("the inner loops were compiled, once for this installation: %.0f s", took)
    audit = Audit(spark, paths, out, ports)
    for _, why in audit.unread:
        logging.warning("left out: %s", why)
    started = time.monotonic()
    audit.packets()
    logging.info("%d frames, %d MQTT packets in %.1f s", sum(s["frames"] for s in audit.split),
                 audit.rows.get("packets", 0), time.monotonic() - started)  # fmt: skip
    audit.complete()
    report.build(out, Path(out, "report.html"), audit.figures)
    logging.info("wrote %s", Path(out, "report.html"))
