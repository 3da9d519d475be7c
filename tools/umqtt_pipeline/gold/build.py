"""Gold: what an analyst and an operator ask first, made anew from silver, clock, duplicates and
quarantine. Pure DataFrame functions and `build`, which writes their tables and those of
events.py. Must not know spools.

The tables are small beside silver; each is replaced by one commit.
"""

import logging

from pyspark.sql import functions as F
from umqtt_runtime import progress

from ..decode.topics import TELEMETRY
from ..ingest import ledger
from ..tables.schema import ALL, BOOT, KEY
from ..tables.store import Tables
from . import events
from .events import DEVICE

log = logging.getLogger("umqtt.gold")

MINUTE = {
    "group": "string", "device": "string", "minute": "timestamp", "name": "string",
    "unit": "string", "count": "bigint", "min": "double", "mean": "double", "max": "double",
    "date": "date",
}  # fmt: skip
BOOTS = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int", "readings": "bigint",
    "first_sequence": "bigint", "last_sequence": "bigint", "first_time": "timestamp",
    "last_time": "timestamp", "clock": "boolean",
}  # fmt: skip
DEVICES = {
    "group": "string", "device": "string", "epochs": "bigint", "readings": "bigint",
    "first_sequence": "bigint", "last_sequence": "bigint", "gaps": "bigint", "missing": "bigint",
    "duplicates": "bigint", "quarantined": "bigint", "restarts": "bigint",
    "first_time": "timestamp", "last_time": "timestamp", "last_received": "timestamp",
    "latency_p50_s": "double", "latency_p99_s": "double",
    "stored_p50_s": "double", "stored_p99_s": "double",
    "battery": "double", "battery_min": "double", "rssi": "double", "rssi_min": "double",
}  # fmt: skip
TABLES = {
    "gold_minute": MINUTE,
    "gold_boot": BOOTS,
    "gold_device": DEVICES,
    **events.TABLES,
}
#: What gold is made of, in the order in which it is looked at: `batches` before silver tells what
#: silver has to have, and behind it when all that silver has was whole.
INPUTS = ("batches", "silver", "clock", "duplicates", "quarantine", "batches")
HEALTH = ("battery", "rssi")  #: measurements of these names are shown per device
SCALE = 2.0**-64  #: so many of the greatest doubles still have a finite sum


def minute(silver):
    """Per device, minute of the reading and measurement: count, min, mean, max."""
    of = F.date_trunc("minute", "time").alias("minute")
    values = silver.select(*DEVICE, of, F.explode("measurements").alias("m"))
    values = values.select(*DEVICE, "minute", "m.name", "m.unit", "m.value")
    found = values.groupBy(*DEVICE, "minute", "name", "unit").agg(
        F.count("*").alias("count"), F.min("value").alias("min"),
        _mean(F.col("value")).alias("mean"), F.max("value").alias("max"),
    )  # fmt: skip
    return found.withColumn("date", F.to_date("minute")).select(*MINUTE)


def _mean(value):
    """The mean of finite doubles, finite and within their range, though their sum may be neither:
    then it is the mean of the values scaled down, by a power of two."""
    plain = F.mean(value)
    finite = F.abs(plain) < F.lit(float("inf"))
    mean = F.when(finite, plain).otherwise(F.mean(value * SCALE) / SCALE)
    return F.least(F.greatest(mean, F.min(value)), F.max(value))


def boots(silver, clock):
    """Per boot: its readings, their range, and whether a clock is known for it. Of a boot there
    may be nothing but its clock record."""
    clocks = clock.select(*BOOT).distinct().withColumn("_clock", F.lit(True))
    found = silver.groupBy(*BOOT).agg(
        F.count("*").alias("readings"),
        F.min("sequence").alias("first_sequence"), F.max("sequence").alias("last_sequence"),
        F.min("time").alias("first_time"), F.max("time").alias("last_time"),
    )  # fmt: skip
    joined = found.join(clocks, BOOT, "outer").fillna(0, ["readings"])
    return joined.withColumn("clock", F.coalesce("_clock", F.lit(False))).select(*BOOTS)


def devices(silver, clock, gap, restart, duplicates, quarantine, batches):
    """Per device: range of the epoch heard of last, gaps, duplicates, restarts, latency, health.

    gap, restart: rows of events.py;   batches: when each was whole in the tables
    """
    out = _ranges(silver, clock)
    for part in (_times(silver, batches), _health(silver), _missing(gap), _restarts(restart),
                 _count(duplicates, "duplicates"),
                 _count(_senders(quarantine), "quarantined")):  # fmt: skip
        out = out.join(part, DEVICE, "outer")  # a device may have sent nothing but rubbish
    zero = ["epochs", "restarts", "readings", "gaps", "missing", "duplicates", "quarantined"]
    return out.fillna(0, zero).select(*DEVICES)


def _ranges(silver, clock):
    """How many epochs, and the first and the last sequence number of the one heard of last."""
    numbers = [*KEY, "sequence", "received_at", "offset"]
    per_epoch = silver.select(*numbers).unionByName(clock.select(*numbers)).groupBy(*KEY).agg(
        F.min("sequence").alias("first_sequence"), F.max("sequence").alias("last_sequence"),
        F.max(F.struct("received_at", "offset")).alias("_heard"),  # one time for a whole read
    )  # fmt: skip
    newest = F.struct("_heard", "first_sequence", "last_sequence")
    ranges = per_epoch.groupBy(*DEVICE).agg(
        F.max(newest).alias("_last"), F.count("*").alias("epochs"),
    )  # fmt: skip
    return ranges.select(*DEVICE, "epochs", "_last.first_sequence", "_last.last_sequence")


def _times(silver, batches):
    """A few numbers a batch are joined, in memory: silver is read no second time for it."""
    exact = F.col("time_quality") == "clock"
    late, stored = (F.when(exact, (F.unix_micros(until) - F.unix_micros("time")) / 1e6)
                    for until in ("received_at", "committed_at"))  # fmt: skip
    ends = F.broadcast(batches.groupBy("batch").agg(F.max("committed_at").alias("committed_at")))
    return silver.join(ends, "batch", "left").groupBy(*DEVICE).agg(
        F.count("*").alias("readings"),
        F.min("time").alias("first_time"), F.max("time").alias("last_time"),
        F.max("received_at").alias("last_received"),
        F.percentile_approx(late, 0.5).alias("latency_p50_s"),
        F.percentile_approx(late, 0.99).alias("latency_p99_s"),
        F.percentile_approx(stored, 0.5).alias("stored_p50_s"),
        F.percentile_approx(stored, 0.99).alias("stored_p99_s"),
    )  # fmt: skip


def _health(silver):
    """The last and the lowest battery and RSSI of the devices that send them.

    The last is the one with the highest sequence number: in that order the device took them,
    while a time may be that of a late receipt. Of several epochs the one heard of last counts, by
    its readings that have this measurement.
    """
    values = silver.select(*KEY, "sequence", "received_at", "offset",
                           F.posexplode("measurements").alias("place", "m"))  # fmt: skip
    values = values.where(F.lower("m.name").isin(*HEALTH))
    per_epoch, columns = [], []
    for name in HEALTH:
        mine = F.when(F.lower("m.name") == name, F.col("m.value"))
        for what, found in (("heard", F.struct("received_at", "offset")),
                            ("last", F.struct("sequence", "place", mine.alias("value")))):
            newest = F.max(F.when(mine.isNotNull(), found))
            per_epoch.append(newest.alias(f"_{name}_{what}"))
        per_epoch.append(F.min(mine).alias(f"_{name}_min"))
        newest = F.max(F.struct(f"_{name}_heard", f"_{name}_last"))  # null is less than any
        columns += [newest[f"_{name}_last"]["value"].alias(name),
                    F.min(f"_{name}_min").alias(f"{name}_min")]  # fmt: skip
    return values.groupBy(*KEY).agg(*per_epoch).groupBy(*DEVICE).agg(*columns)


def _restarts(restart):
    """A boot of which nothing came was a restart, too."""
    both = F.count("*") + F.sum("unheard")
    return restart.groupBy(*DEVICE).agg(both.alias("restarts"))


def _missing(gap):
    return gap.groupBy(*DEVICE).agg(F.count("*").alias("gaps"), F.sum("missing").alias("missing"))


def _count(rows, name):
    return rows.groupBy(*DEVICE).agg(F.count("*").alias(name))


def _senders(quarantine):
    """Quarantine with the device of the topic, where the topic has one."""
    topic = f"^{TELEMETRY.pattern}$"
    named = quarantine.select(
        F.regexp_extract("topic", topic, 1).alias("group"),
        F.regexp_extract("topic", topic, 2).alias("device"),
    )
    return named.where(F.col("device") != "")


def build(spark, root):
    """Make all gold tables anew from the tables below `root`; returns {table: rows}. An ingest or
    a compaction may work at the same time."""
    tables = Tables(root, {**ALL, **TABLES}, owner="gold")
    tables.clean(older_than=86_400)
    with progress.Watch(spark, "gold") as watch:
        # The tables as they are now: the files of a commit stay, whoever compacts meanwhile.
        return _made(spark, tables, watch, *(tables.read(spark, name) for name in INPUTS))


def lacking(silver, batches):
    """How many readings silver has not, though `batches` tells that they were put there: one row
    with lacking, first and last (numbers of batches; null for none).

    batches: read before silver, or it tells of readings that silver did not have yet
    """
    held = silver.groupBy("batch").agg(F.count("*").alias("_held"))
    told = batches.groupBy("batch").agg(F.max("readings").alias("_told"))
    less = F.col("_told") - F.coalesce("_held", F.lit(0))
    return told.join(held, "batch", "left").withColumn("_less", less).where(less > 0).agg(
        F.coalesce(F.sum("_less"), F.lit(0)).alias("lacking"),
        F.min("batch").alias("first"), F.max("batch").alias("last"),
    )  # fmt: skip


def _tell_lacking(root, silver, batches):
    let_go = ledger.newest(root).get("expired", {}).get("silver", -1)
    found = lacking(silver, batches.where(F.col("batch") > let_go)).first()
    if found.lacking:
        log.warning("silver lacks %d readings of batches %d to %d: files were removed, or an "
                    "older copy of its folder was put back; gold is made of what is there",
                    found.lacking, found.first, found.last)  # fmt: skip


def _made(spark, tables, watch, earlier, silver, clock, duplicates, quarantine, batches):
    """Make and replace the tables one by one; those of events are read again for devices."""
    watch.doing("comparing silver with what its batches brought")
    _tell_lacking(tables.storage.root, silver, earlier)

    def replace(name, rows, *by):
        replaced.append(name)
        watch.doing(f"{name}, {len(replaced)} of {len(TABLES)} tables")
        rows = rows.repartition(*by) if by else rows.repartition(1)
        tables.replace(name, tables.store(rows, name))

    replaced = []
    replace("gold_minute", minute(silver), "date")
    replace("gold_boot", boots(silver, clock))
    replace("restarts", events.restarts(silver, clock))
    replace("gaps", events.gaps(silver, clock))
    replace("clock_corrections", events.clock_corrections(silver, clock))
    replace("conflicts", events.conflicts(silver, duplicates))
    gap, restart = tables.read(spark, "gaps"), tables.read(spark, "restarts")
    known = devices(silver, clock, gap, restart, duplicates, quarantine, batches)
    replace("gold_device", known)
    counts = {name: sum(file.rows for file in tables.files(name)) for name in TABLES}
    if counts["conflicts"]:
        log.warning("%d copies do not say what the reading of their identity says: both are in "
                    "the table conflicts", counts["conflicts"])  # fmt: skip
    return counts
