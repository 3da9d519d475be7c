"""A spool that was damaged: nothing that may have been acknowledged is destroyed or passed over,
and each command says what is wrong before it changes a byte."""

import damage_kit
import pytest
from damage_kit import (
    PAYLOADS,
    PROOFS,
    batch,
    blocks,
    bridge,
    cut,
    durable_at,
    flip,
    last,
    refused,
    salvaged,
    stream,
)
from pipeline_kit import NOON
from umqtt_pipeline.source.data_source import Options, SpoolStreamReader
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import HEADER, SpoolError
from umqtt_pipeline.spool.segment import BLOCK
from umqtt_pipeline.spool.writer import SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


@pytest.mark.parametrize("proven", PROOFS)
@pytest.mark.parametrize("damage", [
    lambda path: flip(path, blocks(path)[-1][0] + 40),
    lambda path: cut(path, blocks(path)[-1][1] - 10),
    lambda path: cut(path, blocks(path)[1][0] + 10),
    lambda path: cut(path, HEADER.size),
    lambda path: path.unlink(),
])  # fmt: skip
def test_nothing_is_cut_that_was_acknowledged(folder, proven, damage):
    """Not even if `durable` is an old one: readers and marks have been further."""
    proven(folder)
    durable_at(folder, spool.segments(folder)[-1].base)
    damage(last(folder))
    assert "copies all that is whole into a new spool" in refused(folder)


@pytest.mark.parametrize("mark", ["old", "before the segment"])
@pytest.mark.parametrize("where", [0, 5, 40], ids=["its first byte", "its length", "its body"])
def test_whole_blocks_behind_a_bad_one_are_not_torn(folder, mark, where):
    """Nobody has read them, and no mark covers them: but they were fsynced, one by one."""
    path = last(folder)
    (_, first), (second, third), *_ = blocks(path)
    base = spool.segments(folder)[-1].base
    durable_at(folder, base + first if mark == "old" else base)
    flip(path, second + where)
    said = refused(folder)
    assert f"damaged from byte {second} to {third}" in said and str(path) in said


def test_a_torn_tail_behind_durable_was_not_acknowledged(folder):
    with open(last(folder), "ab") as file:
        file.write(BLOCK.pack(b"UB", 1, 0, 81, NOON, 1, 0) + bytes(80))
    assert "cut off 104 bytes that are no whole block" in bridge(folder)
    assert batch(folder) == PAYLOADS


def test_a_bridge_that_cannot_make_its_marks_changes_nothing(folder):
    """The block that they need is damaged, and there is a torn tail that it would cut off."""
    flip(spool.segments(folder)[1].path, 300)
    with open(last(folder), "ab") as file:
        file.write(b"UB")
    assert "wrong check value" in refused(folder)


# -- segments that the bridge has not deleted --------------------------------------------------


def test_the_first_segment_removed_by_hand(folder):
    listed = spool.segments(folder)
    listed[0].path.unlink()
    where = f"positions 0 to {listed[1].base} are missing"
    assert where in refused(folder)
    for read in (batch, stream):
        with pytest.raises(SpoolError, match=where):
            read(folder)
    assert salvaged(folder) == PAYLOADS[8:]


def test_the_first_of_those_that_the_bridge_has_left(folder):
    """Another reader's release has deleted one segment; the next one was removed by hand."""
    listed = spool.segments(folder)
    consumers.register(folder, "r", listed[1].base)
    writer = SpoolWriter(folder)
    assert writer.trim(writer.position) == 1
    writer.close()
    (folder / "consumers" / "r.json").unlink()  # given up
    assert batch(folder) == stream(folder) == PAYLOADS[8:]  # a new reader begins behind it
    assert "deleted is missing" not in bridge(folder)
    reader = SpoolStreamReader(Options({"path": str(folder)}))
    with pytest.raises(SpoolError, match="position 0 was deleted"):
        reader.partitions({reader_id(folder): [0, 0]}, {reader_id(folder): [listed[2].base, 0]})
    listed[1].path.unlink()
    with pytest.raises(SpoolError, match=f"{listed[1].base} to {listed[2].base} are missing"):
        batch(folder)
    assert "are missing" in refused(folder)


def reader_id(folder):
    return spool.spool_id(folder)


def test_killed_between_the_announcement_and_the_deletion(folder, monkeypatch):
    listed = spool.segments(folder)
    consumers.register(folder, "r", listed[2].base)
    writer = SpoolWriter(folder)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(listed[0].path), "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.trim(writer.position)
    writer.close()
    assert batch(folder) == PAYLOADS  # all is still there
    listed[0].path.unlink()
    assert batch(folder) == PAYLOADS[8:]
    writer = SpoolWriter(folder)
    assert not writer.notes and writer.trim(writer.position) == 1
    writer.close()
    assert batch(folder) == PAYLOADS[16:]


def test_a_disk_that_has_no_room_for_the_announcement_loses_nothing(folder, monkeypatch):
    writer = SpoolWriter(folder)
    consumers.register(folder, "r", writer.position)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("umqtt_pipeline.spool.writer.keep_deleted", full)
        assert writer.trim(writer.position) == 0
    assert len(spool.segments(folder)) == 3 and writer.trim(writer.position) == 2
    writer.close()


def test_a_spool_of_an_older_program_does_not_say_what_was_deleted(folder, caplog):
    """Then it was the bridge if every reader is done with it; with no reader, nothing ever was."""
    listed = spool.segments(folder)
    listed[0].path.unlink()
    (folder / "deleted").unlink()
    assert "are missing" in refused(folder)
    consumers.register(folder, "r", listed[1].base - 1)
    assert "are missing" in refused(folder)
    consumers.register(folder, "r", listed[1].base)
    assert batch(folder) == PAYLOADS[8:] and "deleted is missing" in caplog.text
    assert "deleted is missing" in bridge(folder)
    (folder / "consumers" / "r.json").unlink()
    assert batch(folder) == PAYLOADS[8:] and "missing" not in bridge(folder)
