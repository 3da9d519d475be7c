"""A spool wherever it is read from: its folder, or its log in an object store.

Knows which of the two a place is. Must not know what is done with the packets.
"""

from . import consumers, objects, reader, shipped, verifying
from .files import HEADER, SpoolError, segments, spool_id, tell_once


def _of(place):
    return shipped if objects.is_place(place) else reader


def spools(places):
    """The places of single spools: what is below s3://BUCKET/PREFIX is each a spool, of any bridge
    that ships there. Raises Unreachable."""
    found = []
    for place in places:
        found += shipped.spools(place) if objects.is_place(place) else [place]
    return found


def by_id(places):
    """{id: place} of all spools. Raises SpoolError where there is none, and for two with one id: a
    copy has the same readings at the same positions."""
    found = {}
    for place in spools(places):
        key = spool_id(place)
        if key in found:
            raise SpoolError(f"{found[key]} and {place} are copies of one spool (both have the "
                             f"id {key}): name one of them")  # fmt: skip
        found[key] = place
    return found


def verify(place, notes):
    """Look at every byte of a spool, or of all logs below a place; yields (bytes that are right,
    None or what is wrong). Raises Unreachable.

    notes    a list that takes sentences about what is no damage
    """
    for each in spools([place]):
        if objects.is_place(each):
            yield from shipped.verify(each)
        else:
            yield from verifying.verify(each, notes)


def begin(place):
    """The position from which on nothing may be missing: what a new reader starts with."""
    return _of(place).begin(place)


def extent(place, skip_damaged=False):
    """(first position that should be there, position up to which all is durable)."""
    return _of(place).extent(place, skip_damaged)


def blocks(place, start, stop, skip_damaged=False):
    """Yield (SegmentReader, Block) as reader.blocks does."""
    return _of(place).blocks(place, start, stop, skip_damaged)


def covered(place, end, position, skip, copy):
    """Look whether a spool that is durable up to `end` has all up to `position`, where a query
    goes on. Raises SpoolError; with skip it is logged: nothing of it is read up to there.

    copy: what to do if an older copy was put back, as a sentence
    """
    if objects.is_place(place):
        if position > end + HEADER.size and not skip:
            raise SpoolError(f"{place} ends at {end}, and was read up to {position}. {copy}")
        return
    try:
        reader.covering(place, end, position, skip)
    except SpoolError as error:
        # Not behind the other one: of what Spark passes on the first is shown.
        raise SpoolError(f"{place} ends at {end}, and was read up to {position}. {copy}. If its "
                         f"end was lost: {error}") from None  # fmt: skip
    listed = segments(place)
    if listed and listed[-1].base + listed[-1].size() < position:
        tell_once(f"{place}: it ends before position {position}, nothing of it is read until it "
                  f"is longer. {copy}")  # fmt: skip


def advance(place, consumer, key, end):
    """Spark has said `commit` for the batch that ends at offset `end`: see consumers.advance. What
    nobody needs of a log in an object store is removed; of a folder the bridge does that."""
    consumers.advance(place, consumer, key, end)
    trim(place)


def trim(place):
    """Remove from a log in an object store what every reader is done with."""
    if objects.is_place(place):
        shipped.trim(place)
