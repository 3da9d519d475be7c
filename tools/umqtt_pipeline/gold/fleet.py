"""What is told of minutes, boots and devices: gold_minute of silver, the others of the days that
gold keeps (days.py).

Pure functions from DataFrames to DataFrames. Must not know files.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..tables.schema import BOOT, KEY
from .days import DEVICE, LATENCIES, seconds
from .events import MISSING
from .schema import DEVICES, HEALTH, LATENCY, MINUTE

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


def boots(boot_days):
    """Per boot: its readings, their range, and whether a clock is known for it: its clock record
    is there, or readings have their time by one that was deleted. Of a boot there may be nothing
    but its clock record."""
    clock = (F.size("clocks") > 0) | F.col("base_ms").isNotNull()
    return boot_days.groupBy(*BOOT).agg(
        F.sum("readings").alias("readings"),
        F.min("first_sequence").alias("first_sequence"),
        F.max("last_sequence").alias("last_sequence"),
        F.min("first_time").alias("first_time"), F.max("last_time").alias("last_time"),
        F.max(clock).alias("clock"),
    )  # fmt: skip


def latency(*signed):
    """Rows of gold_latency. signed: (1 or -1, rows of gold_latency, or of gold_device_day) to be
    added or taken away."""
    parts = []
    for sign, rows in signed:
        if "kind" not in rows.columns:
            rows = _unfolded(rows)
        counted = (F.col("readings") * sign).alias("readings")
        parts.append(rows.select(*DEVICE, "kind", "bucket", counted))
    found = reduce(DataFrame.union, parts).groupBy(*DEVICE, "kind", "bucket").agg(
        F.sum("readings").alias("readings"))  # fmt: skip
    return found.where(F.col("readings") != 0).select(*LATENCY)


def _unfolded(device_days):
    """Rows of gold_device_day as those of gold_latency."""
    def named(kind):
        return F.transform(kind, lambda one: F.struct(F.lit(kind).alias("kind"), one.bucket,
                                                      one.readings))  # fmt: skip

    rows = device_days.select(*DEVICE, F.explode(F.concat(*map(named, LATENCIES))).alias("_of"))
    return rows.select(*DEVICE, "_of.kind", "_of.bucket", "_of.readings")


def devices(boot_days, device_days, latencies, gap, restart):
    """Per device: range of the epoch heard of last, gaps, duplicates, restarts, latency, health.

    latencies: rows of gold_latency;   gap, restart: rows of events.py
    """
    out = _epochs(boot_days)
    for part in (_percentiles(latencies), _missing(gap), _restarts(restart),
                 _counts(device_days)):  # fmt: skip
        out = out.join(part, DEVICE, "outer")  # a device may have sent nothing but rubbish
    zero = ["epochs", "restarts", "readings", "gaps", "missing", "duplicates", "quarantined"]
    return out.fillna(0, zero).select(*DEVICES)


def _epochs(boot_days):
    """How many epochs, the first and the last sequence number of the one heard of last, times,
    and the last and the lowest battery and RSSI of the devices that send them.

    The last is the one with the highest sequence number: in that order the device took them,
    while a time may be that of a late receipt. Of several epochs the one heard of last counts, by
    its readings that have this measurement.
    """
    first, last = F.col("runs")[0]["first"], F.element_at("runs", -1)["last"]
    health = [what for name in HEALTH for what in (
        F.max(f"{name}_heard").alias(f"{name}_heard"), F.max(f"{name}_last").alias(f"{name}_last"),
        F.min(f"{name}_least").alias(f"{name}_least"))]  # fmt: skip
    per_epoch = boot_days.groupBy(*KEY).agg(
        F.min(first).alias("first_sequence"), F.max(last).alias("last_sequence"),
        F.max("greatest").alias("_heard"),  # one time for a whole read
        F.sum("readings").alias("readings"), F.min("first_time").alias("first_time"),
        F.max("last_time").alias("last_time"), F.max("last_received").alias("last_received"),
        *health,
    )  # fmt: skip
    newest = F.max(F.struct("_heard", "first_sequence", "last_sequence"))
    columns = [newest["first_sequence"].alias("first_sequence"),
               newest["last_sequence"].alias("last_sequence")]  # fmt: skip
    for name in HEALTH:
        newest = F.max(F.struct(f"{name}_heard", f"{name}_last"))  # null is less than any
        columns += [newest[f"{name}_last"]["value"].alias(name),
                    F.min(f"{name}_least").alias(f"{name}_min")]  # fmt: skip
    return per_epoch.groupBy(*DEVICE).agg(
        F.count("*").alias("epochs"), F.sum("readings").alias("readings"),
        F.min("first_time").alias("first_time"), F.max("last_time").alias("last_time"),
        F.max("last_received").alias("last_received"), *columns,
    )  # fmt: skip


def _percentiles(latencies):
    """The least latency that half, or 99 of 100, of a device's readings do not exceed."""
    each = Window.partitionBy(*DEVICE, "kind")
    until = each.orderBy("bucket").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    share = F.sum("readings").over(until) / F.sum("readings").over(each)
    rows = latencies.select(*DEVICE, "kind", "bucket", share.alias("share"))
    names = {"received": "latency", "stored": "stored"}
    return rows.groupBy(*DEVICE).agg(*(
        seconds(F.min(F.when((F.col("kind") == kind) & (F.col("share") >= part),
                             F.col("bucket")))).alias(f"{names[kind]}_p{part * 100:.0f}_s")
        for kind in LATENCIES for part in (0.5, 0.99)
    ))  # fmt: skip


def _counts(device_days):
    return device_days.groupBy(*DEVICE).agg(
        F.sum("duplicates").alias("duplicates"), F.sum("quarantined").alias("quarantined"))


def _restarts(restart):
    """A boot of which nothing came was a restart, too."""
    both = F.count("*") + F.sum("unheard")
    return restart.groupBy(*DEVICE).agg(both.alias("restarts"))


def _missing(gap):
    gap = gap.where(F.col("reason") == MISSING)
    return gap.groupBy(*DEVICE).agg(F.count("*").alias("gaps"), F.sum("missing").alias("missing"))
