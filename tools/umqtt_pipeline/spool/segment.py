"""One segment of a spool: its header, its blocks, and what is whole behind what is damaged.

Knows the bytes of a segment (reader.py has the layout). Must not know other segments, or what is
to be done about damage.
"""

import errno
import os
import struct
import zlib
from dataclasses import dataclass

from .files import GONE, HEADER, VERSION, SpoolError, log, open_plain

SEGMENT_MAGIC, BLOCK_MAGIC = b"UMQS", b"UB"
BLOCK = struct.Struct("<2sBBIQII")
PUBLISH_BLOCK = 1
BLOCK_START = BLOCK_MAGIC + bytes((PUBLISH_BLOCK, 0))
CHUNK = 1 << 20  #: bytes that are searched in one go
DAMAGED = f"damaged file: {GONE}"
EFFORT = 1 << 30  #: bytes whose check value is worked out in one search; a second or so


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its position, receive time (unix us), number of packets, bytes, check value."""

    position: int
    received: int
    count: int
    length: int
    check: int

    @property
    def end(self):
        return self.position + BLOCK.size + self.length


class Unclear(SpoolError):
    """Too much looks like a block to look at all of it."""


class SegmentReader:
    """Reads the blocks of one segment through a file handle."""

    def __init__(self, segment):
        self.segment = segment
        try:
            self._file = open(segment.path, "rb", 1 << 18, opener=open_plain)
        except FileNotFoundError:
            raise SpoolError(f"{segment.path} was deleted while the spool was read")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise SpoolError(f"{segment.path}: {error.strerror}: {GONE}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    @property
    def end(self):
        """Position of the end of the file."""
        return self.segment.base + self.segment.size()

    def _read(self, position, count):
        self._file.seek(position - self.segment.base)
        return self._file.read(count)

    def raw(self, position, stop):
        """The bytes between two positions, as they are."""
        return self._read(position, stop - position)

    def sync(self):
        """fsync the file: what was read of it stays. Raises SpoolError when it does not."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EINVAL):  # a medium that takes no writes
                raise SpoolError(f"{self.segment.path}: {error.strerror}")

    # -- header -------------------------------------------------------------------------------

    def check_header(self):
        """Raises SpoolError unless the segment's own header is that of this segment."""
        if not self.valid_header():
            raise SpoolError(f"{self.segment.path}: its header is damaged, or it is another "
                             f"segment's file: {GONE}")  # fmt: skip

    def valid_header(self):
        """Whether the segment's own header is whole and names this base."""
        return self.named_base() == self.segment.base

    def named_base(self):
        """The base that the segment's own header names; None if that is not whole. Raises
        SpoolError for another format."""
        raw = self._read(self.segment.base, HEADER.size)
        if len(raw) < HEADER.size:
            return None
        magic, version, _, _, base, _, check, _ = HEADER.unpack(raw)
        if magic != SEGMENT_MAGIC or check != zlib.crc32(raw[:24]):
            return None
        if version != VERSION:
            raise SpoolError(
                f"{self.segment.path}: segment format {version}, this program reads {VERSION}"
            )
        return base

    # -- blocks, all of which should be there ---------------------------------------------------

    def headers(self, position, stop):
        """Yield Block from `position` (a block's start) up to `stop`, without check of the body.

        Raises SpoolError where no whole block begins before `stop`.
        """
        base, end = self.segment.base, self.end
        stop = min(stop, end)
        while position < stop:
            block = self._header(position, end)
            if block is None:
                raise SpoolError(
                    f"{self.segment.path}: no block at byte {position - base} (position "
                    f"{position}) though {stop - position} bytes should follow: {DAMAGED}"
                )
            yield block
            position = block.end

    def block(self, position):
        """The block that begins at `position`, or None; its body is not checked."""
        return self._header(position, self.end)

    def _header(self, position, end):
        head = self._read(position, BLOCK.size)
        if len(head) < BLOCK.size:
            return None
        magic, kind, _, length, received, count, check = BLOCK.unpack(head)
        block = Block(position, received, count, length, check)
        if magic != BLOCK_MAGIC or kind != PUBLISH_BLOCK or block.end > end:
            return None
        return block

    def body(self, block):
        """The bytes of a block. Raises SpoolError if its check value is wrong."""
        body = self._checked(block)
        if body is None:
            raise SpoolError(
                f"{self.segment.path}: wrong check value of the block at byte "
                f"{block.position - self.segment.base}: {DAMAGED}"
            )
        return body

    def _checked(self, block):
        raw = self._read(block.position, BLOCK.size + block.length)
        body = memoryview(raw)[BLOCK.size :]
        check = zlib.crc32(body, zlib.crc32(raw[:20]))
        return bytes(body) if check == int.from_bytes(raw[20:24], "little") else None

    # -- blocks, some of which may be damaged -----------------------------------------------------

    def blocks(self, position, stop, skip_damaged=False):
        """Blocks from `position` up to `stop`. Without skip_damaged all have to be there, and
        bodies are not checked; with it what is damaged is logged, and only whole blocks come."""
        if not skip_damaged:
            self.check_header()
            return self.headers(position, stop)
        if not self.valid_header():
            log.error("%s: its header is damaged: what is in it is read all the same",
                      self.segment.path)  # fmt: skip
        return self.whole_blocks(position, stop, self._left_out)

    def _left_out(self, first, stop):
        log.error("%s: bytes %d to %d are damaged: left out", self.segment.path,
                  first - self.segment.base, stop - self.segment.base)  # fmt: skip

    def whole_until(self, position):
        """End of the run of whole blocks that begins at `position`."""
        end = self.end
        while (block := self._whole(position, end)) is not None:
            position = block.end
        return position

    def _whole(self, position, end):
        block = self._header(position, end)
        return block if block is not None and self._checked(block) is not None else None

    def whole_blocks(self, position, stop, left_out):
        """Yield the whole blocks that begin from `position` on and before `stop`; for each
        damaged piece before or behind one `left_out(its start, its end)` is called."""
        stop = min(stop, self.end)
        while position < stop:
            try:
                block = self.next_whole(position, stop)
            except Unclear:
                block = None
            if block is None or block.position > position:
                left_out(position, stop if block is None else block.position)
            if block is None:
                return
            yield block
            position = block.end

    def next_whole(self, position, stop):
        """The first whole block that begins from `position` on and before `stop`, or None.

        `position` is where a block should begin. Raises Unclear if so much looks like a block
        that looking at all of it would take too long.
        """
        end = self.end
        block = self._header(position, end)
        if block is not None:
            if self._checked(block) is not None:
                return block
            # More often the body is damaged than the length: then nothing in it is looked at,
            # for what devices sent might look like a block.
            if block.end == end:
                return None
            behind = self._whole(block.end, end)
            if behind is not None:
                return behind if behind.position < stop else None
        return self._found(position + 1, min(stop, end), end)

    def _found(self, position, stop, end):
        effort = 0
        for at in self._starts(position, stop):
            block = self._header(at, end)
            if block is None or not 0 < block.count <= block.length:
                continue
            if self._checked(block) is not None:
                return block
            effort += block.length
            if effort > EFFORT:
                raise Unclear(f"{self.segment.path}: damaged behind byte "
                              f"{position - 1 - self.segment.base}, and more looks like a block "
                              f"behind that than can be looked at: {GONE}")  # fmt: skip
        return None

    def _starts(self, position, stop):
        """Positions before `stop` at which there are the first bytes of a block."""
        while position < stop:
            chunk = self._read(position, CHUNK)
            at = chunk.find(BLOCK_START)
            while at >= 0 and position + at < stop:
                yield position + at
                at = chunk.find(BLOCK_START, at + 1)
            if len(chunk) < CHUNK:
                return
            position += CHUNK - len(BLOCK_START) + 1
