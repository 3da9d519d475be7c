"""Tables, the reader's file in a spool and Spark's checkpoint of different times, as where an
older copy of some of them was put back: nothing is lost in silence, and nothing comes twice."""

import re
import shutil

import pytest
from click.testing import CliRunner
from pipeline_kit import NOON, fill, publish, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline import commands
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.storage import place


def gone(spool, first, count):
    """A spool with that many more readings, of which its bridge has deleted what is read."""
    writer = SpoolWriter(spool, segment_bytes=4096)
    for n in range(first, first + count):
        writer.append(publish(senml(n)), 1, NOON + n)
    assert writer.trim(writer.position)
    writer.close()


@pytest.mark.parametrize("left", [None, "_checkpoint", "older"])
def test_tables_that_lack_what_was_deleted_from_the_spool_are_refused(
    spark, tmp_path, caplog, left
):
    """Tables that were removed, and begin anew: what their reader has had would be missing
    without a word. And an older copy of them."""
    spool, root, copy = tmp_path / "spool", tmp_path / "tables", tmp_path / "copy"
    fill(spool, [publish(senml(n)) for n in range(1, 9)])
    if left == "older":
        ingest(spark, spool, root)
        shutil.copytree(root, copy)
    fill(spool, [publish(senml(n)) for n in range(9, 101)], per_block=1)
    ingest(spark, spool, root)
    gone(spool, 101, 60)
    ingest(spark, spool, root)  # a checkpoint of its own
    gone(spool, 161, 60)
    shutil.copytree(root / "_checkpoint", tmp_path / "checkpoint")
    shutil.rmtree(root)
    if left == "older":
        shutil.copytree(copy, root)
    elif left:
        shutil.copytree(tmp_path / "checkpoint", root / "_checkpoint")
    with pytest.raises(SpoolError, match="has had more of it than is in the tables .* deleted"):
        ingest(spark, spool, root)
    assert numbers(root) == (list(range(1, 9)) if left == "older" else [])
    ingest(spark, spool, root, skip_damaged=True)  # as the sentence advises
    kept = numbers(root)[8 if left == "older" else 0 :]
    assert kept[-1] == 220 and 8 < kept[0] <= 161
    assert "ingest goes on without them" in caplog.text
    ingest(spark, spool, root)  # once is enough


def test_tables_that_lack_what_was_deleted_are_refused_by_what_they_know_themselves(
    spark, tmp_path, caplog
):
    """An older copy of everything: nothing else says that there was more."""
    spool, root, copy = tmp_path / "spool", tmp_path / "tables", tmp_path / "copy"
    fill(spool, [publish(senml(n)) for n in range(1, 9)])
    ingest(spark, spool, root)
    shutil.copytree(root, copy)
    reader = (spool / "consumers" / "ingest.json").read_bytes()
    fill(spool, [publish(senml(n)) for n in range(9, 101)], per_block=1)
    ingest(spark, spool, root)
    gone(spool, 101, 60)
    shutil.rmtree(root)
    shutil.copytree(copy, root)
    for checkpoint in (True, False):
        (spool / "consumers" / "ingest.json").write_bytes(reader)
        if not checkpoint:  # as a sentence of Spark's source advised
            shutil.rmtree(root / "_checkpoint")
            (spool / "consumers" / "ingest.json").unlink()
        with pytest.raises(SpoolError, match="up to .* only, and its messages before .* deleted"):
            ingest(spark, spool, root)
    assert numbers(root) == list(range(1, 9))
    ingest(spark, spool, root, skip_damaged=True)
    assert numbers(root)[:8] == list(range(1, 9)) and numbers(root)[-1] == 160


def test_verify_notes_what_is_an_older_copy(spark, tmp_path):
    """Of the tables, or of the spool; nothing in them is damaged."""
    spool, root, old = tmp_path / "spool", tmp_path / "tables", tmp_path / "old"
    for first in (1, 9):
        fill(spool, [publish(senml(n)) for n in range(first, first + 8)])
        consumers.claim(spool, "ingest", place(str(root)), lambda other: True)  # as the command
        ingest(spark, spool, root)
        assert verified(root, spool) == []
        if first == 1:
            shutil.copytree(tmp_path, old, ignore=shutil.ignore_patterns("old"))
    newer = tmp_path / "newer"
    for name, says in (("tables", "its reader has had more of it than is in the tables in"),
                       ("spool", "ends at .*, and was read up to .* older copy")):  # fmt: skip
        (tmp_path / name).rename(newer)
        shutil.copytree(old / name, tmp_path / name)
        (note,) = verified(root, spool)
        assert note.startswith(str(spool)) and re.search(says, note), note
        shutil.rmtree(tmp_path / name)
        newer.rename(tmp_path / name)
    assert verified(root, spool) == []


def verified(root, spool):
    """What verify prints but for the last line; its status is 0."""
    done = CliRunner().invoke(commands.main, ("verify", "--tables", str(root), "--spool",
                                              str(spool)))  # fmt: skip
    assert done.exit_code == 0, done.output
    return [line for line in done.stdout.splitlines() if not line.endswith("nothing damaged")]


def test_tables_that_were_being_read_again_are_not_refused(spark, tmp_path):
    """Their last batch ends far behind their place, and before the first message of the spool."""
    spool, root = tmp_path / "spool", tmp_path / "tables"
    fill(spool, [publish(senml(n)) for n in range(1, 9)])
    ingest(spark, spool, root)
    fill(spool, [publish(senml(n)) for n in range(9, 101)], per_block=1)
    ingest(spark, spool, root)
    gone(spool, 101, 60)
    ingest(spark, spool, root)
    reader = (spool / "consumers" / "ingest.json").read_bytes()
    shutil.rmtree(root / "_checkpoint")
    runner = Runner(spark, str(spool), str(root), once=True, rows=5, patience=1,
                    on_batch=lambda counts: runner.stop())  # fmt: skip
    runner.run()
    (spool / "consumers" / "ingest.json").write_bytes(reader)  # what it had released before
    gone(spool, 161, 60)
    ingest(spark, spool, root)
    assert numbers(root) == list(range(1, 221))


@pytest.mark.parametrize("damage", ["commits", "torn", "newer", *(
    pytest.param(damage, marks=pytest.mark.campaign) for damage in ("none", "crc", "metadata"))])
def test_a_checkpoint_that_spark_cannot_have_left_so_loses_nothing(
    spark, tmp_path, caplog, damage
):
    """Of another time than the tables, or torn: what the tables lack is read."""
    spool, root = tmp_path / "spool", tmp_path / "tables"
    fill(spool, [publish(senml(n)) for n in range(1, 9)])
    ingest(spark, spool, root)
    shutil.copytree(root, tmp_path / "copy")
    reader = (spool / "consumers" / "ingest.json").read_bytes()
    for n in (9, 10, 11):
        fill(spool, [publish(senml(n))])
        ingest(spark, spool, root)
    held = root / "_checkpoint"
    newest = max((held / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    if damage in ("commits", "none"):
        shutil.rmtree(held / "commits")
        if damage == "commits":
            shutil.copytree(tmp_path / "copy/_checkpoint/commits", held / "commits")
        else:
            (held / "commits").mkdir()
    elif damage == "torn":
        newest.write_bytes(newest.read_bytes()[:20])
    elif damage == "crc":
        newest.write_text(newest.read_text().replace('WatermarkMs":0', 'WatermarkMs":1'))
    elif damage == "newer":
        newest.unlink()
    else:
        (held / "metadata").write_text("{")
    if damage in ("commits", "none", "newer"):  # the tables are older, too
        shutil.copytree(held, tmp_path / "held")
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)
        shutil.rmtree(root / "_checkpoint")
        shutil.copytree(tmp_path / "held", root / "_checkpoint")
        (spool / "consumers" / "ingest.json").write_bytes(reader)
    fill(spool, [publish(senml(12))])
    ingest(spark, spool, root)
    assert numbers(root) == list(range(1, 13))
    assert "it is read again" in caplog.text or "is made anew" in caplog.text


@pytest.mark.parametrize("left, reader", [
    (None, True), ("_checkpoint", True), ("_checkpoint", False)])  # fmt: skip
def test_tables_begun_anew_have_all_that_is_still_in_the_spool(
    spark, tmp_path, caplog, left, reader
):
    """reader: whether its file in the spool is there; Spark's checkpoint knows how far it was."""
    spool, root = tmp_path / "spool", tmp_path / "tables"
    fill(spool, [publish(senml(n)) for n in range(1, 9)])
    ingest(spark, spool, root)
    assert "has had more" not in caplog.text
    for name in [path.name for path in root.iterdir() if path.name != left]:
        shutil.rmtree(root / name)
    if not reader:
        (spool / "consumers" / "ingest.json").unlink()
    fill(spool, [publish(senml(9))])
    ingest(spark, spool, root)
    assert numbers(root) == list(range(1, 10))
    assert "has had more" in caplog.text and "it is read again" in caplog.text


def test_a_reader_that_comes_later_says_what_it_cannot_have(spark, tmp_path, caplog):
    spool, said = tmp_path / "spool", "begins at position "
    fill(spool, [publish(senml(n)) for n in range(1, 41)], per_block=1)
    ingest(spark, spool, tmp_path / "one")
    gone(spool, 41, 60)
    ingest(spark, spool, tmp_path / "one")
    assert said not in caplog.text
    ingest(spark, spool, tmp_path / "two", consumer="two")
    first = reader.begin(spool)
    assert first and f"{spool} {said}{first}: what was before it is deleted" in caplog.text
    assert numbers(tmp_path / "two")[-1] == 100
    caplog.clear()
    fill(spool, [publish(senml(101))])
    ingest(spark, spool, tmp_path / "two", consumer="two")
    assert said not in caplog.text and numbers(tmp_path / "two")[-1] == 101
