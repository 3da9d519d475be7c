"""A damaged spool: how tests make it, start a bridge on it and read it. Must not know what a test
asserts, but that a bridge which refuses changes nothing."""

import shutil

import pytest
from pipeline_kit import NOON, publish, senml
from umqtt_pipeline.bridge.service import Bridge, Settings
from umqtt_pipeline.source import data_source
from umqtt_pipeline.source.data_source import Options, SpoolReader, SpoolStreamReader
from umqtt_pipeline.spool import consumers, files, logs
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.salvage import salvage
from umqtt_pipeline.spool.writer import SpoolWriter

PAYLOADS = [senml(n) for n in range(1, 25)]  #: two in a block, four blocks in a segment


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A spool of three segments that nobody reads."""
    folder = tmp_path_factory.mktemp("whole") / "spool"
    writer = SpoolWriter(folder, segment_bytes=700)
    for at in range(0, len(PAYLOADS), 2):
        writer.append(b"".join(map(publish, PAYLOADS[at : at + 2])), 2, NOON)
    writer.close()
    assert len(spool.segments(folder)) == 3
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "spool")
    return tmp_path / "spool"


@pytest.fixture(autouse=True)
def said_anew():
    files.tell_once.cache_clear()


def bridge(folder):
    """A bridge on the spool, started and ended; what it has noted."""
    made = Bridge(Settings(host="h", port=1, spool=str(folder)))
    made._finish()
    return " ".join(made.spool.notes)


def content(folder):
    """What must not change when a command refuses."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder):
    """Why a bridge does not start; it has not changed a byte. `verify` does not call the spool
    whole."""
    before = content(folder)
    with pytest.raises(SpoolError) as error:
        bridge(folder)
    assert verified(folder)[0], f"verify does not know of it: {error.value}"
    assert content(folder) == before
    return str(error.value)


def verified(folder):
    """What verify finds wrong, and what it notes that is no damage."""
    notes = []
    return [wrong for _, wrong in logs.verify(folder, notes) if wrong], notes


def batch(folder, **more):
    reader = SpoolReader(Options({"path": str(folder), **more}))
    return [row["payload"] for part in reader.partitions() for rows in reader.read(part)
            for row in rows.to_pylist()]  # fmt: skip


def stream(folder, rows=5, **more):
    """What a new stream reads, in batches of at most `rows`."""
    reader = SpoolStreamReader(Options({"path": str(folder), **more}))
    at, found = reader.initialOffset(), []
    for _ in range(100):
        end = reader.latestOffset(at, data_source.ReadMaxRows(rows))
        if end == at:
            return found
        found += [row["payload"] for part in reader.partitions(at, end)
                  for rows_ in reader.read(part) for row in rows_.to_pylist()]  # fmt: skip
        at = end
    raise AssertionError("no end")


def salvaged(folder):
    """What is read with skipDamaged, by a batch and by a stream, and what is in a new spool that
    was salvaged from this one: all the same. Nothing in the old one has changed."""
    before, new = content(folder), folder.parent / "salvaged"
    found = batch(folder, skipDamaged="true")
    assert stream(folder, skipDamaged="true") == found
    salvage(folder, new)
    assert batch(new) == found and content(folder) == before
    shutil.rmtree(new)
    return found


def blocks(path):
    """[(first byte, end)] of the blocks in a whole segment."""
    base = int(path.name[:20])
    segment = files.Segment(base, path)
    with spool.SegmentReader(segment) as reader:
        return [(b.position - base, b.end - base)
                for b in reader.headers(segment.first, reader.end)]  # fmt: skip


def last(folder):
    return spool.segments(folder)[-1].path


def change(path, at, data):
    raw = bytearray(path.read_bytes())
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


def flip(path, at):
    change(path, at, bytes((path.read_bytes()[at] ^ 0x55,)))


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def durable_at(folder, position):
    check = spool.zlib.crc32(position.to_bytes(8, "little"))
    (folder / "durable").write_bytes(spool.DURABLE.pack(position, check))


def by_marks(folder):
    Bridge(Settings(host="h", port=1, spool=str(folder)))._finish()


def by_a_reader(folder):
    consumers.register(folder, "r", spool.durable(folder))


def by_what_a_reader_has_committed(folder):
    end = spool.durable(folder)
    consumers.register(folder, "r", 0, committed={spool.spool_id(folder): [end, 0]})


PROOFS = [by_marks, by_a_reader, by_what_a_reader_has_committed]
