"""Replay of the quarantine: nothing dropped, nothing twice, wherever it is killed."""

import json
import random
import shutil
import sys
import textwrap
from pathlib import Path

import pytest
import umqtt_pipeline
from decode_kit import told
from pipeline_kit import DAY_US, EPOCH, NOON, fill, flat, publish, put_back, run, senml, topic
from pipeline_tables import arrow, ingest, numbers, table, tables
from umqtt_pipeline import options
from umqtt_pipeline.decode import Malformed, Reading, reasons
from umqtt_pipeline.decode.own import Decoders
from umqtt_pipeline.decode.signed import NONE, TelemetryKeys
from umqtt_pipeline.ingest import replay


def decoders():
    """Of lines csv;SEQUENCE;BOOT;UPTIME_MS;VALUE of a device with one epoch."""
    def csv(topic, payload):  # within a function: Spark's workers cannot import this module
        if not payload.startswith(b"csv;"):
            return None
        part = payload.decode().split(";")
        if not part[1].isdigit():
            raise Malformed("csv without a sequence number")
        return Reading(topic.split("/")[2], EPOCH, *map(int, part[1:4]), None,
                       [("level", None, float(part[4]))])  # fmt: skip

    return Decoders((csv,))


def line(number, device="dev3"):
    return publish(b"csv;%d;1;%d;2.5" % (number, number * 1000), device)


@pytest.fixture(scope="module")
def without(spark, tmp_path_factory):
    """Tables of an ingest that did not know CSV: two days, copies among them."""
    root = tmp_path_factory.mktemp("without")
    fill(root / "spool", [publish(senml(1)), *map(line, (1, 2, 3)), publish(b"csv;x")])
    ingest(spark, root / "spool", root / "tables")
    late = [*map(line, (3, 4)), publish(b"junk")]
    fill(root / "spool", late, received=NOON + DAY_US)
    ingest(spark, root / "spool", root / "tables")
    return root


@pytest.fixture
def copy(without, tmp_path):
    shutil.copytree(without, tmp_path / "all")
    return tmp_path / "all"


def test_after_a_decoder_was_added(spark, copy):
    root = copy / "tables"
    assert len(table(root, "quarantine")) == 7 and numbers(root, device="dev3") == []
    counts = replay.run(spark, root, decoders())
    assert (counts["new"], counts["duplicate"], counts["quarantine"]) == (4, 1, 2)
    assert numbers(root, device="dev3") == [1, 2, 3, 4]
    assert numbers(root, "duplicates", "dev3") == [3]
    come = {r["device"]: r["batch"] for r in arrow(root, "silver").to_pylist()}
    assert come == {"dev1": 0, "dev3": 2}  # late readings: they were not in silver before
    assert set(arrow(root, "batches")["batch"].to_pylist()) == {0, 1, 2}
    assert [(bytes(r["payload"]), r["reason"]) for r in table(root, "quarantine")] == [
        (b"csv;x", "csv without a sequence number"), (b"junk", reasons.ENCODING)]  # fmt: skip
    again = replay.run(spark, root, decoders())
    assert (again["new"], again["duplicate"], again["quarantine"]) == (0, 0, 2)
    # Ingest counts on behind the replays, and knows what came from them.
    fill(copy / "spool", [*map(line, (4, 5))])
    ingest(spark, copy / "spool", root, decoders=decoders())
    assert numbers(root, device="dev3") == [1, 2, 3, 4, 5]
    assert numbers(root, "duplicates", "dev3") == [3, 4]


def test_what_a_wrong_decoder_has_made_is_made_again_from_bronze(spark, copy, monkeypatch):
    """As DECODING.md has it: the spool is released, bronze has all."""
    page = Path(umqtt_pipeline.__file__).with_name("DECODING.md").read_text()
    code = next(part for part in page.split("```")[1::2] if "# respool.py" in part)
    spool, old, new = (copy / name for name in ("spool", "tables", "tables-2"))
    fill(spool, [publish(flat(2, pad="x" * (9 << 20)))], received=NOON + DAY_US)
    ingest(spark, spool, old)
    shutil.rmtree(spool)  # as if the bridge had deleted what ingest has stored
    fill(spool, [line(5)], received=NOON + 2 * DAY_US)
    monkeypatch.chdir(copy)
    exec(textwrap.dedent(code.removeprefix("python\n")), {})
    ingest(spark, copy / "spool-again", new, decoders=decoders())
    ingest(spark, spool, new, consumer="again", decoders=decoders())
    assert numbers(new, device="dev3") == [1, 2, 3, 4, 5] and numbers(new) == [1]
    assert numbers(new, "duplicates", "dev3") == [3]
    said = ("topic", "payload", "qos", "retain", "dup", "packet_id", "received_at")
    came = [sorted(str([row[name] for name in said]) for row in table(root, "bronze"))
            for root in (old, new)]  # fmt: skip
    assert len(came[0]) == 9 and set(came[0]) < set(came[1]) and len(came[1]) == 10
    assert 2 in [row["sequence"] for row in table(new, "quarantine")]  # too large for a row


def test_killed_at_any_operation(spark, copy, cuts):
    root = copy / "tables"
    left = cuts(root, lambda: replay.run(spark, root, decoders()))
    whole = tables(root)
    assert len(left) > 20
    for n in sorted(random.Random(2).sample(range(len(left)), 5)):
        put_back(left[n], root)
        ingest(spark, copy / "spool", root)  # it makes the commits of a replay that was decided
        replay.run(spark, root, decoders())
        assert tables(root) == whole, f"killed at operation {n} of {len(left)}"


def test_the_example_of_a_decoder(tmp_path, monkeypatch):
    """The one of DECODING.md, as a module in the current folder."""
    text = Path(umqtt_pipeline.__file__).with_name("DECODING.md").read_text()
    code = next(part for part in text.split("```")[1::2] if "# lines.py" in part)
    (tmp_path / "lines.py").write_text(code.removeprefix("python\n"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr("sys.path", [*sys.path])
    found = options.decoders(None, None, ("lines:lines",))
    del sys.modules["lines"]
    given = (b"7;3;12500;21.5", b"8;3;12600;", b"x;1", b"9;3")
    one, *others = told([(topic("dev9"), line) for line in given], *found.functions)
    assert (one.device, one.epoch, one.sequence, one.boot, one.uptime_ms, one.reason) == (
        "dev9", "00000000000000aa", 7, 3, 12500, None)  # fmt: skip
    assert one.measurements == [("temperature", "Cel", 21.5)]
    assert [row.reason.partition(" (")[0] for row in others] == [
        "a line without a temperature", reasons.ENCODING,
        "the decoder lines: ValueError: not enough values to unpack"]  # fmt: skip


@pytest.mark.parametrize("name,words", [
    ("nothing", "MODULE:NAME"),
    ("no_such_module:X", "there is no module no_such_module in the current folder"),
    ("json.none:X", "there is no module json.none in the current folder"),
    ("json:__doc__", "no function")])  # fmt: skip
def test_a_decoder_that_is_none(tmp_path, name, words):
    done = run("replay", "--tables", tmp_path, "--decoder", name)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and words in said and "Traceback" not in done.stderr


def test_what_a_device_that_signs_has_not_signed_is_kept_and_comes_back_without_keys(
    spark, tmp_path
):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"fleet/g/dev1": bytes(32).hex()}))
    file.chmod(0o600)
    fill(tmp_path / "spool", [publish(senml(1)), publish(senml(2, device="dev2"), "dev2")])
    root = tmp_path / "tables"
    ingest(spark, tmp_path / "spool", root, keys=TelemetryKeys(file))
    assert [row["reason"] for row in table(root, "quarantine")] == [NONE]
    assert numbers(root, device="dev1") == [] and numbers(root, device="dev2") == [2]
    assert replay.run(spark, root, keys=TelemetryKeys(file))["quarantine"] == 1
    assert replay.run(spark, root)["new"] == 1
    assert numbers(root, device="dev1") == [1]
