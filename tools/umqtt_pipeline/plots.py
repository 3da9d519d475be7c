"""The plots of the report, as PNG in base64 text.

Knows matplotlib and arrow tables of gold_minute's and gold_device's columns. Must not know files
or HTML.
"""

import base64
import datetime
import io

import numpy as np
import pyarrow.compute as pc

SHORTEST = datetime.timedelta(minutes=10)  #: that a time axis shows
MEASUREMENTS = 6  #: of one device
LARGEST = 1e100  #: magnitude that is drawn: the range of an axis must not overflow
COLOUR = "#1f77b4"


def _pyplot():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _png(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=90, bbox_inches="tight")
    _pyplot().close(figure)
    return base64.b64encode(out.getvalue()).decode()


def _cut(text, form="{}"):
    """A text for beside an axis of the height of one plot."""
    return text and form.format(text if len(text) <= 20 else text[:19] + "\u2026")


def _plain(axis):
    axis.grid(alpha=0.3)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _span(minutes):
    """From when to when an axis has to reach: a plot of a moment would get an axis of years."""
    first, last = pc.min_max(minutes).as_py().values()
    spare = max((SHORTEST - (last - first)) / 2, (last - first) / 50)
    return first - spare, last + spare


def _times(axis, minutes):
    """The time axis: UTC, with no more of the date than is needed."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    places = AutoDateLocator(tz=datetime.UTC)
    axis.set_xlim(*_span(minutes))
    axis.xaxis.set_major_locator(places)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(places, tz=datetime.UTC))
    axis.set_xlabel("UTC")


def fleet(minutes, devices):
    """Devices that were heard of by minute (or hour), and the distribution of the latency.

    minutes   arrow table: minute, heard (number of devices)
    devices   arrow table of gold_device
    """
    curves = [(devices[column].drop_null().to_numpy(), label) for column, label in (
        ("latency_p50_s", "receipt, median"), ("latency_p99_s", "receipt, 99th percentile"),
        ("stored_p50_s", "table, median"), ("stored_p99_s", "table, 99th percentile"),
    )]  # fmt: skip
    plt = _pyplot()
    figure, axes = plt.subplots(
        1, 2, figsize=(11, 2.6), squeeze=False, width_ratios=(3, 2), layout="constrained"
    )
    left, right = axes[0]
    at = minutes.sort_by("minute")
    left.plot(at["minute"].to_pylist(), at["heard"].to_pylist(), color=COLOUR, marker=".",
              markersize=3, linewidth=1)  # fmt: skip
    left.set_ylim(0, None)
    left.yaxis.get_major_locator().set_params(integer=True)
    left.set_title("Devices with readings", loc="left", fontsize=10)
    _times(left, minutes["minute"])
    for values, label in curves:
        if len(values):
            values = np.sort(np.maximum(values, 1e-3))
            share = np.arange(1, len(values) + 1) / len(values) * 100
            right.step([values[0], *values], [0, *share], where="post", label=label)
    if len(curves[0][0]):
        right.set_xscale("log")
        right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        right.text(0.5, 0.5, "no device with a clock", transform=right.transAxes, ha="center")
    right.set_title("Reading to receipt and table: % of devices within", loc="left", fontsize=10)
    right.set_xlabel("seconds")
    _plain(left)
    _plain(right)
    return _png(figure)


def drawable(rows):
    """The rows of gold_minute that a plot can show: finite, and not beyond LARGEST."""
    for name in ("min", "mean", "max"):  # NaN is not less than anything
        rows = rows.filter(pc.less_equal(pc.abs(rows[name]), LARGEST))
    return rows


def device(rows):
    """The measurements of one device, an axis for each; rows: arrow table of gold_minute with at
    least one row, all of them drawable."""
    plt = _pyplot()
    names = sorted(pc.unique(rows["name"]).to_pylist())[:MEASUREMENTS]
    figure, axes = plt.subplots(len(names), 1, figsize=(11, 0.6 + 1.3 * len(names)), sharex=True,
                                squeeze=False, layout="constrained")  # fmt: skip
    for axis, measurement in zip(axes[:, 0], names):
        part = rows.filter(pc.equal(rows["name"], measurement)).sort_by("minute")
        minutes = part["minute"].to_pylist()
        low, high = part["min"].to_pylist(), part["max"].to_pylist()
        axis.fill_between(minutes, low, high, alpha=0.2, color=COLOUR, linewidth=0)
        axis.vlines(minutes, low, high, alpha=0.3, color=COLOUR)
        axis.plot(minutes, part["mean"].to_pylist(), marker=".", markersize=4, linewidth=1,
                  color=COLOUR)  # fmt: skip
        label = "\n".join(filter(None, (_cut(measurement), _cut(part["unit"][0].as_py(), "[{}]"))))
        axis.set_ylabel(label, parse_math=False)
        axis.ticklabel_format(axis="y", useOffset=False)
        _plain(axis)
    _times(axes[-1, 0], rows["minute"])
    return _png(figure)
