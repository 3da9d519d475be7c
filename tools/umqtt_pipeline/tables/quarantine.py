"""What silver refused: the rows of the quarantine, newest first, and what they say in words.

Reads Parquet with pyarrow, needs no Spark. Must not know HTML or the command line.
"""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
from paho.mqtt.client import topic_matches_sub

from ..decode import topics
from . import large
from .storage import storage_of
from .store import dataset

KINDS = {"topic": pa.string(), "payload": pa.binary(), "reason": pa.string(),
         "received_at": pa.timestamp("us", "UTC"), "offset": pa.int64(), "epoch": pa.string(),
         "sequence": pa.int64(), "spool": pa.string()}  # fmt: skip
COLUMNS = [*KINDS]


def rows(root, columns=COLUMNS):
    """The quarantine below `root` as an arrow table, in no order; None without one."""
    held = dataset(root, "quarantine")
    return None if held is None else held.to_table(columns=columns)


def select(root, topic=None, reason=None):
    """The quarantine without its payloads, in no order.

    topic    an MQTT topic filter (`home/+/state`, `home/#`); None: any
    reason   text that is part of the reason, in whatever case; None: any

    Returns an arrow table of topic, reason and received_at; it may have no rows.
    """
    table = rows(root, ["topic", "reason", "received_at"])
    if table is None:
        return none().select(["topic", "reason", "received_at"])
    if reason is not None:
        table = table.filter(pc.match_substring(table["reason"], reason, ignore_case=True))
    if topic is not None:
        known = pc.unique(table["topic"]).to_pylist()
        fit = pa.array([name for name in known if topic_matches_sub(topic, name)], pa.string())
        table = table.filter(pc.is_in(table["topic"], fit))
    return table


def last(root, chosen, limit):
    """The `limit` rows of `chosen` (of select()) that came last, with their payloads, the last
    one last, as dicts. Reads the payloads of no more rows than came as late as they did."""
    if not chosen.num_rows or not limit:
        return []
    times = chosen["received_at"]
    order = pc.select_k_unstable(times, min(limit, len(times)), [("", "descending")])
    since = pc.min(times.take(order))
    table = dataset(root, "quarantine").to_table(COLUMNS, filter=pc.field("received_at") >= since)
    for name in ("topic", "reason"):
        table = table.filter(pc.is_in(table[name], pc.unique(chosen[name])))
    return newest(table, limit)[::-1]


def examples(tables):
    """[(reason, how many, a topic)] of Arrow tables of the quarantine, the commonest first."""
    counts, topics = Counter(), {}
    for held in tables:
        for topic, reason in zip(held["topic"].to_pylist(), held["reason"].to_pylist()):
            counts[reason] += 1
            topics[reason] = topic
    return [(reason, count, topics[reason]) for reason, count in counts.most_common()]


def plain(text, letters=200):
    """Text that came from the wire, for a terminal or a log: in one line, of at most so many
    letters; what could move a cursor is escaped."""
    text = text if len(text) <= letters else text[: letters - 1] + "\u2026"
    return text if text.isprintable() else ascii(text)[1:-1]


def as_json(row):
    """A row as one line of JSON; a payload that is not UTF-8 is in hexadecimal."""
    try:
        payload = {"payload": None if row["payload"] is None else row["payload"].decode()}
    except UnicodeDecodeError:
        payload = {"payload_hex": row["payload"].hex()}
    named = {name: row[name] for name in ("topic", "reason", "epoch", "sequence", "spool",
                                          "offset")}  # fmt: skip
    return json.dumps({"received_at": row["received_at"].isoformat(), **named, **payload})


def newest(table, limit):
    """The `limit` rows of `table` that came last, the last one first, as dicts."""
    if not table.num_rows:
        return []
    by = [("received_at", "descending"), ("offset", "descending")]
    order = pc.select_k_unstable(table, min(limit, table.num_rows), by)
    return table.take(order).to_pylist()


def content(root, row, letters=200):
    """What a row of the tables below `root` holds, in one line: its number, if that is known, and
    of the payload at most so many letters, or where it is."""
    number, sequence = "", row["sequence"]
    if sequence is not None:
        number = f"sequence {sequence} of epoch {row['epoch']}: "
    if row["payload"] is None:
        return number + storage_of(root).path(large.place(row["spool"], row["offset"]))
    return number + shown(row["payload"], letters)


def shown(payload, letters=200):
    """A payload as text of one line and at most so many letters; hexadecimal if it is no text."""
    try:
        text = payload[: 4 * letters].decode()
        if not text.isprintable():
            text = " ".join(text.split())
        if not text.isprintable():
            raise ValueError("control characters")
    except ValueError:
        text = "0x" + payload[:letters].hex()
    return text if len(text) <= letters else text[: letters - 1] + "\u2026"


NUMBERS = "group string, device string, epoch string, sequence bigint, date date"


def numbered(batches):
    """Arrow record batches with topic, payload, epoch, sequence and date -> record batches of
    NUMBERS of what was refused though its identity can be read: these numbers came."""
    for batch in batches:
        found = []
        for row in batch.to_pylist():
            owner, known = topics.owner(row["topic"] or ""), (row["epoch"], row["sequence"])
            if owner and known[0] is not None:
                found.append((*owner, *known, row["date"]))
        kinds = (pa.string(), pa.string(), pa.string(), pa.int64(), pa.date32())
        columns = zip(*found) if found else [()] * len(kinds)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, kind) for column, kind in zip(columns, kinds)],
            [column.split()[0] for column in NUMBERS.split(", ")])  # fmt: skip


def heard(table):
    """{(group, device): time of receipt of the last packet} of what was refused."""
    newest_of = table.group_by("topic").aggregate([("received_at", "max")]).to_pylist()
    owners = ((topics.owner(row["topic"] or ""), row["received_at_max"]) for row in newest_of)
    return {owner: at for owner, at in owners if owner}


def reasons(table):
    """[(reason, how many)], the commonest first."""
    counted = table.group_by("reason").aggregate([([], "count_all")]).to_pylist()
    return sorted(((r["reason"], r["count_all"]) for r in counted), key=lambda r: -r[1])


def none():
    """An empty quarantine."""
    return pa.table({name: pa.array([], kind) for name, kind in KINDS.items()})
