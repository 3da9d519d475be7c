"""A spool whose file `durable` is whole, and an old one, as a backup has it: what is known to have
been durable all the same is not passed over in silence, and nothing of it is destroyed."""

import pytest
from test_pipeline_damage import (
    PAYLOADS,
    batch,
    blocks,
    bridge,
    by_a_reader,
    by_marks,
    by_what_a_reader_has_committed,
    durable_at,
    flip,
    folder,  # noqa: F401 (fixtures, as the next two)
    last,
    said_anew,  # noqa: F401
    salvaged,
    stream,
    whole,  # noqa: F401
)
from umqtt_pipeline import marks, spool

PROOFS = [by_marks, by_a_reader, by_what_a_reader_has_committed]


@pytest.mark.parametrize("proven", PROOFS)
@pytest.mark.parametrize("damage", [
    lambda folder: flip(last(folder), blocks(last(folder))[-1][0] + 40),
    lambda folder: flip(spool.segments(folder)[1].path, blocks(last(folder))[1][0] + 40),
    lambda folder: spool.segments(folder)[1].path.unlink(),
], ids=["last block", "a block", "a segment"])  # fmt: skip
def test_skip_damaged_reads_beyond_it(folder, proven, damage, caplog):  # noqa: F811
    proven(folder)
    _, second, _ = spool.segments(folder)
    durable_at(folder, second.base)
    assert salvaged(folder) == PAYLOADS
    damage(folder)
    found = salvaged(folder)
    lost = [payload for payload in PAYLOADS if payload not in found]
    assert len(lost) in (2, 8) and found == [p for p in PAYLOADS if p not in lost]
    assert "left out" in caplog.text


@pytest.mark.parametrize("proven", PROOFS)
def test_a_source_says_so_until_a_bridge_has_been_started(folder, proven, caplog):  # noqa: F811
    proven(folder)
    _, second, third = spool.segments(folder)
    end = spool.durable(folder)
    durable_at(folder, third.base)
    for read in (batch, stream):
        assert read(folder) == PAYLOADS[:16]
    said = f"durable says {third.base}, but "
    assert caplog.text.count(said) == 1 and f"{end}: it is an old one" in caplog.text
    bridge(folder)
    caplog.clear()
    assert batch(folder) == PAYLOADS and not caplog.text
    assert spool.durable(folder) == end


def test_marks_that_are_damaged_prove_nothing(folder, caplog):  # noqa: F811
    by_marks(folder)
    path = folder / "marks"
    assert marks.position(path.read_bytes()) == spool.durable(folder)
    durable_at(folder, spool.segments(folder)[1].base)
    flip(path, len(path.read_bytes()) // 2)
    assert marks.position(path.read_bytes()) is None
    assert batch(folder) == PAYLOADS[:8] and not caplog.text
