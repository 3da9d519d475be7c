"""The log of a spool in an object store, from where any machine reads it.

Knows the objects of a log, and whether all of it is there. Must not know sockets, Spark, or what a
payload means. The bridge of the spool is its only writer (bridge/shipping.py).

    PREFIX/ID/blocks/POSITION      the bytes of the spool ID from that position on, whole blocks of
                                   one segment; with its header where they begin it
    PREFIX/ID/consumers/NAME.json  what a reader will never ask for again (consumers.py)
    PREFIX/ID/marks/POSITION       the bridge's file `marks` as of that position: what is below it
                                   may be removed, as other bridges take their marks from here.
                                   The highest counts
    PREFIX/ID/readers/known        all who read the logs beside it read this one, too. Before that
                                   nothing is removed
    PREFIX/ID/from/POSITION        nothing below it is there: it is removed, or was never shipped.
                                   The highest counts. A list has it behind the blocks: what is
                                   removed meanwhile is known to be

The blocks one behind the other are the spool, byte for byte: where one object ends the next one
begins. No object is written twice, so an older copy of a spool cannot go on under its id.
"""

import io
import re
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass

from ..bridge.mark_file import is_damaged, newest
from . import consumers, objects
from .files import HEADER, SpoolError, refuse, tell_once
from .segment import SEGMENT_MAGIC, SegmentReader

BLOCKS = "blocks"
LOG = re.compile(r"[0-9a-f]{16}")  #: the name of a log
FROM = "from"
MARKS = "marks"
READERS = "readers"
CACHE_BYTES = 64 << 20  #: of objects that were read last: planning and reading ask for the same


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a log: position of its first byte, number of bytes, where it is."""

    base: int
    length: int
    place: str

    @property
    def end(self):
        return self.base + self.length

    @property
    def name(self):
        return f"{BLOCKS}/{self.base:020d}"

    @property
    def path(self):
        return f"{self.place}/{self.name}"

    def size(self):
        """Its bytes, as `Segment.size`."""
        return self.length


class PartReader(SegmentReader):
    """Reads the blocks of one Part, which is fetched whole."""

    def __init__(self, part):
        self.segment = part
        raw = _cache.get(part)
        self._headed = raw[: len(SEGMENT_MAGIC)] == SEGMENT_MAGIC
        self._file = io.BytesIO(raw)

    @property
    def first(self):
        """Position of the first block."""
        return self.segment.base + (HEADER.size if self._headed else 0)

    def valid_header(self):
        """Whether the header is whole, if there is one."""
        return not self._headed or super().valid_header()


class _Cache:
    """The objects that were read last, bounded in bytes. None is ever changed."""

    def __init__(self):
        self._held, self._bytes, self._lock = OrderedDict(), 0, threading.Lock()

    def get(self, part):
        """The bytes of a Part. Raises SpoolError if they are not what was listed, Unreachable."""
        with self._lock:
            raw = self._held.get(part.path)
            if raw is not None:
                self._held.move_to_end(part.path)
                return raw
        try:
            raw = objects.read(part.place, part.name)
        except FileNotFoundError:
            raise SpoolError(f"{part.path} was removed while the log was read")
        if len(raw) != part.length:
            raise SpoolError(f"{part.path} has {len(raw)} bytes, and {part.length} were listed")
        with self._lock:
            self._held[part.path] = raw
            self._bytes = sum(map(len, self._held.values()))
            while self._bytes > CACHE_BYTES and len(self._held) > 1:
                self._bytes -= len(self._held.popitem(last=False)[1])
        return raw


_cache = _Cache()


def spools(prefix):
    """The places of the logs below `prefix`; what else is there is told. Raises Unreachable."""
    prefix = str(prefix).rstrip("/")
    names = objects.below(prefix)
    for name in names:
        if not LOG.fullmatch(name):
            tell_once(f"{prefix}/{name} is no log of a bridge, and is not read")
    return [f"{prefix}/{name}" for name in names if LOG.fullmatch(name)]


def begin(place):
    """The position from which on nothing may be missing. Raises SpoolError without a log."""
    return parts(place, skip_damaged=True)[0]


def parts(place, skip_damaged=False):
    """(first position, the Parts from there on in order). Raises SpoolError where there is no log,
    and where a Part is missing between others; with skip_damaged that is logged."""
    return _parts(place, objects.listed(place, None), skip_damaged)


def logs(prefix):
    """{place: (first position, Parts)} of all logs below `prefix`, of one list. A log of which a
    Part is missing is left out. Raises Unreachable."""
    found, held = {}, {}
    for name, size in objects.listed(prefix, None):
        key, _, rest = name.partition("/")
        held.setdefault(f"{prefix}/{key}", []).append((rest, size))
    for place, names in held.items():
        with suppress(SpoolError):  # ingest tells that
            found[place] = _parts(place, names, False)
    return found


def _parts(place, found, skip_damaged):
    starts = [int(name[-20:]) for name, _ in found if name.startswith(f"{FROM}/")]
    if not starts:
        raise SpoolError(f"{place} is no log of a bridge (start one with --ship first?)")
    start = at = max(starts)
    kept = []
    for name, size in found:
        if not name.startswith(f"{BLOCKS}/") or int(name[-20:]) < start:
            continue
        part = Part(int(name[-20:]), size, str(place))
        if part.base != at:
            refuse(f"{place}: positions {at} to {part.base} are missing in the object store: put "
                   "back what was there", skip_damaged)  # fmt: skip
        kept.append(part)
        at = part.end
    return start, kept


def extent(place, skip_damaged=False):
    """(first position that should be there, position up to which all is shipped)."""
    start, found = parts(place, skip_damaged)
    return start, found[-1].end if found else start


def blocks(place, start, stop, skip_damaged=False):
    """Yield (PartReader, Block) from `start` up to `stop`, as reader.blocks does for a folder."""
    if start >= stop:
        return
    begun, found = parts(place, skip_damaged)
    if start < begun:
        raise SpoolError(f"{place}: position {start} was removed, the log begins at {begun}: a "
                         "query's checkpoint is older than what its reader has released. Delete "
                         "the checkpoint: the log is read again then, and ingest leaves out what "
                         "the tables have")  # fmt: skip
    end = found[-1].end if found else begun
    if end < stop:
        refuse(f"{place}: positions {end} to {stop} are missing in the object store: put back "
               "what was there", skip_damaged)  # fmt: skip
    for part in found:
        if part.end <= start:
            continue
        if part.base >= stop:
            return
        with PartReader(part) as reader:
            for block in reader.blocks(max(start, reader.first), stop, skip_damaged):
                yield reader, block


def verify(place):
    """Look at every byte of a log; yields (bytes that are right, None or what is wrong) for each
    object, and what is missing between them. Its bridge and its readers may go on meanwhile."""
    start, found = parts(place, skip_damaged=True)
    at = start
    for part in found:
        if part.base != at:
            yield 0, f"{place}: positions {at} to {part.base} are missing"
        at = part.end
        size, wrong = 0, None
        try:
            with PartReader(part) as reader:
                for block in reader.blocks(reader.first, part.end):
                    size += len(reader.body(block))
        except SpoolError as error:
            wrong = str(error)
        if wrong is None or begin(place) <= part.base:  # else every reader is done with it
            yield size, wrong
    position, size = marked(place)
    if position:
        with suppress(FileNotFoundError):  # there are newer ones
            whole = _are_whole(read_marks(place, position), position)
            yield size, None if whole else f"{place}/{MARKS}/{position:020d} is damaged"


def walk(place, start, stop):
    """Yield (Block, body) of every block from position `start` up to `stop`."""
    for reader, block in blocks(place, max(start, begin(place)), stop):
        yield block, reader.body(block)


def marked(place):
    """(position of the newest `marks` of a log, its bytes); (0, 0) if it has none. Raises
    Unreachable."""
    found = objects.listed(place, MARKS)
    return (int(found[-1][0][-20:]), found[-1][1]) if found else (0, 0)


def read_marks(place, position):
    """The bytes of `marks` as of `position`. Raises FileNotFoundError: there are newer ones;
    Unreachable."""
    return objects.read(place, f"{MARKS}/{position:020d}")


def _are_whole(raw, position):
    """Whether the bytes of `marks` are those that were put as of `position`."""
    return not is_damaged(raw) and newest(raw)["position"] == position


def put_marks(place, position, data):
    """Put the bytes of `marks` as of `position`, and remove what is older. Raises Unreachable."""
    objects.create(place, f"{MARKS}/{position:020d}", data)
    old = [name for name, _ in objects.listed(place, MARKS) if int(name[-20:]) < position]
    objects.remove(place, old)


def begin_at(place, position):
    """Say that nothing below `position` is there. It never goes back, whoever else says so."""
    objects.create(place, f"{FROM}/{position:020d}", b"")


_sound = {}  #: {place: position of the newest marks that were found whole}


def _sound_marks(place):
    """The position of the newest `marks` of a log, if they are whole; 0 if they are not."""
    position, _ = marked(place)
    if position and _sound.get(place) != position:
        try:
            raw = read_marks(place, position)
        except FileNotFoundError:
            return 0  # there are newer ones, for the next time
        if not _are_whole(raw, position):
            tell_once(f"{place}/{MARKS}/{position:020d} is damaged: nothing of this log is "
                      "removed until its bridge has shipped its marks again")  # fmt: skip
            return 0
        _sound[place] = position
    return position


_introduced = set()  #: places of logs that have all readers


def _introduce(place):
    """Whoever reads the logs beside a new one is a reader of that, too, and may be down now. Once
    that is done the log says so: who is removed from it later does not come back."""
    if place in _introduced:
        return
    if not objects.listed(place, READERS):
        others = [other for other in spools(place.rpartition("/")[0]) if other != place]
        consumers.adopt(place, others, begin(place))
        objects.create(place, f"{READERS}/known", b"")
    _introduced.add(place)


def trim(place):
    """Remove what every registered reader is done with and the `marks` of the log cover; returns
    the number of objects removed. Any reader may do it: the bridge of this log may be gone for
    good. Raises SpoolError, Unreachable."""
    _introduce(place)
    floor = min(consumers.done_with(place), _sound_marks(place))
    start, found = parts(place, skip_damaged=True)
    done = [part.end for part in found if part.end <= floor]
    if done:
        start = done[-1]
        begin_at(place, start)
    old = [name for name, _ in objects.listed(place, None)
           if name.startswith((f"{BLOCKS}/", f"{FROM}/")) and int(name[-20:]) < start]
    objects.remove(place, old)
    return sum(name.startswith(BLOCKS) for name in old)
