"""Exchanges of QoS 1 and 2 as rows of the tables: messages, and pieces of those that may go on in
another connection.

Knows: rows of the layouts, what a session says of a message. Must not know: Spark, how an exchange
came about.
"""

import numpy as np
import pyarrow as pa

from ..compiled.layout import END_REUSED, F_OPEN, F_REUSED
from ..rules.ending import full, hidden, in_step, unreadable, unseen
from .columns import MADE, OUTCOMES, PIECES, WAYS, build, heap, numbers, times, words
from .places import places

UNSEEN = OUTCOMES.index("unseen")


def unanswered(rows, conns, ways):
    """Set the outcome of exchanges whose answers nobody can know, as the capture has nothing of
    the side that sends them, or nothing of it can be read, or lacks bytes of it in which they may
    have been. ways: both streams of each connection. Of one that its id was used again for, the
    other one says enough."""
    open_ = np.flatnonzero((rows["outcome"] == F_OPEN) | (rows["outcome"] == F_REUSED))
    answering = 2 - rows["sender"][open_].astype(np.int64)
    conn = rows["conn"][open_]
    lacks = unseen(ways[conn]) == answering
    lacks |= unreadable(conns, ways)[conn, answering - 1]
    some = rows[open_]
    asked = np.maximum.reduce([some["last"], some["rec"], some["rel"]])
    own = ways[conn, answering - 1]
    untimed = (some["unsure"] > 0) | ~in_step(conns, ways)[conn]
    lost = hidden(conns[conn], own, asked) | untimed & (own["lapses"] > 0)
    lacks |= lost & (some["outcome"] == F_OPEN)
    rows["outcome"][open_[lacks]] = UNSEEN


def _resumed(rows, conns):
    return (rows["early"] > 0) & ((rows["dup_first"] > 0) | (conns["clean"][rows["conn"]] == 0)
                                  | (rows["state"] == 2))  # fmt: skip


def alone(rows, conns):
    """Which exchanges can have no part in another connection."""
    return (rows["outcome"] == 1) & (rows["state"] != 2) & ~_resumed(rows, conns)


def goes_on(rows, conns):
    """Which exchanges are of a session that goes on: before 3.1.1 the server does not say so, but
    the client asked for it."""
    c = conns[rows["conn"]]
    asked = (c["connects"] == 1) & (c["clean"] == 0) & (c["acked"] > 0) & (c["code"] == 0)
    asked &= c["spoilt"] == 0
    kept = (c["level"] >= 4) & (c["present"] > 0) | (c["level"] == 3) | (c["level"] == 2)
    return asked & kept & (rows["state"] == 0)


def _begins(conn, conns):
    """Which of these connections begin a session, so that no message of an earlier one goes on."""
    c = conns[conn]
    none = (c["acked"] > 0) & (c["code"] == 0) & (c["present"] == 0) & (c["level"] >= 4)
    certain = (c["connects"] == 1) & (c["spoilt"] == 0) & (c["tears"] == 0)
    return certain & ((c["clean"] > 0) | none)


def repeats(rows, conns):
    """Which exchanges are sent again without DUP if the connection before left the same one open,
    and their acknowledgement on this connection cannot be what is missing."""
    return (goes_on(rows, conns) & (rows["dup_first"] == 0) & (rows["early"] > 0)
            & (rows["missing"] == 0))  # fmt: skip


def pieces(made, rows, conns, ways, files):
    """flows() of the same rows with all that joining them needs. ways: the connections' streams;
    files: as places() has it. resends: with DUP, in a session that goes on; alone: sent once, and
    without; both are known only of a client whose packets are all there. unanswered: for sure, not
    one that may repeat a message that is answered. left: released, without
    PUBCOMP. begins: its connection begins a session. unsure: it begins with PUBREL, and the
    capture may lack its PUBLISH."""
    conn = rows["conn"]
    used, place = np.unique(conn, return_inverse=True)
    sender = rows["sender"].astype(np.int64)
    whole = full(ways[used])
    answering, own = whole[place, 1 - sender], whole[place, sender]
    ordered = own & (sender == 0) & (conns["level"][conn] > 3)
    open_ = (rows["outcome"] == 0) & answering & (conns["connects"][conn] == 1)
    unanswered = (rows["rec"] == 0) & (rows["rel"] == 0) & (rows["maybe"] == 0)
    left = (rows["rel"] > 0) & (rows["qos"] == 2) & (rows["state"] == 0) & (rows["maybe"] == 0)
    kept = goes_on(rows, conns)
    return build(PIECES, {
        **{name: made[name] for name in made.column_names},
        **places(rows["frame"], files),
        "level": numbers(conns["level"][conn].astype(np.int16), pa.int16()),
        "repeats": pa.array(repeats(rows, conns)),
        "resends": pa.array(kept & (rows["dup_first"] > 0) & ordered),
        "unanswered": pa.array(open_ & unanswered),
        "alone": pa.array(ordered & (rows["dup_first"] == 0) & (rows["sent"] == 1)),
        "closed": pa.array((conns["end"][conn] > 0) & (conns["end"][conn] != END_REUSED)),
        "goes_on": pa.array(kept),
        "left": pa.array(open_ & left),
        "begins": pa.array(_begins(conn, conns)),
        "unsure": pa.array((rows["state"] == 2) & (ways["gaps"][conn, sender] > 0)),
    })  # fmt: skip


def flows(rows, text, whose, conns, known):
    """The table of exchanges with what tells their pieces apart. whose: columns of the
    connections; known: of which it is known how long they took, if they are acknowledged."""
    conn = rows["conn"]
    none = rows["qos"] == 0
    first = np.where(rows["state"] == 2, rows["rel"], rows["first"])
    done = rows["done"]
    open_ = rows["outcome"] != 1
    unknown = open_ | (rows["state"] == 2) | ~known
    return build(MADE, {
        **whose,
        "sender": words(rows["sender"], WAYS),
        "packet_id": numbers(rows["id"], pa.int32()),
        "qos": numbers(rows["qos"].astype(np.int16), pa.int16(), none),
        "topic": heap(rows["topic"], text, rows["topic_len"] == 0),
        "length": numbers(rows["length"], pa.int64(), rows["state"] != 0),
        "first": times(first),
        "last": times(rows["last"]),
        "received": times(rows["rec"], rows["rec"] == 0),
        "released": times(rows["rel"], rows["rel"] == 0),
        "done": times(done, open_),
        "latency_ms": numbers((done - first) / 1e6, pa.float64(), unknown),
        "sent": numbers(rows["sent"], pa.int32()),
        "with_dup": numbers(rows["dup"], pa.int32()),
        "without_dup": numbers(rows["nodup"], pa.int32()),
        "outcome": words(rows["outcome"], OUTCOMES),
        "connections": numbers(np.ones(len(rows), np.int32), pa.int32()),
        "digest": numbers(rows["hash"], pa.int64()),
        "dup_first": pa.array(rows["dup_first"] > 0),
        "headless": pa.array(rows["state"] == 2),
        "clean": pa.array(conns["clean"][conn] > 0),
        "resumed": pa.array(_resumed(rows, conns)),
    })  # fmt: skip
