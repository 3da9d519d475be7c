"""The step that writes MicroPython onto an RP2040 or RP2350: by its drive, or by picotool.

With BOOTSEL held at power-on the chip's ROM shows a drive; a UF2 file that is copied to it goes
into the flash, and when the last block has come the chip starts it and the drive goes away. A copy
that breaks off leaves the chip in that state at the next BOOTSEL: it is done again.

Knows: where systems mount drives, INFO_UF2.TXT, picotool.
Must not know: serial ports, what lies in files on the board.
"""

import getpass
import os
import shutil
import subprocess
import time
from pathlib import Path

from umqtt_board import plain
from umqtt_board.errors import BoardError
from umqtt_board.flash import uf2

INFO = "INFO_UF2.TXT"
CHUNK = 64 * 512
GONE_S = 30  # for the drive to go away after the last block
PICOTOOL_S = 120
HOW = "Hold its BOOTSEL button while plugging it in: it appears as a drive"


def mounts():
    """Folders at which this kind of computer mounts a drive that is plugged in."""
    user = getpass.getuser()
    bases = [f"/media/{user}", f"/run/media/{user}", "/media", "/run/media", "/mnt", "/Volumes"]
    bases = [Path(base) for base in bases if os.path.isdir(base)]
    found = [path for base in bases for path in sorted(base.iterdir())]
    if os.name == "nt":
        found += [Path(f"{letter}:/") for letter in "DEFGHIJKLMNOPQRSTUVWXYZ"]
    return found


def board_id(drive):
    """The Board-ID that the drive of a chip in its loader tells, None if it is no such drive."""
    try:
        lines = (Path(drive) / INFO).read_text(errors="replace").splitlines()
    except OSError:
        return None
    told = [line.partition(":")[2].strip() for line in lines if line.startswith("Board-ID:")]
    return plain.line(told[0]) if told else ""


def find(board, given=None):
    """Return the drive of a board that is in its loader, None when there is none.

    given  DRIVE= of the user; otherwise the usual places are looked at.
    Raises BoardError for the wrong chip and when several could be meant.
    """
    wanted = board["micropython"]["uf2_board_id"]
    if given is not None:
        told = board_id(given)
        if told is None:
            raise BoardError(
                f"DRIVE={given} is not the drive of a chip in its loader (there is no {INFO} on "
                f"it). {HOW}."
            )
        found = {Path(given): told}
    else:
        found = {path: told for path in mounts() if (told := board_id(path)) is not None}
    fitting = [path for path, told in found.items() if told == wanted]
    if len(fitting) > 1:
        listed = ", ".join(map(str, fitting))
        raise BoardError(f"Several boards show a drive: {listed}. Choose one with DRIVE=.")
    if found and not fitting:
        listed = ", ".join(f"{path} ({told})" for path, told in found.items())
        raise BoardError(
            f"The drive found is not that of BOARD={board.name} ({wanted}): {listed}. Give its "
            "own BOARD=."
        )
    return fitting[0] if fitting else None


def checked(path, board):
    """Return the bytes of a UF2 file after checking them for a board; BoardError."""
    data = path.read_bytes()
    limit = board["flash"]["size"] - board["filesystem"]["size"]
    try:
        uf2.check(data, board["micropython"]["uf2_family"], limit)
    except uf2.Uf2Error as error:
        raise BoardError(
            f"{path} is not an image for BOARD={board.name}: {error}. Nothing was written. Give "
            f"the .uf2 file of {board['micropython']['image']}."
        )
    return data


def write(path, board, drive, progress, transfer):
    """Write a UF2 file onto the chip behind `drive`, or by picotool when that is None."""
    data = checked(path, board)
    if drive is None:
        _by_picotool(path, progress)
        return
    progress("firmware", f"writing {path.name} ({len(data) // 512} blocks) to {drive}")
    _copy(data, Path(drive) / "firmware.uf2", transfer)
    deadline = time.monotonic() + GONE_S
    while board_id(drive) is not None:
        if time.monotonic() > deadline:
            raise BoardError(
                f"The chip did not start after all of {path.name} was copied to {drive}. Unplug "
                f"it, plug it in again with BOOTSEL held, and run the same command again."
            )
        time.sleep(0.1)


def _copy(data, target, transfer):
    written = 0
    try:
        with open(target, "wb", buffering=0) as file:
            while written < len(data):
                written += file.write(data[written : written + CHUNK])
                transfer(written, len(data), target.name)
                os.fsync(file.fileno())
    except OSError as error:
        if written < len(data):
            raise BoardError(
                f"The drive {target.parent} was lost while writing ({error.strerror}): {written} "
                f"of {len(data)} bytes were written. {HOW}, and run the same command again."
            )
        # The chip has taken the last block and is gone before the system closed the file.


def _by_picotool(path, progress):
    tool = shutil.which("picotool")
    if tool is None:
        raise BoardError(
            f"No drive of a chip in its loader is mounted. {HOW}; mount it if your system does "
            "not (or name its folder with DRIVE=), or install picotool, and run the same command "
            "again."
        )
    progress("firmware", f"writing {path.name} with {tool}")
    try:
        done = subprocess.run([tool, "load", "-v", "-x", str(path)], capture_output=True,
                              text=True, timeout=PICOTOOL_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise BoardError(f"picotool did not end within {PICOTOOL_S} s. {HOW} and try again.")
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise BoardError(f"picotool failed: {said[-1] if said else done.returncode}. {HOW}, and "
                         "run the same command again.")  # fmt: skip
