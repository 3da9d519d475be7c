"""make bench-fleet: what a large fleet costs in a minute, part by part, beside what a page says.

    python tools/bench/bench_fleet.py [--devices N] [--minutes N]

Every device takes a reading a minute. Each minute goes through the pipeline's own code in this
process: the bridge's part (scan, spool with an fsync a block, marks, their file, the marks that
are told), and ingest's (rows of the spool, decoding, duplicates and clocks against the state, the
files of bronze, silver and state). What is not here are broker, sockets, Spark and Delta's
commits: `make bench` has their share, `make bench-gold` gold.

Prints for the last minute the CPU seconds and the bytes of each part. The first minute makes every
device known and is dearer. Exit status 1 unless every reading is new in silver once.

Knows: which functions do the work. Must not know: bytes of packets (pipeline_load.py).
"""

import datetime
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pipeline_load import Packets
from rich.console import Console
from rich.table import Table
from umqtt_pipeline import wire
from umqtt_pipeline.bridge.mark_file import MarkFile
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.bridge.telling import Telling
from umqtt_pipeline.bridge.upkeep import SNAPSHOT_BYTES
from umqtt_pipeline.decode import firmware_packs
from umqtt_pipeline.ingest import dedup, state
from umqtt_pipeline.ingest.batch_tasks import PART_OF, Work
from umqtt_pipeline.source.data_source import SpoolRange
from umqtt_pipeline.source.rows import read_range
from umqtt_pipeline.spool import reader
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.schema import BRONZE, STATE, arrow_schema
from umqtt_pipeline.tables.storage import Storage
from umqtt_pipeline.tables.store import by_day, written

READ = 256 << 10  #: bytes of one read of the bridge
NOON_US = 1_767_268_800_000_000
show = Console(width=100)


class Costs:
    """CPU seconds and bytes by part, of one minute."""

    def __init__(self):
        self.seconds, self.bytes = {}, {}

    def of(self, part, work, *arguments):
        """What `work` returns; its time is that of the part."""
        begun = time.process_time()
        try:
            return work(*arguments)
        finally:
            self.seconds[part] = self.seconds.get(part, 0) + time.process_time() - begun

    def wrote(self, part, size):
        self.bytes[part] = self.bytes.get(part, 0) + size


class Bridge:
    """The bridge's part, on a spool in a folder."""

    def __init__(self, folder):
        self.spool = SpoolWriter(folder)
        self.marks, self.file = Marks(), MarkFile(folder)
        self.telling = Telling(self.marks, MarkKeys(None))
        self.saved = 0

    def take(self, data, costs, now):
        """Messages as the broker sends them, in reads."""
        for at in range(0, len(data), READ):
            found = costs.of("bridge: packets", wire.scan, data[at : at + READ])
            if found.consumed < len(data[at : at + READ]):
                raise AssertionError("a read ends within a packet")
            costs.of("bridge: spool", self.spool.append, found.body, found.count, now)
            costs.of("bridge: marks", self.marks.feed, found.body, True, now)
            if self.spool.position - self.saved > SNAPSHOT_BYTES:
                self.save(costs)
        costs.wrote("bridge: spool", len(data))
        costs.of("bridge: marks told", self._tell)

    def save(self, costs):
        before = self.file.path.stat().st_size if self.file.path.exists() else 0
        costs.of("bridge: file of the marks", self.file.save, self.marks, self.spool.position, {})
        after = self.file.path.stat().st_size
        costs.wrote("bridge: file of the marks", after - before if after > before else after)
        self.saved = self.spool.position

    def _tell(self):
        """All marks that are due, each acknowledged at once."""
        self.telling.begin()
        while len(self.telling):
            data = self.telling.packets(1 << 20)
            ids = wire.frames(data).packet_ids(np.frombuffer(data, np.uint8))
            for packet_id in ids.tolist():
                self.telling.acknowledged(packet_id)


class Ingest:
    """Ingest's part: one bucket, one file of each table for a batch."""

    def __init__(self, spool, root):
        self.folder, self.storage = spool, Storage(root)
        self.number, self.place, self.held = 0, reader.begin(spool), {}

    def batch(self, costs):
        """All that has come; returns how many readings are new."""
        end = reader.durable(self.folder)
        part = SpoolRange(reader.spool_id(self.folder), str(self.folder), self.place, 0, end, 0)
        rows = costs.of("ingest: rows of the spool", self._rows, part)
        self._write("bronze", rows, costs)
        found, known = costs.of("ingest: decoding", firmware_packs.readings, rows)
        if not known.all():
            raise AssertionError("a packet is no reading")
        new = self._settle(found, costs)
        self.place, self.number = end, self.number + 1
        return new

    @staticmethod
    def _rows(part):
        rows = pa.Table.from_batches(read_range(part, False)).combine_chunks()
        days = pc.cast(rows["received_at"], pa.date32())
        return rows.append_column("date", days).cast(arrow_schema(BRONZE))

    def _write(self, name, rows, costs):
        for day, some in by_day(rows):
            file = costs.of(f"ingest: {name}", written, self.storage, name, self.number, day, some)
            costs.wrote(f"ingest: {name}", file.size)

    def _settle(self, rows, costs):
        work = Work(self.storage, "_staging/x", self.number, 1)
        parts = {part: costs.of("ingest: state", state.Part, work, part, self.held.get(part, ()),
                                [0]) for part in STATE}  # fmt: skip
        seen, whole = parts["seen"], len(rows) * PART_OF >= parts["seen"].rows
        devices = None if whole else pc.unique(rows["device"])
        before = costs.of("ingest: state", seen.of, devices)
        new, _, ranges = costs.of("ingest: duplicates", dedup.told_apart, rows, before, whole)
        clocks = costs.of("ingest: state", parts["clocks"].of, pc.unique(rows["device"]))
        silver = costs.of("ingest: clocks", dedup.silver, new, clocks, self.number)
        self._write("silver", silver, costs)
        late = costs.of("ingest: clocks", dedup.unclocked_added, silver, self.number)
        kept = {"seen": lambda: seen.replace(ranges) if whole else seen.add(
                    ranges, dedup.joined_seen),
                "unclocked": lambda: parts["unclocked"].add(
                    late, lambda each: dedup.joined_unclocked(each, clocks))}  # fmt: skip
        made, gone = [], []
        for part, write in kept.items():
            for _, name, _, old in costs.of("ingest: state", lambda do=write: list(do())):
                made.append((part, name))
                gone += old
                costs.wrote("ingest: state", Path(self.storage.root, name).stat().st_size)
        old, self.held = self.held, state.after(self.held, made, gone)
        state.forget(self.storage, old, self.held)
        return len(new)


def table(costs, devices):
    """The costs of a minute, as a table."""
    made = Table("part", "CPU s a minute", "us a reading", "MB a minute", "GB a day")
    for part, seconds in costs.seconds.items():
        size = costs.bytes.get(part)
        made.add_row(part, f"{seconds:.2f}", f"{1e6 * seconds / devices:.2f}",
                     "" if size is None else f"{size / 1e6:.1f}",
                     "" if size is None else f"{size * 1440 / 1e9:.1f}")  # fmt: skip
    for who in ("bridge", "ingest"):
        total = sum(value for part, value in costs.seconds.items() if part.startswith(who))
        made.add_row(f"{who}: all", f"{total:.2f}", f"{1e6 * total / devices:.2f}", "",
                     f"{total / 60:.0%} of a core", style="bold")  # fmt: skip
    return made


@click.command()
@click.option("--devices", type=click.IntRange(1), default=1_000_000)
@click.option("--minutes", type=click.IntRange(1), default=3)
def main(devices, minutes):
    """What a fleet with a reading a minute costs, part by part."""
    root = Path(tempfile.mkdtemp(prefix="umqtt-fleet-"))
    packets = Packets(devices)
    aligned = READ // packets.size  # a read ends with a packet
    try:
        bridge, counted = Bridge(root / "spool"), 0
        ingest = Ingest(root / "spool", root / "tables")
        for minute in range(minutes):
            costs, begun = Costs(), datetime.datetime.now()
            for first in range(0, devices, aligned):
                count = min(aligned, devices - first)
                data = packets.make(minute * devices + first, count, 1)
                bridge.take(data, costs, NOON_US + minute * 60_000_000)
            bridge.save(costs)
            counted += ingest.batch(costs)
            took = (datetime.datetime.now() - begun).total_seconds()
            show.print(f"minute {minute + 1} of {minutes}: {took:.0f} s", highlight=False)
        show.print(table(costs, devices))
        print(json.dumps({"devices": devices, "seconds": costs.seconds, "bytes": costs.bytes}))
        bridge.spool.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if counted != devices * minutes:
        show.print(f"{counted} readings are new, and {devices * minutes} were sent")
        sys.exit(1)


if __name__ == "__main__":
    main()
