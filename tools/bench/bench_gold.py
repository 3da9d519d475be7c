"""make bench-gold: what gold costs after one more day, beside gold made anew of all days.

    python tools/bench/bench_gold.py [--devices N] [--days N] [--interval SECONDS]

Silver, clock, duplicates and batches are made up: a fleet whose devices restart each month, lose a
reading now and then, have copies, and of which some deliver a day late; a batch an hour. Gold is
made of all days but the last, then the last day comes, and gold goes on; then all is made anew, in
the same session. Prints wall clock and CPU seconds (JVM and Python workers) of the three and their
ratio. The exit status is 1 if the two results are not the same.

Knows: how silver must look, what is measured. Must not know: how gold is made.
"""

import datetime
import resource
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from umqtt_pipeline.gold import build
from umqtt_pipeline.tables.schema import ALL, MEASUREMENTS, arrow_schema, arrow_type
from umqtt_pipeline.tables.store import Tables, written
from umqtt_runtime.session import session

DAY_US = 86_400_000_000
BEGIN = datetime.date(2025, 1, 1)
BEGIN_US = 1_735_689_600_000_000
BOOT_DAYS = 30  #: a device restarts so often
LATE, LOST, COPIED = 0.01, 0.001, 0.002  #: shares of devices a day, of readings, of readings
TARGET = 20


class Fleet:
    """What comes in a day. devices, a day's readings of each; interval_s between them."""

    def __init__(self, devices, interval_s):
        self.devices, self.interval = devices, interval_s * 1_000_000
        self.readings = 86_400 // interval_s
        self.random = np.random.default_rng(1)
        self.names = np.array([f"dev{n:05d}" for n in range(devices)])
        self.epochs = np.array([f"{n:016x}" for n in range(devices)])

    def day(self, day):
        """(silver, clock, duplicates) rows of a day of receipt, as {column: array}."""
        device = np.repeat(np.arange(self.devices), self.readings)
        place = np.tile(np.arange(self.readings), self.devices)
        late = self.random.random(self.devices)[device] < LATE
        taken = np.where(late, day - 1, day)
        keep = (self.random.random(len(device)) >= LOST) & (taken >= 0)
        device, place, taken = device[keep], place[keep], taken[keep]
        boot = taken // BOOT_DAYS + 1
        # A clock record is the first of each boot.
        sequence = taken * self.readings + place + boot + 1
        since = (taken % BOOT_DAYS) * DAY_US + place * self.interval + 30_000_000
        when = BEGIN_US + (boot - 1) * BOOT_DAYS * DAY_US + since
        delay = self.random.lognormal(-0.5, 0.8, len(device)) * 1e6
        came = BEGIN_US + day * DAY_US + place * self.interval + 30_000_000 + delay.astype(int)
        came = np.minimum(came, BEGIN_US + (day + 1) * DAY_US - 1)
        rows = {"of": device, "sequence": sequence, "boot": boot, "uptime_ms": since // 1000,
                "time": when, "received_at": came, "offset": np.arange(len(device)) * 150,
                "batch": day * 24 + (came - BEGIN_US) % DAY_US // 3_600_000_000}  # fmt: skip
        copied = self.random.random(len(device)) < COPIED
        clocks = {name: values[:0] for name, values in rows.items()}
        if day % BOOT_DAYS == 0:
            every = np.arange(self.devices)
            start = BEGIN_US + day * DAY_US
            clocks = {"of": every, "sequence": np.full(self.devices, 1) + day * self.readings
                      + day // BOOT_DAYS, "boot": np.full(self.devices, day // BOOT_DAYS + 1),
                      "uptime_ms": np.zeros(self.devices, int), "offset": every * 150 + 1,
                      "time": np.full(self.devices, start),
                      "received_at": np.full(self.devices, start + 1_000_000)}  # fmt: skip
        return rows, clocks, {name: values[copied] for name, values in rows.items()}

    def table(self, rows, columns):
        """Rows as the Arrow table of a day of a table with these columns."""
        count, found = len(rows["of"]), {}
        texts = {"group": "site", "time_quality": "clock", "spool": "5f2c1c4e8d0b4f3a"}
        for name, kind in columns.items():
            if name == "date":
                continue
            if kind == MEASUREMENTS:
                found[name] = self.measurements(rows["of"] * 31 + rows["sequence"] * 7)
            elif name in ("device", "epoch"):
                names = self.names if name == "device" else self.epochs
                found[name] = pa.DictionaryArray.from_arrays(rows["of"], names).cast(pa.string())
            elif name in rows:
                found[name] = pa.array(rows[name]).cast(arrow_type(kind))
            else:
                value = texts.get(name, {"int": 1, "boolean": False}.get(kind))
                found[name] = pa.repeat(pa.scalar(value, arrow_type(kind)), count)
        return pa.table(found)

    @staticmethod
    def measurements(seeds):
        """Two of each reading, the same for the same seed."""
        count = len(seeds)
        kinds = np.tile([0, 1], count)
        def text(*words):
            return pa.DictionaryArray.from_arrays(kinds, list(words)).cast(pa.string())

        values = np.repeat(seeds, 2) % 997 / 16 + kinds
        items = pa.StructArray.from_arrays(
            [text("temperature", "battery"), text("Cel", "V"), pa.array(values)],
            fields=list(arrow_type(MEASUREMENTS).value_type))  # fmt: skip
        offsets = pa.array(np.arange(0, 2 * count + 2, 2), pa.int32())
        return pa.ListArray.from_arrays(offsets, items).cast(arrow_type(MEASUREMENTS))


def commit(tables, fleet, days):
    """Put days of receipt into the tables; returns the number of readings."""
    made, count = {name: [] for name in ALL}, 0
    for day in days:
        date = str(BEGIN + datetime.timedelta(days=day))
        told = dict(zip(("silver", "clock", "duplicates"), fleet.day(day)))
        for name, rows in told.items():
            if len(rows["of"]):
                part = fleet.table(rows, ALL[name])
                made[name].append(written(tables.storage, name, day, date, part))
        made["batches"].append(_batches(tables, day, date, told["silver"]["batch"]))
        count += len(told["silver"]["of"])
    for name, added in made.items():
        tables.commit(name, days[-1], added)
    return count


def _batches(tables, day, date, batch):
    numbers, readings = np.unique(batch, return_counts=True)
    ends = BEGIN_US + (numbers + 1) * 3_600_000_000
    columns = {name: kind for name, kind in ALL["batches"].items() if name != "date"}
    rows = pa.Table.from_arrays([
        pa.array(values).cast(arrow_type(kind))
        for values, kind in zip((numbers, readings, readings, ends), columns.values())
    ], schema=arrow_schema(columns))  # fmt: skip
    return written(tables.storage, "batches", day, date, rows)


def cpu():
    """Seconds so far of this process and of its Java and Python workers."""
    own = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    total = sum(sum(resource.getrusage(who)[:2]) for who in own)
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        # With the children that it has waited for.
        parents[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15])) / 100
    above = {int(Path("/proc/self").resolve().name)}
    while above:
        above = {pid for pid, (parent, _) in parents.items() if parent in above}
        total += sum(parents[pid][1] for pid in above)
    return total


def measured(what, spark, root, **how):
    """(wall, CPU) seconds of a run of gold, which is said."""
    begun, used = time.perf_counter(), cpu()
    build.build(spark, root, **how)
    wall, used = time.perf_counter() - begun, cpu() - used
    print(f"{what}: {wall:.1f} s, {used:.1f} s of CPU", flush=True)
    return wall, used


def versions(root):
    """{table: its version now}."""
    return {name: DeltaTable(str(Path(root, name))).version() for name in build.TABLES}


def same(root, before):
    """Whether all gold tables say what they said at those versions, a day at a time: a year of
    minutes, twice, is more than a machine may have memory for."""
    for name, columns in build.TABLES.items():
        now = DeltaTable(str(Path(root, name)))
        then = DeltaTable(str(Path(root, name)), version=before[name])
        parted = now.metadata().partition_columns
        days = [table.partitions() if parted else [{}] for table in (then, now)]
        if sorted(days[0], key=str) != sorted(days[1], key=str):
            return False
        for day in days[0]:
            part = [(key, "=", datetime.date.fromisoformat(str(value)))
                    for key, value in day.items()]  # fmt: skip
            if _rows(then, columns, part) != _rows(now, columns, part):
                return False
    return True


def _rows(table, columns, part):
    """The rows of a part of a table, in a fixed order; means as far as they do not depend on
    one."""
    held = table.to_pyarrow_table(columns=list(columns), filters=part or None)
    if "mean" in columns:
        place = held.schema.get_field_index("mean")
        held = held.set_column(place, "mean", pc.round(held["mean"], 6))
    keys = [(field.name, "ascending") for field in held.schema
            if not pa.types.is_nested(field.type)]  # fmt: skip
    return held.sort_by(keys)


@click.command()
@click.option("--devices", default=1000)
@click.option("--days", default=365, type=click.IntRange(2))
@click.option("--interval", default=600, help="seconds from a reading of a device to the next")
@click.option("--memory", default="1g", help="of Spark's Java")
@click.option("--check/--no-check", default=True, help="make all anew at the end, and compare")
def main(devices, days, interval, memory, check):
    """What gold costs after one more day, beside gold made anew."""
    with tempfile.TemporaryDirectory(prefix="umqtt-gold-") as folder:
        root, fleet = Path(folder, "tables"), Fleet(devices, interval)
        tables = Tables(root, ALL)
        count = commit(tables, fleet, range(days - 1))
        spark = session(memory=memory)
        spark.sparkContext.setLogLevel("OFF")
        try:
            print(f"{devices} devices, a reading each {interval} s, {days} days", flush=True)
            anew = measured(f"gold of {days - 1} days, {count:,} readings", spark, root)
            commit(tables, fleet, [days - 1])
            more = measured("gold after one more day", spark, root)
            made = versions(root)
            if check:
                anew = measured("gold made anew", spark, root, anew=True)
        finally:
            spark.stop()
        equal = not check or same(root, made)
    print(f"anew : after one more day = {anew[0] / more[0]:.1f} (CPU {anew[1] / more[1]:.1f}); "
          f"wanted {TARGET}")  # fmt: skip
    if check:
        print("the tables are the same" if equal else "THE TABLES ARE NOT THE SAME")
    raise SystemExit(not equal)


if __name__ == "__main__":
    main()
