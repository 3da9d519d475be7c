"""Copies every whole block of a damaged spool into a new one, and says what it leaves behind.

Knows segments, blocks and the writer. Must not know what a payload means, sockets or Spark. It
changes nothing in the old spool, and needs none of the small files beside the segments.

The new spool has an id of its own, so positions of the old one mean nothing in it: neither the
files of readers nor `marks` are copied. A bridge makes the marks again from what was saved; they
promise nothing that was left behind, so that devices are asked for it once more.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from . import lock
from .files import (
    Segment,
    SpoolError,
    durable_mark,
    make_folder,
    segments,
    sync_folder,
)
from .reader import begin
from .segment import SegmentReader
from .writer import SpoolFull, SpoolWriter


@dataclass
class Salvaged:
    """What `salvage` has copied, and one sentence for each thing that it left behind."""

    blocks: int = 0
    messages: int = 0
    bytes: int = 0
    left: list = field(default_factory=list)


def salvage(old, new):
    """Copy every whole block of the spool in folder `old` into a new spool in folder `new`, which
    must not exist yet, or be empty. Returns Salvaged.

    The new spool appears at one instant, when it is complete: killed before, run it again. Raises
    SpoolError if a bridge runs on `old`, if there are no segments in it, if `new` is in use, and
    for a full disk.
    """
    old, new = Path(old), Path(new).resolve()
    listed = _in_order(old)
    if not listed:
        raise SpoolError(f"{old} has no segments: it is not a spool, or nothing is left of it")
    _no_bridge(old)
    if new.exists() and (not new.is_dir() or any(new.iterdir())):
        raise SpoolError(f"{new} is not empty: name a folder that does not exist yet")
    if new.is_mount():
        raise SpoolError(f"{new} is where a disk is mounted: name a folder in it")
    unfinished = new.with_name(f".{new.name}.salvage")
    shutil.rmtree(unfinished, ignore_errors=True)  # of one that was killed
    try:
        found = _copy(old, listed, unfinished)
        _no_bridge(old)  # what one has received meanwhile would be left behind without a word
        _show(unfinished, new)
    except (SpoolFull, OSError) as error:
        raise SpoolError(f"{new} cannot be written: {error}")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return found


def _no_bridge(folder):
    if lock.held(folder):
        raise SpoolError(f"{folder} is in use by a bridge: stop it first")


def _show(unfinished, new):
    """Give the complete spool its name, for good."""
    with suppress(FileNotFoundError):
        new.rmdir()
    os.rename(unfinished, new)
    sync_folder(new.absolute().parent)


def _in_order(folder):
    """All segments, in the order of what their headers say; by their names where a header is
    damaged. Two files may claim one place: both are looked into."""
    found = []
    for segment in segments(folder):
        with SegmentReader(segment) as reader:
            base = reader.named_base()
        found.append(Segment(segment.base if base is None else base, segment.path))
    return sorted(found, key=lambda segment: (segment.base, segment.path.name))


def _copy(old, listed, folder):
    found, seen, at = Salvaged(), set(), begin(old)
    make_folder(folder)
    writer = SpoolWriter(folder)
    try:
        for segment in listed:
            if segment.base > at:
                found.left.append(_missing(old, at, segment.base))
            _copy_segment(segment, writer, found, seen)
            at = max(at, segment.base + segment.size())
    finally:
        writer.close()
    promised = durable_mark(old) or 0
    if promised > at:
        found.left.append(_missing(old, at, promised))
    return found


def _missing(old, first, stop):
    return f"{old}: positions {first} to {stop} are missing"


def _copy_segment(segment, writer, found, seen):
    """Append the whole blocks of one segment; `seen` has those that another file brought. What a
    failing disk does not give is left behind, from there to the end of the file."""
    at = 0

    def left_out(first, stop):
        found.left.append(f"{segment.path}: bytes {first - segment.base} to "
                          f"{stop - segment.base} are no whole block")  # fmt: skip

    with SegmentReader(segment) as reader:
        try:
            for block in reader.whole_blocks(min(segment.first, reader.end), reader.end, left_out):
                at = block.position - segment.base
                _append(writer, block, reader.body(block), found, seen)
                at = block.end - segment.base
        except OSError as error:  # of reading: the writer raises others
            found.left.append(f"{segment.path}: from byte {at} on it cannot be read: "
                              f"{error.strerror}")  # fmt: skip


def _append(writer, block, body, found, seen):
    # The same bytes at the same microsecond: another file has a copy of this block.
    key = block.received, block.count, block.length, block.check
    if key in seen:
        return
    seen.add(key)
    writer.append(body, block.count, block.received)
    found.blocks += 1
    found.messages += block.count
    found.bytes += block.length
