"""The file of the marks: what a save costs, and what a kill or a full disk leaves of it."""

import errno
import os
import random

import pytest
from pipeline_kit import EPOCH, NOON, senml
from umqtt_pipeline import wire
from umqtt_pipeline.bridge import mark_file
from umqtt_pipeline.bridge.mark_file import MarkFile
from umqtt_pipeline.bridge.marks import Marks


def feed(marks, device, sequence, epoch=EPOCH, low=1):
    name = b"fleet/g/%s/telemetry" % device
    payload = senml(sequence, device=device.decode(errors="replace"), epoch=epoch, low=low)
    marks.feed(wire.publish_packet(name, payload, 1, False, 7), now=NOON + sequence)


def said(marks):
    return {key: (m.upto, list(m.starts), list(m.ends), m.at, m.number)
            for key, m in marks.marks.items()}  # fmt: skip


def test_damage_is_told_from_what_a_kill_leaves(tmp_path):
    """Each flipped bit of a record with another one behind it, and of the first one; a last record
    that is cut anywhere is none."""
    marks, ends = Marks(), []
    file = MarkFile(tmp_path)
    for number in (1, 2, 3):
        feed(marks, b"dev%d" % number, number)
        file.save(marks, number, {})
        ends.append((tmp_path / "marks").stat().st_size)
    raw = (tmp_path / "marks").read_bytes()
    assert not mark_file.is_damaged(raw)
    for at in range(ends[1]):
        flipped = raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        assert mark_file.is_damaged(flipped), at
    for end in range(ends[0], len(raw)):
        assert not mark_file.is_damaged(raw[:end]), end
    assert mark_file.is_damaged(raw[: ends[0] - 1]) and mark_file.is_damaged(b"")


def loaded(folder):
    """(what the marks say, position, peers) by the file, as a bridge that starts reads it."""
    marks = Marks()
    position, peers = MarkFile(folder).load(marks)
    assert not marks.changed and marks.named == len(marks.marks)
    return said(marks), position, peers


def some(choose, marks):
    """A few readings of a few devices, in and out of order."""
    for _ in range(choose.randint(0, 6)):
        device = choose.choice([b"dev1", b"d\xff\xfe", b"x", b"dev%d" % choose.randint(1, 30)])
        epoch = choose.choice([EPOCH, bytes(8)])
        feed(marks, device, choose.randint(1, 40), epoch)


@pytest.fixture
def small(monkeypatch):
    """All marks are written anew as soon as the changes are as long."""
    monkeypatch.setattr(mark_file, "LEAST", 0)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_saved_is_loaded_whoever_has_saved_it(seed, tmp_path, small):
    """Bridges that take over from each other, in the middle of anything."""
    choose, marks, file = random.Random(seed), Marks(), MarkFile(tmp_path)
    before, added = 0, 0
    for position in range(1, 60):
        some(choose, marks)
        file.save(marks, position, {"a": position // 2})
        assert loaded(tmp_path) == (said(marks), position, {"a": position // 2})
        size = file.path.stat().st_size
        added += size > before
        before = size
        assert size <= 2 * file.whole
        if choose.random() < 0.2:
            marks, file = Marks(), MarkFile(tmp_path)
            file.load(marks)
    assert 20 < added < 58  # some saves have written all anew, most have added


def test_a_save_costs_what_has_changed(tmp_path):
    marks, file = Marks(), MarkFile(tmp_path)
    for n in range(2000):
        feed(marks, b"dev%d" % n, 1)
    file.save(marks, 1, {})
    whole = file.path.stat().st_size
    for n in range(20):
        feed(marks, b"dev%d" % n, 2)
    file.save(marks, 2, {})
    assert file.path.stat().st_size - whole < whole / 50
    assert loaded(tmp_path)[:2] == (said(marks), 2)


def test_cut_off_anywhere_it_is_as_before_the_save(tmp_path, small):
    """SIGKILL while a save writes: the next bridge finds the one before, and goes on from it."""
    choose, marks, file = random.Random(1), Marks(), MarkFile(tmp_path)
    for n in range(1, 20):
        feed(marks, b"dev%d" % n, 1)
    file.save(marks, 1, {})
    whole, old = file.path.read_bytes(), said(marks)
    some(choose, marks)
    feed(marks, b"dev1", 9)
    file.save(marks, 2, {"b": 7})
    raw = file.path.read_bytes()
    assert raw.startswith(whole) and len(raw) > len(whole)
    for size in range(len(whole), len(raw)):
        file.path.write_bytes(raw[:size])
        assert loaded(tmp_path) == (old, 1, {})
        again, next_file = Marks(), MarkFile(tmp_path)
        next_file.load(again)
        feed(again, b"dev2", 2)
        next_file.save(again, 3, {})
        assert loaded(tmp_path) == (said(again), 3, {})
        now = file.path.read_bytes()
        assert [end for end, _ in mark_file.records(now)][-1] == len(now), "what was left behind"


@pytest.mark.parametrize("call", ["fsync", "write", "replace"])
def test_a_full_disk_leaves_what_was_saved_and_the_next_save_has_all(
    call, tmp_path, monkeypatch, small
):
    marks, file = Marks(), MarkFile(tmp_path)
    for n in range(1, 20):
        feed(marks, b"dev%d" % n, 1)
    file.save(marks, 1, {})
    old = said(marks)
    feed(marks, b"dev1", 2)
    if call == "replace":
        file = MarkFile(tmp_path)  # has to write all anew

    def full(*_):
        if call == "write":
            with open(file.path, "ab") as out:
                out.write(b"umk2 and no more")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace" if call == "replace" else "fsync", full)
        with pytest.raises(OSError):
            file.save(marks, 2, {})
    if call != "fsync":  # where all is written but surely on the disk, either may be found
        assert loaded(tmp_path)[:2] in ((old, 1), (said(marks), 2))
    feed(marks, b"dev3", 2)
    file.save(marks, 3, {})
    assert loaded(tmp_path) == (said(marks), 3, {})


def test_a_file_that_is_gone_is_written_anew(tmp_path):
    marks, file = Marks(), MarkFile(tmp_path)
    feed(marks, b"dev1", 1)
    file.save(marks, 1, {})
    file.path.unlink()
    feed(marks, b"dev2", 1)
    file.save(marks, 2, {})
    assert loaded(tmp_path) == (said(marks), 2, {})


def test_flipped_bits_are_noticed_and_nothing_behind_them_counts(tmp_path):
    marks, file = Marks(), MarkFile(tmp_path)
    feed(marks, b"dev1", 1)
    file.save(marks, 1, {})
    whole, old = file.path.stat().st_size, said(marks)
    for position in (2, 3):
        feed(marks, b"dev1", position)
        file.save(marks, position, {})
    raw = file.path.read_bytes()
    second = list(mark_file.records(raw))[1][0]
    for at in range(second):
        odd = raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        file.path.write_bytes(odd)
        if at < whole:
            with pytest.raises(ValueError):
                loaded(tmp_path)
            assert mark_file.newest(odd) is None
        else:
            assert loaded(tmp_path) == (old, 1, {}) and mark_file.newest(odd)["position"] == 1
