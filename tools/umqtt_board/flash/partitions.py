"""The partition table of esp32 chips: from partitions.csv to the bytes in flash, and back.

Pure. Knows the format (ESP-IDF, "Partition Tables"): entries of 32 bytes, then one that holds the
MD5 of the entries, all in 0xC00 bytes filled up with 0xFF. It must not know boards or esptool.
"""

import hashlib
import struct
from dataclasses import dataclass

from umqtt_board import plain

SIZE = 0xC00
SECTOR = 0x1000
APP_ALIGN = 0x10000
ENTRY = struct.Struct("<2sBBII16sI")
MAGIC = b"\xaa\x50"
MD5_MAGIC = b"\xeb\xeb" + b"\xff" * 14
TYPES = {"app": 0, "data": 1}
SUBTYPES = {
    "app": {"factory": 0, "ota_0": 0x10, "ota_1": 0x11, "test": 0x20},
    "data": {"ota": 0, "phy": 1, "nvs": 2, "coredump": 3, "nvs_keys": 4, "fat": 0x81,
             "spiffs": 0x82, "littlefs": 0x83},
}  # fmt: skip


class PartitionError(ValueError):
    """The table cannot be used; the text says where and why."""


@dataclass(frozen=True)
class Partition:
    """One entry; `offset` and `size` in bytes."""

    name: str
    type: int
    subtype: int
    offset: int
    size: int
    flags: int = 0

    @property
    def end(self):
        return self.offset + self.size


def parse_csv(text):
    """Return the Partitions of a CSV text in ESP-IDF's form, offsets given; PartitionError."""
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = [field.strip() for field in line.split("#")[0].split(",")]
        if fields == [""]:
            continue
        try:
            name, kind, subtype, offset, size = fields[:5]
            part = Partition(name, _number(kind, TYPES),
                             _number(subtype, SUBTYPES.get(kind, {})),
                             int(offset, 0), int(size, 0))  # fmt: skip
        except (ValueError, KeyError) as error:
            raise PartitionError(f"line {number}: expected name, type, subtype, offset, size "
                                 f"({error})")  # fmt: skip
        result.append(part)
    check(result)
    return result


def _number(text, names):
    return names[text] if text in names else int(text, 0)


def check(partitions, flash_size=None):
    """Raise PartitionError for names too long or twice, bad alignment, overlaps, lack of room."""
    names = [part.name for part in partitions]
    at = SECTOR
    for part in sorted(partitions, key=lambda part: part.offset):
        align = APP_ALIGN if part.type == TYPES["app"] else SECTOR
        if not 0 < len(part.name.encode()) < 16 or names.count(part.name) > 1:
            raise PartitionError(f"{part.name!r}: names have 1 to 15 bytes and occur once")
        if part.offset % align or part.size % SECTOR or part.size <= 0:
            raise PartitionError(f"{part.name}: offset must be a multiple of {align:#x}, size of "
                                 f"{SECTOR:#x}")  # fmt: skip
        if part.offset < at:
            raise PartitionError(f"{part.name}: begins at {part.offset:#x}, inside what is before")
        at = part.end
    if flash_size is not None and at > flash_size:
        raise PartitionError(f"the table ends at {at:#x}, the flash at {flash_size:#x}")


def to_binary(partitions):
    """Return the 0xC00 bytes that lie in flash."""
    body = b"".join(
        ENTRY.pack(MAGIC, p.type, p.subtype, p.offset, p.size, p.name.encode(), p.flags)
        for p in partitions
    )
    body += MD5_MAGIC + hashlib.md5(body).digest()
    return body + b"\xff" * (SIZE - len(body))


def from_binary(data):
    """Return the Partitions of a table as it lies in flash; PartitionError if it is none."""
    result = []
    for at in range(0, SIZE, ENTRY.size):
        entry = data[at : at + ENTRY.size]
        if entry[:16] == MD5_MAGIC:
            if entry[16:] != hashlib.md5(data[:at]).digest():
                raise PartitionError("the table's MD5 is wrong")
            continue
        if entry == b"\xff" * ENTRY.size:
            return result
        if entry[:2] != MAGIC:
            raise PartitionError(f"no partition table: {entry[:2].hex()} at offset {at:#x}")
        _, kind, subtype, offset, size, name, flags = ENTRY.unpack(entry)
        label = plain.line(name.rstrip(b"\0").decode(errors="replace"))
        result.append(Partition(label, kind, subtype, offset, size, flags))
    return result
