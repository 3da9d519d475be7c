"""The spool: an append-only log of received PUBLISH packets in segment files, on a local disk.

Knows which segments a range of positions needs, and whether all of it is there. Must not know
sockets, Spark or what a payload means (it only hands out the bytes). One process writes
(writer.py), any number read.

Layout of the folder (all integers little endian):

    spool.json               {"version": 1, "id": 16 hex digits}; the id tells two spools apart
    00000000000000000000.seg segments; the name is the position of the segment's first byte
    durable                  two slots of 12 bytes, written in turn: position u64 up to which all
                             is fsynced, crc32 of it u32; the higher one counts
    deleted                  20 bytes: the id once more, position u64 below which the bridge has
                             deleted segments, crc32 of these 16 bytes u32; written before they go
    consumers/NAME.json      what a reader will never ask for again (consumers.py)
    lock                     held (flock) by the writer
    marks, session           the bridge's (bridge/mark_file.py, bridge/session_file.py)

A *position* counts the bytes of all segments ever written, headers included; it never goes back.

    segment = header block*
    header  = "UMQS" version(u8)=1 0(u8) 0(u16) base position(u64) created, unix us (u64)
              crc32 of the 24 bytes before (u32) 0(u32)                            = 32 bytes
    block   = "UB" kind(u8)=1 0(u8) body length(u32) received, unix us (u64) packets(u32)
              crc32 of the 20 bytes before and the body (u32)                      = 24 bytes
              body: that many raw PUBLISH packets as they came from the broker

A block is what one read of the socket brought; it is fsynced before its packets are
acknowledged. Readers stop at `durable`. After a crash the writer keeps every whole block beyond
`durable` and takes the rest off; a bad block with a whole one behind it is not torn, for each
was fsynced before the next was begun. From `deleted` to `durable` nothing is ever missing: one
segment's end is the next one's base, and only the oldest are deleted. Whoever finds it otherwise,
reader or writer, raises SpoolError, passes over nothing and changes nothing. `segment.py` reads
one segment, `recovery.py` finds out where a writer may go on.
"""

import bisect
import zlib

from . import consumers, lock
from .files import (
    DURABLE,
    GONE,
    HEADER,
    Segment,
    SpoolError,
    deleted,
    durable_mark,
    holds_packets,
    log,
    refuse,
    replace_file,
    segments,
    spool_id,
    tell_once,
)
from .segment import BLOCK, SegmentReader

__all__ = ["BLOCK", "DURABLE", "GONE", "HEADER", "SegmentReader", "SpoolError", "replace_file",
           "segments", "spool_id", "zlib"]  # fmt: skip


def durable(folder, skip_damaged=False):
    """The position up to which the writer has fsynced everything; 0 when nothing is.

    Raises SpoolError when that is not known, though the spool has been in use; with skip_damaged
    it is then the end of what is whole.
    """
    position = durable_mark(folder)
    if position is None and (deleted(folder) is not None or holds_packets(segments(folder))):
        position = durable_mark(folder)  # of a spool that was made between the two looks
        if position is None:
            refuse(f"{folder}/durable is missing or damaged, though the spool has been in use: "
                   f"{GONE}", skip_damaged, "read up to the last whole block")  # fmt: skip
            position = _whole_end(folder)
    return position or 0


def _whole_end(folder, known=0):
    """End of the last whole block; of a spool without segments, 0. It is in the last segment,
    unless that is a file which does not belong there. It is fsynced: who has killed the bridge
    may cut the power next, and what was read must not be another block then.

    known: where a block ends, if that is known; what is before it need not be looked at
    """
    end = 0
    for segment in reversed(_by_headers(folder)):
        with SegmentReader(segment) as reader:
            begun = known if segment.first <= known <= reader.end else segment.first
            found = reader.whole_blocks(begun, reader.end, lambda *_: None)
            end = max((end, *(block.end for block in found)))
            reader.sync()
            if reader.valid_header():
                return max(end, segment.base, begun if begun == known else 0)
    return end


def begin(folder, listed=None):
    """The position from which on nothing may be missing: segments before it were deleted by the
    bridge, and `deleted` says so. What a new reader starts with.

    listed: the spool's segments, if they have been listed already
    """
    listed = segments(folder) if listed is None else listed  # first: the bridge deletes last
    base = listed[0].base if listed else 0
    said = deleted(folder)
    if said is None:
        return base if not base or _released(folder, base) else 0
    return min(base, said.position) if listed else said.position


def _released(folder, base):
    """Whether what is below `base` was deleted by the bridge, as far as that can be known without
    `deleted`: every reader is done with it, and there is one."""
    if consumers.done_with(folder) < base:
        return False
    tell_once(f"{folder}/deleted is missing or damaged: what is below position {base} is taken "
              "for deleted by the bridge, for all readers are done with it")  # fmt: skip
    return True


def extent(folder, skip_damaged=False):
    """(first position that should be there, position up to which all is durable).

    Raises SpoolError when one of the two is not known.
    """
    listed = segments(folder)
    end = durable(folder, skip_damaged)
    if listed and end and end < listed[0].base:
        refuse(f"{folder}/durable says {end}, but the spool begins at {listed[0].base}: start the "
              "bridge on this spool, which makes it again", skip_damaged,
              "read up to the last whole block")  # fmt: skip
        end = _whole_end(folder)
    elif listed:
        end = _left_behind(folder, listed, end, skip_damaged)
    return begin(folder, listed), end


def _left_behind(folder, listed, end, skip):
    """Up to where to read, though `durable` says `end`, if no bridge runs and the segments hold
    more. A kill leaves a block there, a power cut some. The next bridge takes them in where they
    are, so that nothing that is read here comes a second time."""
    if not _more_than(listed, end) or lock.held(folder):
        return end
    whole = _whole_end(folder, end) if skip else end
    if skip and whole == end:
        return end
    if lock.held(folder) or durable_mark(folder) != end:
        return end  # a bridge has gone on meanwhile: the next look finds what it has done
    then = (f"read up to {whole}" if skip else
            "not read until a bridge is started on this spool, which takes in what is whole, or "
            "says what is wrong")
    tell_once(f"{folder}: `durable` says {end}, no bridge runs, and what is behind that is {then}")
    return whole


def _more_than(listed, end):
    """Whether a segment has bytes behind position `end` that are not of its header."""
    for segment in reversed(listed):
        if segment.base + segment.size() > max(end, segment.first):
            return True
        if segment.base <= end:
            break
    return False


def covering(folder, start, stop, skip_damaged=False):
    """The segments that hold the positions from `start` up to and without `stop`, as pairs
    (Segment, position up to which it is to be read).

    Only sizes are looked at. Raises SpoolError for a part that is not there; with skip_damaged
    that is logged instead.
    """
    found, at = [], start  # all up to `at` is there
    listed = segments(folder) if start < stop else []
    if listed and start < listed[0].base and start < begin(folder, listed):
        raise SpoolError(
            f"{folder}: position {start} was deleted, the spool begins at {listed[0].base}: "
            "a query's checkpoint is older than what its reader has released. Delete it (of "
            "ingest: the folder _checkpoint of the tables): what is left of the spool is read "
            "again then, and ingest leaves out what the tables have"
        )
    if skip_damaged and listed:
        listed = _by_headers(folder)  # and all of them, for there may be one that is too many
    else:
        first = bisect.bisect([segment.base for segment in listed], start) - 1
        listed = listed[max(first, 0) :]
    for segment in listed:
        if segment.base >= stop:
            break
        if segment.base > at:
            _missing(folder, at, segment.base, found, skip_damaged)
        elif found and segment.base < at and not _overlap(found, segment, at, skip_damaged):
            continue
        at = segment.base if found else max(at, segment.base)
        end = segment.base + segment.size()
        if end > at:
            found.append((segment, min(end, stop)))
            at = end
    if at < stop:
        _missing(folder, at, stop, found, skip_damaged)
    return found


def _overlap(found, segment, at, skip):
    """A segment begins before the end, `at`, of the one before it: which of the two is wrong?
    Returns whether this one is to be read."""
    before, _ = found[-1]
    with SegmentReader(segment) as reader, SegmentReader(before) as other:
        ours = reader.valid_header() or not other.valid_header()
    refuse(f"{before.path} and {segment.path.name} both have positions {segment.base} to {at}: "
           f"one of them does not belong here, or was made longer: {GONE}", skip)  # fmt: skip
    if ours:
        found[-1] = before, segment.base
    return ours


def _by_headers(folder):
    """The segments of a damaged spool, in order of what their headers say where these are whole:
    two files may have been exchanged, or one copied."""
    found, misnamed = {}, []
    for segment in segments(folder):
        with SegmentReader(segment) as reader:
            base = reader.named_base()
        if base is None or base == segment.base:
            found[segment.base] = segment
        else:
            misnamed.append(Segment(base, segment.path))
    for segment in misnamed:
        kept = found.setdefault(segment.base, segment)
        log.error("%s is the segment of position %d by its header: %s", segment.path,
                  segment.base, "read as that" if kept is segment else "left out")  # fmt: skip
    return [found[base] for base in sorted(found)]


def _missing(folder, first, stop, found, skip):
    """Say that positions are missing behind the segments found so far."""
    where, other = f"segment {first:020d}.seg", ""
    if found:
        where += f" or the end of {found[-1][0].path.name}"
    elif (said := deleted(folder)) and said.position == first and holds_packets(segments(folder)):
        other = f". If {folder}/deleted was put back from an older copy: remove that file"
    refuse(f"{folder}: positions {first} to {stop} are missing ({where}): {GONE}{other}", skip)


def blocks(folder, position, stop, skip_damaged=False):
    """Yield (SegmentReader, Block) from `position` up to `stop`; the body is not yet checked.

    Raises SpoolError for damage, for what is missing and for positions that were deleted; with
    skip_damaged the first two are logged and left out, and the body is checked: only whole
    blocks come, and all of them.
    """
    for segment, end in covering(folder, position, stop, skip_damaged):
        with SegmentReader(segment) as reader:
            for block in reader.blocks(max(position, segment.first), end, skip_damaged):
                yield reader, block


def walk(folder, start, stop):
    """Yield (Block, body) of every block from position `start` (a block's start, or before what
    is left of the spool) up to `stop`, over all segments. Raises SpoolError."""
    for reader, block in blocks(folder, max(start, begin(folder)), stop):
        yield block, reader.body(block)
