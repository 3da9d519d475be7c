"""The command `umqtt-board step`: each step of a flashing alone, in the order of steps.py.

Knows the terminal. Must not know how a step is done.
"""

import contextlib
import os
from pathlib import Path

import click

from umqtt_board import boards
from umqtt_board.backup import held
from umqtt_board.backup.backup_cli import confirmed_by, options, say, transferred
from umqtt_board.errors import BoardError
from umqtt_board.flash import fetch, follow, install, onto_chip, romfs, steps
from umqtt_board.ota import giving
from umqtt_board.paths import BUILD
from umqtt_board.port import find
from umqtt_board.settings import settings_file


@click.group()
def step():
    """One step of a flashing alone; each can be done again at any time.

    In their order: port, image, interpreter, build, install, settings, verify, start.
    """


@contextlib.contextmanager
def _open(board, port, folder):
    """(description, Device) of a board that runs MicroPython; afterwards it starts its program."""
    description = boards.load(board)
    device, _ = onto_chip.arrive(description, onto_chip.Ways(port, folder, "skip", progress=say))
    with contextlib.closing(device), device.going_on():
        yield description, device
        device.hard_reset(keep_open=True)


@step.command()
@options
def port(board, port, folder):
    """Find the board's serial port."""
    found, how = find.find(boards.load(board), port, folder, new=True)
    say("port", f"{found} ({how})")


@step.command()
@click.option("--board", required=True, help="Name of the board.")
@click.option("--firmware", default="fetch",
              help="A file, https://...#sha256=SUM, or the published image.")  # fmt: skip
def image(board, firmware):
    """Fetch the MicroPython image into the cache and check it."""
    description = boards.load(board)
    if description["micropython"]["flash_with"] == "none":
        raise BoardError(f"BOARD={board} brings its interpreter along: there is no image.")
    say("image", str(fetch.image(description, firmware, say, transferred)))


@step.command()
@options
@click.option("--firmware", help='A file, https://...#sha256=SUM, "fetch"; without it only '
              "where none fits.")  # fmt: skip
@click.option("--baud", type=int, help="Rate at which a chip is written (default: board.toml).")
@click.option("--drive", type=click.Path(path_type=Path), help="Drive of an rp2 in its loader.")
@click.option("--yes", is_flag=True, help="Do not ask before data is erased.")
def interpreter(board, port, folder, firmware, baud, drive, yes):
    """Write MicroPython onto the chip, as far as it differs."""
    ways = onto_chip.Ways(port, folder, firmware, baud, drive, confirmed_by(yes), say, transferred,
                          new=True)  # fmt: skip
    device, found = onto_chip.arrive(boards.load(board), ways)
    with contextlib.closing(device):
        say("interpreter", f"MicroPython {found.version}, {found.machine}")
        device.hard_reset(keep_open=True)


@step.command()
def build():
    """Compile library and firmware, as they go onto a board."""
    steps.build_items(None, say)
    say("build", str(BUILD / "device"))


@step.command("install")
@options
def install_(board, port, folder):
    """Write library and firmware, as far as they differ; settings stay."""
    with _open(board, port, folder) as (description, device):
        steps.refuse_half(device)
        steps.set_aside(device, description, say)
        items = steps.build_items(None, say)
        items, image = romfs.split(device, items, say)
        steps.install_items(device, items, None, steps.Report(), say, transferred, image)


@step.command()
@options
@click.option("--settings", type=click.Path(path_type=Path), help="TOML file.")
@click.option("--yes", is_flag=True,
              help="Do not ask before what protects the board is given up, or readings are "
              "erased.")  # fmt: skip
def settings(board, port, folder, settings, yes):
    """Write the settings: a file's, with the environment's (UMQTT_...) on top."""
    wifi = boards.load(board)["network"]["wifi"]
    file = settings_file.gather(settings, os.environ, wifi=wifi)
    with _open(board, port, folder) as (description, device):
        there = steps.settings_there(device)
        flat = steps.settings_for(there, file, os.environ, wifi, None)
        if flat is None:
            raise BoardError("Which settings? Give --settings FILE, or UMQTT_... variables.")
        renamed, give_up = steps.refuse_harm(device, description, flat, there, confirmed_by(yes),
                                             giving)  # fmt: skip
        if renamed:
            say("settings", renamed)
        flat, least = steps.with_key(device, giving, flat, there, file, os.environ, say)
        if give_up:
            held.give_up(device, description)
        for item in steps.counter_items(device, flat, there, least, say, renamed):
            install.replace(device, item)
        item = settings_file.as_item(flat)
        same = install.hashes(device, [item.path])[item.path] == install.digest(item.data)
        if not same:
            install.replace(device, item)
        giving.arrived(device, flat)
        say("settings", "same" if same else "written")


@step.command()
@options
def verify(board, port, folder):
    """Compare a board with what this project would put there; nothing is changed."""
    with _open(board, port, folder) as (description, device):
        steps.refuse_half(device)
        items = steps.build_items(None, say)
        items, image = romfs.split(device, items, say)
        steps.verify_items(device, description, items, steps.Report(), say, image)


@step.command()
@options
@click.option("--timeout", default=follow.TIMEOUT_S, show_default=True, help="Seconds to wait.")
def start(board, port, folder, timeout):
    """Start the board and follow its log until the first publish is acknowledged."""
    description = boards.load(board)
    device, _ = onto_chip.arrive(description, onto_chip.Ways(port, folder, "skip", progress=say))
    with contextlib.closing(device), device.going_on():
        steps.refuse_half(device)
        if install.stands_still(device):
            raise BoardError(f"The board on {device.port} has no program that starts: a flash was "
                             "cut, or there was none. Run `make flash`.")
        follow.follow(device, lambda line: say("log", line), timeout)
    say("start", "the broker has acknowledged the first publish")
