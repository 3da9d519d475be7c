"""The files between the first pass and the second: segments and keys of each capture.

Knows: their names, their rows. Must not know: what becomes of them.
"""

from pathlib import Path

import numpy as np

from .compiled.layout import KEY, SEGMENT
from .tcp.stamps import STAMPED

BUNCH = 1 << 17  #: segments read at once in the second pass


def segments_file(scratch, number, place, bucket):
    """Where the segments of a bucket are, of one part of a file."""
    return Path(scratch, f"{number:05d}-{place:05d}-{bucket:05d}.segments")


def keys_file(scratch, number, place):
    """Where the pairs of endpoints of one part of a file are."""
    return Path(scratch, f"{number:05d}-{place:05d}.keys")


def stamps_file(scratch, number, place):
    """Where the time stamps of one part of a file are."""
    return Path(scratch, f"{number:05d}-{place:05d}.stamps")


def bunches(path):
    """The segments of a file, some at a time."""
    with open(path, "rb") as file:
        while True:
            rows = np.fromfile(file, SEGMENT, BUNCH)
            if not len(rows):
                return
            yield rows


def keys(scratch, number, parts):
    """The pairs of endpoints of all parts of a file, one part behind the other."""
    found = [np.fromfile(keys_file(scratch, number, k), KEY) for k in range(parts)]
    return np.concatenate(found)


def stamps(scratch, number, parts):
    """Rows of tcp/stamps.STAMPED of all parts of a file, one part behind the other."""
    found = [np.fromfile(stamps_file(scratch, number, k), STAMPED) for k in range(parts)]
    return np.concatenate(found)


def segments(scratch, number, parts, bucket):
    """All segments of a bucket in a file; `key` is a row of keys()."""
    found, base = [np.zeros(0, SEGMENT)], 0
    for place in range(parts):
        path = segments_file(scratch, number, place, bucket)
        if path.exists():
            rows = np.fromfile(path, SEGMENT)
            rows["key"] += base
            found.append(rows)
        base += keys_file(scratch, number, place).stat().st_size // KEY.itemsize
    return np.concatenate(found)
