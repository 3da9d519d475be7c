"""The plots of the report, as SVG text, each in a wide and in a narrow form; and the picture.

Knows matplotlib and plain numbers (see report.py for their form). Must not know files or HTML.

Colours belong to the devices. What was away is told by the place of a bar in the strip on top, not
by a colour of its own; below it one grey shades every moment in which something was away, so that
two outages at once look like one.
"""

import io

import matplotlib

matplotlib.use("Agg")
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.patches import Patch  # noqa: E402
from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: E402

INK, FAINT, GRID, SHADE, LOST = "#1f2937", "#9ca3af", "#e5e7eb", "#dfe3e8", "#dc2626"
# Okabe and Ito's colours, which people who see few colours tell apart, and darker kin of some.
DEVICES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#004c6d", "#7a5c00")
# The rows of the strip on top, by kind of outage.
AWAY = {"board": "board without power", "link": "link cut", "broker": "broker down",
        "bridge": "bridge down", "spark": "Spark down"}
WIDE, NARROW = 10.0, 4.2  # inches
TIME = "seconds into the demo"
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 9, "axes.edgecolor": FAINT, "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "svg.hashsalt": "umqtt",
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10,
}


def colour(n):
    """Colour of device number n = 0.."""
    return DEVICES[n % len(DEVICES)]


@matplotlib.rc_context(STYLE)
def svg(figure):
    """A figure as SVG text."""
    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
    return text.getvalue()


@matplotlib.rc_context(STYLE)
def png(figure):
    """A figure as the bytes of a PNG file, 110 dots an inch."""
    data = io.BytesIO()
    figure.set_dpi(110)
    FigureCanvasAgg(figure).print_png(data, metadata={"Software": None})
    return data.getvalue()


def _grid(ax, run):
    ax.grid(True, color=GRID, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_xlim(*_span(run))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _span(run):
    moments = [s["table"] or s["taken"] for d in run["devices"] for s in d["samples"]]
    ends = [o["end"] or 0 for o in run["outages"]]
    last = max([run["ended"], run["boards_on"] + 1, *moments, *ends])
    # Some room behind the last dot: it is a dot, not half of one.
    return run["boards_on"], last + 0.01 * (last - run["boards_on"])


def _kinds(run):
    kinds = {outage["kind"] for outage in run["outages"]}
    return [kind for kind in AWAY if kind in kinds]


def _panels(run, heights, width, **options):
    """A figure with the strip of outages on top, where there were any, and a panel per height."""
    kinds = _kinds(run)
    strip = [0.17 * len(kinds) + 0.22] if kinds else []
    figure = Figure(figsize=(width, sum(heights) + sum(strip) + 0.9), layout="constrained")
    axes = list(figure.subplots(len(strip) + len(heights), 1, sharex=True, squeeze=False,
                                height_ratios=strip + heights, **options)[:, 0])
    for ax in axes:
        _grid(ax, run)
    if kinds:
        _strip(axes.pop(0), run, kinds)
    return figure, axes


def _strip(ax, run, kinds):
    paints = {device["name"]: colour(n) for n, device in enumerate(run["devices"])}
    for outage in run["outages"]:
        start, stop = outage["start"], _stop(outage, run)
        y = kinds.index(outage["kind"]) - 0.36
        ax.broken_barh([(start, max(stop - start, 0.3))], (y, 0.72), linewidth=0,
                       facecolor=paints.get(outage["target"], INK))
    ax.set_yticks(range(len(kinds)), [AWAY[kind] for kind in kinds], fontsize=8)
    ax.set_ylim(len(kinds) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelbottom=False)
    ax.spines["left"].set_visible(False)
    ax.grid(False, axis="y")


def _stop(outage, run):
    return outage["end"] if outage["end"] is not None else run["ended"]


def away(run, device=None):
    """[(start, stop)] in which something was away for that device, or for any; none overlap."""
    found = []
    for outage in sorted(run["outages"], key=lambda one: one["start"]):
        if device is not None and outage["target"] not in ("", device):
            continue
        start, stop = outage["start"], _stop(outage, run)
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found


def _shade(ax, run, device=None):
    for start, stop in away(run, device):
        ax.axvspan(start, max(stop, start + 0.1), linewidth=0, color=SHADE, zorder=0)


def _legend(figure, handles, width, where="upper"):
    # As many columns as the longest label leaves room for, in inches.
    longest = max(len(handle.get_label()) for handle in handles)
    columns = max(1, min(len(handles), int(width / (longest * 0.075 + 0.6))))
    figure.legend(handles=handles, loc="outside %s center" % where, ncols=columns, frameon=False,
                  fontsize=8.5, handlelength=1.6, columnspacing=1.4)


def _marker(label, **style):
    return Line2D([], [], linestyle="", label=label, **style)


def _shaded(run):
    return [Patch(color=SHADE, label="something was away")] if run["outages"] else []


# -- the way of every reading ---------------------------------------------------------------------


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
            color=LOST, markersize=7, markeredgewidth=2)
    ax.set_title(device["name"], loc="left", fontweight="bold", color=paint)
    ax.set_ylabel("reading")
    ax.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _journeys(run, width, height, legend="upper"):
    figure, axes = _panels(run, [height] * len(run["devices"]), width)
    for n, (ax, device) in enumerate(zip(axes, run["devices"])):
        _shade(ax, run, device["name"])
        _journey(ax, device, colour(n))
    axes[-1].set_xlabel(TIME)
    handles = [_marker("taken", marker=".", color=INK, markersize=5),
               Line2D([], [], color=INK, linewidth=1.2, label="on its way to the spool"),
               Line2D([], [], color=INK, linewidth=1.2, alpha=0.35, label="in the spool"),
               _marker("in the table", marker="o", color=FAINT, markersize=5), *_shaded(run)]
    if any(s["table"] is None for device in run["devices"] for s in device["samples"]):
        handles.append(_marker("lost", marker="x", color=LOST, markersize=6, markeredgewidth=2))
    _legend(figure, handles, width, legend)
    return figure


@matplotlib.rc_context(STYLE)
def journeys(run, width):
    """Each reading as a line from the moment it was taken to the moment it was in the table.

    The line is strong until the reading is in the bridge's spool, and faint from there.
    """
    return _journeys(run, width, 1.45)


@matplotlib.rc_context(STYLE)
def picture(run, title):
    """The run in one small picture: what was away, and the way of every reading.

    title: one line above it
    """
    figure = _journeys(run, 8.4, 0.95, "lower")
    figure.suptitle(title, fontsize=12, fontweight="bold")
    return figure


# -- latency --------------------------------------------------------------------------------------


def _dress_latency(over, spread):
    over.set_xlabel(TIME + " (reading taken)")
    over.set_ylabel("seconds from reading to table")
    over.set_ylim(bottom=0)
    over.yaxis.set_major_locator(MaxNLocator(6))
    spread.set_xlabel("seconds from reading to table")
    spread.yaxis.set_major_formatter(FuncFormatter(lambda v, _: "%d %%" % round(v * 100)))
    spread.set_ylabel("share of the readings")
    spread.set_ylim(0, 1.02)
    spread.set_xlim(left=0)
    spread.grid(True, color=GRID, linewidth=0.6)
    spread.set_axisbelow(True)
    spread.xaxis.set_major_locator(MaxNLocator(6))


@matplotlib.rc_context(STYLE)
def latency(run, width):
    """Time from reading to table, over time and as a distribution."""
    figure = Figure(figsize=(width, 3.9 if width == WIDE else 6.4), layout="constrained")
    over, spread = (figure.subplots(1, 2, width_ratios=(2.4, 1)) if width == WIDE
                    else figure.subplots(2, 1))
    _grid(over, run)
    _shade(over, run)
    for n, device in enumerate(run["devices"]):
        done = [s for s in device["samples"] if s["table"] is not None]
        late = [max(0.001, s["table"] - s["taken"]) for s in done]
        over.plot([s["taken"] for s in done], late, "o", color=colour(n), markersize=3,
                  markeredgewidth=0, alpha=0.8)
        ordered = sorted(late)
        spread.step(ordered, [(k + 1) / len(ordered) for k in range(len(ordered))],
                    where="post", color=colour(n), linewidth=1.4)
    _dress_latency(over, spread)
    markers = [_marker(device["name"], marker="o", color=colour(n), markersize=5)
               for n, device in enumerate(run["devices"])]
    _legend(figure, markers + _shaded(run), width)
    return figure


# -- duplicates, sequence numbers, values ---------------------------------------------------------


@matplotlib.rc_context(STYLE)
def duplicates(run, width):
    """Copies of each record that were removed, at the time the record was taken."""
    devices = run["devices"]
    figure, axes = _panels(run, [0.8] * len(devices), width)
    most = max([1] + [s["copies"] - 1 for device in devices for s in device["samples"]])
    for n, (ax, device) in enumerate(zip(axes, devices)):
        _shade(ax, run, device["name"])
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
    axes[-1].set_xlabel(TIME + " (reading taken)")
    figure.supylabel("copies removed", fontsize=9)
    if run["outages"]:
        _legend(figure, _shaded(run), width)
    return figure


# Colours of the cells of the coverage strip; they differ in lightness, too.
ONCE, AGAIN = "#bfe3d7", "#007355"


@matplotlib.rc_context(STYLE)
def coverage(run, width):
    """One cell per sequence number: arrived once, more than once, or missing."""
    strips = [(device, epoch) for device in run["devices"] for epoch in device["epochs"]]
    figure = Figure(figsize=(width, 0.62 * max(1, len(strips)) + 1.2), layout="constrained")
    ax = figure.subplots()
    for y, (_, epoch) in enumerate(strips):
        for names, paint in (("once", ONCE), ("again", AGAIN), ("missing", LOST)):
            ax.broken_barh([(first - 0.5, last - first + 1) for first, last in epoch[names]],
                           (y - 0.3, 0.6), facecolor=paint, linewidth=0)
    ax.set_yticks(range(len(strips)),
                  ["%s\n%s" % (device["name"], epoch["epoch"][:8]) for device, epoch in strips])
    ax.set_ylim(max(0.5, len(strips) - 0.5), -0.5)
    ax.set_xlabel("sequence number")
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    _legend(figure, [Patch(color=ONCE, label="arrived once"),
                     Patch(color=AGAIN, label="arrived more than once, kept once"),
                     Patch(color=LOST, label="missing")], width)
    return figure


@matplotlib.rc_context(STYLE)
def values(run, width):
    """What the sensors measured, as the table has it."""
    figure = Figure(figsize=(width, 3.2), layout="constrained")
    ax = figure.subplots()
    _grid(ax, run)
    drawn = False
    for n, device in enumerate(run["devices"]):
        points = [(s["taken"], s["value"]) for s in device["samples"] if s["value"] is not None]
        drawn = drawn or bool(points)
        ax.plot([x for x, _ in points], [y for _, y in points], color=colour(n), linewidth=1.2)
    ax.set_ylabel("temperature, °C")
    ax.set_xlabel(TIME)
    _legend(figure, [Line2D([], [], color=colour(n), label=device["name"])
                     for n, device in enumerate(run["devices"])], width)
    return figure if drawn else None
