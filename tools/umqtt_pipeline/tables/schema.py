"""The columns of the tables and of the state that ingest keeps, as Spark's type names.

Knows names and types. Must not know how a row is made or where it is written.

A packet is known by `spool`, the id of the spool it came through, and `offset`, its place there.
"""

import pyarrow as pa

PARTITION = "date"
_ARROW = {
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "int": pa.int32(),
    "bigint": pa.int64(), "double": pa.float64(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


def ddl(columns):
    """{name: type} as the text that Spark takes for a schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_type(kind):
    """The pyarrow type of a Spark type's text: a simple type, a struct of those, an array."""
    if kind.startswith("array<"):
        return pa.list_(pa.field("element", arrow_type(kind[6:-1])))
    if kind.startswith("struct<"):
        fields = (field.split(":") for field in kind[7:-1].split(","))
        return pa.struct([(name, arrow_type(of)) for name, of in fields])
    return _ARROW[kind]


def arrow_schema(columns):
    """{name: type} as a pyarrow schema."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])


MEASUREMENTS = "array<struct<name:string,unit:string,value:double>>"
BRONZE = {
    "topic": "string", "payload": "binary", "qos": "int", "retain": "boolean", "dup": "boolean",
    "packet_id": "int", "received_at": "timestamp", "spool": "string", "offset": "bigint",
    "date": "date",
}  # fmt: skip
IDENTITY = {"group": "string", "device": "string", "epoch": "string", "sequence": "bigint"}
RECEIPT = {"received_at": "timestamp", "spool": "string", "offset": "bigint", "date": "date"}
SILVER = {
    **IDENTITY, "boot": "int", "uptime_ms": "bigint", "time": "timestamp",
    "time_quality": "string", "received_at": "timestamp", "qos": "int",
    "measurements": MEASUREMENTS, "spool": "string", "offset": "bigint", "batch": "bigint",
    "date": "date",
}  # fmt: skip
QUARANTINE = {"reason": "string", "epoch": "string", "sequence": "bigint", **BRONZE}
DUPLICATES = {
    **IDENTITY, "boot": "int", "uptime_ms": "bigint", "measurements": MEASUREMENTS,
    "dup": "boolean", **RECEIPT,
}  # fmt: skip
CLOCK_ROWS = {**IDENTITY, "boot": "int", "uptime_ms": "bigint", "time": "timestamp", **RECEIPT}
TABLES = {
    "bronze": BRONZE,
    "silver": SILVER,
    "quarantine": QUARANTINE,
    "duplicates": DUPLICATES,
    "clock": CLOCK_ROWS,
}
# Beside the rows: when each batch was whole in the tables.
BATCHES = {
    "batch": "bigint", "rows": "bigint", "readings": "bigint", "committed_at": "timestamp",
    "date": "date",
}  # fmt: skip
ALL = {**TABLES, "batches": BATCHES}

KEY = ["group", "device", "epoch"]
BOOT = [*KEY, "boot"]
_KEY = dict.fromkeys(KEY, "string")
# The state, of which a batch adds rows: numbers seen (ranges), the clock of a boot; boots with
# readings whose time is only bounded, and the batches that hold them.
SEEN = {**_KEY, "first": "bigint", "last": "bigint"}
CLOCKS = {**_KEY, "boot": "int", "clock_time": "timestamp", "clock_uptime_ms": "bigint"}
UNCLOCKED = {**_KEY, "boot": "int", "first_batch": "bigint", "last_batch": "bigint"}
STATE = {"seen": SEEN, "clocks": CLOCKS, "unclocked": UNCLOCKED}
DELETED = "deleted"  #: a part of the state, too: numbers (SEEN) whose rows were deleted as too old

# A reading that was decoded and has no fate yet: between the two steps of a batch.
READINGS = {
    **IDENTITY, "boot": "int", "uptime_ms": "bigint", "measurements": MEASUREMENTS, "qos": "int",
    "dup": "boolean", **RECEIPT,
}  # fmt: skip
