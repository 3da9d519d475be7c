"""Names of the folders that a user has chosen: whatever they are, ingest, replay and gold work in
them, and Spark takes none for a pattern. (The audit's: test_audit_run.py.)"""

import pytest
from pipeline_kit import fill, publish, senml
from pipeline_tables import ingest, numbers
from umqtt_pipeline.gold import build
from umqtt_pipeline.ingest import replay
from umqtt_pipeline.tables.store import Tables

NAMES = ["[x]", "{a,b}", "a\\b", "a[b", "a:b*", "%41\n"]


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_of_spark_finds_what_was_written(spark, tmp_path, name):
    """And not what the name would be as a pattern."""
    for other in ("x", "a", "b", "aXb", "ab", "A"):
        (tmp_path / other).mkdir()
    tables = Tables(tmp_path / name, {"t": {"x": "bigint", "date": "string"}})
    tables.replace(spark.createDataFrame([(1, "a")], "x bigint, date string"), "t", "date")
    assert [tuple(row) for row in tables.read(spark, "t").collect()] == [(1, "a")]


def test_tables_in_a_folder_that_looks_like_a_pattern(spark, tmp_path):
    """All that may be special, in one name."""
    root, spool = tmp_path / '[x] {a,b}*?\\#:"%41\u00fc', tmp_path / "s [x] {*?\\#:%41"
    fill(spool, [publish(senml(1)), publish(b"junk")])
    ingest(spark, spool, root)
    assert numbers(root) == [1]
    assert replay.run(spark, root)["quarantine"] == 1
    assert build.build(spark, root)["gold_device"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([root.name, spool.name])
