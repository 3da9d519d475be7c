"""Whole blocks behind `durable`, as a kill, a power cut or a backup of that file leave them: the
next bridge takes them in. Until it is there, readers say so, and read them if they are told to."""

import fcntl
import os
import threading

import damage_kit
import pytest
from damage_kit import (
    PAYLOADS,
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
from pipeline_kit import NOON, publish, senml
from umqtt_pipeline.spool import lock
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def behind(folder, count):
    """Put back a `durable` that is `count` blocks of the last segment old; what it says."""
    begin, _ = blocks(last(folder))[-count]
    position = spool.segments(folder)[-1].base + begin
    durable_at(folder, position)
    return position


# -- in an earlier segment: that there is a next one proves it ------------------------------------


def test_the_next_segment_proves_that_durable_is_old(folder, caplog):
    _, second, third = spool.segments(folder)
    durable_at(folder, second.base)
    for read in (batch, stream):
        assert read(folder) == PAYLOADS[:8]
    assert caplog.text.count(f"{third.path.name} begins at {third.base}: it is an old one") == 1
    assert salvaged(folder) == PAYLOADS
    flip(third.path, blocks(third.path)[1][0] + 40)
    assert salvaged(folder) == PAYLOADS[:18] + PAYLOADS[20:]
    flip(third.path, blocks(third.path)[1][0] + 40)
    size = sum(segment.size() for segment in (second, third))
    assert f"these {size} bytes are taken in" in bridge(folder)
    assert batch(folder) == PAYLOADS and bridge(folder) == ""


def test_a_file_that_is_no_segment_proves_nothing(folder, caplog):
    (folder / f"{10**6:020d}.seg").write_bytes(b"junk" * 20)
    (folder / f"{10**7:020d}.seg").write_bytes(last(folder).read_bytes())
    assert batch(folder) == PAYLOADS and not caplog.text


def test_a_kill_while_a_segment_is_begun_proves_nothing(folder, caplog):
    """The file has its name, and `durable` has not got beyond its beginning."""
    writer = SpoolWriter(folder)
    writer.roll()
    writer.close()
    durable_at(folder, spool.segments(folder)[-1].base)
    assert batch(folder) == PAYLOADS and bridge(folder) == "" and not caplog.text


# -- in the last segment -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_whole_blocks_that_no_bridge_has_taken_in(folder, count, caplog):
    end, at = spool.durable(folder), behind(folder, count)
    for read in (batch, stream):
        assert read(folder) == PAYLOADS[: -2 * count]
    assert caplog.text.count("no bridge runs") == 1
    assert f"these {end - at} bytes are not read until a bridge is started" in caplog.text
    caplog.clear()
    assert salvaged(folder) == PAYLOADS and f"blocks up to {end}: read up to there" in caplog.text
    note = bridge(folder)
    assert (f"these {end - at} bytes are taken in" in note) == (count > 1)  # one: a kill leaves it
    caplog.clear()
    assert salvaged(folder) == batch(folder) == PAYLOADS and not caplog.text


def test_what_was_read_is_not_read_again_after_the_bridge(folder):
    """Its blocks keep their positions, and what comes then is behind them."""
    end = spool.durable(folder)
    behind(folder, 2)
    key = spool.spool_id(folder)
    reader = damage_kit.SpoolStreamReader(
        damage_kit.Options({"path": str(folder), "skipDamaged": "true"})
    )
    read = reader.latestOffset(reader.initialOffset(), damage_kit.data_source.ReadMaxRows(100))
    assert read[key][:2] == [end, 0]
    writer = SpoolWriter(folder)
    writer.append(publish(senml(99)), 1, NOON)
    writer.close()
    after = reader.latestOffset(read, damage_kit.data_source.ReadMaxRows(100))
    assert [row["payload"] for part in reader.partitions(read, after)
            for rows in reader.read(part) for row in rows.to_pylist()] == [senml(99)]  # fmt: skip


def test_behind_a_bridge_that_runs_nothing_is_read(folder, caplog):
    """It may be about to write, and takes back a block that the disk has no room for."""
    writer = SpoolWriter(folder)
    behind(folder, 2)
    skipping = batch(folder, skipDamaged="true")
    assert skipping == batch(folder) == PAYLOADS[:-4] and not caplog.text
    writer.append(publish(senml(99)), 1, NOON)
    assert batch(folder) == [*PAYLOADS, senml(99)]
    writer.close()


def test_a_bridge_that_has_run_meanwhile(folder, monkeypatch, caplog):
    """It began after the reader had looked at `durable`, and has ended before it looks again."""
    behind(folder, 2)
    asked = []

    def held(path):
        if not asked:
            bridge(path)
        asked.append(path)
        return False

    monkeypatch.setattr(lock, "held", held)
    assert batch(folder) == PAYLOADS[:-4] and len(asked) == 2
    assert "no bridge runs" not in caplog.text
    assert batch(folder) == PAYLOADS


def test_damage_between_whole_blocks_behind_it(folder, caplog):
    """No bridge takes that in: it is durable, and not as it was."""
    behind(folder, 3)
    begin, _ = blocks(last(folder))[-2]
    flip(last(folder), begin + 40)
    assert batch(folder) == PAYLOADS[:-6]
    assert "part of it is damaged" in caplog.text and "copies all that is whole" in caplog.text
    assert "whole blocks follow" in refused(folder)
    assert salvaged(folder) == PAYLOADS[:-4] + PAYLOADS[-2:]


def test_a_damaged_header_behind_it(folder, caplog):
    """`durable` is as old as the segment, which nothing else proves."""
    durable_at(folder, spool.segments(folder)[-1].base)
    flip(last(folder), 9)
    assert batch(folder) == PAYLOADS[:16] and "part of it is damaged" in caplog.text
    assert "its header is damaged" in refused(folder)
    assert salvaged(folder) == PAYLOADS


def test_a_segment_of_which_nothing_is_left_behind_it(folder, caplog):
    """The disk has its name, and not even its header: the whole blocks are in the one before."""
    second, third = spool.segments(folder)[1:]
    third.path.write_bytes(b"")
    durable_at(folder, second.base + blocks(second.path)[0][1])
    assert batch(folder) == PAYLOADS[:10] and "no bridge runs" in caplog.text
    assert salvaged(folder) == PAYLOADS[:16] and "are taken in" in bridge(folder)
    assert batch(folder) == PAYLOADS[:16]


def test_a_torn_block_is_not_spoken_of(folder, caplog):
    behind(folder, 1)
    cut(last(folder), blocks(last(folder))[-1][1] - 1)
    assert batch(folder) == salvaged(folder) == PAYLOADS[:-2] and not caplog.text


def test_a_torn_block_behind_whole_ones_is_kept(folder):
    """A kill leaves the one or the other."""
    behind(folder, 3)
    begin, end = blocks(last(folder))[-1]
    raw = last(folder).read_bytes()[begin : end - 10]
    cut(last(folder), end - 10)
    assert ".torn" in bridge(folder)
    kept, = folder.glob("*.torn")
    assert kept.read_bytes() == raw and batch(folder) == PAYLOADS[:-2]


# -- who holds the lock --------------------------------------------------------------------------


def test_a_copy_without_the_lock_file_is_held_by_nobody(folder):
    assert not lock.held(folder)
    (folder / "lock").unlink()
    assert not lock.held(folder)
    writer = SpoolWriter(folder)
    assert lock.held(folder)
    with pytest.raises(SpoolError, match="in use by another bridge"):
        SpoolWriter(folder)
    writer.close()
    assert not lock.held(folder)


def test_a_reader_that_looks_keeps_no_bridge_from_starting(folder):
    """It holds the lock for an instant, shared: here for as long as the bridge has asked once."""
    handle, asked = os.open(folder / "lock", os.O_RDONLY), threading.Event()
    fcntl.flock(handle, fcntl.LOCK_SH)
    sleep = lock.time.sleep

    def wait(seconds):
        asked.set()
        sleep(seconds)

    def give_back():
        asked.wait(30)
        os.close(handle)

    other = threading.Thread(target=give_back)
    other.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lock.time, "sleep", wait)
        SpoolWriter(folder).close()
    other.join()
    assert asked.is_set()
