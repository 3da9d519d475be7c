"""A checkpoint that was begun and has no batch yet: the query starts on it; any other is left
alone."""

import pytest
from pipeline_kit import fill, publish, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline.ingest import checkpoint

TORN = ".0.6643a9e6-b146-474c-8e76-d28b6a619c53.tmp"


def test_killed_while_spark_wrote_the_offsets_of_batch_0(spark, tmp_path):
    """What SIGKILL leaves in that moment, in both logs, with and without Hadoop's check value."""
    fill(tmp_path / "spool", [publish(senml(n)) for n in (1, 2, 3)])
    for name in checkpoint.LOGS:
        part = tmp_path / "tables" / "_checkpoint" / name
        part.mkdir(parents=True)
        for file in (TORN, f".{TORN}.crc"):
            (part / file).write_bytes(b"")
    ingest(spark, tmp_path / "spool", tmp_path / "tables")
    assert numbers(tmp_path / "tables") == [1, 2, 3]
    assert not list((tmp_path / "tables" / "_checkpoint").rglob("*.tmp*"))


@pytest.mark.parametrize("planned", ["offsets/0", "offsets/7", "commits/0"])
def test_a_checkpoint_with_a_batch_is_left_as_it_is(tmp_path, planned):
    for name in checkpoint.LOGS:
        (tmp_path / name).mkdir()
    (tmp_path / planned).write_bytes(b"")
    (tmp_path / "offsets" / TORN).write_bytes(b"v1")
    assert checkpoint.tidy(tmp_path) == 0
    assert (tmp_path / "offsets" / TORN).read_bytes() == b"v1"


@pytest.mark.parametrize("name", ["notes.txt", ".0.crc", TORN[1:], ".x" + TORN[2:], TORN + "x"])
def test_only_temporary_files_of_sparks_own_form_go(tmp_path, name):
    (tmp_path / "offsets").mkdir()
    for file in (name, TORN):
        (tmp_path / "offsets" / file).write_bytes(b"")
    assert checkpoint.tidy(tmp_path) == 1
    assert [file.name for file in (tmp_path / "offsets").iterdir()] == [name]


def test_no_checkpoint_is_nothing_to_tidy(tmp_path):
    assert checkpoint.tidy(tmp_path / "none") == 0 and not list(tmp_path.iterdir())
