"""A damaged spool that is read all the same (skipDamaged): all that is whole, and nothing else."""

import shutil

import damage_kit
import pytest
from damage_kit import (
    PAYLOADS,
    batch,
    blocks,
    change,
    cut,
    durable_at,
    flip,
    last,
    refused,
    salvaged,
)
from pipeline_kit import NOON, fill, publish, senml
from umqtt_pipeline.spool import reader
from umqtt_pipeline.spool.files import HEADER, SpoolError
from umqtt_pipeline.spool.segment import BLOCK

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def test_a_hole_and_a_lost_durable(folder, caplog):
    """No bridge goes on with it; what is whole is read all the same."""
    path = reader.segments(folder)[1].path
    path.unlink()
    (folder / "durable").unlink()
    assert "durable is missing" in refused(folder)
    with pytest.raises(SpoolError, match="durable is missing"):
        batch(folder)
    assert salvaged(folder) == PAYLOADS[:8] + PAYLOADS[16:]
    assert "durable is missing" in caplog.text and "are missing" in caplog.text
    flip(last(folder), blocks(last(folder))[-1][0] + 40)
    assert salvaged(folder) == PAYLOADS[:8] + PAYLOADS[16:22]


@pytest.mark.parametrize("where", range(BLOCK.size + 5))
@pytest.mark.parametrize("number", [0, 2])
def test_only_the_damaged_block_is_left_out(folder, where, number, caplog):
    path = reader.segments(folder)[number].path
    begin, end = blocks(path)[1]
    flip(path, begin + where)
    first = 8 * number + 2
    expected = PAYLOADS[:first] + PAYLOADS[first + 2 :]
    if where == 3:  # the reserved byte: nothing reads it by itself, but it is checked
        assert batch(folder, skipDamaged="true") == expected
    with pytest.raises(SpoolError):
        batch(folder)
    assert salvaged(folder) == expected
    assert f"bytes {begin} to {end} are damaged" in caplog.text


def test_a_page_of_zeros_over_two_blocks(folder):
    path = reader.segments(folder)[1].path
    (begin, _), (_, end) = blocks(path)[1:3]
    change(path, begin + 30, bytes(end - begin - 40))
    assert salvaged(folder) == PAYLOADS[:10] + PAYLOADS[14:]


def test_files_in_one_anothers_place(folder):
    """Two segments exchanged, and a third copied to a position in the middle of another."""
    one, two, three = (s.path for s in reader.segments(folder))
    one.rename(folder / "x")
    two.rename(one)
    (folder / "x").rename(two)
    shutil.copy(three, folder / f"{100:020d}.seg")
    with pytest.raises(SpoolError):
        batch(folder)
    assert refused(folder)
    assert salvaged(folder) == PAYLOADS


@pytest.mark.parametrize("behind", [0, 300])
def test_a_file_that_does_not_belong_there(folder, behind):
    """In the middle of the last segment, or behind it; and `durable` is lost."""
    segment = reader.segments(folder)[-1]
    shutil.copy(folder / "spool.json", folder / f"{segment.base + 300 + behind:020d}.seg")
    assert salvaged(folder) == PAYLOADS
    (folder / "durable").unlink()
    assert refused(folder)
    assert salvaged(folder) == PAYLOADS


def test_a_segment_with_more_behind_its_end(folder):
    path = reader.segments(folder)[1].path
    with open(path, "ab") as file:
        file.write(path.read_bytes()[HEADER.size :])
    with pytest.raises(SpoolError, match="made longer"):
        batch(folder)
    assert "made longer" in refused(folder)
    assert salvaged(folder) == PAYLOADS


def test_what_a_device_sends_is_not_taken_for_a_block(tmp_path):
    """A payload that looks like one, in a block whose body is damaged."""
    other = tmp_path / "other"
    fill(other, [publish(senml(9))])
    path = last(other)
    forged = path.read_bytes()[HEADER.size :]
    fill(tmp_path / "spool", [publish(p) for p in (senml(1), forged, senml(2))], per_block=1)
    path = last(tmp_path / "spool")
    begin, end = blocks(path)[1]
    flip(path, begin + 30)
    assert salvaged(tmp_path / "spool") == [senml(1), senml(2)]
    flip(path, begin + 30)
    cut(path, end)
    flip(path, begin + 30)
    (tmp_path / "spool" / "durable").unlink()
    assert salvaged(tmp_path / "spool") == [senml(1)]


def test_a_search_has_an_end(folder, monkeypatch, caplog):
    path = last(folder)
    begin, _ = blocks(path)[0]
    change(path, begin, BLOCK.pack(b"UB", 1, 0, 60, NOON, 1, 0) * 4)
    assert salvaged(folder) == PAYLOADS[:16] + PAYLOADS[18:]
    monkeypatch.setattr("umqtt_pipeline.spool.segment.EFFORT", 100)
    assert salvaged(folder) == PAYLOADS[:16] and "are damaged: left out" in caplog.text
    durable_at(folder, reader.segments(folder)[-1].base)
    assert "than can be looked at" in refused(folder)
