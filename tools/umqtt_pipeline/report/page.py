"""The HTML report from the tables: how the fleet fares, what happened, its measurements.

Reads Parquet with pyarrow, needs no Spark. Everything that came from the wire is escaped. Must not
know how anything is drawn (plots.py). The length of the page does not grow with the fleet: the
lists show those devices and events that need to be looked at first, and say how many there are.
"""

import base64
import os
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

import jinja2
import pyarrow.compute as pc

from ..gold import schema
from ..tables import quarantine as refused
from ..tables import store
from . import plots

PLOTS = 12  #: devices that get a plot
LISTED = 50  #: devices in the list
LONGEST = 80  #: letters of a device's name
SHOWN = 30  #: events of a kind
DAYS = 7  #: in the plots
UNITS = (("d", 86_400), ("h", 3600), ("min", 60))  #: of durations, in seconds
SILENT = timedelta(hours=1)  #: behind the last of the fleet
ID = ["group", "device"]
TEMPLATE = "report.html.j2"
REFUSED = 20  #: packets of the quarantine
LETTERS = 120  #: of a payload
READS = [*schema.TABLES, "gold_day", "batches", "quarantine", "duplicates", "clock"]  #: tables


class NoTables(Exception):
    """The gold tables are not there, or not those of this version; the text says what to run."""


def _dataset(root, name, last=None):
    """A table as a dataset, None without it; last: only so many days. Raises NoTables if it is one
    of gold's and has not all columns: an earlier version has made it."""
    held = store.dataset(root, name, last=last)
    known = schema.TABLES.get(name, ()) if held is not None else ()
    lacking = [column for column in known if column not in held.schema.names]
    if lacking:
        raise NoTables(f"the table {name} in {root} is of an earlier version, without "
                       f"{', '.join(lacking)}: run `umqtt-pipeline gold --tables {root}`")
    return held


def _read(root, name, columns=None):
    held = _dataset(root, name)
    return None if held is None else held.to_table(columns)


def _time(at):
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _value(number):
    return "" if number is None else f"{number:.4g}"


def _duration(seconds):
    """A time of receipt or of a table, less that of a reading: a clock may be wrong by years."""
    if seconds is None:
        return ""
    if 0 < abs(seconds) < 0.1:
        return f"{seconds * 1000:.3g} ms"
    unit, size = next((unit for unit in UNITS if abs(seconds) >= 2 * unit[1]), ("s", 1))
    number = seconds / size
    return f"{number:.3g} {unit}" if abs(number) < 99.5 else f"{number:,.0f} {unit}"


def _short(name):
    """A name of a sensible length: a topic may hold one of 65,000 letters."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 20]}\u2026{name[-19:]}"


def _label(row):
    return f"{row['group']}/{row['device']}"


def _devices(root, table, quarantine):
    """Rows of gold_device, those first that most need to be looked at, and the time of the last
    message."""
    rows, heard = table.to_pylist(), _heard_of(root, quarantine)
    for d in rows:
        times = (d["last_received"], heard.get((d["group"], d["device"])))
        d["heard"] = max((at for at in times if at), default=None)
    last = max((d["heard"] for d in rows if d["heard"]), default=None)
    for d in rows:
        d["silent"] = d["heard"] is None or d["heard"] < last - SILENT
    if len(rows) <= LISTED:
        return sorted(rows, key=_label), last
    return sorted(rows, key=lambda d: (-d["missing"], -d["quarantined"], not d["silent"],
                                       -d["restarts"], _label(d))), last  # fmt: skip


def _heard_of(root, quarantine):
    """{(group, device): time of receipt} of the last packet that is no new reading."""
    heard = refused.heard(quarantine)
    for name in ("duplicates", "clock"):
        table = _read(root, name, [*ID, "received_at"])
        if table is not None:
            for row in table.group_by(ID).aggregate([("received_at", "max")]).to_pylist():
                key, at = (row["group"], row["device"]), row["received_at_max"]
                heard[key] = max(heard.get(key, at), at)
    return heard


def _newer(root):
    """How many batches have brought readings since the last run of gold; 0 if nobody can tell."""
    made, came = _read(root, "gold_day", ["batch"]), _read(root, "batches", ["batch", "readings"])
    if made is None or came is None:
        return 0
    last = pc.max(made["batch"], min_count=1).as_py()
    later = pc.greater(came["batch"], -1 if last is None else last)
    return came.filter(pc.and_(later, pc.greater(came["readings"], 0))).num_rows


def _latest(root, name, columns):
    """The number of an event table's rows, and the last of them by time of receipt."""
    table = _read(root, name)
    if table is None:
        return 0, []
    by = "received_at" if "received_at" in columns else "first_received"
    order = pc.select_k_unstable(table, min(SHOWN, table.num_rows), [(by, "descending")])
    rows = table.take(order).to_pylist() if table.num_rows else []
    rows.sort(key=lambda row: (row[by], _label(row)), reverse=True)
    return table.num_rows, [
        [_label(row), *(_cell(row[c]) for c in columns)] for row in rows
    ]


def _cell(value):
    """What the table of an event says of a column."""
    if value is None or isinstance(value, datetime):
        return _time(value)
    if isinstance(value, list):  # measurements
        return ", ".join(f"{_short(one['name'])} {_value(one['value'])}" for one in value)
    return value


def _events(root):
    gaps = ["first", "last", "missing", "quarantined", "deleted", "reason", "before_time",
            "after_time", "first_received"]  # fmt: skip
    restarts = ["before_boot", "boot", "unheard", "before_time", "after_time", "first_received"]
    clocks = ["boot", "time", "correction_ms", "silver_late_ms", "received_at"]
    copies = ["sequence", "measurements", "copy_measurements", "first_received", "received_at"]
    return [
        ("Gaps", *_told(root, "gaps", gaps),
         "Numbers that no reading has. Where a number is wrong, its device cannot have come so "
         "far between the two records, and nothing is missing.",
         ("first", "last", "never came", "in quarantine", "deleted", "why", "after", "before",
          "seen at")),
        ("Restarts", *_told(root, "restarts", restarts), "Times by the device's clock.",
         ("from boot", "to boot", "unheard between", "after", "before", "heard at")),
        ("Clock corrections", *_told(root, "clock_corrections", clocks),
         "Without a correction: the boot's first clock.",
         ("boot", "clock", "correction ms", "silver later by ms", "received")),
        ("Copies in conflict", *_told(root, "conflicts", copies),
         "Two messages with one number and different contents: the table has the first.",
         ("number", "in the table", "in the copy", "received", "copy received")),
    ]  # fmt: skip


def _told(root, name, columns):
    total, rows = _latest(root, name, columns)
    return rows, total


def _minutes(root):
    """gold_minute of the last DAYS days that it has, as a dataset; None without any."""
    held = _dataset(root, "gold_minute", DAYS)
    return held if held is not None and held.count_rows() else None


def _heard(dataset):
    """(how many devices have readings, by minute; over more than two days by hour; that step)."""
    step = timedelta(minutes=1)
    held = dataset.to_table(columns=["minute", *ID])
    spread = pc.min_max(held["minute"]).as_py()
    if spread["max"] - spread["min"] > timedelta(days=2):
        step = timedelta(hours=1)
        held = held.set_column(0, "minute", pc.floor_temporal(held["minute"], unit="hour"))
    once = held.group_by(["minute", *ID]).aggregate([])
    counted = once.group_by("minute").aggregate([([], "count_all")])
    return counted.rename_columns(["minute", "heard"]), step


def _picture(draw, *given):
    """A plot in both widths, as base64 text of SVG."""
    both = {"wide": plots.WIDE, "narrow": plots.NARROW}
    return {name: base64.b64encode(plots.svg(draw(*given, width)).encode()).decode()
            for name, width in both.items()}  # fmt: skip


def _drawn(root, devices, dataset):
    """[(label, picture or None, readings of boots without a clock, rows of gold_minute that no
    plot can show)] of the first devices of the list."""
    boots = _read(root, "gold_boot")
    blind = {}
    if boots is not None:
        held = boots.filter(pc.invert(boots["clock"])).group_by(ID)
        found = held.aggregate([("readings", "sum")]).to_pylist()
        blind = {(r["group"], r["device"]): r["readings_sum"] for r in found}
    out = []
    for d in devices[:PLOTS]:
        mine = (pc.field("group") == d["group"]) & (pc.field("device") == d["device"])
        rows = dataset.to_table(filter=mine)
        if rows.num_rows:
            shown = plots.drawable(rows)
            image = _picture(plots.device, shown) if shown.num_rows else None
            out.append((_label(d), image, blind.get((d["group"], d["device"])),
                        rows.num_rows - shown.num_rows))  # fmt: skip
    return out


def _batches(root):
    """What the batches cost, from the lines of ingest/metrics.py; None without any."""
    from ..ingest import metrics

    lines = metrics.read(root)
    if not lines:
        return None
    rates = [line["rows_per_second"] for line in lines if line["rows_per_second"]]
    return {"count": len(lines), "rows": sum(line["rows"] for line in lines),
            "seconds": median(line["seconds"] for line in lines),
            "rate": median(rates) if rates else 0,
            "last": datetime.fromisoformat(lines[-1]["time"])}  # fmt: skip


def _tiles(table, devices, reasons, conflicts):
    total = {name: pc.sum(table[name]).as_py() or 0 for name in
             ("readings", "duplicates", "restarts")}  # fmt: skip
    held = sum(count for _, count in reasons)
    return [
        (_many("device", len(devices)), len(devices), False),
        (_many("reading", total["readings"]), total["readings"], False),
        ("missing", sum(d["missing"] for d in devices), True),
        (_many("duplicate", total["duplicates"]) + " removed", total["duplicates"], False),
        (("copy" if conflicts == 1 else "copies") + " in conflict", conflicts, True),
        (_many("restart", total["restarts"]), total["restarts"], False),
        (_many("message", held) + " in quarantine", held, True),
        ("silent for an hour", sum(d["silent"] for d in devices), True),
    ]  # fmt: skip


def _many(word, count):
    return word if count == 1 else word + "s"


def _fleet(dataset, table):
    heard, step = _heard(dataset)
    return _picture(plots.fleet, heard, table, step) if heard.num_rows else None


def _legible(value):
    """What a device is called may come from anybody: no name turns the direction of what stands
    beside it, or hides in it."""
    if not isinstance(value, str) or value.isprintable():
        return value
    return type(value)("".join(letter if letter.isprintable() or letter == "\n" else "\ufffd"
                               for letter in value))  # fmt: skip


def _template(root):
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(Path(__file__).parent),
                                     autoescape=True, trim_blocks=True,
                                     finalize=_legible)  # fmt: skip
    content = partial(refused.content, root, letters=LETTERS)
    environment.filters.update(number="{:,}".format, time=_time, value=_value, duration=_duration,
                               short=_short, content=content)
    return environment.get_template(TEMPLATE)


def build(root, out):
    """Write the report on the tables below `root` to the file `out`. Raises NoTables."""
    table = _read(root, "gold_device")
    if table is None:
        raise NoTables(f"{root} has no gold tables: run `umqtt-pipeline gold --tables {root}`")
    quarantine = refused.rows(root) or refused.none()
    devices, last = _devices(root, table, quarantine)
    shown, reasons, dataset = devices[:LISTED], refused.reasons(quarantine), _minutes(root)
    text = _template(root).render(
        devices=shown, hidden=len(devices) - len(shown), last=last, newer=_newer(root),
        reasons=reasons[:SHOWN],
        tiles=_tiles(table, devices, reasons, len(_read(root, "conflicts", ["device"]) or ())),
        batches=_batches(root), days=DAYS,
        largest=f"{plots.LARGEST:g}", refused=refused.newest(quarantine, REFUSED),
        events=[(title, total, note, head, rows)
                for title, rows, total, note, head in _events(root)],
        health=any(d["battery"] is not None or d["rssi"] is not None for d in shown),
        fleet=_fleet(dataset, table) if dataset else None,
        drawn=_drawn(root, shown, dataset) if dataset else [],
        plotted=sum(d["readings"] > 0 for d in devices), plots=PLOTS,
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
