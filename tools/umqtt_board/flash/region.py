"""The step that sets flash aside for the journal on rp2 boards, inside MicroPython's filesystem.

MicroPython's frozen _boot.py there mounts the whole of rp2.Flash() as littlefs and formats it when
that fails, and littlefs refuses a device larger than itself (lfs.c, lfs_mount): a smaller
filesystem would be formatted away at the first start. So the filesystem keeps its size, and the
region is blocks that littlefs itself holds for taken: files of exactly one block. Such a file has
no pointers in its block (littlefs, SPEC.md: block 0 of a skip-list has none), littlefs does not
move data that nobody rewrites and reads it for nobody, so what else lies in the block is no matter
to it. A row of neighbouring blocks is found by a mark written into each file.

/board.json names the region last: a run that is cut before begins anew. A region that is named is
never made again, only compared.

Knows: rp2.Flash, littlefs' allocation as above.
Must not know: what a journal is.
"""

import secrets

from umqtt_board.errors import BoardError
from umqtt_board.port.device import DeviceError

FOLDER = "/mqtt.region"  # firmware/stores.py refuses a region whose files are gone
BOARD = "/board.json"
SECTOR = 4096

_COMMON = """
import json, os, rp2
_F = rp2.Flash()
def _region():
    try:
        with open({board!r}) as f:
            return json.load(f).get("journal")
    except (OSError, ValueError):
        return None
"""
_LOOK = """
def _holds(j):
    a = bytearray(256)
    b = bytearray(256)
    for i in range(j["size"] // 4096):
        try:
            f = open("%s/%02d" % (j["files"], i), "rb")
        except OSError:
            return False
        with f:
            for off in range(0, 4096, 256):
                if f.readinto(a) != 256:
                    return False
                _F.readblocks(j["start"] // 4096 + i, b, off)
                if a != b:
                    return False
    return True
_j = _region()
_say((_j, bool(_j) and _holds(_j)))
"""
_CLEAR = """
try:
    os.mkdir({folder!r})
except OSError as e:
    if e.errno != 17:
        raise
for _n in os.listdir({folder!r}):
    os.remove({folder!r} + "/" + _n)
"""
_MORE = """
for _n in range({first}, {first} + {count}):
    with open("%s/t%03d" % ({folder!r}, _n), "wb") as _f:
        _f.write({mark!r} + b"%03d" % _n)
        for _ in range(15):
            _f.write(b"\\xff" * 256)
        _f.write(b"\\xff" * (256 - len({mark!r}) - 3))
"""
_FIND = """
_b = bytearray(len({mark!r}) + 3)
_m = len({mark!r})
_found = []
for _n in range(_F.ioctl(4, 0)):
    _F.readblocks(_n, _b, 0)
    if _b[:_m] == {mark!r}:
        _found.append((_n, int(_b[_m:])))
_say(_found)
"""
_TAKE = """
for _i in range({first}, {first} + {count}):
    os.rename("%s/t%03d" % ({folder!r}, {numbers!r}[_i]), "%s/%02d" % ({folder!r}, _i))
"""
_DROP = """
for _n in os.listdir({folder!r}):
    if _n[0] == "t":
        os.remove({folder!r} + "/" + _n)
"""
_ERASE = """
for _i in range({first}, {first} + {count}):
    _F.ioctl(6, {block} + _i)
"""
_NAME = """
try:
    with open({board!r}) as _f:
        _all = json.load(_f)
except (OSError, ValueError):
    _all = {{}}
_all["journal"] = {{"start": {block} * 4096, "size": {sectors} * 4096, "files": {folder!r}}}
with open({board!r} + ".new", "w") as _f:
    json.dump(_all, _f)
os.rename({board!r} + ".new", {board!r})
"""
AT_ONCE = 4  # files or sectors in one program: it answers in good time, also on a slow flash
ENOSPC = 28


def look(device):
    """Return (region of /board.json or None, whether its files still are its blocks)."""
    device.doing = "looking at its journal region"
    return device.value(_COMMON.format(board=BOARD) + _LOOK, ({dict, None}, bool))


def arrange(device, size):
    """Set `size` bytes aside unless that was done before; return True if it was done now.

    size  bytes, a multiple of 4096
    Raises BoardError when the filesystem has no such row of free blocks, or when a region is
    named that the filesystem no longer keeps free.
    """
    region, holds = look(device)
    if region:
        if not holds:
            raise BoardError(
                f"Files in {FOLDER} on {device.port}, which keep the journal's part of the flash "
                "free, were removed or rewritten: its messages are not safe. `make backup`, then "
                "`make erase` and flash the board again."
            )
        return False
    device.doing = "setting flash aside for the journal"
    sectors = size // SECTOR
    names = {"board": BOARD, "folder": FOLDER, "sectors": sectors}
    device.run((_COMMON + _CLEAR).format(**names))
    block, numbers = _row(device, names, sectors)
    names |= {"block": block, "numbers": numbers}
    _in_parts(device, _TAKE, names)
    device.run(_DROP.format(**names))
    _in_parts(device, _ERASE, names)
    device.run(_NAME.format(**names))
    return True


def _in_parts(device, code, names, first=0):
    for at in range(0, names["sectors"], AT_ONCE):
        count = min(AT_ONCE, names["sectors"] - at)
        device.run(code.format(first=first + at, count=count, **names))


def _row(device, names, sectors):
    """Make files until as many neighbouring blocks as wanted are theirs; (first block, files)."""
    mark = b"umqtt-region-" + secrets.token_hex(8).encode()
    names = names | {"mark": mark}
    first = 0
    while True:
        try:
            _in_parts(device, _MORE, names, first)
        except DeviceError as error:
            if f"OSError: {ENOSPC}" not in error.traceback and "ENOSPC" not in error.traceback:
                raise
            device.run(_CLEAR.format(**names))
            raise BoardError(
                f"The filesystem on {device.port} has no {sectors * SECTOR} bytes in a row for "
                "the journal: remove files of your own (`mpremote fs ls`), or erase the board "
                "and flash it anew."
            )
        first += sectors
        found = sorted(device.value(_FIND.format(**names), [(int, int)]))
        for at in range(len(found) - sectors + 1):
            row = found[at : at + sectors]
            if row[-1][0] - row[0][0] == sectors - 1:
                return row[0][0], [number for _, number in row]
