"""The HTML report of an audit, from its tables.

Reads Parquet with pyarrow, needs no Spark. Everything that came from the wire is escaped.
"""

import base64
import io
import json
from datetime import datetime, timezone
from pathlib import Path

import jinja2
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from .columns import MARK, TABLES
from .tallies import BINS

SHOWN = 50  #: rows of a list; the tables have all
PAGE = """<!doctype html>
<meta charset="utf-8"><title>Wire audit</title>
<style>
 body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; color: #222 }
 table { border-collapse: collapse; width: 100%; margin-bottom: 1.5em; font-size: 14px }
 th, td { padding: .25em .6em; text-align: right; vertical-align: top }
 th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd }
 th:first-child, td:first-child, .l { text-align: left } .bad { color: #b00; font-weight: 600 }
 td { white-space: nowrap }
 td.l { white-space: normal; overflow-wrap: anywhere; min-width: 9em; unicode-bidi: isolate }
 th.k, td.k { text-align: left } img { max-width: 100% }
</style>
<h1>Wire audit</h1>
<p>Files: {{ files|length }}. {{ "{:,}".format(frames) }} frames,
{{ "{:,}".format(packets) }} MQTT packets, {{ "{:,}".format(connections) }} connections,
{{ "{:,}".format(flows) }} messages of QoS 1 and 2.</p>
{% if not packets %}<p class="bad">No MQTT was found. Brokers are those on port
{{ ports|join(", ") }} and whoever is sent a CONNECT; others, of connections that began before the
capture, are found by --port.{% if not frames %} The captures have no frames at all.{% endif %}</p>
{% endif %}{% if over_time %}<img alt="packets over time"
 src="data:image/png;base64,{{ over_time }}">
{% endif %}{% if latency %}<img alt="latency" src="data:image/png;base64,{{ latency }}">{% endif %}
{% for title, head, rows in lists %}{% if rows %}<h2>{{ title }}</h2>
<table><tr>{% for h, kind in head %}
<th class="{{ kind }}">{{ h }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell, kind in row %}
<td class="{{ kind }}">{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>{% endif %}{% endfor %}
<h2>Files</h2><table><tr><th>file</th><th>frames</th><th>TCP segments</th><th>first (UTC)</th>
<th>seconds</th>
<th>MQTT packets</th><th>violations</th><th>problems</th></tr>
{% for f in files %}<tr><td class="l">{{ f.file }}</td><td>{{ "{:,}".format(f.frames) }}</td>
<td>{{ "{:,}".format(f.segments) }}</td><td>{{ f.start }}</td><td>{{ f.seconds }}</td>
<td>{{ "{:,}".format(f.packets) }}</td>
<td{% if f.violations %} class="bad"{% endif %}>{{ "{:,}".format(f.violations) }}</td>
<td>{{ "{:,}".format(f.problems) }}</td></tr>
{% endfor %}</table>
"""
_NAMES = ("client_id", "file")
_TEXTS = (*_NAMES, "what", "what_min")  #: lines of them are broken anywhere
LONG = 80  #: characters of a name that are shown
_BAD = ("unacknowledged", "reused", "violations", "lost", "refused")


def _read(root, name, columns=None):
    if not Path(root, name).exists():  # nothing came that belongs there
        return TABLES[name].empty_table()
    return pq.read_table(Path(root, name), columns=columns)


def _png(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90)
    return base64.b64encode(out.getvalue()).decode()


def _figure(height):
    from matplotlib.figure import Figure  # not pyplot, which keeps every figure

    figure = Figure((13, height), layout="constrained")
    return figure, figure.subplots(1, 2)


def _plain(axis):
    axis.spines[["top", "right"]].set_visible(False)


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


def _bars(axis, counts, xlabel):
    """Bars of {name: count}, the greatest on top."""
    names = sorted(counts, key=counts.get)
    bars = axis.barh(names, [counts[n] for n in names], color="#4878a8")
    axis.bar_label(bars, [f"{counts[n]:,}" for n in names], padding=3, fontsize=8)
    axis.set(xlabel=xlabel, xscale="log", xlim=(0.7, None))
    _log(axis.xaxis)
    axis.margins(x=0.15)


def over_time(root):
    """Packets per second by type, and how many of each type there are: from `timeline`. None if
    there are none."""
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
    figure, (left, right) = _figure(4)
    totals = {name: int(found.sum()) for name, found in counts.items()}
    busiest = sorted(totals, key=totals.get, reverse=True)[:6]
    for name in busiest:
        left.plot(place, counts[name] / width, label=name, lw=1.2)
    for at in breaks:
        left.axvline((place[at] + place[at + 1]) / 2, color="#888", ls="--", lw=1)
    left.set(xlabel="seconds of the capture" + " (without the time between captures)" * bool(len(
             breaks)), ylabel="packets/s", ylim=(0, None))
    left.legend(frameon=False, ncol=3, fontsize=9, loc="lower center",  # above: lines are anywhere
                bbox_to_anchor=(0.5, 1.0))  # fmt: skip
    _bars(right, totals, "packets")
    _plain(left)
    _plain(right)
    return _png(figure)


def latency(root):
    """How long acknowledgements took, as cumulative shares: from `latencies`. None if there are
    none."""
    rows = _read(root, "latencies")
    done = rows.filter(pc.is_valid(rows["latency_ms"])).sort_by("latency_ms")
    if not done.num_rows:
        return None
    figure, (left, right) = _figure(3.6)
    for sender, answerer in (("client", "broker"), ("broker", "client")):
        for qos, packet in ((1, "PUBACK"), (2, "PUBCOMP")):
            mine = done.filter(pc.and_(pc.equal(done["sender"], sender),
                                       pc.equal(done["qos"], qos)))  # fmt: skip
            if mine.num_rows:
                share = np.cumsum(mine["messages"].to_numpy())
                left.step(np.maximum(mine["latency_ms"].to_numpy(), 1e-2), share / share[-1],
                          where="post", label=f"{packet} by the {answerer}")  # fmt: skip
    found = np.log10(np.maximum(done["latency_ms"].to_numpy(), 1e-2))
    whole = 10 ** np.floor(found.min()), 10 ** (np.floor(found.max()) + 1)
    left.set(xscale="log", xlabel="ms from PUBLISH", xlim=whole, ylabel="share of messages",
             ylim=(0, 1.02))  # fmt: skip
    _log(left.xaxis)
    left.grid(alpha=0.3)
    left.legend(frameon=False, fontsize=9)
    found = rows.group_by("outcome").aggregate([("messages", "sum")]).to_pylist()
    _bars(right, {r["outcome"]: r["messages_sum"] for r in found}, "messages of QoS 1 and 2")
    _plain(left)
    _plain(right)
    return _png(figure)


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


def _list(title, table, columns, order):
    """(title, heads, rows), each cell with its class: l for a text, k for a word, bad for a bad
    sign; the worst rows first."""
    left = {f.name: "l" if f.name in _TEXTS else "k"
            for f in table.schema if pa.types.is_string(f.type)}  # fmt: skip
    if order:
        table = table.sort_by([(n, "descending") for n in order])
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
    "client_unacknowledged": "never", "client_retransmissions": "sent again",
    "client_latency_p50_ms": "latency p50 ms", "client_latency_p99_ms": "p99",
    "keep_alive_violations": "keep alive broken", "protocol_violations": "other violations",
    "lost": "bytes lost",
}  # fmt: skip


def _lists(root):
    violations = _read(root, "violations", ["statement", "what", "sender", "client_id", "file",
                                            "frame", "time"])  # fmt: skip
    refused = _read(root, "connections", ["client_id", "client", "broker", "first", "return_code"])
    refused = refused.filter(pc.greater(refused["return_code"], 0))
    problems = _read(root, "problems", ["problem", "file", "frame", "client_id", "what"])
    devices, brokers = (_with_lost(_read(root, name)) for name in ("devices", "brokers"))
    worst = ["protocol_violations", "keep_alive_violations", "client_unacknowledged",
             "client_packets"]  # fmt: skip
    return [
        _list("Brokers", brokers, {"broker": "broker", "clients": "clients", **_SUMMARY}, worst),
        _list("Violations", _counted(violations, "statement", "sender"),
              {"statement": "statement", "sender": "by", "what_min": "for instance",
               "count_all": "times"}, ["count_all"]),
        _list("Violations by device", _counted(violations, "client_id", "sender", "statement"),
              {"client_id": "client id", "statement": "statement", "sender": "by",
               "count_all": "times"}, ["count_all"]),
        _list("Where rules were broken", violations.sort_by("time"),
              {"file": "file", "frame": "frame", "time": "time (UTC)", "client_id": "client id",
               "sender": "by", "statement": "statement", "what": "what"}, []),
        _list("Refused connections", refused.sort_by("first"),
              {"client_id": "client id", "client": "client", "broker": "broker",
               "first": "time (UTC)", "return_code": "return code"}, []),
        _list("Problems of the capture", _counted(problems, "problem"),
              {"problem": "problem", "what_min": "for instance", "count_all": "rows"},
              ["count_all"]),
        _list("Where the capture has problems", problems,
              {"file": "file", "frame": "frame", "client_id": "client id", "what": "what"}, []),
        _list("Devices", devices, {"client_id": "client id", "broker": "broker", **_SUMMARY},
              worst),
    ]  # fmt: skip


def _per_file(root, name):
    """{file: number of rows}."""
    found = _read(root, name, ["file"]).group_by("file").aggregate([([], "count_all")])
    return dict(zip(found["file"].to_pylist(), found["count_all"].to_pylist()))


def _files(root, facts):
    counts = {name: _per_file(root, name) for name in ("packets", "violations", "problems")}
    for f in facts["files"]:
        f.update({name: found.get(f["file"], 0) for name, found in counts.items()})
        f["file"] = _short(Path(f["file"]).name)
        if f["first"] is None:
            f["start"], f["seconds"] = "", ""
            continue
        f["start"] = datetime.fromtimestamp(f["first"] / 1e9, timezone.utc).strftime("%F %T")
        f["seconds"] = f"{(f['last'] - f['first']) / 1e9:,.1f}"
    return facts["files"]


def _rows(root, name):
    return ds.dataset(Path(root, name)).count_rows()


#: Figures of the report: from the folder of the tables to a PNG in base64.
FIGURES = {"over_time": over_time, "latency": latency}


def build(root, out, drawn=None):
    """Write the report on the audit in the folder `root` to the file `out`. drawn: its FIGURES,
    if they are made already."""
    facts = json.loads(Path(root, MARK).read_text())
    drawn = drawn or {name: draw(root) for name, draw in FIGURES.items()}
    page = jinja2.Environment(autoescape=True).from_string(PAGE)
    text = page.render(
        files=_files(root, facts), ports=facts["ports"],
        frames=sum(f["frames"] for f in facts["files"]),
        packets=_rows(root, "packets"), connections=_rows(root, "connections"),
        flows=_rows(root, "flows"), lists=_lists(root), **drawn,
    )  # fmt: skip
    Path(out).write_text(text)
