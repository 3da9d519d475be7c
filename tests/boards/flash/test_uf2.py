"""UF2 files are checked against the format before anything is written."""

import pytest
from images import code, uf2, uf2_block
from umqtt_board.flash import uf2 as files

RP2040, RP2350 = 0xE48BFF56, 0xE48BFF59
DATA = code(5_000, 1)
GOOD = uf2(DATA)
BLOCKS = [GOOD[at : at + 512] for at in range(0, len(GOOD), 512)]
LIMIT = 0x12C000


def _changed(number, at, byte):
    data = bytearray(GOOD)
    data[number * 512 + at] ^= byte
    return bytes(data)


def test_a_whole_file():
    assert files.check(GOOD, RP2040, LIMIT) == files.Image(RP2040, 0x10000000, 0x10001400, 20)
    pages = files.parse(GOOD)[RP2040]
    assert b"".join(pages.values())[: len(DATA)] == DATA


@pytest.mark.parametrize("data, said", [
    (b"", "cut off"),
    (GOOD[:-1], "not whole blocks of 512"),
    (GOOD[:-512], "19 of 20 blocks are there: cut off"),
    (_changed(3, 0, 1), "block 3 has not the magic numbers"),
    (_changed(3, 4, 1), "block 3 has not the magic numbers"),
    (_changed(3, 511, 1), "block 3 has not the magic numbers"),
    (_changed(3, 20, 1), "block 3 calls itself 2 of 20, expected 3 of 20"),
    (_changed(3, 24, 1), "block 3 calls itself 3 of 21, expected 3 of 20"),
    (_changed(3, 9, 0x20), "block 3 does not say for which chip"),
    (_changed(3, 12, 1), "expected 256 for a multiple of it"),
    (_changed(3, 17, 1), "block 3 holds 0 bytes"),
    (_changed(3, 13, 1), "writes 0x10000200 a second time"),
    (GOOD[512 * 10 :] + GOOD[: 512 * 10], "block 0 calls itself 10 of 20"),
    (uf2(DATA, RP2350), "it is for RP2350 .Arm., not for RP2040"),
    (uf2(DATA, 0x12345678), "it is for family 0x12345678, not for RP2040"),
    (uf2(DATA, flags=0x2001), "no block in it is for the flash"),
    (uf2(DATA, start=0x10001000), "not at the beginning of the flash"),
    (uf2(bytes(LIMIT + 256)), "the filesystem begins at 0x1012c000"),
    (b"\xe9" + bytes(511), "block 0 has not the magic numbers"),
])  # fmt: skip
def test_a_wrong_file(data, said):
    with pytest.raises(files.Uf2Error, match=said):
        files.check(data, RP2040, LIMIT)


def test_the_block_for_erratum_e10_comes_first_in_files_for_rp2350():
    extra = uf2_block(b"\xef" * 256, 0x10FFFF00, 0, 2, files.ABSOLUTE)
    image = files.check(extra + uf2(DATA, RP2350), RP2350, LIMIT)
    assert image.blocks == 20


def test_one_file_for_two_chips():
    both = GOOD + uf2(DATA, RP2350)
    assert files.check(both, RP2040, LIMIT) == files.check(GOOD, RP2040, LIMIT)
    assert files.check(both, RP2350, LIMIT).family == RP2350


def test_a_block_is_512_bytes():
    assert {len(block) for block in BLOCKS} == {512}
