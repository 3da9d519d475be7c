"""The spool: an append-only log of received PUBLISH packets in segment files, on a local disk.

Knows files, blocks, check values and positions. Must not know sockets, Spark or what a payload
means (it only hands out the bytes). One process writes (`SpoolWriter`), any number read.

Layout of the folder (all integers little endian):

    spool.json               {"version": 1, "id": 16 hex digits}; the id tells two spools apart
    00000000000000000000.seg segments; the name is the position of the segment's first byte
    durable                  12 bytes: position u64 up to which all is fsynced, crc32 of it u32
    consumers/NAME.json      {"position": n}: what a reader will never ask for again
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
`durable` and cuts the torn rest off; below `durable` nothing is ever cut: damage there is
reported, and a new segment is begun behind it.
"""

import errno
import fcntl
import json
import os
import re
import secrets
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
CONSUMER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class SpoolError(Exception):
    """The spool cannot be used as it is; the text says what and where."""


class SpoolFull(Exception):
    """No room for a block; nothing of it was kept."""


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
    """The position up to which the writer has fsynced everything; 0 when nothing is."""
    for _ in range(3):  # a reader may meet the few bytes half written
        try:
            position, check = DURABLE.unpack(Path(folder, "durable").read_bytes())
        except (FileNotFoundError, struct.error):
            return 0
        if zlib.crc32(position.to_bytes(8, "little")) == check:
            return position
        time.sleep(0.001)
    return 0


def find(listed, position):
    """The segment of `listed` that holds `position`, or the first one behind it, or None."""
    best = None
    for segment in listed:
        if segment.base <= position:
            best = segment
        elif best is None:
            return segment
        else:
            break
    return best


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
    of what is left of the spool) up to `stop`, over all segments."""
    for segment in segments(folder):
        if segment.base >= stop:
            return
        with SegmentReader(segment) as reader:
            end = segment.base + segment.size()
            if start >= end:
                continue
            for block in reader.headers(max(start, segment.first), stop):
                yield block, reader.body(block)


class SpoolWriter:
    """The one writer of a spool.

    folder         made when missing
    segment_bytes  a segment is closed when it is at least this long
    max_bytes      once all segments together reach it `append` raises SpoolFull (None: no
                   limit); it is passed by one block at most; segments are a quarter at most
    notes          what recovery found, as sentences
    """

    def __init__(self, folder, segment_bytes=64 << 20, max_bytes=None):
        self.folder = Path(folder)
        self.segment_bytes = min(segment_bytes, (max_bytes or 4 * segment_bytes) // 4)
        self.max_bytes = max_bytes
        self.notes = []
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._take_lock()
        self._format()
        self._durable = os.open(self.folder / "durable", os.O_RDWR | os.O_CREAT, 0o644)
        self._file = None
        self._recover()

    def _take_lock(self):
        handle = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise SpoolError(f"{self.folder} is in use by another bridge")
        return handle

    def _format(self):
        path = self.folder / "spool.json"
        if not path.exists():
            about = {"version": VERSION, "id": secrets.token_hex(8)}
            replace_file(path, json.dumps(about).encode())
        self.id = spool_id(self.folder)

    def _recover(self):
        mark = durable(self.folder)
        listed = segments(self.folder)
        self._sizes = {s.base: s.size() for s in listed}
        if not listed:
            return self._begin(mark)
        last = listed[-1]
        with SegmentReader(last) as reader:
            whole = reader.valid_header()
            trusted = mark if last.first <= mark <= last.base + last.size() else last.first
            end = reader.whole_until(trusted) if whole else last.base
        if end < mark:
            self.notes.append(
                f"{last.path}: bytes up to position {mark} were durable, but only those up to "
                f"{end} are there; going on behind them in a new segment"
            )
            return self._begin(mark)
        if not whole:  # a power cut while the segment was made: nothing in it was acknowledged
            last.path.unlink()
            del self._sizes[last.base]
            return self._begin(last.base)
        self._reopen(last, end)

    def _reopen(self, last, end):
        self._file = os.open(last.path, os.O_RDWR)
        extra = last.base + last.size() - end
        if extra:
            self.notes.append(f"{last.path}: cut off {extra} bytes of a torn block")
            os.ftruncate(self._file, end - last.base)
        os.lseek(self._file, end - last.base, os.SEEK_SET)
        self._base, self.position = last.base, end
        self._sizes[last.base] = end - last.base
        self.sync()

    def _begin(self, base):
        """Start a new segment whose first byte has position `base`."""
        path = self.folder / f"{base:020d}.seg"
        head = HEADER.pack(SEGMENT_MAGIC, VERSION, 0, 0, base, time.time_ns() // 1000, 0, 0)
        head = head[:24] + struct.pack("<II", zlib.crc32(head[:24]), 0)
        hidden = self.folder / ".new.seg"
        handle = None
        try:
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            self._write_all(handle, head)
            os.fsync(handle)
        except OSError as error:
            if handle is not None:
                os.close(handle)
            raise self._full(error)
        os.replace(hidden, path)  # after a durable mark was lost an empty one may be there
        sync_folder(self.folder)
        if self._file is not None:
            os.close(self._file)
        self._file, self._base, self.position = handle, base, base + HEADER.size
        self._sizes[base] = HEADER.size
        self._publish_durable()

    @staticmethod
    def _write_all(handle, data):
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]

    def _full(self, error):
        """The exception to raise for an OSError of a write or fsync."""
        if error.errno in FULL:
            return SpoolFull(error.strerror)
        return SpoolError(f"cannot write to {self.folder}: {error.strerror}")

    @property
    def bytes(self):
        """Bytes in all segments."""
        return sum(self._sizes.values())

    @property
    def segments(self):
        """Number of segments."""
        return len(self._sizes)

    def append(self, body, count, received):
        """Append one block and make it durable; returns its position.

        body      raw PUBLISH packets (bytes), count of them, received: unix time in us
        Raises SpoolFull (nothing kept, try again later), SpoolError when the disk cannot be
        trusted (end the process; the next start sorts it out).
        """
        if self.position - self._base >= self.segment_bytes:
            self._begin(self.position)  # first: only a closed segment can be deleted
        if self.max_bytes is not None and self.bytes >= self.max_bytes:
            raise SpoolFull(f"spool limit of {self.max_bytes} bytes reached")
        head = BLOCK.pack(BLOCK_MAGIC, PUBLISH_BLOCK, 0, len(body), received, count, 0)[:20]
        check = zlib.crc32(body, zlib.crc32(head))
        at = self.position
        try:
            self._write_all(self._file, b"".join((head, check.to_bytes(4, "little"), body)))
            self._sync_file()
        except OSError as error:
            # Readers stop at the durable mark, so the rest of the block was seen by nobody.
            os.ftruncate(self._file, at - self._base)
            os.lseek(self._file, at - self._base, os.SEEK_SET)
            raise self._full(error)
        self.position = at + BLOCK.size + len(body)
        self._sizes[self._base] = self.position - self._base
        self._publish_durable()
        return at

    def roll(self):
        """Close the segment, if there is anything in it, so that it can be deleted once all are
        done with it. Raises as `append`."""
        if self.position > self._base + HEADER.size:
            self._begin(self.position)

    def _sync_file(self):
        os.fdatasync(self._file)

    def sync(self):
        """fsync what recovery kept and publish the mark."""
        self._sync_file()
        self._publish_durable()

    def _publish_durable(self):
        check = zlib.crc32(self.position.to_bytes(8, "little"))
        os.pwrite(self._durable, DURABLE.pack(self.position, check), 0)

    def consumers(self):
        """{name: position} of every registered reader."""
        found = {}
        for path in Path(self.folder, "consumers").glob("*.json"):
            try:
                found[path.stem] = int(json.loads(path.read_text())["position"])
            except (ValueError, KeyError, TypeError, OSError):
                found[path.stem] = 0  # unreadable: keep everything rather than guess
        return found

    def done_with(self):
        """End of the last closed segment that every registered reader is done with; 0 for none
        (and without a registered reader)."""
        floor = min(self.consumers().values(), default=0)
        ends = [base + size for base, size in self._sizes.items() if base != self._base]
        return max((end for end in ends if end <= floor), default=0)

    def trim(self, floor):
        """Delete closed segments below `floor` that every registered reader is done with;
        returns the number deleted."""
        floor = min(floor, self.done_with())
        gone = 0
        for segment in segments(self.folder):
            if segment.base == self._base or segment.base + segment.size() > floor:
                break
            segment.path.unlink()
            self._sizes.pop(segment.base, None)
            gone += 1
        return gone

    def close(self):
        """Close the files and give the lock back."""
        for handle in (self._file, self._durable, self._lock):
            os.close(handle)


def register_consumer(folder, name, position):
    """Say that reader `name` will never ask for anything below `position` again."""
    if not CONSUMER_NAME.fullmatch(name):
        raise ValueError(f"consumer name {name!r}: letters, digits, - and _ only, at most 64")
    target = Path(folder, "consumers")
    target.mkdir(exist_ok=True)
    replace_file(target / f"{name}.json", json.dumps({"position": position}).encode())
