"""A spool whose file `durable` is whole, and an old one, as a backup has it: what is known to have
been durable all the same is not passed over in silence, and nothing of it is destroyed."""

import damage_kit
import pytest
from damage_kit import (
    PAYLOADS,
    PROOFS,
    batch,
    blocks,
    bridge,
    by_marks,
    durable_at,
    flip,
    last,
    salvaged,
    stream,
)
from pipeline_kit import NOON
from umqtt_pipeline.bridge import mark_file
from umqtt_pipeline.spool import reader
from umqtt_pipeline.spool.segment import BLOCK

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


@pytest.mark.parametrize("proven", PROOFS)
@pytest.mark.parametrize("damage", [
    lambda at: flip(last(at), blocks(last(at))[-1][0] + 40),
    lambda at: flip(reader.segments(at)[1].path, blocks(last(at))[1][0] + 40),
    lambda at: reader.segments(at)[1].path.unlink(),
], ids=["last block", "a block", "a segment"])  # fmt: skip
def test_skip_damaged_reads_beyond_it(folder, proven, damage, caplog):
    proven(folder)
    _, second, _ = reader.segments(folder)
    durable_at(folder, second.base)
    assert salvaged(folder) == PAYLOADS
    damage(folder)
    found = salvaged(folder)
    lost = [payload for payload in PAYLOADS if payload not in found]
    assert len(lost) in (2, 8) and found == [p for p in PAYLOADS if p not in lost]
    assert "left out" in caplog.text


@pytest.mark.parametrize("proven", PROOFS)
def test_a_source_says_so_until_a_bridge_has_been_started(folder, proven, caplog):
    proven(folder)
    _, second, third = reader.segments(folder)
    end = reader.durable(folder)
    durable_at(folder, third.base)
    for read in (batch, stream):
        assert read(folder) == PAYLOADS[:16]
    said = f"durable says {third.base}, but "
    assert caplog.text.count(said) == 1 and f"{end}: it is an old one" in caplog.text
    bridge(folder)
    caplog.clear()
    assert batch(folder) == PAYLOADS and not caplog.text
    assert reader.durable(folder) == end


def test_marks_that_are_damaged_prove_nothing(folder, caplog):
    by_marks(folder)
    path, end = folder / "marks", reader.segments(folder)[-1].first
    assert mark_file.position(path.read_bytes()) == reader.durable(folder)
    durable_at(folder, end)
    assert batch(folder) == PAYLOADS[:16] and "`marks` are of position" in caplog.text
    caplog.clear()
    flip(path, len(path.read_bytes()) // 2)
    assert mark_file.position(path.read_bytes()) is None
    assert batch(folder) == PAYLOADS[:16] and "`marks`" not in caplog.text


@pytest.mark.parametrize("where", [0, 2, 3, BLOCK.size, -1],
                         ids=["magic", "kind", "reserved", "body", "last byte"])  # fmt: skip
@pytest.mark.parametrize("old", [1, 2])
def test_a_block_of_full_length_is_not_torn(folder, where, old):
    """Nothing proves that it was acknowledged; but nobody was killed while it was written."""
    path = last(folder)
    begin, end = blocks(path)[-1]
    durable_at(folder, reader.segments(folder)[old].base)
    flip(path, end - 1 if where < 0 else begin + where)
    kept = path.read_bytes()[begin:]
    said = bridge(folder)
    assert f"cut off {end - begin} bytes that are no whole block" in said and ".torn" in said
    aside, = folder.glob("*.torn")
    assert aside.read_bytes() == kept and batch(folder) == PAYLOADS[:-2]
    assert aside.name in bridge(folder)


@pytest.mark.parametrize("tail", [
    bytes(BLOCK.size),
    bytes(500),
    b"UB\1\0" + bytes(100),
    BLOCK.pack(b"UB", 1, 0, 80, NOON, 1, 0) + bytes(80),
    BLOCK.pack(b"UB", 1, 0, 500, NOON, 0, 0) + bytes(80),
    BLOCK.pack(b"UX", 1, 0, 500, NOON, 1, 0) + bytes(80),
])  # fmt: skip
def test_what_no_writer_leaves_is_kept(folder, tail):
    with open(last(folder), "ab") as file:
        file.write(tail)
    assert ".torn" in bridge(folder)
    aside, = folder.glob("*.torn")
    assert aside.read_bytes() == tail and batch(folder) == PAYLOADS


@pytest.mark.parametrize("size", [*range(1, BLOCK.size + 2), 60])
def test_what_a_killed_writer_leaves_is_cut_off(folder, size):
    path = last(folder)
    begin, end = blocks(path)[-1]
    assert size < end - begin
    durable_at(folder, reader.segments(folder)[-1].base + begin)
    path.write_bytes(path.read_bytes()[: begin + size])
    assert f"cut off {size} bytes of a torn block" in bridge(folder)
    assert not list(folder.glob("*.torn")) and batch(folder) == PAYLOADS[:-2]
