"""UF2 files: whether one is whole, for which chip it is, and what it writes where.

Pure. Knows the format (Microsoft, "USB Flashing Format (UF2)") and what Raspberry Pi's boot ROMs
ask of it: blocks of 256 bytes at multiples of 256, families by number (RP2040 datasheet, 2.8.4.2;
RP2350 datasheet, 5.5.3).
Must not know: drives, boards beyond what is asked of the file.
"""

import struct
from dataclasses import dataclass

BLOCK = struct.Struct("<IIIIIIII476sI")
MAGIC = (0x0A324655, 0x9E5D5157, 0x0AB16F30)
NOT_MAIN_FLASH, HAS_FAMILY = 0x1, 0x2000
PAGE = 256
FLASH = 0x10000000  # where the flash begins in the chip's address space
# Blocks of this family come first in files for RP2350 and are for its erratum E10 only.
ABSOLUTE = 0xE48BFF57
FAMILIES = {
    0xE48BFF56: "RP2040", 0xE48BFF59: "RP2350 (Arm)", 0xE48BFF5A: "RP2350 (RISC-V)",
    0xE48BFF5B: "RP2350 (Arm, non-secure)", 0xC47E5767: "ESP32-S3", 0x1C5F21B0: "ESP32",
    0xD42BA06C: "ESP32-C3", 0xBFDD4EEE: "ESP32-S2",
}  # fmt: skip


class Uf2Error(ValueError):
    """The file cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Image:
    """What a file writes: its family, the first address and one past the last, how many blocks."""

    family: int
    start: int
    end: int
    blocks: int


def parse(data):
    """Check a UF2 file; return {family: {address: 256 bytes}}, in the file's order.

    Blocks that are not for the main flash are left out. Raises Uf2Error.
    """
    if not data or len(data) % BLOCK.size:
        raise Uf2Error(f"its {len(data)} bytes are not whole blocks of {BLOCK.size}: cut off")
    found, numbers = {}, {}
    for at in range(0, len(data), BLOCK.size):
        number = at // BLOCK.size
        first, second, flags, address, size, block, blocks, family, payload, last = (
            BLOCK.unpack_from(data, at)
        )
        if (first, second, last) != MAGIC:
            raise Uf2Error(f"block {number} has not the magic numbers of a UF2 block")
        if flags & NOT_MAIN_FLASH or family == ABSOLUTE:
            continue
        if not flags & HAS_FAMILY:
            raise Uf2Error(f"block {number} does not say for which chip it is")
        pages = found.setdefault(family, {})
        _check_number(number, block, blocks, len(pages), numbers.setdefault(family, blocks))
        if size != PAGE or address % PAGE:
            raise Uf2Error(f"block {number} holds {size} bytes for {address:#x}: expected {PAGE} "
                           f"for a multiple of it")  # fmt: skip
        if address in pages:
            raise Uf2Error(f"block {number} writes {address:#x} a second time")
        pages[address] = payload[:PAGE]
    for family, pages in found.items():
        if len(pages) != numbers[family]:
            raise Uf2Error(f"{len(pages)} of {numbers[family]} blocks are there: cut off")
    if not found:
        raise Uf2Error("no block in it is for the flash")
    return found


def _check_number(number, block, blocks, expected, total):
    if block != expected or blocks != total:
        raise Uf2Error(
            f"block {number} calls itself {block} of {blocks}, expected {expected} of {total}"
        )


def check(data, family, limit):
    """Check a file for one chip; return its Image.

    family  the chip's family id
    limit   bytes of flash from its beginning that the program may take
    Raises Uf2Error.
    """
    found = parse(data)
    if family not in found:
        names = ", ".join(FAMILIES.get(f, f"family {f:#x}") for f in found)
        raise Uf2Error(f"it is for {names}, not for {FAMILIES.get(family, hex(family))}")
    pages = found[family]
    start, end = min(pages), max(pages) + PAGE
    if start != FLASH:
        raise Uf2Error(f"it begins at {start:#x}, not at the beginning of the flash ({FLASH:#x})")
    if end > FLASH + limit:
        raise Uf2Error(f"it ends at {end:#x}; the filesystem begins at {FLASH + limit:#x}")
    return Image(family, start, end, len(pages))
