"""Large messages: a batch is bounded in bytes, and what is too large for a row is kept beside the
tables."""

import datetime
import shutil
import zlib

import pytest
from pipeline_kit import QUICK, fill, publish, run, senml
from pipeline_tables import arrow, ingest, numbers, table
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.ingest.ledger import Ledger, finished, state_files
from umqtt_pipeline.source import rows
from umqtt_pipeline.tables import large as beside
from umqtt_pipeline.tables import maintenance, verifying
from umqtt_pipeline.tables.schema import ALL
from umqtt_pipeline.tables.store import Tables

MIB = 1 << 20


def large(mib, first=b"["):
    return first + bytes(mib * MIB)


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Tables of a spool with two payloads that are too large for a row, and one that is just
    not."""
    root = tmp_path_factory.mktemp("large")
    sent = [senml(1), large(9), senml(2), bytes(8 * MIB), large(12, b"{"), senml(1)]
    fill(root / "spool", [publish(payload) for payload in sent], per_block=4)
    ingest(spark, root / "spool", root / "tables")
    return root / "tables"


def test_a_payload_too_large_for_a_row_is_in_quarantine_by_reference(made):
    assert numbers(made) == [1, 2] and numbers(made, "duplicates") == [1]
    first, exact, second = (row for row in table(made, "bronze") if row["payload"] is None
                            or len(row["payload"]) > MIB)  # fmt: skip
    assert len(exact["payload"]) == rows.LARGE
    kept = {path.name: path.read_bytes() for path in (made / "_large").iterdir()}
    for row, payload in ((first, large(9)), (second, large(12, b"{"))):
        assert row["payload"] is None
        name = f"{row['spool']}-{row['offset']}-{zlib.crc32(payload):08x}.bin"
        assert kept[name] == payload
    wrong = [row["reason"] for row in table(made, "quarantine")]
    assert sum("SPOOL-OFFSET-CRC.bin" in reason for reason in wrong) == len(kept) == 2
    assert len(table(made, "bronze")) == 6


def test_it_stays_there_over_a_replay_and_is_shown(spark, made):
    before = table(made, "quarantine")
    assert replay.run(spark, made)["quarantine"] == len(before)
    assert table(made, "quarantine") == before
    for form in ((), ("--json",)):
        done = run("quarantine", "--tables", made, *form)
        assert done.returncode == 0 and "too large for a row" in done.stdout, done.stderr


def wrong(root):
    found = verifying.verify(root, lambda: state_files(root), lambda told: finished(root, told))
    return found.wrong


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[MIB] ^= 4
    path.write_bytes(raw)


@pytest.mark.parametrize("damage,said", [
    (flip, "not those that were written"),
    (lambda path: path.unlink(), "it is gone, and bronze and quarantine refer to it: "),
    (lambda path: shutil.rmtree(path.parent), "it is gone, and bronze and quarantine refer")])
def test_verify_looks_at_what_rows_refer_to(made, tmp_path, damage, said):
    root = tmp_path / "tables"
    shutil.copytree(made, root)
    assert wrong(root) == []
    first, second = sorted((root / "_large").iterdir())
    damage(first)
    found = wrong(root)
    assert len(found) == 1 + (not second.exists())
    for line, path in zip(found, (first, second)):
        assert line.startswith(str(path).rpartition("-")[0]) and said in line
        assert f"delete {root}/_checkpoint and start ingest" in line


def test_clean_removes_what_no_row_refers_to(made, tmp_path):
    """Not while one of the two tables, or an earlier version that can be read, has such a row."""
    root = tmp_path / "tables"
    shutil.copytree(made, root)
    held = Tables(root, ALL)
    kept = sorted((root / "_large").iterdir())
    left = kept[0].name.rpartition("-")[0]
    for name in (f"{left}1-00000000.bin", f".{left}-00000000.bin.77"):
        (root / "_large" / name).write_bytes(b"of a batch that was killed")
    (root / "_large" / "notes.txt").write_text("somebody else's")
    kept.append(root / "_large" / "notes.txt")
    assert beside.vacuum(held.storage, dry_run=True) == 2
    assert beside.vacuum(held.storage) == 2 and sorted((root / "_large").iterdir()) == kept
    later = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=400)
    for name, gone in (("bronze", 0), ("quarantine", 2)):
        maintenance.expire(held, Ledger(held), {name: 9}, later)
        assert beside.vacuum(held.storage) == 0  # an earlier version has them
        maintenance.vacuum(held, 0)
        assert beside.vacuum(held.storage) == gone
    assert [path.name for path in (root / "_large").iterdir()] == ["notes.txt"]
    assert wrong(root) == []


def test_ingest_without_its_checkpoint_writes_them_again(spark, made):
    """As long as the spool has their packets."""
    whole = {path.name: path.read_bytes() for path in (made / "_large").iterdir()}
    shutil.rmtree(made / "_large")
    shutil.rmtree(made / "_checkpoint")
    assert len(wrong(made)) == 2
    ingest(spark, made.parent / "spool", made)
    assert {path.name: path.read_bytes() for path in (made / "_large").iterdir()} == whole
    assert wrong(made) == [] and len(table(made, "bronze")) == 6


def test_many_large_messages_fit_into_little_memory(tmp_path):
    """40 of 7 MiB, in a JVM of 640 MB: in one batch they would be 280 MiB."""
    for n in range(20):
        fill(tmp_path / "spool", [publish(large(7, b"x")), publish(large(7, b"[")),
                                  publish(senml(n + 1))])  # fmt: skip
    done = run("ingest", "--once", "--spool", tmp_path / "spool", "--tables", tmp_path / "t",
               "--memory", "640m", *QUICK, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert numbers(tmp_path / "t") == list(range(1, 21))
    assert arrow(tmp_path / "t", "quarantine").num_rows == 40
    assert done.stderr.count("messages: ") > 2
