"""The plots can be read: nothing is drawn over something else, and each colour has its name."""

import pytest
import synthetic
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text
from umqtt_demo import plots, report

NAMES = [name for name, _, _ in report.FIGURES]
WIDTHS = [plots.WIDE, plots.NARROW]


def since():
    """A run with its moments in seconds, as the report draws it."""
    return report._since(synthetic.run())


def drawn(name, width, run=None):
    """(figure, renderer) of one plot, laid out."""
    figure = getattr(plots, name)(run or since(), width)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return figure, canvas.get_renderer()


def boxes(texts, renderer):
    return [(t.get_text(), t.get_window_extent(renderer)) for t in texts
            if t.get_text() and t.get_visible()]


def titles(ax):
    return [child for child in ax.get_children() if isinstance(child, Text) and child.get_text()]


def texts_of(figure):
    """What is written around the panels: labels of the axes, titles and legends."""
    found = [child for child in figure.get_children() if isinstance(child, Text)]
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks()
                      if tick.label1.get_visible() and low <= tick.get_loc() <= high]
            found.append(axis.label)
        found += titles(ax)
    for legend in figure.legends:
        found += legend.get_texts()
    return found


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_no_words_are_drawn_over_others_nor_cut_off(name, width):
    legible(*drawn(name, width))


def test_no_words_of_the_picture_are_drawn_over_others():
    figure = plots.picture(since(), "360 readings taken, 6 faults, 360 rows in the table")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    legible(figure, canvas.get_renderer())


def legible(figure, renderer):
    page = figure.bbox
    found = boxes(texts_of(figure), renderer)
    for text, box in found:
        assert box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1, (text, box, page)
    for n, (one, a) in enumerate(found):
        for other, b in found[n + 1 :]:
            assert not a.overlaps(b) or one == other, (one, other)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["journeys", "latency", "duplicates"])
def test_two_outages_at_once_look_like_one(name, width):
    run = since()
    figure, _ = drawn(name, width, run)
    assert plots.away(run)[-1] == (71, 75)  # the bridge is away, and the broker meanwhile
    for ax in figure.axes:
        spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in ax.patches
                       if to_hex(p.get_facecolor()) == plots.SHADE)
        assert all(end < start for (_, end), (start, _) in zip(spans, spans[1:]))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_colour_has_its_name(name, width):
    run = since()
    figure, _ = drawn(name, width, run)
    named = {to_hex(h.get_facecolor() if hasattr(h, "get_facecolor") else h.get_color())
             for legend in figure.legends for h in legend.legend_handles}
    named |= {to_hex(text.get_color()) for ax in figure.axes for text in titles(ax)}
    used = {to_hex(line.get_color()) for ax in figure.axes for line in ax.lines
            if len(line.get_xdata())}
    used |= {to_hex(patch.get_facecolor()) for ax in figure.axes for patch in ax.patches}
    assert used <= named | {plots.INK}, (used - named)


def test_devices_and_shading_are_told_apart_in_black_and_white():
    def lightness(paint):
        red, green, blue = (int(paint[n : n + 2], 16) for n in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    assert all(lightness(plots.SHADE) - lightness(paint) > 40 for paint in plots.DEVICES)


def test_no_axis_mixes_milliseconds_and_seconds():
    figure, _ = drawn("latency", plots.WIDE)
    labels = [tick.label1.get_text() for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)
              for tick in axis.get_major_ticks()]
    assert not [text for text in labels if "ms" in text or text.endswith("s")]


def test_the_last_dot_is_whole():
    run = since()
    run["ended"] = last = max(s["table"] for d in run["devices"] for s in d["samples"])
    figure, _ = drawn("journeys", plots.WIDE, run)
    for ax in figure.axes:
        right = ax.get_xlim()[1]
        assert (right - last) / (right - run["boards_on"]) * ax.bbox.width > 2


def test_the_picture_is_small(tmp_path):
    report.write_picture(synthetic.run(), tmp_path / "picture.png")
    data = (tmp_path / "picture.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) < 120_000
