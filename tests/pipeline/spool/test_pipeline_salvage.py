"""`umqtt-pipeline salvage OLD NEW`: all that is whole comes along, what is left behind is told,
and the old spool stays as it is. What can be wrong with a spool: the tests of damage, which
salvage each one (damage_kit.salvaged)."""

import errno
import shutil

import damage_kit
import pytest
from click.testing import CliRunner
from damage_kit import PAYLOADS, batch, blocks, bridge, content, cut, flip, last, refused
from pipeline_kit import NOON, fill, publish, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline import commands
from umqtt_pipeline.bridge.mark_file import MarkFile
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.spool import reader, salvage
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.segment import SegmentReader
from umqtt_pipeline.spool.writer import SpoolFull, SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def command(old, new):
    done = CliRunner().invoke(commands.main, ("salvage", str(old), str(new)))
    return done.exit_code, done.output


def test_a_whole_spool_comes_along_whole(folder, tmp_path):
    status, said = command(folder, tmp_path / "new")
    assert status == 0 and "24 messages in 12 blocks" in said and "nothing left behind" in said
    assert batch(tmp_path / "new") == PAYLOADS
    end = reader.durable(tmp_path / "new")
    received = [block.received for block, _ in reader.walk(tmp_path / "new", 0, end)]
    assert received == [NOON] * 12
    assert reader.spool_id(tmp_path / "new") != reader.spool_id(folder)


def test_it_says_what_it_leaves_behind_and_a_bridge_goes_on(folder, tmp_path):
    one, two, three = reader.segments(folder)
    two.path.unlink()
    begin, end = blocks(one.path)[1]
    flip(one.path, begin + 40)
    tail = blocks(three.path)[-1][0]
    cut(three.path, tail + 30)
    before, new = content(folder), tmp_path / "new"
    assert "umqtt-pipeline salvage OLD NEW" in refused(folder)
    status, said = command(folder, new)
    assert status == 0 and content(folder) == before
    missing = three.base + tail + 30, reader.durable(folder)
    for words in (f"{one.path}: bytes {begin} to {end} are no whole block",
                  f"positions {two.base} to {three.base} are missing",
                  f"{three.path}: bytes {tail} to {tail + 30} are no whole block",
                  f"positions {missing[0]} to {missing[1]} are missing",
                  "12 messages in 6 blocks", "4 left behind"):  # fmt: skip
        assert words in said
    assert batch(new) == PAYLOADS[:2] + PAYLOADS[4:8] + PAYLOADS[16:22]
    assert bridge(new) == ""  # nothing to note


def test_nothing_beside_the_segments_is_needed(folder, tmp_path):
    for path in folder.iterdir():
        if path.suffix != ".seg":
            path.unlink()
    assert command(folder, tmp_path / "new")[0] == 0
    assert batch(tmp_path / "new") == PAYLOADS


def test_the_marks_promise_nothing_that_was_left_behind(folder, tmp_path):
    """The old marks cover 24 readings; 3 and 4 are lost: the device is asked for them again."""
    bridge(folder)
    path = reader.segments(folder)[0].path
    flip(path, blocks(path)[1][0] + 40)
    assert command(folder, tmp_path / "new")[0] == 0
    bridge(tmp_path / "new")
    marks = Marks()
    MarkFile(tmp_path / "new").load(marks)
    mark, = marks.marks.values()
    assert mark.upto == 2 and mark.missing() == [[3, 4]]


def test_no_spool_is_salvaged_beneath_a_bridge_or_into_something(folder, tmp_path):
    writer = SpoolWriter(folder)
    with pytest.raises(SpoolError, match="in use by a bridge: stop it first"):
        salvage.salvage(folder, tmp_path / "new")
    writer.close()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    status, said = command(folder, tmp_path / "used")
    assert status == 2 and "is not empty" in said
    assert content(tmp_path / "used") == {"file": b"x"}
    (tmp_path / "none").mkdir()
    status, said = command(tmp_path / "none", tmp_path / "new")
    assert status == 2 and "has no segments" in said
    assert not (tmp_path / "new").exists()


def test_the_folder_one_stands_in_may_become_the_new_spool(folder, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    status, said = command("../spool", ".")
    assert status == 0 and "24 messages" in said
    assert batch(tmp_path / "here") == PAYLOADS
    monkeypatch.setattr("pathlib.Path.is_mount", lambda path: path.name == "disk")
    (tmp_path / "disk").mkdir()
    status, said = command(folder, tmp_path / "disk")
    assert status == 2 and "is where a disk is mounted: name a folder in it" in said


def test_what_a_failing_disk_does_not_give_is_left_behind(folder, tmp_path, monkeypatch):
    real, path = SegmentReader.body, reader.segments(folder)[1].path
    bad, _ = blocks(path)[2]

    def body(self, block):
        if self.segment.path == path and block.position - self.segment.base == bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(self, block)

    with monkeypatch.context() as patch:
        patch.setattr(SegmentReader, "body", body)
        status, said = command(folder, tmp_path / "new")
    assert status == 0
    assert f"{path}: from byte {bad} on it cannot be read: Input/output error" in said
    assert batch(tmp_path / "new") == PAYLOADS[:12] + PAYLOADS[16:]


@pytest.mark.parametrize("error", [SpoolFull("No space left on device"), KeyboardInterrupt()])
def test_the_new_spool_appears_when_it_is_complete(folder, tmp_path, monkeypatch, error):
    """Ended in the middle there is none, and the next one begins anew: also behind a kill, which
    leaves what was written under a hidden name."""
    real, done, new = SpoolWriter.append, [], tmp_path / "new"

    def append(self, *args):
        done.append(args)
        if len(done) == 7:
            raise error
        return real(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SpoolWriter, "append", append)
        with pytest.raises((SpoolError, KeyboardInterrupt)):
            salvage.salvage(folder, new)
    assert len(done) == 7 and not new.exists() and not list(tmp_path.glob(".*"))
    fill(tmp_path / ".new.salvage", [publish(senml(99))])
    salvage.salvage(folder, new)
    assert batch(new) == PAYLOADS and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("killed", [False, True])
def test_ingest_goes_on_with_the_new_spool(spark, tmp_path, killed):
    """Into the same tables, with the checkpoint that they have: each reading is there once. If
    Spark does not know that the last batch of the old spool was done, it says what to do."""
    old, new, root = (tmp_path / name for name in ("old", "new", "tables"))
    fill(old, [publish(senml(n)) for n in range(1, 9)], per_block=2)
    ingest(spark, old, root)
    fill(old, [publish(senml(n)) for n in range(9, 17)], NOON + 60_000_000, per_block=2)
    flip(last(old), blocks(last(old))[5][0] + 40)  # 11 and 12, which no table has
    with pytest.raises(SpoolError, match="umqtt-pipeline salvage OLD NEW"):
        batch(old)
    assert command(old, new)[0] == 0
    fill(new, [publish(senml(17))], NOON + 120_000_000)
    if killed:
        max((root / "_checkpoint" / "commits").glob("[0-9]*")).unlink()
        with pytest.raises(Exception, match="is gone, .* are not yet in the tables.* _checkpoint"):
            ingest(spark, new, root)
        shutil.rmtree(root / "_checkpoint")
    ingest(spark, new, root)
    assert numbers(root) == [*range(1, 11), *range(13, 18)]
    assert numbers(root, "duplicates") == list(range(1, 9))
