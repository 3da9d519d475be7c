"""What is no reading is told by ingest, and `umqtt-pipeline quarantine` shows it."""

import datetime
import json

import pytest
from pipeline_kit import QUICK, fill, publish, run, senml
from pipeline_tables import put
from umqtt_pipeline.tables.schema import QUARANTINE

ODD = "home/\x1b[2Jkitchen"
SENT = [
    publish(senml(1)),
    publish(b'{"temperature": 21.5}', topic="home/kitchen/state"),
    publish(b'{"temperature": 22.5}', topic="home/attic/state"),
    publish(b"\xff\x00\x1b[2J", topic=ODD),
    publish(b'{"device": "dev1"}'),
    publish(b""),  # as who clears a retained message
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(tables of a spool with one reading and five messages that are none, ingest's log)."""
    folder = tmp_path_factory.mktemp("quarantine")
    fill(folder / "spool", SENT)
    done = run("ingest", "--spool", folder / "spool", "--tables", folder / "tables", "--once",
               *QUICK)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / "tables", done.stderr


def show(tables, *options):
    done = run("quarantine", "--tables", tables, *options)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.replace("\n", "").isprintable()  # nothing moves the terminal's cursor
    return done.stdout


def test_ingest_says_what_it_did_not_take_and_how_to_see_it(made):
    tables, log = made
    (line,) = [line for line in log.splitlines() if "no readings" in line]
    assert "3: the topic is not fleet/GROUP/DEVICE/telemetry (such as home/" in line
    assert "1: sequence is missing" in line and "(such as fleet/g/dev1/telemetry)" in line
    assert f"umqtt-pipeline quarantine --tables {tables}" in line and line.isprintable()


def test_all_of_it(made):
    shown = show(made[0])
    assert shown.startswith("5 messages are in the quarantine of ")
    assert "         3  the topic is not fleet/GROUP/DEVICE/telemetry\n" in shown
    places = [shown.index(part) for part in ('{"temperature": 21.5}', '{"temperature": 22.5}',
                                             "0xff001b5b324a", '{"device": "dev1"}')]  # fmt: skip
    assert places == sorted(places)
    assert "home/\\x1b[2Jkitchen: the topic is not" in shown


@pytest.mark.parametrize("options,count,there,missing", [
    (("--topic", "home/+/state"), 2, "home/attic/state", "dev1"),
    (("--topic", "home/#", "--limit", "1"), 3, "0xff001b", "home/attic"),
    (("--reason", "SEQUENCE"), 1, '{"device": "dev1"}', "home/"),
    (("--reason", "sequence", "--topic", "home/#"), 0, "0 messages of that kind", "fleet/g"),
    (("--limit", "0"), 5, "sequence is missing", "dev1"),
])  # fmt: skip
def test_a_part_of_it(made, options, count, there, missing):
    shown = show(made[0], *options)
    assert shown.startswith(f"{count} message")
    assert there in shown and missing not in shown.partition("\n")[2]


def test_for_programs(made):
    rows = [json.loads(line) for line in show(made[0], "--json").splitlines()]
    assert [row.get("payload") for row in rows] == [
        '{"temperature": 21.5}', '{"temperature": 22.5}', None, '{"device": "dev1"}', "",
    ]  # fmt: skip
    assert rows[2]["payload_hex"] == "ff001b5b324a" and rows[2]["topic"] == ODD
    assert all(row["received_at"].endswith("+00:00") for row in rows)


def test_of_the_same_instant_only_those_that_were_asked_for(made):
    """The messages of one batch may have one time of receipt: the time alone chooses no row."""
    rows = [json.loads(line) for line in show(made[0], "--json", "--topic", "home/attic/state",
                                              "--reason", "the topic").splitlines()]  # fmt: skip
    assert [row["topic"] for row in rows] == ["home/attic/state"]


def test_of_very_many_reasons_the_commonest_are_listed(tmp_path):
    """A decoder of one's own may give each message another reason."""
    row = {"topic": "t", "payload": b"x", "spool": "s", "offset": 0,
           "received_at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}  # fmt: skip
    reasons = [*(f"line {n}" for n in range(50)), "line 7"]
    put(tmp_path, "quarantine", QUARANTINE, *({**row, "reason": each} for each in reasons))
    (tmp_path / "_state").mkdir()  # made by ingest
    listed = show(tmp_path, "--limit", "0").splitlines()
    assert listed[1] == "         2  line 7" and len(listed) == 1 + 20 + 1
    assert listed[-1] == "        30  for 30 more reasons: --reason TEXT"


def test_nothing_was_refused(tmp_path):
    fill(tmp_path / "spool", [publish(senml(1))])
    done = run("ingest", "--spool", tmp_path / "spool", "--tables", tmp_path / "t", "--once",
               *QUICK)  # fmt: skip
    assert done.returncode == 0 and "no readings" not in done.stderr
    assert show(tmp_path / "t") == f"0 messages are in the quarantine of {tmp_path / 't'}\n"


@pytest.mark.parametrize("options,words", [
    (("--tables", "empty"), "empty has no tables: run `umqtt-pipeline ingest` first"),
    (("--tables", "none"), "'none' does not exist"),
    (("--tables", "empty", "--topic", "a#"), "'a#' is not a topic filter"),
    (("--tables", "empty", "--limit", "-1"), "-1 is not in the range"),
])  # fmt: skip
def test_what_is_wrong(tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    done = run("quarantine", *options)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
