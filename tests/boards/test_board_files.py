"""Every folder of boards/ is a whole description; partition tables are what esp32 chips expect."""

import copy

import pytest
from umqtt_board import boards
from umqtt_board.errors import BoardError
from umqtt_board.flash import partitions


@pytest.mark.parametrize("name", boards.names())
def test_board_folder(name):
    board = boards.load(name)
    assert board.name == name and board.title
    if board["micropython"]["platform"] == "esp32":
        table = boards.partition_table(board.folder, board["flash"])
        # MicroPython's own image must still fit where it expects to be.
        assert {p.name: p.offset for p in table}["factory"] == 0x10000


def test_every_wrong_entry_is_named():
    good = boards.load("esp32")
    cases = {
        "name": ("", "name", "esp33"),
        "micropython.minimum": ("micropython", "minimum", "new"),
        "micropython.flash_with": ("micropython", "flash_with", "magic"),
        "journal.kind": ("journal", "kind", "paper"),
        "journal.size": ("journal", "size", 5000),
        "expected a partition mqtt": ("journal", "size", 0x50000),
        "expected a partition vfs": ("filesystem", "size", 0x1000),
        "flash.partitions": ("flash", "partitions", "none.csv"),
        "the table ends at": ("flash", "size", 0x200000),
        "usb.vendors": ("usb", "vendors", []),
        "timer.id: expected a int": ("timer", "id", "x"),
    }
    assert boards.check("esp32", good.data, good.folder) == []
    for said, (table, key, value) in cases.items():
        data = copy.deepcopy(good.data)
        (data[table] if table else data)[key] = value
        assert said in "; ".join(boards.check("esp32", data, good.folder)), (table, key)


def test_unknown_board():
    with pytest.raises(BoardError, match="one of: esp32, "):
        boards.load("nope")


def test_partition_table_bytes():
    """The entry of ESP-IDF's documentation, byte for byte, then the MD5 entry and 0xFF."""
    table = partitions.parse_csv("nvs, data, nvs, 0x9000, 0x6000\n")
    data = partitions.to_binary(table)
    assert data[:32] == bytes.fromhex("aa50 0102 00900000 00600000") + b"nvs" + bytes(17)
    assert data[32:48] == b"\xeb\xeb" + b"\xff" * 14
    assert len(data) == 0xC00 and data[64:] == b"\xff" * (0xC00 - 64)
    assert partitions.from_binary(data) == table


def test_partition_table_damage_is_seen():
    table = partitions.parse_csv("a, app, factory, 0x10000, 0x1000")
    data = bytearray(partitions.to_binary(table))
    data[8] ^= 1
    with pytest.raises(partitions.PartitionError, match="MD5"):
        partitions.from_binary(bytes(data))
    with pytest.raises(partitions.PartitionError, match="no partition table"):
        partitions.from_binary(b"\0" * 0xC00)


@pytest.mark.parametrize("line, said", [
    ("a, app, factory, 0x11000, 0x1000", "multiple of 0x10000"),
    ("a, data, nvs, 0x9000, 0x6100", "size of 0x1000"),
    ("a, data, nvs, 0x9000", "expected name, type, subtype, offset, size"),
    ("a-name-that-is-too-long, data, nvs, 0x9000, 0x1000", "1 to 15 bytes"),
    ("a, data, nvs, 0x9000, 0x2000\nb, data, nvs, 0xa000, 0x1000", "inside what is before"),
])  # fmt: skip
def test_partition_csv_errors(line, said):
    with pytest.raises(partitions.PartitionError, match=said):
        partitions.parse_csv(line)
