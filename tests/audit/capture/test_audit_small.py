"""A small capture is audited in one process, a large one by Spark: the tables are the same.

Knows: the command and the tables. Must not know: how either works.
"""

import os
import random
import re
import subprocess
import sys
import threading

import audit_kit as kit
import pyarrow.parquet as pq
from mqtt_audit.report.columns import TABLES
from patience import wait_until
from pipeline_kit import AUDIT

PUB1 = kit.publish("a/b", b"1", 1, 7)


def _captures(folder):
    """Clients that come back with what was open, some of it without DUP; holes; many messages."""
    choice, start, files = random.Random(5), kit.START, []
    for number in range(3):
        frames = []
        for k in range(12):
            talk = kit.Talk((f"10.0.{k}.2", 40_000 + number), start=start).open()
            talk.client(kit.connect(f"dev{k}", flags=0)).broker(kit.connack(0, number > 0))
            if number:
                talk.client(kit.publish("a/b", b"1", 1, 7, dup=k % 3 > 0))
                talk.broker(kit.ack(4, 7)).client(kit.ack(6, 8)).broker(kit.ack(7, 8))
            for ident in range(20, 20 + choice.randrange(30)):
                talk.client(kit.publish("a/c", bytes(ident), 1, ident)).broker(kit.ack(4, ident))
            talk.client(PUB1).client(kit.publish("b", b"2", 2, 8)).broker(kit.ack(5, 8))
            talk.segment(0, flags=kit.RST)
            frames += talk.wrapped()
            start = talk.now
        files.append(kit.pcap(folder / f"{number}.pcap", choice.sample(frames, len(frames) - 9)
                              if number == 2 else frames))  # fmt: skip
    return files


def _rows(folder, name):
    return sorted(map(repr, pq.read_table(folder / name).to_pylist()))


def _lists(report):
    """A report without its figures."""
    return re.sub('base64,[^"]*', "", report.read_text())


def test_the_tables_are_those_that_spark_makes(spark, tmp_path, monkeypatch):
    from mqtt_audit import run
    from mqtt_audit.report import page

    files = _captures(tmp_path)
    monkeypatch.setattr(page, "SHOWN", 7)  # rows of a list, of which there are more
    with monkeypatch.context() as patch:
        patch.setattr(run, "SUMMED", 20)  # rows, so that Spark has several tasks of each step
        run.build(spark, files, tmp_path / "spark")
    assert len(list((tmp_path / "spark" / "devices").iterdir())) > 2
    run.build(None, files, tmp_path / "here")
    for name in (*TABLES, "devices", "brokers"):
        ours, theirs = _rows(tmp_path / "here", name), _rows(tmp_path / "spark", name)
        assert ours == theirs, name
    ours, theirs = (_lists(tmp_path / name / "report.html") for name in ("here", "spark"))
    assert ours == theirs and "(7 of " in ours
    flows = pq.read_table(tmp_path / "here" / "flows").to_pylist()
    assert {f["connections"] for f in flows} == {1, 2}
    again = pq.read_table(tmp_path / "here" / "violations")["statement"].to_pylist()
    assert again.count("MQTT-3.3.1-1") >= 4


def test_the_report_has_the_same_rows_whichever_task_ends_first(tmp_path, monkeypatch):
    """Which file of a table comes first is chance, and it shows but some of the rows."""
    from mqtt_audit import run
    from mqtt_audit.report import page

    monkeypatch.setattr(page, "SHOWN", 7)
    out = tmp_path / "out"
    run.build(None, _captures(tmp_path), out)
    for table in filter(os.path.isdir, out.iterdir()):
        files = sorted(table.glob("*.parquet"))
        for k, path in enumerate(files):
            path.rename(table / f"part-z{len(files) - k}.parquet")
    page.build(out, tmp_path / "again.html")
    assert len(list((out / "problems").iterdir())) > 1
    assert _lists(tmp_path / "again.html") == _lists(out / "report.html")


def test_no_spark_is_started_for_a_small_capture(tmp_path):
    """Not even imported."""
    files = _captures(tmp_path)
    script = ("import sys\nfrom mqtt_audit import cli\nsys.argv[0] = 'mqtt-audit'\n"
              "try:\n    cli.main()\nexcept SystemExit as end:\n"
              "    assert not {'pyspark', 'py4j'} & set(sys.modules), end.code\n    raise\n")
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, files), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "out" / "packets").num_rows > 300


def test_a_package_that_is_missing_is_of_the_extra_of_the_audit(tmp_path):
    """Whoever wants the audit alone is not told to install the pipeline."""
    script = ("import sys\nfrom mqtt_audit import cli\nsys.modules['jinja2'] = None\n"
              "cli.main()\n")  # fmt: skip
    capture = kit.pcap(tmp_path / "t.pcap", kit.Talk().open().wrapped())
    done = subprocess.run(
        [sys.executable, "-c", script, str(capture), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 2 and "pip install '.[audit]'" in done.stderr


def test_the_first_run_says_that_it_compiles_and_how_far_it_is(tmp_path):
    """Nothing is kept in a new folder, and there is more than Python works through as soon; the
    test does not wait for the end."""
    capture = kit.pcap(tmp_path / "t.pcap", kit.Talk().open().wrapped() * 4000)
    program = subprocess.Popen(
        [AUDIT, capture, "--out", tmp_path / "out"], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")})  # fmt: skip
    said = []
    reader = threading.Thread(target=lambda: said.extend(program.stderr), daemon=True)
    reader.start()
    try:
        wait_until(lambda: len(said) > 1, 120, "two lines")
    finally:
        program.kill()
        program.wait(60)
        reader.join(60)
        program.stderr.close()
    assert "compiling the inner loops, once for this installation" in said[0]
    assert re.search(r"compiling: \d+ of \d+ loops", said[1])
