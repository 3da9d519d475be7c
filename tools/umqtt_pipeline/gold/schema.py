"""The columns of gold's tables, as Spark's type names.

Knows names and types. Must not know how a row is made, nor Spark: the report, which needs none,
compares the tables with them.
"""

from ..tables.schema import IDENTITY, MEASUREMENTS

MINUTE = {
    "group": "string", "device": "string", "minute": "timestamp", "name": "string",
    "unit": "string", "count": "bigint", "min": "double", "mean": "double", "max": "double",
    "date": "date",
}  # fmt: skip
BOOTS = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int", "readings": "bigint",
    "first_sequence": "bigint", "last_sequence": "bigint", "first_time": "timestamp",
    "last_time": "timestamp", "clock": "boolean",
}  # fmt: skip
DEVICES = {
    "group": "string", "device": "string", "epochs": "bigint", "readings": "bigint",
    "first_sequence": "bigint", "last_sequence": "bigint", "gaps": "bigint", "missing": "bigint",
    "duplicates": "bigint", "quarantined": "bigint", "restarts": "bigint",
    "first_time": "timestamp", "last_time": "timestamp", "last_received": "timestamp",
    "latency_p50_s": "double", "latency_p99_s": "double",
    "stored_p50_s": "double", "stored_p99_s": "double",
    "battery": "double", "battery_min": "double", "rssi": "double", "rssi_min": "double",
}  # fmt: skip
#: How many readings of a device have which latency, over all days: kept for the next run.
LATENCY = {"group": "string", "device": "string", "kind": "string", "bucket": "int",
           "readings": "bigint"}  # fmt: skip
RESTARTS = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int",
    "new_epoch": "boolean", "unheard": "bigint", "before_epoch": "string", "before_boot": "int",
    "before_sequence": "bigint", "before_uptime_ms": "bigint", "before_time": "timestamp",
    "after_sequence": "bigint", "after_uptime_ms": "bigint", "after_time": "timestamp",
    "first_received": "timestamp",
}  # fmt: skip
GAPS = {
    "group": "string", "device": "string", "epoch": "string", "first": "bigint",
    "last": "bigint", "missing": "bigint", "quarantined": "bigint", "deleted": "bigint",
    "reason": "string",
    "before_boot": "int", "before_time": "timestamp", "after_boot": "int",
    "after_time": "timestamp", "first_received": "timestamp",
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

# What is kept of each day of receipt.
HEALTH = ("battery", "rssi")  #: measurements of these names are shown per device
LAST = "struct<sequence:bigint,value:double>"
RECEIPT = "struct<received_at:timestamp,offset:bigint>"
RUNS = (
    "array<struct<first:bigint,first_uptime_ms:bigint,first_exact:timestamp,"
    "received_at:timestamp,last:bigint,last_uptime_ms:bigint,last_exact:timestamp>>"
)
CLOCKS = "array<struct<sequence:bigint,uptime_ms:bigint,time:timestamp,received_at:timestamp>>"
COUNTED = "array<struct<bucket:int,readings:bigint>>"
#: A boot: its readings, and the runs of its records. received_at of a run is that of its first
#: record. exact: time by the device's clock, or null. base_ms: the least clock base of readings.
BOOT_DAY = {
    "group": "string", "device": "string", "epoch": "string", "boot": "int", "readings": "bigint",
    "first_sequence": "bigint", "last_sequence": "bigint", "first_time": "timestamp",
    "last_time": "timestamp", "last_received": "timestamp", "least": RECEIPT, "greatest": RECEIPT,
    "base_ms": "bigint", "runs": RUNS, "clocks": CLOCKS,
    **{f"{name}_{what}": kind for name in HEALTH for what, kind in (
        ("heard", RECEIPT), ("last", LAST), ("least", "double"))},
    "date": "date",
}  # fmt: skip
NUMBERED = "array<struct<epoch:string,first:bigint,last:bigint>>"
#: A device: how many copies and packets in quarantine, the runs of the numbers of its copies and
#: of its packets in quarantine (refused), its latencies.
DEVICE_DAY = {
    "group": "string", "device": "string", "duplicates": "bigint", "quarantined": "bigint",
    "copies": NUMBERED, "refused": NUMBERED, "received": COUNTED, "stored": COUNTED,
    "date": "date",
}  # fmt: skip
#: What a batch brought of one day of readings; digest tells which readings and times.
DAY = {"batch": "bigint", "minutes_of": "date", "readings": "bigint", "digest": "bigint",
       "date": "date"}  # fmt: skip

#: for analysts and operators, in the order in which they are made
TABLES = {"gold_minute": MINUTE, "gold_boot": BOOTS, "restarts": RESTARTS, "gaps": GAPS,
          "clock_corrections": CORRECTIONS, "conflicts": CONFLICTS,
          "gold_device": DEVICES}  # fmt: skip
OF_DAYS = {"gold_boot_day": BOOT_DAY, "gold_device_day": DEVICE_DAY, "gold_day": DAY}
KEPT = {**OF_DAYS, "gold_latency": LATENCY}  #: for the next run
MADE = {**KEPT, **TABLES}
