"""Exchanges that went on in another connection.

Knows: Arrow tables in, Arrow tables out. Must not know: Spark, files (but for empty tables),
captures.

A table is put into the order of its connections with numpy, each row beside the one before it.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..compiled.layout import PUBLISH
from ..report.columns import FLOWS, LATENCIES, OUTCOMES, PROTOCOLS, VIOLATIONS
from ..report.tallies import STEP
from ..rules import clock
from ..rules.statements import AGAIN, OVERTAKEN, RELEASED, RULES, statement

OPEN, ACKNOWLEDGED, _, HEADLESS, UNSEEN = OUTCOMES
#: What tells that a message of which one connection has all lies between two pieces.
BETWEEN = pa.schema([FLOWS.field(name) for name in (
    "connection", "client_id", "broker", "sender", "packet_id", "first")])  # fmt: skip


def write_empty(schema, path):
    """A Parquet file without rows."""
    pq.write_table(schema.empty_table(), path, store_schema=False)


def _codes(column):
    """Numbers that stand for the values of a column; null is one of them."""
    plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
    found = pc.dictionary_encode(plain, null_encoding="encode")
    return pa.chunked_array(found).combine_chunks().indices.to_numpy(zero_copy_only=False)


def _groups(*columns):
    """One number for each combination of values."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes = _codes(column)
        _, key = np.unique(key * (1 + codes.max(initial=0)) + codes, return_inverse=True)
    return key


def _whole(column, none=0):
    """Numbers or times as integers, null as `none`."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return pc.fill_null(column.cast(pa.int64()), none).to_numpy()


def _yes(column):
    return pc.fill_null(column, False).to_numpy(zero_copy_only=False)


def _is(column, word):
    return _yes(pc.equal(column, word))


def _lined_up(table, key):
    """The rows in the order of `key`, then of time; and which of them have one of the same key
    before them."""
    order = np.lexsort((_whole(table["connection"]), _whole(table["first"]), key))
    key = key[order]
    follows = np.zeros(len(key), bool)
    follows[1:] = key[1:] == key[:-1]
    return table.take(pa.array(order)), follows


def _before(values):
    """The value of the row before."""
    return np.concatenate([values[:1], values[:-1]])


def _same_before(table, *names):
    """Whether columns have the value of the row before; null is like nothing."""
    alike = np.ones(table.num_rows, bool)
    for name in names:
        values = _whole(table[name], -1)
        alike &= (values == _before(values)) & (values >= 0)
    return alike


def _who(pieces):
    """The client; one without an id is taken by its connection alone."""
    alone = np.where(_yes(pc.is_null(pieces["client_id"])), _whole(pieces["connection"]), -1)
    return _groups(pieces["client_id"], pa.chunked_array([pa.array(alone)]), pieces["broker"],
                   pieces["sender"], pieces["packet_id"])  # fmt: skip


def _sums(values, starts):
    return np.add.reduceat(values, starts) if len(starts) else values[:0]


def _first_known(column, starts, least):
    """The least or the greatest of each chain, null if there is none."""
    none = np.iinfo(np.int64).max if least else np.iinfo(np.int64).min
    how = np.minimum if least else np.maximum
    values = _whole(column, none)
    found = how.reduceat(values, starts) if len(starts) else values[:0]
    return pa.array(found, mask=found == none).cast(column.type)


def _chained(pieces):
    """(the pieces in order, which of them go on with the one before)."""
    rows, follows = _lined_up(pieces, _who(pieces))
    headless, clean = _yes(rows["headless"]), _yes(rows["clean"])
    conn, begins = _whole(rows["connection"]), _yes(rows["begins"])
    resumes = headless & (_before(_whole(rows["qos"])) == 2) & ~begins
    # With DUP a client sends it again, though the server has lost the session.
    alike = _same_before(rows, "digest", "length") & ~clean
    alike &= ~begins | _yes(rows["dup_first"])
    left = _is(rows["outcome"], OPEN) | _is(rows["outcome"], UNSEEN)
    left |= headless & _yes(pc.is_null(rows["done"]))  # only PUBREL, which may go on again
    return rows, (follows & _before(left) & (_before(conn) != conn)
                  & _yes(rows["resumed"]) & (resumes | alike))  # fmt: skip


def joined(pieces, steps=clock.NONE, others=None):
    """One row per message out of the pieces that connections of one client have of it. steps:
    where the captures' clock is not to be believed (rules/clock.py). others: gives messages, of
    these packet ids, of which one connection has all, as BETWEEN has them.

    A piece goes on with the one before it (same client, broker, sender, packet id) if that was
    left open and this one begins with PUBREL, or is the same PUBLISH (length and check value) in
    a session that was not clean. A whole message with its packet id in between says that it was
    over: only the capture lacks its end. So does a connection that begins a session, but for a
    PUBLISH with DUP. If the PUBLISH that PUBREL belongs to may be missing, nobody knows how long
    the message took.
    """
    rows, goes_on = _chained(pieces)
    if others and goes_on.any():
        between = others(pc.unique(rows["packet_id"].filter(pa.array(goes_on))))
        own = pa.array(np.ones(pieces.num_rows, bool))
        rows, goes_on = _chained(pa.concat_tables(
            [pieces.append_column("own", own), between], promote_options="default"))  # fmt: skip
        own = _yes(rows["own"])
        rows, goes_on = rows.filter(pa.array(own)), goes_on[own]
    headless, conn = _yes(rows["headless"]), _whole(rows["connection"])
    starts = np.flatnonzero(~goes_on)
    chain = np.cumsum(~goes_on) - 1
    again = goes_on & ~headless  # the first PUBLISH of a later piece is a retransmission itself
    dup = _yes(rows["dup_first"])
    ends = np.append(starts[1:], len(goes_on)) - 1 if len(starts) else starts
    pairs = np.unique(np.stack([chain, conn], axis=1), axis=0)[:, 0] if len(starts) else chain
    made = {name: rows[name].take(pa.array(starts)) for name in (
        "connection", "client_id", "broker", "sender", "packet_id", "topic", "length")}
    made |= {name: _first_known(rows[name], starts, name != "done" and name != "last"
                                and name != "qos")
             for name in ("qos", "first", "last", "received", "released", "done")}  # fmt: skip
    made |= {
        "sent": _sums(_whole(rows["sent"]), starts),
        "with_dup": _sums(_whole(rows["with_dup"]) + (again & dup), starts),
        "without_dup": _sums(_whole(rows["without_dup"]) + (again & ~dup), starts),
        "connections": np.bincount(pairs, minlength=len(starts)),
    }
    # A piece that is acknowledged, and yet nobody knows how long that took.
    vague = _is(rows["outcome"], ACKNOWLEDGED) & ~headless & _yes(pc.is_null(rows["latency_ms"]))
    begin, end = (1000 * _whole(made[name]) for name in ("first", "done"))
    unsure = _sums(_yes(rows["unsure"]).astype(np.int64), starts) > 0
    known = ~vague[ends] & ~unsure & (begin <= end)
    known &= clock.timed(begin, end, np.zeros(len(begin), np.int64), steps)
    last, resumed = rows["outcome"].take(pa.array(ends)), headless[ends] & ~headless[starts]
    return _ended(made, headless[starts], last, resumed, known)


def _ended(made, headless, last, goes_on, known):
    """The table of messages, with how each went in the end. last: outcome of its last piece;
    goes_on: whether that is only a PUBREL; known: of which it is known how long they took, if they
    are acknowledged."""
    over, headless = pc.is_valid(made["done"]), pa.array(headless)
    took = pc.subtract(made["done"].cast(pa.int64()), made["first"].cast(pa.int64()))
    unknown = pc.or_(headless, pa.array(~known))
    made["latency_ms"] = pc.if_else(unknown, None, pc.divide(took.cast(pa.float64()), 1000.0))
    last = pa.chunked_array(last.chunks, last.type).combine_chunks()
    last = last.cast(pa.string())
    last = pc.if_else(pa.array(goes_on), OPEN, last)
    made["outcome"] = pc.if_else(pc.and_(headless, pc.invert(over)), HEADLESS,
                                 pc.if_else(over, ACKNOWLEDGED, last))  # fmt: skip
    return pa.table(made).select(FLOWS.names).cast(FLOWS)


def _hosts(connections):
    """The client's address without the port, as numbers."""
    return _codes(pc.replace_substring_regex(connections["client"], r":\d+$", ""))


def _next(connections):
    """{(connection, the one before it of the same client)} of which nothing can lie between: a
    connection from there whose CONNECT is missing may have been the client's."""
    table = connections.append_column("host", pa.array(_hosts(connections)))
    rows, follows = _lined_up(table, _groups(table["host"], table["broker"]))
    nameless = np.cumsum(_yes(pc.is_null(rows["client_id"])))
    starts = np.flatnonzero(~follows)
    place = np.cumsum(~follows) - 1
    before = np.where(starts > 0, nameless[starts - 1], 0) if len(starts) else nameless
    rows = rows.append_column("nameless", pa.array(nameless - before[place]))
    rows = rows.filter(pc.fill_null(pc.not_equal(rows["client_id"], ""), False))
    rows, follows = _lined_up(rows, _groups(rows["client_id"], rows["broker"]))
    host, nameless = _whole(rows["host"]), _whole(rows["nameless"])
    sure = follows & ((_before(host) != host) | (_before(nameless) == nameless))
    conn = _whole(rows["connection"])
    return set(zip(conn[sure].tolist(), _before(conn)[sure].tolist()))


def sent_again(pieces, connections):
    """Violations: a PUBLISH sent again without DUP on the connection that came next, or, with it,
    after one that was first sent later, or after its own PUBREL.

    Said only if nothing speaks against it: the client's connection before this one left the same
    message (packet id, QoS, length, check value) without any answer, or without PUBCOMP, none of
    the answering side's bytes are missing on it, its session was to be kept and goes on
    (messages.goes_on), and it was seen to end: the capture may lack the answer with its end.
    """
    named = pieces.filter(pc.fill_null(pc.not_equal(pieces["client_id"], ""), False))
    key = _groups(named["client_id"], named["broker"], named["sender"], named["packet_id"])
    rows, follows = _lined_up(named, key)
    file, conn = _codes(rows["file"]), _whole(rows["connection"])
    seen = _before(_yes(rows["closed"]))
    same = follows & _same_before(rows, "qos", "length", "digest")
    # In MQTT 5 the Session Expiry Interval keeps it: that the session goes on says that it did.
    keeps = ~_yes(rows["clean"]) | (_whole(rows["level"]) == 5)
    kept = same & seen & _before(keeps)
    sure = kept & _before(_yes(rows["unanswered"]))
    # MQTT 3.1 has no session present, and lets a client begin the whole exchange anew.
    dup = _yes(rows["goes_on"]) & _yes(rows["dup_first"]) & (_whole(rows["level"]) > 3)
    released = kept & dup & _before(_yes(rows["left"]))
    ordered = _yes(rows["resends"]) & _before(_yes(rows["alone"]) & ~same)
    at = np.flatnonzero(sure & (_yes(rows["repeats"]) | ordered) | released)
    next_ = _next(connections)
    at = np.array([k for k in at.tolist() if (int(conn[k]), int(conn[k - 1])) in next_], np.int64)
    after, at = at[released[at]], at[~released[at]]
    overtaken = _overtaken(rows, file, at[ordered[at]])
    return pa.concat_tables([_told(rows, at[~ordered[at]], AGAIN), _told(rows, after, RELEASED),
                             _told(rows, overtaken, OVERTAKEN)])  # fmt: skip


def _overtaken(rows, file, at):
    """Which of these rows, each with its first sending in the row before, come after another one
    that was first sent later. Packets that share a frame are in no order."""
    conn, frame = _whole(rows["connection"]), _whole(rows["frame"])
    talks, found = {}, []
    for k in at.tolist():
        talks.setdefault((conn[k], file[k], conn[k - 1], file[k - 1]), []).append(k)
    for members in talks.values():
        members.sort(key=lambda k: frame[k])
        latest, behind = -1, []  # of those in frames before this one; those in this one
        for k in members:
            if behind and frame[behind[0]] < frame[k]:
                latest = max(latest, *(frame[b - 1] for b in behind))
                behind = []
            behind.append(k)
            if frame[k - 1] < latest:
                found.append(k)
    return np.array(sorted(found), np.int64)


def _told(rows, at, code):
    """The table of violations of these rows."""
    found = rows.take(pa.array(at))
    says, levels = RULES[code][2], found["level"].to_pylist()
    return pa.table({
        **{n: found[n] for n in ("connection", "client_id", "broker", "file", "frame", "sender")},
        "time": found["first"],
        "type": pa.array(["PUBLISH"] * len(at), pa.string()),
        "protocol": pa.array([PROTOCOLS.get(k) for k in levels], pa.string()),
        "statement": pa.array([statement(code, k, PUBLISH, False) for k in levels], pa.string()),
        "keep_alive": pa.array([False] * len(at), pa.bool_()),
        "what": pa.array([says.format(k) for k in found["packet_id"].to_pylist()], pa.string()),
    }).select(VIOLATIONS.names).cast(VIOLATIONS)  # fmt: skip


def latencies(flows):
    """The table of latencies (report/tallies.py) of messages."""
    took = pc.max_element_wise(pc.multiply(flows["latency_ms"], 1000.0), 1.0, skip_nulls=False)
    step = pc.round(pc.divide(pc.ln(took), float(np.log(STEP))))
    done = pc.equal(flows["outcome"], ACKNOWLEDGED)
    rounded = pc.if_else(done, pc.divide(pc.power(STEP, step), 1000.0), None)
    longest = pc.if_else(done, flows["latency_ms"], None)
    same = ["client_id", "broker", "sender", "qos", "outcome"]
    rows = flows.select(same).append_column("latency_ms", rounded)
    rows = rows.append_column("longest", longest).append_column(
        "again", pc.add(flows["with_dup"], flows["without_dup"]))  # fmt: skip
    found = rows.group_by([*same, "latency_ms"], use_threads=False).aggregate(
        [("again", "sum"), ("longest", "max"), ([], "count_all")])  # fmt: skip
    found = found.rename_columns({"again_sum": "retransmissions", "longest_max": "longest_ms",
                                  "count_all": "messages"})  # fmt: skip
    return found.select(LATENCIES.names).cast(LATENCIES)
