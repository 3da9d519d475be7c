"""What is in a MicroPython image for esp32 chips: boot loader, partition table, program.

Pure: bytes in, parts out. The published image is one piece from the boot loader to the end of the
program; written as it is it would wipe NVS, which lies between, and bring a partition table of its
own. So it is taken apart, and the board's own table takes the place of that in it.

Knows: the image format (Espressif, "Firmware Image Format": header, segments, checksum, SHA-256)
and the partition table.
Must not know: ports, esptool.
"""

import hashlib
import struct
from dataclasses import dataclass

from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import partitions

MAGIC = 0xE9
HEADER = struct.Struct("<BBBBI")  # magic, segments, mode, size and frequency, entry
CHIP_ID_AT = 12
HASH_FLAG_AT = 23
SEGMENTS_AT = 24
CHIP_IDS = {"esp32": 0, "esp32s2": 2, "esp32c3": 5, "esp32s3": 9, "esp32c2": 12, "esp32c6": 13}
UF2_MAGIC = b"UF2\n"


@dataclass(frozen=True)
class Part:
    """A piece of flash: what it is, where it lies, what it holds."""

    name: str
    offset: int
    data: bytes

    @property
    def end(self):
        return self.offset + len(self.data)


def parts(data, board, name):
    """Take a published image apart for a board; return [boot loader, program, table].

    data  bytes of the image
    board a boards.Board that is flashed with esptool
    name  what to call the image in errors
    The table comes last: it is written last. Raises BoardError for an image that is not whole,
    not MicroPython's, for another chip or too large.
    """
    if data.startswith(UF2_MAGIC):
        raise BoardError(
            f"{name} is a UF2 file, but BOARD={board.name} is flashed over its serial port: give "
            f"the .bin file of {board['micropython']['image']}."
        )
    start = board["micropython"]["image_offset"]
    table_at = board["flash"]["table_offset"] - start
    theirs = _their_table(data[table_at : table_at + partitions.SIZE], name)
    ours = boards.partition_table(board.folder, board["flash"])
    app, room = _app(theirs), _app(ours)
    loader = _checked(data[:table_at], board, name, "boot loader")
    program = _checked(data[app.offset - start :], board, name, "program")
    if room.offset != app.offset or len(program) > room.size:
        raise BoardError(
            f"The program in {name} has {len(program)} bytes for {app.offset:#x}; the partition "
            f"table of BOARD={board.name} has {room.size} at {room.offset:#x} for it."
        )
    table = partitions.to_binary(ours)
    return [
        Part("boot loader", start, loader),
        Part("program", app.offset, program),
        Part("partition table", board["flash"]["table_offset"], table),
    ]


def _their_table(data, name):
    try:
        table = partitions.from_binary(data)
        if table:
            return table
        reason = "no partition table in it"
    except (partitions.PartitionError, struct.error) as error:
        reason = str(error)
    raise BoardError(
        f"{name} is not a whole MicroPython image for an esp32 chip ({reason}): take the .bin "
        "file from micropython.org/download, not the one of the program alone."
    )


def _app(table):
    return next(p for p in table if p.type == partitions.TYPES["app"])


def _checked(data, board, name, what):
    """Return one image of `data`, without what lies behind it, when it is whole and fits."""
    if len(data) < SEGMENTS_AT or data[0] != MAGIC:
        raise BoardError(f"{name} has no {what} where BOARD={board.name} expects it: it is not "
                         f"MicroPython's {board['micropython']['image']}.")  # fmt: skip
    chip = struct.unpack_from("<H", data, CHIP_ID_AT)[0]
    if chip != CHIP_IDS[board["chip"]]:
        names = {number: word for word, number in CHIP_IDS.items()}
        raise BoardError(
            f"{name} is for {names.get(chip, f'chip {chip}')}, not for {board['chip']}: nothing "
            f"was written. Give the image {board['micropython']['image']}, or its own BOARD=."
        )
    length = image_length(data)
    if length is None or not _sum_is_right(data[:length]):
        raise BoardError(f"The {what} in {name} is not whole: get the image again.")
    return data[:length]


def image_length(data):
    """Return the bytes that one image takes, None when it is cut off."""
    at = SEGMENTS_AT
    for _ in range(data[1]):
        if at + 8 > len(data):
            return None
        at += 8 + struct.unpack_from("<I", data, at + 4)[0]
    at = (at // 16 + 1) * 16  # the checksum is the last byte of a block of 16
    if data[HASH_FLAG_AT]:
        at += 32
    return at if at <= len(data) else None


def _sum_is_right(data):
    if not data[HASH_FLAG_AT]:
        return True
    return hashlib.sha256(data[:-32]).digest() == data[-32:]
