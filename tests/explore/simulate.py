"""`make simulate`: the whole chain, seed by seed; with --seed N the steps of one. Exit status 1
if a seed is red.

Knows: how seeds are spread over processes. Must not know: what a seed does (chain.py).
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

PART = 50  # seeds that a process takes at once


def part(first, count):
    """Run some seeds: (what broke, readings, copies, power cuts, steps)."""
    import chain  # changes the process

    broken = []
    totals = [0, 0, 0, 0]
    for seed in range(first, first + count):
        run = chain.Chain(seed)
        try:
            run.run()
        except chain.Broken as e:
            broken.append(str(e))
        found = (len(run.ingest.silver), run.ingest.duplicates,
                 chain.CASE.crashes - run.crashes, run.steps)  # fmt: skip
        totals = [a + b for a, b in zip(totals, found)]
    return broken, totals


def show(seed):
    """The steps of one seed."""
    import chain

    run = chain.Chain(seed)
    try:
        run.run()
        end = "all %d readings are in silver once" % len(run.ingest.silver)
    except chain.Broken as e:
        end = str(e)
    print("\n".join([*run.notes, end]))


def main(argv=None):
    """Run it; exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, help="show this one, step by step")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10000, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    args = parser.parse_args(argv)
    if args.seed is not None:
        show(args.seed)
        return 0
    firsts = list(range(args.first, args.first + args.seeds, PART))
    counts = [min(PART, args.first + args.seeds - first) for first in firsts]
    broken = []
    totals = [0, 0, 0, 0]
    with ProcessPoolExecutor(args.jobs) as pool:
        for i, (bad, found) in enumerate(pool.map(part, firsts, counts), 1):
            broken += bad
            totals = [a + b for a, b in zip(totals, found)]
            for line in bad:
                print(line, flush=True)
            if i % 20 == 0:
                print("%d seeds of %d" % (sum(counts[:i]), args.seeds), flush=True)
    print("seeds %d to %d: %d readings in silver once, %d copies left out, %d power cuts, "
          "%d steps; %d red" % (args.first, args.first + args.seeds - 1, *totals, len(broken)))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
