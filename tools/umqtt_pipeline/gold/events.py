"""What happened to devices: restarts, gaps, corrections of their clocks, and conflicts of copies
with what came first, a row each.

Knows the days that gold keeps (days.py), and for conflicts silver and duplicates: pure functions
from DataFrames to DataFrames, of everything that is there, so a reading that comes late changes
the rows beside it the next time. Must not know files.

`before_` is the record in front of the event, `after_` the one behind it, both by sequence number;
a record is a reading or a clock record. Times are those of the device's clock, null where its
boot never had one: a time of receipt would be no bound.
"""

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from ..bridge.marks import AHEAD, AHEAD_PER_S
from ..decode.reasons import CLOCK
from ..tables.schema import BOOT, IDENTITY, KEY
from .days import DEVICE
from .schema import CONFLICTS, GAPS


def restarts(boot_days):
    """Boots of a device behind its first one, in the order of their numbers; epochs in the order
    in which they were first heard of.

    new_epoch   the journal is another one: formatted, or the board or its flash replaced
    unheard     boots between this and before_boot of which nothing has come; 0 for a new epoch
    """
    ends = []
    for run, end in ((F.col("runs")[0], "first"), (F.element_at("runs", -1), "last")):
        uptime, exact = run[f"{end}_uptime_ms"], run[f"{end}_exact"]
        ends.append(F.struct(run[end].alias("sequence"), uptime.alias("uptime_ms"),
                             exact.alias("exact")))  # fmt: skip
    boots = boot_days.groupBy(*BOOT).agg(
        F.min(ends[0]).alias("after"), F.max(ends[1]).alias("before"),
        F.min("least").alias("_heard"),
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
        F.col(first + "exact").alias("after_time"),
        F.col("_heard.received_at").alias("first_received"),
    )  # fmt: skip


#: What a gap is for. Of a gap with a wrong number at one of its ends nothing is missing: its
#: device cannot have taken so many readings between the two records.
MISSING, REFUSED, WRONG = "never came", "in quarantine", "a number is wrong"
DELETED = "deleted"


def gaps(boot_days, device_days, gone):
    """Runs of sequence numbers that no reading has, between the first and the last of an epoch.

    missing          how many of them came nowhere;   quarantined: how many are in quarantine
    deleted          how many came and were deleted since, out of silver, clock or quarantine, and
                     are not in quarantine
    reason           MISSING; if nothing is missing DELETED or else REFUSED; or WRONG: see there
    first_received   when the record behind the gap came, and so when the gap was first to be seen

    gone             rows of SEEN: numbers whose rows were deleted
    """
    holes = _holes(boot_days)
    rows = holes.join(_within(holes, device_days, gone), [*KEY, "first"])
    lost = F.col("last") - F.col("first") + 1 - F.col("quarantined") - F.col("deleted")
    rows = rows.select("*", lost.alias("missing"))
    reason = F.when(F.col("wrong"), WRONG).when(F.col("missing") > 0, MISSING).when(
        F.col("deleted") > 0, DELETED).otherwise(REFUSED)
    return rows.select("*", reason.alias("reason")).select(*GAPS)


def _within(holes, device_days, gone):
    """How many numbers of each hole are in quarantine, and how many were deleted and are not
    there: quarantined, deleted, by KEY and first.

    All ends of ranges are gone through in their order, with how many ranges of each kind are open
    at each: ranges may overlap, and none is taken apart into its numbers.
    """
    refused = device_days.select(*DEVICE, F.explode("refused").alias("run")).select(
        *DEVICE, "run.epoch", "run.first", "run.last")
    kinds = ("hole", "kept", "gone")
    ends = reduce(DataFrame.unionByName, (
        _ends(ranges, kind, kinds) for ranges, kind in zip((holes, refused, gone), kinds)))
    ends = ends.groupBy(*KEY, "at").agg(*(F.sum(kind).alias(kind) for kind in kinds))
    order = Window.partitionBy(*KEY).orderBy("at")
    until = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begin = F.max(F.when(F.col("hole") > 0, F.col("at"))).over(until)
    parts = ends.select(
        *KEY, begin.alias("first"), (F.lead("at").over(order) - F.col("at")).alias("size"),
        *((F.sum(kind).over(until) > 0).alias(kind) for kind in kinds)).where("hole")  # fmt: skip

    def size(which):
        return F.sum(F.when(which, F.col("size")).otherwise(0))

    return parts.groupBy(*KEY, "first").agg(
        size(F.col("kept")).alias("quarantined"),
        size(F.col("gone") & ~F.col("kept")).alias("deleted"))  # fmt: skip


def _ends(ranges, kind, kinds):
    """The ends of ranges: at, and by how many of each kind there are more from there on."""
    changes = {1: F.col("first"), -1: F.col("last") + 1}
    both = F.explode(F.array(*(F.struct(at.alias("at"), F.lit(more).cast("bigint").alias("more"))
                               for more, at in changes.items())))  # fmt: skip
    none = F.lit(0).cast("bigint")
    return ranges.select(*KEY, both.alias("end")).select(
        *KEY, "end.at", *((F.col("end.more") if name == kind else none).alias(name)
                          for name in kinds))  # fmt: skip


def _holes(boot_days):
    """The gaps, with the records on both sides, and whether a number of these is `wrong`."""
    rows = boot_days.select(*KEY, "boot", F.explode("runs").alias("run"))
    before = Window.partitionBy(*KEY).orderBy("run.first").rowsBetween(
        Window.unboundedPreceding, -1)  # fmt: skip
    # Runs of two days may lie within each other: a gap is behind the greatest number so far.
    front = F.struct(F.col("run.last").alias("sequence"), "boot",
                     F.col("run.last_exact").alias("exact"),
                     F.col("run.last_uptime_ms").alias("uptime_ms"))  # fmt: skip
    rows = rows.select("*", F.max(front).over(before).alias("_back"))
    rows = rows.where(F.col("run.first") > F.col("_back.sequence") + 1)
    within = F.col("run.first_uptime_ms") - F.col("_back.uptime_ms")
    between = F.when(F.col("boot") == F.col("_back.boot"), within).otherwise(
        F.unix_millis("run.first_exact") - F.unix_millis("_back.exact"))  # null: not known
    most = AHEAD + F.when(between < 0, 0).otherwise(between) * (AHEAD_PER_S / 1000)
    count = F.col("run.first") - F.col("_back.sequence") - 1
    back_in_time = (F.col("boot") < F.col("_back.boot")) & (count > AHEAD)
    return rows.select(
        *KEY, (F.col("_back.sequence") + 1).alias("first"),
        (F.col("run.first") - 1).alias("last"),
        F.coalesce(back_in_time | (count > most), F.lit(False)).alias("wrong"),
        F.col("_back.boot").alias("before_boot"), F.col("_back.exact").alias("before_time"),
        F.col("boot").alias("after_boot"), F.col("run.first_exact").alias("after_time"),
        F.col("run.received_at").alias("first_received"),
    )  # fmt: skip


def clock_corrections(boot_days):
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
    clock = boot_days.select(*BOOT, F.explode("clocks").alias("_of")).select(*BOOT, "_of.*")
    rows = clock.select("*", back.alias("_back"))
    since = F.col("uptime_ms") - F.col("_back.uptime_ms")
    expected = F.timestamp_millis(F.unix_millis("_back.time") + since)
    base = F.unix_millis("time") - F.col("uptime_ms")
    used = boot_days.groupBy(*BOOT).agg(F.min("base_ms").alias("_used"))
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


def copies_of(boot_days, device_days, changed):
    """(day of receipt of a copy, that of the reading of its identity): one row for each pair of
    days of which one is in `changed`, a list of dates as text."""
    copies = device_days.select(*DEVICE, F.col("date").alias("copied"),
                                F.explode("copies").alias("copy"))  # fmt: skip
    copies = copies.select("*", F.col("copy.epoch").alias("epoch"))
    runs = boot_days.select(*KEY, F.col("date").alias("kept"), F.explode("runs").alias("run"))
    new, to_new = F.col("copied").isin(changed), F.col("kept").isin(changed)

    def pairs(copies, runs):
        overlap = (F.col("copy.first") <= F.col("run.last")) & (
            F.col("run.first") <= F.col("copy.last"))  # fmt: skip
        return copies.join(runs, KEY).where(overlap).select("copied", "kept")

    # Two joins, of which each has few rows on one side.
    return pairs(copies.where(new), runs).union(
        pairs(copies.where(~new), runs.where(to_new))).distinct()  # fmt: skip
