"""The segments of a journal in files are made one by one: whole, before they are used, and only
as long as the file system keeps a reserve.

Knows: how many segments a journal needs, the files of a segment, what a full journal is.
Must not know: records.
Loaded twice for a mount, and when messages fill the segments that there are; given back after it.

A journal with some of its segments made is a smaller journal: where it is full acknowledgements
still find room, for nothing that is written into a segment that is made needs more of the file
system.
"""

import os
import sys

from ..port import const

_BAD = const(0x3FFFFFFF)  # as in log.py: in place of a serial
_ENOSPC = const(28)
_FREE = const(2)  # segments that a mount likes to find free: see settle.py


def look(medium):
    """Before a mount, and anything is written: raise ValueError where the folder holds a journal
    that would not be found, or not all of it."""
    count = medium.count
    while _there(medium.name(count, 0)):
        count += 1
    other = medium.folder + ("/000.log" if hasattr(medium, "chunk") else "/0.0")
    if count > medium.count or not medium.made and _there(other):
        from .validate import refuse_journal

        refuse_journal(medium, count)


def _there(name):
    try:
        os.stat(name)
        return True
    except OSError:
        return False


def begin(j):
    """At a mount: make the segments that no journal can do without, and what it had better have.

    Raises OSError ENOSPC where there is no room for the former.
    """
    medium = j.medium
    least = 3 + medium.spare
    begun = _sweep(medium)
    kept = medium.made if max(j._serials) else 0  # a first start that was cut has stored nothing
    for seg in range(medium.made, medium.count):
        j._serials[seg] = _BAD  # neither free nor in the log
    if medium.made < least:
        # What was begun had room when it began: it is tried, then once more from the start.
        if not begun and _missing(medium, least) or not _up_to(j, least, kept):
            if not begun or kept or not _up_to(j, least, kept):
                from .validate import refuse_room

                refuse_room(medium, least - kept)
    _relieve(j)
    _limit(j)
    while j._free() < _FREE and medium.made < medium.count and not _missing(medium, 1):
        if not _add(j):
            break


def grow(j):
    """Make one segment more; False if the file system ran out of room."""
    if sys.implementation.name == "micropython" and sys.modules.pop(__name__, None):
        del sys.modules["umqtt_min.store"].files_room
    return _add(j)


def _sweep(medium):
    """Remove what a cut has left of a segment that was being made. True if anything was there."""
    half = _there(medium.name(medium.made, _last(medium)))
    if half:
        _remove(medium, medium.made)
    block = medium.room(0)[2]
    if hasattr(medium, "chunk") and 8 * (medium.chunk + 2) > block:
        # Too long for littlefs's directories: each file takes a block, and room there: _add().
        medium.bulk = (_last(medium) + 1) * (block + 264)
    return half or medium.made > 0


def _relieve(j):
    """Where no block is free and a file takes one, as where directories were split or others
    took the reserve: without the files of free segments there is room to go on. They come again
    as they are written."""
    medium = j.medium
    free, _, block = medium.room(0)
    if free < 2 and 8 * (getattr(medium, "chunk", 0) + 2) > block > 0:
        for seg in range(medium.made):
            if not j._serials[seg]:
                for number in range(1, _last(medium) + 1):
                    try:
                        os.remove(medium.name(seg, number))
                    except OSError:
                        pass  # removed before


def _missing(medium, segments):
    free, needed, _ = medium.room(segments)
    return free < needed


def _up_to(j, count, kept):
    medium = j.medium
    while medium.made < count:
        if not _add(j):
            while medium.made > kept:
                medium.made -= 1
                j._serials[medium.made] = _BAD
                _remove(medium, medium.made)
            return False
    return True


def _add(j):
    """Make a segment, unless the file system ran out of room, or of the reserve."""
    medium = j.medium
    seg = medium.made
    before = medium.room(0)[0]
    try:
        if hasattr(medium, "chunk"):
            for number in range(_last(medium), -1, -1):  # the first, made last, says it is whole
                medium.blank(seg, number)
        else:
            medium.erase(seg)
    except OSError as e:
        if e.errno != _ENOSPC:
            raise
        _remove(medium, seg)
        return False
    free, needed, block = medium.room(0)
    files = _last(medium) + 1
    taken = before - free - files
    if taken >= 0 and files > 1:  # a block each: then to write one takes a free block
        # Directories are split later on, down to four entries of 33 bytes in a pair of 512.
        needed += (seg + 1) * max(0, files * 2 // max(1, block // 128) - taken)
    if free < needed:
        medium.bulk += (needed - free) * block  # it is not tried in vain again
        _remove(medium, seg)
        return False
    medium.made = seg + 1
    j._serials[seg] = 0
    _limit(j)
    return True


def _last(medium):
    """Number of a segment's last file."""
    return (medium.size - 1) // getattr(medium, "chunk", medium.size)


def _remove(medium, seg):
    medium.close()
    for number in range(_last(medium) + 1):
        try:
            os.remove(medium.name(seg, number))
        except OSError:
            pass  # it was not made


def _limit(j):
    """What messages may fill: see setup.py."""
    j._made = j.medium.made
    j._most = j._capacity = (j._made - 1 - j.medium.spare) * j._area * 7 // 8
