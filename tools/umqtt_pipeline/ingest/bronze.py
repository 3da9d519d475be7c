"""Bronze: exactly what came from the broker, plus the day it came. Must not look at payloads.

`from_kafka` gives rows of `format("kafka")` the columns of `format("mqtt")`, so that the same
query runs where a company has Kafka between broker and tables.
"""

from pyspark.sql import functions as F

from ..tables.schema import BRONZE as COLUMNS

__all__ = ["COLUMNS", "bronze", "from_kafka"]

LATEST = "9999-12-30 00:00:00"  #: of the times that every reader of Parquet knows


def from_kafka(source):
    """Rows of `format("kafka")` -> rows as of `format("mqtt")`.

    The connector is to put the MQTT topic into the record's key and the payload into its value,
    unchanged. QoS, retain, dup and packet id are the connector's own and not known: null, false,
    false, null. spool is kafka/TOPIC/PARTITION of the Kafka topic, and offset the one there.

    Any producer may write into the Kafka topic, and no record of it may stop ingest. A key or a
    value that is null comes as an empty one, bytes of a key that are no UTF-8 as U+FFFD, and a
    time that its producer set behind LATEST as LATEST.
    """
    key = F.make_valid_utf8(F.col("key").cast("string"))
    latest = F.lit(LATEST).cast("timestamp")
    return source.select(
        F.coalesce(key, F.lit("")).alias("topic"),
        F.coalesce("value", F.lit(b"")).alias("payload"),
        F.lit(None).cast("int").alias("qos"), F.lit(False).alias("retain"),
        F.lit(False).alias("dup"), F.lit(None).cast("int").alias("packet_id"),
        F.least("timestamp", latest).alias("received_at"),
        F.concat_ws("/", F.lit("kafka"), "topic", "partition").alias("spool"), "offset",
    )  # fmt: skip


def bronze(source):
    """Rows of `format("mqtt")` -> bronze rows; date is the UTC day of receipt."""
    return source.withColumn("date", F.to_date("received_at"))
