"""A look at every byte of a spool's folder, and at what a bridge would say of it.

Knows how damage is told from what a kill or a power cut leaves. Must not know tables or sockets,
and must not change anything. The bridge and the readers may go on meanwhile.
"""

from pathlib import Path

from ..bridge import mark_file
from . import consumers, lock, recovery
from .files import (
    SpoolError,
    broken_link,
    deleted,
    durable_mark,
    holds_packets,
    leads_nowhere,
    read_small,
    segments,
    spool_id,
)
from .reader import begin, durable
from .segment import SegmentReader


def verify(folder, notes):
    """Look at the files beside the segments and at every byte of the segments; yields (bytes that
    are right, None or what is wrong), and goes on behind what is wrong.

    notes    a list that takes sentences about what is no damage
    """
    links = [path for path in (*Path(folder).iterdir(), *Path(folder, "consumers").glob("*"))
             if broken_link(path)]  # fmt: skip
    for path in links:
        yield 0, f"{path}: {leads_nowhere(path)}: nothing else was looked at"
    try:
        yield from () if links else _verify(folder, notes)
    except SpoolError as error:  # without that file nobody knows where the spool begins
        yield 0, str(error)


def _verify(folder, notes):
    beside = []
    for wrong in _beside(folder):
        beside.append(wrong)
        yield 0, wrong
    said = False
    for size, wrong in _segments(folder):
        said = said or wrong is not None
        yield size, wrong
    wrong, told = _of_a_bridge(folder)
    if wrong and not said and wrong not in beside:
        yield 0, wrong
    if not beside:
        notes += told


def _of_a_bridge(folder):
    """(why a bridge would refuse this spool or None, what it would note). One that runs has said
    it."""
    wrong, told = None, []
    if lock.held(folder):
        return wrong, told
    try:
        plan = recovery.plan(folder)
        told = plan.notes
        if plan.extra:
            told.append(f"{plan.last.path}: the last {plan.extra} bytes, from position "
                        f"{plan.position} on, are no whole block: the bridge cuts them off when "
                        "it starts")  # fmt: skip
    except SpoolError as error:
        wrong = str(error)
    return (None, []) if lock.held(folder) else (wrong, told)


def _beside(folder):
    """What is wrong with the files beside the segments, and which of them are gone, as sentences.
    `durable` is looked at with the segments; nobody knows whether `session` and `reserve` were
    there."""
    folder = Path(folder)
    held, listed = deleted(folder), segments(folder)
    try:
        spool_id(folder)
        if not (folder / "spool.json").exists() and holds_packets(listed):
            yield f"{folder}/spool.json is gone: the bridge writes it again when it starts"
    except SpoolError as error:
        yield str(error)
    if held is None and (folder / "deleted").exists():
        yield f"{folder}/deleted is damaged"
    elif held is None and (folder / "spool.json").exists():  # after it
        yield f"{folder}/deleted is gone: the bridge makes it again when it starts, if it can"
    for path in consumers.unreadable(folder):
        yield f"{path} is damaged"
    marks = folder / "marks"
    if marks.exists():
        if mark_file.is_damaged(read_small(marks)):
            yield f"{marks} is damaged: the bridge makes the marks again when it starts"
    elif held is not None and held.position:  # no bridge deletes what it has no marks of
        yield f"{marks} is gone: the bridge makes the marks again when it starts"


def _segments(folder):
    """Look at the segments; yields as `verify` does. Without a bridge what is behind `durable` is
    looked at, too: it is durable if that is an older copy."""
    listed = segments(folder)
    at, end = begin(folder, listed), 0
    whole_end = listed[-1].base + listed[-1].size() if listed else 0
    try:
        end = durable(folder)
    except SpoolError as error:
        yield 0, str(error)
        end = whole_end
    stop = end if lock.held(folder) else max(end, whole_end)
    for segment in listed:
        if segment.base >= stop:
            break
        try:
            found = list(_pieces(segment, at, end, stop, segment is listed[-1]))
            at = segment.base + segment.size()
        except SpoolError as error:
            found = [(segment.base, 0, str(error))]
        for where, size, wrong in found:
            # The bridge may have deleted the segment meanwhile, or have cut off what is behind
            # `durable`.
            if wrong and where >= end and (lock.held(folder) or durable_mark(folder) != end):
                continue
            if segment.base >= begin(folder):
                yield size, wrong
    if at < end:
        yield 0, f"{folder}: positions {at} to {end} are missing"


def _pieces(segment, at, end, stop, last):
    """Yield (its position, bytes that are right, None or what is wrong) of the pieces of a segment
    that should begin at position `at`, up to `stop`.

    end     up to where all is durable: behind that a power cut may leave a piece of the header,
            or a piece of a block, with nothing whole behind it
    last    whether it is the last segment
    """
    if segment.base > at:
        yield at, 0, f"{segment.path.parent}: positions {at} to {segment.base} are missing"
    elif segment.base < at:
        yield segment.base, 0, (f"{segment.path}: the segment before it has positions up to {at}, "
                                "too")  # fmt: skip
    damaged = []
    with SegmentReader(segment) as reader:
        begun = last and segment.base >= end and reader.end <= segment.first
        if not begun and not reader.valid_header():
            yield segment.base, 0, (f"{segment.path}: its header is damaged, or it is another "
                                    "segment's file")  # fmt: skip
        for block in reader.whole_blocks(segment.first, stop, lambda *ends: damaged.append(ends)):
            yield block.position, block.length, None
        torn = last and stop > end
        for first, until in damaged:
            if not (torn and first >= end and until >= reader.end):
                yield first, 0, (f"{segment.path}: bytes {first - segment.base} to "
                                 f"{until - segment.base} are no whole block")  # fmt: skip
