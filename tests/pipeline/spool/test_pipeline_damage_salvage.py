"""A damaged spool that is read all the same (skipDamaged): all that is whole, and nothing else."""

import shutil

import damage_kit
import pytest
from damage_kit import (
    PAYLOADS,
    batch,
    blocks,
    bridge,
    change,
    cut,
    durable_at,
    flip,
    last,
    refused,
    salvaged,
    verified,
)
from pipeline_kit import NOON, fill, publish, run, senml
from umqtt_pipeline.bridge.mark_file import MarkFile
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.files import HEADER, Deleted, SpoolError, keep_deleted
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


def test_verify_names_all_that_is_damaged(folder):
    """And not only what comes first: salvage leaves all of it behind."""
    assert verified(folder) == ([], [])
    first, second, third = (segment.path for segment in reader.segments(folder))
    begin, end = blocks(first)[1]
    flip(first, begin + 40)
    flip(third, blocks(third)[0][0] + 40)
    base = reader.segments(folder)[1]
    lost = f"{folder}: positions {base.base} to {base.base + base.size()} are missing"
    second.unlink()
    (folder / "consumers").mkdir()
    (folder / "consumers" / "r.json").write_text("{}")
    (folder / "spool.json").write_text("x")
    done = run("verify", "--spool", folder)
    assert done.returncode == 1 and not done.stderr, done.stderr
    said = done.stdout.splitlines()
    assert said[0].startswith(f"{folder}/spool.json is damaged")
    assert said[1] == f"{folder}/consumers/r.json is damaged"
    assert said[2] == f"{first}: bytes {begin} to {end} are no whole block"
    assert said[3] == lost and said[4].startswith(f"{third}: bytes ")
    assert said[5].endswith(": 5 damaged; RECOVERY.md says what to do") and len(said) == 6


@pytest.mark.parametrize("name,damaged,gone", [
    ("durable", "is missing or damaged", "is missing or damaged"),
    ("deleted", "is damaged", "is gone: the bridge makes it again"),
    ("spool.json", "is damaged", "is gone: the bridge writes it again"),
    ("marks", "is damaged: the bridge makes the marks again",
     "is gone: the bridge makes the marks again"),
    ("consumers", "/r.json is damaged", None),
])  # fmt: skip
def test_verify_looks_at_the_small_files(folder, name, damaged, gone):
    """Of a spool of which the bridge has deleted the first segment. A reader may be given up: that
    is no damage."""
    second, key = reader.segments(folder)[1], reader.spool_id(folder)
    consumers.register(folder, "r", second.base)
    keep_deleted(folder, Deleted(key, second.base))
    reader.segments(folder)[0].path.unlink()
    MarkFile(folder).save(Marks(), second.base, {})
    assert verified(folder) == ([], [])
    path = folder / name
    for file in path.iterdir() if path.is_dir() else [path]:
        file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))
        found, _ = verified(folder)
        assert len(found) == 1 and name in found[0] and damaged in found[0]
        file.unlink()
    if gone is None:
        found, (note,) = verified(folder)
        assert found == [] and "consumers has no reader" in note and note in bridge(folder)
        return
    flip(last(folder), blocks(last(folder))[-1][0] + 40)
    found, _ = verified(folder)
    assert f"{name} {gone}" in found[0] and str(last(folder)) in found[-1]


def test_verify_names_an_end_and_a_header_that_are_gone(folder):
    one = reader.segments(folder)[0].path
    end = reader.durable(folder)
    at = reader.segments(folder)[2]
    at.path.unlink()
    flip(one, 8)
    wrong, _ = verified(folder)
    assert "its header is damaged" in wrong[0] and str(one) in wrong[0]
    assert wrong[1:] == [f"{folder}: positions {at.base} to {end} are missing"]
