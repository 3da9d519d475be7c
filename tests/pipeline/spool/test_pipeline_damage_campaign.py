"""Random damage to random files of a spool that has readers, marks and deleted segments. Then a
bridge starts on it, and a batch and a stream read it: what is whole is read, damage is said, and
who refuses changes nothing. A failing round is repeated by its seed and number."""

import logging
import random
import shutil

import pytest
from damage_kit import batch, content, stream, verified
from pipeline_kit import NOON, publish, senml
from umqtt_pipeline.bridge.service import Bridge, Settings
from umqtt_pipeline.spool import consumers
from umqtt_pipeline.spool import files as spool_files
from umqtt_pipeline.spool import reader as spool
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.segment import SegmentReader
from umqtt_pipeline.spool.writer import SpoolWriter

PAYLOADS = [senml(n) for n in range(1, 41)]  #: two in a block, four blocks in a segment
DELETED = 8  #: of them, with the first segment
ROUNDS = 40


def make(folder):
    """A spool of five segments, the first of them deleted; one reader is at its end, one is
    behind. Returns {position of a block: (its bytes, its payloads)}."""
    writer = SpoolWriter(folder, segment_bytes=700)
    for at in range(0, len(PAYLOADS), 2):
        writer.append(b"".join(map(publish, PAYLOADS[at : at + 2])), 2, NOON)
    first, second, *_ = spool.segments(folder)
    consumers.register(folder, "done", writer.position, committed={writer.id: [second.base, 0]})
    consumers.register(folder, "behind", second.base)
    writer.trim(second.base)
    writer.close()
    started(folder)
    assert not first.path.exists() and (folder / "marks").exists()
    found, payloads = {}, iter(PAYLOADS[DELETED:])
    for segment in spool.segments(folder):
        raw = segment.path.read_bytes()
        with SegmentReader(segment) as reader:
            for block in reader.headers(segment.first, reader.end):
                bytes_ = raw[block.position - segment.base : block.end - segment.base]
                found[block.position] = bytes_, [next(payloads), next(payloads)]
    return found


def started(folder):
    """A bridge that starts, keeps house once, and ends."""
    bridge = Bridge(Settings(host="h", port=1, spool=str(folder), segment_bytes=700))
    bridge._house()
    bridge._finish()


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "spool"
    return folder, make(folder)


def flip(rng, path, raw):
    at = rng.randrange(len(raw))
    return raw[:at] + bytes((raw[at] ^ (1 << rng.randrange(8)),)) + raw[at + 1 :]


def cut(rng, path, raw):
    return raw[: rng.randrange(len(raw))]


def zero(rng, path, raw):
    at = rng.randrange(len(raw))
    count = rng.choice((8, 64, 4096))
    return (raw[:at] + bytes(min(count, len(raw) - at)) + raw[at + count :])[: len(raw)]


def extend(rng, path, raw):
    return raw + rng.choice((bytes(50), rng.randbytes(50), raw))


def damage(rng, folder):
    """Do something to one file; returns what, as text. A reader's file is not removed: that is
    how a reader is given up."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
    path = rng.choice(files)
    name = str(path.relative_to(folder))
    how = rng.choice((flip, flip, cut, zero, extend, "remove", "copy"))
    if how == "copy":
        other = rng.choice([rng.choice(files), folder / f"{rng.randrange(4000):020d}.seg"])
        if other != path:
            shutil.copy(path, other)
        return f"copy {name} to {other.name}"
    if how == "remove":
        if path.parent == folder:
            path.unlink()
        return f"remove {name}"
    raw = path.read_bytes()
    if raw:
        path.write_bytes(how(rng, path, raw))
    return f"{how.__name__} {name}"


def whole(folder, blocks, names):
    """Payloads of the blocks that still stand where they were."""
    found = []
    for position, (raw, payloads) in blocks.items():
        base = max(b for b in names if b < position)
        path = folder / f"{base:020d}.seg"
        if path.exists() and path.read_bytes()[position - base :].startswith(raw):
            found += payloads
    return found


def put_back(rng, folder, blocks):
    """An old `durable`, as of a backup; perhaps nothing else tells how far the spool has been."""
    position = rng.choice(list(blocks))
    check = spool.zlib.crc32(position.to_bytes(8, "little"))
    (folder / "durable").write_bytes(spool.DURABLE.pack(position, check))
    if rng.random() < 0.7:
        (folder / "marks").unlink()
        shutil.rmtree(folder / "consumers")
    return f"durable put back to {position}"


def check_read(folder, must, caplog, old, healed=False):
    """What readers do with it. old: `durable` was put back, and they may read the beginning, and
    say so; healed: a bridge has taken the rest in, and nobody knows of more that may be gone."""
    every = PAYLOADS[DELETED:]
    caplog.clear()
    spool_files.tell_once.cache_clear()
    for read in (batch, stream):
        try:
            found = read(folder)
        except SpoolError:
            continue
        some = found == must[: len(found)] if old and not healed else found == must
        assert found == every or some and (caplog.records or healed), "passed over"
    try:
        found = batch(folder, skipDamaged="true")
    except SpoolError as error:
        assert "spool.json" in str(error), error
        return
    assert stream(folder, skipDamaged="true") == found, "another in a stream"
    once = list(dict.fromkeys(found))  # a file that was extended by its own blocks has them twice
    assert once == [p for p in every if p in found], "another order, or a message that was none"
    assert not [p for p in must if p not in found], "whole, but not read"


def check_bridge(folder, must):
    """What a bridge does with it, and what it leaves; returns whether it starts. What it refuses
    is not whole for `verify`, either."""
    before = content(folder)
    try:
        started(folder)
    except SpoolError:
        assert content(folder) == before, "changed, and then refused"
        assert verified(folder)[0], "refused, and verify does not know of it"
        return False
    left = b"".join(content(folder).values())
    assert all(p in left for p in must), "destroyed"
    return True


@pytest.mark.parametrize("seed", range(5))
def test_random_damage(original, tmp_path, caplog, seed):
    source, blocks = original
    names = [s.base for s in spool.segments(source)]
    caplog.set_level(logging.WARNING)
    for number in range(ROUNDS):
        rng = random.Random(f"{seed}/{number}")
        folder = tmp_path / str(number)
        shutil.copytree(source, folder)
        old = rng.random() < 0.3
        done = [put_back(rng, folder, blocks)] if old else []
        done += [damage(rng, folder) for _ in range(rng.choice((1, 1, 2, 3)))]
        must = whole(folder, blocks, names)
        try:
            check_read(folder, must, caplog, old)
            healed = check_bridge(folder, must) and old
            check_read(folder, must, caplog, old, healed)
        except Exception as error:
            raise AssertionError(f"seed {seed}, round {number}: {', '.join(done)}: {error}")
        shutil.rmtree(folder)
