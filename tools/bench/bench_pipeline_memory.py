"""make bench-pipeline: memory of the whole pipeline while millions of messages go through it.

    python tools/bench/bench_pipeline_memory.py [--messages N] [--devices N] [--out FILE.png]

Broker, sender, bridge and ingest on the same cores, from nothing: messages of 154 bytes at QoS 1,
devices by turns. Every other second it looks at the memory (proportional set size) of the bridge,
of ingest's JVM, of its Python side and of the broker, at the size of the state and of the spool.
At the end silver is counted: each device's numbers from 1 on, each once. Ten million messages take
some ten minutes. Exit status 1 if silver is not exactly what was sent.

Knows: processes, what is measured, how silver must look. Must not know: how anything is written.
"""

import json
import os
import sys
import time
from pathlib import Path

import click
import duckdb
from bench_pipeline import PROGRAM, Missing, Site, below, result, show, table, wait
from deltalake import DeltaTable

PERIOD_S = 2.0
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
COLUMNS = ("seconds", "sent", "in silver", "bridge", "JVM", "Python", "broker", "state", "spool")


def memory(pid):
    """Proportional set size in MiB: pages that processes share are counted once over all."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0  # it has just ended
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def is_java(pid):
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:
        return False


def size(folder):
    """MiB of the files below a folder."""
    total = 0
    for above, _, names in os.walk(folder):  # passes over folders that go meanwhile
        for name in names:
            try:
                total += os.stat(os.path.join(above, name)).st_size
            except OSError:
                continue  # replaced just now
    return total / (1 << 20)


class Watch:
    """Samples of one campaign; each has the fields of COLUMNS."""

    def __init__(self, site, bridge, ingest):
        self.site, self.bridge, self.ingest = site, bridge, ingest
        self.begun = time.monotonic()
        self.samples = []

    def ingested(self):
        """Messages in batches that are whole."""
        path = self.site.tables / "_metrics" / "batches.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(json.loads(line)["rows"] for line in lines if line.endswith("}"))

    def look(self):
        parts = below(self.ingest.pid)
        java = sum(memory(pid) for pid in parts if is_java(pid))
        python = sum(memory(pid) for pid in parts if not is_java(pid))
        self.samples.append((
            time.monotonic() - self.begun, self.site.received(), self.ingested(),
            memory(self.bridge.pid), java, python, memory(self.site.broker.process.pid),
            size(self.site.tables / "_state"), size(self.site.spool),
        ))  # fmt: skip
        return self.samples[-1][2]

    def until(self, messages):
        """Look on until so many messages are in the tables. Raises Missing."""
        until = time.monotonic() + 120 + messages / 2_000
        while self.look() < messages:
            if self.ingest.poll() is not None or self.bridge.poll() is not None:
                raise Missing("bridge or ingest has ended; their logs are in " +
                              str(self.site.folder))  # fmt: skip
            if time.monotonic() > until:
                raise Missing(f"{messages - self.samples[-1][2]:,} messages")
            time.sleep(PERIOD_S)

    def at(self, messages):
        """The first sample with so many messages in silver."""
        return next(sample for sample in self.samples if sample[2] >= messages)


def exact(tables, messages, devices):
    """What is wrong with the silver table, as text; empty if it is exactly what was sent."""
    silver = DeltaTable(str(tables / "silver")).to_pyarrow_dataset()
    rows = duckdb.from_arrow(silver).query(
        "silver", """select device, count(*), count(distinct sequence), min(sequence),
                     max(sequence) from silver group by device""").fetchall()  # fmt: skip
    wrong = []
    for device, count, distinct, first, last in rows:
        number = int(device[1:])
        expected = messages // devices + (number < messages % devices)
        if not (count == distinct == last == expected and first == 1):
            wrong.append(device)
    if len(rows) != min(messages, devices) or wrong:
        return f"{len(rows):,} devices, not as sent: {len(wrong):,} {wrong[:5]}"
    return ""


def picture(samples, path):
    """Memory over messages in silver, as a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for name in ("bridge", "JVM", "Python", "broker"):
        at = COLUMNS.index(name)
        axes.plot([s[2] / 1e6 for s in samples], [s[at] for s in samples], label=name)
    axes.set(xlabel="million messages in silver", ylabel="MiB", ylim=(0, None))
    axes.legend()
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def campaign(messages, devices, rows, site):
    """Samples of the whole way, and what is wrong with silver."""
    bridge = site.bridge("--segment-bytes", 16 << 20)
    ingest = site.start([*PROGRAM, "ingest", "--spool", site.spool, "--tables", site.tables,
                         "--interval", 1, "--max-rows", rows, "--compact-files", 32],
                        "ingest.log")  # fmt: skip
    log = site.folder / "ingest.log"
    wait(lambda: (site.tables / "_checkpoint" / "metadata").exists() or ingest.poll() is not None,
         f"ingest: {log.read_text()[-500:]}", 120)  # fmt: skip
    watch = Watch(site, bridge, ingest)
    sender = site.send(0, messages, devices, site.spool)
    watch.until(messages)
    result(sender)
    return watch, exact(site.tables, messages, devices)


@click.command()
@click.option("--messages", type=click.IntRange(1000), default=10_000_000)
@click.option("--devices", type=click.IntRange(1, 9_999_999), default=100_000)
@click.option("--max-rows", type=click.IntRange(1000), default=200_000, help="of a batch")
@click.option("--out", type=click.Path(dir_okay=False), help="a picture, FILE.png")
def main(messages, devices, max_rows, out):
    """Memory of bridge, Spark and broker over many messages, counted exactly at the end."""
    try:
        with Site() as site:
            watch, wrong = campaign(messages, devices, max_rows, site)
    except Missing as error:
        raise click.ClickException(f"did not arrive: {error}")
    rows = [watch.at(int(messages * share)) for share in SHARES]
    table(f"{messages:,} messages of {devices:,} devices; MiB", COLUMNS, rows)
    seconds = watch.samples[-1][0]
    show.print(f"{messages / seconds:,.0f} messages/s from the broker to silver")
    if out:
        picture(watch.samples, out)
        show.print(f"wrote {out}")
    if wrong:
        raise click.ClickException(f"silver is not what was sent: {wrong}")
    show.print(f"silver: {messages:,} readings, every number of every device once")


if __name__ == "__main__":
    sys.exit(main())
