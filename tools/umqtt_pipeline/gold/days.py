"""What gold keeps of each day of receipt, so that a day is read once and not at every run.

Knows silver, clock, duplicates and quarantine, and what of them can be merged over days: pure
functions from DataFrames to DataFrames, whose rows carry silver's `date`. Must not know files, nor
what is made of it (events.py, fleet.py).

A record is a reading or a clock record; a run of a boot is as many records as follow each other by
sequence number, and were received on one day.
"""

import math

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..decode.topics import TELEMETRY
from ..tables.quarantine import NUMBERS, numbered
from ..tables.schema import BOOT, KEY
from .schema import BOOT_DAY, DAY, DEVICE_DAY, HEALTH

DEVICE = ["group", "device"]

LATENCIES = ("received", "stored")
WIDTH = 1.02  #: each bucket of latencies ends at so many times its beginning
LEAST_US = 1000  #: less than this is none


def _measured(name):
    """The values of the measurements `name` of a reading, in their order in the pack."""
    return F.transform(
        F.filter("measurements", lambda m: (F.lower(m["name"]) == name) & m["value"].isNotNull()),
        lambda m: m["value"],
    )


def _records(silver, clock):
    """Readings and clock records; a pack that holds both is two rows of one sequence number."""
    columns = [*BOOT, "date", "sequence", "uptime_ms", "received_at", "offset"]
    exact = F.when(F.col("time_quality") == "clock", F.col("time"))
    own = [_measured(name).alias(f"_{name}") for name in HEALTH]
    base = F.unix_millis(exact) - F.col("uptime_ms")
    readings = silver.select(*columns, exact.alias("exact"), "time", base.alias("base"), *own)
    told = clock.select(*columns, F.col("time").alias("exact"), F.lit(True).alias("told"))
    return readings.unionByName(told, allowMissingColumns=True)


def _with_ends(records):
    """Records with `begins` and `ends`: whether a run of their boot and day begins, or ends, with
    them, which is known for one of two rows of the same number."""
    order = Window.partitionBy(*BOOT, "date").orderBy("sequence", F.desc_nulls_last("exact"))
    back = F.lag(F.struct("sequence", "exact")).over(order)
    ahead = F.lead("sequence").over(order)
    rows = records.select("*", back.alias("_back"), ahead.alias("_ahead"))
    again = F.col("_back.sequence") == F.col("sequence")
    return rows.select(
        "*", F.when(again, F.col("_back.exact")).otherwise(F.col("exact")).alias("_exact"),
        F.coalesce(F.col("sequence") > F.col("_back.sequence") + 1, F.lit(True)).alias("begins"),
        F.coalesce(F.col("_ahead") > F.col("sequence") + 1, F.lit(True)).alias("ends"),
    )  # fmt: skip


def _listed(condition, *columns):
    """A sorted array of structs of the rows for which it holds."""
    return F.array_sort(F.collect_list(F.when(condition, F.struct(*columns))))


def boot_days(silver, clock):
    """Rows of gold_boot_day."""
    receipt, reading = F.struct("received_at", "offset"), F.col("time").isNotNull()
    clock_record = ("sequence", "uptime_ms", F.col("exact").alias("time"), "received_at")
    health = []
    for name in HEALTH:
        values = F.col(f"_{name}")
        here = F.size(values) > 0  # null, and so not true, for a clock record
        last = F.struct("sequence", F.element_at(values, -1).alias("value"))
        health += [F.max(F.when(here, receipt)).alias(f"{name}_heard"),
                   F.max(F.when(here, last)).alias(f"{name}_last"),
                   F.min(F.when(here, F.array_min(values))).alias(f"{name}_least")]  # fmt: skip
    found = _with_ends(_records(silver, clock)).groupBy(*BOOT, "date").agg(
        F.count("time").alias("readings"),
        F.min(F.when(reading, F.col("sequence"))).alias("first_sequence"),
        F.max(F.when(reading, F.col("sequence"))).alias("last_sequence"),
        F.min("time").alias("first_time"), F.max("time").alias("last_time"),
        F.max(F.when(reading, F.col("received_at"))).alias("last_received"),
        F.min(receipt).alias("least"), F.max(receipt).alias("greatest"),
        F.min("base").alias("base_ms"), *health,
        _listed(F.col("begins"), "sequence", "uptime_ms", "exact", "received_at").alias("_first"),
        _listed(F.col("ends"), "sequence", "uptime_ms", "_exact").alias("_last"),
        _listed(F.col("told"), *clock_record).alias("clocks"),
    )  # fmt: skip
    runs = F.zip_with("_first", "_last", lambda one, other: F.struct(
        one["sequence"].alias("first"), one["uptime_ms"].alias("first_uptime_ms"),
        one["exact"].alias("first_exact"), one["received_at"].alias("received_at"),
        other["sequence"].alias("last"), other["uptime_ms"].alias("last_uptime_ms"),
        other["_exact"].alias("last_exact"),
    ))  # fmt: skip
    return found.withColumn("runs", runs).select(*BOOT_DAY)


def _bucket(microseconds):
    """The bucket of a latency: 0 for none, below that for times that lie ahead of the receipt."""
    size = F.abs(microseconds)
    place = F.floor(F.log(size / LEAST_US) / math.log(WIDTH)) + 1
    return F.when(size < LEAST_US, 0).otherwise(F.signum(microseconds) * place).cast("int")


def seconds(bucket):
    """The latency that a bucket stands for: none in it differs from that by more than 1 %."""
    size = F.pow(F.lit(WIDTH), F.abs(bucket) - 0.5) * (LEAST_US / 1e6)
    return F.when(bucket == 0, 0.0).otherwise(F.signum(bucket) * size)


def _latencies(silver, batches):
    """Per device and day: how many readings with a clock have which latency."""
    ends = F.broadcast(batches.groupBy("batch").agg(F.max("committed_at").alias("committed_at")))
    exact = silver.where(F.col("time_quality") == "clock").join(ends, "batch", "left")
    kinds = [F.struct(F.lit(kind).alias("kind"),
                      _bucket(F.unix_micros(until) - F.unix_micros("time")).alias("bucket"))
             for kind, until in zip(LATENCIES, ("received_at", "committed_at"))]  # fmt: skip
    rows = exact.select(*DEVICE, "date", F.explode(F.array(*kinds)).alias("_of"))
    rows = rows.select(*DEVICE, "date", "_of.*").where(F.col("bucket").isNotNull())
    counted = rows.groupBy(*DEVICE, "date", "kind", "bucket").agg(F.count("*").alias("readings"))
    return counted.groupBy(*DEVICE, "date").agg(
        *(_listed(F.col("kind") == kind, "bucket", "readings").alias(kind) for kind in LATENCIES)
    )


def _numbered(rows, count, runs):
    """Per device and day: how many rows, and the runs of their sequence numbers, as columns of
    these names."""
    order = Window.partitionBy(*KEY, "date").orderBy("sequence")
    run = F.col("sequence") - F.dense_rank().over(order)
    rows = rows.select(*KEY, "date", "sequence", run.alias("_run"))
    found = rows.groupBy(*KEY, "date", "_run").agg(
        F.min("sequence").alias("first"), F.max("sequence").alias("last"),
        F.count("*").alias("_count"),
    )  # fmt: skip
    return found.groupBy(*DEVICE, "date").agg(
        F.sum("_count").alias(count),
        F.array_sort(F.collect_list(F.struct("epoch", "first", "last"))).alias(runs),
    )


def _refused(quarantine):
    """Per device and day: the runs of the numbers of packets that are in quarantine though their
    identity can be read."""
    rows = quarantine.select("topic", "payload", "epoch", "sequence", "date")
    return _numbered(rows.mapInArrow(numbered, NUMBERS), "_count", "refused").drop("_count")


def _quarantined(quarantine):
    """Per device and day: how many packets in quarantine, where their topic has a device."""
    topic = f"^{TELEMETRY.pattern}$"
    named = quarantine.select(
        F.regexp_extract("topic", topic, 1).alias("group"),
        F.regexp_extract("topic", topic, 2).alias("device"), "date",
    )  # fmt: skip
    counted = named.where(F.col("device") != "").groupBy(*DEVICE, "date")
    return counted.agg(F.count("*").alias("quarantined"))


def device_days(silver, duplicates, quarantine, batches):
    """Rows of gold_device_day. batches: when each was whole in the tables"""
    found = _latencies(silver, batches)
    copies = _numbered(duplicates, "duplicates", "copies")
    for part in (copies, _quarantined(quarantine), _refused(quarantine)):
        found = found.join(part, [*DEVICE, "date"], "outer")
    for name, kind in DEVICE_DAY.items():
        if kind.startswith("array"):
            found = found.withColumn(name, F.coalesce(name, F.array().cast(kind)))
    return found.fillna(0, ["duplicates", "quarantined"]).select(*DEVICE_DAY)


def days(silver):
    """Rows of gold_day."""
    reading = F.xxhash64(*KEY, "sequence", "time", "received_at", "offset")
    of = F.to_date("time").alias("minutes_of")
    found = silver.groupBy("date", "batch", of).agg(
        F.count("*").alias("readings"), F.bit_xor(reading).alias("digest"))  # fmt: skip
    return found.select(*DAY)
