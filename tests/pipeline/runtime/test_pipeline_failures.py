"""Spark fails, or its Java is gone: a sentence each, not the way through the JVM."""

import errno
import os
import signal
import sys

import pytest
from pipeline_kit import QUICK, batch_done, fill, publish, senml, spawn, wait_for
from pipeline_tables import numbers
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import functions as F
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.tables import store
from umqtt_runtime import failures


def test_a_worker_of_spark_does_not_heed_sigint(spark):
    """It goes to whole groups and services, and is for the command: the task comes to its end."""

    def struck(batches):
        for batch in batches:
            os.kill(os.getpid(), signal.SIGINT)
            yield batch

    rows = spark.range(3).mapInArrow(struck, "id bigint")
    assert sorted(row.id for row in rows.collect()) == [0, 1, 2]


def test_a_killed_worker_is_a_sentence_in_a_batch_as_in_a_command(spark, tmp_path):
    """Spark says first which call has failed."""
    def killed(batches):
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def batch(df, _):
        df.mapInArrow(killed, "timestamp timestamp, value bigint").collect()

    with pytest.raises(Py4JError) as error:
        batch(spark.sql("select now() as timestamp, 1L as value"), 0)
    assert failures.sentence(error.value) == failures.WORKER_GONE
    query = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = query.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as failed:
        query.start().awaitTermination(60)
    assert failures.why(str(failed.value)) == failures.WORKER_GONE


def test_what_a_library_says_of_a_full_disk_is_plain_text():
    """delta-rs colours its arrows, and names no file."""
    said = ("Generic LocalFileSystem error\n          \x1b[31m\u21b3\x1b[0m Unable to copy data\n"
            "        \x1b[31m\u21b3\x1b[0m No space left on device (os error 28)\n")  # fmt: skip
    assert failures.plain(said) == (
        "Generic LocalFileSystem error: No space left on device (os error 28)")  # fmt: skip
    assert failures.why(f"Traceback of Spark\nOSError: {said}") == (
        "OSError: Generic LocalFileSystem error: Unable to copy data: No space left on device")
    with pytest.raises(OSError, match="No space left") as error, store.naming("/t/_delta_log"):
        raise OSError(said)
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, "/t/_delta_log")


def test_bytes_of_a_damaged_file_move_no_cursor():
    for told in (failures.plain, failures.why):
        assert told("unexpected '\x1b' at \x00\x07") == r"unexpected '\x1b' at \x00\x07"


def test_a_column_that_there_is_not_is_raised_and_not_printed(spark, capfd):
    """As a decoder of one's own may ask for one: pyspark logs the way through the JVM as well."""
    failures.hush_python()
    with pytest.raises(AnalysisException, match="nonsense"):
        spark.range(1).select(F.col("nonsense")).collect()
    assert "nonsense" not in "".join(capfd.readouterr())


def test_a_failed_query_and_a_killed_java_are_a_sentence_each(tmp_path):
    """The spool's `durable` is away for a moment; then Java is killed as by the OOM killer."""
    folder, root, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "log"
    fill(folder, [publish(senml(n)) for n in (1, 2, 3)])
    process = spawn("ingest", "--spool", folder, "--tables", root, "--interval", 0.2, *QUICK,
                    log=log)  # fmt: skip
    wait_for(lambda: batch_done(log), 120, "a batch")
    raw = (folder / "durable").read_bytes()
    (folder / "durable").unlink()
    wait_for(lambda: "started again" in log.read_text(), 120, "a failure")
    (folder / "durable").write_bytes(raw)
    os.kill(int((root / "_state" / "lock").read_text().split()[-1]), signal.SIGKILL)
    assert process.wait(60) == 1
    said = log.read_text()
    assert f"started again: {folder}/durable is missing" in said
    assert "Error: Spark's Java was ended by SIGKILL" in said.splitlines()[-1]
    assert "Traceback" not in said and "\tat " not in said, said
    assert numbers(root) == [1, 2, 3]


def test_a_python_that_starts_too_late_for_spark_is_no_failure_of_the_query(
        spark, tmp_path, monkeypatch, caplog):  # fmt: skip
    """Spark waits ten seconds for it, whatever the computer has to do, and four tries had ended
    ingest."""
    python, late = tmp_path / "python", tmp_path / "late"
    python.write_text("#!/bin/sh\ncase \"$*\" in *python_streaming_source_runner*)\n"
                      f"[ -e '{late}' ] || {{ touch '{late}'; exec sleep 30; }}\nesac\n"
                      f"exec '{sys.executable}' \"$@\"\n")  # fmt: skip
    python.chmod(0o755)
    folder, root = tmp_path / "spool", tmp_path / "tables"
    fill(folder, [publish(senml(n)) for n in (1, 2, 3)])
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", str(python))
        Runner(spark, str(folder), str(root), once=True, patience=1).run()
    assert late.exists() and "not there within the 10 s" in caplog.text
    assert numbers(root) == [1, 2, 3]
