"""Whole blocks behind `durable`, as a kill, a power cut or a backup of that file leave them: the
next bridge takes them in. Until it is there, readers say so, and read them if they are told to."""

import fcntl
import os
import re
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
    verified,
)
from pipeline_kit import NOON, QUICK, fill, publish, run, senml
from umqtt_pipeline.spool import lock
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.segment import BLOCK
from umqtt_pipeline.spool.writer import SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def behind(folder, count):
    """Put back a `durable` that is `count` blocks of the last segment old; what it says."""
    begin, _ = blocks(last(folder))[-count]
    position = spool.segments(folder)[-1].base + begin
    durable_at(folder, position)
    return position


# -- in an earlier segment ------------------------------------------------------------------------


def test_an_old_durable_in_an_earlier_segment(folder, caplog):
    _, second, third = spool.segments(folder)
    durable_at(folder, second.base)
    for read in (batch, stream):
        assert read(folder) == PAYLOADS[:8]
    assert caplog.text.count(f"`durable` says {second.base}, no bridge runs") == 1
    assert salvaged(folder) == PAYLOADS
    flip(third.path, blocks(third.path)[1][0] + 40)
    assert salvaged(folder) == PAYLOADS[:18] + PAYLOADS[20:]
    flip(third.path, blocks(third.path)[1][0] + 40)
    size = sum(segment.size() for segment in (second, third))
    assert f"these {size} bytes are taken in" in bridge(folder)
    assert batch(folder) == PAYLOADS and bridge(folder) == ""


def test_a_kill_while_a_segment_is_begun_is_not_spoken_of(folder, caplog):
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
    assert "not read until a bridge is started on this spool" in caplog.text
    caplog.clear()
    assert salvaged(folder) == PAYLOADS and f"read up to {end}" in caplog.text
    wrong, notes = verified(folder)
    note = bridge(folder)
    assert wrong == [] and " ".join(notes) == note
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
    assert "no bridge runs" in caplog.text
    assert "whole blocks follow" in refused(folder)
    assert salvaged(folder) == PAYLOADS[:-4] + PAYLOADS[-2:]


def test_a_damaged_header_behind_it(folder, caplog):
    """`durable` is as old as the segment, and nothing tells that it is an old copy."""
    durable_at(folder, spool.segments(folder)[-1].base)
    flip(last(folder), 9)
    assert batch(folder) == PAYLOADS[:16] and "no bridge runs" in caplog.text
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


@pytest.mark.parametrize("size", [*range(1, BLOCK.size + 2), 60])
def test_what_a_killed_writer_leaves_is_cut_off(folder, size):
    begin, end = blocks(last(folder))[-1]
    assert size < end - begin
    behind(folder, 1)
    cut(last(folder), begin + size)
    assert batch(folder) == salvaged(folder) == PAYLOADS[:-2]
    assert f"cut off {size} bytes that are no whole block" in bridge(folder)
    assert batch(folder) == PAYLOADS[:-2] and bridge(folder) == ""


@pytest.mark.parametrize("where", [0, 2, 3, BLOCK.size, -1],
                         ids=["magic", "kind", "reserved", "body", "last byte"])  # fmt: skip
@pytest.mark.parametrize("count", [1, 3])
def test_a_power_cut_leaves_a_block_of_full_length_that_is_not_whole(folder, where, count):
    """The file has grown, and not all of its pages were written; also behind whole blocks that
    `durable` does not cover yet."""
    begin, end = blocks(last(folder))[-1]
    behind(folder, count)
    flip(last(folder), end - 1 if where < 0 else begin + where)
    assert f"cut off {end - begin} bytes" in bridge(folder)
    assert batch(folder) == PAYLOADS[:-2] and bridge(folder) == ""


@pytest.mark.parametrize("tail", [
    bytes(BLOCK.size),
    bytes(500),
    b"UB\1\0" + bytes(100),
    BLOCK.pack(b"UB", 1, 0, 80, NOON, 1, 0) + bytes(80),
    BLOCK.pack(b"UB", 1, 0, 500, NOON, 0, 0) + bytes(80),
    BLOCK.pack(b"UX", 1, 0, 500, NOON, 1, 0) + bytes(80),
])  # fmt: skip
def test_whatever_else_stands_behind_durable_is_cut_off(folder, tail):
    with open(last(folder), "ab") as file:
        file.write(tail)
    wrong, notes = verified(folder)
    assert not wrong and f"the last {len(tail)} bytes, from position" in notes[-1]
    assert f"cut off {len(tail)} bytes" in bridge(folder)
    assert batch(folder) == PAYLOADS


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


def test_ingest_says_it_in_its_log(tmp_path):
    """Though Spark has the spool looked at by a process of its own."""
    folder = tmp_path / "spool"
    fill(folder, [publish(senml(n)) for n in range(1, 5)], per_block=2)
    position = behind(folder, 1)
    done = run("ingest", "--spool", folder, "--tables", tmp_path / "t", "--once", *QUICK)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if f"`durable` says {position}" in line]
    assert len(lines) == 1 and re.match(r"\d\d:\d\d:\d\d umqtt\.spool: ", lines[0]), done.stderr
