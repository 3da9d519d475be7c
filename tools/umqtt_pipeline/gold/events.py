"""What happened to devices: restarts, gaps, corrections of their clocks, and conflicts of copies
with what came first, a row each.

Knows silver and clock rows: pure functions from DataFrames to DataFrames, of everything that is
there, so a reading that comes late changes the rows beside it the next time. Must not know files.

`before_` is the record in front of the event, `after_` the one behind it, both by sequence number;
a record is a reading or a clock record. Times are those of the device's clock, null where its
boot never had one: a time of receipt would be no bound.
"""

from functools import reduce
from operator import and_

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..decode.reasons import CLOCK
from ..tables.schema import BOOT, IDENTITY, KEY, MEASUREMENTS

DEVICE = ["group", "device"]
RESTARTS = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int",
    "new_epoch": "boolean", "unheard": "bigint", "before_epoch": "string", "before_boot": "int",
    "before_sequence": "bigint", "before_uptime_ms": "bigint", "before_time": "timestamp",
    "after_sequence": "bigint", "after_uptime_ms": "bigint", "after_time": "timestamp",
    "first_received": "timestamp",
}  # fmt: skip
GAPS = {
    "group": "string", "device": "string", "epoch": "string", "first": "bigint",
    "last": "bigint", "missing": "bigint", "before_boot": "int", "before_time": "timestamp",
    "after_boot": "int", "after_time": "timestamp", "first_received": "timestamp",
}  # fmt: skip
CORRECTIONS = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int",
    "sequence": "bigint", "uptime_ms": "bigint", "time": "timestamp", "expected": "timestamp",
    "correction_ms": "bigint", "since_ms": "bigint", "silver_late_ms": "bigint",
    "received_at": "timestamp",
}  # fmt: skip
CONFLICTS = {
    **IDENTITY, "boot": "int", "uptime_ms": "bigint", "measurements": MEASUREMENTS,
    "first_received": "timestamp", "copy_boot": "int", "copy_uptime_ms": "bigint",
    "copy_measurements": MEASUREMENTS, "received_at": "timestamp", "spool": "string",
    "offset": "bigint",
}  # fmt: skip
TABLES = {"restarts": RESTARTS, "gaps": GAPS, "clock_corrections": CORRECTIONS,
          "conflicts": CONFLICTS}  # fmt: skip


def _records(silver, clock):
    """Readings and clock records, once each, with `exact`: time by the device's clock or null."""
    exact = F.when(F.col("time_quality") == "clock", F.col("time"))
    columns = [*BOOT, "sequence", "uptime_ms", "received_at", "offset"]
    readings = silver.select(*columns, exact.alias("exact"))
    told = clock.select(*columns, F.col("time").alias("exact"))
    # A pack may hold a clock and measurements: it is in both tables.
    return readings.unionByName(told).groupBy(*columns).agg(F.max("exact").alias("exact"))


def restarts(silver, clock):
    """Boots of a device behind its first one, in the order of their numbers; epochs in the order
    in which they were first heard of.

    new_epoch   the journal is another one: formatted, or the board or its flash replaced
    unheard     boots between this and before_boot of which nothing has come; 0 for a new epoch
    """
    ends = F.struct("sequence", "uptime_ms", "exact")
    boots = _records(silver, clock).groupBy(*BOOT).agg(
        F.min(ends).alias("after"), F.max(ends).alias("before"),
        F.min("received_at").alias("first_received"),
        F.min(F.struct("received_at", "offset")).alias("_heard"),
    )  # fmt: skip
    boots = boots.withColumn("_epoch", F.min("_heard").over(Window.partitionBy(*KEY)))
    order = Window.partitionBy(*DEVICE).orderBy("_epoch", "epoch", "boot")
    back = F.lag(F.struct("epoch", "boot", "before")).over(order)
    rows = boots.select("*", back.alias("_back")).where(F.col("_back").isNotNull())
    new = F.col("epoch") != F.col("_back.epoch")
    skipped = (F.col("boot") - F.col("_back.boot") - 1).cast("bigint")
    old, first = "_back.before.", "after."
    return rows.select(
        *BOOT, new.alias("new_epoch"), F.when(new, 0).otherwise(skipped).alias("unheard"),
        F.col("_back.epoch").alias("before_epoch"), F.col("_back.boot").alias("before_boot"),
        F.col(old + "sequence").alias("before_sequence"),
        F.col(old + "uptime_ms").alias("before_uptime_ms"),
        F.col(old + "exact").alias("before_time"),
        F.col(first + "sequence").alias("after_sequence"),
        F.col(first + "uptime_ms").alias("after_uptime_ms"),
        F.col(first + "exact").alias("after_time"), "first_received",
    )  # fmt: skip


def gaps(silver, clock):
    """Runs of sequence numbers that never came, between the first and the last of an epoch.

    first_received   when the record behind the gap came, and so when the gap was first to be seen
    """
    order = Window.partitionBy(*KEY).orderBy("sequence")
    back = F.lag(F.struct("sequence", "boot", "exact")).over(order)
    rows = _records(silver, clock).select("*", back.alias("_back"))
    rows = rows.where(F.col("sequence") > F.col("_back.sequence") + 1)
    return rows.select(
        *KEY, (F.col("_back.sequence") + 1).alias("first"),
        (F.col("sequence") - 1).alias("last"),
        (F.col("sequence") - F.col("_back.sequence") - 1).alias("missing"),
        F.col("_back.boot").alias("before_boot"), F.col("_back.exact").alias("before_time"),
        F.col("boot").alias("after_boot"), F.col("exact").alias("after_time"),
        F.col("received_at").alias("first_received"),
    )  # fmt: skip


def clock_corrections(silver, clock):
    """Clock records that changed what was known of a boot's time: the first of each boot, and
    every later one that does not say what the one before it lets expect.

    expected        the time that the clock record before in this boot gives for this uptime; null
                    for the first
    correction_ms   time - expected; since_ms: uptime between the two
    silver_late_ms  how much later silver's times of this boot are than this clock record has
                    them (silver keeps one clock for a boot); null without a reading
    """
    order = Window.partitionBy(*BOOT).orderBy("sequence")
    back = F.lag(F.struct("time", "uptime_ms")).over(order)
    rows = clock.select("*", back.alias("_back"))
    since = F.col("uptime_ms") - F.col("_back.uptime_ms")
    expected = F.timestamp_millis(F.unix_millis("_back.time") + since)
    base = F.unix_millis("time") - F.col("uptime_ms")
    used = silver.where(F.col("time_quality") == "clock").groupBy(*BOOT).agg(
        F.min(base).alias("_used"))  # fmt: skip
    rows = rows.select("*", expected.alias("expected"), since.alias("since_ms"))
    rows = rows.where(F.col("expected").isNull() | (F.col("expected") != F.col("time")))
    return rows.join(used, BOOT, "left").select(
        *BOOT, "sequence", "uptime_ms", "time", "expected",
        (F.unix_millis("time") - F.unix_millis("expected")).alias("correction_ms"), "since_ms",
        (F.col("_used") - base).alias("silver_late_ms"), "received_at",
    )  # fmt: skip


def conflicts(silver, duplicates):
    """Copies that do not say what the reading of their identity says: of the two, silver has the
    one that was received first. A device has given a number twice, or two have one identity.

    spool, offset   where the copy lies in bronze
    """
    said = ("boot", "uptime_ms", "measurements")
    plain = F.filter("measurements", lambda m: m["name"] != CLOCK)  # as silver has them
    copies = duplicates.select(
        *IDENTITY, "received_at", "spool", "offset", F.col("boot").alias("copy_boot"),
        F.col("uptime_ms").alias("copy_uptime_ms"), plain.alias("copy_measurements"),
    )  # fmt: skip
    kept = silver.select(*IDENTITY, *said, F.col("received_at").alias("first_received"))
    same = (F.col(name).eqNullSafe(F.col(f"copy_{name}")) for name in said)
    differs = ~reduce(and_, same)
    return copies.join(kept, list(IDENTITY)).where(differs).select(*CONFLICTS)
