"""The plots of the report, as SVG text, each in a wide and in a narrow form.

Knows matplotlib and arrow tables of gold_minute's and gold_device's columns. Must not know files
or HTML.
"""

import datetime
import io

import matplotlib
import numpy as np
import pyarrow.compute as pc

matplotlib.use("Agg")
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.dates import (  # noqa: E402
    DAILY,
    HOURLY,
    MINUTELY,
    MONTHLY,
    SECONDLY,
    AutoDateLocator,
    ConciseDateFormatter,
)
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import findfont, get_font  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator  # noqa: E402

SHORTEST = datetime.timedelta(minutes=10)  #: that a time axis shows
MEASUREMENTS = 6  #: of one device
LARGEST = 1e100  #: magnitude that is drawn: the range of an axis must not overflow
MANY = 1500  #: points that are drawn as an image inside the SVG: it would be larger than a page
HOLE = datetime.timedelta(minutes=5)  #: a line does not cross a longer silence than that, and
HOLE_TIMES = 3  #: than so many times the usual distance of two points
# Ticks of an axis of durations, in seconds: 1 ms to 1,000 days.
TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10_800,
         36_000, 86_400, 259_200, 864_000, 2_592_000, 8_640_000, 86_400_000)  # fmt: skip
INK, GRID, COLOUR, RANGE = "#1f2937", "#e5e7eb", "#0072b2", "#a6cbe3"
# Okabe and Ito's, which people who see few colours tell apart.
CURVES = (("latency_p50_s", "received, median", "#0072b2", "-"),
          ("latency_p99_s", "received, 99th percentile", "#0072b2", ":"),
          ("stored_p50_s", "in the table, median", "#d55e00", "-"),
          ("stored_p99_s", "in the table, 99th percentile", "#d55e00", ":"))  # fmt: skip
WIDE, NARROW = 10.0, 4.2  # inches
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": "#9ca3af", "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "umqtt",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
    "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.6, "axes.axisbelow": True,
}  # fmt: skip


@matplotlib.rc_context(STYLE)
def svg(figure):
    """A figure as SVG text."""
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    return text.getvalue()


def _cut(text, form="{}"):
    """A text for beside an axis of the height of one plot. Letters that cannot be drawn, as a
    control character, are shown escaped."""
    known = get_font(findfont(STYLE["font.family"])).get_char_index
    text = text and "".join(letter if letter.isprintable() and known(ord(letter))
                            else ascii(letter)[1:-1] for letter in text)  # fmt: skip
    return text and form.format(text if len(text) <= 20 else text[:19] + "\u2026")


def _span(minutes):
    """From when to when an axis has to reach: a plot of a moment would get an axis of years."""
    first, last = pc.min_max(minutes).as_py().values()
    spare = max((SHORTEST - (last - first)) / 2, (last - first) / 50)
    return first - spare, last + spare


def _times(axis, minutes, width):
    """The time axis: UTC, with no more of the date than is needed."""
    places = AutoDateLocator(tz=datetime.UTC, minticks=3, maxticks=9 if width == WIDE else 5)
    for unit, widest in ((SECONDLY, 60), (MINUTELY, 60), (HOURLY, 24), (DAILY, 28), (MONTHLY, 12)):
        # Between two units it has no step that is wide enough for so few ticks, and warns.
        places.intervald[unit] = [*places.intervald[unit], widest]
    axis.set_xlim(*_span(minutes))
    axis.xaxis.set_major_locator(places)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(places, tz=datetime.UTC))
    axis.set_xlabel("UTC")


def with_zeros(at, step):
    """[(time, count)] in order -> the same with a zero behind the last and before the first of
    each silence: nobody was heard there. step: the distance of two points, a timedelta."""
    out = []
    for time, count in at:
        if out and time - out[-1][0] > step:
            out.append((out[-1][0] + step, 0))
            if time - step > out[-1][0]:
                out.append((time - step, 0))
        out.append((time, count))
    return out


def broken(times):
    """Where a line has to be broken: indices of the points that come after a hole."""
    gaps = np.diff([time.timestamp() for time in times])
    if not len(gaps):
        return []
    usual = max(np.median(gaps) * HOLE_TIMES, HOLE.total_seconds())
    return (np.flatnonzero(gaps > usual) + 1).tolist()


def _heard(axis, minutes, step, width):
    at = minutes.sort_by("minute")
    points = with_zeros(list(zip(at["minute"].to_pylist(), at["heard"].to_pylist())), step)
    times, counts = zip(*points)
    axis.step(times, counts, where="mid", color=COLOUR, linewidth=1.3)
    if len(points) == 1:
        axis.plot(times, counts, "o", color=COLOUR, markersize=3)
    axis.set_ylim(0, max(counts) * 1.1)
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    unit = "hour" if step > datetime.timedelta(minutes=1) else "minute"
    axis.set_title(f"Devices with readings, by {unit}", loc="left")
    _times(axis, minutes["minute"], width)


def _duration(seconds, _):
    """A tick of the axis of latencies."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def _ticks(first, last):
    """From two to six ticks, the outer ones as near to the ends of a range of durations as can be:
    the one before, the one behind, and every so many between them."""
    before = max((i for i, at in enumerate(TICKS) if at <= first), default=0)
    behind = min((i for i, at in enumerate(TICKS) if at >= last), default=len(TICKS) - 1)
    behind = max(behind, before + 1)
    step = (behind - before + 4) // 5
    return list(TICKS[before : behind + 1 : step])


def _latency(axis, devices, width):
    """The distributions; returns the handles of the legend."""
    handles = []
    for column, label, colour, dashes in CURVES:
        values = devices[column].drop_null().to_numpy()
        if len(values):
            values = np.sort(np.maximum(values, 1e-3))
            share = np.arange(1, len(values) + 1) / len(values) * 100
            axis.step([values[0], *values], [0, *share], where="post", color=colour,
                      linestyle=dashes, linewidth=1.4)  # fmt: skip
            handles.append(Line2D([], [], color=colour, linestyle=dashes, label=label))
    axis.set_title("Devices whose readings arrived within", loc="left")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    axis.set_ylim(0, 103)
    if not handles:
        axis.text(0.5, 0.5, "no device with a clock", transform=axis.transAxes, ha="center")
        axis.set_xticks([])
        return handles
    axis.set_xscale("log")
    first, last = axis.get_xlim()
    ticks = _ticks(first, last)
    axis.set_xlim(min(first, ticks[0]), max(last, ticks[-1]))
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(_duration))
    return handles


@matplotlib.rc_context(STYLE)
def fleet(minutes, devices, step, width):
    """Devices that were heard of by minute (or hour), and the distribution of the latency.

    minutes   arrow table: minute, heard (number of devices)
    devices   arrow table of gold_device
    step      timedelta, of the minutes
    width     WIDE or NARROW
    """
    wide = width == WIDE
    figure = Figure(figsize=(width, 3.1 if wide else 5.6), layout="constrained")
    left, right = (figure.subplots(1, 2, width_ratios=(3, 2)) if wide else figure.subplots(2, 1))
    _heard(left, minutes, step, width)
    handles = _latency(right, devices, width)
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4 if wide else 1,
                      frameon=False, fontsize=8.5)  # fmt: skip
    return figure


def drawable(rows):
    """The rows of gold_minute that a plot can show: finite, and not beyond LARGEST."""
    for name in ("min", "mean", "max"):  # NaN is not less than anything
        rows = rows.filter(pc.less_equal(pc.abs(rows[name]), LARGEST))
    return rows


def _measured(axis, part):
    """One measurement: the mean as a line, the range as a band, both broken where none came."""
    times = part["minute"].to_pylist()
    low, mean, high = (part[name].to_pylist() for name in ("min", "mean", "max"))
    many = len(times) > MANY
    edges = [0, *broken(times), len(times)]
    for a, b in zip(edges, edges[1:]):
        axis.fill_between(times[a:b], low[a:b], high[a:b], color=RANGE, linewidth=0,
                          rasterized=many)  # fmt: skip
        axis.plot(times[a:b], mean[a:b], color=COLOUR, linewidth=1.2, rasterized=many)
    alone = [a for a, b in zip(edges, edges[1:]) if b == a + 1]
    axis.vlines([times[a] for a in alone], [low[a] for a in alone], [high[a] for a in alone],
                color=RANGE, linewidth=2)  # fmt: skip
    axis.plot([times[a] for a in alone], [mean[a] for a in alone], "o", color=COLOUR, markersize=3)


@matplotlib.rc_context(STYLE)
def device(rows, width):
    """The measurements of one device, an axis for each; rows: arrow table of gold_minute with at
    least one row, all of them drawable. width: WIDE or NARROW."""
    names = sorted(pc.unique(rows["name"]).to_pylist())[:MEASUREMENTS]
    figure = Figure(figsize=(width, 1.1 + 1.45 * len(names)), layout="constrained", dpi=110)
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axis, measurement in zip(axes, names):
        part = rows.filter(pc.equal(rows["name"], measurement)).sort_by("minute")
        _measured(axis, part)
        title = " ".join(filter(None, (_cut(measurement), _cut(part["unit"][0].as_py(), "[{}]"))))
        axis.set_title(title, loc="left", parse_math=False)
        axis.ticklabel_format(axis="y", useOffset=False)
        axis.yaxis.set_major_locator(MaxNLocator(4))
    _times(axes[-1], rows["minute"], width)
    figure.legend(handles=[Line2D([], [], color=COLOUR, label="mean of a minute"),
                           Patch(color=RANGE, label="lowest to highest")],
                  loc="outside lower center", ncols=2, frameon=False, fontsize=8.5)  # fmt: skip
    return figure
