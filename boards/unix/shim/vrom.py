"""A ROMFS as chips have it: `vfs.rom_ioctl` over a file, and the mount at the start.

Knows: the image, as a chip has it at an address; vfs as MicroPython's extmod/vfs_rom_ioctl.c.
Must not know: what lies in it. Loaded on a board that has one.

A chip reads its flash in place. This interpreter cannot, so it holds the image in memory that it
is given on top of its heap: what is free is what a chip would have free.
"""

import sys

import vboard
import vfs as _vfs
from vflash import SECTOR
from vfs import *  # noqa: F403

_EINVAL = -22
_NUMBER, _SEGMENT, _PREPARE, _WRITE, _COMPLETE, _BLOCK = range(1, 7)


memory = memoryview(bytearray(vboard.rom.size))
vboard.rom.readblocks(0, memory)


def rom_ioctl(op, segment=0, *rest):
    """As `vfs.rom_ioctl` of a chip; an operation that fails returns the negative error."""
    if op == _NUMBER:
        return 1
    if segment:
        return _EINVAL
    if op == _SEGMENT:
        return memory
    if op == _PREPARE:  # erases `rest` (offset, bytes)
        offset, size = rest
        for sector in range(offset // SECTOR, (offset + size + SECTOR - 1) // SECTOR):
            vboard.rom.ioctl(6, sector)
            vboard.rom.readblocks(sector, memory[sector * SECTOR : (sector + 1) * SECTOR])
        return 4
    if op == _WRITE:
        offset, data = rest
        vboard.rom.writeblocks(offset // SECTOR, data, offset % SECTOR)
        vboard.rom.readblocks(
            offset // SECTOR, memory[offset : offset + len(data)], offset % SECTOR
        )
        return 0
    return {_COMPLETE: 0, _BLOCK: SECTOR}.get(op, _EINVAL)


sys.modules["vfs"] = sys.modules[__name__]


def mount_rom():
    """Mount it at /rom, if it holds an image, as a chip's start does."""
    try:
        _vfs.mount(_vfs.VfsRom(memory), "/rom")
    except OSError:
        return
    sys.path += ["/rom", "/rom/lib"]
