"""`make simulate`: the whole chain, seed by seed; with --seed N the steps of one. Exit status 1
if a seed is red.

Knows: how seeds are spread over processes, how far they are. Must not know: what a seed does
(chain.py).
"""

import argparse
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "explore")]

from library import library  # noqa: E402

WAITING = 4  # seeds that are given to each process before it asks
LOOK_S = 1  # a terminal sees this often how far it is
LINE_S = 10  # a file gets a line this often


def run(seed):
    """Run a seed: (what broke or "", (readings, copies, power cuts, steps))."""
    import chain  # changes the process

    broken = ""
    one = chain.Chain(seed)
    try:
        one.run()
    except chain.Broken as e:
        broken = str(e)
    return broken, (len(one.ingest.silver), one.ingest.duplicates,
                    chain.CASE.crashes - one.crashes, one.steps)  # fmt: skip


def show(seed):
    """Print the steps of one seed, and how it ends; whether it is red."""
    import chain

    one = chain.Chain(seed)
    broken = ""
    try:
        one.run()
    except chain.Broken as e:
        broken = str(e)
    end = "all %d readings are in silver once" % len(one.ingest.silver)
    print("\n".join([*one.notes, broken or end]))
    return bool(broken)


def how_far(done, of, seconds, red):
    """One line: `done` seeds of `of` after so many seconds, of which `red` are red."""
    line = "%d of %d seeds" % (done, of)
    if done and seconds > 0:
        left = (of - done) * seconds / done
        line += ", %.1f a second, %d:%02d minutes left" % (done / seconds, left // 60, left % 60)
    return line + ", %d red" % red


class Progress:
    """Says how far a run is: in place on a terminal, else as a line from time to time."""

    def __init__(self, of):
        self.of = of
        self.began = time.monotonic()
        self.shown = None
        self.every = LOOK_S
        self.terminal = sys.stdout.isatty()
        self.look(0, 0)

    def look(self, done, red):
        """Show it, if that is due."""
        now = time.monotonic()
        if self.shown is None or now - self.shown >= self.every:
            self.shown = now
            if done and not self.terminal:
                self.every = LINE_S
            line = how_far(done, self.of, now - self.began, red)
            print("\r" + line.ljust(70) if self.terminal else line,
                  end="" if self.terminal else "\n", flush=True)  # fmt: skip

    def say(self, line):
        """A line that stays."""
        print("\r" + line.ljust(70) if self.terminal else line, flush=True)


def run_all(seeds, jobs):
    """Run all seeds, and say what was found; how many are red."""
    progress = Progress(len(seeds))
    left = iter(seeds)
    done = red = 0
    totals = (0, 0, 0, 0)
    with ProcessPoolExecutor(jobs) as pool:
        running = set()
        while done < len(seeds):
            while len(running) < WAITING * jobs and (seed := next(left, None)) is not None:
                running.add(pool.submit(run, seed))
            ended, running = wait(running, LOOK_S, FIRST_COMPLETED)
            for broken, found in [job.result() for job in ended]:
                done += 1
                totals = tuple(a + b for a, b in zip(totals, found))
                if broken:
                    red += 1
                    progress.say(broken)
            progress.look(done, red)
    progress.say("seeds %d to %d: %d readings in silver once, %d copies left out, %d power cuts, "
                 "%d steps; %d red" % (seeds[0], seeds[-1], *totals, red))  # fmt: skip
    return red


def main(argv=None):
    """Run it; exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="show this one, step by step")
    parser.add_argument("--first", type=int, help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, help="how many (default: 5000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        help="processes at once (default: as many as cores)")  # fmt: skip
    args = parser.parse_args(argv)
    if args.seed is not None and (args.first, args.seeds) != (None, None):
        parser.error("--seed shows one seed, --first and --seeds are for many: not both")
    args.first = 1 if args.first is None else args.first
    args.seeds = 5000 if args.seeds is None else args.seeds
    if min(args.seeds, args.jobs) < 1:
        parser.error("seeds and jobs must be at least 1")
    if min(args.first, args.seed or 0) < 0:
        parser.error("a seed must be at least 0")
    try:
        library()
    except ValueError as e:
        print("simulate: %s" % e, file=sys.stderr)
        return 2
    if args.seed is not None:
        return int(show(args.seed))
    red = run_all(range(args.first, args.first + args.seeds), args.jobs)
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main())
