"""make bench: umqtt_min beside the bare limit and beside the clients people use today.

    python tools/bench/bench_client.py [--peers FOLDER] [--rounds N] [--only OP,OP]

Real MicroPython against a real broker, every client in every round, medians, ratios; what the
broker received is counted. Prints tables and which targets are met. Exit status 0 whatever the
times are, 1 when something does not work or a message is missing, 2 for wrong arguments.

Knows: what is measured, targets, tables. Must not know: how broker and device are run
(bench_world.py) and how a client is called (device/drive_*.py).
"""

import statistics
import subprocess
import sys
import time
from ast import literal_eval
from pathlib import Path

import bench_world as world
import click
from rich.console import Console
from rich.table import Table

OURS = ("umqtt_min", "ram", "flash")
# Operation: (title, messages, messages where a client stops for Nagle at each)
SPEED = {
    "qos0": ("publish QoS 0", 9000, 9000),
    "prepared": ("... with a prepared publisher", 9000, 9000),
    "qos0all": ("... then one of QoS 1, until it is acked", 9000, 60),
    "qos1": ("publish QoS 1, one at a time", 2400, 18),
    "window": ("publish QoS 1, 16 in flight", 3840, 96),
    "qos2": ("publish QoS 2", 1200, 0),
    "receive0": ("receive QoS 0, bytes", 8000, 100),
    "receive1": ("receive QoS 1, bytes", 4000, 100),
    "wait0": ("... one at a time, by wait_msg()", 8000, 100),
    "wait1": ("... QoS 1", 4000, 100),
    "views0": ("receive QoS 0, views", 8000, 0),
    "views1": ("receive QoS 1, views", 4000, 0),
    "link1": ("QoS 1, 25 ms each way, one at a time", 16, 8),
    "link16": ("QoS 1, 25 ms each way, 16 in flight", 256, 96),
}
DELAY = 0.025
LINK_ROUNDS = 2
# Their QoS 1 is slow whatever the machine: fewer messages say as much.
SLOW = {"simple": ("qos1", "link1"), "mqtt_as": ("qos1", "window", "link1", "link16",
                                                 "receive0", "receive1")}  # fmt: skip
# Forms of receiving: the limit is the same.
BASE = {"views0": "receive0", "views1": "receive1", "wait0": "receive0", "wait1": "receive1"}
RECEIVE = ("receive0", "receive1", *BASE)
DEADLINE = 90


class Bench:
    """One run; rates: {(driver, op): [messages per second]}; ratios: the same to the limit
    beside it; faults: [(driver, what went wrong)]."""

    def __init__(self, programs, broker, link, only):
        self.programs = programs
        self.broker = broker
        self.link = link
        self.only = only
        self.rates = {}
        self.ratios = {}
        self.faults = []
        self.expected = 0

    def round(self, number):
        """Every operation, every client one after the other; what the broker received."""
        drivers = list(self.programs.drivers)
        drivers = drivers[number % len(drivers) :] + drivers[: number % len(drivers)]
        for op in self.only:
            if op.startswith("link") and number >= LINK_ROUNDS:
                continue
            # Side by side with the others the limit is measured anyway.
            apart = [d for d in drivers if d != "limit" or op in RECEIVE or op.startswith("link")]
            if not self._counted(sum([self._one(d, op) for d in apart])):
                self._who(apart, op)

    def _who(self, drivers, op):
        # Messages are missing, or too many: whose? Once more, each counted alone.
        found = False
        for driver in drivers:
            n = self._one(driver, op)
            start = self.expected
            if not self._counted(n):
                self._fault(driver, f"{SPEED[op][0]}: the broker received "
                                    f"{self.expected - start} messages, not {n}")  # fmt: skip
                found = True
        if not found:
            self._fault("limit", f"{SPEED[op][0]}: the broker's count was wrong once, and right "
                                 "when each client was counted alone")  # fmt: skip

    def _one(self, driver, op):
        # Returns how many messages the broker must have received.
        n = SPEED[op][2 if op in SLOW.get(driver, ()) else 1]
        port = self.link.port if op.startswith("link") else self.broker.port
        process = self.programs.device("run", driver, op, "127.0.0.1", port, n)
        fed = 0
        try:
            if op in RECEIVE:
                if process.stdout.readline().strip() == "ready":
                    world.feed(self.broker.port, int(op[-1]), n)
                    fed = n
            out, err = process.communicate("go\n", timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        lines = [line.split() for line in out.splitlines()]
        if not lines or lines[-1][0] != "done":
            return self._refused(driver, op, err, fed)
        self._note(driver, op, lines[:-1])
        return fed + int(lines[-1][1])

    def _note(self, driver, op, lines):
        for _, mine, *limit in lines:
            self.rates.setdefault((driver, op), []).append(1e6 / float(mine))
            if limit and driver != "limit":
                self.rates.setdefault(("limit", op), []).append(1e6 / float(limit[0]))
                pair = float(limit[0]) / float(mine)
                self.ratios.setdefault((driver, op), []).append(pair)

    def _refused(self, driver, op, err, fed):
        last = (err.strip().splitlines() or ["no result in time"])[-1]
        if "no such operation" not in last:
            self._fault(driver, f"{SPEED[op][0]}: {last}")
        return fed

    def _counted(self, n):
        # True if the broker has received n messages since the last time.
        got = self.broker.received(self.expected + n)
        right = got == self.expected + n
        self.expected = got
        return right

    def _fault(self, driver, text):
        self.faults.append((driver, text))

    def rate(self, driver, op):
        """Median messages per second, None where there is none."""
        values = self.rates.get((driver, op))
        return statistics.median(values) if values else None

    def ratio(self, driver, op):
        """Median of (this client / limit beside it); where they do not run side by side, of
        (this client / limit in the same round)."""
        pairs = self.ratios.get((driver, op))
        if pairs is None:
            ours = self.rates.get((driver, op))
            limit = self.rates.get(("limit", BASE.get(op, op)))
            if not ours or not limit or len(ours) != len(limit):
                return None
            pairs = [a / b for a, b in zip(ours, limit)]
        return statistics.median(pairs)


def memory(programs, broker, driver):
    """What heap.py prints, as a dict; {} and a fault where it does not work."""
    process = programs.device("heap", driver, "127.0.0.1", broker.port)
    try:
        out, err = process.communicate(timeout=DEADLINE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
    found = {}
    for line in out.splitlines():
        name, _, value = line.partition(" ")
        found[name] = literal_eval(value)
    if "modules" not in found:
        return {}, (err.strip().splitlines() or ["no result in time"])[-1]
    found["mpy"] = programs.size(found["modules"])
    return found, None


def smallest(programs, broker, driver):
    """The smallest heap in KiB in which the small program works."""
    name = f"small_{driver}" if driver in ("umqtt_min", "simple") else "small_other"

    def works(kib):
        process = programs.device(name, "127.0.0.1", broker.port, driver, heap=f"{kib}K")
        try:
            return process.communicate(timeout=20)[0].strip() == "done"
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return False

    low, high = 2, 240
    if not works(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if works(middle) else (middle, high)
    return high


def speed_table(bench, only):
    """Rates, and ratios to the limit."""
    table = Table(title="messages/s (ratio to the bare limit), medians", title_justify="left")
    table.add_column("")
    for name in bench.programs.drivers.values():
        table.add_column(name, justify="right")
    for op in only:
        row = [SPEED[op][0]]
        for driver in bench.programs.drivers:
            row.append(_cell(bench, driver, op))
        table.add_row(*row)
    return table


def _cell(bench, driver, op):
    rate, ratio = bench.rate(driver, op), bench.ratio(driver, op)
    if rate is None:
        return "-"
    text = f"{rate / 1000:.1f}k" if rate >= 10000 else f"{rate:.0f}"
    return text if driver == "limit" or ratio is None else f"{text}  {ratio:.2f}"


_ROWS = (("mpy", ".mpy bytes imported (-O2)"), ("import", "heap after import"),
         ("connect", "+ connect"), ("import32", "32-bit: heap after import"),
         ("connect32", "32-bit: + connect"), ("smallest", "smallest heap, KiB"),
         ("qos0", "allocated per publish QoS 0"), ("qos1", "... QoS 1"), ("qos2", "... QoS 2"),
         ("ping", "... ping"), ("idle", "... check_msg(), nothing there"))  # fmt: skip


def memory_table(programs, figures):
    """Bytes, 64-bit unless it says otherwise."""
    table = Table(title="memory: bytes, 64-bit", title_justify="left")
    table.add_column("")
    drivers = [d for d in programs.drivers if d in figures]
    for driver in drivers:
        table.add_column(programs.drivers[driver], justify="right")
    for key, title in _ROWS:
        values = [figures[d].get(key) for d in drivers]
        table.add_row(title, *["-" if v is None else f"{v:,.0f}" for v in values])
    return table


def targets(bench, figures):
    """[(what, figure or None, target, True when larger is better)]"""
    r, f = bench.ratio, figures
    rows = [
        ("QoS 0, of the limit", r("umqtt_min", "qos0"), 0.6, True),
        ("... with a prepared publisher", r("umqtt_min", "prepared"), 0.6, True),
        ("QoS 0, times umqtt.simple (both to the limit)", _over(r, "qos0", ["simple"]), 1, True),
        ("QoS 1 one at a time, of the limit", r("umqtt_min", "qos1"), 0.85, True),
        ("QoS 1, 16 in flight (RAMStore), of the limit", r("ram", "window"), 0.6, True),
        ("16 in flight over 50 ms (RAMStore), of the limit", r("ram", "link16"), 0.95, True),
        ("16 in flight over 50 ms, times umqtt.simple", _link(bench.rate), 15, True),
        ("QoS 2, of the limit", r("umqtt_min", "qos2"), 0.7, True),
    ]
    peers = [d for d in bench.programs.drivers if d not in OURS and d != "limit"]
    for op in ("receive0", "receive1"):
        best = _over(bench.rate, op, peers)
        rows.append((SPEED[op][0] + ", times the best peer", best, 1, True))
    # The targets were set where umqtt.simple reached 0.17 and 0.28 of the limit. Where a system
    # call takes less, the interpreter's share is larger, and both are farther from the limit.
    for op, least, simple in (("wait0", 0.3, 0.17), ("wait1", 0.4, 0.28)):
        what = f"receive QoS {op[-1]} by wait_msg(), "
        rows.append((what + "of the limit", r("umqtt_min", op), least, True))
        rows.append((what + "times umqtt.simple", _over(r, op, ["simple"]),
                     round(least / simple, 2), True))  # fmt: skip
    for op in ("qos0", "qos1", "qos2", "ping", "idle"):
        rows.append((f"bytes allocated: {op}", f.get("umqtt_min", {}).get(op), 0, False))
    least = f.get("umqtt_min", {}).get("smallest")
    rows.append(("smallest heap of the core, KiB", least, 40, False))
    return rows


def _over(rate, op, peers):
    best = max((rate(p, op) or 0 for p in peers), default=0)
    return rate("umqtt_min", op) / best if best and rate("umqtt_min", op) else None


def _link(rate):
    a, b = rate("ram", "link16"), rate("simple", "link1")
    return a / b if a and b else None


def target_table(rows):
    table = Table(title="targets", title_justify="left")
    for column in ("", "figure", "target", ""):
        table.add_column(column, justify="left" if column == "" else "right")
    for what, figure, target, more in rows:
        sign = "at least" if more else "at most"
        if figure is None:
            table.add_row(what, "-", f"{sign} {target}", "not measured")
            continue
        met = figure >= target if more else figure <= target
        table.add_row(what, f"{figure:.2f}", f"{sign} {target}", "met" if met else "MISSED")
    return table


def measure_memory(programs, broker, faults):
    """{driver: figures} of all clients."""
    figures = {}
    for driver in programs.drivers:
        if driver == "limit":
            continue
        figures[driver], error = memory(programs, broker, driver)
        if error:
            faults.append((driver, "memory: " + error))
            continue
        figures[driver]["smallest"] = smallest(programs, broker, driver)
    small, why = world.heap32(programs)
    for driver, (after_import, connect) in small.items():
        if driver in figures:
            figures[driver]["import32"] = after_import
            figures[driver]["connect32"] = connect
    return figures, why


def run(console, peers, rounds, only):
    """The whole benchmark; returns the exit status."""
    started = time.monotonic()
    programs = world.Programs(world.ROOT / "build" / "bench" / "mpy", peers)
    with world.Broker() as broker:
        link = world.SlowLink(broker.port, DELAY)
        bench = Bench(programs, broker, link, only)
        console.print(f"== {broker.name}; {', '.join(programs.drivers.values())}")
        for name, why in programs.missing.items():
            console.print(f"   without {name}: {why}")
        for number in range(rounds):
            console.print(f"   round {number + 1} of {rounds}")
            bench.round(number)
        console.print("   memory")
        figures, why = measure_memory(programs, broker, bench.faults)
    if why:
        console.print(f"   no 32-bit figures: {why}")
    console.print(speed_table(bench, only))
    console.print(memory_table(programs, figures))
    console.print(target_table(targets(bench, figures)))
    console.print(_how(broker, rounds, time.monotonic() - started))
    return report_faults(console, bench)


def _how(broker, rounds, seconds):
    return (f"{rounds} rounds of 100-byte messages, heap {world.HEAP}, {seconds:.0f} s. "
            f"What {broker.name} received was counted after each operation of each round.")


def report_faults(console, bench):
    status = 0
    for driver, text in bench.faults:
        console.print(f"{bench.programs.drivers[driver]}: {text}")
        if driver in OURS or driver == "limit":
            status = 1
    return status


def _ops(_context, _parameter, value):
    ops = value.split(",") if value else list(SPEED)
    for op in ops:
        if op not in SPEED:
            raise click.BadParameter(f"{op}: expected some of {', '.join(SPEED)}")
    return ops


@click.command()
@click.option("--peers", type=click.Path(exists=True, file_okay=False), default=None,
              help="Folder with umqtt/simple.py and mqtt_as (a folder or mqtt_as.py).")
@click.option("--rounds", type=click.IntRange(1, 99), default=3, show_default=True)
@click.option("--only", callback=_ops, default="", help="Operations, comma between.")
def main(peers, rounds, only):
    """umqtt_min beside the bare limit and other clients, on real MicroPython."""
    width = None if sys.stdout.isatty() else 150
    console = Console(highlight=False, width=width)
    try:
        sys.exit(run(console, Path(peers) if peers else None, rounds, only))
    except world.BenchError as e:
        click.echo(f"bench: {e}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
