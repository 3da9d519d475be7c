"""The step that proves an installation: what lies in flash, that it loads, room, journal region.

Knows how to ask. It must not change anything on the board.
"""

from dataclasses import dataclass

from umqtt_board.errors import BoardError
from umqtt_board.flash import own_files, romfs
from umqtt_board.flash.install import digest, hashes

_LOAD = """
import gc, sys
gc.collect()
_before = gc.mem_free()
import umqtt_min
gc.collect()
_say((umqtt_min.__version__, umqtt_min.__path__, _before, gc.mem_free()))
"""

# How each kind of journal region is opened; `region` speaks the block protocol.
_REGIONS = {
    "vboard": "import vboard\nregion = vboard.journal",
    "partition": "from esp32 import Partition\n"
    "region = (Partition.find(Partition.TYPE_DATA, label={label!r}) + [None])[0]",
    "reserved": """
import json, rp2
try:
    with open("/board.json") as _f:
        _j = json.load(_f).get("journal")
except (OSError, ValueError):
    _j = None
region = rp2.Flash(start=_j["start"], len=_j["size"]) if _j else None
""",
}
_READ = """
if region is None:
    _say((0, 0))
else:
    _buf = bytearray(64)
    region.readblocks(0, _buf)
    region.readblocks(region.ioctl(4, 0) - 1, _buf)
    _say((region.ioctl(4, 0), region.ioctl(5, 0)))
"""


@dataclass(frozen=True)
class Verified:
    """Library version and folder, bytes of heap free before and after its import, bytes of journal
    region.

    `journal` is 0 where messages are kept in files.
    """

    library: str
    folder: str
    heap_before: int
    heap_after: int
    journal: int


def verify(device, board, items, image=None):
    """Check the board against `items` and the romfs.Image that its ROMFS should hold, if any;
    return what was found, BoardError on the first fault."""
    device.doing = "verifying its files"
    found = hashes(device, [item.path for item in items])
    wrong = [item.path for item in items if found[item.path] != digest(item.data)]
    if wrong:
        raise BoardError(
            f"{', '.join(wrong)} on {device.port} is not what was installed: flash it again."
        )
    hiding = own_files.hiding(device, items, image)
    if hiding:
        raise BoardError(
            f"{', '.join(sorted(hiding))} on {device.port} hides what was installed, or a module "
            "of MicroPython's own: flash it again, which gives that another name."
        )
    if image and not romfs.holds(device, image):
        raise BoardError(f"The ROMFS on {device.port} is not what was installed: flash it again.")
    return Verified(*_load(device), _journal_size(device, board["journal"]))


def _load(device):
    device.doing = "importing umqtt_min"
    return device.value(_LOAD, (str, str, int, int))


def opening(journal):
    """Return the program that sets `region` to the journal's block device, or to None.

    journal  the table of that name in a board.toml
    """
    return _REGIONS[journal["kind"]].format(**journal)


def _journal_size(device, journal):
    if journal["kind"] == "files":
        return 0
    device.doing = "looking at its journal region"
    sectors, size = device.value(opening(journal) + _READ, (int, int))
    return sectors * size
