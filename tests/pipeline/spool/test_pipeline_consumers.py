"""What a reader is done with is released, and nothing that a run after a kill would ask for
(test_pipeline_ingest.py has the runs themselves)."""

import json
import shutil

import pytest
from pipeline_kit import NOON, publish, run, senml
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.reader import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.storage import are_there, place

OWN = "00112233445566aa"


@pytest.fixture
def checkpoint(tmp_path):
    """Of a query that has begun batch 3 and finished batch 2; the spool's id is OWN."""
    SpoolWriter(tmp_path / "spool").close()
    (tmp_path / "spool" / "spool.json").write_text(json.dumps({"version": 1, "id": OWN}))
    (tmp_path / "spool" / "deleted").unlink()
    folder = tmp_path / "checkpoint"
    for part, last in (("offsets", 3), ("commits", 2)):
        (folder / part).mkdir(parents=True)
        for n in range(last + 1):
            end = json.dumps({OWN: [100 * n, 7], "other": [5, 0]})
            (folder / part / str(n)).write_text(f"v1\n{{}}\n{end}" if part == "offsets" else "v1")
    return folder


def finished(checkpoint):
    folder = checkpoint.parent / "spool"
    consumers.finish(checkpoint, [folder], "r")
    return consumers.positions(folder).get("r")


def test_other_bridges_are_no_readers_that_something_is_deleted_for(tmp_path):
    """They read for their marks, and keep nothing: before the first ingest all would be lost."""
    writer = SpoolWriter(tmp_path, segment_bytes=100)
    for n in range(6):
        writer.append(publish(senml(n)), 1, NOON)
    consumers.register(tmp_path, f"bridge-{OWN}", writer.position)
    assert writer.done_with() == writer.trim(writer.position) == 0
    assert not consumers.has_reader(tmp_path)
    held = [block.position for block, _ in reader.walk(tmp_path, 0, writer.position)]
    consumers.register(tmp_path, "ingest", held[3])
    assert consumers.has_reader(tmp_path)
    assert writer.trim(writer.position) == 3
    consumers.register(tmp_path, f"bridge-{OWN}", held[0])
    consumers.register(tmp_path, "ingest", writer.position)
    assert writer.trim(writer.position) == 0, "a bridge is waited for"
    assert writer.trim(held[4], full=True) == 1, "but not by a full spool"
    consumers.register(tmp_path, "bridge-0123456789abcdef", 0)
    assert consumers.give_up_bridges(tmp_path, ["0123456789abcdef"]) == ["bridge-0123456789abcdef"]
    assert set(consumers.positions(tmp_path)) == {"ingest", f"bridge-{OWN}"}
    writer.close()


def test_a_batch_without_a_commit_is_not_released(checkpoint):
    assert finished(checkpoint) == 200
    (checkpoint / "commits" / "2").unlink()
    assert finished(checkpoint) == 100


@pytest.mark.parametrize("spoil", [
    lambda c: shutil.rmtree(c),
    lambda c: shutil.rmtree(c / "commits"),
    lambda c: (c / "offsets" / "2").write_text("v2\n{}\n{}"),
    lambda c: (c / "offsets" / "2").write_text('v1\n{}\n{"other": [900, 0]}'),
    lambda c: (c / "offsets" / "2").write_text("v1\n{}\n-\n-"),
])  # fmt: skip
def test_what_is_not_understood_releases_nothing(checkpoint, spoil):
    spoil(checkpoint)
    assert finished(checkpoint) is None


@pytest.mark.parametrize("spoil", [
    lambda c: (c / "offsets" / "2").unlink(),
    lambda c: (c / "offsets" / "2").write_text("v1\n{}\n{"),
    lambda c: shutil.rmtree(c.parent / "spool"),
])  # fmt: skip
def test_a_release_that_fails_does_not_fail_the_run(checkpoint, spoil, caplog):
    spoil(checkpoint)
    runner = object.__new__(Runner)
    runner.ingest = type("Work", (), {"checkpoint": checkpoint})
    runner.folders, runner.consumer = [checkpoint.parent / "spool"], "r"
    runner._release()
    assert "not released now" in caplog.text


def test_a_reader_works_for_one_set_of_tables(tmp_path):
    """What a second one had read would be deleted before the first has it."""
    folder = tmp_path / "spool"
    SpoolWriter(folder).close()
    (tmp_path / "one" / "_state").mkdir(parents=True)

    def claim(name, tables):
        consumers.claim(folder, name, place(tmp_path / tables), are_there)

    claim("ingest", "one")
    consumers.register(folder, "ingest", 77, committed={"x": [1, 0]})
    claim("ingest", "one")
    said = f"tables in {tmp_path}/one.* delete {folder}/consumers/ingest.json; .*--consumer"
    with pytest.raises(SpoolError, match=said):
        claim("ingest", "two")
    claim("mine", "two")
    (tmp_path / "one").rename(tmp_path / "moved")
    claim("ingest", "moved")
    assert consumers.positions(folder) == {"ingest": 77, "mine": 0}
    done = run("ingest", "--once", "--spool", folder, "--tables", tmp_path / "three")
    assert done.returncode == 2 and f"tables in {tmp_path}/moved" in done.stderr, done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"position": "9"}', '{"position": null}', "{}"])
def test_a_damaged_file_of_a_reader_keeps_everything(tmp_path, text):
    writer = SpoolWriter(tmp_path, segment_bytes=100)
    for n in range(3):
        writer.append(bytes(100), 1, n)
    consumers.register(tmp_path, "a", writer.position)
    (tmp_path / "consumers" / "b.json").write_text(text)
    assert writer.done_with() == 0
    consumers.claim(tmp_path, "b", str(tmp_path), are_there)
    consumers.advance(tmp_path, "b", reader.spool_id(tmp_path), {writer.id: [200, 0]})
    assert consumers.positions(tmp_path)["b"] == 0
    writer.close()
