"""Boards as data: reads and checks `boards/NAME/board.toml`.

Knows what a board description may hold. It must not know how any step uses it.
"""

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from umqtt_board.errors import BoardError
from umqtt_board.flash import partitions
from umqtt_board.paths import BOARDS

JOURNAL_KINDS = ("vboard", "partition", "reserved", "files")
FLASH_WITH = ("none", "esptool", "uf2")
SECTOR = 4096

# key -> type, for the tables that every board has
REQUIRED = {
    "": {"name": str, "title": str, "chip": str, "tried": str},
    "micropython": {
        "platform": str, "machine": str, "minimum": str, "flash_with": str, "heap_free": int,
    },
    "network": {"wifi": bool},
    "filesystem": {"type": str, "size": int, "program_size": int},
    "journal": {"kind": str, "size": int, "program_size": int},
    "timer": {"id": int},
    "sensor": {"driver": str},
    "notes": {"text": str},
}  # fmt: skip


@dataclass(frozen=True)
class Board:
    """One board: its folder and the tables of its board.toml."""

    folder: Path
    data: dict

    @property
    def name(self):
        return self.data["name"]

    @property
    def title(self):
        return self.data["title"]

    def __getitem__(self, table):
        return self.data[table]


def names():
    """Names of the boards there are, sorted."""
    return sorted(path.parent.name for path in BOARDS.glob("*/board.toml"))


def load(name):
    """Return the Board called `name`; BoardError with the names there are when it is unknown."""
    if name not in names():
        close = difflib.get_close_matches(name, names(), 1)
        mean = f" Did you mean {close[0]}?" if close else ""
        raise BoardError(
            f"There is no board {name!r}.{mean} BOARD is one of: {', '.join(names())}."
        )
    folder = BOARDS / name
    try:
        data = tomllib.loads((folder / "board.toml").read_text())
    except tomllib.TOMLDecodeError as error:
        raise BoardError(f"{folder / 'board.toml'} is not TOML: {error}.")
    faults = check(name, data, folder)
    if faults:
        raise BoardError(f"{folder / 'board.toml'}: {'; '.join(faults)}.")
    return Board(folder, data)


def check(name, data, folder):
    """Return a list of what is wrong with a board description; empty when it is right."""
    faults = _missing(data)
    if faults:
        return faults
    journal, interpreter = data["journal"], data["micropython"]
    conditions = [
        (data["name"] == name, f"name: expected {name!r}, the name of the folder"),
        (data["tried"] in ("hardware", "virtual", "no"),
         "tried: expected hardware, virtual or no"),
        (re.fullmatch(r"\d+\.\d+(\.\d+)?", interpreter["minimum"]),
         "micropython.minimum: expected a version such as 1.24"),
        (interpreter["flash_with"] in FLASH_WITH,
         f"micropython.flash_with: expected one of {', '.join(FLASH_WITH)}"),
        (journal["kind"] in JOURNAL_KINDS,
         f"journal.kind: expected one of {', '.join(JOURNAL_KINDS)}"),
        (journal["size"] % SECTOR == 0 and journal["size"] >= 4 * SECTOR,
         f"journal.size: expected a multiple of {SECTOR}, at least {4 * SECTOR}"),
        (data["filesystem"]["size"] % SECTOR == 0,
         f"filesystem.size: expected a multiple of {SECTOR}"),
    ]  # fmt: skip
    return [text for holds, text in conditions if not holds] + _chip_faults(data, folder)


def _missing(data):
    faults = []
    for table, keys in REQUIRED.items():
        content = data.get(table, {}) if table else data
        for key, kind in keys.items():
            if not isinstance(content.get(key), kind):
                where = f"{table}.{key}" if table else key
                faults.append(f"{where}: expected a {kind.__name__}")
    return faults


def _chip_faults(data, folder):
    """What the way of flashing and the kind of journal need besides."""
    faults = []
    if data["micropython"]["flash_with"] != "none":
        for key in ("image", "version", "released", "url"):
            if not isinstance(data["micropython"].get(key), str):
                faults.append(f"micropython.{key}: expected a text (what image to fetch)")
        if not re.fullmatch("[0-9a-f]{64}", str(data["micropython"].get("sha256"))):
            faults.append("micropython.sha256: expected that of the image, 64 digits 0-9 a-f")
        if not data.get("usb", {}).get("vendors"):
            faults.append("usb.vendors: expected a list of USB vendor numbers")
    needs = {"esptool": ("image_offset", int), "uf2": ("uf2_family", int)}
    key, kind = needs.get(data["micropython"]["flash_with"], ("flash_with", str))
    if not isinstance(data["micropython"].get(key), kind):
        faults.append(f"micropython.{key}: expected a number")
    if data["journal"]["kind"] == "partition":
        faults += _partition_faults(data, folder)
    return faults


def _partition_faults(data, folder):
    flash = data.get("flash", {})
    try:
        table = {p.name: p for p in partition_table(folder, flash)}
    except (KeyError, OSError) as error:
        return [f"flash.partitions, flash.size: expected a CSV file and a size ({error})"]
    except partitions.PartitionError as error:
        return [f"{flash['partitions']}: {error}"]
    faults = []
    for name, size in (
        (data["journal"].get("label"), data["journal"]["size"]),
        ("vfs", data["filesystem"]["size"]),
    ):
        if name not in table or table[name].size != size:
            faults.append(f"{flash['partitions']}: expected a partition {name} of {size:#x} bytes")
    return faults


def partition_table(folder, flash):
    """Return the Partitions of a board's own table, checked against the size of its flash."""
    table = partitions.parse_csv((folder / flash["partitions"]).read_text())
    partitions.check(table, flash["size"])
    return table
