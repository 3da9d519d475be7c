"""What silver refused: the rows of the quarantine, newest first, and what they say in words.

Reads Parquet with pyarrow, needs no Spark. Must not know HTML or the command line.
"""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from .decoders import identity

TOPIC = re.compile(r"fleet/([^/]+)/([^/]+)/telemetry")
COLUMNS = ["topic", "payload", "reason", "received_at"]


def rows(root, columns=COLUMNS):
    """The quarantine below `root` as an arrow table, in no order; None without one."""
    files = [str(path) for path in Path(root, "quarantine").rglob("*.parquet")]
    return ds.dataset(files).to_table(columns=columns) if files else None


def newest(table, limit):
    """The `limit` rows of `table` that came last, the last one first, as dicts."""
    if not table.num_rows:
        return []
    by = [("received_at", "descending")]
    order = pc.select_k_unstable(table, min(limit, table.num_rows), by)
    return table.take(order).to_pylist()


def shown(payload, letters=200):
    """A payload as text of one line and at most so many letters; hexadecimal if it is no text."""
    payload = payload or b""
    try:
        text = payload[: 4 * letters].decode()
        if not text.isprintable():
            text = " ".join(text.split())
        if not text.isprintable():
            raise ValueError("control characters")
    except ValueError:
        text = "0x" + payload[:letters].hex()
    return text if len(text) <= letters else text[: letters - 1] + "\u2026"


def sequences(table):
    """{(group, device, epoch in hex): set of sequence numbers} of what was refused though its
    identity can be read: these numbers came."""
    found = {}
    for topic, payload in zip(table["topic"].to_pylist(), table["payload"].to_pylist()):
        owner = TOPIC.fullmatch(topic or "")
        known = owner and payload and identity(payload)
        if known:
            found.setdefault((owner[1], owner[2], known[0].hex()), set()).add(known[1])
    return found


def heard(table):
    """{(group, device): time of receipt of the last packet} of what was refused."""
    newest_of = table.group_by("topic").aggregate([("received_at", "max")]).to_pylist()
    owners = ((TOPIC.fullmatch(row["topic"] or ""), row["received_at_max"]) for row in newest_of)
    return {(owner[1], owner[2]): at for owner, at in owners if owner}


def reasons(table):
    """[(reason, how many)], the commonest first."""
    counted = table.group_by("reason").aggregate([([], "count_all")]).to_pylist()
    return sorted(((r["reason"], r["count_all"]) for r in counted), key=lambda r: -r[1])


def none():
    """An empty quarantine."""
    kinds = (pa.string(), pa.binary(), pa.string(), pa.timestamp("us", "UTC"))
    return pa.table({name: pa.array([], kind) for name, kind in zip(COLUMNS, kinds)})
