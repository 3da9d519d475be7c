"""Bronze: exactly what came from the broker, plus the day it came. Must not look at payloads."""

from pyspark.sql import functions as F

COLUMNS = {
    "topic": "string", "payload": "binary", "qos": "int", "retain": "boolean", "dup": "boolean",
    "packet_id": "int", "received_at": "timestamp", "offset": "bigint", "date": "date",
}  # fmt: skip


def bronze(source):
    """Rows of `format("mqtt")` -> bronze rows; date is the UTC day of receipt."""
    return source.withColumn("date", F.to_date("received_at"))
