"""Exchanges that went on in another connection.

Knows: DataFrames in, DataFrames out. Must not know: files (but for empty tables), captures.
"""

import pyarrow.parquet as pq
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ..report.columns import OUTCOMES
from ..report.tallies import STEP
from ..rules.statements import AGAIN, RULES, statement

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


def without_dup(pieces, connections):
    """Violations: a PUBLISH sent again without DUP on the connection that came next.

    Said only if nothing speaks against it: the client's connection before this one left the same
    message (packet id, QoS, length, check value) without any answer, none of the answering side's
    bytes are missing on it, its session was to be kept and goes on (columns.repeats), and it was
    seen to end, or is in the same capture file, for nobody knows what was left out between two.
    A connection from there whose CONNECT is missing, between the two, may have been the client's.
    """
    same = ("client_id", "broker", "sender", "packet_id")
    line = Window.partitionBy(*same).orderBy("first", "connection")
    before = {n: F.lag(n).over(line) for n in (
        "unanswered", "clean", "closed", "file", "connection", "qos", "length", "digest")}
    alike = [before[n] == F.col(n) for n in ("qos", "length", "digest")]
    seen = before["closed"] | (before["file"] == F.col("file"))
    sure = before["unanswered"] & ~before["clean"] & seen & alike[0] & alike[1] & alike[2]
    marked = pieces.filter(F.col("client_id") != "").withColumns(
        {"sure": sure, "previous": before["connection"]})
    place = (F.regexp_replace("client", r":\d+$", ""), "broker")
    unnamed = F.sum(F.col("client_id").isNull().cast("int"))
    connections = connections.withColumns({
        "host": place[0],
        "unnamed": unnamed.over(Window.partitionBy(*place).orderBy("first", "connection"))})
    line = Window.partitionBy("client_id", "broker").orderBy("first", "connection")
    other = F.lag("host").over(line) != F.col("host")
    follows = connections.filter(F.col("client_id") != "").select(
        "connection", F.lag("connection").over(line).alias("previous"),
        (other | (F.lag("unnamed").over(line) == F.col("unnamed"))).alias("next"),
    ).filter("next").drop("next")
    statements = F.create_map(*[F.lit(word) for level in (2, 3, 4)
                                for word in (level, statement(AGAIN, level))])
    return (
        marked.filter(F.col("repeats") & F.col("sure")).join(follows, ["connection", "previous"])
        .withColumns({
            "time": F.col("first"), "type": F.lit("PUBLISH"), "keep_alive": F.lit(False),
            "statement": statements[F.col("level").cast("int")],
            "what": F.format_string(RULES[AGAIN][2].replace("{}", "%d"), "packet_id"),
        })
    )  # fmt: skip


def latencies(flows):
    """The table of latencies (report/tallies.py) of messages."""
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
