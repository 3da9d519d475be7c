"""Every cut: the journal's power-cut campaign, on CPython. `python tests/powercut/campaign.py`.

Knows: the geometries and checks of tests/device/kit/cuts.py, how to spread them over processes.
Must not know: records, segments.

For each geometry and seed a scenario of random operations runs; before each operation every
device operation in it is cut at every byte and torn in every way, each on a copy, with cuts in
the recovery, too, and several boots after it with the weak bits drawn anew. On the smallest
geometries the second cut is systematic as well: in every operation of the recovery and of what
comes after it. FileStore on littlefs is cut in every operation that littlefs makes.
Prints the number of cuts tried. Exit status 1 if a guarantee was broken, 2 for wrong arguments.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
for folder in ("lib", "tests/device/kit", "tests/shim"):
    sys.path.insert(0, str(ROOT / folder))

importlib.import_module("mpshim")  # what device code expects of its interpreter
cuts = importlib.import_module("cuts")
Journal = importlib.import_module("umqtt_board.backup.journal").Journal


def compare(scenario):
    """Have every mount compared with what the host's reader makes of the same flash."""
    jm = importlib.import_module("journal_model")
    mount = scenario._mount

    def mount_and_compare(flash):
        store = mount(flash)
        image = bytearray(len(flash.data))
        scenario.geometry.device(flash).readblocks(0, image, 0)  # decrypted, if need be
        journal = Journal(bytes(image))
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


def run(geometry, seed, args):
    """One scenario of single cuts: its row of the table."""
    pick = cuts.every if args.points == 0 else cuts.Sampled(seed + 3, args.points)
    return scenario(geometry, seed, args, pick, cuts.Run.step)


def pairs(geometry, seed, args):
    """One scenario of pairs of cuts: its row of the table."""
    pick = cuts.coarse if args.points == 0 else cuts.Sampled(seed + 3, args.points, cuts.coarse)
    return scenario(geometry, seed, args, pick, cuts.Run.step_in_pairs)


def scenario(geometry, seed, args, pick, step):
    """A row: name, seed, steps, cuts, of these in the last slot of a segment, cuts in recovery,
    and what broke, or ""."""
    until = time.process_time() + args.seconds
    run = cuts.Run(geometry, seed, pick)
    if args.compare:
        compare(run)
    broke = ""
    try:
        run.format()
        run.quietly(args.quiet)
        while run.steps < args.steps and time.process_time() < until:
            step(run)
    except (AssertionError, OSError) as e:
        broke = f"{type(e).__name__}: {e}"
    return geometry.name, seed, run.steps, run.cuts, run.last_slot, run.recovery_cuts, broke


def littlefs(prog, chunk, seed, args):
    """One scenario on littlefs, on MicroPython: its row of the table."""
    operations = 40
    done = subprocess.run(
        [micropython(), "-X", "heapsize=6M", "littlefs_cuts.py",
         *map(str, (prog, chunk, seed, operations, int(args.seconds)))],
        cwd=ROOT / "tests/device/kit", env=dict(os.environ, MICROPYPATH="../../../lib:.:.frozen"),
        capture_output=True, text=True, timeout=60 + 10 * args.seconds)
    # MicroPython also reports what its collector could not close after a cut.
    words = (done.stdout.splitlines() or [""])[-1].split()
    name = f"littlefs, programs of {prog}"
    if done.returncode or words[:1] != ["cuts"]:
        return name, seed, 0, 0, 0, 0, done.stdout + done.stderr
    return name, seed, operations, int(words[1]), 0, int(words[5]), ""


def micropython():
    """The MicroPython of this Python's environment, else the one on the PATH."""
    beside = Path(sys.executable).with_name("micropython")
    return str(beside) if beside.exists() else shutil.which("micropython")


def jobs(args):
    """(function, arguments) of every scenario, the long ones first."""
    for seed in range(args.seed, args.seed + args.seeds):
        for geometry in cuts.GEOMETRIES:
            yield run, (geometry, seed, args)
        for geometry in cuts.SMALL:
            yield pairs, (geometry, seed, args)
        if micropython() and not args.compare:
            yield littlefs, (32, 112, seed, args)
            yield littlefs, (256, 224, seed, args)


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
    parser.add_argument("--seconds", type=float, default=60,
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
    total = last_slots = recovery = broken = 0
    print(f"{'geometry':28} {'seed':>5} {'steps':>6} {'cuts':>8} {'last slot':>10} "
          f"{'in recovery':>12}")
    with ProcessPoolExecutor(args.jobs) as pool:
        running = [pool.submit(work, *given) for work, given in jobs(args)]
        for job in as_completed(running):
            name, seed, steps, tried, last, again, broke = job.result()
            print(f"{name:28} {seed:5} {steps:6} {tried:8} {last:10} {again:12}", flush=True)
            total += tried
            last_slots += last
            recovery += again
            if broke:
                broken += 1
                print(f"BROKEN, seed {seed}: {broke}", flush=True)
    print(f"{total} cuts tried, {last_slots} of them in the last slot of a segment, and "
          f"{recovery} more in the recovery from them; {broken} scenarios broke a guarantee")
    if not micropython():
        print("without littlefs: no MicroPython found; `make venv` installs it")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
