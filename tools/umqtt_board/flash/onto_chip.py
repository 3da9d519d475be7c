"""The step that sees to it that a fitting interpreter answers at the board's port.

Without FIRMWARE= a board whose MicroPython fits keeps it; a bare chip, or one with a MicroPython
that is too old, gets the published image. FIRMWARE=fetch, a file or an address: that image, of
which only what differs is written. FIRMWARE=skip: whatever is there stays.

Knows: in which order ports, loaders and images are needed for each way of flashing.
Must not know: how each of them is done, what is installed afterwards.
"""

import time
from dataclasses import dataclass

from umqtt_board.errors import BoardError
from umqtt_board.flash import fetch, interpreter, rp2
from umqtt_board.port import find
from umqtt_board.port.device import CannotOpen, Device, NoPrompt

LOOK_S = 6  # patience with a chip that may be bare
FIRST_START_S = 60  # MicroPython formats its filesystem then
DRIVE_S = 30  # for a drive or a port to appear after a reset


@dataclass
class Ways:
    """What the user said about how to reach the board, and whom to tell.

    firmware  None, "skip", "fetch", a path or an address; baud, drive: None is the board's own
    confirm   function(text) that returns True if data may be erased
    progress  function(step, text); transfer: function(done, total, name)
    new       a virtual board is made where there is none
    """

    port: str = None
    folder: str = None
    firmware: str = None
    baud: int = None
    drive: str = None
    confirm: object = lambda text: False
    progress: object = lambda step, text: None
    transfer: object = lambda done, total, name: None
    new: bool = False


def arrive(board, ways):
    """Return (open Device, interpreter.Interpreter) of a board, writing MicroPython if need be.

    Raises BoardError.
    """
    kind = board["micropython"]["flash_with"]
    if kind == "none" and ways.firmware not in (None, "skip"):
        raise BoardError(
            f"FIRMWARE={ways.firmware}: BOARD={board.name} brings its interpreter along "
            "(`make venv` installs it); leave FIRMWARE away."
        )
    image = None
    if ways.firmware not in (None, "skip"):
        image = _image(board, ways, ways.firmware)
    return {"none": _as_it_is, "esptool": _by_esptool, "uf2": _by_uf2}[kind](board, ways, image)


def _image(board, ways, firmware):
    return fetch.image(board, firmware, ways.progress, ways.transfer)


def _port(board, ways):
    port, how = find.find(board, ways.port, ways.folder, ways.new)
    ways.progress("port", f"{port} ({how})")
    return port


def _as_it_is(board, ways, image):
    return _answering(board, _port(board, ways), None)


def _answering(board, port, patience, version_too=True):
    """(Device, Interpreter) of a board whose MicroPython answers and fits."""
    device = Device(port, patience)
    device.open()
    try:
        with device.going_on(but=interpreter.TooOld):  # that one is going to be written
            return device, interpreter.check(device, board, version_too)
    except BaseException:
        device.close()
        raise


def _keeps_its_own(board, ways, port):
    """(Device, Interpreter) of a board that needs no image, None for one that does."""
    try:
        return _answering(board, port, LOOK_S if ways.firmware is None else None)
    except (NoPrompt, interpreter.TooOld) as error:
        if ways.firmware == "skip":
            raise
        what = "no MicroPython answers" if isinstance(error, NoPrompt) else "it is too old"
        ways.progress("interpreter", f"{what}: the chip gets the published image")
        return None


def _by_esptool(board, ways, image):
    port = _port(board, ways)
    if image is None:
        there = _keeps_its_own(board, ways, port)
        if there:
            return there
        image = _image(board, ways, "fetch")
    from umqtt_board.flash import esp  # only here: esptool is an extra

    with esp.Chip(port, board, ways.progress, ways.transfer, ways.baud) as chip:
        written = esp.write(chip, image.read_bytes(), image.name, ways.confirm)
        chip.restart()
    ways.progress("firmware", f"{', '.join(written)} written, verified by MD5" if written
                  else "nothing to do: the chip holds this image")  # fmt: skip
    return _first_start(board, port)


def _first_start(board, port):
    """(Device, Interpreter) of a chip that has just been written; its port may come up late."""
    deadline = time.monotonic() + FIRST_START_S
    while True:
        try:
            return _answering(board, port, None)
        except (NoPrompt, CannotOpen):
            if time.monotonic() > deadline:
                raise BoardError(
                    f"MicroPython was written and verified, but does not answer on {port}. Press "
                    "the reset button (EN) once and run the same command again."
                )
            time.sleep(0.1)


def _by_uf2(board, ways, image):
    drive = rp2.find(board, ways.drive)
    if drive is None and ways.firmware in (None, "skip"):
        try:
            port = _port(board, ways)
        except find.NoPort:
            if ways.firmware == "skip":
                raise
            port = None
        there = _keeps_its_own(board, ways, port) if port else None
        if there:
            return there
    image = image or _image(board, ways, "fetch")
    rp2.checked(image, board)  # before anything is asked of the chip
    if drive is None:
        drive = _into_loader(board, ways)
    rp2.write(image, board, drive, ways.progress, ways.transfer)
    return _first_start(board, _port_again(board, ways))


def _into_loader(board, ways):
    """Ask a board that runs MicroPython to go into its loader; return its drive, None if none."""
    try:
        port = find.find(board, ways.port, ways.folder)[0]
        device, _ = _answering(board, port, LOOK_S, version_too=False)
    except (NoPrompt, find.NoPort):
        return None  # picotool, or the sentence that says which button to hold
    device.start_loader()
    return _wait(lambda: rp2.find(board, ways.drive))


def _port_again(board, ways):
    """The port of a board that has just been started."""

    def look():
        try:
            return _port(board, ways)
        except find.NoPort:
            return None

    return _wait(look) or _port(board, ways)


def _wait(look):
    """What `look` returns as soon as it is something; None after a while."""
    deadline = time.monotonic() + DRIVE_S
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found
