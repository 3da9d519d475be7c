"""A spool that was damaged: nothing that may have been acknowledged is destroyed, what is whole is
read all the same, and each command says what is wrong before it changes a byte."""

import shutil

import pytest
from pipeline_kit import NOON, fill, publish, senml
from umqtt_pipeline import consumers, source, spool, spool_files
from umqtt_pipeline.bridge import Bridge, Settings
from umqtt_pipeline.segment import BLOCK
from umqtt_pipeline.source import Options, SpoolReader, SpoolStreamReader
from umqtt_pipeline.spool_files import HEADER, SpoolError
from umqtt_pipeline.spool_writer import SpoolWriter

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
    spool_files.tell_once.cache_clear()


def bridge(folder):
    """A bridge on the spool, started and ended; what it has noted."""
    made = Bridge(Settings(host="h", port=1, spool=str(folder)))
    made._finish()
    return " ".join(made.spool.notes)


def content(folder):
    """What must not change when a command refuses."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder):
    """Why a bridge does not start; it has not changed a byte."""
    before = content(folder)
    with pytest.raises(SpoolError) as error:
        bridge(folder)
    assert content(folder) == before
    return str(error.value)


def batch(folder, **more):
    reader = SpoolReader(Options({"path": str(folder), **more}))
    return [row["payload"] for part in reader.partitions() for rows in reader.read(part)
            for row in rows.to_pylist()]  # fmt: skip


def stream(folder, rows=5, **more):
    """What a new stream reads, in batches of at most `rows`."""
    reader = SpoolStreamReader(Options({"path": str(folder), **more}))
    at, found = reader.initialOffset(), []
    for _ in range(100):
        end = reader.latestOffset(at, source.ReadMaxRows(rows))
        if end == at:
            return found
        found += [row["payload"] for part in reader.partitions(at, end)
                  for rows_ in reader.read(part) for row in rows_.to_pylist()]  # fmt: skip
        at = end
    raise AssertionError("no end")


def salvaged(folder):
    """What is read with skipDamaged, by a batch and by a stream: both the same."""
    found = batch(folder, skipDamaged="true")
    assert stream(folder, skipDamaged="true") == found
    return found


def blocks(path):
    """[(first byte, end)] of the blocks in a whole segment."""
    base = int(path.name[:20])
    segment = spool_files.Segment(base, path)
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


# -- what proves that more was acknowledged, before anything is cut -----------------------------


def by_marks(folder):
    Bridge(Settings(host="h", port=1, spool=str(folder)))._finish()


def by_a_reader(folder):
    consumers.register(folder, "r", spool.durable(folder))


def by_what_a_reader_has_committed(folder):
    end = spool.durable(folder)
    consumers.register(folder, "r", 0, committed={spool.spool_id(folder): [end, 0]})


@pytest.mark.parametrize("proven", [by_marks, by_a_reader, by_what_a_reader_has_committed])
@pytest.mark.parametrize("damage", [
    lambda path: flip(path, blocks(path)[-1][0] + 40),
    lambda path: cut(path, blocks(path)[-1][1] - 10),
    lambda path: cut(path, blocks(path)[1][0] + 10),
    lambda path: cut(path, HEADER.size),
    lambda path: path.unlink(),
])  # fmt: skip
def test_nothing_is_cut_that_was_acknowledged(folder, proven, damage):
    proven(folder)
    damage(last(folder))
    (folder / "durable").unlink()
    assert "begin another spool beside" in refused(folder)


@pytest.mark.parametrize("mark", ["lost", "old", "before the segment"])
@pytest.mark.parametrize("where", [0, 5, 40], ids=["its first byte", "its length", "its body"])
def test_whole_blocks_behind_a_bad_one_are_not_torn(folder, mark, where):
    """Nobody has read them, and no mark covers them: but they were fsynced, one by one."""
    path = last(folder)
    (_, first), (second, third), *_ = blocks(path)
    if mark == "lost":
        (folder / "durable").unlink()
    else:
        base = spool.segments(folder)[-1].base
        durable_at(folder, base + first if mark == "old" else base)
    flip(path, second + where)
    said = refused(folder)
    assert f"damaged from byte {second} to {third}" in said and str(path) in said


def test_a_torn_tail_is_kept_if_durable_is_lost(folder, caplog):
    """Nothing proves that it was acknowledged, and nothing that it was not."""
    path = last(folder)
    begin, end = blocks(path)[-1]
    torn = path.read_bytes()[begin : end - 10]
    (folder / "durable").unlink()
    cut(path, end - 10)
    assert f"cut off {len(torn)} bytes" in bridge(folder)
    kept, = folder.glob("*.torn")
    assert kept.read_bytes() == torn and kept.name in bridge(folder)  # said at each start
    assert batch(folder) == PAYLOADS[:-2]
    assert kept.name in caplog.text
    fill(folder, [publish(PAYLOADS[-1])])
    assert batch(folder) == [*PAYLOADS[:-2], PAYLOADS[-1]]


def test_two_torn_tails_at_one_place_are_both_kept(folder):
    path = last(folder)
    raw = path.read_bytes()
    for n in range(3):  # the last one is known already
        path.write_bytes(raw + b"UB"[: min(n, 1) + 1])
        (folder / "durable").unlink()
        bridge(folder)
    assert sorted(p.read_bytes() for p in folder.glob("*.torn")) == [b"U", b"UB"]


def test_a_torn_tail_behind_durable_was_not_acknowledged(folder):
    with open(last(folder), "ab") as file:
        file.write(BLOCK.pack(b"UB", 1, 0, 81, NOON, 1, 0) + bytes(80))
    assert "cut off 104 bytes of a torn block" in bridge(folder)
    assert not list(folder.glob("*.torn")) and batch(folder) == PAYLOADS


def test_a_bridge_that_cannot_make_its_marks_changes_nothing(folder):
    """The block that they need is damaged, and there is a torn tail that it would cut off."""
    flip(spool.segments(folder)[1].path, 300)
    with open(last(folder), "ab") as file:
        file.write(b"UB")
    assert "wrong check value" in refused(folder)


# -- segments that the bridge has not deleted --------------------------------------------------


def test_the_first_segment_removed_by_hand(folder):
    listed = spool.segments(folder)
    listed[0].path.unlink()
    where = f"positions 0 to {listed[1].base} are missing"
    assert where in refused(folder)
    for read in (batch, stream):
        with pytest.raises(SpoolError, match=where):
            read(folder)
    assert salvaged(folder) == PAYLOADS[8:]


def test_the_first_of_those_that_the_bridge_has_left(folder):
    """Another reader's release has deleted one segment; the next one was removed by hand."""
    listed = spool.segments(folder)
    consumers.register(folder, "r", listed[1].base)
    writer = SpoolWriter(folder)
    assert writer.trim(writer.position) == 1
    writer.close()
    (folder / "consumers" / "r.json").unlink()  # given up
    assert batch(folder) == stream(folder) == PAYLOADS[8:]  # a new reader begins behind it
    assert "deleted" not in bridge(folder)
    reader = SpoolStreamReader(Options({"path": str(folder)}))
    with pytest.raises(SpoolError, match="position 0 was deleted"):
        reader.partitions({reader_id(folder): [0, 0]}, {reader_id(folder): [listed[2].base, 0]})
    listed[1].path.unlink()
    with pytest.raises(SpoolError, match=f"{listed[1].base} to {listed[2].base} are missing"):
        batch(folder)
    assert "are missing" in refused(folder)


def reader_id(folder):
    return spool.spool_id(folder)


def test_killed_between_the_announcement_and_the_deletion(folder, monkeypatch):
    listed = spool.segments(folder)
    consumers.register(folder, "r", listed[2].base)
    writer = SpoolWriter(folder)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(listed[0].path), "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            writer.trim(writer.position)
    writer.close()
    assert batch(folder) == PAYLOADS  # all is still there
    listed[0].path.unlink()
    assert batch(folder) == PAYLOADS[8:]
    writer = SpoolWriter(folder)
    assert not writer.notes and writer.trim(writer.position) == 1
    writer.close()
    assert batch(folder) == PAYLOADS[16:]


def test_a_disk_that_has_no_room_for_the_announcement_loses_nothing(folder, monkeypatch):
    writer = SpoolWriter(folder)
    consumers.register(folder, "r", writer.position)

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("umqtt_pipeline.spool_writer.keep_deleted", full)
        assert writer.trim(writer.position) == 0
    assert len(spool.segments(folder)) == 3 and writer.trim(writer.position) == 2
    writer.close()


def test_a_spool_of_an_older_program_does_not_say_what_was_deleted(folder, caplog):
    """Then it was the bridge if every reader is done with it; with no reader, nothing ever was."""
    listed = spool.segments(folder)
    listed[0].path.unlink()
    (folder / "deleted").unlink()
    assert "are missing" in refused(folder)
    consumers.register(folder, "r", listed[1].base - 1)
    assert "are missing" in refused(folder)
    consumers.register(folder, "r", listed[1].base)
    assert batch(folder) == PAYLOADS[8:] and "deleted is missing" in caplog.text
    assert "deleted is missing" in bridge(folder)
    (folder / "consumers" / "r.json").unlink()
    assert batch(folder) == PAYLOADS[8:] and bridge(folder) == ""


# -- a way on, with all that is whole ----------------------------------------------------------


def test_a_hole_and_a_lost_durable(folder, caplog):
    """No bridge makes `durable` again; what is whole is read all the same."""
    path = spool.segments(folder)[1].path
    path.unlink()
    (folder / "durable").unlink()
    assert "are missing" in refused(folder)
    with pytest.raises(SpoolError, match="durable is missing"):
        batch(folder)
    assert salvaged(folder) == PAYLOADS[:8] + PAYLOADS[16:]
    assert "durable is missing" in caplog.text and "are missing" in caplog.text
    flip(last(folder), blocks(last(folder))[-1][0] + 40)
    assert salvaged(folder) == PAYLOADS[:8] + PAYLOADS[16:22]


@pytest.mark.parametrize("where", range(BLOCK.size + 5))
@pytest.mark.parametrize("number", [0, 2])
def test_only_the_damaged_block_is_left_out(folder, where, number, caplog):
    path = spool.segments(folder)[number].path
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
    path = spool.segments(folder)[1].path
    (begin, _), (_, end) = blocks(path)[1:3]
    change(path, begin + 30, bytes(end - begin - 40))
    assert salvaged(folder) == PAYLOADS[:10] + PAYLOADS[14:]


def test_files_in_one_anothers_place(folder):
    """Two segments exchanged, and a third copied to a position in the middle of another."""
    one, two, three = (s.path for s in spool.segments(folder))
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
    segment = spool.segments(folder)[-1]
    shutil.copy(folder / "spool.json", folder / f"{segment.base + 300 + behind:020d}.seg")
    assert salvaged(folder) == PAYLOADS
    (folder / "durable").unlink()
    assert refused(folder)
    assert salvaged(folder) == PAYLOADS


def test_a_segment_with_more_behind_its_end(folder):
    path = spool.segments(folder)[1].path
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
    monkeypatch.setattr("umqtt_pipeline.segment.EFFORT", 100)
    assert salvaged(folder) == PAYLOADS[:16] and "are damaged: left out" in caplog.text
    (folder / "durable").unlink()
    assert "than can be looked at" in refused(folder)


# -- the small files ---------------------------------------------------------------------------


def test_spool_json_is_written_again_with_the_same_id(folder, caplog):
    path = folder / "spool.json"
    name = spool.spool_id(folder)
    path.unlink()
    assert batch(folder) == PAYLOADS and "spool.json is missing" in caplog.text
    assert "spool.json was missing" in bridge(folder)
    assert spool.spool_id(folder) == name and path.exists() and bridge(folder) == ""


def test_a_spool_whose_id_nobody_knows(folder):
    """With a new one each reader would begin anew, and ask for what is deleted."""
    (folder / "spool.json").unlink()
    (folder / "deleted").unlink()
    said = refused(folder)
    assert "spool.json is missing, though there are segments" in said
    with pytest.raises(SpoolError, match="spool.json is missing, though"):
        batch(folder)
    (folder / "spool.json").write_text('{"version": 1, "id": "00112233445566aa"}')  # as it says
    assert batch(folder) == PAYLOADS and bridge(folder) == ""


@pytest.mark.parametrize("where", range(40))
def test_a_flipped_byte_of_spool_json_makes_no_other_spool(folder, where):
    name = spool.spool_id(folder)
    flip(folder / "spool.json", where)
    try:
        assert spool.spool_id(folder) == name
    except SpoolError as error:
        assert "spool.json" in str(error) and "spool.json" in refused(folder)


def test_a_folder_that_was_never_finished_is_new(tmp_path):
    """Killed after each file of a new spool: no note, and the same folder serves."""
    SpoolWriter(tmp_path / "made").close()
    order = [f"{0:020d}.seg", "durable", "deleted", "spool.json"]
    for count in range(len(order)):
        folder = tmp_path / str(count)
        folder.mkdir()
        for name in order[:count]:
            shutil.copy(tmp_path / "made" / name, folder / name)
        writer = SpoolWriter(folder)
        writer.append(publish(PAYLOADS[0]), 1, NOON)
        writer.close()
        assert batch(folder) == PAYLOADS[:1] and count == 3 or not writer.notes


def test_everything_but_its_name_is_gone(folder):
    for path in (*(s.path for s in spool.segments(folder)), folder / "durable"):
        path.unlink()
    assert "no segments" in refused(folder)
    with pytest.raises(SpoolError, match="durable is missing"):
        batch(folder)


def test_a_flipped_digit_of_a_readers_position_deletes_nothing(folder):
    consumers.register(folder, "r", 10)
    path = folder / "consumers" / "r.json"
    path.write_text(path.read_text().replace("10", "90"))
    assert "r.json is damaged" in bridge(folder)
    assert consumers.positions(folder) == {"r": 0}
