"""The step that proves an installation: what lies in flash, that it loads, room, journal region.

Knows how to ask. It must not change anything on the board.
"""

from dataclasses import dataclass

from umqtt_board.device import DeviceError
from umqtt_board.errors import BoardError
from umqtt_board.install import digest, hashes

_LOAD = """
import gc, sys
gc.collect()
_before = gc.mem_free()
import umqtt_min
gc.collect()
print((umqtt_min.__version__, _before, gc.mem_free()))
"""

# How each kind of journal region is opened; `region` speaks the block protocol.
_REGIONS = {
    "vboard": "import vboard\nregion = vboard.journal",
    "partition": "from esp32 import Partition\n"
    "region = Partition.find(Partition.TYPE_DATA, label={label!r})[0]",
    "rp2flash": "import rp2\nregion = rp2.Flash(start={start}, len={size})",
}
_READ = """
_buf = bytearray(64)
region.readblocks(0, _buf)
region.readblocks(region.ioctl(4, 0) - 1, _buf)
print((region.ioctl(4, 0), region.ioctl(5, 0)))
"""


@dataclass(frozen=True)
class Verified:
    """Library version, bytes of heap free before and after its import, bytes of journal region."""

    library: str
    heap_before: int
    heap_after: int
    journal: int


def verify(device, board, items):
    """Check the board against `items`; return what was found, BoardError on the first fault."""
    device.doing = "verifying its files"
    found = hashes(device, [item.path for item in items])
    wrong = [item.path for item in items if found[item.path] != digest(item.data)]
    if wrong:
        raise BoardError(
            f"{', '.join(wrong)} on {device.port} is not what was installed: flash it again."
        )
    device.doing = "importing umqtt_min"
    library, before, after = device.value(_LOAD)
    return Verified(library, before, after, _journal_size(device, board["journal"]))


def _journal_size(device, journal):
    device.doing = "looking at its journal region"
    try:
        sectors, size = device.value(_REGIONS[journal["kind"]].format(**journal) + _READ)
    except DeviceError:
        raise BoardError(
            f"The board on {device.port} has no journal region of the kind {journal['kind']!r}: "
            "its flash is laid out differently. boards/README.md says how to lay it out."
        )
    return sectors * size
