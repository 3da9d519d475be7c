"""The one writer of a spool (reader.py has the layout): appends, recovers after a crash, deletes.

Knows segment files and what makes bytes durable. Must not know sockets, packets or Spark.
"""

import errno
import json
import os
import struct
import time
import zlib
from pathlib import Path

from . import consumers, lock, recovery
from .files import (
    DURABLE,
    HEADER,
    VERSION,
    Deleted,
    SpoolError,
    deleted,
    durable_slots,
    keep_deleted,
    make_folder,
    replace_file,
    segments,
    sync_folder,
)
from .segment import BLOCK, BLOCK_MAGIC, PUBLISH_BLOCK, SEGMENT_MAGIC

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def now_us():
    """The time as a spool says it: unix us, 0 for one before 1970."""
    return max(0, time.time_ns() // 1000)


class SpoolFull(Exception):
    """No room for a block; nothing of it was kept."""


def refused(where, error):
    """The exception to raise for an OSError of a write, an fsync or a removal in a spool: what is
    no full disk is nothing that waiting mends."""
    if error.errno in FULL:
        return SpoolFull(error.strerror)
    return SpoolError(f"cannot write to {where}: {error.strerror}")


class SpoolWriter:
    """The one writer of a spool.

    folder         made when missing
    segment_bytes  a segment is closed when it is at least this long
    max_bytes      once all segments together reach it `append` raises SpoolFull (None: no
                   limit); it is passed by one block at most; segments are a quarter at most
    check          called with this writer once it is known where it goes on (`position`), before
                   a byte is changed; it may raise SpoolError
    notes          what recovery found, as sentences
    """

    def __init__(self, folder, segment_bytes=64 << 20, max_bytes=None, check=None):
        self.folder = Path(folder)
        self.segment_bytes = min(segment_bytes, (max_bytes or 4 * segment_bytes) // 4)
        self.max_bytes = max_bytes
        make_folder(self.folder)
        self._lock = lock.take(self.folder)
        self._durable = self._file = None
        try:
            self._recover(check)
        except BaseException:
            self.close()  # the lock with it: the caller may try again
            raise

    def _recover(self, check):
        """Go on where the last writer ended. What raises SpoolError comes before any change."""
        plan = recovery.plan(self.folder)
        self.id, self.notes = plan.id, plan.notes
        self.made = plan.new  #: by this writer: nothing is in it
        self._sizes = {s.base: s.size() for s in plan.listed}
        self.position = plan.position
        if check is not None:
            check(self)
        slots = durable_slots(self.folder)
        self._slot = slots.index(max(slots, key=lambda said: -1 if said is None else said))
        self._durable = os.open(self.folder / "durable", os.O_RDWR | os.O_CREAT, 0o644)
        if plan.last is None:
            self._begin(plan.position)
        else:
            self._reopen(plan)
        # In this order: where spool.json is, all the rest has been.
        if deleted(self.folder) != plan.deleted:
            self._keep(lambda: keep_deleted(self.folder, plan.deleted))
        path = self.folder / "spool.json"
        if not path.exists():
            about = {"version": VERSION, "id": self.id}
            self._keep(lambda: replace_file(path, json.dumps(about).encode()))

    def _keep(self, write):
        try:
            write()
        except OSError as error:
            raise refused(self.folder, error)

    def _reopen(self, plan):
        last, at = plan.last, plan.position - plan.last.base
        self._file = os.open(last.path, os.O_RDWR)
        if plan.extra:
            self.notes.append(f"{last.path}: cut off {plan.extra} bytes that are no whole block, "
                              f"from position {plan.position} on")  # fmt: skip
            os.ftruncate(self._file, at)
        os.lseek(self._file, at, os.SEEK_SET)
        self._base = last.base
        self._sizes[last.base] = at
        self.sync()

    def _begin(self, base):
        """Start a new segment whose first byte has position `base`."""
        path = self.folder / f"{base:020d}.seg"
        head = HEADER.pack(SEGMENT_MAGIC, VERSION, 0, 0, base, now_us(), 0, 0)
        head = head[:24] + struct.pack("<II", zlib.crc32(head[:24]), 0)
        hidden = self.folder / ".new.seg"
        handle = None
        try:
            handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            self._write_all(handle, head)
            os.fsync(handle)
            os.replace(hidden, path)  # there may be one without a packet, as a kill leaves it
            sync_folder(self.folder)
        except OSError as error:
            if handle is not None:
                os.close(handle)
            raise refused(self.folder, error)
        if self._file is not None:
            os.close(self._file)
        self._file, self._base, self.position = handle, base, base + HEADER.size
        self._sizes[base] = HEADER.size
        self._keep_durable()

    @staticmethod
    def _write_all(handle, data):
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]

    @property
    def bytes(self):
        """Bytes in all segments."""
        return sum(self._sizes.values())

    @property
    def segments(self):
        """Number of segments."""
        return len(self._sizes)

    @property
    def written_us(self):
        """When the newest segment was written to, unix us."""
        return os.fstat(self._file).st_mtime_ns // 1000

    def append(self, body, count, received):
        """Append one block and make it durable; returns its position.

        body      raw PUBLISH packets (bytes), count of them, received: unix time in us
        Raises SpoolFull (nothing kept, try again later), SpoolError when the disk cannot be
        trusted, or the files are no longer there (end the process; the next start sorts it out).
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
            raise refused(self.folder, error)
        self.position = at + BLOCK.size + len(body)
        self._sizes[self._base] = self.position - self._base
        self._publish_durable()
        self.check_place()
        return at

    def in_place(self):
        """Whether the folder still holds the lock, the segment and `durable` that this writer has
        open: they may have been removed, moved away or replaced, and writing in them goes on."""
        held = {"lock": self._lock, f"{self._base:020d}.seg": self._file,
                "durable": self._durable}  # fmt: skip
        try:
            return all(os.path.samestat(os.stat(self.folder / name), os.fstat(handle))
                       for name, handle in held.items())  # fmt: skip
        except OSError:
            return False

    def check_place(self):
        """Raises SpoolError unless all is in place: what is written now, nobody will find."""
        if not self.in_place():
            raise SpoolError(f"{self.folder} was removed, moved or replaced under the running "
                             "bridge: it acknowledges nothing more. Put the folder back and start "
                             "the bridge again; without it a new spool begins there, and what no "
                             "ingest had read of the old one is lost")  # fmt: skip

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
        self._keep_durable()

    def _keep_durable(self):
        """Publish the mark and fsync it: after a power cut it may be old, but it is there whenever
        there are packets."""
        self._publish_durable()
        try:
            os.fdatasync(self._durable)
        except OSError as error:
            raise refused(self.folder, error)

    def _publish_durable(self):
        check = zlib.crc32(self.position.to_bytes(8, "little"))
        self._slot = 1 - self._slot  # a power cut that tears this write leaves the other one
        os.pwrite(self._durable, DURABLE.pack(self.position, check), self._slot * DURABLE.size)

    def done_with(self, full=False):
        """End of the last closed segment that every registered reader is done with; 0 for none
        (and without a registered reader). full: as consumers.done_with's."""
        floor = consumers.done_with(self.folder, full)
        ends = [base + size for base, size in self._sizes.items() if base != self._base]
        return max((end for end in ends if end <= floor), default=0)

    def trim(self, floor, full=False):
        """Delete closed segments below `floor` that every registered reader is done with;
        returns the number deleted. full: as consumers.done_with's."""
        floor = min(floor, self.done_with(full))
        gone = []
        for segment in segments(self.folder):
            if segment.base == self._base or segment.base + segment.size() > floor:
                break
            gone.append(segment)
        if not gone or not self._announce(gone[-1].base + gone[-1].size()):
            return 0
        for segment in gone:
            self._keep(segment.path.unlink)
            self._sizes.pop(segment.base, None)
        return len(gone)

    def _announce(self, position):
        """Say that all below `position` is going to be deleted: what is missing without that is
        damage. Returns whether the disk has taken it."""
        held = Deleted(self.id, position)
        try:
            self._keep(lambda: keep_deleted(self.folder, held))
        except SpoolFull:
            return False  # the bridge says that the disk is full, and asks again
        return True

    def close(self):
        """Close the files and give the lock back."""
        for handle in (self._file, self._durable, self._lock):
            if handle is not None:
                os.close(handle)
