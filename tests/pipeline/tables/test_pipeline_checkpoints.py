"""Readers take the newest checkpoint of a log, and not the commits before it: what is wrong with
one is found, and what `verify` says to do mends it."""

import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from umqtt_pipeline.ingest.ledger import Ledger, finished, ready, state_files
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.tables import verifying
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Tables, written
from umqtt_pipeline.tables.table_look import TableLook

OLD, NEW = 2, 4  #: versions of silver that have a checkpoint
THERE = "All commits that readers need in its place are there"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables of five batches; the third replaces a file of silver. Silver and the intents have two
    checkpoints each."""
    root = tmp_path_factory.mktemp("made")
    ledger = Ledger(Tables(root, ALL))
    for number in range(5):
        files = {}
        for name, column in (("silver", "sequence"), ("batches", "batch")):
            rows = pa.table({column: [number]})
            files[name] = written(ledger.storage, name, number, "2026-01-01", rows)
        old = ledger.tables.files("silver")[:1] if number == 2 else []
        ledger.decide("batch", {"silver": ([files["silver"]], old),
                                "batches": ([files["batches"]], [])})
        ledger.finish()
    for log in ("silver", "_state/intents"):
        for version in (OLD, NEW):
            DeltaTable(str(root / log), version=version).create_checkpoint()
    assert wrong(root) == []
    return root


@pytest.fixture
def root(made, tmp_path):
    shutil.copytree(made, tmp_path / "tables")
    return tmp_path / "tables"


def wrong(root):
    return verifying.verify(root, lambda: state_files(root),
                            lambda told: finished(root, told)).wrong  # fmt: skip


def checkpoint(root, version=NEW, log="silver"):
    return root / log / "_delta_log" / f"{version:020d}.checkpoint.parquet"


def hint(root, log="silver"):
    return root / log / "_delta_log" / "_last_checkpoint"


def as_read(folder, path):
    """What two readers find: the table by deltalake, and all rows of a checkpoint without times;
    None in the place of what cannot be read."""
    try:
        held = DeltaTable(str(folder))
        files = pa.table(held.get_add_actions(flatten=True)).drop_columns(["modification_time"])
        table = (held.version(), files.to_pylist(), str(held.schema()), str(held.protocol()),
                 held.metadata().configuration, held.transaction_version("umqtt-ingest"))
    except BaseException:  # a panic of the library, too
        table = None
    try:
        rows = pq.read_table(path).to_pylist()
    except Exception:
        return table, None
    for row in rows:
        for told in row.values():
            for name in ("modificationTime", "deletionTimestamp", "createdTime"):
                (told or {}).pop(name, None)
    return table, rows


def test_a_flip_in_the_newest_checkpoint_that_readers_notice_is_told(root):
    choose, path, count = random.Random(5), checkpoint(root), 0
    raw, whole = path.read_bytes(), as_read(root / "silver", path)
    assert None not in whole
    for _ in range(60):
        at, bit = choose.randrange(len(raw)), choose.randrange(8)
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
        if as_read(root / "silver", path) != whole:
            count += 1
            found = verifying.Verified()  # of this table only: it is faster
            TableLook(found, Tables(root, {}), "silver", []).look()
            assert len(found.wrong) == 1, f"byte {at}, bit {bit}: {found.wrong}"
            (line,) = found.wrong  # and none on a file of which the checkpoint says what is wrong
            assert line.startswith(f"{path}: ") and line.isprintable()
            assert line.endswith(f"{THERE}: remove it and _last_checkpoint"), line
    assert count > 12


def test_a_damaged_file_beside_a_damaged_checkpoint_is_named_too(root):
    path, (data, *_) = checkpoint(root), sorted((root / "silver").glob("date=*/*.parquet"))[1:]
    data.write_bytes(data.read_bytes()[:-1])
    path.write_bytes(path.read_bytes()[:-90] + bytes(82) + path.read_bytes()[-8:])
    assert [line.partition(": ")[0] for line in wrong(root)] == [str(path), str(data)]


@pytest.mark.parametrize("left", [0, 4, -5])
@pytest.mark.parametrize("log", ["silver", "_state/intents"])
def test_a_checkpoint_that_a_power_cut_has_torn_is_put_aside(root, log, left):
    """delta-rs fsyncs it no more than a commit, and says at once in `_last_checkpoint` that it is
    there. left: how many bytes of it are, or are not."""
    path, whole = checkpoint(root, NEW, log), as_read(root / "silver", checkpoint(root))[0]
    path.write_bytes(path.read_bytes()[:left])
    assert wrong(root) != []
    ready(root)
    assert path.with_name(f"{path.name}.torn").exists() and not path.exists()
    assert wrong(root) == [] and as_read(root / "silver", path)[0] == whole
    assert Ledger(Tables(root, ALL)).last["number"] == 4


@pytest.mark.parametrize("log", ["silver", "_state/intents"])
def test_a_damaged_checkpoint_can_be_removed_while_the_commits_are_there(root, log):
    path = checkpoint(root, NEW, log)
    path.write_bytes(path.read_bytes()[:-90] + bytes(82) + path.read_bytes()[-8:])
    (line,) = wrong(root)
    assert line.startswith(f"{path}: it cannot be read (")
    assert line.endswith(f"{THERE}: remove it and _last_checkpoint")
    with pytest.raises((SpoolError, DeltaError), match=str(root / log)):
        ready(root)
    path.unlink()
    hint(root, log).unlink()
    assert wrong(root) == []
    ready(root)


def test_the_checkpoint_that_the_hint_names_is_gone(root):
    checkpoint(root).unlink()
    said = (f"{hint(root)}: the checkpoint of version {NEW}, which it names, is gone. All commits "
            "are there: remove this file, and readers take those")  # fmt: skip
    assert wrong(root) == [said]
    hint(root).unlink()
    assert wrong(root) == [] and len(DeltaTable(str(root / "silver")).file_uris()) == 4


@pytest.mark.parametrize("data", [
    b"{", b"[]", b'{"version": %d, "parts": 2}' % NEW, b'{"version": %d, "v2Checkpoint": {}}' % NEW
])  # fmt: skip
def test_a_hint_that_cannot_be_read(root, data):
    """Or names parts of a checkpoint that are not there, which only some readers look for."""
    hint(root).write_bytes(data)
    (line,) = wrong(root)
    assert line.startswith(f"{hint(root)}: it cannot be read (") and "remove it" in line
    assert "indices" not in line
    hint(root).unlink()
    assert wrong(root) == []


@pytest.mark.parametrize("change", ["cut", "other"])
def test_an_older_checkpoint_is_of_older_versions(root, change):
    """Those cannot be read until it is removed; the table as it is now can."""
    path, folder = checkpoint(root, OLD), str(root / "silver")
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(Exception, match="Parquet"):
            DeltaTable(folder, version=NEW - 1)
    else:
        rows = pq.read_table(path)
        pq.write_table(rows.filter(rows["txn"].is_valid()), path)
    (line,) = wrong(root)
    assert line.startswith(f"{path}: ") and line.endswith(
        "; the table is whole as it is now, but not as it was in its versions "
        f"{OLD} to {NEW - 1}. {THERE}: remove it")
    path.unlink()
    assert wrong(root) == [] and len(DeltaTable(folder, version=NEW - 1).file_uris()) == 2


def test_a_replaced_file_is_of_older_versions(root):
    """A reader of these trips over it, until `clean` removes it."""
    kept = {root / "silver" / file.path for file in Tables(root, {}).files("silver")}
    (path,) = set(root.glob("silver/date=*/*")) - kept
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert wrong(root) == [
        f"{path}: its bytes are not those that were written; the table is whole as it is now, but "
        "not as it was in its versions 1 to 2"]  # fmt: skip
    path.unlink()
    assert wrong(root) == []


def test_a_damaged_checkpoint_whose_commits_are_gone(root):
    """As Delta Lake removes them after a month: nothing else says what the checkpoint said."""
    for version in range(OLD):
        (root / "silver" / "_delta_log" / f"{version:020d}.json").unlink()
    assert wrong(root) == []
    checkpoint(root, OLD).write_bytes(b"x")
    (line,) = wrong(root)
    assert line.startswith(f"{checkpoint(root, OLD)}: it cannot be read (") and THERE not in line
    checkpoint(root).write_bytes(b"x")
    lines = wrong(root)
    assert any(line.startswith(f"{checkpoint(root)}: ") for line in lines)
    assert not any(THERE in line for line in lines)
