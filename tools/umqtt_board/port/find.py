"""The step that finds the board's serial port: PORT=, the virtual board, or the one that fits.

Knows the ports of this computer and USB vendor numbers. It must not know what is said over them.
"""

import shlex
from pathlib import Path

from serial.tools import list_ports

from umqtt_board import plain
from umqtt_board.errors import BoardError
from umqtt_board.paths import VIRTUAL
from umqtt_board.virtual.board import VirtualBoard

ROMFS = 0x20000  # bytes of it on a virtual board: room for the library and a third more


class NoPort(BoardError):
    """No port of this computer fits."""


def find(board, port=None, folder=None, new=False):
    """Return (port, how it was chosen). Starts the virtual board when that is what is meant.

    board   a boards.Board
    port    PORT= of the user; anything pyserial takes, including socket:// and rfc2217://
    folder  folder of the virtual board, for the board `unix` (default build/boards/unix)
    new     make the virtual board if there is none; else BoardError
    """
    if port:
        return str(port), "given"
    if board["chip"] == "unix":
        virtual = virtual_board(folder, new)
        was_on = virtual.running
        virtual.power_on()
        return virtual.port, f"virtual board {'running' if was_on else 'started'}"
    return _by_usb(board)


def virtual_board(folder=None, new=False):
    """The virtual board in `folder`, left running when this program ends.

    new     make it if there is none. Else that is a BoardError: a slip of the fingers in the name
            of a folder must not give an empty board, whose backup looks like a good one.
    """
    place = Path(folder or VIRTUAL)
    if not new and not (place / "board.json").exists():
        makes = (f"umqtt-board flash --folder {shlex.quote(str(folder))}" if folder
                 else "make flash BOARD=unix")  # fmt: skip
        raise BoardError(f"There is no virtual board in {place}. `{makes}` makes one.")
    return VirtualBoard(folder or VIRTUAL, name=None if folder else "unix", tied=False,
                        new={"romfs": ROMFS})  # fmt: skip


def _by_usb(board):
    vendors = board["usb"]["vendors"]
    ports = [p for p in list_ports.comports() if p.vid is not None]
    fitting = [p for p in ports if p.vid in vendors]
    if len(fitting) == 1:
        return fitting[0].device, f"the only one that fits: {plain.line(fitting[0].description)}"
    if fitting:
        listed = "; ".join(f"{p.device} ({plain.line(p.description)})" for p in fitting)
        raise BoardError(f"Several boards could be meant: {listed}. Choose one with PORT=.")
    others = ", ".join(p.device for p in ports) or "none"
    hint = "" if board["micropython"]["flash_with"] != "uf2" else (
        " A bare chip: hold BOOTSEL while plugging it in, and it appears as a drive."
    )
    raise NoPort(
        f"No board of the kind {board.name} is plugged in (USB serial ports: {others}). "
        f"Plug it in with a data cable, or name its port with PORT=.{hint}"
    )
