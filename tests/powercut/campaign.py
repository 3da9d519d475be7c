"""Every cut: the journal's power-cut campaign, on CPython. `python tests/powercut/campaign.py`.

Knows: the geometries and checks of tests/device/cuts.py, how to spread them over processes.
Must not know: records, segments.

For each geometry and seed a scenario of random operations runs; before each operation every
device operation in it is cut at every byte and torn in every way, each on a copy, with cuts in
the recovery, too, and several boots after it with the weak bits drawn anew. Prints the number
of cuts tried. Exit status 1 if a guarantee was broken, 2 for wrong arguments.
"""

import argparse
import importlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
for folder in ("lib", "tests/device", "tests/shim"):
    sys.path.insert(0, str(ROOT / folder))

importlib.import_module("mpshim")  # what device code expects of its interpreter
cuts = importlib.import_module("cuts")
Journal = importlib.import_module("umqtt_board.journal").Journal


def compare(scenario):
    """Have every mount compared with what the host's reader makes of the same flash."""
    jm = importlib.import_module("journal_model")
    mount = scenario._mount

    def mount_and_compare(flash):
        store = mount(flash)
        journal = Journal(bytes(flash.data))
        assert as_snapshot(journal) == jm.snapshot(store, jm.PIDS), (
            f"the host reads another state: {scenario.where}")
        assert (journal.epoch, journal.state["boot"]) == (store.epoch, store.boot)
        return store

    scenario._mount = mount_and_compare


def as_snapshot(journal):
    """What the host's reader found, in the form of journal_model.snapshot()."""
    messages = []
    for seq, (pid, flags, state, topic, payload, _) in sorted(journal.live.items()):
        body = len(topic).to_bytes(2, "big") + topic + pid.to_bytes(2, "big") + payload
        messages.append((seq, flags, pid, body, state))
    s = journal.state
    return (s["seq"], s["sent"], s["confirmed"], s["last_pid"], s["key"],
            tuple(sorted(s["inbound"])), tuple(messages))


def run(index, seed, steps, points, budget, quiet, check_reader):
    """One scenario: (name, steps, cuts, cuts in recovery, erases, what broke or "")."""
    geometry = cuts.GEOMETRIES[index]
    until = time.process_time() + budget
    pick = cuts.every if points == 0 else cuts.Sampled(seed + 3, points)
    scenario = cuts.Run(geometry, seed, pick)
    if check_reader:
        compare(scenario)
    broke = ""
    try:
        scenario.format()
        scenario.quietly(quiet)
        while scenario.steps < steps and time.process_time() < until:
            scenario.step()
    except (AssertionError, OSError) as e:
        broke = f"{type(e).__name__}: {e}"
    return (geometry.name, scenario.steps, scenario.cuts, scenario.recovery_cuts,
            scenario.store.erases, broke)


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300, help="operations in each scenario")
    parser.add_argument("--quiet", type=int, default=100,
                        help="operations before the first cut, so that segments are reclaimed")
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="scenarios for each geometry")
    parser.add_argument("--points", type=int, default=0,
                        help="cuts for each device operation; 0: every byte, every way")
    parser.add_argument("--seconds", type=float, default=600,
                        help="CPU seconds for each scenario, then it ends where it is")
    parser.add_argument("--compare", action="store_true",
                        help="compare the host's reader of images with every mount")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args(argv)
    if min(args.steps, args.seeds, args.jobs) < 1 or min(args.points, args.quiet) < 0:
        parser.error("steps, seeds and jobs must be at least 1, points and quiet 0 or more")
    return args


def main(argv=None):
    """Run the campaign; returns the exit status."""
    args = arguments(argv)
    total = recovery = broken = 0
    print(f"{'geometry':28} {'seed':>5} {'steps':>6} {'cuts':>8} {'in recovery':>12} erases")
    with ProcessPoolExecutor(args.jobs) as pool:
        jobs = {
            pool.submit(run, index, seed, args.steps, args.points, args.seconds,
                        args.quiet, args.compare): seed
            for seed in range(args.seed, args.seed + args.seeds)
            for index in range(len(cuts.GEOMETRIES))
        }
        for job in as_completed(jobs):
            name, steps, tried, again, erases, broke = job.result()
            print(f"{name:28} {jobs[job]:5} {steps:6} {tried:8} {again:12} {erases:6}",
                  flush=True)
            total += tried
            recovery += again
            if broke:
                broken += 1
                print(f"BROKEN, seed {jobs[job]}: {broke}", flush=True)
    print(f"{total} cuts tried, and {recovery} more in the recovery from them; "
          f"{broken} scenarios broke a guarantee")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
