"""The HTML report from the tables: how the fleet fares, what happened, its measurements.

Reads Parquet with pyarrow, needs no Spark. Everything that came from the wire is escaped. Must not
know how anything is drawn (plots.py). The length of the page does not grow with the fleet: the
lists show those devices and events that need to be looked at first, and say how many there are.
"""

import os
from datetime import timedelta
from pathlib import Path
from statistics import median

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from . import plots

PLOTS = 12  #: devices that get a plot
LISTED = 50  #: devices in the list
LONGEST = 80  #: letters of a device's name
SHOWN = 30  #: events of a kind
DAYS = 7  #: in the plots
UNITS = (("d", 86_400), ("h", 3600), ("min", 60))  #: of durations, in seconds
SILENT = timedelta(hours=1)  #: behind the last of the fleet
ID = ["group", "device"]
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Fleet report</title>
<style>
 body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em;
  color: #222 }
 h1 { margin-bottom: .2em } h2 { margin: 1.6em 0 .4em } h3 { margin: 1.2em 0 .2em }
 .tiles { display: flex; flex-wrap: wrap; gap: .8em; margin: 1em 0 }
 .tiles div { border: 1px solid #ccc; border-radius: 6px; padding: .4em 1em; min-width: 6em }
 .tiles b { display: block; font-size: 1.5em; line-height: 1.2 }
 table { border-collapse: collapse; width: 100%; font-size: 14px }
 th, td { padding: .25em .6em; text-align: right; white-space: nowrap }
 th { border-bottom: 2px solid #888; vertical-align: bottom; white-space: normal }
 td { border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums }
 .l { text-align: left; white-space: normal; overflow-wrap: anywhere; min-width: 15em }
 h3 { overflow-wrap: anywhere }
 .bad { color: #b00; font-weight: 600 } .note { color: #666; margin: .2em 0 .6em }
 img { width: 100% } .wide { overflow-x: auto }
</style>
<h1>Fleet report</h1>
<p class="note">All times are UTC. {% if last %}The last message came at {{ last|time }}.{% endif %}</p>
<div class="tiles">{% for name, value, bad in tiles %}
<div{% if bad and value %} class="bad"{% endif %}><b>{{ value|number }}</b>{{ name }}</div>{% endfor %}
</div>
{% if fleet %}<img alt="devices over time and latency" src="data:image/png;base64,{{ fleet }}">{% endif %}
<h2>Devices</h2>
{% if hidden %}<p class="note">The {{ devices|length }} of {{ (devices|length + hidden)|number }} that
most need to be looked at: missing readings, quarantine, silence, restarts. The others are in the
table gold_device.</p>{% endif %}
<div class="wide"><table><tr><th class="l">device</th><th>readings</th><th>sequence</th>
<th>missing</th><th>duplicates removed</th><th>restarts</th><th>quarantined</th>
<th>median to receipt</th><th>to table</th>{% if health %}<th>battery</th><th>rssi</th>{% endif %}
<th>last received</th></tr>
{% for d in devices %}<tr><td class="l">{{ (d.group ~ "/" ~ d.device)|short }}</td>
<td>{{ d.readings|number }}</td>
<td>{% if d.last_sequence is none %}none{% else -%}
{{ d.first_sequence }}&ndash;{{ d.last_sequence }}{% endif %}</td>
<td{% if d.missing %} class="bad"{% endif %}>{{ d.missing|number }}</td>
<td>{{ d.duplicates|number }}</td><td>{{ d.restarts|number }}</td>
<td{% if d.quarantined %} class="bad"{% endif %}>{{ d.quarantined|number }}</td>
<td>{{ d.latency_p50_s|duration or "no clock" }}</td>
<td>{{ d.stored_p50_s|duration }}</td>
{% if health %}<td>{{ d.battery|value }}</td><td>{{ d.rssi|value }}</td>{% endif %}
<td{% if d.silent %} class="bad"{% endif %}>{{ d.last_received|time }}</td></tr>
{% endfor %}</table></div>
{% for title, total, note, head, rows in events %}{% if rows %}<h2>{{ title }}</h2>
<p class="note">{{ note }}{% if total > rows|length %} The last {{ rows|length }} of
{{ total|number }}.{% endif %}</p>
<div class="wide"><table><tr><th class="l">device</th>{% for h in head %}<th>{{ h }}</th>{% endfor %}</tr>
{% for row in rows %}<tr><td class="l">{{ row[0]|short }}</td>{% for cell in row[1:] %}
<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table></div>{% endif %}{% endfor %}
{% if reasons %}<h2>Quarantine</h2><table><tr><th class="l">reason</th><th>messages</th></tr>
{% for reason, count in reasons %}<tr><td class="l">{{ reason }}</td><td>{{ count|number }}</td></tr>
{% endfor %}</table>{% endif %}
{% if batches %}<h2>Batches</h2><p>{{ batches.count|number }} batch{{ '' if batches.count == 1 else 'es' }} with
{{ batches.rows|number }} messages; median {{ "%.1f"|format(batches.seconds) }} s a batch,
{{ "%.0f"|format(batches.rate) }} messages a second of it, the last at {{ batches.last }}.</p>{% endif %}
{% if drawn %}<h2>Measurements</h2><p class="note">Mean of each minute, and from the lowest to the
highest; the last {{ days }} days with readings at most.
{% if drawn|length < plotted %}The first {{ drawn|length }} devices of the list.{% endif %}</p>
{% for name, image, unclocked, beyond in drawn %}<h3>{{ name|short }}</h3>
{% if unclocked %}<p class="note">{{ unclocked|number }} of the readings are of a boot without a
clock: they stand at the time of their receipt.</p>{% endif %}
{% if beyond %}<p class="note">{{ beyond|number }} of its minutes are not drawn: they have values
beyond &plusmn;{{ largest }}, which no axis can show. gold_minute has them.</p>{% endif %}
{% if image %}<img alt="measurements of {{ name|short }} over time"
 src="data:image/png;base64,{{ image }}">{% endif %}
{% endfor %}{% endif %}
</html>
"""  # noqa: E501


class NoTables(Exception):
    """The gold tables are not there; the text says what to run."""


def _read(root, name, columns=None):
    path = Path(root, name)
    if not any(path.rglob("*.parquet")):
        return None
    return pq.read_table(path, columns=columns)


def _time(at):
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _value(number):
    return "" if number is None else f"{number:.4g}"


def _duration(seconds):
    """A time of receipt or of a table, less that of a reading: a clock may be wrong by years."""
    if seconds is None:
        return ""
    unit, size = next((unit for unit in UNITS if abs(seconds) >= 2 * unit[1]), ("s", 1))
    number = seconds / size
    return f"{number:.3g} {unit}" if abs(number) < 99.5 else f"{number:,.0f} {unit}"


def _short(name):
    """A name of a sensible length: a topic may hold one of 65,000 letters."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 20]}\u2026{name[-19:]}"


def _label(row):
    return f"{row['group']}/{row['device']}"


def _devices(table):
    """Rows of gold_device, those first that most need to be looked at."""
    rows = table.to_pylist()
    last = max((d["last_received"] for d in rows if d["last_received"]), default=None)
    for d in rows:
        d["silent"] = d["last_received"] is None or d["last_received"] < last - SILENT
    if len(rows) <= LISTED:
        return sorted(rows, key=_label), last
    return sorted(rows, key=lambda d: (-d["missing"], -d["quarantined"], not d["silent"],
                                       -d["restarts"], _label(d))), last  # fmt: skip


def _latest(root, name, columns):
    """The number of an event table's rows, and the last of them by time of receipt."""
    table = _read(root, name)
    if table is None:
        return 0, []
    by = "received_at" if "received_at" in columns else "first_received"
    order = pc.select_k_unstable(table, min(SHOWN, table.num_rows), [(by, "descending")])
    rows = table.take(order).to_pylist() if table.num_rows else []
    return table.num_rows, [
        [_label(row), *(_time(row[c]) if "time" == c[-4:] or c == by else
                        "" if row[c] is None else row[c] for c in columns)] for row in rows
    ]  # fmt: skip


def _events(root):
    gaps = ["first", "last", "missing", "before_time", "after_time", "first_received"]
    restarts = ["before_boot", "boot", "unheard", "before_time", "after_time", "first_received"]
    clocks = ["boot", "time", "correction_ms", "silver_late_ms", "received_at"]
    return [
        ("Gaps", *_told(root, "gaps", gaps), "Numbers that never came, so far.",
         ("first", "last", "missing", "after", "before", "seen at")),
        ("Restarts", *_told(root, "restarts", restarts), "Times by the device's clock.",
         ("from boot", "to boot", "unheard between", "after", "before", "heard at")),
        ("Clock corrections", *_told(root, "clock_corrections", clocks),
         "Without a correction: the boot's first clock.",
         ("boot", "clock", "correction ms", "silver later by ms", "received")),
    ]  # fmt: skip


def _told(root, name, columns):
    total, rows = _latest(root, name, columns)
    return rows, total


def _minutes(root):
    """gold_minute of the last DAYS days that it has, as a dataset; None without any."""
    path = Path(root, "gold_minute")
    days = sorted({f.parent for f in path.rglob("*.parquet")
                   if not f.parent.name.endswith("1970-01-01")})[-DAYS:]  # fmt: skip
    files = [str(f) for day in days for f in sorted(day.glob("*.parquet"))]
    return ds.dataset(files) if files else None


def _heard(dataset):
    """How many devices have readings, by minute; over more than two days by hour."""
    held = dataset.to_table(columns=["minute", *ID])
    spread = pc.min_max(held["minute"]).as_py()
    if spread["max"] - spread["min"] > timedelta(days=2):
        held = held.set_column(0, "minute", pc.floor_temporal(held["minute"], unit="hour"))
    once = held.group_by(["minute", *ID]).aggregate([])
    return once.group_by("minute").aggregate([([], "count_all")]).rename_columns(
        ["minute", "heard"])  # fmt: skip


def _drawn(root, devices, dataset):
    """[(label, PNG or None, readings of boots without a clock, rows of gold_minute that no plot
    can show)] of the first devices of the list."""
    boots = _read(root, "gold_boot")
    blind = {}
    if boots is not None:
        held = boots.filter(pc.invert(boots["clock"])).group_by(ID)
        found = held.aggregate([("readings", "sum")]).to_pylist()
        blind = {(r["group"], r["device"]): r["readings_sum"] for r in found}
    out = []
    for d in devices[:PLOTS]:
        mine = (ds.field("group") == d["group"]) & (ds.field("device") == d["device"])
        rows = dataset.to_table(filter=mine)
        if rows.num_rows:
            shown = plots.drawable(rows)
            image = plots.device(shown) if shown.num_rows else None
            out.append((_label(d), image, blind.get((d["group"], d["device"])),
                        rows.num_rows - shown.num_rows))  # fmt: skip
    return out


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


def _reasons(root):
    found = _read(root, "quarantine", ["reason"])
    if found is None:
        return []
    counted = found.group_by("reason").aggregate([([], "count_all")]).to_pylist()
    return sorted(((r["reason"], r["count_all"]) for r in counted), key=lambda r: -r[1])


def _tiles(table, devices, reasons):
    total = {name: pc.sum(table[name]).as_py() or 0 for name in
             ("readings", "missing", "duplicates", "restarts")}  # fmt: skip
    return [
        ("devices", len(devices), False), ("readings", total["readings"], False),
        ("missing", total["missing"], True), ("duplicates removed", total["duplicates"], False),
        ("restarts", total["restarts"], False),
        ("messages in quarantine", sum(count for _, count in reasons), True),
        ("silent for an hour", sum(d["silent"] for d in devices), True),
    ]  # fmt: skip


def build(root, out):
    """Write the report on the tables below `root` to the file `out`. Raises NoTables."""
    table = _read(root, "gold_device")
    if table is None:
        raise NoTables(f"{root} has no gold tables: run `umqtt-pipeline gold --tables {root}`")
    for name in ("battery", "rssi", "stored_p50_s", "stored_p99_s"):
        if name not in table.column_names:  # made by an older version
            table = table.append_column(name, pa.nulls(table.num_rows, pa.float64()))
    devices, last = _devices(table)
    shown, reasons, dataset = devices[:LISTED], _reasons(root), _minutes(root)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True)
    environment.filters.update(number="{:,}".format, time=_time, value=_value, duration=_duration,
                               short=_short)
    text = environment.from_string(PAGE).render(
        devices=shown, hidden=len(devices) - len(shown), last=last, reasons=reasons,
        tiles=_tiles(table, devices, reasons), batches=_batches(root), days=DAYS,
        largest=f"{plots.LARGEST:g}",
        events=[(title, total, note, head, rows)
                for title, rows, total, note, head in _events(root)],
        health=any(d["battery"] is not None or d["rssi"] is not None for d in shown),
        fleet=plots.fleet(_heard(dataset), table) if dataset else None,
        drawn=_drawn(root, shown, dataset) if dataset else [],
        plotted=sum(d["readings"] > 0 for d in devices),
    )  # fmt: skip
    _write(Path(out).resolve(), text)


def _write(path, text):
    """Write a file at once: who looks at it, or a kill, finds the old one or the new one."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        hidden.write_text(text)
        os.replace(hidden, path)
    except OSError as error:
        hidden.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path))
