"""make bench: the pipeline beside a bare receiver, in one run.

    python tools/bench/bench_pipeline.py [--only bridge,silver,json] [--messages N] [--devices N]

bridge  messages/s from a broker through `umqtt-pipeline bridge`, beside the barest receiver that
        is durable (pipeline_load.py), in pairs, first one first and then the other; each message
        154 bytes at QoS 1. From the first byte sent to the last message durable: that they were
        counted comes after
silver  the same until the rows are in the silver table: broker, sender, bridge and Spark on the
        same cores; Spark has been started and warmed before, and that is not counted
json    silver with flat JSON, which Spark reads one by one, beside the SenML CBOR of the firmware

Prints a table with the ratios, median and range of the pairs or rounds. Exit status 0 whatever the
times are, 1 when a message is missing.

Knows: processes and what is measured. Must not know: bytes of packets (pipeline_load.py).
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))
LOAD = [sys.executable, str(HERE / "pipeline_load.py")]
PROGRAM = [sys.executable, "-c", "from umqtt_pipeline.cli import main; main()"]
WARM = 20_000
PAIRS = 3  #: of bare receiver and bridge in a round: one of a pair may be disturbed
PATIENCE = 900
show = Console(width=100)


class Missing(Exception):
    """Something did not arrive in time."""


def cpu(pid):
    """Seconds of CPU that a process has used, and its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def cpu_below(pid):
    """Seconds of CPU that a process has used and all of its descendants, those that have ended
    too."""
    while True:
        own = cpu(pid)
        try:
            return own + sum(cpu(each) for each in below(pid)[1:])
        except (FileNotFoundError, ProcessLookupError):
            continue  # one has ended meanwhile: its parent has its seconds now


def below(pid):
    """Process ids of all descendants of a process, and its own."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, above = [pid], {pid}
    while above:
        above = {child for child, parent in parents.items() if parent in above}
        found += above
    return found


def wait(condition, what, seconds=PATIENCE):
    """Wait until `condition()` is true; its value. Raises Missing."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise Missing(what)


class Site:
    """A broker and what is started beside it, in a folder that goes with it."""

    def __init__(self):
        import brokers

        self.broker = brokers.Broker("mosquitto" if brokers.find_mosquitto() else "iotcore")
        self.folder = Path(tempfile.mkdtemp(prefix="umqtt-bench-"))
        self.spool, self.tables = self.folder / "spool", self.folder / "tables"
        self.started = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        self.broker.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command, log=None):
        out = open(self.folder / log, "wb") if log else subprocess.PIPE
        process = subprocess.Popen([*map(str, command)], stdout=out, stderr=out if log else None,
                                   stdin=subprocess.DEVNULL, text=not log)  # fmt: skip
        self.started.append(process)
        return process

    def bridge(self, *more):
        process = self.start([*PROGRAM, "bridge", "--broker", f"127.0.0.1:{self.broker.port}",
                              "--spool", self.spool, "--metrics", self.folder / "metrics.json",
                              *more], "bridge.log")  # fmt: skip
        log = self.folder / "bridge.log"
        wait(lambda: b"subscribed" in log.read_bytes(), "the bridge's subscription", 60)
        return process

    def send(self, first, count, devices, *more):
        return self.start([*LOAD, "send", self.broker.port, first, count, devices, *more])

    def received(self):
        """Messages that the bridge has acknowledged, as it says once a second."""
        try:
            return json.loads((self.folder / "metrics.json").read_text())["acknowledged"]
        except (OSError, ValueError):
            return 0

    def durable(self):
        """Messages in the spool, exactly."""
        from umqtt_pipeline.spool import logs, reader

        end = reader.durable(self.spool)
        return sum(block.count for _, block in logs.blocks(self.spool, 0, end))

    def durable_since(self):
        """When the last message in the spool became durable, as time.monotonic() tells it."""
        return (self.spool / "durable").stat().st_mtime - time.time() + time.monotonic()


def result(process):
    """What a load process prints when it is done."""
    line = process.stdout.readline()
    if not line.startswith("{"):
        raise Missing(f"{process.args} said {line!r}")
    return json.loads(line)


def bare(messages, devices):
    """(messages/s, CPU us a message) of the bare receiver."""
    with Site() as site:
        receiver = site.start([*LOAD, "bare", site.broker.port, messages, site.folder / "bare"])
        receiver.stdout.readline()
        sent = result_begin = site.send(0, messages, devices)
        done, sent = result(receiver), result(result_begin)
        return messages / (done["ended"] - sent["begun"]), done["cpu"] / messages * 1e6


def bridged(messages, devices):
    """(messages/s, CPU us a message) of the bridge."""
    from umqtt_pipeline.spool import reader

    with Site() as site:
        bridge = site.bridge()
        before = cpu(bridge.pid)
        sender = site.send(0, messages, devices)
        # Its mark moves at each fsync; counting the blocks all the time would cost too much.
        from pipeline_load import Packets

        size = Packets(devices).size * messages
        wait(lambda: reader.durable(site.spool) >= size, "the last message")
        wait(lambda: site.durable() == messages, "the last message")
        ended, used = site.durable_since(), cpu(bridge.pid) - before
        return messages / (ended - result(sender)["begun"]), used / messages * 1e6


def to_silver(messages, devices, rows, *form):
    """(messages/s, CPU us a message of bridge and Spark) from the broker to the silver table."""
    with Site() as site:
        bridge = site.bridge()
        ingest = site.start([*PROGRAM, "ingest", "--spool", site.spool, "--tables", site.tables,
                    "--interval", 0.1, "--max-rows", rows], "ingest.log")  # fmt: skip
        for part in range(2):
            result(site.send(part * WARM // 2, WARM // 2, devices, *form))
            wait(lambda wanted=(part + 1) * WARM // 2: silver_rows(site) == wanted, "the warm-up")
        before = cpu(bridge.pid) + cpu_below(ingest.pid)
        sent = result(site.send(WARM, messages, devices, *form))
        wait(lambda: silver_rows(site) == WARM + messages, "the last row in silver")
        ended = time.monotonic()
        used = cpu(bridge.pid) + cpu_below(ingest.pid) - before
        return messages / (ended - sent["begun"]), used / messages * 1e6


def silver_rows(site):
    """Rows of the silver table, as its log counts them; looked at no more often than needed."""
    time.sleep(0.1)
    try:
        silver = DeltaTable(str(site.tables / "silver"))
    except TableNotFoundError:
        return 0
    return sum(silver.get_add_actions(flatten=True)["num_records"].to_pylist())


def table(title, columns, rows):
    made = Table(*columns, title=title, title_justify="left")
    for row in rows:
        made.add_row(*(f"{x:,.0f}" if isinstance(x, float) and x >= 100 else f"{x:.2f}"
                       if isinstance(x, float) else f"{x:,}" if isinstance(x, int) else x
                       for x in row))  # fmt: skip
    show.print(made)


def pairs(messages, devices):
    """What `bare` and `bridged` give, PAIRS times, each first as often as may be."""
    found = []
    for number in range(PAIRS):
        order = (bare, bridged) if number % 2 == 0 else (bridged, bare)
        told = {measured: measured(messages, devices) for measured in order}
        found.append((told[bare], told[bridged]))
    return found


def line(name, found, ratios, target):
    """A row of the table: medians of (messages/s, CPU us), median and range of the ratios."""
    rate, used = (statistics.median(values) for values in zip(*found))
    ratios = sorted(ratios)
    told = f"({ratios[0]:.2f} to {ratios[-1]:.2f}, {target})"
    return name, rate, used, f"{statistics.median(ratios):.2f} {told}"


def compare(messages, devices, rounds, silver, rows):
    """Bare receiver, bridge and the whole way to silver by turns; prints the ratios."""
    taken, stored, shares = [], [], []
    for _ in range(rounds):
        found = pairs(messages, devices)
        taken += found
        if silver:
            stored.append(to_silver(messages, devices, rows))
            shares.append(stored[-1][0] / statistics.median(barest[0] for barest, _ in found))
    barest, bridges = zip(*taken)
    ratios = [mine[0] / limit[0] for limit, mine in taken]
    lines = [(*line("bare receiver", barest, ratios, "")[:3], ""),
             line("bridge", bridges, ratios, "target 0.9")]  # fmt: skip
    if silver:
        lines.append(line("broker to silver", stored, shares, "target 0.4, aim 0.6"))
    table(f"{messages:,} messages of {devices:,} devices, {rounds} rounds of {PAIRS} pairs",
          ("", "messages/s", "CPU us", "ratio"), lines)  # fmt: skip


def compare_forms(messages, devices, rounds, rows):
    """Broker to silver with SenML CBOR and with flat JSON by turns; prints the ratio."""
    turns = [(to_silver(messages, devices, rows), to_silver(messages, devices, rows, "json"))
             for _ in range(rounds)]  # fmt: skip
    ratios = sorted(json_[0] / cbor[0] for cbor, json_ in turns)
    lines = []
    for name, *found in zip(("SenML CBOR", "flat JSON"), *turns):
        rate, used = (statistics.median(values) for values in zip(*found))
        lines.append((name, rate, used, ""))
    told = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, aim 0.33)"
    lines[1] = (*lines[1][:3], told)
    table(f"broker to silver, {messages:,} messages of {devices:,} devices, {rounds} rounds",
          ("", "messages/s", "CPU us", "ratio"), lines)  # fmt: skip


@click.command()
@click.option("--only", default="bridge,silver,json", help="of bridge, silver, json")
@click.option("--messages", type=click.IntRange(1000), default=300_000)
@click.option("--devices", type=click.IntRange(1, 9_999_999), default=1000)
@click.option("--rounds", type=click.IntRange(1), default=3)
@click.option("--max-rows", type=click.IntRange(1000), default=200_000, help="of a batch")
def main(only, messages, devices, rounds, max_rows):
    """The pipeline beside a bare receiver."""
    chosen = set(only.split(","))
    if chosen - {"bridge", "silver", "json"}:
        raise click.BadParameter("one or more of bridge, silver, json", param_hint="--only")
    try:
        if chosen - {"json"}:
            compare(messages, devices, rounds, "silver" in chosen, max_rows)
        if "json" in chosen:
            compare_forms(messages // 3, devices, rounds, max_rows)
    except Missing as error:
        raise click.ClickException(f"did not arrive: {error}")


if __name__ == "__main__":
    main()
