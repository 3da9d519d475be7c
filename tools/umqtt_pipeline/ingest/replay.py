"""Replay: what is in quarantine is decoded again, after a decoder was added or mended.

Knows the order of the steps. Must not know decoders. A replay is a batch of its own: what is a
reading now goes to silver, clock or duplicates like any other; what is still none stays, with the
reason that it has now. Nothing is dropped and nothing comes twice wherever it is killed:

1. the rows of the quarantine are copied to TABLES/_state/replay: whatever happens to the table,
   the same rows are worked on again; 2. a number is taken (ingest.State), and from here on ingest
refuses to work until the replay is finished; 3. the tables are written under that number; 4. the
files of the quarantine are replaced by what stays of each; 5. the state of the batch; 6. the
number is given back and the copy deleted.
"""

import logging
import os
import shutil

from pyspark.sql import functions as F
from umqtt_runtime.files import reader

from ..spool.files import sync_folder
from ..tables.store import ddl
from . import bronze
from .query import COLUMNS, Ingest

log = logging.getLogger("umqtt.replay")


def run(spark, root):
    """Replay the quarantine of the tables below `root`; the caller holds the lock of ingest.

    Returns counts: rows, new, duplicate, quarantine (still there), other, clocks; None when there
    is nothing in quarantine.
    """
    work = Ingest(spark, root)
    copy = work.state.root / "replay"
    number = work.state.replaying()
    if number is None:
        shutil.rmtree(copy, ignore_errors=True)
        if not work.tables.files("quarantine"):
            return None
        _copy(spark, work.tables, copy)
        number = work.state.begin_replay()
    counts = None
    if not work.state.done(number):
        counts = _work(spark, work, copy, number)
    work.state.end_replay()
    shutil.rmtree(copy)
    return counts or dict.fromkeys(("rows", "new", "duplicate", "quarantine"), 0)


def _copy(spark, tables, copy):
    staged = tables.stage(tables.read(spark, "quarantine").coalesce(1))
    os.replace(staged, copy)
    sync_folder(copy.parent)


def _work(spark, work, copy, number):
    rows = reader(spark, ddl(COLUMNS["quarantine"])).parquet(str(copy))
    for path in work.tables.files("bronze", number):
        path.unlink()  # of a batch of the query that was interrupted: it gets another number
    for path in work.tables.files("quarantine", number):
        path.unlink()
    return work.work(rows.select(*bronze.COLUMNS), number,
                     lambda told: _settle(spark, work.tables, told))  # fmt: skip


def _settle(spark, tables, told):
    """Leave in each file of the quarantine what is still no reading, with its reason."""
    now = told.select("offset", "received_at", F.col("fate").alias("_fate"),
                      F.col("reason").alias("_reason"))  # fmt: skip
    paths = tables.files("quarantine")
    index = {f"{path.parent.name}/{path.name}": at for at, path in enumerate(paths)}
    names = F.concat_ws("/", F.slice(F.split("_metadata.file_path", "/"), -2, 2))
    place = F.create_map(*(F.lit(x) for pair in index.items() for x in pair))
    rows = tables.read(spark, "quarantine", paths).withColumn("_file", place[names])
    left = rows.join(now, ["offset", "received_at"], "left").where(
        F.coalesce(F.col("_fate"), F.lit("quarantine")) == "quarantine"
    )
    left = left.withColumn("reason", F.coalesce("_reason", "reason"))
    columns = [name for name in COLUMNS["quarantine"] if name != "date"]
    kept = {r["_file"] for r in left.select("_file").distinct().collect()}
    tables.rewrite(left.select(*columns, "_file"), "_file", paths)
    for at, path in enumerate(paths):
        if at not in kept:
            path.unlink()
