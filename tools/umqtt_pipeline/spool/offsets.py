"""How far a query has read a spool, as it stands in checkpoints, and whether the spool that is
there is still the one that was read.

Knows what an offset holds, and where to look for the block that it remembers. Must not know Spark,
brokers or tables.

    [position, skip]           of a query that has read no block yet
    [position, skip, block, received, check]
                               as above; and of the last block that was read, its position, time
                               of receipt (unix us) and check value

`position` is where a block begins, or the end of the last one; `skip` packets of it are read.

An older copy of a spool has its id. If a bridge goes on with it, other blocks get positions that
were read already: without a look at the last one they would be passed over.
"""

import bisect
import datetime
from collections import deque

from .files import SpoolError, segments
from .objects import is_place
from .segment import SegmentReader

CURE = ("Delete the query's checkpoint (of ingest: the folder _checkpoint of the tables): all of "
        "the spool is read again then, and ingest leaves out what the tables have")  # fmt: skip
COPY = f"If an older copy of the spool was put back: {CURE[0].lower()}{CURE[1:]}"


def offset(position, skip, block, before):
    """The offset at [position, skip] of a spool. block: the last that was read (Block); None if
    there was none since the offset `before`."""
    if block is None:
        return [position, skip, *before[2:5]]
    return [position, skip, block.position, block.received, block.check]


def check(folder, at):
    """Raises SpoolError if the spool in `folder` is not the one that was read up to the offset
    `at`: other blocks stand where it was read.

    What cannot be known passes: an offset that remembers no block, a block that was deleted since
    or is damaged (whoever reads what is behind it tells of that). A log in an object store passes:
    it has one history only.
    """
    if len(at) < 5 or is_place(folder):
        return
    try:
        instead = _instead(folder, *at[2:5])
    except SpoolError:  # deleted between two looks, or damaged
        return
    if instead is not None:
        raise SpoolError(
            f"{folder} is not as it was read: the block at position {at[2]} was received at "
            f"{_time(at[3])}, but {instead}. An older copy of the spool was put back; what a "
            f"bridge has received with it would be passed over. {CURE}"
        )


def stands(folder, at):
    """Whether the block that the offset `at` remembers stands where it was read. True if it
    remembers none. Where the block is not, nothing must be released: it may be another spool."""
    if len(at) < 5 or is_place(folder):
        return True
    try:
        segment = _holding(segments(folder), at[2])
        if segment is None:
            return False
        with SegmentReader(segment) as reader:
            return _same(reader.block(at[2]), *at[3:5])
    except SpoolError:  # deleted between two looks, or damaged
        return False


def _holding(listed, position):
    """The segment that `position` belongs to, or None."""
    count = bisect.bisect([segment.base for segment in listed], position)
    return listed[count - 1] if count else None


def _same(block, received, check):
    return block is not None and (block.received, block.check) == (received, check)


def _instead(folder, position, received, check):
    """What there is instead of a block that was read, in words; None if it is there, or if that
    cannot be known."""
    listed = segments(folder)
    segment = _holding(listed, position)
    if segment is None:
        return None
    with SegmentReader(segment) as reader:
        if _same(reader.block(position), received, check):
            return None
        whole = reader.valid_header()
    # The clocks do not decide: a copy may go on with one that stands behind.
    if whole and position < segment.first:
        return f"a segment begins at {segment.base}"
    found = _last_whole(listed, position + 1) if whole else None
    if found and found.end > position:
        return f"the one at {found.position} at {_time(found.received)}"
    return None


def _last_whole(listed, stop):
    """The last whole block that begins before position `stop` in these segments, or None."""
    for segment in reversed(listed):
        if segment.base >= stop:
            continue
        with SegmentReader(segment) as reader:
            found = deque(reader.whole_blocks(segment.first, stop, lambda *_: None), 1)
        if found:
            return found.pop()
    return None


def _time(us):
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC).isoformat(" ", "milliseconds")
