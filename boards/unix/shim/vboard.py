"""The virtual board as seen from inside: its flash, its name, its lines to the supervisor.

Stands for what a chip has in silicon. It is imported while `/` is still the
host's filesystem, because what it opens there (the flash image, the sensor's own
count) must stay usable after littlefs has taken `/`. It must not know what runs
on the board.

`name`, `seed`      given when the board was made; they make runs repeatable
`sensor_log`        append-only stream on a host file outside the flash: a sensor's
                    own count of what it measured, which no power cut can touch
`journal`           block device of the journal region, as `esp32.Partition`
`flash`             block device of the filesystem region
`rom`               block device of the ROMFS, or None
`program_size`      bytes that the filesystem programs at a time
`reset_cause`       one of the constants below
`unique_id`         6 bytes
"""

import os

from vflash import SECTOR, Region

PWRON_RESET = 1
HARD_RESET = 2
WDT_RESET = 3
DEEPSLEEP_RESET = 4
SOFT_RESET = 5

name = os.getenv("VBOARD_NAME")
seed = int(os.getenv("VBOARD_SEED"))
reset_cause = int(os.getenv("VBOARD_CAUSE"))
unique_id = bytes.fromhex(os.getenv("VBOARD_UID"))

_control = open(int(os.getenv("VBOARD_CONTROL")), "wb")
_image = open(os.getenv("VBOARD_FLASH"), "r+b")
sensor_log = open(os.getenv("VBOARD_SENSOR_LOG"), "a+b")

program_size = int(os.getenv("VBOARD_PROGRAM_SIZE"))
_fs_sectors = int(os.getenv("VBOARD_FS_SECTORS"))
flash = Region(_image, 0, _fs_sectors)
_journal_sectors = int(os.getenv("VBOARD_JOURNAL_SECTORS"))
# None: as a chip that was flashed without the region.
journal = Region(_image, _fs_sectors * SECTOR, _journal_sectors) if _journal_sectors else None

_rom_sectors = int(os.getenv("VBOARD_ROMFS_SECTORS"))
rom = Region(open(os.getenv("VBOARD_ROMFS"), "r+b"), 0, _rom_sectors) if _rom_sectors else None


def _ask_and_wait(request):
    """Ask the supervisor for something that ends this interpreter, and wait for the end."""
    _control.write(request)
    while True:
        try:
            while True:
                pass
        except KeyboardInterrupt:
            pass


def reset():
    """A hard reset, as from the reset button. Does not return."""
    _ask_and_wait(b"reset\n")


def soft_reset():
    """A new interpreter on the same power: boot.py and main.py run again. Does not return."""
    _ask_and_wait(b"soft\n")


def deepsleep(ms):
    """Off for `ms` milliseconds (0: until the board is switched on), then a start from boot.py."""
    _ask_and_wait(b"sleep %d\n" % ms)


def watchdog(ms):
    """Start the watchdog: without feed() for `ms` the supervisor resets the board.

    It lives outside the interpreter, so it also fires when that hangs.
    """
    _control.write(b"watchdog %d\n" % ms)


def feed():
    """Put the watchdog's time back to the start. Allocates nothing."""
    _control.write(b"feed\n")


def _arm_cut():
    """Lose power before the flash operation whose number the host has put into a file."""
    try:
        file = open(os.getenv("VBOARD_CUT_AFTER"), "r+b")
    except OSError:
        return

    def count_down():
        file.seek(0)
        left = int(file.read(8))
        file.seek(0)
        file.write(b"%8d" % (left - 1))
        if left == 0:
            _ask_and_wait(b"cut\n")

    for region in (flash, journal, rom):
        if region:
            region.before = count_down


_arm_cut()


class WDT:
    """As `machine.WDT` (chips have one watchdog: `id` is 0); `timeout` in milliseconds."""

    def __init__(self, id=0, timeout=5000):
        watchdog(timeout)

    def feed(self):
        """Put its time back to the start."""
        feed()


def complete(machine):
    """Give the module `machine` what only the supervisor can do: resets, sleep, the watchdog."""
    machine.reset = reset
    machine.soft_reset = soft_reset
    machine.deepsleep = lambda time_ms=0: deepsleep(time_ms)
    machine.reset_cause = lambda: reset_cause
    machine.unique_id = lambda: unique_id
    machine.WDT = WDT
    for constant in (
        "PWRON_RESET", "HARD_RESET", "WDT_RESET", "DEEPSLEEP_RESET", "SOFT_RESET",
    ):  # fmt: skip
        setattr(machine, constant, globals()[constant])


def _started():
    """Tell the supervisor that Ctrl-C may interrupt from here on."""
    _control.write(b"up\n")
