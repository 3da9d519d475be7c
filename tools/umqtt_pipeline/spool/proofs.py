"""What proves how far a spool was durable, whatever its file `durable` says.

Knows which files are written only when what they tell of is durable: those of the readers, the
snapshot of the marks, and each segment but the first: all that comes before it is fsynced, and
`durable` written, before it is begun. Must not know blocks, or what is to be done where these say
more.
"""

from functools import lru_cache
from pathlib import Path

from ..bridge import mark_file
from . import consumers
from .files import segments, spool_id
from .segment import SegmentReader


def proven(folder, key=None):
    """{who says so: position} up to which the spool in `folder` was durable once.

    key: the spool's id, if it is known already. To be compared with a `durable` that is read
    later: a bridge that runs goes on meanwhile. Raises SpoolError for a spool without an id.
    """
    key = spool_id(folder) if key is None else key
    found = {f"reader {name!r} has had": position
             for name, position in consumers.reached(folder, key).items()}  # fmt: skip
    found.update(_begun(folder))
    path = Path(folder, "marks")
    try:
        about = path.stat()
    except FileNotFoundError:
        return found
    position = _of_marks(path, about.st_ino, about.st_mtime_ns, about.st_size)
    if position is not None:
        found["`marks` are of position"] = position
    return found


def _begun(folder):
    """The last segment's base, if it is one: a file that does not belong there proves nothing."""
    for segment in reversed(segments(folder)):
        with SegmentReader(segment) as reader:
            if reader.valid_header():
                return {f"{segment.path.name} begins at": segment.base}
    return {}


@lru_cache(maxsize=100)
def _of_marks(path, *_):
    """Position of a snapshot: a stream asks in each batch, and a fleet's marks are long."""
    try:
        return mark_file.position(path.read_bytes())
    except FileNotFoundError:
        return None
