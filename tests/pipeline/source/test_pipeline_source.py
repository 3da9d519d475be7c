"""format("mqtt"): every packet once, in batches as large as asked, and nothing deleted early."""

import pickle

import pytest
from patience import PATIENCE
from pipeline_kit import NOON, fill, publish, senml, wait_for
from pyspark.errors import StreamingQueryException
from umqtt_pipeline.source import data_source
from umqtt_pipeline.source.data_source import (
    MqttSource,
    Options,
    SpoolStreamReader,
    advance,
    read_range,
    split,
)
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.writer import SpoolWriter


def packets(count):
    return [publish(senml(n), packet_id=n, dup=n % 7 == 0) for n in range(1, count + 1)]


def rows_of(parts):
    return [row for part in parts for batch in read_range(part, False)
            for row in batch.to_pylist()]  # fmt: skip


def test_batch_read_has_every_field(spark, tmp_path):
    fill(tmp_path, [*packets(120), publish(b"", topic="\u00e4/b", packet_id=9)], per_block=50)
    rows = spark.read.format("mqtt").load(str(tmp_path)).orderBy("offset").collect()
    assert len(rows) == 121
    for n, row in enumerate(rows[:120], 1):
        assert (row.topic, bytes(row.payload), row.qos, row.retain, row.dup, row.packet_id) == (
            "fleet/g/dev1/telemetry", senml(n), 1, False, n % 7 == 0, n)  # fmt: skip
        assert row.received_at.timestamp() == NOON / 1e6 + (n - 1) // 50
    assert (rows[120].topic, bytes(rows[120].payload)) == ("\u00e4/b", b"")
    assert len({row.offset for row in rows}) == 121


def test_an_empty_spool_has_no_rows(spark, tmp_path):
    SpoolWriter(tmp_path).close()
    assert spark.read.format("mqtt").load(str(tmp_path)).count() == 0


@pytest.mark.parametrize("options,words", [
    ({}, "path"), ({"path": "x", "maxRowsPerBatch": "-1"}, "maxRowsPerBatch"),
    ({"path": "x", "numPartitions": "many"}, "numPartitions"),
    ({"path": "x", "maxrowperbatch": "1"}, "maxrowperbatch.*nearest is maxRowsPerBatch"),
    ({"path": "x,,y"}, "is empty"), ({"path": "x,"}, "is empty"), ({"path": "x, ./x"}, "twice"),
    ({"path": "x", "consumer": "../x"}, "consumer"), ({"path": "x", "skipDamaged": "1"}, "true"),
])  # fmt: skip
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        Options(options)


def test_a_broker_is_for_streams(tmp_path):
    """A batch would not start a bridge, and would not say so."""
    given = MqttSource({"path": str(tmp_path), "broker": "localhost:1883"})
    with pytest.raises(ValueError, match="for streams"):
        given.reader(None)
    given.streamReader(None)


def test_no_spool_is_a_clear_error(spark, tmp_path):
    with pytest.raises(Exception, match="is not a spool"):
        spark.read.format("mqtt").load(str(tmp_path)).count()


@pytest.mark.parametrize("kind", [data_source.SpoolReader, SpoolStreamReader])
def test_a_relative_path_is_read_by_processes_that_work_elsewhere(tmp_path, monkeypatch, kind):
    """Executors do: the folder is relative to the one in which the query was planned."""
    fill(tmp_path / "spool", packets(20))
    (tmp_path / "executor").mkdir()
    monkeypatch.chdir(tmp_path)
    reader = kind(Options({"path": "spool"}))
    offsets = []
    if kind is SpoolStreamReader:
        start = reader.initialOffset()
        offsets = [start, reader.latestOffset(start, reader.getDefaultReadLimit())]
    parts = pickle.dumps(reader.partitions(*offsets))
    monkeypatch.chdir("executor")
    assert len(rows_of(pickle.loads(parts))) == 20


@pytest.mark.parametrize("rows", [1, 3, 10, 11, 25, 1000])
def test_admission_and_partitions_lose_and_repeat_nothing(tmp_path, monkeypatch, rows):
    """Offsets may fall into the middle of a block, partitions begin at blocks."""
    monkeypatch.setattr(data_source, "PART_ROWS", 1)
    writer = SpoolWriter(tmp_path, segment_bytes=700)
    sent = packets(61)
    for at, size in ((0, 1), (1, 10), (11, 9), (20, 1), (21, 40)):
        writer.append(b"".join(sent[at : at + size]), size, NOON)
    writer.close()
    end, at, found = spool.durable(tmp_path), [0, 0], []
    while True:
        reached, taken = advance(tmp_path, at, end, rows)
        if reached == at:
            break
        assert taken == min(rows, 61 - len(found))
        parts = split(tmp_path, at, reached, 3)
        assert len(parts) <= 3
        found += rows_of(parts)
        at = reached
    assert [row["packet_id"] for row in found] == list(range(1, 62))
    assert [row["offset"] for row in found] == sorted({row["offset"] for row in found})


@pytest.mark.parametrize("size", [1, 80, 500, 2_000, 1 << 20])
def test_a_batch_is_bounded_in_bytes(tmp_path, size):
    """About: a block is cut as if its packets were of one length. One packet comes at least."""
    writer = SpoolWriter(tmp_path)
    sent = packets(61)
    for at, count in ((0, 1), (1, 10), (11, 50)):
        writer.append(b"".join(sent[at : at + count]), count, NOON)
    writer.close()
    end, at, found, longest = spool.durable(tmp_path), [0, 0], [], max(map(len, sent))
    while at[0] < end:
        at, taken = advance(tmp_path, before := at, end, 1000, size=size)
        rows = rows_of(split(tmp_path, before, at, 1))
        assert len(rows) == taken >= 1
        assert taken == 1 or sum(len(sent[row["packet_id"] - 1]) for row in rows) <= size + longest
        found += rows
    assert [row["packet_id"] for row in found] == list(range(1, 62))


def test_stream_batches_and_restart(spark, tmp_path):
    """maxRowsPerBatch, available-now, and a restart that reads only what is new. A query that
    ends within its first batch gets the same batch again, whatever has come meanwhile."""
    folder, seen = tmp_path / "spool", []
    fill(folder, packets(50))

    def once(dies=False):
        def take(rows, n):
            seen.append((n, sorted(r.packet_id for r in rows.collect())))
            if dies:
                raise RuntimeError("killed")

        frame = spark.readStream.format("mqtt").options(
            path=str(folder), maxRowsPerBatch="60", consumer="t").load()  # fmt: skip
        query = frame.writeStream.foreachBatch(take).option(
            "checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        started = query.start()
        assert started.awaitTermination(60 * PATIENCE)

    with pytest.raises(StreamingQueryException, match="killed"):
        once(dies=True)
    died = seen.copy()
    fill(folder, packets(130)[50:])
    once()
    assert died == seen[1:2] == [(0, list(range(1, 51)))]
    del seen[0]
    assert [len(rows) for _, rows in seen] == [50, 60, 20]
    fill(folder, packets(135)[130:])
    once()
    assert [n for n, _ in seen] == [0, 1, 2, 3]
    assert sorted(x for _, rows in seen for x in rows) == list(range(1, 136))
    # Spark may forget the last commit in a power cut, so what was read behind it is not released.
    first = spool.durable(folder)
    assert consumers.positions(folder)["t"] < first
    for n in (136, 137):
        fill(folder, [publish(senml(n))])
        once()
    assert first <= consumers.positions(folder)["t"] < spool.durable(folder)


def test_commit_releases_one_batch_late(tmp_path):
    fill(tmp_path, packets(10), per_block=1)
    reader = SpoolStreamReader(Options({"path": str(tmp_path), "consumer": "c"}))
    key = spool.spool_id(tmp_path)
    reader.initialOffset()
    for end, released in (([100, 0], 0), ([200, 3], 100), ([200, 3], 100), ([300, 0], 200)):
        reader.commit({key: end})
        assert consumers.positions(tmp_path) == {"c": released}
        reader = SpoolStreamReader(Options({"path": str(tmp_path), "consumer": "c"}))  # restarted
    reader.initialOffset()  # its checkpoint was deleted
    reader.commit({key: [100, 0]})
    assert consumers.positions(tmp_path) == {"c": 0}


def test_a_stream_with_nothing_new_releases_all_that_it_has_committed(spark, tmp_path):
    """Spark would say so when the next batch begins: never, if the bridge waits for room."""
    folder, checkpoint, seen = tmp_path / "spool", tmp_path / "checkpoint", []
    options = {"path": str(folder), "consumer": "t", "checkpoint": str(checkpoint)}

    def take(rows, n):
        # What is read now may be asked for again.
        assert consumers.positions(folder)["t"] <= (ends[-1] if ends else 0)
        seen.extend(row.packet_id for row in rows.collect())

    def started():
        frame = spark.readStream.format("mqtt").options(**options).load()
        return frame.writeStream.foreachBatch(take).option(
            "checkpointLocation", str(checkpoint)).trigger(processingTime="100 milliseconds"
            ).start()  # fmt: skip

    def released(query):
        wait_for(lambda: consumers.positions(folder).get("t") == spool.durable(folder)
                 or not query.isActive, 60, "the release")  # fmt: skip
        assert query.isActive, query.exception()
        ends.append(spool.durable(folder))

    ends = []
    for first, last in ((1, 50), (51, 80)):  # with a restart
        fill(folder, packets(last)[first - 1 :])
        query = started()
        try:
            released(query)
            fill(folder, [publish(senml(last), packet_id=last + 1000)])
            released(query)
        finally:
            query.stop()
    assert seen == [*range(1, 51), 1050, *range(51, 81), 1080]


@pytest.mark.parametrize("named,said", [("elsewhere", "/elsewhere is not the folder"),
                                        ("s3://bucket/checkpoint", "a folder of this computer")])
def test_a_checkpoint_of_no_query_is_an_error(named, said, tmp_path):
    fill(tmp_path / "spool", packets(3))
    options = {"path": str(tmp_path / "spool"), "consumer": "c", "checkpoint": named}
    with pytest.raises(ValueError, match=f"option checkpoint.*{said}"):
        reader = SpoolStreamReader(Options(options))
        start = reader.initialOffset()
        for _ in range(2):
            start = reader.latestOffset(start, data_source.ReadAllAvailable())


def test_a_release_that_a_full_disk_refuses_is_tried_again(tmp_path, monkeypatch):
    fill(tmp_path / "spool", packets(3))
    (tmp_path / "metadata").touch()
    reader = SpoolStreamReader(Options({"path": str(tmp_path / "spool"), "consumer": "c",
                                        "checkpoint": str(tmp_path)}))
    start = reader.latestOffset(reader.initialOffset(), data_source.ReadAllAvailable())
    tries = []

    def finish(*_):
        tries.append(1)
        if len(tries) == 1:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(consumers, "finish", finish)
    for _ in range(4):
        assert reader.latestOffset(start, data_source.ReadAllAvailable()) == start
    assert len(tries) == 2


def test_a_spool_begun_anew_is_another_series(tmp_path):
    fill(tmp_path / "a", packets(20))
    reader = SpoolStreamReader(Options({"path": str(tmp_path / "a")}))
    start = reader.latestOffset(reader.initialOffset(), data_source.ReadAllAvailable())
    (tmp_path / "a").rename(tmp_path / "old")
    fill(tmp_path / "a", packets(5))
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(rows_of(reader.partitions(start, end))) == 5


def test_deleted_positions_are_an_error_not_a_hole(tmp_path):
    writer = SpoolWriter(tmp_path, segment_bytes=100)
    for packet in packets(4):
        writer.append(packet, 1, NOON)
    writer.close()
    spool.segments(tmp_path)[0].path.unlink()
    with pytest.raises(spool.SpoolError, match="deleted"):
        split(tmp_path, [0, 0], [writer.position, 0], 2)


def test_damage_fails_unless_told_to_skip(tmp_path):
    fill(tmp_path, packets(30), per_block=10)
    block = [b for b, _ in spool.walk(tmp_path, 0, spool.durable(tmp_path))][1]
    path = spool.segments(tmp_path)[0].path
    raw = bytearray(path.read_bytes())
    raw[block.position + 40] ^= 1
    path.write_bytes(raw)
    parts = split(tmp_path, [0, 0], [spool.durable(tmp_path), 0], 1)
    with pytest.raises(spool.SpoolError, match="check value"):
        rows_of(parts)
    kept = [row["packet_id"] for batch in read_range(parts[0], True) for row in batch.to_pylist()]
    assert kept == [*range(1, 11), *range(21, 31)]


def test_several_spools(spark, tmp_path):
    fill(tmp_path / "a", packets(3))
    fill(tmp_path / "b", packets(4))
    frame = spark.read.format("mqtt").load(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert frame.count() == 7
