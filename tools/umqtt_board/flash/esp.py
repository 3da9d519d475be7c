"""The step that writes MicroPython onto an esp32 chip, by esptool's Python interface.

Nothing is erased before the chip was recognised; only what differs is written (the chip's own MD5
of its flash decides), boot loader, program and partition table each by itself, so that NVS, the
filesystem and the journal stay. Where the chip's partition table is another one the filesystem
and the journal cannot stay: their regions are erased before the new table is written, so that a
run that is cut in between finds the old table again and does it all anew.

Knows: esptool, what an esp32 needs to come into its loader.
Must not know: what lies in files on the board.
"""

import contextlib
import hashlib
import struct

import esptool.cmds
import serial
from esptool.loader import DEFAULT_TIMEOUT, ESPLoader
from esptool.logger import TemplateLogger, log
from esptool.util import FatalError, flash_size_bytes

from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import esp_image, partitions
from umqtt_board.port.device import why_not_open

SECTOR = partitions.SECTOR
MAGIC = b"littlefs"
ATTEMPTS = 4  # to bring the chip into its loader; each takes one to three seconds
TRIES = 3  # to write one part while the loader goes on answering
KEPT = ("nvs", "phy_init")  # belong to the chip, whatever the table
HELD = ("vfs", "ffat", "mqtt")  # partitions in which somebody's data lie
_FAILURES = (FatalError, serial.SerialException, OSError, struct.error, StopIteration)

ENTER = (
    "Hold its BOOT button, press and let go of EN (or RST), let go of BOOT, and run the same "
    "command again."
)


class _Log(TemplateLogger):
    """Takes what esptool says: its progress goes on, the last words are kept for an error."""

    def __init__(self):
        self.transfer = lambda done, total, name: None
        self.name = ""
        self.said = ""

    def print(self, *args, **kwargs):
        """Keep a line."""
        self.said = " ".join(str(arg) for arg in args).strip() or self.said

    def note(self, message):
        """Keep a line."""
        self.print(message)

    warning = error = note

    def stage(self, finish=False):
        """Nothing to fold."""

    def progress_bar(self, cur_iter, total_iters, prefix="", suffix="", bar_length=30):
        """Pass the progress on."""
        self.transfer(cur_iter, total_iters, self.name)

    def set_verbosity(self, verbosity):
        """Always the same."""


_said = _Log()
log.set_logger(_said)  # can be done once only: esptool's logger is replaced for good


class Chip:
    """A chip in its loader. Use as a context manager; afterwards it is reset.

    port      anything pyserial takes
    board     a boards.Board with flash_with = "esptool"
    progress  function(step, text); transfer: function(done, total, name)
    baud      bits per second while writing; None: as board.toml says
    stub      False: without esptool's own loader program (slower)
    """

    def __init__(self, port, board, progress, transfer, baud=None, stub=True):
        self.port, self.board = str(port), board
        self.progress = progress
        self.baud = baud or board["flash"]["baud"]
        self.stub = stub
        self.doing = "connecting to it"
        _said.transfer = transfer
        self._esp = None

    def __enter__(self):
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        esp, self._esp = self._esp, None
        if esp is not None:
            with contextlib.suppress(*_FAILURES):
                esp._port.close()

    # ---- connecting

    def _connect(self):
        rom = self._detect()
        self._right_chip(rom)
        self._esp = self._faster(self._with_stub(rom) if self.stub else rom)
        # After a lost port esptool's own second try knows neither rate nor stub.
        self._esp.WRITE_FLASH_ATTEMPTS = 1
        with self._guarded("looking at its flash"):
            esptool.cmds.attach_flash(self._esp)
            size = esptool.cmds.detect_flash_size(self._esp)
        self._right_size(size)
        with self._guarded("setting up its flash"):
            self._esp.flash_set_parameters(flash_size_bytes(size))
        self.progress("chip", f"{self._esp.CHIP_NAME} with {size} of flash, at {self.baud} baud"
                              + ("" if self._esp.IS_STUB else ", without stub"))  # fmt: skip

    def _detect(self):
        try:
            esp = esptool.cmds.detect_chip(self.port, connect_attempts=ATTEMPTS)
            # Without it esptool would wait for its stub for ever, and over RFC 2217 each change
            # of the time limit costs a round trip.
            esp._port.timeout = DEFAULT_TIMEOUT
            return esp
        except _FAILURES as error:
            if "Could not open" in str(error) or not isinstance(error, FatalError):
                raise BoardError(why_not_open(self.port))
            raise BoardError(
                f"The chip on {self.port} does not come into its loader. {ENTER} "
                f"{' '.join(self.board['notes']['text'].split())} esptool says: "
                f"{str(error).splitlines()[0]}"
            )

    def _right_chip(self, esp):
        self._esp = esp  # to be closed
        found = esp.CHIP_NAME.lower().replace("-", "")
        if found != self.board["chip"]:
            fitting = [n for n in boards.names() if boards.load(n)["chip"] == found]
            hint = f"BOARD={fitting[0]}" if fitting else "one of the boards of `make boards`"
            raise BoardError(
                f"The chip on {self.port} is an {esp.CHIP_NAME}, not BOARD={self.board.name}: "
                f"nothing was erased or written. Use {hint}, or another PORT=."
            )
        with self._guarded("looking at its fuses"):
            if not esp.secure_download_mode and esp.get_flash_encryption_enabled():
                raise BoardError(
                    f"The flash of the chip on {self.port} is encrypted: what this tool writes "
                    "would not run. Write it with your own keys, then use FIRMWARE=skip."
                )

    def _with_stub(self, rom):
        """esptool's own loader is faster; a chip that does not take it does without."""
        try:
            return esptool.cmds.run_stub(rom)
        except _FAILURES:
            self.progress("chip", "does not take esptool's stub: going on without it")
            with contextlib.suppress(*_FAILURES):
                rom._port.close()
            self._esp = None
            return self._detect()

    def _faster(self, esp):
        if self.baud != ESPLoader.ESP_ROM_BAUD:
            self._esp = esp
            with self._guarded(f"changing to {self.baud} baud"):
                esp.change_baud(self.baud)
        return esp

    def _right_size(self, size):
        found = flash_size_bytes(size) if size else 0
        wanted = self.board["flash"]["size"]
        if found < wanted:
            raise BoardError(
                f"The chip on {self.port} has {size or 'no readable'} flash; BOARD="
                f"{self.board.name} needs {wanted >> 20}MB: nothing was written. Make a folder in "
                "boards/ with a smaller partition table for it."
            )

    @contextlib.contextmanager
    def _guarded(self, doing):
        self.doing = doing
        try:
            yield
        except BoardError:
            raise
        except _FAILURES as error:
            said = (str(error).splitlines() or [_said.said])[0]
            raise BoardError(
                f"The chip on {self.port} was lost while {doing}: {said}. See to its power and "
                "cable and run the same command again: what is right in its flash is not written "
                f"twice. If it is always lost, try a lower rate (BAUD=115200). {ENTER}"
            )

    # ---- flash

    def holds(self, part):
        """Whether the flash holds a Part already (MD5, reckoned by the chip)."""
        with self._guarded(f"comparing its {part.name}"):
            found = self._esp.flash_md5sum(part.offset, len(part.data))
        return found == hashlib.md5(part.data).hexdigest()

    def is_blank(self, partition):
        """Whether a region is erased from its beginning to its end."""
        return self.holds(esp_image.Part(partition.name, partition.offset,
                                         b"\xff" * partition.size))  # fmt: skip

    def table(self):
        """The partitions that the chip has now; empty without a table."""
        with self._guarded("reading its partition table"):
            data = self._esp.read_flash(self.board["flash"]["table_offset"], partitions.SIZE)
        try:
            return partitions.from_binary(data)
        except partitions.PartitionError:
            return []

    def has_files(self, partition):
        """Whether a littlefs of just this size lies in a partition (its SPEC.md: superblock).

        Its magic is followed by a tag, the version, size and number of its blocks.
        """
        with self._guarded(f"reading its {partition.name}"):
            head = self._esp.read_flash(partition.offset, 2 * SECTOR)
        for at in (0, SECTOR):
            found = head.find(MAGIC, at, at + 64)
            if found >= 0:
                size, count = struct.unpack_from("<II", head, found + len(MAGIC) + 8)
                return size * count == partition.size
        return False

    def erase(self, partition):
        """Set a region to 0xFF."""
        with self._guarded(f"erasing {partition.name}"):
            _said.name = partition.name
            if self._esp.IS_STUB:
                self._esp.erase_region(partition.offset, partition.size)
            else:  # the ROM erases what is going to be written
                self._esp.flash_begin(partition.size, partition.offset)

    def erase_all(self):
        """Set the whole flash to 0xFF."""
        size = self.board["flash"]["size"]
        with self._guarded("erasing its flash"):
            if self._esp.IS_STUB:
                self._esp.erase_flash()
            else:
                self._esp.flash_begin(size, 0)

    def write(self, part):
        """Write a Part and compare the chip's MD5 of it; a frame lost on the way is no matter."""
        for tries_left in range(TRIES - 1, -1, -1):
            try:
                self._write_once(part)
                break
            except BoardError:
                if not tries_left or not self._in_step():
                    raise
                self.progress("chip", f"a frame was lost: writing its {part.name} again")
        if not self.holds(part):
            raise BoardError(
                f"What the chip on {self.port} reads back from its {part.name} is not what was "
                "written: run the same command again; if it stays so its flash is worn out."
            )

    def _write_once(self, part):
        with self._guarded(f"writing its {part.name}"):
            _said.name = part.name
            padded = part.data + b"\xff" * (-len(part.data) % 4)
            esptool.cmds.write_flash(self._esp, [(part.offset, padded)])

    def _in_step(self):
        """Whether the loader still answers, after something went wrong."""
        with contextlib.suppress(*_FAILURES):
            self._esp.flush_input()
            self._esp.sync()
            return True
        return False

    def restart(self):
        """Leave the loader: the chip starts what lies in its flash."""
        with self._guarded("starting"):
            if self.port.startswith("socket:"):
                self._esp.run(reboot=True)  # there is no reset line
            else:
                esptool.cmds.reset_chip(self._esp, "hard-reset")


def write(chip, image, name, confirm):
    """Bring a chip to hold a MicroPython image and the board's partition table.

    chip     an open Chip
    image    bytes of the published image; name: what to call it
    confirm  function(text) that returns True if data may be erased

    Returns the names of what was written; empty when everything was right already.
    Raises BoardError.
    """
    wanted = esp_image.parts(image, chip.board, name)
    lost = _regions_to_erase(chip, confirm)
    written = []
    for region in lost:
        chip.progress("firmware", f"erasing {region.name} ({region.size >> 10} KiB)")
        chip.erase(region)
        written.append(region.name)
    for part in wanted:
        if chip.holds(part):
            chip.progress("firmware", f"{part.name} is as it should be")
            continue
        chip.progress("firmware", f"writing {part.name}: {len(part.data)} bytes at "
                                  f"{part.offset:#x}")  # fmt: skip
        chip.write(part)
        written.append(part.name)
    return written


def _regions_to_erase(chip, confirm):
    """Regions that the board's table has where the chip's has something else, unless blank."""
    new = boards.partition_table(chip.board.folder, chip.board["flash"])
    old = chip.table()
    if not old and chip.has_files(next(p for p in new if p.name == "vfs")):
        old = new  # a run that was cut while it wrote the table: what lies here is in its place
    moved = [p for p in new if p.type == partitions.TYPES["data"] and p not in old]
    moved = [p for p in moved if p.name not in KEPT and not chip.is_blank(p)]
    held = [p for p in old if p.name in HELD and p not in new and not chip.is_blank(p)]
    if moved and held:
        names = " and ".join(p.name for p in held)
        if not confirm(f"the partition table of this chip is another one: its {names} (files and "
                       "messages) will be erased"):  # fmt: skip
            raise BoardError(
                f"The partition table of the chip on {chip.port} is not that of BOARD="
                f"{chip.board.name}: with ours, what its {names} holds is lost. `make backup` "
                "first if you want to keep it, then flash with YES=1; or FIRMWARE=skip keeps the "
                "table (messages are then kept in files)."
            )
    return moved
