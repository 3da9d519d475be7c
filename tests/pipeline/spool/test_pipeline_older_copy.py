"""An older copy of a whole spool is put back, but its readers' checkpoints and tables are newer:
what a bridge receives then has positions that were read already, and must not be passed over."""

import json
import re
import shutil
import traceback
from pathlib import Path

import pytest
import umqtt_pipeline
from damage_kit import (
    SpoolStreamReader,
    batch,
    blocks,
    bridge,
    change,
    cut,
    durable_at,
    flip,
    last,
    refused,
    said_anew,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import NOON, fill, publish, senml
from pipeline_tables import ingest, numbers, table
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.source import data_source
from umqtt_pipeline.source.data_source import Options
from umqtt_pipeline.spool import consumers, offsets
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_runtime import failures

__all__ = ["said_anew"]  # a fixture

SECOND = 1_000_000
#: the cure of an older copy comes before that of a lost end, which would be `salvage`
ENDS_BEFORE = "ends at .* was read up to .* older copy .* checkpoint.* are missing .*salvage"


def packs(first, stop):
    return [publish(senml(n), packet_id=n) for n in range(first, stop)]


def write(folder, sizes, at=0, segment_bytes=1 << 20):
    """Blocks of as many bytes as `sizes` says, one a second from second `at` on."""
    writer = append(SpoolWriter(folder, segment_bytes=segment_bytes), sizes, at)
    writer.close()
    return writer.position


def append(writer, sizes, at=0):
    for n, size in enumerate(sizes):
        writer.append(publish(bytes(size)), 1, NOON + int((at + n) * SECOND))
    return writer


def reader(folder, **more):
    return SpoolStreamReader(Options({"path": str(folder), **more}))


def read_all(folder, start=None, **more):
    """(offset of the end, payloads) of a stream from `start` on."""
    stream = reader(folder, **more)
    begin = start or stream.initialOffset()
    end = stream.latestOffset(begin, data_source.ReadAllAvailable())
    return end, [row["payload"] for part in stream.partitions(begin, end)
                 for rows in stream.read(part) for row in rows.to_pylist()]  # fmt: skip


def checkpoint(folder, end):
    """A query's checkpoint whose only batch has ended at the offset `end`."""
    for part, text in (("offsets", "v1\n{}\n" + json.dumps(end)), ("commits", "v1")):
        (folder / "checkpoint" / part).mkdir(parents=True)
        (folder / "checkpoint" / part / "0").write_text(text)
    return folder / "checkpoint"


@pytest.fixture
def restored(tmp_path):
    """(spool, key, offset): four blocks were copied, four more written and read, and then the copy
    was put back."""
    folder, copy = tmp_path / "spool", tmp_path / "copy"
    write(folder, [50] * 4)
    shutil.copytree(folder, copy)
    write(folder, [50] * 4, at=10)
    end, found = read_all(folder)
    assert len(found) == 8
    shutil.rmtree(folder)
    copy.rename(folder)
    return folder, end


@pytest.mark.parametrize("skip", ["false", "true"])
@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param([50] * 4, id="ends at the same place"),
        pytest.param([50] * 9, id="the same places, and on"),
        pytest.param([70] * 9, id="other places"),
        pytest.param([9000], id="one block over all of it"),
    ],
)
def test_what_was_received_since_is_not_passed_over(restored, sizes, skip):
    folder, end = restored
    write(folder, sizes, at=100)
    for limit in (data_source.ReadAllAvailable(), data_source.ReadMaxRows(3)):
        with pytest.raises(SpoolError, match="An older copy.*Delete the query's checkpoint"):
            reader(folder, skipDamaged=skip).latestOffset(end, limit)
    with pytest.raises(SpoolError, match="An older copy"):  # a batch that is run again
        stream = reader(folder, skipDamaged=skip)
        stream.partitions(stream.initialOffset(), end)
    again, found = read_all(folder)  # a new checkpoint
    assert len(found) == 4 + len(sizes)
    write(folder, [10], at=200)
    assert read_all(folder, again)[1] == [bytes(10)]


@pytest.fixture
def copied_running(tmp_path):
    """As `restored`, but one bridge has written all eight blocks: the copy was made meanwhile."""
    folder, copy = tmp_path / "spool", tmp_path / "copy"
    writer = append(SpoolWriter(folder), [50] * 4)
    shutil.copytree(folder, copy)
    append(writer, [50] * 4, at=10).close()
    end, _ = read_all(folder)
    shutil.rmtree(folder)
    copy.rename(folder)
    return folder, end


def test_as_long_as_nothing_came_since_it_is_known_that_some_is_missing(copied_running, caplog):
    folder, end = copied_running
    for _ in range(2):
        with pytest.raises(SpoolError, match=ENDS_BEFORE):
            reader(folder).latestOffset(end, data_source.ReadAllAvailable())
        given = reader(folder, skipDamaged="true")
        assert given.latestOffset(end, data_source.ReadAllAvailable()) == end
        SpoolWriter(folder).close()  # a bridge that receives nothing is no other history
    (_, at), = end.items()
    assert f"it ends before position {at[0]}" in caplog.text


@pytest.mark.parametrize("skip", ["false", "true"])
def test_a_clock_that_stands_behind_hides_nothing(copied_running, skip):
    folder, end = copied_running
    write(folder, [50] * 5, at=-1000)  # before all that was ever received
    with pytest.raises(SpoolError, match="An older copy.*Delete the query's checkpoint"):
        reader(folder, skipDamaged=skip).latestOffset(end, data_source.ReadAllAvailable())
    assert len(read_all(folder)[1]) == 9  # with a new checkpoint


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("skip", ["false", "true"])
def test_a_copy_that_ends_before_what_was_read(restored, tmp_path, count, skip, caplog):
    """It is refused, or waited for; nothing of it is released, and once it is longer it is
    refused whatever was chosen."""
    folder, end = restored
    write(folder, [50] * count, at=100)
    stream = reader(folder, skipDamaged=skip)
    if skip == "false":
        with pytest.raises(SpoolError, match=ENDS_BEFORE):
            stream.latestOffset(end, data_source.ReadAllAvailable())
    else:
        assert stream.latestOffset(end, data_source.ReadAllAvailable()) == end
        assert "it ends before position" in caplog.text
    (key,) = end
    consumers.advance(folder, "r", key, end)
    consumers.finish(checkpoint(tmp_path, end), [folder], "r")
    assert consumers.positions(folder) == {}
    write(folder, [50] * 5, at=200)
    with pytest.raises(SpoolError, match="An older copy.*Delete the query's checkpoint"):
        reader(folder, skipDamaged=skip).latestOffset(end, data_source.ReadAllAvailable())


@pytest.mark.parametrize("count", [0, 1])
def test_the_last_batch_is_asked_for_once_more(restored, count):
    """Spark does so when it starts: the same is said of a copy that ends before it."""
    folder, end = restored
    write(folder, [50] * count, at=100)
    begin = dict.fromkeys(end, [spool.begin(folder), 0])
    with pytest.raises(SpoolError, match=ENDS_BEFORE) as error:
        reader(folder).partitions(begin, end)
    passed_on = "".join(traceback.format_exception(error.value))
    assert re.match(f"{folder} {ENDS_BEFORE}", failures.why(passed_on))
    stream = reader(folder, skipDamaged="true")
    assert sum(len(rows) for part in stream.partitions(begin, end)
               for rows in stream.read(part)) == 4 + count  # fmt: skip


def test_a_segment_where_a_block_was_is_another_spools(restored):
    """The bridge has begun one at the end of the copy, where the first block came before."""
    folder, _ = restored
    at = spool.durable(folder)
    writer = SpoolWriter(folder)
    writer.roll()
    writer.close()
    with pytest.raises(SpoolError, match=f"a segment begins at {at}"):
        offsets.check(folder, [at + 90, 0, at, NOON, 1])


def test_a_reader_releases_nothing_of_it(restored, tmp_path):
    """Else the bridge would delete what was never read."""
    folder, end = restored
    write(folder, [50] * 9, at=100)
    with pytest.raises(SpoolError, match="An older copy"):
        consumers.finish(checkpoint(tmp_path, end), [folder], "r")
    assert consumers.positions(folder) == {}


# -- older copies of its small files --------------------------------------------------------------


@pytest.fixture
def trimmed(tmp_path):
    """A spool whose older segments were deleted: (folder, `deleted` and `marks` of before)."""
    folder = tmp_path / "spool"
    write(folder, [50] * 4, segment_bytes=100)
    bridge(folder)
    old = {name: (folder / name).read_bytes() for name in ("deleted", "marks")}
    consumers.register(folder, "r", write(folder, [50] * 4, at=10, segment_bytes=100))
    bridge(folder)
    writer = SpoolWriter(folder, segment_bytes=100)
    assert writer.trim(writer.position) == 7
    writer.close()
    return folder, old


def test_an_old_file_of_what_was_deleted_is_to_be_removed(trimmed):
    folder, old = trimmed
    (folder / "deleted").write_bytes(old["deleted"])
    assert f"{folder}/deleted was put back from an older copy: remove" in refused(folder)
    (folder / "deleted").unlink()
    assert "is made again" in bridge(folder)


def test_old_marks_are_told_of(trimmed, caplog):
    folder, old = trimmed
    assert bridge(folder) == "" and not caplog.text
    (folder / "marks").write_bytes(old["marks"])
    begun = spool.begin(folder)
    assert bridge(folder) == "" and f"made again from position {begun} on" in caplog.text


# -- what must not be taken for it ----------------------------------------------------------------


def test_a_copy_that_has_all_that_was_read(tmp_path):
    write(tmp_path / "spool", [50] * 4)
    end, _ = read_all(tmp_path / "spool")
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    write(tmp_path / "spool", [50] * 4, at=10)
    write(tmp_path / "copy", [60] * 4, at=100)
    assert read_all(tmp_path / "copy", end)[1] == [bytes(60)] * 4


def test_what_was_deleted_since(tmp_path):
    write(tmp_path, [50] * 4, segment_bytes=100)
    end, _ = read_all(tmp_path)
    consumers.register(tmp_path, "r", spool.durable(tmp_path))
    writer = SpoolWriter(tmp_path, segment_bytes=100)
    writer.append(publish(bytes(70)), 1, NOON + 50 * SECOND)
    assert writer.trim(writer.position) == 4
    writer.close()
    assert read_all(tmp_path, end)[1] == [bytes(70)]


def _header(folder):
    flip(spool.segments(folder)[0].path, 9)


def _block(folder):
    begin, _ = blocks(spool.segments(folder)[0].path)[3]
    flip(spool.segments(folder)[0].path, begin + 12)


def _body(folder):
    begin, _ = blocks(spool.segments(folder)[0].path)[3]
    flip(spool.segments(folder)[0].path, begin + 40)


def _lost(folder):
    spool.segments(folder)[0].path.unlink()


def _zeros(folder):
    path = spool.segments(folder)[0].path
    change(path, 0, bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [_header, _block, _body, _lost, _zeros])
def test_damage_to_what_was_read(tmp_path, damage):
    """It is not asked for any more, and what came since is read."""
    write(tmp_path, [50] * 4)
    end, _ = read_all(tmp_path)
    writer = SpoolWriter(tmp_path)
    writer.roll()
    writer.append(publish(bytes(70)), 1, NOON + 50 * SECOND)
    writer.close()
    damage(tmp_path)
    assert read_all(tmp_path, end, skipDamaged="true")[1] == [bytes(70)]


def test_an_end_that_is_lost(tmp_path):
    """Blocks that were read are gone with the end of the file: that is not an older copy."""
    write(tmp_path, [50] * 4)
    end, _ = read_all(tmp_path)
    left = blocks(last(tmp_path))[2][1]
    cut(last(tmp_path), left)
    assert read_all(tmp_path, end) == (end, [])
    durable_at(tmp_path, left)
    with pytest.raises(SpoolError, match="are missing"):
        reader(tmp_path).latestOffset(end, data_source.ReadAllAvailable())
    assert read_all(tmp_path, end, skipDamaged="true") == (end, [])


def test_an_end_that_is_lost_after_a_clock_was_set_back(tmp_path):
    writer = append(SpoolWriter(tmp_path), [50] * 2, at=1000)
    append(writer, [50]).close()  # was read last, with an earlier time
    (key, at), = reader(tmp_path).initialOffset().items()
    end = {key: data_source.advance(tmp_path, at, spool.durable(tmp_path), 1)[0]}
    left = blocks(last(tmp_path))[0][0]
    cut(last(tmp_path), left)
    durable_at(tmp_path, left)
    with pytest.raises(SpoolError, match="are missing"):
        reader(tmp_path).latestOffset(end, data_source.ReadAllAvailable())


def test_offsets_of_older_programs_are_taken_as_they_are(restored):
    folder, end = restored
    write(folder, [50] * 9, at=100)
    (key, at), = end.items()
    old = {key: at[:2]}
    new, found = read_all(folder, old)
    assert len(found) == 5 and len(new[key]) == 5
    longer = {key: [*new[key], "start"]}
    write(folder, [50], at=200)
    newer, found = read_all(folder, longer)
    assert len(found) == 1 and len(newer[key]) == 5


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_two_histories(tmp_path_factory, data):
    """A reader is told if, and only if, something else was written where it has been. No clock
    decides. Only a spool that has what was read last is released."""
    folder = tmp_path_factory.mktemp("spool")
    sizes = st.lists(st.integers(1, 60), max_size=8)
    times, segment = st.integers(-500, 500), st.sampled_from([100, 250, 1 << 20])
    first = SpoolWriter(folder / "a", segment_bytes=data.draw(segment))
    append(first, data.draw(sizes), data.draw(times))
    forked, one_start = first.position, data.draw(st.booleans())
    shutil.copytree(folder / "a", folder / "b")
    if one_start:
        append(first, data.draw(sizes), data.draw(times))
    first.close()
    if not one_start:
        write(folder / "a", data.draw(sizes), data.draw(times), data.draw(segment))
    (key, begin), = reader(folder / "a").initialOffset().items()
    rows = data.draw(st.integers(0, 20))
    at, taken = data_source.advance(folder / "a", begin, spool.durable(folder / "a"), rows)
    assert at[:2] > at[2:3] if taken else len(at) == 2
    offsets.check(folder / "a", at)
    # Not at the same microseconds: a block that is the same in all is the same.
    write(folder / "b", more := data.draw(sizes), data.draw(times) + 0.5, data.draw(segment))
    ends = spool.durable(folder / "b")
    if len(at) == 5 and at[2] >= forked and more and ends > at[2]:
        with pytest.raises(SpoolError, match="An older copy"):
            offsets.check(folder / "b", at)
    else:
        offsets.check(folder / "b", at)
    assert offsets.stands(folder / "b", at) == (len(at) < 5 or at[2] < forked)


def test_a_spool_and_its_copy_are_not_read_as_two(tmp_path):
    write(tmp_path / "a", [50])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    both = f"{tmp_path}/a,{tmp_path}/b"
    with pytest.raises(SpoolError, match=f"{tmp_path}/a and {tmp_path}/b are copies of one spool"):
        batch(both)
    with pytest.raises(SpoolError, match="copies of one spool"):
        reader(both).initialOffset()


# -- the whole way --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [10, 30])
def test_ingest_says_what_to_do_and_then_all_is_there_once(spark, tmp_path, count):
    """In blocks of one size, fewer and more of them than the copy lacks."""
    folder, copy, root = (tmp_path / name for name in ("spool", "copy", "tables"))
    fill(folder, packs(101, 111), per_block=1)
    shutil.copytree(folder, copy)
    fill(folder, packs(111, 131), NOON + 60 * SECOND, per_block=1)
    ingest(spark, folder, root)
    shutil.rmtree(folder)
    copy.rename(folder)
    fill(folder, packs(131, 131 + count), NOON + 600 * SECOND, per_block=1)
    before = table(root, "silver")
    for skip in (False, True):
        run = Runner(spark, str(folder), str(root), once=True, patience=1, skip_damaged=skip).run
        if skip and count < 20:
            run()  # it waits, and says for what, until the spool is longer
            continue
        with pytest.raises(Exception, match="[Aa]n older copy .*_checkpoint of the tables"):
            run()
    assert table(root, "silver") == before
    shutil.rmtree(root / "_checkpoint")
    ingest(spark, folder, root)
    assert numbers(root) == list(range(101, 131 + count))
    assert numbers(root, "duplicates") == []


def test_what_is_said_of_it_is_in_the_page():
    page = Path(umqtt_pipeline.__file__).with_name("RECOVERY.md").read_text()
    told = "An older copy of the spool was put back"
    rows = [line for line in page.splitlines() if told in line]
    assert len(rows) == 1 and '"ends at", and "was read up to"' in rows[0], rows
    assert "`TABLES/_checkpoint`" in rows[0]
