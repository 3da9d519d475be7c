"""The HTML report of an audit, from its tables.

Reads Parquet with pyarrow, needs no Spark. Everything that came from the wire is escaped.
"""

import base64
import io
import json
from datetime import datetime, timezone
from pathlib import Path

import jinja2
import markupsafe
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ..flows.quantiles import by_group
from ..rules.why import REFUSED
from . import template
from .columns import MARK, TABLES
from .lines import clean
from .tallies import BINS

SHOWN = 200  #: rows of a list; the tables have all
_NAMES = ("client_id", "file")
_TEXTS = (*_NAMES, "what", "what_min", "why")  #: lines of them are broken anywhere
LONG = 80  #: characters of a name that are shown
_BAD = ("unacknowledged", "reused", "violations", "lost", "refused")


def _read(root, name, columns=None):
    if not Path(root, name).exists():  # nothing came that belongs there
        return TABLES[name].empty_table()
    return pq.read_table(Path(root, name), columns=columns)


def _png(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=100)
    return base64.b64encode(out.getvalue()).decode()


def _figure():
    from matplotlib.figure import Figure  # not pyplot, which keeps every figure

    figure = Figure((6.2, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def _power(value, _):
    """A tick of a scale of powers of ten."""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _log(axis):
    """Ticks of a scale of powers of ten: plain numbers, nothing in between."""
    from matplotlib.ticker import NullLocator

    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_power)


def _bars(counts, xlabel):
    """Bars of {name: count}, the greatest on top."""
    figure, axis = _figure()
    names = sorted(counts, key=counts.get)
    bars = axis.barh(names, [counts[n] for n in names], color="#4878a8")
    axis.bar_label(bars, [f"{counts[n]:,}" for n in names], padding=3, fontsize=8)
    axis.set(xlabel=xlabel, xscale="log", xlim=(0.7, None))
    _log(axis.xaxis)
    axis.margins(x=0.15)
    return _png(figure)


def _counts(rows, name, counted):
    """{value of a column: sum of another one}."""
    found = rows.group_by(name).aggregate([(counted, "sum")]).to_pylist()
    return {row[name]: row[f"{counted}_sum"] for row in found}


def over_time(root):
    """Packets per second by type: from `timeline`. None if there are none."""
    rows = _read(root, "timeline").group_by(["type", "time"]).aggregate([("packets", "sum")])
    if not rows.num_rows:
        return None
    rows = rows.sort_by("time")
    times = np.unique(rows["time"].cast(pa.int64()).to_numpy()) / 1e6
    ahead = np.diff(times)
    width = ahead.min() if len(ahead) else 1
    breaks = np.flatnonzero(ahead > max(BINS * width, 86_400))
    ahead[breaks] = 5 * width
    place = np.concatenate([[0], np.cumsum(ahead)])
    counts = {}
    for name in rows["type"].unique().to_pylist():
        mine = rows.filter(pc.equal(rows["type"], name))
        at = np.searchsorted(times, mine["time"].cast(pa.int64()).to_numpy() / 1e6)
        counts[name] = np.bincount(at, mine["packets_sum"].to_numpy(), len(times))
    figure, axis = _figure()
    for name in sorted(counts, key=lambda name: counts[name].sum(), reverse=True)[:6]:
        axis.plot(place, counts[name] / width, label=name, lw=1.2)
    for at in breaks:
        axis.axvline((place[at] + place[at + 1]) / 2, color="#888", ls="--", lw=1)
    axis.set(xlabel="seconds of the capture" + " (without the time between captures)" * bool(len(
             breaks)), ylabel="packets/s", ylim=(0, None))
    axis.legend(frameon=False, ncol=3, fontsize=9, loc="lower center",  # above: lines are anywhere
                bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    return _png(figure)


def types(root):
    """How many packets of each type there are: from `timeline`. None if there are none."""
    rows = _read(root, "timeline")
    return _bars(_counts(rows, "type", "packets"), "packets") if rows.num_rows else None


def _acknowledged(root):
    """Rows of `latencies` whose messages have a latency, and all of its rows."""
    rows = _read(root, "latencies")
    return rows.filter(pc.is_valid(rows["latency_ms"])), rows


def latency(root):
    """How long acknowledgements took, as cumulative shares: from `latencies`. None if there are
    none."""
    done, _ = _acknowledged(root)
    if not done.num_rows:
        return None
    done = done.sort_by("latency_ms")
    figure, axis = _figure()
    found = np.log10(np.maximum(done["latency_ms"].to_numpy(), 1e-2))
    whole = 10 ** np.floor(found.min()), 10 ** (np.floor(found.max()) + 1)
    for sender, answerer in (("client", "broker"), ("broker", "client")):
        for qos, packet in ((1, "PUBACK"), (2, "PUBCOMP")):
            mine = done.filter(pc.and_(pc.equal(done["sender"], sender),
                                       pc.equal(done["qos"], qos)))  # fmt: skip
            if mine.num_rows:
                share = np.cumsum(mine["messages"].to_numpy())
                took = np.maximum(mine["latency_ms"].to_numpy(), 1e-2)
                # From 0 % to 100 %, also of one message.
                axis.step([whole[0], *took, whole[1]], [0, *(share / share[-1]), 1],
                          where="post", label=f"{packet} by the {answerer}")  # fmt: skip
    axis.set(xscale="log", xlabel="ms from PUBLISH", xlim=whole, ylabel="share of messages",
             ylim=(0, 1.02))  # fmt: skip
    _log(axis.xaxis)
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    return _png(figure)


def outcomes(root):
    """What became of the messages of QoS 1 and 2: from `latencies`. None if none was
    acknowledged."""
    done, rows = _acknowledged(root)
    return _bars(_counts(rows, "outcome", "messages"),
                 "messages of QoS 1 and 2") if done.num_rows else None  # fmt: skip


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(name):
    """A name as far as there is room for it: its beginning and its end."""
    if len(name) <= LONG:
        return name
    return f"{name[: LONG - 20]} … {name[-12:]} ({len(name)} characters)"


def _list(title, table, columns, order, rising=()):
    """(title, heads, rows), each cell with its class: l for a text, k for a word, bad for a bad
    sign; the worst rows first: by `order`, from the greatest on. rising: what orders those that
    are equal. All columns come after that: the tables' own order is that in which tasks ended."""
    left = {f.name: "l" if f.name in _TEXTS else "k"
            for f in table.schema if pa.types.is_string(f.type)}  # fmt: skip
    if order or rising:
        then = [n for n in dict.fromkeys([*rising, *columns]) if n not in order]
        keys = [(n, "descending") for n in order] + [(n, "ascending") for n in then]
        table = table.sort_by(keys)
    if table.num_rows > SHOWN:
        title += f" ({SHOWN} of {table.num_rows:,})"
    rows = [
        [(_short(_cell(row[n])) if n in _NAMES else _cell(row[n]),
          left.get(n, "bad" if row[n] and n.endswith(_BAD) else ""))
         for n in columns]  # fmt: skip
        for row in table.slice(0, SHOWN).select(list(columns)).to_pylist()
    ]
    return title, [(h, left.get(n, "")) for n, h in columns.items()], rows


def _counted(table, *by):
    """Rows per group, and what the first of them says."""
    said = [("what", "min")] if "what" in table.column_names else []
    return table.group_by(list(by)).aggregate([([], "count_all"), *said])


def _with_lost(table):
    """A summary with the bytes lost of both sides."""
    both = (pc.fill_null(table[f"{side}_lost"], 0) for side in ("client", "broker"))
    return table.append_column("lost", pc.add(*both))


_SUMMARY = {
    "connections": "connections", "client_packets": "packets from clients",
    "broker_packets": "to clients", "client_acknowledged": "acknowledged",
    "client_unacknowledged": "never", "client_unseen": "answers not in the capture",
    "client_retransmissions": "sent again",
    "client_latency_p50_ms": "latency p50 ms", "client_latency_p99_ms": "p99",
    "keep_alive_violations": "keep alive broken", "protocol_violations": "other violations",
    "lost": "bytes lost",
}  # fmt: skip


def _broken(root):
    """What is wrong with what was said."""
    violations = _read(root, "violations", ["protocol", "statement", "what", "sender",
                                            "client_id", "file", "frame", "time"])  # fmt: skip
    return [
        _list("Violations", _counted(violations, "protocol", "statement", "sender"),
              {"protocol": "MQTT", "statement": "statement", "sender": "by",
               "what_min": "for instance", "count_all": "times"}, ["count_all"]),
        _list("Violations by device",
              _counted(violations, "client_id", "sender", "protocol", "statement"),
              {"client_id": "client id", "protocol": "MQTT", "statement": "statement",
               "sender": "by", "count_all": "times"}, ["count_all"]),
        _list("Where rules were broken", violations,
              {"file": "file", "frame": "frame", "time": "time (UTC)", "client_id": "client id",
               "sender": "by", "protocol": "MQTT", "statement": "statement", "what": "what"}, [],
              ["time"]),
    ]  # fmt: skip


def _connections(root):
    """Who, version, keep alive, duration, messages each way, why it ended: a line each."""
    names = [f"{side}_publish_{qos}" for side in ("client", "broker") for qos in (0, 1, 2)]
    found = _read(root, "connections", [
        "client_id", "client", "broker", "protocol", "keep_alive", "first", "last", "why",
        "client_resent", "broker_resent", "client_dup", *names])  # fmt: skip
    took = pc.subtract(found["last"].cast(pa.int64()), found["first"].cast(pa.int64()))
    found = found.append_column("seconds", pc.divide(took.cast(pa.float64()), 1e6))
    for side, at in (("sent", 0), ("received", 3)):
        total = pc.add(pc.add(found[names[at]], found[names[at + 1]]), found[names[at + 2]])
        found = found.append_column(side, total)
    found = found.append_column("resent", pc.add(found["client_resent"], found["broker_resent"]))
    found = found.filter(pc.not_equal(found["why"], REFUSED))  # these have a list of their own
    return _list("Connections", found, {
        "client_id": "client id", "why": "why it ended", "first": "began (UTC)",
        "seconds": "seconds", "sent": "messages sent", "received": "received",
        "protocol": "MQTT", "keep_alive": "keep alive", "client": "client", "broker": "broker",
        "resent": "TCP sent again", "client_dup": "with DUP"}, [], ["first"])  # fmt: skip


def _hellos(root):
    """What the hellos of TLS tell: no list if there is no TLS."""
    names = ["broker", "tls_version", "tls_server_name", "tls_ja4", "tls_ja3"]
    found = _read(root, "connections", ["protocol", "client", *names])
    found = found.filter(pc.fill_null(pc.equal(found["protocol"], "TLS"), False))
    if not found.num_rows:
        return []
    found = found.group_by(names).aggregate([([], "count_all"), ("client", "min")])
    return [_list("TLS: what is told before it is encrypted", found, {
        "broker": "broker", "tls_version": "version", "tls_server_name": "server name",
        "tls_ja4": "JA4", "tls_ja3": "JA3", "count_all": "connections",
        "client_min": "for instance of"}, ["count_all"])]  # fmt: skip


def _quantiles(root):
    """Latency of QoS 1 and 2 by quantile."""
    rows = list(by_group(_read(root, "latencies"), "broker"))
    schema = pa.schema([("broker", pa.string()), ("sender", pa.string()), ("qos", pa.int64()),
                        ("messages", pa.int64()), *((n, pa.float64()) for n in (
                            "p50", "p90", "p99", "longest_ms"))])  # fmt: skip
    return _list("Latency of QoS 1 and 2, from PUBLISH to its last acknowledgement",
                 pa.Table.from_pylist(rows, schema),
                 {"broker": "broker", "sender": "sender", "qos": "QoS", "messages": "messages",
                  "p50": "half within ms", "p90": "90 % within", "p99": "99 % within",
                  "longest_ms": "longest"}, ["messages"])  # fmt: skip


def _summaries(root):
    devices, brokers = (_with_lost(_read(root, name)) for name in ("devices", "brokers"))
    unseen = (pc.sum(brokers["client_unseen"]).as_py() or 0) > 0
    shown = {n: h for n, h in _SUMMARY.items() if unseen or n != "client_unseen"}
    worst = ["protocol_violations", "keep_alive_violations", "client_unacknowledged",
             "client_packets"]  # fmt: skip
    return [
        _list("Brokers", brokers, {"broker": "broker", "clients": "clients", **shown}, worst),
        _list("Devices", devices, {"client_id": "client id", "broker": "broker", **shown},
              worst),
    ]  # fmt: skip


def _unheard(root):
    """TCP connections that nobody accepted: a line for each pair of hosts."""
    found = _read(root, "connections", ["client", "broker", "first", "last", "why"])
    found = found.filter(pc.equal(found["why"], REFUSED))
    hosts = pc.replace_substring_regex(found["client"], r":\d+$", "")
    found = found.set_column(0, "client", hosts).group_by(["client", "broker"]).aggregate(
        [("first", "min"), ("last", "max"), ([], "count_all")])  # fmt: skip
    return _list("Refused TCP connections", found, {
        "client": "client", "broker": "broker", "first_min": "first (UTC)",
        "last_max": "last", "count_all": "times"}, ["count_all"])  # fmt: skip


def _problems(root):
    refused = _read(root, "connections", ["client_id", "client", "broker", "first", "return_code"])
    refused = refused.filter(pc.greater(refused["return_code"], 0))
    problems = _read(root, "problems", ["problem", "file", "frame", "client_id", "what"])
    problems = problems.append_column("whole", pc.is_null(problems["frame"]))  # these come first
    return [
        _list("Refused connections", refused,
              {"client_id": "client id", "client": "client", "broker": "broker",
               "first": "time (UTC)", "return_code": "return code"}, [], ["first"]),
        _unheard(root),
        _list("Problems of the capture", _counted(problems, "problem"),
              {"problem": "problem", "what_min": "for instance", "count_all": "rows"},
              ["count_all"]),
        _list("Where the capture has problems", problems,
              {"file": "file", "frame": "frame", "client_id": "client id", "what": "what"},
              ["whole"]),
    ]  # fmt: skip


def _findings(root):
    """What of the findings is shown."""
    for row in _read(root, "findings").slice(0, SHOWN).to_pylist():
        several = len({e["file"] for e in row["evidence"]}) > 1
        at = [(f"{_short(Path(e['file']).name)}: " if several else "") + str(e["frame"])
              for e in row["evidence"]]  # fmt: skip
        here = "" if several else f" of {_short(Path(row['evidence'][0]['file']).name)}"
        yield {**row, "first": _cell(row["first"]), "last": _cell(row["last"]),
               "who": _short(row["who"]), "frames": ", ".join(at) + here}  # fmt: skip


def _per_file(root, name):
    """{file: number of rows}. The names stay what they are in the table, numbers: there may be
    many rows."""
    if not Path(root, name).exists():
        return {}
    found = pq.read_table(Path(root, name), columns=["file"], read_dictionary=["file"])["file"]
    return {row["values"]: row["counts"]
            for row in pc.value_counts(found.unify_dictionaries()).to_pylist()}  # fmt: skip


def packets_of(root):
    """{file: number of its packets}."""
    return _per_file(root, "packets")


def _files(root, facts, packets):
    counts = {"packets": packets,
              **{name: _per_file(root, name) for name in ("violations", "problems")}}  # fmt: skip
    rows = []
    for f in facts["files"]:
        known = f["first"] is not None
        rows.append({
            **{name: found.get(f["file"], 0) for name, found in counts.items()},
            "file": Path(f["file"]).name, "frames": f["frames"], "segments": f["segments"],
            "first": datetime.fromtimestamp(f["first"] / 1e9, timezone.utc) if known else None,
            "seconds": (f["last"] - f["first"]) / 1e9 if known else None})  # fmt: skip
    numbers = [(n, pa.int64()) for n in ("frames", "segments", *counts)]
    schema = pa.schema([("file", pa.string()), ("first", pa.timestamp("us", "UTC")),
                        ("seconds", pa.float64()), *numbers])  # fmt: skip
    return _list("Files", pa.Table.from_pylist(rows, schema), {
        "file": "file", "frames": "frames", "segments": "TCP segments", "first": "first (UTC)",
        "seconds": "seconds", "packets": "MQTT packets", "violations": "violations",
        "problems": "problems"}, [])  # fmt: skip


def _rows(root, name):
    return ds.dataset(Path(root, name)).count_rows()


def _clean(value):
    plain = isinstance(value, str) and not isinstance(value, markupsafe.Markup)
    return clean(value) if plain else value


#: Figures of the report: from the folder of the tables to a PNG in base64.
FIGURES = {"over_time": over_time, "types": types, "latency": latency, "outcomes": outcomes}
#: What of the report takes long, and needs no other part of it.
PARTS = {**FIGURES, "packets_of": packets_of}


def build(root, out, parts=None):
    """Write the report on the audit in the folder `root` to the file `out`. parts: its PARTS, if
    they are made already."""
    facts = json.loads(Path(root, MARK).read_text())
    parts = parts or {name: make(root) for name, make in PARTS.items()}
    page = jinja2.Environment(autoescape=True, finalize=_clean).from_string(
        template.TABLE + template.PAGE)  # fmt: skip
    text = page.render(
        files=facts["files"], ports=facts["ports"], cut=facts["cut"], policy=template.POLICY,
        script=markupsafe.Markup(template.SCRIPT),
        frames=sum(f["frames"] for f in facts["files"]),
        packets=_rows(root, "packets"), connections=_rows(root, "connections"),
        flows=_rows(root, "flows"), findings=list(_findings(root)),
        hidden=max(0, _rows(root, "findings") - SHOWN), broken=_broken(root),
        violations=_rows(root, "violations"),
        lists=[_connections(root), *_hellos(root), _quantiles(root)],
        rest=[*_summaries(root), *_problems(root), _files(root, facts, parts["packets_of"])],
        **{name: parts[name] for name in FIGURES},
    )  # fmt: skip
    Path(out).write_text(text)
