"""Rows of problems on connections of which the captures have one direction only.

Knows: the table of connections. Must not know: how it came about.
"""

import pyarrow as pa
import pyarrow.compute as pc

from .columns import PROBLEMS, WAYS, build

WHAT = "of {:,} connection{} with {} the capture has only what the {} sent: the {}'s is missing"


def one_way(connections):
    """The table of problems with one row for each broker and side of which nothing was captured,
    though the other side acknowledges it. It names the first frame of the first such
    connection."""
    some = connections.filter(pc.is_valid(connections["unseen"])).sort_by("first")
    firsts = [(name, "first") for name in ("file", "frame", "first")]
    found = some.group_by(["broker", "unseen"], use_threads=False).aggregate(
        [*firsts, ([], "count_all")])  # fmt: skip
    rows = found.to_pylist()
    if not rows:
        return PROBLEMS.empty_table()
    return build(PROBLEMS, {
        "file": found["file_first"].cast(pa.string()), "frame": found["frame_first"],
        "time": found["first_first"], "count": found["count_all"],
        "problem": pa.array(["one direction"] * len(rows)), "what": pa.array(map(_what, rows)),
    }).cast(PROBLEMS)  # fmt: skip


def _what(row):
    """What is said of the connections of one broker of which one direction is missing."""
    there = WAYS[1 - WAYS.index(row["unseen"])]
    several = "s" * (row["count_all"] > 1)
    return WHAT.format(row["count_all"], several, row["broker"], there, row["unseen"])
