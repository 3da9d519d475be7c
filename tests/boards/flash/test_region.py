"""The journal's part of the flash on rp2 boards: littlefs keeps off it, whatever happens to it.

The virtual board's littlefs, on its NOR flash, stands for that of a Pico; a module rp2 gives it
the same block device that MicroPython's rp2.Flash is.
"""

import littlefs
import pytest
from umqtt_board.errors import BoardError
from umqtt_board.flash import region
from umqtt_board.port import device

SIZE = 16 * 4096
FILL = """
import os
n = 0
try:
    while True:
        with open("/fill%d" % n, "wb") as f:
            for _ in range(20):
                f.write(b"\\x00" * 1000)
        n += 1
except OSError as e:
    _say((n, e.errno))
"""
USE = """
import json, rp2, sys
j = json.load(open("/board.json"))["journal"]
r = rp2.Flash(start=j["start"], len=j["size"])
for i in range(j["size"] // 4096):
    r.ioctl(6, i)
    r.writeblocks(i, bytes([i]) * 256, 1024)
"""


def _arrange(board):
    with device.Device(board.port) as one:
        return region.arrange(one, SIZE)


def _run(board, code):
    with device.Device(board.port) as one:
        return one.value(code, object)


def _region(board):
    return _run(board, "import json\n_say(json.load(open('/board.json'))['journal'])")


def _flash_of(board, where):
    return board.flash_image.read_bytes()[where["start"] : where["start"] + where["size"]]


def test_stock_micropython_formats_a_filesystem_smaller_than_its_device(board):
    """Why the region lies inside: the mount of a larger device fails, and _boot.py formats."""
    code = """
import vfs
class Part:
    def __init__(self, count):
        self.count, self.data = count, bytearray(b"\\xff" * 8 * 4096)
    def readblocks(self, block, buf, off=0):
        buf[:] = self.data[block * 4096 + off:block * 4096 + off + len(buf)]
    def writeblocks(self, block, buf, off=0):
        self.data[block * 4096 + off:block * 4096 + off + len(buf)] = buf
    def ioctl(self, op, arg):
        return self.count if op == 4 else 4096 if op == 5 else 0
part = Part(6)
vfs.VfsLfs2.mkfs(part, progsize=256)
vfs.VfsLfs2(part, progsize=256)
part.count = 8
try:
    vfs.VfsLfs2(part, progsize=256)
    _say("mounted")
except OSError as e:
    _say(e.errno)
"""
    assert _run(board, code) == 22  # EINVAL


def test_a_full_filesystem_and_a_busy_journal_keep_off_each_other(pico):
    assert _arrange(pico) is True
    where = _region(pico)
    assert where["size"] == SIZE and where["start"] % 4096 == 0
    assert _flash_of(pico, where) == b"\xff" * SIZE
    _run(pico, USE + "_say(1)")
    used = _flash_of(pico, where)
    assert used[1024:1280] == bytes(256) and used[5 * 4096 + 1024] == 5
    count, error = _run(pico, FILL)
    assert error == 28 and count > 20
    assert _flash_of(pico, where) == used
    _run(pico, "import os\n[os.remove('/' + n) for n in os.listdir('/') if n[:4] == 'fill']\n"
               "_say(1)")  # fmt: skip
    assert _run(pico, FILL)[0] >= count - 1
    assert _flash_of(pico, where) == used
    assert _arrange(pico) is False
    pico.cut()
    data = pico.flash_image.read_bytes()[: pico.config["filesystem"]]
    context = littlefs.UserContext(len(data))
    context.buffer[:] = data
    host = littlefs.LittleFS(context=context, block_size=4096, block_count=len(data) // 4096,
                             prog_size=32, read_size=32, cache_size=128, lookahead_size=32,
                             mount=True)  # fmt: skip
    assert sorted(host.listdir(region.FOLDER)) == [f"{n:02d}" for n in range(16)]
    with host.open(f"{region.FOLDER}/05", "rb") as file:
        assert file.read() == used[5 * 4096 : 6 * 4096]


# Flash operations until the power goes: counted from the beginning (sixteen files take more than
# 300), and from where the files are there and the region is taken (more than 16).
@pytest.mark.parametrize("of, operations", [
    ("files", 150), ("taking", 0), ("taking", 16),
])  # fmt: skip
def test_a_cut_while_it_is_arranged_is_taken_up(pico, monkeypatch, of, operations):
    monkeypatch.setattr(device, "ANSWER_S", 2)
    row = region._row

    def then_cut(*arguments):
        found = row(*arguments)
        pico.cut_after(operations)  # (the board reads the number at each operation)
        return found

    pico.cut_after(operations if of == "files" else 100_000)
    pico.reset()
    if of == "taking":
        monkeypatch.setattr(region, "_row", then_cut)
    with pytest.raises(BoardError, match="was lost while setting flash aside"):
        _arrange(pico)
    monkeypatch.setattr(region, "_row", row)
    pico.cut_after(None)
    pico.power_on()
    _arrange(pico)
    assert _flash_of(pico, _region(pico)) == b"\xff" * SIZE
    assert _arrange(pico) is False


def test_a_file_that_keeps_the_region_free_and_is_gone_is_noticed(pico):
    _arrange(pico)
    _run(pico, f"import os\nos.remove('{region.FOLDER}/03')\n_say(1)")
    with pytest.raises(BoardError, match="were removed or rewritten: .*`make backup`"):
        _arrange(pico)


def test_no_room(pico):
    _run(pico, FILL)
    with pytest.raises(BoardError, match="has no 65536 bytes in a row for the journal"):
        _arrange(pico)
    _run(pico, "import os\n[os.remove('/' + n) for n in os.listdir('/') if n[:4] == 'fill']\n"
               "_say(1)")  # fmt: skip
    assert _arrange(pico) is True
