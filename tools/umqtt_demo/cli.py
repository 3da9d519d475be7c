"""`python -m umqtt_demo`: the command line of the demonstration.

Knows arguments, the output folder and exit statuses: 0 every count exact, 1 not, 2 the arguments
or the surroundings are wrong, 130 interrupted. Must not know the demonstration itself.
"""

import fcntl
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import click

from . import plan
from .broker import BrokerError

MARKER = ".umqtt-demo"
LEFT_IN = "build/demo"
# What a run leaves in its folder, and the next run takes away.
LEFT = ("boards", "spool", "tables", "logs", "scratch", "events.jsonl", "run.json",
        "report.html", "bridge.json")


class Problem(click.ClickException):
    """A clear message and exit status 2."""

    exit_code = 2


class Whole(click.IntRange):
    """A whole number; the error names its range and the make variable, if there is one."""

    def __init__(self, low, high, variable=None):
        super().__init__(low, high)
        self.variable = variable

    def convert(self, value, param, ctx):
        """The number; click's usage error when it is none or outside the range."""
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is not None and self.min <= number <= self.max:
            return number
        hint = "; with make: %s=%d" % (self.variable, param.default or self.min)
        self.fail("%r: expected a whole number from %d to %d%s" % (
            value, self.min, self.max, hint if self.variable else ""), param, ctx)


class Options:
    """What the demonstration is told; see main()."""

    def __init__(self, **values):
        self.__dict__.update(values)


def prepare(out):
    """Make the folder, if it is not there; returns its open lock.

    Raises Problem if it holds anything else, or is in use.
    """
    if out.is_file():
        raise Problem("--out %s: this is a file; name a new or empty folder (with make: OUT=%s)"
                      % (out, LEFT_IN))
    try:
        out.mkdir(parents=True, exist_ok=True)
        foreign = not (out / MARKER).exists() and any(out.iterdir())
    except OSError as error:
        raise Problem("--out %s: %s" % (out, error.strerror))
    if foreign:
        raise Problem("--out %s: there is something in it that no demo has made; name a new or "
                      "empty folder" % out)
    lock = open(out / MARKER, "a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem("--out %s: another demo is running there; wait for its end or name another "
                      "folder" % out)
    return lock


def _usable(broker):
    """Raises Problem for a broker of somebody else's that does not take this login: before the
    report of an earlier run is taken away."""
    from .site import make_broker

    try:
        found = make_broker(broker, None)
        if found.external:
            found.start()
    except BrokerError as error:
        raise Problem(str(error))


def clear(out):
    """Take away what an earlier run left in the folder."""
    for name in LEFT:
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _interrupt(*_):
    raise KeyboardInterrupt


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--boards", type=Whole(1, 16, "BOARDS"), default=3, help="virtual boards")
@click.option("--readings", type=Whole(1, 100_000, "READINGS"), default=120, help="of each board")
@click.option("--seed", type=Whole(0, 2**63 - 1, "SEED"), default=None,
              help="the faults are drawn from it; one is chosen and printed if left out")
@click.option("--broker", default="embedded", metavar="HOST:PORT",
              help="another broker (UMQTT_BROKER_USER, UMQTT_BROKER_PASSWORD in the environment); "
                   "embedded[:PORT] starts one")
@click.option("--interval-ms", type=Whole(50, 3_600_000), default=750,
              help="milliseconds between two readings of a board")
@click.option("--confirm", type=click.Choice(["pipeline", "broker"]), default="pipeline",
              help="who releases a reading; with broker, what the broker forgets is lost")
@click.option("--patience", type=Whole(10, 3600), default=90,
              help="seconds without any progress until it gives up and says what is missing")
@click.option("--fault", "kinds", multiple=True,
              type=click.Choice([*dict.fromkeys(plan.ALL), "none"]),
              help="only faults of this kind (may be given again); left out: all")
@click.option("--attack", is_flag=True,
              help="a hostile publisher does all that it may, for the whole run; readings and "
                   "marks are signed")
@click.option("--out", type=click.Path(path_type=Path), default=LEFT_IN,
              help="folder for tables, report and logs")
def main(boards, readings, seed, broker, interval_ms, confirm, patience, kinds, attack, out):
    """Sensors lose power and network, servers are killed, and every reading is in the table once.

    Exit status: 0 every count is exact, 1 one is not, 2 wrong arguments or a broker that can't be
    used.
    """
    if seed is None:
        seed = random.SystemRandom().randrange(1, 10_000)
    faults = plan.ALL if not kinds else tuple(kind for kind in plan.ALL if kind in kinds)
    command = "make demo BOARDS=%d READINGS=%d SEED=%d" % (boards, readings, seed)
    if broker != "embedded":
        command += " BROKER=%s" % broker
    command += " ATTACK=1" if attack else ""
    options = Options(boards=boards, readings=readings, seed=seed, broker=broker, faults=faults,
                      interval_ms=interval_ms, confirm=confirm, command=command,
                      patience=patience, attack=attack)
    # Whatever ends us, the parts are ended in order.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    lock = prepare(out)
    try:
        _usable(broker)
        clear(out)
        sys.exit(_run(out, options))
    finally:
        lock.close()


def _run(out, options):
    from umqtt_board.errors import BoardError

    from .run import Demo, Failed

    began = time.monotonic()
    try:
        right = Demo(out, options).run()
    except BrokerError as error:
        raise Problem(str(error))
    except (Failed, BoardError) as error:
        raise click.ClickException("the demo stopped: %s\nLogs: %s" % (error, out / "logs"))
    except KeyboardInterrupt:
        click.echo("interrupted; everything is stopped", err=True)
        return 130
    click.echo("%s  Report: %s  (%.0f s, seed %d)"
               % ("Every reading is in the table exactly once." if right else
                  "A COUNT IS WRONG.", out / "report.html", time.monotonic() - began,
                  options.seed))
    return 0 if right else 1
