"""The summaries per device and per broker, from what the workers counted.

Knows: Arrow tables, which columns are summed how. Must not know: Spark, captures, folders.

These are some vector operations on one row per connection and one per step of latency, which take
less than planning a query would.
"""

import zlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..flows.quantiles import quantiles
from .columns import CONNECTIONS, LATENCIES, OUTCOMES, VIOLATIONS, WAYS

OPEN, ACKNOWLEDGED, REUSED, _, UNSEEN = OUTCOMES
GROUPS = {"devices": ["client_id", "broker"], "brokers": ["broker"]}
TABLES = {"connections": CONNECTIONS, "latencies": LATENCIES, "violations": VIOLATIONS}
_SUMMED = ("packets", "bytes", "publish_0", "publish_1", "publish_2", "dup", "resent",
           "disordered", "lost", "gaps")  # fmt: skip
#: What is read of each table.
NEEDED = {
    "connections": ["client_id", "broker", "connection", "first", "last", "return_code", "ended",
                    "pings", "longest_silence_s", "keep_alive", "unseen",
                    *[f"{side}_{n}" for side in WAYS for n in _SUMMED]],
    "latencies": LATENCIES.names,
    "violations": ["client_id", "broker", "keep_alive"],
}  # fmt: skip
_PERCENTS = (50, 99)  #: of the quantiles


def share(rows, part, parts):
    """The rows of clients that belong to one of several parts."""
    if parts == 1:
        return rows
    clients = pc.dictionary_encode(rows["client_id"], null_encoding="encode").combine_chunks()
    names = clients.dictionary.to_pylist()
    mine = np.array([zlib.crc32((n or "").encode()) % parts == part for n in names], bool)
    return rows.filter(pa.array(mine[clients.indices.to_numpy()]))


def without_clients(latencies):
    """Rows of `latencies` put together that differ in nothing but the client: few are left."""
    same = ["broker", "sender", "qos", "outcome", "latency_ms"]
    sums = {"messages": "sum", "retransmissions": "sum", "longest_ms": "max"}
    found = latencies.group_by(same, use_threads=False).aggregate(list(sums.items()))
    found = found.rename_columns({f"{n}_{how}": n for n, how in sums.items()})
    return found.append_column("client_id", pa.nulls(found.num_rows, pa.string()))


class _Sums:
    """Sums over a table, one value per group; `place`: the group of each row, one of n."""

    def __init__(self, table, place, n):
        self.table, self.place, self.n = table, place, n

    def _aggregate(self, values, how):
        rows = pa.table({"group": self.place, "value": values})
        found = rows.group_by("group", use_threads=False).aggregate([("value", how)])
        at = np.full(self.n, -1)
        at[found["group"].to_numpy()] = np.arange(found.num_rows)
        return found[f"value_{how}"].take(pa.array(at, mask=at < 0))

    def of(self, name, how):
        """sum, min or max of a column; null of a group that has none."""
        return self._aggregate(self.table[name], how)

    def number(self, name, how):
        """count or count_distinct of a column, nulls apart."""
        return pc.fill_null(self._aggregate(self.table[name], how), 0)

    def where(self, yes, name=None):
        """In how many rows something is so, or the sum of a column over them; 0 if none."""
        found = pc.fill_null(yes, False).to_numpy()
        count = self.table[name].to_numpy() if name else np.ones(len(found), np.int64)
        out = np.zeros(self.n, np.int64)
        np.add.at(out, self.place[found], count[found])
        return pa.array(out)

    def latency(self, mine):
        """{name: values}: quantiles, and the greatest, of the rows that are `mine`."""
        kept = pc.and_(mine, pc.is_valid(self.table["latency_ms"]))
        columns = (self.table[n].filter(kept).to_numpy()
                   for n in ("latency_ms", "messages", "longest_ms"))  # fmt: skip
        place = self.place[kept.to_numpy()]
        found = quantiles(place, *columns, self.n, _PERCENTS)
        out = {f"p{percent}": pa.array(row, mask=np.isnan(row))
               for percent, row in zip(_PERCENTS, found)}  # fmt: skip
        longest = pc.if_else(mine, self.table["longest_ms"], None)
        return {**out, "max": self._aggregate(longest, "max")}


def _grouped(tables, groups):
    """(sums over each table, columns of the groups)."""
    keys = pa.concat_tables([t.select(groups) for t in tables.values()])
    place, words = np.zeros(keys.num_rows, np.int64), {}
    for name in groups:
        words[name] = pc.dictionary_encode(keys[name], null_encoding="encode").combine_chunks()
        number = words[name].indices.to_numpy()
        place = place * (1 + number.max(initial=0)) + number
    _, first, place = np.unique(place, return_index=True, return_inverse=True)
    ends = np.cumsum([t.num_rows for t in tables.values()])[:-1]
    sums = {name: _Sums(table, mine, len(first))
            for (name, table), mine in zip(tables.items(), np.split(place, ends))}  # fmt: skip
    return sums, {n: w.take(pa.array(first)).dictionary_decode() for n, w in words.items()}


def _exchanges(latencies, side, lacking):
    """How messages of one side went. lacking: groups of which the capture lacks a direction. Where
    it has no message there with an answer that could be in it, nothing is said of answers."""
    mine, out = pc.equal(latencies.table["sender"], side), {}
    counts = {}
    for name, outcome in (("acknowledged", ACKNOWLEDGED), ("unacknowledged", OPEN),
                          ("reused", REUSED), ("unseen", UNSEEN)):  # fmt: skip
        yes = pc.and_(mine, pc.equal(latencies.table["outcome"], outcome))
        counts[name] = latencies.where(yes, "messages")
    told = pc.add(pc.add(counts["acknowledged"], counts["unacknowledged"]), counts["reused"])
    unknown = pc.and_(lacking, pc.equal(told, 0))
    for name, count in counts.items():
        known = count if name == "unseen" else pc.if_else(unknown, None, count)
        out[f"{side}_{name}"] = known
    out[f"{side}_retransmissions"] = latencies.where(mine, "retransmissions")
    found = latencies.latency(mine)
    return out | {f"{side}_latency_{name}_ms": values for name, values in found.items()}


def schema(name):
    """The columns of the table `name`, as summary() makes them."""
    return summary(name, {table: columns.empty_table().select(NEEDED[table])
                          for table, columns in TABLES.items()}).schema  # fmt: skip


def summary(name, tables):
    """The table `name`: devices (one row per client id and broker; a client whose id was not seen:
    per broker, id null) or brokers. tables: {name: its rows, with the columns NEEDED}. Latency of
    `client` is the broker's own: from PUBLISH to PUBACK."""
    sums, columns = _grouped(tables, GROUPS[name])
    connections, broken = sums["connections"], sums["violations"]
    code, ended = connections.table["return_code"], connections.table["ended"]
    columns |= {
        "connections": connections.number("connection", "count"),
        "first": connections.of("first", "min"),
        "last": connections.of("last", "max"),
        "refused": connections.where(pc.greater(code, 0)),
        "reset": connections.where(pc.starts_with(ended, "RST")),
        "open_at_end": connections.where(pc.equal(ended, "open")),
        "pings": connections.of("pings", "sum"),
        "longest_silence_s": connections.of("longest_silence_s", "max"),
    }
    for side in WAYS:
        columns |= {f"{side}_{n}": connections.of(f"{side}_{n}", "sum") for n in _SUMMED}
    if name == "devices":
        columns["keep_alive"] = connections.of("keep_alive", "max")
    else:
        columns["clients"] = connections.number("client_id", "count_distinct")
    lacking = pc.greater(connections.where(pc.is_valid(connections.table["unseen"])), 0)
    for side in WAYS:
        columns |= _exchanges(sums["latencies"], side, lacking)
    silent = broken.table["keep_alive"]
    columns["keep_alive_violations"] = broken.where(silent)
    columns["protocol_violations"] = broken.where(pc.invert(silent))
    return pa.table(columns)
