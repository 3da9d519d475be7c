"""Connections of which the captures have one direction only: rows of problems on them, and what
nobody knows of a SYN then.

Knows: the table of connections. Must not know: how it came about.
"""

import pyarrow as pa
import pyarrow.compute as pc

from ..rules.why import UNANSWERED
from .columns import PROBLEMS, WAYS, build

WHAT = "of {:,} connection{} with {} the capture has only what the {} sent: the {}'s is missing"

#: Of a SYN without an answer, to a broker of which the captures have nothing.
UNKNOWN = "SYN by the client; the capture lacks the broker's side"


def unheard(connections):
    """The brokers of which the captures have nothing, though clients acknowledge their bytes."""
    lacking = pc.fill_null(pc.equal(connections["unseen"].cast(pa.string()), "broker"), False)
    lacking = pc.unique(connections["broker"].filter(lacking).cast(pa.string()))
    heard = pc.greater(connections["broker_segments"], 0)
    heard = pc.unique(connections["broker"].filter(heard).cast(pa.string()))
    return lacking.filter(pc.invert(pc.is_in(lacking, heard)))


def doubted(connections, brokers):
    """The table of connections without the word that a broker never answered, where `brokers`, as
    unheard() has them, may have answered; None if it has no such word."""
    said = connections["why"].cast(pa.string())
    wrong = pc.and_(pc.equal(said, UNANSWERED),
                    pc.is_in(connections["broker"].cast(pa.string()), brokers))
    wrong = pc.fill_null(wrong, False)
    if not pc.any(wrong).as_py():
        return None
    at = connections.column_names.index("why")
    return connections.set_column(at, "why", pc.if_else(wrong, UNKNOWN, said))


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
