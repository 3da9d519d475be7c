"""The virtual board as the host sees it: a folder, a power switch and a serial port.

    with VirtualBoard("build/boards/one", name="one") as board:
        board.power_on()
        ...                         # mpremote connect board.port ...
        board.cut()                 # SIGKILL: flash.img stays as at that instant
        board.power_on()

The folder holds `flash.img` (filesystem, then journal region), `romfs.img` (if it has a ROMFS),
`sensor.log` (the simulated sensor's own count), `console.log` (what the board printed), `port`
(link to the pseudo-terminal), `board.json` (name, seed, sizes). It knows the supervisor and its
control socket. It must not know what is installed on the board.
"""

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path

from umqtt_board import private
from umqtt_board.errors import BoardError

START_S = 20  # deadline for a supervisor or an interpreter to come up
ANSWER_S = 5  # deadline for an answer of the supervisor
SECTOR = 4096
DEFAULTS = {
    "seed": 0, "heap": "256K", "filesystem": 0x100000, "journal": 0x10000, "program_size": 32,
    "watchdog": "kind", "romfs": 0,
}  # fmt: skip


class VirtualBoard:
    """One virtual board.

    folder      where it lives; made if missing
    name        its name, 1..32 letters, digits, `-`, `_` (default: the folder's)
    seed        number from which the simulated sensor draws
    heap        heap of the interpreter, as `-X heapsize=` takes it: "256K", "1M"
    filesystem  bytes of flash for littlefs, journal: bytes for the journal region, 0: none;
                multiples of 4096, fixed once flash.img exists
    program_size  bytes that littlefs programs at a time: 32 as on esp32, 256 as on rp2, where
                  files of up to 512 bytes take no block of their own; fixed as those are
    romfs       bytes of the partition for a ROMFS, as `mpremote romfs` writes it, 0: none; a
                multiple of 4096, fixed as those are
    watchdog    "kind": rests at the prompt, ends with a soft reset, and gives a program that works
                as much of the processor's time as of the clock's; "chip": does none of this
    new         options of a board that has no board.json yet, or one without them
    tied        True: the board loses its power when this program ends, however it ends

    What is left out is taken from an existing board.json.
    """

    def __init__(self, folder, name=None, *, tied=True, new=None, **options):
        self.folder = Path(folder).resolve()
        self.tied = tied
        self._supervisor = None
        unknown = (set(options) | set(new or ())) - set(DEFAULTS)
        if unknown:
            raise TypeError(f"VirtualBoard has no option {', '.join(sorted(unknown))}")
        self._take_folder()
        self.config = self._configure(name, new or {}, options)

    # ---- its folder

    @property
    def port(self):
        """Path of the serial port, for `mpremote connect`; it never changes."""
        return str(self.folder / "port")

    @property
    def flash_image(self):
        return self.folder / "flash.img"

    @property
    def romfs_image(self):
        return self.folder / "romfs.img"

    @property
    def console_log(self):
        return self.folder / "console.log"

    @property
    def sensor_log(self):
        return self.folder / "sensor.log"

    @property
    def name(self):
        return self.config["name"]

    def _take_folder(self):
        # A slip of the fingers (--folder /etc) must not turn a folder into a board.
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            strange = not (self.folder / "board.json").exists() and any(self.folder.iterdir())
        except OSError as error:
            raise BoardError(f"{self.folder} cannot be a virtual board's folder: {error.strerror}")
        if strange:
            raise BoardError(f"{self.folder} holds something that is no virtual board (no "
                             "board.json); name a new or an empty folder")

    def _configure(self, name, new, options):
        path = self.folder / "board.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        given = options | ({"name": name} if name else {})
        # Two boards that took the same number would take each other's name at the broker.
        drawn = {"name": self.folder.name, "uid": secrets.token_hex(6)}
        config = DEFAULTS | new | drawn | known | given
        _check(config, self.folder)
        if config != known:
            path.write_text(json.dumps(config, indent=2) + "\n")
        return config

    def _make_images(self):
        flash = self.config["filesystem"] + self.config["journal"]
        self._make_image(self.flash_image, flash, "filesystem + journal")
        if self.config["romfs"]:
            self._make_image(self.romfs_image, self.config["romfs"], "romfs")

    def _make_image(self, path, size, what):
        # Its settings hold passwords and the key of its commands.
        if not path.exists():
            aside = path.with_suffix(".new")
            private.write(aside, b"\xff" * size)
            aside.rename(path)
        elif path.stat().st_size != size:
            raise BoardError(
                f"{path} has {path.stat().st_size} bytes, but {what} in board.json make {size}: "
                "erase the board or set them back."
            )
        private.seal(path)

    def erase(self):
        """Flash as it comes from the factory: all bits set. The board must be off."""
        if self.running:
            raise BoardError(f"Switch the board {self.name} off before erasing it.")
        for image in (self.flash_image, self.romfs_image):
            image.unlink(missing_ok=True)
        self._make_images()

    # ---- power

    @property
    def running(self):
        """Whether the board has power and an interpreter."""
        return self.status()["running"]

    @property
    def pid(self):
        """Process of the interpreter, None without power."""
        return self.status()["pid"]

    def power_on(self, wait=True):
        """Switch on; with `wait` return when boot.py is about to run. Nothing if it is on."""
        self._make_images()
        self._start_supervisor()
        self._ask("power_on")
        if wait:
            self._wait(lambda: self.status()["up"], "did not start")

    def cut(self):
        """Power failure: the interpreter is killed (SIGKILL), the port stays."""
        self._ask("cut")

    def cut_after(self, operations):
        """Arm a power failure in the middle of a piece of work; None disarms.

        An interpreter started from now on (power_on, any reset) is cut right before it programs
        a page of flash or erases a sector for the `operations`-th time, counted from 0 and on
        over resets.
        """
        path = self.folder / "cut_after"
        if operations is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(f"{operations:8d}")

    def cut_left(self):
        """How many flash operations are left before the armed power failure; negative: it came."""
        return int((self.folder / "cut_after").read_text())

    def reset(self):
        """The reset button."""
        self._ask("reset")

    def power_off(self):
        """Power failure, and the serial port is taken away as well. Nothing if it is off."""
        self._ask("power_off")
        self._wait(lambda: not self._supervised(), "did not switch off")
        if self._supervisor is not None:
            self._supervisor.stdin.close()
            self._supervisor.wait(timeout=ANSWER_S)
            self._supervisor = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.power_off()

    def status(self):
        """What the supervisor says: dict with running, up, at_prompt (no program runs), pid,
        supervisor, port."""
        return self._ask("status")

    # ---- what it prints

    def printed(self):
        """All that is in console.log, as text with plain newlines."""
        try:  # (text mode: CR LF becomes LF)
            return self.console_log.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def wait_for(self, pattern, timeout=20.0, since=0):
        """Wait until console.log matches the regular expression after character `since`.

        Returns the match. Raises BoardError after `timeout` seconds.
        """
        found = None

        def look():
            nonlocal found
            found = re.compile(pattern).search(self.printed(), since)
            return found

        self._wait(look, f"did not print {pattern!r}", timeout)
        return found

    # ---- the supervisor

    def _supervised(self):
        return self.status()["supervisor"] is not None

    def _start_supervisor(self):
        if self._supervised():
            return
        command = [sys.executable, "-m", "umqtt_board.virtual.supervisor", str(self.folder)]
        with open(self.folder / "supervisor.log", "ab") as log:
            self._supervisor = subprocess.Popen(
                command + (["--tied"] if self.tied else []),
                stdin=subprocess.PIPE if self.tied else subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        if not self.tied:
            started, self._supervisor = self._supervisor, None
            started.returncode = 0  # it is meant to outlive us: no warning about a running child
        self._wait(self._supervised, "has no supervisor (see supervisor.log)")

    def _ask(self, action):
        nobody = {"running": False, "up": False, "at_prompt": False, "pid": None,
                  "supervisor": None, "port": None}  # fmt: skip
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as control:
                control.settimeout(ANSWER_S)
                # By way of the open folder: a socket's path is limited to 107 bytes.
                control.connect(f"/proc/self/fd/{folder}/control")
                control.sendall(json.dumps({"do": action}).encode() + b"\n")
                answer = control.makefile().readline()
        except (FileNotFoundError, ConnectionError):
            return nobody
        except TimeoutError:
            raise BoardError(f"The supervisor of the board {self.name} does not answer.")
        finally:
            os.close(folder)
        return json.loads(answer) if answer else nobody

    def _wait(self, condition, complaint, timeout=START_S):
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                last = self.printed()[-400:].strip()
                raise BoardError(
                    f"The virtual board {self.name} {complaint} within {timeout:g} s. "
                    f"{self._loss()}Its console log {self.console_log} ends with:\n{last}"
                )
            time.sleep(0.02)

    def _loss(self):
        """What to tell of a supervisor of ours that has ended, although nobody told it to."""
        if self._supervisor is None or self._supervisor.poll() is None:
            return ""
        log = self.folder / "supervisor.log"
        last = log.read_text(errors="replace")[-400:].strip()
        return (f"Its supervisor has ended with status {self._supervisor.returncode}; {log} ends "
                f"with:\n{last}\n")


def _check(config, folder):
    where = f"in {folder / 'board.json'}"
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,32}", str(config["name"])):
        raise BoardError(
            f"Board name {config['name']!r} {where}: use 1 to 32 letters, digits, - or _."
        )
    if not re.fullmatch(r"[0-9]+[KkMm]?", str(config["heap"])):
        raise BoardError(f"heap {config['heap']!r} {where}: give bytes, as 256K or 1M.")
    if not re.fullmatch(r"[0-9a-f]{12}", str(config["uid"])):
        raise BoardError(f"uid {config['uid']!r} {where}: give 12 digits, 0 to 9 and a to f.")
    if config["watchdog"] not in ("kind", "chip"):
        raise BoardError(f'watchdog {config["watchdog"]!r} {where}: give "kind" or "chip".')
    if config["program_size"] not in (32, 256):
        raise BoardError(f"program_size {config['program_size']!r} {where}: give 32 or 256.")
    for key in ("filesystem", "journal", "romfs"):
        size = config[key]
        if key != "filesystem" and size == 0:
            continue
        if not isinstance(size, int) or size < 2 * SECTOR or size % SECTOR:
            raise BoardError(
                f"{key} {size!r} {where}: give a multiple of {SECTOR}, at least {2 * SECTOR}."
            )
