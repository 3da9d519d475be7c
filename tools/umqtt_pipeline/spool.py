"""The spool: an append-only log of received PUBLISH packets in segment files, on a local disk.

Knows files, blocks, check values and positions; here they are read. Must not know sockets, Spark
or what a payload means (it only hands out the bytes). One process writes (spool_writer.py), any
number read.

Layout of the folder (all integers little endian):

    spool.json               {"version": 1, "id": 16 hex digits}; the id tells two spools apart
    00000000000000000000.seg segments; the name is the position of the segment's first byte
    durable                  12 bytes: position u64 up to which all is fsynced, crc32 of it u32
    consumers/NAME.json      what a reader will never ask for again (consumers.py)
    lock                     held (flock) by the writer

A *position* counts the bytes of all segments ever written, headers included; it never goes back.

    segment = header block*
    header  = "UMQS" version(u8)=1 0(u8) 0(u16) base position(u64) created, unix us (u64)
              crc32 of the 24 bytes before (u32) 0(u32)                            = 32 bytes
    block   = "UB" kind(u8)=1 0(u8) body length(u32) received, unix us (u64) packets(u32)
              crc32 of the 20 bytes before and the body (u32)                      = 24 bytes
              body: that many raw PUBLISH packets as they came from the broker

A block is what one read of the socket brought; it is fsynced before its packets are
acknowledged. Readers stop at `durable`. After a crash the writer keeps every whole block beyond
`durable` and cuts the torn rest off. Below `durable` nothing is ever missing: one segment's end is
the next one's base, only the oldest are deleted, and there are bytes up to `durable`. Whoever
finds it otherwise, reader or writer, raises SpoolError and passes over nothing.
"""

import bisect
import json
import logging
import os
import re
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

VERSION = 1
SEGMENT_MAGIC, BLOCK_MAGIC = b"UMQS", b"UB"
HEADER = struct.Struct("<4sBBHQQII")
BLOCK = struct.Struct("<2sBBIQII")
DURABLE = struct.Struct("<QI")
PUBLISH_BLOCK = 1
SEGMENT_NAME = re.compile(r"\d{20}\.seg")
GONE = ("put back what was there; if it is gone for good, begin another spool beside this one "
        "(bridge --spool), and have this one read without it (ingest --skip-damaged, option "
        "skipDamaged)")  # fmt: skip

log = logging.getLogger("umqtt.spool")


class SpoolError(Exception):
    """The spool cannot be used as it is; the text says what and where."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its position, receive time (unix us), number of packets, and bytes."""

    position: int
    received: int
    count: int
    length: int

    @property
    def end(self):
        return self.position + BLOCK.size + self.length


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
        return self.path.stat().st_size


def segments(folder):
    """All segments of a spool, oldest first."""
    names = sorted(n for n in os.listdir(folder) if SEGMENT_NAME.fullmatch(n))
    return [Segment(int(n[:20]), Path(folder, n)) for n in names]


def spool_id(folder):
    """The id of the spool in `folder`. Raises SpoolError when there is none."""
    path = Path(folder, "spool.json")
    try:
        about = json.loads(path.read_text())
        if about["version"] != VERSION:
            raise SpoolError(f"{path}: format {about['version']}, this program reads {VERSION}")
        return about["id"]
    except (FileNotFoundError, NotADirectoryError):
        raise SpoolError(f"{folder} is not a spool: no spool.json (start the bridge first?)")
    except (ValueError, KeyError, TypeError) as error:
        raise SpoolError(f"{path} is damaged: {error!r}")


def durable(folder):
    """The position up to which the writer has fsynced everything; 0 when nothing is.

    Raises SpoolError when that is not known, though there are segments with packets.
    """
    position = durable_mark(folder)
    if position is None and any(s.size() > HEADER.size for s in segments(folder)):
        position = durable_mark(folder)  # of a spool that was made between the two looks
        if position is None:
            raise SpoolError(f"{folder}/durable is missing or damaged, though there are segments: "
                             "start the bridge on this spool, which makes it again from what they "
                             "hold")  # fmt: skip
    return position or 0


def durable_mark(folder):
    """What the file `durable` says; None when there is none, or not a whole one."""
    for _ in range(3):  # a reader may meet the few bytes half written
        try:
            position, check = DURABLE.unpack(Path(folder, "durable").read_bytes())
        except (FileNotFoundError, struct.error):
            return None
        if zlib.crc32(position.to_bytes(8, "little")) == check:
            return position
        time.sleep(0.001)
    return None


def extent(folder):
    """(first position that is held, position up to which all is durable). Raises SpoolError."""
    listed = segments(folder)
    end = durable(folder)
    if listed and end and end < listed[0].base:
        raise SpoolError(f"{folder}/durable says {end}, but the spool begins at {listed[0].base}: "
                         "start the bridge on this spool, which makes it again")  # fmt: skip
    return listed[0].base if listed else 0, end


def covering(folder, start, stop, skip_damaged=False):
    """The segments that hold the positions from `start` up to and without `stop`.

    Only sizes are looked at. Raises SpoolError for a part that is not there; with skip_damaged
    that is logged instead.
    """
    found, at = [], start  # all up to `at` is there
    listed = segments(folder) if start < stop else []
    if listed and start < listed[0].base:
        raise SpoolError(
            f"{folder}: position {start} was deleted, the spool begins at {listed[0].base}: "
            "a query's checkpoint is older than what its reader has released"
        )
    begin = bisect.bisect([segment.base for segment in listed], start) - 1
    for segment in listed[max(begin, 0) :]:
        if segment.base >= stop:
            break
        if segment.base > at:
            _missing(folder, at, segment.base, found, skip_damaged)
        elif found and segment.base < at:
            _tell(f"{found[-1].path} has {at - segment.base} bytes more than it had: damaged file",
                  skip_damaged)  # fmt: skip
        end = segment.base + _size(segment)
        at = max(at, segment.base)
        if end > at:
            found.append(segment)
            at = end
    if at < stop:
        _missing(folder, at, stop, found, skip_damaged)
    return found


def _size(segment):
    try:
        return segment.size()
    except FileNotFoundError:
        raise SpoolError(f"{segment.path} was deleted while the spool was read")


def _missing(folder, first, stop, found, skip):
    """Say that positions are missing behind the segments found so far."""
    where = f"segment {first:020d}.seg"
    if found:
        where += f" or the end of {found[-1].path.name}"
    _tell(f"{folder}: positions {first} to {stop} are missing ({where}): {GONE}", skip)


def _tell(text, skip):
    if not skip:
        raise SpoolError(text)
    log.error("%s: left out", text)


def replace_file(path, data, sync=True):
    """Write `data` (bytes) to `path` atomically: a reader sees the old or the new, whole."""
    path = Path(path)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    with open(hidden, "wb") as out:
        out.write(data)
        out.flush()
        if sync:
            os.fsync(out.fileno())
    os.replace(hidden, path)
    if sync:
        sync_folder(path.parent)


def sync_folder(folder):
    """fsync a folder, so that the names in it survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SegmentReader:
    """Reads the blocks of one segment through a file handle."""

    def __init__(self, segment):
        self.segment = segment
        self._file = open(segment.path, "rb", buffering=1 << 18)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def headers(self, position, stop):
        """Yield Block from `position` (a block's start) up to `stop`, without check of the body.

        Raises SpoolError where no whole block begins before `stop`.
        """
        base, size = self.segment.base, self.segment.size()
        stop = min(stop, base + size)
        while position < stop:
            block = self._header(position, size)
            if block is None:
                raise SpoolError(
                    f"{self.segment.path}: no block at byte {position - base} (position "
                    f"{position}) though {stop - position} bytes should follow: damaged file"
                )
            yield block
            position = block.end

    def _header(self, position, size):
        self._file.seek(position - self.segment.base)
        head = self._file.read(BLOCK.size)
        if len(head) < BLOCK.size:
            return None
        magic, kind, _, length, received, count, _ = BLOCK.unpack(head)
        end = position - self.segment.base + BLOCK.size + length
        if magic != BLOCK_MAGIC or kind != PUBLISH_BLOCK or end > size:
            return None
        return Block(position, received, count, length)

    def body(self, block):
        """The bytes of a block. Raises SpoolError if its check value is wrong."""
        self._file.seek(block.position - self.segment.base)
        raw = self._file.read(BLOCK.size + block.length)
        body = raw[BLOCK.size :]
        if zlib.crc32(body, zlib.crc32(raw[:20])) != int.from_bytes(raw[20:24], "little"):
            raise SpoolError(
                f"{self.segment.path}: wrong check value of the block at byte "
                f"{block.position - self.segment.base}: damaged file"
            )
        return body

    def check_header(self):
        """Raises SpoolError unless the segment's own header is that of this segment."""
        if not self.valid_header():
            raise SpoolError(f"{self.segment.path}: its header is damaged, or it is another "
                             "segment's file")  # fmt: skip

    def valid_header(self):
        """Whether the segment's own header is whole and names this base."""
        self._file.seek(0)
        raw = self._file.read(HEADER.size)
        if len(raw) < HEADER.size:
            return False
        magic, version, _, _, base, _, check, _ = HEADER.unpack(raw)
        if magic == SEGMENT_MAGIC and version != VERSION:
            raise SpoolError(
                f"{self.segment.path}: segment format {version}, this program reads {VERSION}"
            )
        return magic == SEGMENT_MAGIC and base == self.segment.base and (
            zlib.crc32(raw[:24]) == check
        )

    def whole_until(self, position):
        """End of the run of whole blocks that begins at `position`."""
        try:
            for block in self.headers(position, self.segment.base + self.segment.size()):
                self.body(block)
                position = block.end
        except SpoolError:
            pass
        return position


def walk(folder, start, stop):
    """Yield (Block, body) of every block from position `start` (a block's start, or the start
    of what is left of the spool) up to `stop`, over all segments. Raises SpoolError."""
    listed = segments(folder)
    start = max(start, listed[0].base if listed else 0)
    for segment in covering(folder, start, stop):
        with SegmentReader(segment) as reader:
            for block in reader.headers(max(start, segment.first), stop):
                yield block, reader.body(block)
