"""A stream of NATS JetStream as the source: what devices publish there is in the tables once."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from patience import wait_until
from pipeline_kit import flat, senml, topic
from pipeline_tables import numbers, table
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from umqtt_pipeline.ingest.query import Runner
from umqtt_pipeline.source import jetstream
from umqtt_pipeline.source.jetstream import JetStreamReader, topic_of
from umqtt_pipeline.spool.files import SpoolError

SERVER = shutil.which("nats-server", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
pytest.importorskip("nats", reason="nats-py is not installed")
pytestmark = pytest.mark.skipif(SERVER is None, reason="nats-server is not installed")


class Server:
    """nats-server with JetStream and its own MQTT broker."""

    def __init__(self, folder):
        with closing(socket.socket()) as one, closing(socket.socket()) as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, self.mqtt = one.getsockname()[1], other.getsockname()[1]
        config = folder / "nats.conf"
        config.write_text(f'server_name: "tests"\nlisten: "127.0.0.1:{self.port}"\n'
                          f'jetstream {{ store_dir: "{folder / "store"}" }}\n'
                          f'mqtt {{ listen: "127.0.0.1:{self.mqtt}" }}\n')  # fmt: skip
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen([SERVER, "-c", config], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)  # fmt: skip
        wait_until(self._answers, 30, f"nats-server; {folder / 'log'} says more")

    def _answers(self):
        for port in (self.port, self.mqtt):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                return False
        return True

    def path(self, stream="fleet"):
        return f"nats://127.0.0.1:{self.port}/{stream}"

    def ask(self, what, **request):
        """One request of JetStream's API; returns the answer."""
        async def asked():
            import nats

            client = await nats.connect(f"nats://127.0.0.1:{self.port}")
            answer = await client.request(f"$JS.API.{what}", json.dumps(request).encode(), 10)
            await client.close()
            return json.loads(answer.data)

        found = asyncio.run(asked())
        assert "error" not in found, found
        return found

    def stream(self, name="fleet", **more):
        """Make a stream of all that is published below `fleet`."""
        self.ask(f"STREAM.CREATE.{name}", **{
            "name": name, "subjects": ["fleet.>"], "storage": "file", "allow_direct": True,
            **more})  # fmt: skip
        return self.path(name)

    def publish(self, *messages, qos=1):
        """(topic, payload) of a device, by MQTT, until they are acknowledged."""
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="device")
        client.connect("127.0.0.1", self.mqtt)
        client.loop_start()
        try:
            for sent in [client.publish(name, payload, qos) for name, payload in messages]:
                sent.wait_for_publish(30)
        finally:
            client.disconnect()
            client.loop_stop()


@pytest.fixture
def nats(tmp_path):
    (tmp_path / "nats").mkdir()
    made = Server(tmp_path / "nats")
    yield made
    made.process.kill()
    made.process.wait()


def reader(path, **options):
    return JetStreamReader({"path": path, **options})


def rows(made, start, end):
    """The rows of a batch, as dicts."""
    return [row for part in made.partitions(start, end) for batch in made.read(part)
            for row in batch.to_pylist()]  # fmt: skip


@pytest.mark.parametrize("subject,name", [
    ("fleet.g.d.telemetry", "fleet/g/d/telemetry"), ("/.foo.bar", "/foo/bar"),
    ("foo.bar./", "foo/bar/"), ("foo./.bar", "foo//bar"), ("foo//bar.x", "foo.bar/x"),
    ("$MQTT.msgs.fleet.g.d.telemetry", "fleet/g/d/telemetry"),
])  # fmt: skip
def test_a_subject_is_a_topic_as_the_server_maps_them(subject, name):
    assert topic_of(subject) == name


def test_batches_are_as_long_as_they_may_be_and_deleted_messages_are_passed_over(
    nats, monkeypatch
):
    path = nats.stream()
    names = [topic(), topic("dev.2"), "fleet//odd/"]
    nats.publish(*((names[n % 3], b"%d" % n) for n in range(1, 11)))
    nats.publish((topic(), b"11"), qos=0)
    for gone in (4, 5, 10):
        nats.ask("STREAM.MSG.DELETE.fleet", seq=gone)
    monkeypatch.setattr(jetstream, "ASKED", 3)
    made = reader(path, maxRowsPerBatch="4")
    start = made.initialOffset()
    (spool,) = start
    assert start[spool] == 1 and spool.startswith("nats/fleet/")
    limit, came, at = made.getDefaultReadLimit(), [], start
    assert isinstance(limit, ReadMaxRows) and limit.max_rows == 4
    while (then := made.latestOffset(at, limit)) != at:
        assert then[spool] - at[spool] <= 4
        came += rows(made, at, then)
        assert rows(made, at, then) == came[-len(rows(made, at, then)) or len(came):]
        at = then
    there = [n for n in range(1, 12) if n not in (4, 5, 10)]
    assert [row["offset"] for row in came] == there
    assert [row["payload"] for row in came] == [b"%d" % n for n in there]
    assert [row["topic"] for row in came] == [names[n % 3] if n < 11 else topic() for n in there]
    assert {row["spool"] for row in came} == {spool}
    nats.publish((topic(), b"12"))
    made.prepareForTriggerAvailableNow()
    nats.publish((topic(), b"13"))
    then = made.latestOffset(at, ReadAllAvailable())
    assert [row["payload"] for row in rows(made, at, then)] == [b"12"]


def test_what_a_replica_lacks_is_not_taken_for_deleted(nats, monkeypatch):
    """A direct get that does not have the newest yet, as of a follower that is behind."""
    path = nats.stream()
    nats.publish(*((topic(), b"%d" % n) for n in range(1, 7)))
    whole, behind = jetstream.Stream._direct, [[3, 5], [6], []]

    async def direct(self, start, count):
        lacking = behind.pop(0) if behind else []
        return [each for each in await whole(self, start, count) if each[0] not in lacking]

    monkeypatch.setattr(jetstream.Stream, "_direct", direct)
    made = reader(path)
    start = made.initialOffset()
    came = rows(made, start, made.latestOffset(start, ReadAllAvailable()))
    assert [row["offset"] for row in came] == [1, 2, 3, 4, 5, 6] and not behind


def test_what_was_let_go_unread_and_a_stream_made_anew_are_told(nats):
    path = nats.stream()
    nats.publish(*((topic(), b"%d" % n) for n in range(1, 7)))
    made = reader(path)
    start = made.initialOffset()
    nats.ask("STREAM.PURGE.fleet", seq=4)
    with pytest.raises(SpoolError, match="messages 1 to 3 were let go by the stream"):
        made.latestOffset(start, ReadAllAvailable())
    going_on = reader(path, skipDamaged="true")
    end = going_on.latestOffset(start, ReadAllAvailable())
    assert [row["offset"] for row in rows(going_on, start, end)] == [4, 5, 6]
    nats.ask("STREAM.PURGE.fleet")  # all that there is
    with pytest.raises(SpoolError, match="messages 1 to 6 were let go by the stream"):
        made.latestOffset(start, ReadAllAvailable())
    assert going_on.latestOffset(end, ReadAllAvailable()) == end
    nats.ask("STREAM.DELETE.fleet")
    nats.stream()
    nats.publish((topic(), b"anew"))
    then = made.latestOffset(end, ReadAllAvailable())
    assert [row["payload"] for row in rows(made, end, then)] == [b"anew"]
    with pytest.raises(SpoolError, match="was deleted"):
        made.partitions(start, end)
    nats.stream("closed", subjects=["closed"], allow_direct=False)
    with pytest.raises(SpoolError, match="--allow-direct"):
        reader(nats.path("closed")).initialOffset()
    with pytest.raises(SpoolError, match="stream not found"):
        reader(nats.path("nothing")).initialOffset()


def test_from_devices_to_silver_also_when_the_checkpoint_is_lost(spark, nats, tmp_path):
    """Devices publish to NATS's MQTT broker at QoS 1; there is no bridge."""
    path, root = nats.stream(), tmp_path / "tables"

    def ingest():
        Runner(spark, None, str(root), once=True, patience=1, nats=path).run()

    nats.publish(*((topic(), senml(n)) for n in (1, 2, 3, 2)), (topic(), b"nonsense"),
                 (topic("dev2"), flat(1, "dev2", t=1)))  # fmt: skip
    ingest()
    nats.publish((topic(), senml(4)), (topic(), senml(1)))
    shutil.rmtree(root / "_checkpoint")
    ingest()
    assert numbers(root) == [1, 2, 3, 4] and numbers(root, device="dev2") == [1]
    assert numbers(root, "duplicates") == [1, 2] and len(table(root, "quarantine")) == 1
    assert [row["offset"] for row in table(root, "bronze")] == list(range(1, 9))
    assert {row["qos"] for row in table(root, "bronze")} == {1}
