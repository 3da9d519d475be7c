"""The fleet report tells the truth, and its plots can be read: on a wide screen and on a phone."""

import datetime
import warnings

import pyarrow as pa
import pytest
from click.testing import CliRunner
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from pipeline_kit import EPOCH, NOON, senml, topic
from pipeline_tables import put
from umqtt_pipeline import commands
from umqtt_pipeline.gold import build
from umqtt_pipeline.gold.events import MISSING
from umqtt_pipeline.gold.schema import DAY, DEVICES, MINUTE
from umqtt_pipeline.report import page as report
from umqtt_pipeline.report import plots
from umqtt_pipeline.tables import quarantine
from umqtt_pipeline.tables.schema import BATCHES, QUARANTINE

WIDTHS = [plots.WIDE, plots.NARROW]


def at(seconds):
    return datetime.datetime.fromtimestamp(NOON / 1e6 + seconds, datetime.UTC)


@pytest.fixture
def fleet(tmp_path):
    """Numbers 5 and 6 of dev1 are in no reading: 5 is in quarantine. dev2 sends nothing but
    rubbish, the last of it now; dev3 is silent."""
    zero = dict.fromkeys(DEVICES, 0)
    times = {"first_time": None, "last_time": None, "latency_p50_s": None, "group": "g"}
    device = {**zero, **times, "readings": 8, "first_sequence": 1, "last_sequence": 10}
    put(tmp_path, "gold_device", DEVICES,
        {**device, "device": "dev1", "missing": 1, "quarantined": 1, "last_received": at(0)},
        {**device, "device": "dev2", "readings": 0, "quarantined": 1, "last_received": None},
        {**device, "device": "dev3", "last_received": at(-7200)})  # fmt: skip
    put(tmp_path, "gaps", build.TABLES["gaps"],
        {"group": "g", "device": "dev1", "epoch": EPOCH.hex(), "first": 5, "last": 6, "missing": 1,
         "quarantined": 1, "deleted": 7, "reason": MISSING, "first_received": at(0)})  # fmt: skip
    warm = senml(5, [("t", "Cel", "<b>warm")])
    put(tmp_path, "quarantine", QUARANTINE,
        {"topic": topic("dev1"), "payload": warm, "reason": "t is no number",
         "received_at": at(5)},
        {"topic": topic("dev2"), "payload": b'{"t": "<i>"}', "reason": "epoch is missing",
         "received_at": at(180)})  # fmt: skip
    return tmp_path


def page(root):
    report.build(root, root / "r.html")
    return (root / "r.html").read_text()


def cells(text, device):
    """{column: text} of a device's row in the list of devices."""
    row = text.partition(f'<td class="l">g/{device}</td>')[2].partition("</tr>")[0]
    marked = row.replace(' class="bad"', "!").split('<td data-name="')[1:]
    named = (cell.partition(">") for cell in marked)
    return {name.replace('"', ""): value.partition("<")[0] for name, _, value in named}


def test_a_number_in_quarantine_is_not_called_missing(fleet):
    text = page(fleet)
    assert cells(text, "dev1")["missing!"] == "1" and "<b>1</b>missing" in text
    gaps = text.partition("<h2>Gaps")[2].partition("</section>")[0]
    for name, count in (("never came", 1), ("in quarantine", 1), ("deleted", 7)):
        assert f'data-name="{name}">{count}<' in gaps


def test_a_device_of_which_a_packet_came_is_not_silent(fleet):
    """Three minutes after its packet it was called silent for an hour: none was a reading."""
    text = page(fleet)
    assert cells(text, "dev2")["last heard"] == "2026-01-01 12:03:00"
    assert "last heard!" in cells(text, "dev3") and "<b>1</b>silent" in text
    assert "The last message came at 2026-01-01 12:03:00" in text


@pytest.mark.parametrize("made,words", [
    ([0, 1], "2 batches with readings came after the last run of"), ([3], "1 batch with readings"),
    ([4], None), ([5], None), ([], "4 batches with readings"), (None, None)])  # fmt: skip
def test_readings_that_gold_does_not_have_yet_are_told_of(fleet, made, words):
    """made: the batches that gold has had, None without that table."""
    put(fleet, "batches", BATCHES, *({"batch": n, "rows": 9, "readings": 9 * (n != 2)}
                                     for n in (0, 1, 2, 3, 4)))  # fmt: skip
    if made is not None:
        put(fleet, "gold_day", DAY, *({"batch": n, "readings": 9} for n in made))
    text = page(fleet)
    assert (words in text) if words else "the last run of" not in text


def test_no_name_is_markup_or_turns_the_direction_of_what_stands_beside_it(tmp_path):
    put(tmp_path, "gold_device", DEVICES,
        {**dict.fromkeys(DEVICES, 0), "first_time": None, "last_time": None,
         "latency_p50_s": None, "readings": 8, "last_received": at(0), "group": "g\u202eq",
         "device": "<d>\x1b[2J\x9b\u2066\u200f"})  # fmt: skip
    text = page(tmp_path)
    assert "g\ufffdq/&lt;d&gt;\ufffd[2J\ufffd\ufffd\ufffd" in text and "<d>" not in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_the_quarantine_shows_device_payload_and_time_the_last_first(fleet):
    shown = page(fleet).partition("<h2>Quarantine")[2]
    assert shown.index("fleet/g/dev2/telemetry") < shown.index("fleet/g/dev1/telemetry")
    assert "{&#34;t&#34;: &#34;&lt;i&gt;&#34;}" in shown and "2026-01-01 12:03:00" in shown
    assert "<i>" not in shown and "0x81" in shown


@pytest.mark.parametrize("payload,text", [
    (b"", ""), (b'{"a":\n 1}', '{"a": 1}'), (b"\x81\xff", "0x81ff"),
    (b"\x1b[2J", "0x1b5b324a"), (b"x" * 300, "x" * 199 + "\u2026"),
    ("20 °C".encode(), "20 °C"),
])  # fmt: skip
def test_a_payload_is_shown_in_one_line(payload, text):
    assert quarantine.shown(payload) == text


def test_a_table_without_a_column_that_is_shown_ends_in_a_sentence(tmp_path):
    """As an earlier version has left it."""
    earlier = {name: kind for name, kind in DEVICES.items() if name not in ("rssi", "missing")}
    put(tmp_path, "gold_device", earlier, {**dict.fromkeys(earlier), "group": "g", "device": "d"})
    given = ["report", "--tables", str(tmp_path), "--out", str(tmp_path / "r.html")]
    done = CliRunner().invoke(commands.main, given)
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit)
    assert done.output.splitlines()[-1] == (
        f"Error: the table gold_device in {tmp_path} is of an earlier version, without missing, "
        f"rssi: run `umqtt-pipeline gold --tables {tmp_path}`")  # fmt: skip
    assert not (tmp_path / "r.html").exists()


def minutes(*numbers, name="temperature", unit="Cel"):
    rows = [{"name": name, "unit": unit, "minute": at(60 * n), "min": n - 1.0, "mean": float(n),
             "max": n + 1.0} for n in numbers]  # fmt: skip
    kinds = {"name": pa.string(), "unit": pa.string(), "minute": pa.timestamp("us", "UTC"),
             "min": pa.float64(), "mean": pa.float64(), "max": pa.float64()}  # fmt: skip
    return pa.Table.from_pylist(rows, pa.schema(kinds))


def drawn(name, width):
    """A plot with a hole of 40 minutes, laid out."""
    span = (*range(20), *range(60, 80))
    if name == "device":
        long = minutes(*span, name="a name too long for an axis")
        rows = pa.concat_tables([long, minutes(3, name="once", unit=None), minutes(*span)])
        figure = plots.device(rows, width)
    else:
        heard = pa.table({"minute": [at(60 * n) for n in span], "heard": [20] * len(span)})
        late = {column: [0.004, 0.02, 1.5, 300.0, 90_000.0] for column, *_ in plots.CURVES}
        figure = plots.fleet(heard, pa.table(late), datetime.timedelta(minutes=1), width)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return figure, canvas.get_renderer()


def texts_of(figure):
    found = []
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks()
                      if tick.label1.get_visible() and low <= tick.get_loc() <= high]
            found += [axis.label, axis.get_offset_text()]
        found += [child for child in ax.get_children() if isinstance(child, Text)]
    for legend in figure.legends:
        found += legend.get_texts()
    return [text for text in found if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["fleet", "device"])
def test_no_words_are_drawn_over_others_nor_cut_off(name, width):
    figure, renderer = drawn(name, width)
    found = [(text.get_text(), text.get_window_extent(renderer)) for text in texts_of(figure)]
    assert len(found) > 10
    for n, (one, a) in enumerate(found):
        assert a.x0 >= -1 and a.x1 <= figure.bbox.x1 + 1, one
        for other, b in found[n + 1 :]:
            assert not a.overlaps(b), (one, other)


@pytest.mark.parametrize("name", ["fleet", "device"])
def test_every_colour_has_its_name(name):
    figure, _ = drawn(name, plots.WIDE)
    named = {to_hex(h.get_facecolor() if hasattr(h, "get_facecolor") else h.get_color())
             for legend in figure.legends for h in legend.legend_handles}
    used = {to_hex(line.get_color()) for ax in figure.axes for line in ax.lines}
    used |= {to_hex(c) for ax in figure.axes for held in ax.collections
             for c in held.get_facecolor()}  # fmt: skip
    assert used <= named


def test_nobody_is_drawn_where_nobody_was_heard():
    figure, _ = drawn("fleet", plots.WIDE)
    (line,) = figure.axes[0].lines
    held = dict(zip(line.get_xdata(), line.get_ydata()))
    assert held[at(60 * 20)] == held[at(60 * 59)] == 0 and held[at(60 * 19)] == 20


def test_no_line_crosses_a_hole():
    figure, _ = drawn("device", plots.WIDE)
    lines = [line for line in figure.axes[2].lines if len(line.get_xdata()) > 1]
    assert [len(line.get_xdata()) for line in lines] == [20, 20]
    assert plots.broken([at(600 * n) for n in range(9)]) == []  # a reading every ten minutes


def test_the_report_has_a_form_for_phones(fleet):
    put(fleet, "gold_minute", MINUTE, *(
        {**row, "group": "g", "device": "dev1", "count": 1} for row in minutes(1, 2).to_pylist()))
    text = page(fleet)
    assert text.count('<source media="(max-width: 640px)"') == text.count("<img ") == 2
    assert 'name="viewport"' in text


@pytest.mark.parametrize("name,shown", [
    ("a\0b\n", r"a\x00b\n [Cel]"), ("\u6e29", r"\u6e29 [Cel]"),
    ("stra\u00dfe", "stra\u00dfe [Cel]"),
])  # fmt: skip
def test_letters_that_no_plot_can_draw_are_escaped(name, shown, recwarn):
    """matplotlib would warn of each of them, in its own words."""
    figure = plots.device(minutes(1.0, 2.0, name=name), plots.WIDE)
    plots.svg(figure)
    assert figure.axes[0].get_title(loc="left") == shown
    assert not recwarn.list


@pytest.mark.parametrize("width", WIDTHS)
def test_the_time_axis_has_few_ticks_whatever_the_span(width):
    """From seconds to twenty years; what matplotlib warns of would stand in a command's output."""
    seconds = 90
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while seconds < 20 * 366 * 86_400:
            axis = Figure(figsize=(width, 3)).subplots()
            plots._times(axis, pa.array([at(0), at(seconds)]), width)
            assert 2 <= len(axis.get_xticks()) <= 12, seconds
            seconds *= 1.19
