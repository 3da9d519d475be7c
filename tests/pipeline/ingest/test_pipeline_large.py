"""Large messages: a batch is bounded in bytes, and what is too large for a row is kept beside the
tables."""

import pytest
from pipeline_kit import QUICK, fill, publish, run, senml
from pipeline_tables import arrow, ingest, numbers, table
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.source import rows

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
        assert kept[f"{row['spool']}-{row['offset']}.bin"] == payload
    wrong = [row["reason"] for row in table(made, "quarantine")]
    assert sum("SPOOL-OFFSET.bin" in reason for reason in wrong) == len(kept) == 2
    assert len(table(made, "bronze")) == 6


def test_it_stays_there_over_a_replay_and_is_shown(spark, made):
    before = table(made, "quarantine")
    assert replay.run(spark, made)["quarantine"] == len(before)
    assert table(made, "quarantine") == before
    for form in ((), ("--json",)):
        done = run("quarantine", "--tables", made, *form)
        assert done.returncode == 0 and "too large for a row" in done.stdout, done.stderr


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
