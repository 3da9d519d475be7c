"""What is too large for a row has come: its number is in quarantine, and the bridge's mark, gold,
the report and the commands agree on that, as long as its row is there and beyond."""

import datetime
import json
import shutil

import cbor2
import pytest
from pipeline_kit import EPOCH, base, fill, flat, publish, run, senml, senml_text
from pipeline_tables import arrow, ingest, numbers, table
from signed_readings import KEY, signed
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.decode import Reading
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.decode.reasons import LARGE
from umqtt_pipeline.decode.signed import NONE, TelemetryKeys
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest import deleted, ledger, replay
from umqtt_pipeline.ingest.ledger import Ledger
from umqtt_pipeline.report import page
from umqtt_pipeline.tables import maintenance
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Tables

PAD = "x" * (9 << 20)
SIGNS = "signs"  #: a device with a key
TOPIC = f"fleet/g/{SIGNS}/telemetry".encode()


def decoders():
    """Of lines csv;SEQUENCE;..., of which number 5 has a wrong value."""
    def csv(topic, payload):  # within a function: Spark's workers cannot import this module
        if not payload.startswith(b"csv;"):
            return None
        number = int(payload[:20].split(b";")[1])
        values = [("t", None, 1.5 if number != 5 else float("nan"))]
        return Reading(topic.split("/")[2], bytes.fromhex("00112233445566aa"), number, 1,
                       number * 1000, None, values)  # fmt: skip

    return Decoders((csv,))


def padded(number):
    """Five encodings of a reading, each of more than 9 MiB."""
    text = {**base(number), "ep": EPOCH.hex(), "n": "t", "v": 1, "pad": PAD}
    return {2: flat(number, x=1, pad=PAD), 3: json.dumps([text]).encode(),
            4: cbor2.dumps([{"pad": PAD, **base(number)}]), 5: b"csv;5;" + PAD.encode(),
            6: senml(number, [(PAD, None, 1)]), 7: b"csv;7;" + PAD.encode()}[number]  # fmt: skip


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    file.write_text(json.dumps({f"fleet/g/{SIGNS}": KEY.hex()}))
    file.chmod(0o600)
    return TelemetryKeys(file)


@pytest.fixture(scope="module")
def sent():
    """Numbers 1 to 8 of a device, of which six are too large for a row; 1 to 4 of one that signs,
    of which two are, and one of these two is not signed."""
    own = [publish(senml(1)), *(publish(padded(n)) for n in range(2, 8)), publish(senml_text(8))]
    of = {"device": SIGNS}
    signs = [signed(senml(1, **of), topic=TOPIC),
             signed(senml(2, [(PAD, None, 1), ("n", None, 2)], **of), topic=TOPIC),
             senml(3, [(PAD, None, 1)], **of), signed(senml(4, **of), topic=TOPIC)]  # fmt: skip
    return [*own, *(publish(payload, SIGNS) for payload in signs)]


@pytest.fixture(scope="module")
def made(spark, sent, keys, tmp_path_factory):
    """Tables of that, with gold."""
    root = tmp_path_factory.mktemp("large")
    fill(root / "spool", sent, per_block=1)
    ingest(spark, root / "spool", root / "tables", decoders=decoders(), keys=keys)
    build.build(spark, root / "tables")
    return root / "tables"


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "tables")
    return tmp_path / "tables"


def known(root):
    return {device: sorted(
        row["sequence"] for row in table(root, "quarantine") if row["epoch"] == EPOCH.hex()
        and f"/{device}/" in row["topic"]) for device in ("dev1", SIGNS)}  # fmt: skip


def gaps(root):
    """[(device, first, last, reason, missing, quarantined, deleted)]"""
    names = ("device", "first", "last", "reason", "missing", "quarantined", "deleted")
    rows = arrow(root, "gaps").to_pylist()
    return sorted(tuple(row[name] for name in names) for row in rows)


ALL_THERE = {"dev1": [2, 3, 4, 5, 6, 7], SIGNS: [2, 3]}
IN_QUARANTINE = [("dev1", 2, 7, "in quarantine", 0, 6, 0), (SIGNS, 2, 3, "in quarantine", 0, 2, 0)]


def test_the_tables_say_of_a_number_what_the_mark_says(made, sent, keys):
    marks = Marks(decoders(), keys)
    for packet in sent:
        marks.feed(packet)
    assert {key[0].split(b"/")[2].decode(): mark.upto for key, mark in marks.marks.items()} == {
        "dev1": 8, SIGNS: 2}  # fmt: skip
    assert numbers(made) == [1, 8] and numbers(made, device=SIGNS) == [1, 4]
    assert known(made) == ALL_THERE
    why = {row["sequence"]: row["reason"] for row in table(made, "quarantine")
           if SIGNS in row["topic"]}  # fmt: skip
    assert why == {2: LARGE, 3: f"{LARGE}; {NONE}"}


def test_gold_and_the_report_say_that_they_are_in_quarantine(made, tmp_path):
    assert gaps(made) == IN_QUARANTINE
    page.build(made, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text.count(">in quarantine</td>") == 2 and ">never came</td>" not in text
    assert "_large/" in text and f"sequence 4 of epoch {EPOCH.hex()}" in text


def test_the_command_names_number_and_file(made):
    shown = run("quarantine", "--tables", made, "--topic", "fleet/+/dev1/telemetry").stdout
    rows = [json.loads(line) for line in run("quarantine", "--tables", made, "--json").stdout
            .splitlines()]  # fmt: skip
    assert [row["sequence"] for row in rows] == [*range(2, 8), 2, 3]
    for row in rows[:6]:
        place = f"{row['spool']}-{row['offset']}-*.bin"
        assert row["epoch"] == EPOCH.hex() and row["payload"] is None
        assert f"sequence {row['sequence']} of epoch {EPOCH.hex()}: {made}/_large/{place}" in shown
        assert len([*(made / "_large").glob(place)]) == 1


@pytest.mark.parametrize("lose", [lambda root: None, lambda root: shutil.rmtree(root / "_large")])
def test_a_replay_loses_no_number(spark, root, lose):
    """Without a decoder that ingest had, and without the files."""
    lose(root)
    assert replay.run(spark, root)["quarantine"] == 8
    assert known(root) == ALL_THERE


def test_a_replay_finds_what_ingest_could_not_read(spark, sent, tmp_path):
    fill(tmp_path / "spool", sent[:1] + sent[6:8])
    ingest(spark, tmp_path / "spool", tmp_path / "t")
    assert known(tmp_path / "t")["dev1"] == []
    replay.run(spark, tmp_path / "t", decoders())
    assert known(tmp_path / "t")["dev1"] == [7]


def test_clean_remembers_them_when_it_deletes_their_rows(root):
    """Gold says of such numbers that they are deleted."""
    later = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=400)
    held = Tables(root, ALL)
    maintenance.expire(held, Ledger(held), {"quarantine": 9}, later)
    gone = deleted.ranges(held.storage, ledger.newest(root)["state"]).to_pylist()
    assert sorted((row["device"], row["first"], row["last"]) for row in gone) == [
        ("dev1", 2, 7), (SIGNS, 2, 3)]  # fmt: skip
