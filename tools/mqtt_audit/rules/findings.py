"""What an engineer looks for, as findings: who, what, by which rule, in which frames.

Knows: the tables of connections and of latencies. Must not know: files, how the tables came about.

Each finding has a rule with its numbers, which REFERENCE.md repeats; nothing is held against what
keeps below them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compiled.layout import FLOOD, FLOOD_S
from ..flows.quantiles import by_group
from ..mqtt.reasons import CREDENTIALS
from . import clock
from .why import ANSWERS

TIME = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000  #: in the us of the tables
SHOWN = 20  #: frames that are named for one finding
EVIDENCE = pa.list_(pa.struct([("file", pa.string()), ("frame", pa.int64())]))
FINDINGS = pa.schema([
    ("finding", pa.string()), ("who", pa.string()), ("broker", pa.string()), ("first", TIME),
    ("last", TIME), ("count", pa.int64()), ("what", pa.string()), ("rule", pa.string()),
    ("evidence", EVIDENCE),
])  # fmt: skip

#: (times, seconds) of what is told when it happens so often in so long.
STORM, PUSHED, GUESSED = (10, 60), (3, 300), (10, 300)
SLOW_S, SLOW = 10, 5  #: seconds without a whole CONNECT, connections at once
BURST, BURST_TIMES, BURST_S = 100, 20, 60  #: in a second, times the mean, seconds of connection
LATE_MS, LATE_OF = 1000, 100  #: 99th percentile of acknowledgements, of so many
RESENT, RESENT_OF = 0.05, 100  #: share of the segments, of so many
RULES = {
    "reconnect storm": f"{STORM[0]} or more connections of one client id within {STORM[1]} s, "
                       "accepted and not ended by DISCONNECT",
    "clients push each other out": f"{PUSHED[0]} or more times within {PUSHED[1]} s the broker "
                                   "ends a connection without DISCONNECT of its client within a "
                                   "second after another one of its client id begins",
    "login guessing": f"{GUESSED[0]} or more refusals of user name, password or rights within "
                      f"{GUESSED[1]} s, of one client address",
    "no broker": "a server answers a client's MQTT with HTTP, TLS or other text",
    "slow handshake": f"{SLOW} or more connections of one client address at once that have sent "
                      f"no whole CONNECT after {SLOW_S} s",
    "flood": f"{FLOOD} messages a second or more for {FLOOD_S} s or longer, on one connection",
    "burst": f"{BURST} or more messages in one second of the capture's clock, {BURST_TIMES} times "
             f"the connection's mean or more, on a connection of {BURST_S} s or longer",
    "slow acknowledgements": f"more than one of 100 takes longer than {LATE_MS} ms, of "
                            f"{LATE_OF} or more",
    "lossy link": f"{RESENT:.0%} of the segments of a side or more are sent again by TCP, of "
                  f"{RESENT_OF} or more",
}  # fmt: skip


def _numbers(column, none=0):
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return pc.fill_null(column, none).to_numpy()


def _codes(column):
    plain = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
    found = pc.dictionary_encode(plain, null_encoding="encode")
    return pa.chunked_array(found).combine_chunks().indices.to_numpy(zero_copy_only=False)


class _Found:
    def __init__(self, connections, steps):
        self.steps = steps
        self.table = connections.sort_by([(n, "ascending") for n in ("first", "connection")])
        self.first, self.last = (_numbers(self.table[n]) for n in ("first", "last"))
        self.rows = []

    def yes(self, mask):
        return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)

    def column(self, name):
        return self.table[name].to_pylist()

    def timed(self, end):
        """Of which connections the clock is believed from the beginning up to `end`."""
        allowed = _numbers(self.table["keep_alive"]).astype(np.int64) * SECOND * 1000
        return clock.timed(self.first * 1000, end * 1000 + 999, allowed, self.steps)

    def add(self, finding, who, at, what, frames=None):
        """at: the rows of connections that show it; frames: others than their first ones."""
        table = self.table.take(pa.array(at[:SHOWN]))
        frames = frames or table["frame"].to_pylist()
        self.rows.append({
            "finding": finding, "who": who, "broker": self.table["broker"][int(at[0])].as_py(),
            "first": int(self.first[at].min()), "last": int(self.last[at].max()),
            "count": len(at), "what": what, "rule": RULES[finding],
            "evidence": [{"file": f, "frame": n}
                         for f, n in zip(table["file"].to_pylist(), frames)],
        })  # fmt: skip


def _crowded(key, time, times, seconds):
    """[rows], one for each key of which so many events lie within so many seconds: those events.
    key, time: of each event, in the order of time."""
    order = np.lexsort((time, key))
    key, when = key[order], time[order]
    far = times - 1
    if len(key) <= far:
        return
    dense = (key[far:] == key[:-far]) & (when[far:] - when[:-far] <= seconds * SECOND)
    inside = np.zeros(len(key) + 1, np.int64)
    at = np.flatnonzero(dense)
    np.add.at(inside, at, 1)
    np.add.at(inside, at + times, -1)
    inside = np.cumsum(inside)[:-1] > 0
    for one in np.unique(key[inside]).tolist():
        yield order[inside & (key == one)]


def _hosts(table):
    return pc.replace_substring_regex(table["client"], r":\d+$", "")


def _named(found):
    """Which connections have a client id, and a number for each id and broker."""
    ids, brokers = _codes(found.table["client_id"]), _codes(found.table["broker"])
    key = ids.astype(np.int64) * (1 + brokers.max(initial=0)) + brokers
    return found.yes(pc.not_equal(found.table["client_id"], "")), key


def _storms(found):
    named, key = _named(found)
    accepted = found.yes(pc.equal(found.table["return_code"], 0))
    # DISCONNECT may be in bytes that are missing.
    ended = found.yes(found.table["disconnect"]) | (_numbers(found.table["client_lost"]) > 0)
    some = np.flatnonzero(named & accepted & ~ended & found.yes(found.table["begun"]))
    for at in _crowded(key[some], found.first[some], *STORM):
        at = some[at]
        who = found.table["client_id"][int(at[0])].as_py()
        seconds = (found.first[at].max() - found.first[at].min()) / SECOND
        found.add("reconnect storm", who, at, f"{len(at)} connections within {seconds:.1f} s")


def _pushed(found):
    named, key = _named(found)
    some = np.flatnonzero(named)
    some = some[np.lexsort((found.first[some], key[some]))]
    ends = pa.array(["FIN by broker", "RST by broker"])
    ended = found.yes(pc.is_in(found.table["ended"].cast(pa.string()), ends))
    ended &= ~found.yes(found.table["disconnect"])  # the broker closes then, and has to
    before, after = some[:-1], some[1:]
    closed = _numbers(found.table["closed"], -1)
    first, last = found.first[after], np.where(closed < 0, found.last, closed)[before]
    out = ((key[before] == key[after]) & ended[before] & (first <= last)
           & (last <= first + SECOND))  # fmt: skip
    after = after[out]
    order = np.argsort(found.first[after], kind="stable")
    after = after[order]
    for at in _crowded(key[after], found.first[after], *PUSHED):
        at = after[at]
        hosts = sorted(set(_hosts(found.table).take(pa.array(at)).to_pylist()))
        found.add("clients push each other out", found.table["client_id"][int(at[0])].as_py(), at,
                  f"{len(at)} times, by clients at {', '.join(hosts[:4])}")  # fmt: skip


def _guessed(found):
    codes = _numbers(found.table["return_code"], -1)
    some = np.flatnonzero(np.isin(codes, CREDENTIALS))
    hosts = _hosts(found.table)
    for at in _crowded(_codes(hosts)[some], found.first[some], *GUESSED):
        at = some[at]
        ids = len(set(found.table["client_id"].take(pa.array(at)).to_pylist()))
        found.add("login guessing", hosts[int(at[0])].as_py(), at,
                  f"{len(at)} refusals, with {ids} client id{'s' * (ids > 1)}")  # fmt: skip


def _strangers(found):
    why, broker = found.table["why"], _codes(found.table["broker"])
    for answer in ANSWERS.values():
        some = np.flatnonzero(found.yes(pc.equal(why, answer)))
        for one in np.unique(broker[some]).tolist():
            at = some[broker[some] == one]
            who = sorted({i or c for i, c in zip(
                *(found.table[n].take(pa.array(at)).to_pylist() for n in ("client_id", "client"))
            )})  # fmt: skip
            clients = who[0] if len(who) == 1 else f"{len(who)} clients"
            times = f"{len(at)} connection{'s' * (len(at) > 1)}"
            found.add("no broker", clients, at, f"{answer}, on {times}")


def _held(found):
    table = found.table
    whole = (_numbers(table["client_lost"]) == 0) & found.yes(table["begun"])
    # A broker that sends packets had a CONNECT. Without one the capture lacks what clients sent.
    took = _numbers(table["handshake_ms"], -1.0)
    whole &= (_numbers(table["broker_packets"]) == 0) | (took >= 0)
    none = found.yes(pc.and_(pc.is_null(table["protocol"]), pc.is_null(table["client_id"])))
    until = np.where(none, (found.last - found.first) / SECOND, 0)
    waited = np.where(took >= 0, took / 1000, until)
    end = found.first + (waited * SECOND).astype(np.int64)
    some = np.flatnonzero(whole & (waited >= SLOW_S) & found.timed(end))
    hosts = _hosts(table)
    host = _codes(hosts)
    for one in np.unique(host[some]).tolist():
        mine = some[host[some] == one]
        begin = found.first[mine]  # in the order of time
        until = end[mine]
        gone = np.searchsorted(np.sort(until), begin)
        now = begin[int(np.argmax(np.arange(1, len(mine) + 1) - gone))]
        most = np.flatnonzero((begin <= now) & (until >= now))
        if len(most) >= SLOW:
            found.add("slow handshake", hosts[int(mine[0])].as_py(), mine[most],
                      f"{len(most)} connections at once, the longest for "
                      f"{waited[mine[most]].max():.0f} s")  # fmt: skip


def _rates(found):
    seconds = np.maximum((found.last - found.first) / SECOND, 1e-6)
    who = [i or c for i, c in zip(found.column("client_id"), found.column("client"))]
    timed = found.timed(found.last)
    for side in ("client", "broker"):
        messages = sum(_numbers(found.table[f"{side}_publish_{qos}"]) for qos in (0, 1, 2))
        peak, mean = _numbers(found.table[f"{side}_peak"]), messages / seconds
        many, lasted = (_numbers(found.table[f"{side}_{n}"]) for n in ("flood", "flood_s"))
        flood = many > 0
        burst = (peak >= BURST) & (peak >= BURST_TIMES * mean) & (seconds >= BURST_S)
        burst &= timed & ~flood
        for name, mask, number, over, at in (
            ("flood", flood, many, lasted, "flood"), ("burst", burst, messages, seconds, "peak"),
        ):
            frames = found.column(f"{side}_{at}_frame") if mask.any() else None
            for k in np.flatnonzero(mask).tolist():
                what = (f"{number[k]:,} messages of the {side} in {over[k]:.1f} s, "
                        f"{peak[k]:,} in one second")  # fmt: skip
                found.add(name, who[k], np.array([k]), what, frames[k] and [frames[k]])


def _links(found):
    who = [i or c for i, c in zip(found.column("client_id"), found.column("client"))]
    for side in ("client", "broker"):
        sent, again, dups = (_numbers(found.table[f"{side}_{n}"])
                             for n in ("segments", "resent", "dup"))  # fmt: skip
        for k in np.flatnonzero((sent >= RESENT_OF) & (again >= RESENT * sent)).tolist():
            found.add("lossy link", who[k], np.array([k]),
                      f"{again[k]:,} of {sent[k]:,} segments of the {side} sent again, beside "
                      f"{dups[k]:,} PUBLISH with DUP")  # fmt: skip


def _late(found, latencies):
    ids, brokers = found.column("client_id"), found.column("broker")
    clients = found.column("client")
    for row in by_group(latencies, "client_id", "broker"):
        if row["messages"] < LATE_OF or row["p99"] <= LATE_MS:
            continue
        mine = [k for k, one in enumerate(zip(ids, brokers))
                if one == (row["client_id"], row["broker"])]  # fmt: skip
        if mine:
            by = "broker" if row["sender"] == "client" else "client"
            what = (f"QoS {row['qos']}, by the {by}: half of {row['messages']:,} within "
                    f"{row['p50']:.1f} ms, 99 % within {row['p99']:,.0f} ms")  # fmt: skip
            # Who began before the capture has no known id; several of them are one group.
            unknown = {clients[k] for k in mine}
            who = row["client_id"] or (f"{len(unknown)} clients without an id in the capture"
                                       if len(unknown) > 1 else min(unknown))  # fmt: skip
            found.add("slow acknowledgements", who, np.array(mine), what)


def findings(connections, latencies, steps=clock.NONE):
    """The table of findings, those of one kind together. connections, latencies: those tables;
    steps: where the captures' clock is not to be believed (clock.py)."""
    found = _Found(connections, steps)
    if connections.num_rows:
        for look in (_storms, _pushed, _guessed, _strangers, _held, _rates, _links):
            look(found)
        _late(found, latencies)
    rows = sorted(found.rows, key=lambda r: (list(RULES).index(r["finding"]), r["first"]))
    whole = pa.schema([(f.name, pa.int64() if f.type == TIME else f.type) for f in FINDINGS])
    return pa.Table.from_pylist(rows, whole).cast(FINDINGS)
