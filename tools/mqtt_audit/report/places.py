"""Where something stands in the captures: columns of file and frame.

Knows: frames as the layouts number them, captures that are read as one. Must not know: tables.
"""

import numpy as np
import pyarrow as pa

from ..compiled.layout import MASK


def numbers(values, kind, missing=None):
    """A column of numbers; where `missing` is true there is none."""
    values = np.ascontiguousarray(values)
    return pa.array(values, kind, mask=missing) if missing is not None else pa.array(values, kind)


def places(frame, files):
    """Columns of layout's frames: file and frame (none: 0). files: {number: name}, or a Woven of
    several files."""
    order, number = frame >> 32, frame & MASK
    if len(order) and order.min() == order.max():  # mostly; unique() would sort
        found, place = order[:1], np.zeros(len(order), np.int32)
    else:
        found, place = np.unique(order, return_inverse=True)
    names = []
    if any(hasattr(files.get(k), "which") for k in found.tolist()):
        place, number, names = _unwoven(found, place, number, files)
    names = pa.array(names or [files.get(k) for k in found.tolist()], pa.string())
    return {"file": pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), names),
            "frame": numbers(number, pa.int64(), number == 0)}  # fmt: skip


def _unwoven(found, place, number, files):
    """(place in the names, frame in its file, names) of frames of which some are of a Woven."""
    where, frame, names = place.copy(), number.copy(), []
    for k, one in enumerate(found.tolist()):
        file, rows = files.get(one), place == k
        if hasattr(file, "which"):
            at = np.maximum(number[rows] - file.before, 1) - 1
            where[rows] = len(names) + file.which[at]
            frame[rows] = np.where(number[rows] > 0, file.frames[at], 0)
            names += file.names
        else:
            where[rows] = len(names)
            names.append(file)
    return where, frame, names


def woven(frame, files):
    """Which frames are of a Woven, whose bytes lie nowhere as they are."""
    some = [k for k, file in files.items() if hasattr(file, "which")]
    return np.isin(frame >> 32, some)
