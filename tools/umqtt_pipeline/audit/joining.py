"""Exchanges that went on in another connection.

Knows: DataFrames in, DataFrames out. Must not know: files (but for empty tables), captures.
"""

import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from .columns import OUTCOMES
from .tallies import STEP

OPEN, ACKNOWLEDGED, _, HEADLESS = OUTCOMES


def spark_schema(schema):
    """The schema of an Arrow table for Spark."""
    return from_arrow_schema(schema)


def empty(spark, schema):
    """A table without rows."""
    return spark.createDataFrame([], spark_schema(schema))


def write_empty(schema, path):
    """A Parquet file without rows."""
    pq.write_table(schema.empty_table(), path, store_schema=False)


def joined(pieces):
    """One row per message out of the pieces that connections of one client have of it.

    A piece goes on with the one before it (same client, broker, sender, packet id) if that was
    left open and this one begins with PUBREL, or is the same PUBLISH (length and check value) in
    a session that was not clean. A client without an id is taken by its connection alone.
    """
    who = F.coalesce("client_id", F.concat(F.lit("\0"), F.col("connection").cast("string")))
    pieces = pieces.withColumn("who", who)
    same = ("who", "broker", "sender", "packet_id")
    line = Window.partitionBy(*same).orderBy("first", "connection")
    before = {n: F.lag(n).over(line)
              for n in ("outcome", "digest", "length", "connection", "qos")}  # fmt: skip
    alike = (before["digest"] == F.col("digest")) & (before["length"] == F.col("length"))
    goes_on = (
        (before["outcome"] == OPEN)
        & (before["connection"] != F.col("connection"))
        & F.col("resumed")
        & ((F.col("headless") & (before["qos"] == 2)) | (alike & ~F.col("clean")))
    )
    marked = pieces.withColumn("begins", F.when(goes_on, 0).otherwise(1)).withColumn(
        "again", F.when(goes_on & ~F.col("headless"), 1).otherwise(0)
    )
    numbered = marked.withColumn("chain", F.sum("begins").over(line))
    first = {n: F.min_by(n, "first").alias(n) for n in ("connection", "client_id", "topic",
                                                        "length")}  # fmt: skip
    chains = numbered.groupBy(*same, "chain").agg(
        *first.values(),
        F.max("qos").alias("qos"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.min("received").alias("received"),
        F.min("released").alias("released"),
        F.max("done").alias("done"),
        F.sum("sent").cast("int").alias("sent"),
        # The first PUBLISH of a later piece is a retransmission itself.
        F.sum(F.col("with_dup") + F.when(F.col("dup_first"), F.col("again")).otherwise(0))
        .cast("int").alias("with_dup"),
        F.sum(F.col("without_dup") + F.when(F.col("dup_first"), 0).otherwise(F.col("again")))
        .cast("int").alias("without_dup"),
        F.max_by("outcome", "first").alias("last_outcome"),
        F.min_by("headless", "first").alias("headless"),
        F.countDistinct("connection").cast("int").alias("connections"),
    )  # fmt: skip
    outcome = F.when(F.col("headless") & F.col("done").isNull(), HEADLESS)
    latency = (F.unix_micros("done") - F.unix_micros("first")) / 1000.0
    return chains.withColumns({
        "outcome": outcome.otherwise(F.when(F.col("done").isNotNull(), ACKNOWLEDGED)
                                     .otherwise(F.col("last_outcome"))),
        "latency_ms": F.when(~F.col("headless"), latency),
    })  # fmt: skip


def latencies(flows):
    """The table of latencies (tallies.py) of messages."""
    scale = F.log(F.lit(STEP))
    step = F.rint(F.log(F.greatest(F.col("latency_ms") * 1000, F.lit(1.0))) / scale)
    done = F.col("outcome") == ACKNOWLEDGED
    rounded = F.when(done, F.pow(F.lit(STEP), step) / 1000)
    return (
        flows.groupBy("client_id", "broker", "sender", "qos", "outcome",
                      rounded.alias("latency_ms"))
        .agg(F.count("*").alias("messages"),
             F.sum(F.col("with_dup") + F.col("without_dup")).alias("retransmissions"),
             F.max(F.when(done, F.col("latency_ms"))).alias("longest_ms"))
    )  # fmt: skip
