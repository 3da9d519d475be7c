"""The library as a ROMFS image: its code runs where it lies in flash, and takes no heap.

Knows a ROMFS, and that not every MicroPython has one. It must not know what else a board holds.

The board's own files stay in its filesystem, which comes first on the search path, and so does a
set from over the air: the library in either wins over the one here.
"""

import contextlib
import hashlib
import io
import re
from dataclasses import dataclass

from mpremote.romfs import VfsRomWriter

from umqtt_board import plain

LIBRARY = "/lib/umqtt_min/"  # what goes into the image; it is /rom/lib/umqtt_min there

# (bytes of the board's ROMFS, what lies in it that is not ours)
_LOOK = """
import os
try:
    import vfs
    _rom = vfs.rom_ioctl(2, 0) if vfs.rom_ioctl(1) > 0 else -1
    _size = 0 if isinstance(_rom, int) else len(memoryview(_rom))
except (ImportError, AttributeError, OSError):
    _size = 0
def _others(folder, ours):
    try:
        return [folder + "/" + e for e in os.listdir(folder) if e != ours]
    except OSError:
        return []
_say((_size, _others("/rom", "lib") + _others("/rom/lib", "umqtt_min") if _size else []))
"""
_HASH = """
import hashlib, binascii, vfs
def _rom_hash(size):
    s = hashlib.sha256()
    m = memoryview(vfs.rom_ioctl(2, 0))
    for i in range(0, size, 512):
        s.update(m[i:min(i + 512, size)])
    return binascii.hexlify(s.digest()).decode()
"""


@dataclass(frozen=True)
class Image:
    """A ROMFS image: its bytes."""

    data: bytes

    @property
    def digest(self):
        """SHA-256, hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


def split(device, items, progress):
    """Return (Items for the board's filesystem, Image with the library or None).

    The board says whether it has a ROMFS; `progress` is told in one line what came of it.
    """
    device.doing = "looking for its ROMFS"
    room, others = device.value(_LOOK, (int, [str]))
    made = image_of([item for item in items if item.path.startswith(LIBRARY)])
    need = len(made.data)
    if room == 0:
        why = "this MicroPython has none"
    elif others:
        why = f"{plain.line(others[0])} in it is not this project's"
    elif need > room:
        why = f"its {room} bytes are too few for {need}"
    else:
        progress("romfs", f"{need} of {room} bytes: the library runs where it lies in flash")
        return [item for item in items if not item.path.startswith(LIBRARY)], made
    progress("romfs", f"{why}: the library goes into the filesystem")
    return items, None


def image_of(items):
    """Return the Image that holds these Items, at their paths below /rom."""
    writer = VfsRomWriter()
    folder = []
    for item in sorted(items, key=lambda item: item.path):
        *parts, name = item.path.split("/")[1:]
        shared = 0
        while shared < min(len(folder), len(parts)) and folder[shared] == parts[shared]:
            shared += 1
        for _ in folder[shared:]:
            writer.closedir()
        for part in parts[shared:]:
            writer.opendir(part)
        folder = parts
        writer.mkfile(name, item.data)
    for _ in folder:
        writer.closedir()
    return Image(writer.finalise())


def holds(device, image):
    """Whether the board's ROMFS begins with these bytes."""
    device.doing = "comparing its ROMFS"
    code = f"{_HASH}\n_say(_rom_hash({len(image.data)}))"
    return device.value(code, str) == image.digest


def write(device, image, progress):
    """Write the image; `progress(done, total, name)` is told the bytes. The board must be started
    anew before it is used. Cut in the middle, it is no image that holds() takes for this one."""
    device.doing = "writing its ROMFS"
    total = len(image.data)
    told = _Told(lambda done: progress(min(done, total), total, "ROMFS"))
    with contextlib.redirect_stdout(told):
        device.deploy_romfs(image.data)
    progress(total, total, "ROMFS")


class _Told(io.StringIO):
    """Takes what mpremote prints and passes on how far it is."""

    def __init__(self, progress):
        super().__init__()
        self.progress = progress

    def write(self, text):
        found = re.match(r"\rWriting at offset (\d+)", text)
        if found:
            self.progress(int(found[1]))
        return len(text)
