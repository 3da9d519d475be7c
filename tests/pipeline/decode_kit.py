"""Packets as bronze rows, and what decode/rows.py makes of them, a row each. Must not know what a
test asserts."""

import datetime
from collections import namedtuple
from types import SimpleNamespace

import pyarrow as pa
from pipeline_kit import NOON, topic
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.decode.rows import decode
from umqtt_pipeline.tables.schema import BRONZE, READINGS, arrow_schema

Measurement = namedtuple("Measurement", "name unit value")


def at(seconds):
    """NOON and so many seconds."""
    return datetime.datetime.fromtimestamp(NOON / 1e6 + seconds, datetime.UTC)


def rows(*payloads):
    """Bronze rows of payloads, or of (topic, payload), one second apart, as an Arrow table."""
    packets = [one if isinstance(one, tuple) else (topic(), one) for one in payloads]
    made = [{"topic": name, "payload": payload, "qos": 1, "retain": False, "dup": False,
             "packet_id": n + 1, "received_at": at(n), "spool": "s", "offset": 100 * n,
             "date": at(n).date()} for n, (name, payload) in enumerate(packets)]  # fmt: skip
    return pa.Table.from_pylist(made, arrow_schema(BRONZE))


def told(given, *decoders):
    """What becomes of bronze rows, or of payloads: objects with the columns as attributes."""
    given = given if isinstance(given, pa.Table) else rows(*given)
    found = decode(given, Decoders(decoders))
    assert found.select(given.column_names).equals(given)
    return [SimpleNamespace(**{**row, "measurements": row["measurements"] and [
        Measurement(**each) for each in row["measurements"]]}) for row in found.to_pylist()]


def good(given, *decoders):
    """The readings of bronze rows, or of payloads, as ingest takes them: an Arrow table."""
    given = given if isinstance(given, pa.Table) else rows(*given)
    found, schema = decode(given, Decoders(decoders)), arrow_schema(READINGS)
    kept = [why is None and not other for why, other in zip(
        found["reason"].to_pylist(), found["other"].to_pylist())]  # fmt: skip
    return found.filter(pa.array(kept, pa.bool_())).select(schema.names).cast(schema)
