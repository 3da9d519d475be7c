"""Images as MicroPython publishes them, with made-up code: for esp32 chips and for RP2040.

Knows: the formats. Must not know: what is tested with them.
"""

import hashlib
import random
import struct

from umqtt_board.flash import partitions
from umqtt_board.flash.esp_image import CHIP_IDS

STOCK = """nvs, data, nvs, 0x9000, 0x6000
phy_init, data, phy, 0xf000, 0x1000
factory, app, factory, 0x10000, 0x1f0000
vfs, data, fat, 0x200000, 0x200000
"""


def code(size, seed):
    """Bytes that compress about as machine code does."""
    dice = random.Random(seed)
    words = [dice.randbytes(4) for _ in range(64)]
    return b"".join(dice.choice(words) for _ in range(size // 4))


def esp_program(chip, size, seed):
    """One image of an esp32 chip: header, two segments, checksum, SHA-256."""
    body = struct.pack("<BBBBI", 0xE9, 2, 2, 0x20, 0x40080000)
    body += struct.pack("<4BHBHH4BB", 0xEE, 0, 0, 0, CHIP_IDS[chip], 0, 0, 0xFFFF, 0, 0, 0, 0, 1)
    data = code(size, seed)
    for address, part in ((0x3F400020, data[: size // 2]), (0x400D0020, data[size // 2 :])):
        body += struct.pack("<II", address, len(part)) + part
    body += bytes(15 - len(body) % 16)
    checksum = 0xEF
    for byte in data:
        checksum ^= byte
    body += bytes([checksum])
    return body + hashlib.sha256(body).digest()


def esp_image(chip="esp32", size=60_000, seed=1, start=0x1000):
    """A published image: boot loader, table, NVS left blank, program."""
    image = bytearray(b"\xff" * (0x10000 - start))
    loader = esp_program(chip, 16_000, seed + 1000)
    image[: len(loader)] = loader
    table = partitions.to_binary(partitions.parse_csv(STOCK))
    image[0x8000 - start : 0x8000 - start + len(table)] = table
    return bytes(image) + esp_program(chip, size, seed)


def uf2(data, family=0xE48BFF56, start=0x10000000, flags=0x2000):
    """A UF2 file of `data`, as Raspberry Pi's tools write it."""
    pages = [data[at : at + 256].ljust(256, b"\0") for at in range(0, len(data), 256)]
    return b"".join(
        uf2_block(page, start + 256 * n, n, len(pages), family, flags)
        for n, page in enumerate(pages)
    )


def uf2_block(page, address, number, blocks, family=0xE48BFF56, flags=0x2000, size=256):
    """One block of 512 bytes."""
    head = struct.pack("<8I", 0x0A324655, 0x9E5D5157, flags, address, size, number, blocks, family)
    return head + page.ljust(476, b"\0") + struct.pack("<I", 0x0AB16F30)
