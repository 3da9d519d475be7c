"""The commands that keep, bring back and erase what a board holds: backup, restore, erase.

Knows the terminal, and how each kind of chip is erased.
Must not know: how a copy is made (copies.py) and comes back (restoring.py).
"""

import contextlib
import sys
import time
from pathlib import Path

import click

from umqtt_board import boards, plain
from umqtt_board.backup import copies, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import install, interpreter, onto_chip
from umqtt_board.ota import giving
from umqtt_board.port import find
from umqtt_board.port.device import Device, folder_of

_FORMAT = """
import os, rp2, vfs
vfs.umount("/")
vfs.VfsLfs2.mkfs(rp2.Flash(), progsize=256)
"""


def options(function):
    """The options that every command about one board has."""
    for option in (
        click.option("--folder", type=click.Path(path_type=Path), help="Folder of a virtual "
                     "board."),
        click.option("--port", help="Serial port: a path, socket://host:port, rfc2217://..."),
        click.option("--board", default="unix", show_default=True, help="Name of the board."),
    ):  # fmt: skip
        function = option(function)
    return function


def say(step, text):
    """One line of progress."""
    click.echo(f"  {step:<12} {plain.line(text)}")


def transferred(done, total, name):
    """How far a copy is, for a person at a terminal."""
    if sys.stdout.isatty():
        name = plain.line(name)[-34:]
        click.echo(f"\r  {'copy':<12} {done}/{total} {name:<34}", nl=done >= total)


def confirmed_by(yes):
    """Return a function that asks before data is lost; without a terminal only `yes` allows it.
    What `yes` allows is said all the same. Ctrl-C and Ctrl-D at the question mean no."""

    def ask(text):
        if yes:
            say("--yes", text)
            return True
        try:
            return sys.stdin.isatty() and click.confirm(f"  {plain.line(text)}. Go on?")
        except click.Abort:
            click.echo()
            return False

    return ask


@contextlib.contextmanager
def _open(board, port, folder, start):
    """(description, open Device) of a board that runs MicroPython; with `start` reset at the end.
    """
    description = boards.load(board)
    ways = onto_chip.Ways(port, folder, "skip", progress=say)
    device, _ = onto_chip.arrive(description, ways)
    with contextlib.closing(device), device.going_on():
        yield description, device
        if start:
            device.hard_reset(keep_open=True)


@click.command()
@options
@click.option("--to", type=click.Path(path_type=Path), help="A new folder (default: one named "
              "after board and time, in your data folder).")
def backup(board, port, folder, to):
    """Copy journal and settings of a board to this computer; the board is left standing still.

    A copy is good as long as the board does not run on: readings that it takes afterwards get
    numbers that would be given a second time after a restore.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    target = to or copies.folder_of_copies() / f"{board}-{stamp}"
    boards.load(board)
    copies.new_folder(target)  # before the board is stopped
    with _open(board, port, folder, start=False) as (description, device):
        copies.backup(device, description, target, say, transferred)
        button = "" if install.stands_still(device) else " or its reset button"
    say("backup", f"the board stands still at its prompt; `make flash`{button} starts it, and "
                  "makes this copy out of date")  # fmt: skip


def _copies(board):
    folder = copies.folder_of_copies()
    names = [path.name for path in sorted(folder.glob(f"{board}-*"))][-5:]
    if names:
        return f"The last of this kind of board in {folder}: {', '.join(names)}."
    return f"There is none of this kind of board in {folder}: `make backup` makes one."


@click.command()
@options
@click.option("--from", "source", type=click.Path(path_type=Path),
              help="Folder that backup made.")
@click.option("--yes", is_flag=True, help="Do not ask before messages are replaced.")
def restore(board, port, folder, source, yes):
    """Bring journal and settings back onto a board that was flashed."""
    description = boards.load(board)
    if source is None:
        raise BoardError(f"Which copy? Give its folder as BACKUP= (--from). {_copies(board)}")
    copy = copies.load(source, description)  # before anything is asked of the board
    say("restore", f"a copy of {copy.made}: if the board ran on after that, new readings")
    say("", "get numbers that were given then, and the pipeline takes them for copies, or dates")
    say("", "them by the clock of the boot that had the number of theirs. In the end it may stop")
    say("", "measuring: boards/README.md, If the board ran on after the copy was made")
    with _open(board, port, folder, start=True) as (description, device):
        try:
            starts = restoring.restore(device, description, copy, confirmed_by(yes), say,
                                       transferred, giving)  # fmt: skip
        except restoring.Refused as error:
            goes_on = (" The board runs on as it was: what it measures now is in no copy that was "
                       "made before.") if error.runs else ""  # fmt: skip
            raise BoardError(f"{error}{goes_on}")
    say("restore", "done: the board starts with what was brought back" if starts else "done")


@click.command()
@options
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase(board, port, folder, yes):
    """Erase a board: firmware, settings and messages that have not been delivered."""
    description = boards.load(board)
    where = _place(description, port, folder)
    text = (f"everything on {where} will be lost: settings, and the messages that are not yet "
            "delivered (`make backup` keeps both)")  # fmt: skip
    if not confirmed_by(yes)(text):
        raise BoardError(f"Nothing was erased. {text[0].upper()}{text[1:]}: YES=1 does it.")
    kind = description["micropython"]["flash_with"]
    {"none": _erase_virtual, "esptool": _erase_esp, "uf2": _erase_rp2}[kind](description, where)
    say("erase", "done: `make flash` begins anew")


def _place(board, port, folder):
    """What will be erased: the folder of the virtual board, or the port of another one."""
    if board["chip"] == "unix":
        if port and not (folder := folder_of(port)):
            raise BoardError(
                f"PORT={plain.line(port)} is no port of a virtual board of this computer: erase "
                "it on the computer that has its folder (--folder), or give its own BOARD=.")
        return find.virtual_board(folder).folder
    found, how = find.find(board, port)
    say("port", f"{found} ({how})")
    return found


def _erase_virtual(board, folder):
    virtual = find.virtual_board(folder)
    virtual.power_off()
    virtual.erase()


def _erase_esp(board, port):
    from umqtt_board.flash import esp  # only here: esptool is an extra

    with esp.Chip(port, board, say, transferred) as chip:
        say("erase", f"{board['flash']['size'] >> 20} MiB, MicroPython too: some 10 to 40 seconds")
        chip.erase_all()


def _erase_rp2(board, port):
    """The filesystem, in which the journal's region lies; MicroPython stays."""
    with Device(port) as device, device.going_on():
        interpreter.check(device, board)
        device.doing = "erasing its filesystem"
        device.run(_FORMAT)
        device.hard_reset(keep_open=True)
