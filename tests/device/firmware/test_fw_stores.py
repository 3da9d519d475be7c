"""Which store a board gets, and regions that are not in the flash. Both interpreters."""

import os

import stores
from umqtt_min.store.plain_files import PlainFiles
from umqtt_min.store.small_files import SmallFiles

BOARD = "fw_board_test.json"


class Flash:
    """rp2.Flash(): 64 sectors of 4096 bytes, or a part of them; NOR."""

    def __init__(self, start=0, len=64 * 4096):
        self.start = start
        self.size = len
        self.data = b""

    def fill(self):
        """Be there in RAM; most tests only ask for the size."""
        self.data = bytearray(b"\xff" * self.size)
        return self

    def ioctl(self, op, arg):
        if op == 4:
            return self.size // 4096
        if op == 5:
            return 4096
        if op == 6:
            self.data[arg * 4096 : (arg + 1) * 4096] = b"\xff" * 4096
        return 0

    def readblocks(self, block, buf, off=0):
        at = block * 4096 + off
        buf[:] = self.data[at : at + len(buf)]

    def writeblocks(self, block, buf, off=0):
        at = block * 4096 + off
        for i in range(len(buf)):
            self.data[at + i] &= buf[i]


class Partition(Flash):
    """esp32.Partition of an encrypted flash."""

    def info(self):
        return (1, 64, 0x3C0000, self.size, "mqtt", True)


def rp2_region(text):
    saved = stores.BOARD
    stores.BOARD = BOARD
    try:
        if text is not None:
            with open(BOARD, "w") as file:
                file.write(text)
        return stores._rp2(Flash)
    finally:
        stores.BOARD = saved
        if text is not None:
            os.remove(BOARD)


def test_rp2_region_of_the_board_file():
    found = rp2_region('{"journal": {"start": 131072, "size": 65536}}')
    assert (found.start, found.size) == (131072, 65536)


def test_rp2_without_a_region():
    assert rp2_region(None) is None
    assert rp2_region("{}") is None


def test_rp2_region_outside_the_flash_is_refused():
    # rp2.Flash checks nothing: these would erase something else.
    for start, size in ((131072, 135168), (-4096, 65536), (100, 65536), (131072, 8192),
                        (131072, 65000), (262144, 16384)):
        try:
            rp2_region('{"journal": {"start": %d, "size": %d}}' % (start, size))
            raise AssertionError("accepted %d, %d" % (start, size))
        except ValueError as error:
            assert "inside the flash of 262144" in str(error)


def test_rp2_region_whose_files_are_gone_is_refused():
    # Without them the filesystem gives the region's blocks to others.
    folder = "fw_region_test"
    text = '{"journal": {"start": 131072, "size": 16384, "files": "%s"}}' % folder
    os.mkdir(folder)
    names = ["%s/%02d" % (folder, n) for n in range(4)]
    for name in names:
        with open(name, "w") as file:
            file.write("x")
    assert rp2_region(text).start == 131072
    for left in (3, 2, 1, 0):
        os.remove(names[left])
        assert "(%d left)" % left in refusal(text)
    os.rmdir(folder)
    assert "(0 left)" in refusal(text)


def refusal(text):
    try:
        rp2_region(text)
    except ValueError as error:
        return str(error)
    return "accepted"


def made(kind, device, **options):
    lines = []
    saved = stores.region, stores.FOLDER
    stores.region = lambda: device
    stores.FOLDER = "fw_mqtt_test"
    try:
        return stores.make(kind, True, lines.append, **options), lines
    finally:
        stores.region, stores.FOLDER = saved


def test_region_is_taken_where_there_is_one():
    for device in (Flash(len=16384).fill(), Partition(len=24576).fill()):
        store, lines = made("auto", device, retention=1100)
        store.open()
        assert store.hold and lines == []
        assert device.data != b"\xff" * device.size
        assert store.put(1, 2, b"t", b"x") == 1


def test_files_with_a_warning_where_there_is_none():
    store, lines = made("auto", None)
    assert len(lines) == 1 and "files" in lines[0]
    assert type(store.medium) in (PlainFiles, SmallFiles)
    assert made("files", Flash())[1] == []


def test_files_where_the_region_is_too_small():
    # Encrypted flash is programmed once only: five segments at least.
    for device in (Flash(len=12288), Partition(len=16384)):
        store, lines = made("auto", device)
        assert len(lines) == 1 and "segments" in lines[0]
        assert type(store.medium) in (PlainFiles, SmallFiles)


def test_flash_that_is_asked_for_and_not_there():
    for device, why in ((None, "this board has none"), (Flash(len=8192), "segments")):
        try:
            made("flash", device)
            raise AssertionError("accepted")
        except ValueError as error:
            assert why in str(error)


def test_virtual_board_and_host():
    # Off the virtual board, a host has no region.
    assert stores.region() is None
