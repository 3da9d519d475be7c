"""The fuzz campaigns: `make fuzz` for the client, `make fuzz-firmware` for the firmware.

A million mutations of broker traffic against the client, on MicroPython and on CPython each: no
hang, nothing but MQTTException and OSError, no lost step, no harm to what is stored. With
`--of firmware`, spoiled marks, commands and updates against a whole board, which must go on
measuring over the same connection. Each seed is one client and a hundred streams, or one board and
a hundred messages; --seed takes a run up again where another one ended, or repeats
a single finding with --mutations 1. Exit status 1 if anything was found, 2 for wrong arguments.

Knows: how many seeds, how to spread them over processes, deadlines.
Must not know: what is sent and checked (tests/device/kit/fuzz.py and fw_fuzz.py).
"""

import argparse
import queue
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import device_plugin  # noqa: E402

CASES = 100  # streams or messages for each seed
LEAST = 0.7  # of them are mutated, at least; the rest shows that a good one gets through
SEEDS = 50  # for each process
HEAP = "2M"


class Part:
    """Some seeds on one interpreter, in a process of their own.

    seconds: the process is ended when it has said nothing for so long: it hangs.
    """

    def __init__(self, of, interpreter, first, count, seconds):
        self.of = of
        self.interpreter = interpreter
        self.first = first
        self.count = count
        self.seconds = seconds
        self.mutations = self.closings = self.done = 0
        self.findings = []

    def run(self):
        """Run it to its end; returns itself."""
        command = device_plugin.command(self.interpreter, HEAP)
        command += [str(HERE / "worker.py"), self.of, str(self.first), str(self.count), str(CASES)]
        with tempfile.TemporaryDirectory() as folder:
            return self._play(command, folder)

    def _play(self, command, folder):
        process = subprocess.Popen(command, text=True, errors="replace", cwd=folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        lines = queue.Queue()
        threading.Thread(target=self._read, args=(process.stdout, lines), daemon=True).start()
        try:
            while self._line(lines.get(timeout=self.seconds)):
                pass
        except queue.Empty:
            self.findings.append(f"seed {self.first + self.done}: hangs\n")
        process.kill()
        status = process.wait()
        if self.done < self.count and not self.findings:
            self.findings.append(f"seed {self.first + self.done}: exit status {status}\n")
        return self

    def _read(self, stream, lines):
        for line in stream:
            lines.put(line)
        lines.put(None)

    def _line(self, line):
        if line is None:
            return False
        words = line.split()
        if words[:1] == ["SEED"]:
            self.done += 1
            self.mutations += int(words[2])
            self.closings += int(words[3])
        elif words[:1] == ["BROKEN"]:
            self.done += 1
            self.findings.append(f"seed {words[1]}:\n")
        elif self.findings:
            self.findings[-1] += line
        return True


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--of", choices=("client", "firmware"), default="client",
                        help="what is fuzzed")
    parser.add_argument("--mutations", type=int,
                        help="spoiled streams or messages on each interpreter, at least "
                             "(default 1,000,000 and 100,000)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--only", choices=device_plugin.INTERPRETERS, help="one interpreter")
    parser.add_argument("--deadline", type=float, default=120,
                        help="seconds that one seed may take before it counts as a hang")
    args = parser.parse_args(argv)
    if args.mutations is None:
        args.mutations = 1000000 if args.of == "client" else 100000
    if min(args.mutations, args.jobs) < 1 or args.seed < 0 or args.deadline <= 0:
        parser.error("mutations and jobs must be at least 1, seed 0 or more, deadline above 0")
    return args


def parts(args):
    """The parts of a campaign, interpreters by turns."""
    seeds = max(1, round(args.mutations / (CASES * LEAST)))
    for first in range(args.seed, args.seed + seeds, SEEDS):
        count = min(SEEDS, args.seed + seeds - first)
        for interpreter in [args.only] if args.only else device_plugin.INTERPRETERS:
            yield Part(args.of, interpreter, first, count, args.deadline)


def main(argv=None):
    """Run the campaign; returns the exit status."""
    args = arguments(argv)
    start = shown = time.monotonic()
    total = {}
    closings = found = 0
    work = list(parts(args))
    last = work[-1].first + work[-1].count - 1
    print(f"{args.of}: seeds {args.seed} to {last}, {CASES} cases each", flush=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        for n, job in enumerate(as_completed([pool.submit(p.run) for p in work]), 1):
            part = job.result()
            total[part.interpreter] = total.get(part.interpreter, 0) + part.mutations
            closings += part.closings
            found += len(part.findings)
            for finding in part.findings:
                print(f"FOUND on {part.interpreter}, {finding}", flush=True)
            if time.monotonic() - shown > 10 or n == len(work):
                shown = time.monotonic()
                counts = ", ".join(f"{k} {v:,}" for k, v in sorted(total.items()))
                print(f"{100 * n // len(work):3} %  mutations: {counts}; connections ended "
                      f"{closings:,}; findings {found}; {shown - start:.0f} s", flush=True)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
