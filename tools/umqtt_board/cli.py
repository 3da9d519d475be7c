"""The command line: `umqtt-board` or `python -m umqtt_board`. What make calls.

Knows the terminal. Every error is a sentence on standard error and exit status 2.
"""

import contextlib
import errno
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from umqtt_board import boards as board_files
from umqtt_board import plain
from umqtt_board.backup import backup_cli
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps_cli
from umqtt_board.flash.follow import TIMEOUT_S
from umqtt_board.flash.steps import flash as run_flash
from umqtt_board.identity import identity_cli
from umqtt_board.lock import keys_cli
from umqtt_board.ota import giving, marks_cli, ota_cli
from umqtt_board.paths import PROJECT
from umqtt_board.port import find
from umqtt_board.port.readable import Readable
from umqtt_board.release import release_cli
from umqtt_board.settings import settings_cli

_board = click.option("--board", default="unix", show_default=True, help="Name of the board.")
_port = click.option("--port", help="Serial port: a path, socket://host:port, rfc2217://...")
_folder = click.option(
    "--folder", type=click.Path(path_type=Path), help="Folder of a virtual board."
)


@click.group()
@click.version_option(package_name="umqtt-min")
def cli():
    """Flash boards, see what they print, and run virtual ones."""


@cli.command()
@_board
@_port
@_folder
@click.option("--settings", type=click.Path(path_type=Path),
              help="TOML file (default: settings.toml, if there is one).")
@click.option("--firmware", help='MicroPython: a file, https://...#sha256=SUM, "fetch" for the '
              'published image, "skip" to leave what is there (default: the published where none '
              'fits).')
@click.option("--baud", type=int, help="Rate at which a chip is written (default: board.toml).")
@click.option("--drive", type=click.Path(path_type=Path), help="Drive of an rp2 in its loader.")
@click.option("--yes", is_flag=True, help="Do not ask before data is erased.")
@click.option("--follow/--no-follow", default=True,
              help="Watch the log until the first publish is acknowledged.")
@click.option("--timeout", default=TIMEOUT_S, show_default=True,
              help="Seconds to wait for that.")  # fmt: skip
def flash(board, port, folder, settings, firmware, baud, drive, yes, follow, timeout):
    """Install library, firmware and settings; a second run only verifies."""
    default = PROJECT / "settings.toml"
    if settings is None and default.exists():
        settings = default
    report = run_flash(
        board, port, settings, folder=folder, firmware=firmware or None, follow_log=follow,
        progress=backup_cli.say, transfer=_transfer, environment=os.environ,
        follow_timeout=timeout, ask=_ask if sys.stdin.isatty() else None, baud=baud, drive=drive,
        confirm=backup_cli.confirmed_by(yes), giving=giving,
    )  # fmt: skip
    if report.settings == "none":
        raise BoardError(
            f"The board {board} has its library and firmware, and waits: without settings it "
            "knows no broker. `umqtt-board settings` (make settings) asks for them and writes "
            "settings.toml; then flash again, which takes seconds.")  # fmt: skip


def _ask(key, text, secret):
    """Ask the person at the terminal for one setting; a secret is not shown."""
    return click.prompt(f"  {key} ({text})", hide_input=secret, default="", show_default=False)


def _transfer(done, total, path):
    if sys.stdout.isatty():
        bar = "#" * (24 * done // total)
        end = "\n" if done == total else ""
        click.echo(f"\r  {'write':<12} [{bar:<24}] {done}/{total} {path[-34:]:<34}{end}", nl=False)
    elif done == total:
        click.echo(f"  {'write':<12} {total} bytes")


@cli.command()
def boards():
    """List the boards that there are."""
    for name in board_files.names():
        board = board_files.load(name)
        tried = {"hardware": "", "virtual": "", "no": "  (not tried on hardware)"}
        click.echo(f"  {name:<10} {board.title}{tried[board['tried']]}")


@cli.command()
@_board
@_port
@_folder
@click.option("--lines", default=20, show_default=True, help="Lines of the past to begin with.")
@click.option("--follow/--no-follow", default=True, help="Go on until Ctrl-C.")
def logs(board, port, folder, lines, follow):
    """Show what a board prints."""
    description = board_files.load(board)
    if description["chip"] != "unix" or port:
        if not follow:
            raise BoardError("--no-follow shows what a virtual board has printed: nobody keeps it "
                             "of one on a port. Leave it out.")  # fmt: skip
        _listen(find.find(description, port)[0])
        return
    virtual = find.virtual_board(folder)
    log = virtual.console_log
    if not log.exists():
        raise BoardError("The virtual board has not run yet: `make flash BOARD=unix` starts it.")
    readable = Readable()
    with open(log, errors="replace") as stream:
        past = readable.feed(stream.read())
        for line in past[max(0, len(past) - lines) :]:
            click.echo(plain.line(line))
        if not virtual.running:
            click.echo(f"(the board is off; {_starts(folder)} gives it power)", err=True)
        if follow:
            _tail(log, stream, readable)


def _tail(path, log, readable):
    while True:
        text = log.read()
        for line in readable.feed(text):
            click.echo(plain.line(line))
        if not text:
            if path.stat().st_size < log.tell():
                log.seek(0)  # a new log was begun
            time.sleep(0.1)


def _listen(port):
    import serial

    from umqtt_board.port.device import why_not_open

    try:
        said = plain.Stream()
        with serial.serial_for_url(port, 115200, timeout=0.2, exclusive=True) as line:
            while True:
                click.echo(said.feed(line.read(max(1, line.in_waiting))), nl=False)
    except (serial.SerialException, ValueError, OSError):
        raise BoardError(why_not_open(port))


@cli.command()
@_board
@_port
@_folder
def repl(board, port, folder):
    """Talk to the Python prompt of a board (mpremote; Ctrl-] ends it)."""
    found, how = find.find(board_files.load(board), port, folder)
    backup_cli.say("port", f"{found} ({how})")
    if not sys.stdin.isatty():
        raise BoardError("repl needs a terminal; for one line: "
                         f"mpremote connect {found} resume exec 'print(1)'")
    backup_cli.say("prompt", "Ctrl-C stops the program and shows it; Ctrl-] ends the talk")
    backup_cli.say("", "a program that was stopped starts again with Ctrl-D at the prompt")
    command = [sys.executable, "-m", "mpremote", "connect", found, "resume", "repl"]
    sys.exit(subprocess.call(command))


@cli.command()
@_folder
def start(folder):
    """Give a virtual board its power (it keeps running)."""
    board = find.virtual_board(folder)
    before = board.status()
    board.power_on()
    backup_cli.say("port", board.port)
    if before["running"]:
        given = f" --folder {shlex.quote(str(folder))}" if folder else ""
        still = (f", and stands at its prompt: umqtt-board stop{given}, then umqtt-board "
                 f"start{given} has it run" if before.get("at_prompt") else "")  # fmt: skip
        backup_cli.say("", f"it had power already{still}")


@cli.command()
@_folder
def stop(folder):
    """Take the power of a virtual board away."""
    board = find.virtual_board(folder)
    ran = board.running
    board.power_off()
    backup_cli.say("stopped" if ran else "was off", str(board.folder))
    backup_cli.say("", f"its flash is kept; {_starts(folder)} gives it power again")


def _starts(folder):
    """The command that gives the virtual board in `folder` its power."""
    if folder:
        return f"umqtt-board start --folder {shlex.quote(str(folder))}"
    return "make start (or umqtt-board start)"


for _command in (
    ota_cli.command, ota_cli.ota, backup_cli.backup, backup_cli.restore, backup_cli.erase,
    steps_cli.step, settings_cli.settings,
    marks_cli.mark_keys, marks_cli.telemetry_keys, identity_cli.command,
    keys_cli.keys_group, release_cli.signing_key, release_cli.bundle_command,
):  # fmt: skip
    cli.add_command(_command)


# Commands that do what is left when they are given once more.
_RESUMES = {"erase", "flash", "ota", "restore", "step"}


@contextlib.contextmanager
def _ending_as_by_ctrl_c():
    """A terminal that is closed, or a `kill`, leaves no board at its prompt, either."""

    def stop(number, frame):
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else nohup, or a program of somebody's
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments=None):
    """Entry point: turns every error of ours into one sentence and status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with _ending_as_by_ctrl_c():
            cli.main(given, prog_name="umqtt-board", standalone_mode=False)
    except BoardError as error:
        click.echo(f"umqtt-board: {plain.block(error)}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "cryptography":
            click.echo("umqtt-board: certificates, signatures and locked keys need the package "
                       "cryptography, which is not installed: pip install '.[identity]' in the "
                       "project's folder.",
                       err=True)  # fmt: skip
            sys.exit(2)
        if error.name != "esptool":
            raise
        click.echo("umqtt-board: a chip of Espressif's is flashed with esptool, which is not "
                   "installed: pip install '.[esp32]' in the project's folder.", err=True)
        sys.exit(2)
    except OSError as error:  # of this computer: a disk that is full, a folder that is not ours
        where = f"{error.filename}: " if error.filename else ""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        room = ": make room on this computer's disk, then run the command again" if full else ""
        click.echo(f"umqtt-board: {where}{error.strerror or error}{room}.", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt) as error:
        again = "; the same command goes on from there" if _RESUMES & set(given) else ""
        # click makes an Abort of a KeyboardInterrupt and begins a line, but not at a question.
        if not error.__cause__:
            click.echo(err=True)
        why = "".join(f"; {arg}" for arg in getattr(error.__cause__, "args", ()))
        click.echo(f"umqtt-board: stopped{again}{why}", err=True)
        sys.exit(130)
    sys.exit(0)


if __name__ == "__main__":
    main()
