"""Other ways in and out: the bridge inside the source, Kafka's rows, Delta, files of options,
spark-submit."""

import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import paho.mqtt.publish
import pytest
from decode_kit import good
from patience import PATIENCE
from pipeline_kit import NOON, QUICK, fill, publish, run, senml, topic, wait_for
from pipeline_tables import numbers, table
from pyspark.sql import Row
from pyspark.sql import functions as F
from umqtt_pipeline.decode import reasons
from umqtt_pipeline.ingest import bronze, dedup, metrics
from umqtt_pipeline.ingest.query import Ingest
from umqtt_pipeline.spool import reader
from umqtt_pipeline.spool.writer import SpoolWriter
from umqtt_pipeline.tables.schema import SEEN, arrow_schema

BIN = Path(sys.executable).parent


def streamed(spark, folder, checkpoint, function, **options):
    frame = spark.readStream.format("mqtt").options(path=str(folder), **options).load()
    writer = frame.writeStream.foreachBatch(function)
    return writer.option("checkpointLocation", str(checkpoint))


def test_the_bridge_inside_the_source(spark, broker, tmp_path):
    """A laptop needs one program: messages sent after the query began come; it ends with it."""
    found = []
    query = streamed(
        spark, tmp_path / "spool", tmp_path / "checkpoint",
        lambda df, n: found.extend(bytes(r.payload) for r in df.collect()),
        broker=f"127.0.0.1:{broker.port}", topics="fleet/+/+/telemetry,plain/#",
    ).trigger(processingTime="200 milliseconds").start()  # fmt: skip
    try:
        log = tmp_path / "spool" / "bridge.log"
        wait_for(lambda: log.exists() and "subscribed" in log.read_text(), 60, "the bridge")
        sent = [senml(n) for n in range(1, 6)]
        told = [(topic(), payload, 1) for payload in sent] + [("plain/x", b"hello", 1)]
        paho.mqtt.publish.multiple(told, port=broker.port)
        wait_for(lambda: len(found) == 6, 60, "the messages")
    finally:
        query.stop()
    assert sorted(found) == sorted([*sent, b"hello"])

    def free():
        try:
            SpoolWriter(tmp_path / "spool").close()
            return True
        except reader.SpoolError:
            return False

    wait_for(free, 60, "the end of the bridge")


def test_a_refused_bridge_inside_the_source_says_so(spark, tmp_path):
    query = streamed(spark, tmp_path / "spool", tmp_path / "checkpoint", lambda df, n: None,
                     broker="nohost").start()  # fmt: skip
    with pytest.raises(Exception, match="HOST:PORT"):
        query.awaitTermination(60 * PATIENCE)


def test_kafka_rows_become_silver(spark):
    """As far as it goes without Kafka: its schema, and the same functions behind it."""
    at = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    rows = [Row(key=topic("dev1").encode(), value=senml(n), topic="mqtt", partition=p, offset=n,
                timestamp=at, timestampType=0) for n, p in ((1, 0), (2, 1), (2, 2))]  # fmt: skip
    held = bronze.bronze(bronze.from_kafka(spark.createDataFrame(rows, KAFKA)))
    assert [f.name for f in held.schema] == list(bronze.COLUMNS)
    came = good(held.toArrow().cast(arrow_schema(bronze.COLUMNS)))
    new, copies, _ = dedup.told_apart(came, arrow_schema(SEEN).empty_table())
    assert new["sequence"].to_pylist() == [1, 2] and copies["sequence"].to_pylist() == [2]
    places = [(r["spool"], r["offset"]) for rows in (new, copies) for r in rows.to_pylist()]
    assert sorted(places) == [("kafka/mqtt/0", 1), ("kafka/mqtt/1", 2), ("kafka/mqtt/2", 2)]


KAFKA = ("key binary, value binary, topic string, partition int, offset bigint, "
         "timestamp timestamp, timestampType int")  # fmt: skip


@pytest.mark.parametrize("key,value,at,reason", [
    (None, senml(2), NOON, "the topic is not fleet/GROUP/DEVICE/telemetry"),
    (topic().encode(), None, NOON, reasons.ENCODING),
    (None, None, NOON, "the topic is not fleet/GROUP/DEVICE/telemetry"),
    (b"fleet/\xff/\xfe/telemetry", senml(2), NOON, "the payload is of device dev1"),
    (topic().encode(), b"", -1, reasons.ENCODING),
    (topic().encode(), b"", 253_402_300_800_000_000 + NOON, reasons.ENCODING),
])  # fmt: skip
def test_no_kafka_record_stops_ingest(spark, tmp_path, key, value, at, reason):
    """A producer may leave out key and value, and sets the time as it likes."""
    good = (topic().encode(), senml(1), "mqtt", 0, 1)
    schema = KAFKA.partition("timestamp")[0] + "at bigint"
    rows = spark.createDataFrame([(*good, NOON), (key, value, "mqtt", 0, 2, at)], schema)
    held = rows.select("*", F.timestamp_micros("at").alias("timestamp"))
    counts = Ingest(spark, tmp_path).work(bronze.bronze(bronze.from_kafka(held)))
    assert (counts["rows"], counts["new"], counts["quarantine"]) == (2, 1, 1)
    (wrong,) = table(tmp_path, "quarantine")
    assert wrong["reason"].startswith(reason) and wrong["offset"] == 2
    assert numbers(tmp_path) == [1] and len(table(tmp_path, "bronze")) == 2


@pytest.mark.parametrize("received", [253_402_300_800_000_000, 1 << 63, (1 << 64) - 1])
def test_a_clock_beyond_the_year_9999_stops_no_ingest(spark, tmp_path, received):
    """The computer of the bridge had it; a spool takes 64 bits of it."""
    fill(tmp_path / "spool", [publish(senml(1))])
    fill(tmp_path / "spool", [publish(senml(2))], received=received)
    held = spark.read.format("mqtt").load(str(tmp_path / "spool"))
    counts = Ingest(spark, tmp_path / "tables").work(bronze.bronze(held))
    assert (counts["rows"], counts["new"]) == (2, 2)
    assert numbers(tmp_path / "tables") == [1, 2]
    times = {row["sequence"]: row["received_at"] for row in table(tmp_path / "tables", "silver")}
    assert (times[1].year, times[2].date().isoformat()) == (2026, "9999-12-30")


def test_a_batch_is_once_in_delta(spark, tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    from umqtt_pipeline.tables import delta

    fill(tmp_path / "spool", [publish(senml(n)) for n in range(1, 11)])
    rows = spark.read.format("mqtt").load(str(tmp_path / "spool"))
    target = str(tmp_path / "delta")
    append = delta.writer(target, "query")
    append(rows.where("packet_id = 1").limit(4), 0)
    append(rows.limit(6), 1)
    append(rows.limit(6), 1)  # run again after a kill
    assert deltalake.DeltaTable(target).to_pyarrow_table().num_rows == 10
    delta.writer(target, "another query")(rows.limit(1), 0)
    assert deltalake.DeltaTable(target).to_pyarrow_table().num_rows == 11


def test_a_new_checkpoint_is_an_error_for_delta(spark, tmp_path):
    """Its batches have the numbers of others in the table, and would be passed over."""
    deltalake = pytest.importorskip("deltalake", reason="the extra delta is not installed")
    from umqtt_pipeline.tables import delta

    target = str(tmp_path / "delta")

    def run(checkpoint, application="query"):
        frame = spark.readStream.format("mqtt").option("maxRowsPerBatch", 4)
        writing = frame.load(str(tmp_path / "spool")).writeStream.option(
            "checkpointLocation", str(tmp_path / checkpoint))  # fmt: skip
        query = writing.foreachBatch(delta.writer(target, application)).trigger(availableNow=True)
        assert query.start().awaitTermination(60 * PATIENCE)
        return deltalake.DeltaTable(target).to_pyarrow_table().num_rows

    fill(tmp_path / "spool", [publish(senml(n)) for n in range(1, 11)])
    assert run("one") == 10
    fill(tmp_path / "spool", [publish(senml(n)) for n in range(11, 17)])
    for _ in range(2):
        with pytest.raises(Exception, match="another checkpoint.*put that checkpoint back"):
            run("two")
    assert run("one") == 16 and run("one") == 16
    assert run("two", "another name") == 32


def test_spark_submit_and_a_file_of_options(tmp_path):
    """As on a cluster: what spark-submit is told stands; the options come from a file."""
    fill(tmp_path / "spool", [publish(senml(n)) for n in (1, 2, 2, 5)])
    config = tmp_path / "site.toml"
    config.write_text(f'[ingest]\nspool = "{tmp_path}/spool"\ntables = "{tmp_path}/tables"\n'
                      "once = true\nmax-rows = 100\n")  # fmt: skip
    import umqtt_pipeline
    from umqtt_runtime.java import java_home
    from umqtt_runtime.session import QUICK_JVM

    entry = Path(umqtt_pipeline.__file__).with_name("__main__.py")
    done = subprocess.run(
        [BIN / "spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false",
         "--driver-java-options", QUICK_JVM, *QUICK, entry, "--config", config, "ingest"],
        capture_output=True, text=True, timeout=240,
        env={**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr[-3000:]
    assert numbers(tmp_path / "tables") == [1, 2, 5]
    lines = metrics.read(tmp_path / "tables")
    assert [line["rows"] for line in lines] == [4] and lines[0]["parts"]["triggerExecution"] > 0


@pytest.mark.parametrize("text,words", [
    ("[ingest", "toml"), ("[fly]\nx = 1", "no command"), ("[bridge]\nspeed = 1", "speed"),
    ("[bridge]\nbroker = \"nohost\"\nspool = \"x\"", "HOST:PORT")])
def test_a_bad_file_of_options(tmp_path, text, words):
    (tmp_path / "x.toml").write_text(text)
    done = run("--config", tmp_path / "x.toml", "bridge")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_one_of_spool_kafka_and_nats(tmp_path):
    both = ("--spool", "x", "--kafka", "subscribe=y")
    for more, said in (((), "one of --spool, --kafka and --nats is needed"),
                       (both, "--spool and --kafka: an ingest has one source"),
                       (("--nats", "127.0.0.1:4222"), "write nats://HOST:PORT/STREAM")):
        done = run("ingest", "--tables", tmp_path, *more)
        assert done.returncode == 2 and said in done.stderr, done.stderr
