"""The report of a run: one file, every count in it, whatever the run was like."""

import base64
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import synthetic
from umqtt_demo import report


def figures(html):
    return [base64.b64decode(text).decode()
            for text in re.findall(r'src(?:set)?="data:image/svg\+xml;base64,([^"]+)"', html)]


def test_it_needs_nothing_else():
    html = report.render(synthetic.run())
    assert not re.findall(r'(?:src|href)="(?!data:)', html)
    drawn = figures(html)
    assert len(drawn) == 10
    for svg in drawn:
        ET.fromstring(svg)


def test_a_right_run_says_so():
    html = report.render(synthetic.run())
    assert "Every reading is in the table exactly once" in html
    assert "360 readings of 3 boards, 6 faults" in html
    assert "✗" not in html


def test_a_lost_reading_is_named():
    html = report.render(synthetic.run(lose=(17,)))
    assert "A count is wrong" in html and "not in silver" in html and "✗" in html


def test_a_problem_beside_the_devices_makes_it_wrong():
    run = synthetic.run()
    run["problems"] = ["board-1: rows 120 by pyarrow, 119 by Spark"]
    html = report.render(run)
    assert "A count is wrong" in html and "119 by Spark" in html


def test_text_is_escaped():
    html = report.render(synthetic.run())
    assert "board &lt;away&gt;" in html and "<away>" not in html


@pytest.mark.parametrize("boards, readings", [(1, 1), (1, 20), (8, 3)])
def test_small_and_wide_runs(boards, readings):
    assert len(figures(report.render(synthetic.run(boards, readings)))) == 10


def test_a_run_in_which_nothing_arrived():
    run = synthetic.run(readings=3, lose=(1, 2, 3))
    run["outages"][0]["end"] = None
    for device in run["devices"]:
        device["samples"] = [dict(s, table=None, bridge=None, value=None)
                             for s in device["samples"]]
    run["devices"][1]["samples"] = []
    assert "A count is wrong" in report.render(run)


def test_ranges():
    assert report.ranges([]) == []
    assert report.ranges({5, 1, 2, 3, 9, 8}) == [[1, 3], [5, 5], [8, 9]]


def test_no_run_to_draw_again(tmp_path):
    done = subprocess.run([sys.executable, "-m", "umqtt_demo.report", str(tmp_path)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "run.json" in done.stderr and "Traceback" not in done.stderr


def test_faults_are_counted_alike_everywhere():
    run = synthetic.run()
    html = report.render(run)
    assert len(run["outages"]) == 7 and report.faults_of(run) == 6
    assert re.search(r"<b>6</b><span>faults</span>", html)
    assert report.summary(run) == "360 readings of 3 boards, 6 faults on the way."
    assert report.summary(run) in html and "outages" not in html


def test_the_picture_says_what_the_verdict_found():
    good = report.picture_title(synthetic.run())
    assert good == "360 readings taken, 6 faults, 360 rows in the table: every reading once"
    bad = synthetic.run(lose=(17,))
    assert report.picture_title(bad).endswith("359 rows in the table: a count is wrong, 1 missing")
    bad = synthetic.run()
    bad["problems"] = ["board-1: rows 120 by pyarrow, 119 by Spark"]
    assert "a count is wrong" in report.picture_title(bad)


def test_one_clock():
    # The terminal counts from the beginning of the demo, 9 s before the boards are switched on.
    html = report.render(synthetic.run())
    assert "<td>20.0 s</td>" in html and "<td>3.0 s</td>" in html
    assert "since the boards" not in html + "".join(figures(html))


def test_a_reading_that_was_cut_off_is_shown():
    run = synthetic.run()
    run["devices"][0]["verdict"].update(cut_off=1, taken=119, arrived=1)
    html = report.render(run)
    assert "359 readings of 3 boards, 6 faults on the way; 1 reading cut off" in html
    assert "<b>1</b><span>cut off while being taken</span>" in html
