"""A spool of which something is missing: whoever reads it, or goes on writing it, says what, and
passes over nothing unless it is told to."""

import logging
import shutil

import pytest
from damage_kit import durable_at
from pipeline_kit import NOON, fill, publish, run, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline.bridge.service import Bridge, Settings
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.source import data_source
from umqtt_pipeline.source.data_source import Options, SpoolReader, SpoolStreamReader
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.reader import HEADER, SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter

COUNT = 12  #: messages, two in a segment, each a block of its own


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A spool of six segments that a bridge has ended in good order."""
    folder = tmp_path_factory.mktemp("whole") / "spool"
    writer = SpoolWriter(folder, segment_bytes=200)
    for n in range(1, COUNT + 1):
        writer.append(publish(senml(n)), 1, NOON)
    writer.close()
    assert len(spool.segments(folder)) == COUNT // 2
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "spool")
    return tmp_path / "spool"


def cut(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def segment(folder, number):
    return spool.segments(folder)[number].path


def first_block(folder, number):
    """Size of a segment that ends with its first block."""
    at = spool.segments(folder)[number]
    with spool.SegmentReader(at) as reader:
        return next(reader.headers(at.first, at.base + at.size())).end - at.base


MIDDLE, LAST = 2, -1
DAMAGE = {
    "a middle segment removed": lambda f: segment(f, MIDDLE).unlink(),
    **{f"a middle segment cut to {n} bytes": lambda f, n=n: cut(segment(f, MIDDLE), n)
       for n in (0, 10, HEADER.size)},
    "a middle segment cut at a block's end":
        lambda f: cut(segment(f, MIDDLE), first_block(f, MIDDLE)),
    "the last segment removed": lambda f: segment(f, LAST).unlink(),
    "the last segment cut to its head": lambda f: cut(segment(f, LAST), HEADER.size),
    "the last segment cut at a block's end": lambda f: cut(segment(f, LAST), first_block(f, LAST)),
    "the last segment cut in a block":
        lambda f: cut(segment(f, LAST), first_block(f, LAST) + 30),
    "all segments removed": lambda f: [s.path.unlink() for s in spool.segments(f)],
}  # fmt: skip
LOST = {
    "durable removed": lambda f: (f / "durable").unlink(),
    "durable zeroed": lambda f: (f / "durable").write_bytes(bytes(12)),
    "durable emptied": lambda f: (f / "durable").write_bytes(b""),
}
SWAPPED = {
    "a header's byte flipped": lambda f: _flip(segment(f, MIDDLE), 20),
    "two segments exchanged": lambda f: _exchange(segment(f, 1), segment(f, MIDDLE)),
}


def _flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def _exchange(one, other):
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)


def options(folder, **more):
    return Options({"path": str(folder), **more})


def packet_ids(parts, reader):
    return [row["packet_id"] for part in parts for batch in reader.read(part)
            for row in batch.to_pylist()]  # fmt: skip


@pytest.mark.parametrize("what", [*DAMAGE, *LOST, *SWAPPED])
def test_the_source_says_so(folder, what):
    begun = SpoolStreamReader(options(folder))
    start = begun.latestOffset(begun.initialOffset(), data_source.ReadMaxRows(3))
    {**DAMAGE, **LOST, **SWAPPED}[what](folder)
    with pytest.raises(SpoolError) as batch:
        reader = SpoolReader(options(folder))
        packet_ids(reader.partitions(), reader)
    assert str(folder) in str(batch.value)
    for limit in (data_source.ReadMaxRows(100), data_source.ReadAllAvailable()):
        reader = SpoolStreamReader(options(folder))
        for offset in (None, start):
            with pytest.raises(SpoolError):
                at = offset or reader.initialOffset()
                end = reader.latestOffset(at, limit)
                packet_ids(reader.partitions(at, end), reader)


@pytest.mark.parametrize("what", [*DAMAGE, *LOST])
def test_a_bridge_does_not_start_on_it(folder, what):
    {**DAMAGE, **LOST}[what](folder)
    before = sorted((p.name, p.stat().st_size) for p in folder.iterdir())
    for _ in range(2):  # and gives the lock back
        with pytest.raises(SpoolError, match="copies all that is whole into a new spool"):
            SpoolWriter(folder)
    assert before == sorted((p.name, p.stat().st_size) for p in folder.iterdir())


@pytest.mark.parametrize("what", ["the last segment removed", "all segments removed"])
@pytest.mark.parametrize("knows", ["a reader", "the marks"])
def test_what_a_bridge_knows_beside_durable(whole, folder, what, knows):
    """The last segment is gone and `durable` is an old one, but a reader, or the marks, had been
    further."""
    shutil.rmtree(folder)
    shutil.copytree(whole, folder)
    settings = Settings(host="h", port=1, spool=str(folder))
    if knows == "a reader":
        consumers.register(folder, "r", spool.durable(folder))
    else:
        Bridge(settings)._finish()
    DAMAGE[what](folder)
    durable_at(folder, 0)
    with pytest.raises(SpoolError, match="copies all that is whole into a new spool"):
        Bridge(settings)


@pytest.mark.parametrize("segments", [False, True])
def test_a_new_spool_is_empty_and_not_damaged(tmp_path, segments):
    """Killed while it was made: durable is empty, with and without the first segment. (spool.json
    was the first file of older programs, now it is the last.)"""
    SpoolWriter(tmp_path).close()
    (tmp_path / "durable").write_bytes(b"")
    (tmp_path / "deleted").unlink()
    if not segments:
        segment(tmp_path, 0).unlink()
    assert SpoolReader(options(tmp_path)).partitions() == []
    reader = SpoolStreamReader(options(tmp_path))
    start = reader.initialOffset()
    assert reader.latestOffset(start, data_source.ReadMaxRows(9)) == start
    fill(tmp_path, [publish(senml(1))])
    end = reader.latestOffset(start, data_source.ReadMaxRows(9))
    assert len(packet_ids(reader.partitions(start, end), reader)) == 1


def test_after_a_power_cut_durable_may_be_old(folder):
    """It is not fsynced with each block: a reader may have seen more, and waits for the bridge."""
    reader = SpoolStreamReader(options(folder))
    read = reader.latestOffset(reader.initialOffset(), data_source.ReadAllAvailable())
    SpoolWriter(folder).close()
    old = spool.segments(folder)[MIDDLE].base
    durable_at(folder, old)
    reader = SpoolStreamReader(options(folder))
    assert reader.latestOffset(read, data_source.ReadMaxRows(9)) == read
    writer = SpoolWriter(folder)
    writer.close()
    assert "are taken in" in " ".join(writer.notes)
    assert spool.durable(folder) == writer.position


@pytest.mark.parametrize("removed", [0, MIDDLE])
def test_left_out_only_when_told_and_seen(spark, folder, tmp_path, caplog, removed):
    """The numbers that were in the missing segment are a gap, as of a device that lost them."""
    segment(folder, removed).unlink()
    with pytest.raises(Exception, match="positions [0-9]+ to [0-9]+ are missing"):
        ingest(spark, folder, tmp_path / "tables")
    with caplog.at_level(logging.ERROR):
        Runner(spark, str(folder), str(tmp_path / "tables"), once=True, patience=1,
               skip_damaged=True).run()  # fmt: skip
        reader = SpoolReader(options(folder, skipDamaged="true"))
        assert len(packet_ids(reader.partitions(), reader)) == COUNT - 2
    gone = [2 * removed + 1, 2 * removed + 2]
    assert numbers(tmp_path / "tables") == [n for n in range(1, COUNT + 1) if n not in gone]
    assert "missing" in caplog.text and "left out" in caplog.text


def test_the_bridge_ends_with_a_sentence(folder):
    DAMAGE["a middle segment removed"](folder)
    done = run("bridge", "--broker", "127.0.0.1:9", "--spool", folder)
    assert done.returncode == 2 and "are missing" in done.stderr and "Traceback" not in done.stderr
