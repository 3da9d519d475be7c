"""Which start of a writer a block of a spool comes from: the file `starts`.

Knows that file. Must not know segments and blocks, or what is to be concluded (offsets.py).

    starts   20 bytes for each start: position u64 from which on that writer has appended, random
             id (8 bytes), crc32 of these 16 bytes u32; the positions rise

It is fsynced before the writer's first block, and tells two histories of one spool apart whatever
the clocks say: an older copy that is put back lacks the later starts, and the next one is another.
"""

import secrets
import struct
import zlib
from pathlib import Path

from .files import replace_file
from .objects import is_place

START = struct.Struct("<Q8sI")


def listed(folder):
    """[(position, id as hex digits)] of the file's whole entries, as they stand there."""
    try:
        raw = Path(folder, "starts").read_bytes()
    except FileNotFoundError:
        return []
    found = START.iter_unpack(raw[: len(raw) // START.size * START.size])
    return [(position, name.hex()) for position, name, check in found
            if zlib.crc32(position.to_bytes(8, "little") + name) == check]  # fmt: skip


def of(folder, position):
    """The id of the start that what is at `position` comes from; "" where that is not known, or
    not needed: a log in an object store has one history only."""
    if is_place(folder):
        return ""
    return max(((at, name) for at, name in listed(folder) if at <= position), default=(0, ""))[1]


def begin(folder, position, deleted):
    """Enter a start that appends from `position` on; nothing is there yet. Raises OSError.

    deleted: position below which nothing is left, and nobody asks for a start
    """
    before = [entry for entry in listed(folder) if entry[0] < position]
    while len(before) > 1 and before[1][0] <= deleted:
        before.pop(0)
    found = [*before, (position, secrets.token_hex(8))]
    replace_file(Path(folder, "starts"), b"".join(_entry(*entry) for entry in found))


def _entry(position, name):
    raw = position.to_bytes(8, "little") + bytes.fromhex(name)
    return raw + zlib.crc32(raw).to_bytes(4, "little")
