"""OWN_JSON.md does what it says: its commands and programs are run, their output is compared."""

import re
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
import umqtt_pipeline
from pipeline_kit import QUICK, end, fill, publish, run, spawn, wait_for
from pipeline_tables import numbers, table

PAGE = Path(umqtt_pipeline.__file__).with_name("OWN_JSON.md").read_text()
SECONDS = 120
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"


def blocks(kind):
    every = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for name, text in every if name == kind]


def commands(program):
    """The page's command lines of a program, each a list of words behind its name."""
    lines = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    return [words[1:] for words in lines if words[0] == program]


def plain(text):
    """Without the blanks at the ends of lines and around, and of no particular time."""
    lines = re.sub(TIME, "TIME", text).strip().splitlines()
    return [line.rstrip() for line in lines]


class Device:
    """Publishes what the page gives to mosquitto_pub."""

    def __init__(self, port):
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def publish(self, words):
        given = dict(zip(words[::2], words[1::2]))
        sent = self.client.publish(given["-t"], given["-m"], int(given["-q"]))
        sent.wait_for_publish(SECONDS)
        assert sent.is_published()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


def output(program):
    """What a program of the page prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=SECONDS)  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_the_tests_broker_holds_messages_by_the_lines_that_the_page_asks_for(broker):
    """With mosquitto's defaults most of what comes while the bridge is down would be lost."""
    (lines,) = blocks("conf")
    assert "max_queued_messages 0" in lines
    configuration = (broker.folder / "mosquitto.conf").read_text().splitlines()
    assert set(lines.splitlines()) <= set(configuration)
    operations = Path(umqtt_pipeline.__file__).with_name("OPERATIONS.md").read_text()
    assert all(f"`{line}`" in operations for line in lines.splitlines())


def test_the_whole_page(broker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bridge, ingest, quarantine, own_ingest = commands("umqtt-pipeline")
    first, second, wrong, own = commands("mosquitto_pub")
    duckdb, pandas, decoder, _ = blocks("python")
    duckdb_rows, pandas_rows, shown = blocks("")
    bridge = [word.replace("localhost:1883", f"127.0.0.1:{broker.port}") for word in bridge]
    spawn(*bridge, log="bridge.log")
    log, tables = Path("bridge.log"), Path("tables")
    wait_for(lambda: "subscribed to fleet/+/+/telemetry" in log.read_text(), SECONDS, "the bridge")
    device = Device(broker.port)
    try:
        process = spawn(*ingest, "--interval", "0.5", *QUICK, log="ingest.log")
        device.publish(first)
        device.publish(second)
        # The page's programs take a second of a processor each, so they run once, at the end.
        wait_for(lambda: set(numbers(tables, device="kitchen")) == {1, 2}, SECONDS, "the rows")
        assert plain(output(duckdb)) == plain(duckdb_rows)
        assert plain(output(pandas)) == plain(pandas_rows)

        device.publish(wrong)
        advice = "to see them: umqtt-pipeline quarantine"
        wait_for(lambda: advice in Path("ingest.log").read_text(), SECONDS, "the quarantine")
        assert plain(run(*quarantine).stdout) == plain(shown)

        assert end(process, seconds=SECONDS) == 0
        Path("kitchen.py").write_text(decoder)
        spawn(*own_ingest, "--interval", "0.5", *QUICK, log="own.log")
        device.publish(own)
        row = ["kitchen", "3", "temperature", "22.5"]
        wait_for(lambda: 3 in numbers(tables, device="kitchen"), SECONDS, "its own decoder's row")
        assert row in [re.findall(r"[\w.]+", line) for line in plain(output(duckdb))]
    finally:
        device.close()


def test_a_payload_without_a_counter(tmp_path):
    """Two readings with the same value are two rows, a copy is none, and the time is the
    device's."""
    (tmp_path / "attic.py").write_text(blocks("python")[3])
    payloads = [b'{"at": 1767268800, "t": 22.5}', b'{"at": 1767268860, "t": 22.5}']
    fill(tmp_path / "spool", [publish(p, "attic") for p in (*payloads, payloads[0])])
    done = run("ingest", "--spool", tmp_path / "spool", "--tables", tmp_path / "tables", "--once",
               "--decoder", "attic:attic", *QUICK, PYTHONPATH=str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = table(tmp_path / "tables", "silver")
    assert sorted(row["time"].timestamp() for row in rows) == [1767268800, 1767268860]
    assert {row["time_quality"] for row in rows} == {"clock"}
    assert len(table(tmp_path / "tables", "duplicates")) == 1


def test_a_counter_that_begins_again_needs_another_epoch():
    """Each number of the restart has an epoch of its own, by the page's words."""
    (text,) = re.findall(r"number of the restart `b` \| `(.+?)`", PAGE)
    drawn = [eval(text, {"sha256": sha256, "data": {"b": b}}) for b in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1] and len(drawn[1]) == 8
