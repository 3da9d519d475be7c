"""The spool: what was durable stays, what was torn goes, at whatever byte it was cut."""

import errno
import os
import shutil
from contextlib import ExitStack

import pytest
from damage_kit import durable_at
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.reader import BLOCK, HEADER, SpoolError, walk
from umqtt_pipeline.spool.writer import SpoolFull, SpoolWriter


def bodies(folder):
    return [body for _, body in walk(folder, 0, reader.durable(folder))]


def write(folder, *texts, **options):
    writer = SpoolWriter(folder, **options)
    for text in texts:
        writer.append(text, 1, 1_000_000)
    writer.close()
    return writer


def cut(source, target, keep, mark):
    """A copy of a one-segment spool with its file cut to `keep` bytes and durable at `mark`."""
    target.mkdir()
    for name in ("spool.json", "deleted"):
        (target / name).write_bytes((source / name).read_bytes())
    name = reader.segments(source)[0].path.name
    (target / name).write_bytes((source / name).read_bytes()[:keep])
    if mark is not None:
        durable_at(target, mark)


def test_a_tail_cut_at_any_byte_loses_only_the_torn_block(tmp_path):
    source = tmp_path / "source"
    texts = [b"first", b"second one", b"third"]
    write(source, *texts)
    size = reader.segments(source)[0].size()
    ends = [HEADER.size]
    for text in texts:
        ends.append(ends[-1] + BLOCK.size + len(text))
    assert ends[-1] == size
    for keep in range(size + 1):
        folder = tmp_path / f"cut{keep}"
        cut(source, folder, keep, HEADER.size if keep >= HEADER.size else None)
        writer = SpoolWriter(folder)
        whole = sum(end <= keep for end in ends[1:])
        assert bodies(folder) == texts[:whole], keep
        writer.append(b"after", 1, 2)
        assert bodies(folder) == [*texts[:whole], b"after"], keep
        writer.close()
        torn = keep not in ends and keep > HEADER.size
        assert bool(writer.notes) == (torn or whole > 1), keep  # more than a kill leaves


def test_every_flipped_byte_of_the_tail_is_noticed(tmp_path):
    source = tmp_path / "source"
    write(source, b"first", b"second")
    path = reader.segments(source)[0].path
    raw = path.read_bytes()
    begin = len(raw) - BLOCK.size - len(b"second")
    for at in range(begin, len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        durable_at(source, begin)
        SpoolWriter(source).close()
        assert bodies(source) == [b"first"], at
        path.write_bytes(raw)


def test_zeros_behind_the_last_block_are_torn(tmp_path):
    write(tmp_path, b"first")
    with open(reader.segments(tmp_path)[0].path, "ab") as file:
        file.write(bytes(500))
    SpoolWriter(tmp_path).close()
    assert bodies(tmp_path) == [b"first"]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_power_cut_at_any_byte_of_a_write_of_durable(tmp_path, monkeypatch, nth):
    """The nth after a start, and then the first one of the next start: each leaves the one before,
    and the spool opens by itself."""
    write(tmp_path / "source", b"one")
    real, left = os.pwrite, []

    def pwrite(handle, data, at):
        left[0] -= 1
        if left[0]:
            return real(handle, data, at)
        real(handle, data[:keep], at)
        raise InterruptedError("power cut")

    for keep in range(reader.DURABLE.size + 1):
        folder = tmp_path / f"cut{keep}"
        shutil.copytree(tmp_path / "source", folder)
        for count in (nth, 1):
            left[:] = [count]
            with monkeypatch.context() as patch, ExitStack() as stack:
                patch.setattr(os, "pwrite", pwrite)
                stack.enter_context(pytest.raises(InterruptedError))
                writer = SpoolWriter(folder)
                stack.callback(writer.close)
                for _ in range(2):
                    writer.append(b"more", 1, 1)
        assert reader.durable_mark(folder) is not None, keep
        SpoolWriter(folder).close()
        assert bodies(folder) == [b"one", *[b"more"] * (nth - 1)], keep


def test_a_reader_does_not_see_what_is_not_fsynced(tmp_path, monkeypatch):
    writer = SpoolWriter(tmp_path)
    writer.append(b"first", 1, 1)
    seen = []
    monkeypatch.setattr(writer, "_sync_file", lambda: seen.append(bodies(tmp_path)))
    writer.append(b"second", 1, 2)
    assert seen == [[b"first"]]
    assert bodies(tmp_path) == [b"first", b"second"]
    writer.close()


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_full_disk_keeps_nothing_of_the_block(tmp_path, monkeypatch, where):
    writer = SpoolWriter(tmp_path)
    writer.append(b"first", 1, 1)
    real = os.write

    def half(handle, data):
        real(handle, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    def fail():
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if where == "write":
            patch.setattr(os, "write", half)
        else:
            patch.setattr(writer, "_sync_file", fail)
        with pytest.raises(SpoolFull):
            writer.append(b"second", 1, 2)
    writer.append(b"third", 1, 3)
    assert bodies(tmp_path) == [b"first", b"third"]
    writer.close()
    SpoolWriter(tmp_path).close()
    assert bodies(tmp_path) == [b"first", b"third"]


def test_a_disk_error_is_not_taken_for_a_full_disk(tmp_path, monkeypatch):
    writer = SpoolWriter(tmp_path)

    def fail():
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(writer, "_sync_file", fail)
    with pytest.raises(SpoolError, match="Input/output error"):
        writer.append(b"first", 1, 1)
    assert reader.durable(tmp_path) == HEADER.size


def test_size_limit(tmp_path):
    writer = SpoolWriter(tmp_path, max_bytes=400)
    for k in range(3):
        writer.append(bytes(100), 1, k)
    with pytest.raises(SpoolFull, match="400"):
        writer.append(bytes(100), 1, 3)
    # However full, what was read can be deleted: the last segment is a small part of the limit.
    consumers.register(tmp_path, "a", writer.position)
    assert writer.trim(writer.position) > 0
    writer.append(bytes(100), 1, 3)
    writer.close()


def test_segments_are_deleted_only_when_every_reader_is_done(tmp_path):
    writer = SpoolWriter(tmp_path, segment_bytes=100)
    for k in range(6):
        writer.append(bytes([k]) * 100, 1, k)
    assert writer.segments == 6
    assert writer.trim(writer.position) == 0  # nobody reads: keep everything
    listed = reader.segments(tmp_path)
    consumers.register(tmp_path, "a", listed[4].base)
    consumers.register(tmp_path, "b", listed[2].base + 10)
    assert writer.trim(listed[1].base) == 1  # the marks' snapshot is the third party
    assert writer.trim(writer.position) == 1
    assert [s.base for s in reader.segments(tmp_path)] == [s.base for s in listed[2:]]
    consumers.register(tmp_path, "b", writer.position)
    consumers.register(tmp_path, "a", writer.position)
    assert writer.trim(writer.position) == 3  # the last one is being written
    assert writer.bytes == reader.segments(tmp_path)[0].size()
    writer.close()
    assert SpoolWriter(tmp_path).position == writer.position


def test_segments_follow_each_other_over_restarts(tmp_path):
    for k in range(5):
        write(tmp_path, b"%d" % k * 60, segment_bytes=100)
    assert bodies(tmp_path) == [b"%d" % k * 60 for k in range(5)]
    listed = reader.segments(tmp_path)
    for before, after in zip(listed, listed[1:]):
        assert before.base + before.size() == after.base


def test_a_segment_whose_header_was_torn_is_made_again(tmp_path):
    write(tmp_path, b"first" * 30, b"second", segment_bytes=100)
    last = reader.segments(tmp_path)[-1]
    for keep in range(HEADER.size):
        durable_at(tmp_path, last.base)
        last.path.write_bytes(b"UMQS\x01"[:keep].ljust(keep, b"\0"))
        writer = SpoolWriter(tmp_path, segment_bytes=100)
        writer.close()
        assert bodies(tmp_path) == [b"first" * 30]
        assert writer.position == last.base + HEADER.size


def test_two_writers_do_not_share_a_spool(tmp_path):
    writer = SpoolWriter(tmp_path)
    with pytest.raises(SpoolError, match="in use"):
        SpoolWriter(tmp_path)
    writer.close()
    SpoolWriter(tmp_path).close()


def test_another_format_is_refused(tmp_path):
    write(tmp_path, b"first")
    path = reader.segments(tmp_path)[0].path
    raw = bytearray(path.read_bytes())
    raw[4] = 2
    raw[24:28] = reader.zlib.crc32(raw[:24]).to_bytes(4, "little")
    path.write_bytes(raw)
    with pytest.raises(SpoolError, match="format 2"):
        SpoolWriter(tmp_path)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_names_never_become_paths(tmp_path, name):
    with pytest.raises(ValueError):
        consumers.register(tmp_path, name, 1)


@pytest.mark.parametrize("names", [("readings.csv",), ("src", "lost+found", "bridge.log")])
def test_a_folder_of_something_else_is_no_spool(tmp_path, names):
    for name in names:
        (tmp_path / name).mkdir()
    said = f"no spool, and not empty .there is {names[0]}.*empty folder"
    with pytest.raises(SpoolError, match=said):
        SpoolWriter(tmp_path)
    (tmp_path / names[0]).rmdir()
    write(tmp_path, b"one")  # the root of a file system, or a log, is as good as empty
    assert bodies(tmp_path) == [b"one"]
    (tmp_path / names[0]).mkdir()
    SpoolWriter(tmp_path).close()  # it is a spool now
