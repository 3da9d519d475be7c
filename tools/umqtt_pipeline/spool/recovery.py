"""Where the writer of a spool goes on after whatever has ended the last one, and whether it may.

Knows what proves that bytes were acknowledged. Must not change anything: what is wrong is found
out before a byte is written or cut (writer.py does that). It runs under the writer's lock.
"""

import itertools
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from ..bridge import mark_file
from . import consumers
from .files import (
    GONE,
    Deleted,
    Segment,
    SpoolError,
    deleted,
    durable_mark,
    holds_packets,
    read_small,
    segments,
    spool_id,
)
from .reader import begin, covering
from .segment import SegmentReader

#: What may lie in the folder of a spool without a packet; the last one is a file system's.
OWN = {"consumers", "deleted", "durable", "lock", "marks", "reserve", "session", "spool.json",
       "lost+found"}  # fmt: skip


@dataclass
class Plan:
    """What the writer has to do.

    id        of the spool            listed   its segments
    new       whether there is none in the folder yet
    position  where the next block goes, in the last segment; in a new one, its base
    last      the segment to go on with; None: a new one is begun
    extra     bytes behind `position` that are cut off
    deleted   what the file `deleted` has to say
    notes     what was found, as sentences
    """

    id: str = ""
    new: bool = False
    listed: list = field(default_factory=list)
    position: int = 0
    last: Segment | None = None
    extra: int = 0
    deleted: Deleted | None = None
    notes: list = field(default_factory=list)


def plan(folder):
    """The Plan for the spool in `folder`, which may be empty. Raises SpoolError if something is
    not there or not whole that was durable: going on would hide it, or destroy what is left."""
    folder = Path(folder)
    found = Plan(listed=segments(folder))
    _identify(folder, found)
    mark = _mark(folder, found)
    said = {**_promises(folder, found.id), "`durable` says": mark or 0}
    who = max(said, key=said.get)
    promised = said[who]
    found.deleted = Deleted(found.id, begin(folder, found.listed))
    _continuous(folder, found, promised)
    if found.listed:
        _last(found, mark)
    if found.position < promised:
        raise SpoolError(f"{folder}: the spool is whole up to position {found.position} only, but "
                         f"{who} {promised}: {GONE}")  # fmt: skip
    _taken_in(folder, found, mark)
    _tell(folder, found)
    return found


def _identify(folder, found):
    """Its id. Without spool.json a spool with packets keeps that of `deleted`; a folder without
    any gets a new one."""
    missing = not (folder / "spool.json").exists()
    if missing and deleted(folder) is None and not holds_packets(found.listed):
        _empty(folder)
        found.id, found.new = secrets.token_hex(8), True
        return
    found.id = spool_id(folder)
    if missing:
        found.notes.append(f"{folder}/spool.json was missing: it is written again, with the id "
                           "that `deleted` has, too")  # fmt: skip


def _empty(folder):
    """Raise SpoolError if the folder of a new spool has what is not a spool's: it may be meant for
    something else. A log may be there before: the bridge inside Spark's source writes one."""
    others = sorted(path.name for path in folder.iterdir()
                    if not path.name.startswith(".") and path.name not in OWN
                    and path.suffix not in (".seg", ".log"))  # fmt: skip
    if others:
        raise SpoolError(f"{folder} is no spool, and not empty (there is {others[0]}): name a new "
                         "or an empty folder")  # fmt: skip


def _mark(folder, found):
    """The durable position; None for a new spool. It is there, fsynced, before the first packet:
    without it nobody knows whether what is no whole block was acknowledged."""
    mark, path = durable_mark(folder), folder / "durable"
    used = holds_packets(found.listed) if found.listed else (
        deleted(folder) is not None or path.exists() and path.stat().st_size)  # fmt: skip
    if mark is None and used:
        raise SpoolError(f"{path} is missing or damaged, though the spool has been in use: {GONE}")
    return mark


def _promises(folder, key):
    """{who says so: position} up to which all was durable once: readers and marks are only written
    when it is, and may know of more than an older copy of the spool has."""
    found = {f"reader {name!r} has had": position
             for name, position in consumers.reached(folder, key).items()}  # fmt: skip
    path = folder / "marks"
    told = mark_file.newest(read_small(path)) if path.exists() else None
    if told is not None:
        found["`marks` are of position"] = told["position"]
    return found


def _continuous(folder, found, promised):
    """Raise SpoolError unless the segments follow each other, from what was deleted on."""
    start, listed = found.deleted.position, found.listed
    if not listed:
        covering(folder, start, promised)
        return
    if listed[0].base > start:
        covering(folder, start, listed[0].base)
    for before, after in zip(listed, listed[1:]):
        covering(folder, before.base, after.base)
        if before.base + before.size() > after.base:
            raise SpoolError(f"{before.path} and {after.path.name} both have positions from "
                             f"{after.base} on: one of them does not belong here, or was made "
                             f"longer: {GONE}")  # fmt: skip


def _last(found, mark):
    """How far the last segment is whole."""
    last = found.listed[-1]
    with SegmentReader(last) as reader:
        end = reader.end
        if end > last.first:
            reader.check_header()
        if not reader.valid_header():
            # A power cut while the segment was made: nothing in it was acknowledged.
            found.position = last.base
            return
        known = mark is not None and last.first <= mark <= end
        found.position = reader.whole_until(mark if known else last.first)
        found.last, found.extra = last, end - found.position
        behind = reader.next_whole(found.position, end) if found.extra else None
    if behind is not None:
        raise SpoolError(
            f"{last.path}: damaged from byte {found.position - last.base} to "
            f"{behind.position - last.base}, though whole blocks follow: {GONE}"
        )


def _taken_in(folder, found, mark):
    """Note that more stands behind `durable` than the one block that a kill leaves."""
    last = found.last
    if mark is None or found.position <= mark:
        return
    if last is not None and mark >= last.base:
        with SegmentReader(last) as reader:
            begun = max(mark, last.first)
            if len(list(itertools.islice(reader.headers(begun, found.position), 2))) < 2:
                return
    found.notes.append(f"{folder}/durable said {mark}, but the segments are whole up to "
                       f"{found.position}: these {found.position - mark} bytes are taken in. It "
                       "is more than a killed bridge leaves: there was a power cut, or `durable` "
                       "was an old one")  # fmt: skip


def _tell(folder, found):
    for path in consumers.unreadable(folder):
        found.notes.append(f"{path} is damaged: nothing is deleted until its reader has run "
                           "again")  # fmt: skip
    gone = found.deleted.position
    if gone and not consumers.has_reader(folder):
        found.notes.append(f"{folder}/consumers has no reader, though one was done with what is "
                           f"below position {gone}: it was given up, or its file is lost; the "
                           "bridge deletes nothing more until one is there")  # fmt: skip
    # Where spool.json is, `deleted` has been.
    if deleted(folder) is None and (gone or (folder / "spool.json").exists()):
        why = (f"all registered readers are done with what is below position {gone}"
               if gone else "the spool begins at position 0")  # fmt: skip
        found.notes.append(f"{folder}/deleted is missing or damaged: it is made again; {why}")
