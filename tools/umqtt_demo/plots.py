"""The plots of the report, as SVG text.

Knows matplotlib and plain numbers (see report.py for their form). Must not know files or HTML.
"""

import io

import matplotlib

matplotlib.use("Agg")
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

INK, FAINT, GRID = "#1f2937", "#9ca3af", "#e5e7eb"
DEVICES = ("#2563eb", "#d97706", "#059669", "#9333ea", "#db2777", "#0891b2", "#65a30d", "#7c2d12")
# Colour and name of each kind of outage; the colours differ in lightness, too.
OUTAGES = {
    "board": ("#dc2626", "board without power"),
    "link": ("#7c3aed", "link cut"),
    "broker": ("#f59e0b", "broker down"),
    "bridge": ("#0ea5e9", "bridge down"),
    "spark": ("#6b7280", "Spark down"),
}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": FAINT, "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "umqtt",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
}


def colour(n):
    """Colour of device number n = 0.."""
    return DEVICES[n % len(DEVICES)]


def _svg(figure):
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    return text.getvalue()


def _panels(count, height, width=10.0, **options):
    figure = Figure(figsize=(width, height * count + 0.9), layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False, **options)[:, 0]
    for ax in axes:
        ax.grid(True, color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
    return figure, axes


def _shade(ax, outages, device, end):
    """Shade what was away for this device; returns the kinds shown."""
    shown = set()
    for outage in outages:
        if outage["target"] in ("", device):
            stop = outage["end"] if outage["end"] is not None else end
            ax.axvspan(outage["start"], max(stop, outage["start"] + 0.1), linewidth=0,
                       color=OUTAGES[outage["kind"]][0], alpha=0.25, zorder=0)
            shown.add(outage["kind"])
    return shown


def _legend(figure, kinds, extra=()):
    handles = list(extra) + [Patch(color=OUTAGES[kind][0], alpha=0.35, label=OUTAGES[kind][1])
                             for kind in OUTAGES if kind in kinds]
    if handles:
        columns = len(handles) if len(handles) <= 8 else (len(handles) + 1) // 2
        figure.legend(handles=handles, loc="outside upper center", ncols=columns,
                      frameon=False, fontsize=8.5, handlelength=1.6, columnspacing=1.4)


def _marker(label, **style):
    return Line2D([], [], linestyle="", label=label, **style)


def _journey(ax, device, paint):
    there = [s for s in device["samples"] if s["table"] is not None]
    lost = [s for s in device["samples"] if s["table"] is None]
    numbers = [s["ordinal"] for s in there]
    for first, last, alpha in (("taken", "bridge", 1.0), ("bridge", "table", 0.35)):
        ax.hlines(numbers, [s[first] for s in there], [s[last] for s in there],
                  color=paint, linewidth=0.9, alpha=alpha)
    ax.plot([s["taken"] for s in device["samples"]],
            [s["ordinal"] for s in device["samples"]], ".", color=INK, markersize=2.5)
    ax.plot([s["table"] for s in there], numbers, "o", color=paint, markersize=3,
            markeredgewidth=0)
    ax.plot([s["taken"] for s in lost], [s["ordinal"] for s in lost], "x",
            color="#dc2626", markersize=7, markeredgewidth=2)
    ax.set_title(device["name"], loc="left", fontweight="bold", color=paint)
    ax.set_ylabel("reading")
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))


@matplotlib.rc_context(STYLE)
def journeys(devices, outages, end):
    """Each reading as a line from the moment it was taken to the moment it was in the table.

    The line is strong until the reading is in the bridge's spool, and faint from there.
    """
    figure, axes = _panels(len(devices), 1.55)
    kinds = set()
    for n, (ax, device) in enumerate(zip(axes, devices)):
        kinds |= _shade(ax, outages, device["name"], end)
        _journey(ax, device, colour(n))
    axes[-1].set_xlabel("seconds since the boards were switched on")
    _legend(figure, kinds, (
        _marker("taken", marker=".", color=INK, markersize=5),
        Line2D([], [], color=INK, linewidth=1.2, label="on its way to the spool"),
        Line2D([], [], color=INK, linewidth=1.2, alpha=0.35, label="in the spool"),
        _marker("in the table", marker="o", color=FAINT, markersize=5)))
    return _svg(figure)


def _seconds(value, _=None):
    return "%g ms" % round(value * 1000) if value < 1 else "%g s" % round(value, 1)


def _dress_latency(over, spread):
    over.set_xlabel("seconds since the boards were switched on (reading taken)")
    over.set_ylabel("reading to table")
    spread.set_xlabel("reading to table")
    spread.yaxis.set_major_formatter(FuncFormatter(lambda v, _: "%d %%" % round(v * 100)))
    spread.set_ylabel("share of the readings")
    spread.set_ylim(0, 1.02)
    for ax, axis in ((over, over.yaxis), (spread, spread.xaxis)):
        ax.grid(True, color=GRID, linewidth=0.6)
        ax.set_axisbelow(True)
        axis.set_major_formatter(FuncFormatter(_seconds))
        axis.set_major_locator(MaxNLocator(6))
    over.set_ylim(bottom=0)
    spread.set_xlim(left=0)


@matplotlib.rc_context(STYLE)
def latency(devices, outages, end):
    """Time from reading to table, over time and as a distribution."""
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    over, spread = figure.subplots(1, 2, width_ratios=(2.4, 1))
    kinds = set()
    for outage in outages:
        kinds |= _shade(over, [dict(outage, target="")], "", end)
    for n, device in enumerate(devices):
        done = [s for s in device["samples"] if s["table"] is not None]
        late = [max(0.001, s["table"] - s["taken"]) for s in done]
        over.plot([s["taken"] for s in done], late, "o", color=colour(n), markersize=3,
                  markeredgewidth=0, alpha=0.8, label=device["name"])
        ordered = sorted(late)
        spread.step(ordered, [(k + 1) / len(ordered) for k in range(len(ordered))],
                    where="post", color=colour(n), linewidth=1.4)
    _dress_latency(over, spread)
    markers = [_marker(device["name"], marker="o", color=colour(n), markersize=5)
               for n, device in enumerate(devices)]
    _legend(figure, kinds, markers)
    return _svg(figure)


@matplotlib.rc_context(STYLE)
def duplicates(devices, outages, end):
    """Copies of each record that were removed, at the time the record was taken."""
    figure, axes = _panels(len(devices), 0.95, sharey=True)
    most = max([1] + [s["copies"] - 1 for device in devices for s in device["samples"]])
    kinds = set()
    for n, (ax, device) in enumerate(zip(axes, devices)):
        kinds |= _shade(ax, outages, device["name"], end)
        more = [s for s in device["samples"] if s["copies"] > 1]
        if more:
            ax.vlines([s["taken"] for s in more], 0, [s["copies"] - 1 for s in more],
                      color=colour(n), linewidth=1.6)
            ax.plot([s["taken"] for s in more], [s["copies"] - 1 for s in more], "o",
                    color=colour(n), markersize=3.5, markeredgewidth=0)
        ax.set_title("%s: %d removed" % (device["name"], device["verdict"]["duplicates"]),
                     loc="left", fontweight="bold", color=colour(n))
        ax.set_ylim(0, most + 0.4)
        ax.yaxis.set_major_locator(MaxNLocator(3, integer=True, min_n_ticks=1))
    axes[-1].set_xlim(0, end)
    axes[-1].set_xlabel("seconds since the boards were switched on (reading taken)")
    figure.supylabel("copies removed", fontsize=9)
    _legend(figure, kinds)
    return _svg(figure)


# Colours of the cells of the coverage strip.
ONCE, AGAIN, MISSING = "#a7f3d0", "#059669", "#dc2626"


@matplotlib.rc_context(STYLE)
def coverage(devices):
    """One cell per sequence number: arrived once, more than once, or missing."""
    strips = [(device, epoch) for device in devices for epoch in device["epochs"]]
    figure = Figure(figsize=(10, 0.62 * max(1, len(strips)) + 0.9), layout="constrained")
    ax = figure.subplots()
    for y, (_, epoch) in enumerate(strips):
        for names, paint in (("once", ONCE), ("again", AGAIN), ("missing", MISSING)):
            ax.broken_barh([(first - 0.5, last - first + 1) for first, last in epoch[names]],
                           (y - 0.3, 0.6), facecolor=paint, linewidth=0)
    ax.set_yticks(range(len(strips)),
                  ["%s\n%s" % (device["name"], epoch["epoch"][:8]) for device, epoch in strips])
    ax.set_ylim(len(strips) - 0.5, -0.5)
    ax.set_xlabel("sequence number")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    figure.legend(handles=[Patch(color=ONCE, label="arrived once"),
                           Patch(color=AGAIN, label="arrived more than once, kept once"),
                           Patch(color=MISSING, label="missing")],
                  loc="outside upper center", ncols=3, frameon=False, fontsize=8.5)
    return _svg(figure)


@matplotlib.rc_context(STYLE)
def values(devices, outages, end):
    """What the sensors measured, as the table has it."""
    figure, axes = _panels(1, 2.4)
    drawn = False
    for n, device in enumerate(devices):
        points = [(s["taken"], s["value"]) for s in device["samples"] if s["value"] is not None]
        drawn = drawn or bool(points)
        axes[0].plot([x for x, _ in points], [y for _, y in points], color=colour(n),
                     linewidth=1.2, label=device["name"])
    axes[0].set_ylabel("temperature, °C")
    axes[0].set_xlabel("seconds since the boards were switched on")
    _legend(figure, (), [Line2D([], [], color=colour(n), label=device["name"])
                         for n, device in enumerate(devices)])
    return _svg(figure) if drawn else ""
