"""A small HTML report from the gold tables: health per device and its measurements over time.

Reads Parquet with pyarrow, needs no Spark. Everything that came from the wire is escaped.
"""

import base64
import datetime
import io
from pathlib import Path
from statistics import median

import jinja2
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHORTEST = datetime.timedelta(minutes=10)  #: that a time axis shows
PLOTS = 12  #: devices that get a plot; the table lists all
PAGE = """<!doctype html>
<meta charset="utf-8"><title>Fleet report</title>
<style>
 body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 70em; color: #222 }
 table { border-collapse: collapse; width: 100% } th, td { padding: .3em .6em; text-align: right }
 th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd }
 th:first-child, td:first-child { text-align: left } .bad { color: #b00; font-weight: 600 }
 img { max-width: 100% }
</style>
<h1>Fleet report</h1>
<p>{{ devices|length }} devices, {{ readings }} readings, {{ quarantined }} messages in
quarantine.</p>
<table><tr><th>device</th><th>readings</th><th>sequence</th><th>missing</th><th>duplicates
removed</th><th>restarts</th><th>quarantined</th><th>latency, median s</th><th>last received
(UTC)</th></tr>
{% for d in devices %}<tr><td>{{ d.group }}/{{ d.device }}</td><td>{{ d.readings }}</td>
<td>{% if d.last_sequence is none %}none{% else -%}
{{ d.first_sequence }}&ndash;{{ d.last_sequence }}{% endif %}</td>
<td{% if d.missing %} class="bad"{% endif %}>{{ d.missing }}</td><td>{{ d.duplicates }}</td>
<td>{{ d.restarts }}</td>
<td{% if d.quarantined %} class="bad"{% endif %}>{{ d.quarantined }}</td>
<td>{{ "%.2f"|format(d.latency_p50_s) if d.latency_p50_s is not none else "no clock" }}</td>
<td>{{ d.last_received.strftime("%Y-%m-%d %H:%M:%S") if d.last_received else "" }}</td></tr>
{% endfor %}</table>
{% if batches %}<h2>Batches</h2><p>{{ batches.count }} batches with {{ batches.rows }} messages;
median {{ "%.1f"|format(batches.seconds) }} s a batch, {{ "%.0f"|format(batches.rate) }}
messages a second of it, the last at {{ batches.last }}.</p>{% endif %}
{% if reasons %}<h2>Quarantine</h2><table><tr><th>reason</th><th>messages</th></tr>
{% for reason, count in reasons %}<tr><td>{{ reason }}</td><td>{{ count }}</td></tr>{% endfor %}
</table>{% endif %}
{% for name, image, unclocked in plots %}<h2>{{ name }}</h2>
{% if unclocked %}<p>{{ unclocked }} of the readings are of a boot without a clock: they stand at
the time of their receipt.</p>{% endif %}
<img alt="measurements of {{ name }} over time" src="data:image/png;base64,{{ image }}">
{% endfor %}
"""


class NoTables(Exception):
    """The gold tables are not there; the text says what to run."""


def _read(root, name, columns=None):
    path = Path(root, name)
    files = sorted(path.rglob("*.parquet"))
    if not files:
        return None
    return pq.read_table(path, columns=columns)


def _span(rows):
    """From when to when an axis has to reach: a plot of a moment would get an axis of years."""
    first, last = pc.min_max(rows["minute"]).as_py().values()
    spare = max((SHORTEST - (last - first)) / 2, (last - first) / 50)
    return first - spare, last + spare


def _plot(rows):
    """One PNG (base64 text) with an axis per measurement."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = sorted(pc.unique(rows["name"]).to_pylist())[:6]
    figure, axes = plt.subplots(
        len(names), 1, figsize=(10, 1.8 * len(names)), sharex=True, squeeze=False
    )
    for axis, measurement in zip(axes[:, 0], names):
        part = rows.filter(pc.equal(rows["name"], measurement)).sort_by("minute")
        minutes = part["minute"].to_pylist()
        axis.fill_between(minutes, part["min"].to_pylist(), part["max"].to_pylist(), alpha=0.25)
        axis.vlines(minutes, part["min"].to_pylist(), part["max"].to_pylist(), alpha=0.25)
        axis.plot(minutes, part["mean"].to_pylist(), marker=".")
        unit = part["unit"][0].as_py()
        axis.set_ylabel(f"{measurement} [{unit}]" if unit else measurement, parse_math=False)
        axis.grid(alpha=0.3)
    axes[0, 0].set_xlim(*_span(rows))
    figure.autofmt_xdate()
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90, bbox_inches="tight")
    plt.close(figure)
    return base64.b64encode(out.getvalue()).decode()


def _batches(root):
    """What the batches cost, from the lines of metrics.py; None without any."""
    from . import metrics

    lines = metrics.read(root)
    if not lines:
        return None
    rates = [line["rows_per_second"] for line in lines if line["rows_per_second"]]
    return {"count": len(lines), "rows": sum(line["rows"] for line in lines),
            "seconds": median(line["seconds"] for line in lines),
            "rate": median(rates) if rates else 0, "last": lines[-1]["time"]}  # fmt: skip


def build(root, out):
    """Write the report on the tables below `root` to the file `out`. Raises NoTables."""
    devices = _read(root, "gold_device")
    if devices is None:
        raise NoTables(f"{root} has no gold tables: run `umqtt-pipeline gold --tables {root}`")
    devices = sorted(devices.to_pylist(), key=lambda d: (d["group"], d["device"]))
    reasons = []
    found = _read(root, "quarantine", ["reason"])
    if found is not None:
        counted = found.group_by("reason").aggregate([([], "count_all")]).to_pylist()
        reasons = sorted(((r["reason"], r["count_all"]) for r in counted), key=lambda r: -r[1])
    minutes, boots = _read(root, "gold_minute"), _read(root, "gold_boot")
    boots = boots.to_pylist() if boots is not None else []
    plots = []
    for d in devices[:PLOTS] if minutes is not None else ():
        mine = pc.and_(pc.equal(minutes["group"], d["group"]),
                       pc.equal(minutes["device"], d["device"]))  # fmt: skip
        rows = minutes.filter(mine)
        if rows.num_rows:
            unclocked = sum(b["readings"] for b in boots if not b["clock"]
                            and (b["group"], b["device"]) == (d["group"], d["device"]))
            plots.append((f"{d['group']}/{d['device']}", _plot(rows), unclocked))
    page = jinja2.Environment(autoescape=True).from_string(PAGE)
    text = page.render(devices=devices, plots=plots, reasons=reasons,
                       batches=_batches(root),
                       readings=sum(d["readings"] for d in devices),
                       quarantined=sum(count for _, count in reasons))  # fmt: skip
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(text)
