"""The files of a spool: which segments there are, and what the small files beside them say.

Knows names, the spool's id, the durable mark, what was deleted; how a file is replaced. Must not
know blocks (reader.py, which has the layout of all of it), sockets or Spark.
"""

import errno
import json
import logging
import os
import re
import stat
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .objects import is_place

VERSION = 1
HEADER = struct.Struct("<4sBBHQQII")
DURABLE = struct.Struct("<QI")
DELETED = struct.Struct("<8sQI")
SEGMENT_NAME = re.compile(r"\d{20}\.seg")
SPOOL_ID = re.compile(r"[0-9a-f]{16}")
GONE = ("put back what was there; if it is gone for good, `umqtt-pipeline salvage OLD NEW` copies "
        "all that is whole into a new spool, with which bridge and ingest go on")
NEW_ID = ('put it back; if nobody has it, write one with a new id, {"version": 1, "id": "16 hex '
          'digits"}: readers then take this for another spool, and begin where it begins')

log = logging.getLogger("umqtt.spool")


class SpoolError(Exception):
    """The spool cannot be used as it is; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file and the position of its first byte."""

    base: int
    path: Path

    @property
    def first(self):
        """Position of the first block."""
        return self.base + HEADER.size

    def size(self):
        """Bytes of the file. Raises SpoolError if it is there no more."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            raise SpoolError(f"{self.path} was deleted while the spool was read")


_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
          stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deleted:
    """What the file `deleted` says: the spool's id, and the position below which the bridge has
    deleted segments (0: none)."""

    id: str
    position: int


def open_plain(path, flags=os.O_RDONLY):
    """An opener for `open` that takes no pipe, device or folder: who reads a pipe that nobody
    writes to waits for ever. Raises OSError."""
    handle = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, in_place_of_file(path), str(path))


def read_plain(path):
    """The bytes of a plain file. Raises OSError."""
    try:
        with open(path, "rb", opener=open_plain) as file:
            return file.read()
    except OSError as error:
        link = broken_link(path)
        if link is None:
            raise
        raise OSError(error.errno, leads_nowhere(link), str(path)) from None


def broken_link(path):
    """The first link, of a path and the folders that it lies in, that leads nowhere; None if none
    does."""
    path = Path(path)
    return next((each for each in (path, *path.parents)
                 if each.is_symlink() and not each.exists()), None)  # fmt: skip


def leads_nowhere(link):
    """What there is to say of such a link."""
    return f"it is a link that leads nowhere, to {os.readlink(link)}"


def in_place_of_file(path):
    """What is in the place of a plain file, in words; None if it is one, or is not there."""
    try:
        kind = _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except OSError:
        return leads_nowhere(path) if os.path.islink(path) else None
    if kind is None:
        return None
    link = f"a link to {os.readlink(path)}, which is " if os.path.islink(path) else ""
    return f"it is no plain file, but {link}{kind}"


def read_small(path):
    """The bytes of one of the small files of a spool. Raises SpoolError if it is no plain file,
    OSError."""
    try:
        return read_plain(path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise SpoolError(f"{path}: {error.strerror}: {GONE}")


def segments(folder):
    """All segments of a spool, oldest first."""
    names = sorted(n for n in os.listdir(folder) if SEGMENT_NAME.fullmatch(n))
    return [Segment(int(n[:20]), Path(folder, n)) for n in names]


def holds_packets(listed):
    """Whether one of these segments is longer than its header."""
    return any(segment.size() > HEADER.size for segment in listed)


@lru_cache(maxsize=1000)
def tell_once(text):
    """Log a warning, once per process: a stream looks at its spools again and again."""
    log.warning("%s", text)


def refuse(text, skip, instead="left out"):
    """Raise SpoolError with what is wrong; with `skip` log it, and what is done instead."""
    if not skip:
        raise SpoolError(text)
    log.error("%s: %s", text, instead)


def spool_id(folder):
    """The id of the spool in `folder`: that of spool.json or, where this was removed, that of
    `deleted`. A log in an object store is named by it. Raises SpoolError when there is none."""
    if is_place(folder):
        return str(folder).rpartition("/")[2]
    path, kept = Path(folder, "spool.json"), deleted(folder)
    try:
        about = json.loads(read_small(path).decode())
        if about["version"] != VERSION:
            raise SpoolError(f"{path}: format {about['version']}, this program reads {VERSION}")
        if not SPOOL_ID.fullmatch(about["id"]):
            raise ValueError("the id is none")
    except (FileNotFoundError, NotADirectoryError):
        if kept is None:
            raise SpoolError(_no_id(folder))
        tell_once(f"{path} is missing: {folder}/deleted has the spool's id as well")
        return kept.id
    except (ValueError, KeyError, TypeError):
        way = (f"remove it: {folder}/deleted has the spool's id as well, and the bridge writes it "
               "again" if kept else NEW_ID)  # fmt: skip
        raise SpoolError(f"{path} is damaged, it does not say version and id: {way}")
    if kept is not None and kept.id != about["id"]:
        raise SpoolError(f"{path} has the id {about['id']}, but {folder}/deleted has {kept.id}: "
                         "one is damaged, or of another spool; remove that one")  # fmt: skip
    return about["id"]


def _no_id(folder):
    if Path(folder).is_dir() and holds_packets(segments(folder)):
        return (f"{folder}/spool.json is missing, though there are segments with packets: "
                f"{NEW_ID}")  # fmt: skip
    return f"{folder} is not a spool: no spool.json (start the bridge first?)"


def durable_slots(folder):
    """What the two slots of the file `durable` say; None for one that is not whole. The writer
    fills them in turn, so that a write which a power cut tears leaves the other."""
    try:
        raw = read_small(Path(folder, "durable"))
    except FileNotFoundError:
        raw = b""
    found = []
    for at in (0, DURABLE.size):
        position, check = DURABLE.unpack(raw[at : at + DURABLE.size].ljust(DURABLE.size, b"\0"))
        whole = zlib.crc32(position.to_bytes(8, "little")) == check
        found.append(position if whole else None)
    return found


def durable_mark(folder):
    """What the file `durable` says; None when there is none, or nothing whole in it."""
    return max((said for said in durable_slots(folder) if said is not None), default=None)


def deleted(folder):
    """What the file `deleted` says, as Deleted; None when there is none, or not a whole one."""
    try:
        raw = read_small(Path(folder, "deleted"))
        name, position, check = DELETED.unpack(raw)
    except (FileNotFoundError, NotADirectoryError, struct.error):
        return None
    return Deleted(name.hex(), position) if zlib.crc32(raw[:16]) == check else None


def keep_deleted(folder, held):
    """Write the file `deleted`; `held` is a Deleted. Raises OSError."""
    raw = bytes.fromhex(held.id) + held.position.to_bytes(8, "little")
    replace_file(Path(folder, "deleted"), raw + zlib.crc32(raw).to_bytes(4, "little"))


def replace_file(path, data, sync=True):
    """Write `data` (bytes) to `path` atomically: a reader sees the old or the new, whole. Raises
    OSError, which names the file."""
    path = Path(path)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(hidden, "wb") as out:
            out.write(data)
            out.flush()
            if sync:
                os.fsync(out.fileno())
        os.replace(hidden, path)
    except OSError as error:
        hidden.unlink(missing_ok=True)  # empty, where the disk is full
        raise OSError(error.errno, error.strerror, str(path))
    if sync:
        sync_folder(path.parent)


def write_over(path, data):
    """Write `data` (bytes) over a small file that is there: it takes no room on a full disk. A
    power cut may leave it damaged, which only a file with a check value may be. Raises OSError."""
    with open(path, "r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def make_folder(path):
    """Make a folder, and those above it that are missing, so that a power cut leaves them; also
    one that a killed process has made and no more. Raises OSError."""
    path = Path(path).absolute()
    if not path.parent.is_dir():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    with suppress(PermissionError):  # a folder that may be passed through but not read
        sync_folder(path.parent)


def sync_folder(folder):
    """fsync a folder, so that the names in it survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
