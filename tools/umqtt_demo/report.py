"""The report of a run: one HTML file that needs nothing else.

Knows the plain values of a run (run.json) and how they are worded. Must not know processes,
Spark or the table's files. The form of a run:

    meta      {"seed", "boards", "readings", "interval_ms", "command", "broker", "seconds",
               "python", ...}
    started   Unix seconds of the moment the demo began: the zero of every clock that is shown
    boards_on Unix seconds of the moment the boards were switched on
    ended     Unix seconds of the moment that the last reading was in the table
    devices   [{"name", "verdict": {fields of Verdict, "ok", "faults"},
                "samples": [{"ordinal", "taken", "bridge", "table": Unix seconds or None,
                             "copies", "value"}],
                "epochs": [{"epoch", "once", "again", "missing": [[first, last], ...]}]}]
    outages   [{"fault", "kind", "target", "start", "end", "text"}]; a fault may have two
    events    [{"time", "kind", "text"}]
    problems  [what is wrong beside the devices' own faults, as text]
"""

import base64
import json
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, select_autoescape

from . import plots

TEMPLATE = "report.html.j2"


def ranges(numbers):
    """[[first, last], ...] of a collection of ints, in order."""
    found = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _span(seconds):
    if seconds is None:
        return "–"
    if seconds < 1:
        return "%d ms" % round(seconds * 1000)
    return "%.1f s" % seconds


def _median(numbers):
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else None


def _latencies(device):
    return [s["table"] - s["taken"] for s in device["samples"] if s["table"] is not None]


# (what the verdict gives, heading of its column)
COLUMNS = (("taken", "readings taken"), ("cut_off", "cut off while being taken"),
           ("rows", "rows in silver"), ("missing", "missing"), ("extra", "never taken"),
           ("gaps", "gaps"), ("duplicates", "duplicates removed"))
TIMES = ("median latency", "longest")


def _row(n, device):
    verdict, late = device["verdict"], _latencies(device)
    numbers = {**{name: verdict[name] for name in ("taken", "cut_off", "rows", "duplicates")},
               "missing": len(verdict["missing"]), "extra": len(verdict["extra"]),
               "gaps": sum(last - first + 1 for _, first, last in verdict["gaps"])}
    cells = [(heading, numbers[name]) for name, heading in COLUMNS]
    cells += zip(TIMES, (_span(_median(late)), _span(max(late, default=None))))
    return {"name": device["name"], "colour": plots.colour(n), "ok": verdict["ok"],
            "arrived": verdict["arrived"], "cells": cells, **numbers}


def _cards(run, rows):
    def total(name):
        return sum(row[name] for row in rows)

    late = [seconds for device in run["devices"] for seconds in _latencies(device)]
    return [
        {"name": "readings taken", "value": total("taken")},
        {"name": "cut off while being taken", "value": total("cut_off")},
        {"name": "rows in silver", "value": total("rows"),
         "bad": total("rows") != total("taken") + total("arrived")},
        {"name": "missing", "value": total("missing"), "bad": total("missing")},
        {"name": "duplicates removed", "value": total("duplicates")},
        {"name": "faults", "value": faults_of(run)},
        {"name": "median latency", "value": _span(_median(late))},
    ]


def faults_of(run):
    """How many faults there were: one may have taken two parts away."""
    return len({outage["fault"] for outage in run["outages"]})


def summary(run):
    """The run in one sentence, for the terminal and the report."""
    verdicts = [device["verdict"] for device in run["devices"]]
    cut_off = sum(verdict["cut_off"] for verdict in verdicts)
    text = "%s of %s, %s on the way" % (
        _count(sum(verdict["taken"] for verdict in verdicts), "reading"),
        _count(len(verdicts), "board"), _count(faults_of(run), "fault"))
    if cut_off:
        text += "; %s cut off while being taken" % _count(cut_off, "reading")
    return text + "."


def _since(run):
    """The run with every moment in seconds since the demo began, as the terminal shows them."""
    start = run["started"]

    def shift(item, names):
        return {**item, **{name: None if item[name] is None else item[name] - start
                           for name in names}}

    devices = [{**device, "samples": [shift(s, ("taken", "bridge", "table"))
                                      for s in device["samples"]]} for device in run["devices"]]
    return {**run, "devices": devices, "ended": run["ended"] - start,
            "boards_on": run["boards_on"] - start,
            "outages": [shift(outage, ("start", "end")) for outage in run["outages"]],
            "events": [shift(event, ("time",)) for event in run["events"]]}


FIGURES = (
    ("journeys", "The way of every reading",
     "A dark dot is a reading taken, a coloured dot the same reading in the table. The strong "
     "line between them is the time that it was kept in the board's flash, the faint one the time "
     "in the bridge's spool. The bars on top say what was away; one that belongs to a board has "
     "its colour. A red cross would be a reading that never came."),
    ("latency", "From sensor to table",
     "How long each reading took, and the share of readings that took no longer than so long. "
     "A reading with a high value waited in a board's flash or in the bridge's spool until the "
     "way was free again."),
    ("duplicates", "Duplicates removed",
     "What a device sent again because it could not know that it had arrived. Each reading is "
     "in silver once; this counts the further copies of it that reached bronze."),
    ("coverage", "Sequence numbers",
     "Every record that a device put into its store since the store was made (its epoch), "
     "clock records included."),
    ("values", "The readings themselves", "Temperature as the simulated sensors gave it."),
)


def _figures(run):
    for name, title, text in FIGURES:
        draw = getattr(plots, name)
        wide, narrow = draw(run, plots.WIDE), draw(run, plots.NARROW)
        if wide:
            yield {"title": title, "text": text, "wide": _data(wide), "narrow": _data(narrow)}


def _data(figure):
    return base64.b64encode(plots.svg(figure).encode()).decode()


def _count(number, noun):
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def _headline(run, ok):
    if ok:
        return ("Every reading is in the table exactly once",
                summary(run) + " None was lost and none counted twice.")
    return ("A count is wrong", "What follows was found by comparing the sensors' own count with "
                                "the silver table.")


def _facts(run):
    names = (("command", "command"), ("seed", "seed"), ("boards", "boards"),
             ("readings", "readings per board"), ("interval_ms", "milliseconds between readings"),
             ("broker", "broker"), ("seconds", "seconds from start to verdict"),
             ("versions", "versions"))
    return [(text, run["meta"][name]) for name, text in names if name in run["meta"]]


def _moments(run):
    outages = [{"fault": outage["fault"], "start": "%.1f s" % outage["start"],
                "text": outage["text"],
                "end": "–" if outage["end"] is None else "%.1f s" % outage["end"]}
               for outage in run["outages"]]
    events = [{"at": "%.1f s" % event["time"], "text": event["text"]} for event in run["events"]]
    return {"outages": outages, "events": events}


def render(run):
    """The report of a run (see above) as HTML text."""
    run = _since(run)
    rows = [_row(n, device) for n, device in enumerate(run["devices"])]
    faults = ["%s: %s" % (device["name"], line)
              for device in run["devices"] for line in device["verdict"]["faults"]]
    faults += run["problems"]
    headline, subtitle = _headline(run, not faults)
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent),
                              autoescape=select_autoescape(default=True, default_for_string=True))
    return environment.get_template(TEMPLATE).render(
        ok=not faults, headline=headline, subtitle=subtitle, faults=faults, rows=rows,
        cards=_cards(run, rows), columns=[*dict(COLUMNS).values(), *TIMES, "exact"],
        totals=[(heading, sum(row[name] for row in rows)) for name, heading in COLUMNS],
        figures=list(_figures(run)), facts=_facts(run), meta=run["meta"],
        agreement=run["meta"].get("agreement", ""), **_moments(run))


def write(run, path):
    """Write the report of a run to a file."""
    Path(path).write_text(render(run), encoding="utf-8")


def picture_title(run):
    """The run in one line, for the picture of it; what the verdict found wrong stands in it."""
    verdicts = [device["verdict"] for device in run["devices"]]
    faults = sum(len(verdict["faults"]) for verdict in verdicts) + len(run["problems"])
    outcome = ("every reading once" if not faults else
               "a count is wrong, %d missing" % sum(len(v["missing"]) for v in verdicts))
    return "%s taken, %s, %s in the table: %s" % (
        _count(sum(verdict["taken"] for verdict in verdicts), "reading"),
        _count(faults_of(run), "fault"),
        _count(sum(verdict["rows"] for verdict in verdicts), "row"), outcome)


def write_picture(run, path):
    """Write the picture of a run (PNG) to a file."""
    Path(path).write_bytes(plots.png(plots.picture(_since(run), picture_title(run))))


def main(folder, picture=None):
    """Draw the report of an earlier run again, or its picture; returns the exit status."""
    try:
        run = json.loads((folder / "run.json").read_text())
    except OSError as error:
        print("%s: %s; a demo that came to its end leaves it" % (error.filename, error.strerror),
              file=sys.stderr)
        return 2
    path = Path(picture) if picture else folder / "report.html"
    (write_picture if picture else write)(run, path)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo"), *sys.argv[2:3]))
