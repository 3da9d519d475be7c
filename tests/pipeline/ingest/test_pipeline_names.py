"""Names that come from the broker go through bridge, spool and tables as what they are, and never
into the name of a file."""

import re
from collections import Counter

import paho.mqtt.client as mqtt
import pytest
from pipeline_kit import end, messages, senml, spawn, wait_for
from pipeline_tables import ingest, table
from umqtt_pipeline.spool import reader

NAMES = ["..", ".", "date=2026-01-01", "%2e%2e%2f", "a b", "=", "\u00fc\u4e2d\U0001f321", "$1",
         "`x`", "'; drop", "-rf", "~", "*?[", "C:\\x", ".hidden", "_temporary", "x" * 200,
         "con.parquet"]  # fmt: skip
# What the programs call their files, whatever comes; Spark's checkpoint among them.
OURS = re.compile(
    r"[a-z_]+|date=\d{4}-\d\d-\d\d|\d{12}-([0-9a-f]{8}|\d{4}-of-\d{4})-[0-9a-f]{8}\.parquet"
    r"|\d+(\.seg|\.json|\.checkpoint\.parquet)?|[a-z]+\.jsonl?|\.(\d+|metadata)\.crc"
)


def _topics(folder):
    return [topic.decode() for _, body in reader.walk(folder, 0, reader.durable(folder))
            for topic, _ in messages(body)]  # fmt: skip


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_names_of_the_broker_are_never_names_of_files(spark, broker, tmp_path):
    folder, tables, log = tmp_path / "spool", tmp_path / "tables", tmp_path / "log"
    bridge = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder, "--topic",
                   "#", log=log)  # fmt: skip
    wait_for(lambda: log.exists() and "subscribed" in log.read_text(), 60, "the bridge")
    sent = [(f"fleet/{name}/{name}/telemetry", senml(1, device=name)) for name in NAMES]
    sent += [("../../etc/passwd", b"x"), ("/../x", b"y"), ("fleet/../../telemetry", b"z")]
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "client")
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    for topic, payload in sent:
        client.publish(topic, payload, 1).wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    every = {topic for topic, _ in sent}
    wait_for(lambda: every <= set(_topics(folder)), 60, "all messages")
    assert end(bridge) == 0
    ingest(spark, folder, tables)
    assert every <= {row["topic"] for row in table(tables, "bronze")}
    found = Counter((r["group"], r["device"]) for r in table(tables, "silver"))
    assert found == Counter((name, name) for name in NAMES)
    assert set(tmp_path.iterdir()) == {folder, tables, log}
    strange = [str(path) for root in (folder, tables) for path in root.rglob("*")
               if not OURS.fullmatch(path.name)]  # fmt: skip
    assert strange == []
