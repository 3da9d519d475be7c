"""The file `starts`, by which two histories of one spool are told apart: what stands in it, and
that nothing depends on it alone."""

import damage_kit
import pytest
from damage_kit import PAYLOADS, batch, bridge, flip, stream
from pipeline_kit import NOON, publish
from umqtt_pipeline.source import data_source
from umqtt_pipeline.source.data_source import Options, SpoolStreamReader
from umqtt_pipeline.spool import consumers, offsets, starts
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.writer import SpoolWriter

folder, whole, said_anew = damage_kit.folder, damage_kit.whole, damage_kit.said_anew  # fixtures


def write(folder, count=1, segment_bytes=1 << 20):
    """A start that appends so many blocks; the positions of these."""
    writer = SpoolWriter(folder, segment_bytes=segment_bytes)
    found = [writer.append(publish(PAYLOADS[n]), 1, NOON) for n in range(count)]
    writer.close()
    return found


def test_one_entry_for_each_start_that_has_appended(tmp_path):
    first = write(tmp_path, 3)
    write(tmp_path, 0)
    second = write(tmp_path, 2)
    assert [at for at, _ in starts.listed(tmp_path)] == [first[0], second[0]]
    (_, one), (_, two) = starts.listed(tmp_path)
    assert one != two and len(one) == len(two) == 16
    assert [starts.of(tmp_path, at) for at in (0, *first, *second)] == ["", *[one] * 3, two, two]


def test_a_start_takes_the_place_of_those_whose_blocks_are_not_there(tmp_path):
    for position in (32, 100, 200, 150):
        starts.begin(tmp_path, position, 0)
    assert [at for at, _ in starts.listed(tmp_path)] == [32, 100, 150]


def test_those_of_what_was_deleted_go(tmp_path):
    for n in range(5):
        starts.begin(tmp_path, 100 * n, 250)
    assert [at for at, _ in starts.listed(tmp_path)] == [200, 300, 400]  # 200: of 250, too


def test_the_writer_says_what_was_deleted(tmp_path):
    for _ in range(6):
        end = write(tmp_path, 1, segment_bytes=40)[0]
    consumers.register(tmp_path, "r", end)
    writer = SpoolWriter(tmp_path, segment_bytes=40)
    assert writer.trim(end) == 5
    writer.close()
    write(tmp_path)
    begun = spool.begin(tmp_path)
    assert [at >= begun for at, _ in starts.listed(tmp_path)] == [False, True, True]


def _lost(path):
    path.unlink()


def _empty(path):
    path.write_bytes(b"")


def _shortened(path):
    path.write_bytes(path.read_bytes()[:-3])


def _flipped(path):
    for where in range(0, path.stat().st_size, 7):
        flip(path, where)


@pytest.mark.parametrize("damage", [_lost, _empty, _shortened, _flipped])
def test_without_it_all_goes_on(folder, damage):
    """It is looked at only where a block that was read is not there."""
    reader = SpoolStreamReader(Options({"path": str(folder)}))
    end = reader.latestOffset(reader.initialOffset(), data_source.ReadMaxRows(5))
    damage(folder / "starts")
    assert batch(folder) == stream(folder) == PAYLOADS and bridge(folder) == ""
    for _ in range(2):
        more = reader.latestOffset(end, data_source.ReadAllAvailable())
        assert more != end and reader.partitions(end, more)
        write(folder)
        end = more
    assert starts.of(folder, spool.durable(folder)) != ""


def test_a_spool_of_an_older_program(folder):
    """It has no such file. What it has written is known by that, when the next start makes one."""
    (folder / "starts").unlink()
    reader = SpoolStreamReader(Options({"path": str(folder)}))
    end = reader.latestOffset(reader.initialOffset(), data_source.ReadAllAvailable())
    (at,) = end.values()
    assert at[5] == ""
    write(folder, 2)
    offsets.check(folder, at)
    assert reader.latestOffset(end, data_source.ReadAllAvailable()) != end
