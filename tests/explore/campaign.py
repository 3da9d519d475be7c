"""`make explore`: every case to the end, then every planted fault.

Prints for each case, as it ends: states, transitions, depth, and "complete" or what stopped it;
for each planted fault: the states until it was found and the length of the schedule that shows it;
from time to time what it is at. Exit status 1 if a case breaks a promise or a fault is not found,
2 for wrong arguments, 3 if nothing of that but a bound has left a case INCOMPLETE.

Knows: how cases and faults are spread over processes. Must not know: what is explored.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import planted  # noqa: E402
from library import library  # noqa: E402

WORKER = HERE / "worker.py"
DEADLINE = 3600  # seconds of one worker
CUT = 3  # exit status: what a bound has left out is not known to be good
STATUS = ("Exit status: 0 all is well; 1 a case breaks a promise, or a fault is not found; 2 for "
          "wrong arguments; 3 nothing was found, but a bound has left a case INCOMPLETE.")
LINE_S = 10  # seconds in which nothing has ended, until a line says what it is at


class Failed(Exception):
    """A worker has found nothing, for it ended with an error or not at all; the text says so."""


def worker(*words, lib=None):
    """Run a worker; what it has found, as a dictionary. Raises Failed."""
    env = dict(os.environ)
    if lib:
        env["DEVICE_LIB"] = str(lib)
    try:
        done = subprocess.run([sys.executable, str(WORKER), *words], env=env, text=True,
                              capture_output=True, timeout=DEADLINE)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Failed("not done in %d s; --seconds bounds a case" % DEADLINE)
    if done.returncode:
        raise Failed("the worker ended with status %d:\n%s"
                     % (done.returncode, done.stdout + done.stderr))  # fmt: skip
    return ast.literal_eval(done.stdout.splitlines()[-1])


def explore(name, args):
    """One case: its row, the script of what it has found, or "", seconds of processor, and whether
    it was seen to its end."""
    try:
        found = worker("case", name, str(args.limit), str(args.seconds))
    except Failed as e:
        return "%-16s FAILED" % name, str(e), 0, False
    row = "%-16s %9d states %9d transitions  depth %3d  %5d ends  %6d s  %s" % (
        name, found["states"], found["transitions"], found["depth"], found["ends"],
        found["seconds"], found["stopped"] or "complete")  # fmt: skip
    return row, found["script"], found["seconds"], not found["stopped"]


def hunt(name, args):
    """One planted fault: its row, whether it was found, and seconds of processor."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = worker("hunt", str(args.limit or 60000), lib=planted.plant(name, folder))
    except Failed as e:
        return "%-56s FAILED: %s" % (name, e), False, 0
    if not found["case"]:
        row = "%-56s NOT FOUND in %d states" % (name, found["states"])
        return row, False, found["seconds"]
    row = "%-56s %7d states  %2d steps  %-13s %s" % (
        name, found["states"], found["steps"], found["case"], found["why"])  # fmt: skip
    return row, True, found["seconds"]


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=STATUS)
    parser.add_argument("--cases", default="all", help="all, quick, none, or names with commas")
    parser.add_argument("--faults", default="all", help="all, none, or a part of their names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1,
                        help="processes at once (default: as many as cores)")  # fmt: skip
    parser.add_argument("--limit", type=int, default=0, help="states of one case; 0: all")
    parser.add_argument("--seconds", type=int, default=0, help="of processor for a case; 0: all")
    args = parser.parse_args(argv)
    if args.jobs < 1:
        parser.error("--jobs must be at least 1")
    if not args.faults.strip():
        parser.error("--faults needs all, none, or a part of a name")  # "" is a part of each
    if min(args.limit, args.seconds) < 0:
        parser.error("--limit and --seconds must be at least 0")
    return args


def chosen(args):
    """Names of cases and of faults. Raises Failed for names that there are not."""
    from cases import CASES, QUICK  # loads the library

    if args.cases == "none":
        cases = []
    elif args.cases == "all":
        cases = list(CASES)
    elif args.cases == "quick":
        cases = [case.name for case in QUICK]
    else:
        cases = [name.strip() for name in args.cases.split(",")]
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise Failed("no case %s. There are: %s" % (", ".join(unknown), ", ".join(CASES)))
    faults = [] if args.faults == "none" else list(planted.FAULTS)
    if args.faults not in ("all", "none"):
        faults = [name for name in faults if args.faults in name]
        if not faults:
            raise Failed("no planted fault has %r in its name: see planted.txt" % args.faults)
    return cases, faults


def each(what, work, names, jobs, every=LINE_S):
    """Yield what work(name) gives, as it ends; say on standard error what is being worked on if
    none has ended for so many seconds, and again after half as long as it has waited in all.
    what: a word for one of them, such as "case"."""
    started = {}

    def timed(name):
        started[name] = time.monotonic()
        return work(name)

    done = silent = 0
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(timed, name): name for name in names}
        while running:
            patience = max(every, silent / 2)
            ended, _ = wait(running, patience, FIRST_COMPLETED)
            done += len(ended)
            silent = 0 if ended else silent + patience
            for job in ended:
                running.pop(job)
                yield job.result()
            if not ended:
                now = time.monotonic()
                at = ", ".join("%s (%d s)" % (name, now - started[name])
                               for name in running.values() if name in started)  # fmt: skip
                print("... %d of %d %ss; now %s" % (done, len(names), what, at), file=sys.stderr)


def main(argv=None):
    """Run it; exit status."""
    args = arguments(argv)
    try:
        library()
        cases, faults = chosen(args)
    except (Failed, ValueError) as e:
        print("explore: %s" % e, file=sys.stderr)
        return 2
    bad = seconds = cut = 0
    print("%d cases, %d planted faults, %d processes" % (len(cases), len(faults), args.jobs),
          file=sys.stderr)  # fmt: skip
    for row, script, took, whole in each("case", lambda name: explore(name, args), cases,
                                         args.jobs):
        print(row, flush=True)
        seconds += took
        if script:
            bad += 1
            print(script, flush=True)
        elif not whole:
            cut += 1
    for row, good, took in each("fault", lambda name: hunt(name, args), faults, args.jobs):
        print(row, flush=True)
        seconds += took
        bad += not good
    print("%d cases%s, %d planted faults, %d bad; %.1f minutes of processor"
          % (len(cases), ", of which %d INCOMPLETE" % cut if cut else "", len(faults), bad,
             seconds / 60))  # fmt: skip
    return 1 if bad else CUT if cut else 0


if __name__ == "__main__":
    sys.exit(main())
