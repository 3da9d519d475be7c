"""What a wrong input to a command ends in: a sentence that says what and where, and status 2."""

import click
import pytest
from pipeline_kit import fill, publish, run, senml
from umqtt_pipeline import cli


@pytest.mark.parametrize("command,words", [
    (("ingest", "--spool", "a-file", "--tables", "t", "--once"), "a-file is not a spool"),
    (("ingest", "--spool", "spool", "--tables", "/proc/none/t", "--once"), "/proc/none"),
    (("ingest", "--spool", "spool", "--tables", "t", "--memory", "lots"), "such as 512m"),
    (("bridge", "--broker", "h:1", "--spool", "s", "--metrics", "none/x"), "none/x: its folder"),
    (("compact", "--tables", "empty"), "empty has no tables: run"),
    (("replay", "--tables", "empty"), "empty has no tables: run"),
    (("report", "--tables", "gold", "--out", "/proc/none/r.html"), "/proc/none"),
])  # fmt: skip
def test_what_and_where(tmp_path, monkeypatch, command, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-file").write_text("x")
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "spool", [publish(senml(1))])
    if "gold" in command:
        _gold(tmp_path / "gold")
    done = run(*command, timeout=60)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "empty").iterdir())  # nothing is begun in a folder named wrongly


def _gold(root):
    """The least that a report can be made of: a gold_device without rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from umqtt_pipeline import gold
    from umqtt_pipeline.tables import arrow_type

    (root / "gold_device").mkdir(parents=True)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in gold.DEVICES.items()])
    pq.write_table(schema.empty_table(), root / "gold_device" / "x.parquet")


@pytest.mark.parametrize("text,status,words", [
    ("[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find ...", 2,
     "--conf spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"),
    ("[STREAM_FAILED] Query ended\nTraceback ...\numqtt_pipeline.spool.SpoolError: t: a replay "
     "was interrupted\n\tat org.x", 1, "given up: t: a replay was interrupted"),
    ("[STREAM_FAILED] Query ended\njava.io.IOException: No space left on device\n\tat x", 1,
     "given up: java.io.IOException: No space left on device"),
    ("[OTHER] Something else\nmore", 1, "given up: [OTHER] Something else"),
])  # fmt: skip
def test_why_an_ingest_was_given_up(text, status, words):
    told = cli._failed(ValueError(text), "4.3.0")
    assert isinstance(told, click.ClickException) and told.exit_code == status
    assert words in told.message and "\n" not in told.message
