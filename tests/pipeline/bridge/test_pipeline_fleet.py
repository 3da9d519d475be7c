"""Several bridges on a shared subscription, and TLS: as a fleet's site has them."""

import contextlib
import json
import shutil
import signal
import socket
import ssl
import time

import brokers
import paho.mqtt.client as mqtt
import pytest
from pipeline_kit import EPOCH, end, messages, run, senml, spawn, topic, wait_for
from umqtt_pipeline.bridge.marks import Marks
from umqtt_pipeline.bridge.peers import Peers
from umqtt_pipeline.decode.payloads import identity
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.files import SpoolError
from umqtt_pipeline.spool.writer import SpoolWriter


def held(folder):
    """Sequence numbers in a spool."""
    return [identity(payload)[1] for _, body in reader.walk(folder, 0, reader.durable(folder))
            for _, payload in messages(body)]  # fmt: skip


def test_a_peer_that_was_begun_anew_is_known_and_one_that_is_not_read_is_no_such_peer(tmp_path):
    """A bridge may read another one that does not read it."""
    SpoolWriter(tmp_path / "one").close()
    first = reader.spool_id(tmp_path / "one")
    peers = Peers([str(tmp_path / "one")], "0123456789abcdef")
    peers.feed(Marks())
    assert peers.gone() == set()
    shutil.rmtree(tmp_path / "one")
    assert peers.gone() == set(), "it may come back"
    SpoolWriter(tmp_path / "one").close()
    peers.feed(Marks())
    assert peers.gone() == {first}


def test_a_copy_of_its_own_spool_is_no_peer(tmp_path):
    """Marks would count readings that no ingest can tell from others."""
    SpoolWriter(tmp_path / "one").close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    peers = Peers([str(tmp_path / "two")], reader.spool_id(tmp_path / "one"))
    with pytest.raises(SpoolError, match="two is a copy of this bridge's own spool"):
        peers.feed(Marks())


@pytest.mark.parametrize("broker", ["iotcore", "mosquitto"], indirect=True)
def test_two_bridges_with_full_spools_do_not_wait_for_each_other(broker, tmp_path):
    """Each keeps what the other has not written down as read, and has no room itself."""
    spools, metrics = [tmp_path / "one", tmp_path / "two"], {}
    for mine, other in (spools, spools[::-1]):
        metrics[mine] = tmp_path / f"{mine.name}.json"
        spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", mine, "--peer", other,
              "--client-id", f"bridge-{mine.name}", "--topic", "$share/s/fleet/+/+/telemetry",
              "--metrics", metrics[mine], "--segment-bytes", 4096, "--max-spool-bytes", 16_384,
              log=tmp_path / f"{mine.name}.log")  # fmt: skip
    for log in (tmp_path / "one.log", tmp_path / "two.log"):
        wait_for(lambda log=log: "subscribed" in log.read_text(), what="subscription")
    for spool in spools:
        consumers.register(spool, "ingest", 0)
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "device")
    device.connect("127.0.0.1", broker.port)
    device.loop_start()
    sent = 0

    def full():
        return all(json.loads(told.read_text())["spool_full"] for told in metrics.values())

    while not full():
        assert sent < 3000, "the spools take more than they may"
        for _ in range(20):
            sent += 1
            info = device.publish(topic(), senml(sent), 1)
        info.wait_for_publish(60)
        time.sleep(0.1)
    seen, at = set(), dict.fromkeys(spools, 0)

    def stored():
        """All that was sent; as ingest does, what was read is released."""
        for spool in spools:
            end_of_it = reader.durable(spool)
            for _, body in reader.walk(spool, at[spool], end_of_it):
                seen.update(identity(payload)[1] for _, payload in messages(body))
            consumers.register(spool, "ingest", end_of_it)
            at[spool] = end_of_it
        return seen == set(range(1, sent + 1))

    wait_for(stored, 60, "the rest of the messages")
    wait_for(lambda: not any(json.loads(told.read_text())["spool_full"]
                             for told in metrics.values()), 30, "room")  # fmt: skip
    for name in ("one", "two"):
        log = (tmp_path / f"{name}.log").read_text()
        assert "SUBACK" not in log and log.count("takes nothing") <= 1 + log.count("going on")
    device.disconnect()
    device.loop_stop()


@pytest.mark.parametrize("broker", ["iotcore"], indirect=True)
def test_a_full_bridge_waits_for_none_that_is_away(broker, tmp_path):
    """And one that comes back with another spool takes the place of the lost one."""
    spools, metrics = [tmp_path / "one", tmp_path / "two"], tmp_path / "one.json"

    def begun(mine, other):
        log = tmp_path / f"{mine.name}.log"
        before = log.read_text().count("subscribed to") if log.exists() else 0
        process = spawn(
            "bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", mine, "--peer", other,
            "--client-id", f"b-{mine.name}", "--metrics", tmp_path / f"{mine.name}.json",
            "--segment-bytes", 4096, "--max-spool-bytes", 16_384, log=log)  # fmt: skip
        wait_for(lambda: log.read_text().count("subscribed to") > before, what="subscription")
        return process, log

    begun(*spools)
    two, _ = begun(*spools[::-1])
    lost = f"bridge-{reader.spool_id(spools[1])}"
    wait_for(lambda: lost in consumers.positions(spools[0]), 30, "the peer as a reader")
    assert end(two) == 0
    at, sent = consumers.positions(spools[0])[lost], 0
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "device")
    device.connect("127.0.0.1", broker.port)
    device.loop_start()

    def deleted():
        """More comes, and a reader stores all that is there."""
        nonlocal sent
        for _ in range(20):
            sent += 1
            device.publish(topic(), senml(sent), 1)
        consumers.register(spools[0], "ingest", reader.durable(spools[0]))
        return reader.begin(spools[0]) > at

    wait_for(deleted, 60, "room")
    two, log = begun(*spools[::-1])  # as it was: it has missed something
    wait_for(lambda: "has deleted its messages before position" in log.read_text(), 30, "word")
    end(two, signal.SIGKILL)
    shutil.rmtree(spools[1])
    begun(*spools[::-1])
    new = f"bridge-{reader.spool_id(spools[1])}"

    def replaced():
        deleted()
        return set(consumers.positions(spools[0])) == {"ingest", new}

    wait_for(replaced, 60, "the new reader in the place of the lost one")
    assert json.loads(metrics.read_text())["connects"] == 1
    assert lost in (tmp_path / "one.log").read_text()
    device.disconnect()
    device.loop_stop()


@pytest.mark.parametrize("broker", ["iotcore", "mosquitto"], indirect=True)
def test_two_bridges_share_a_subscription_and_tell_one_truth(broker, tmp_path):
    spools = [tmp_path / "one", tmp_path / "two"]
    bridges = []
    for mine, other in (spools, spools[::-1]):
        bridges.append(spawn(
            "bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", mine, "--peer", other,
            "--client-id", f"bridge-{mine.name}", "--topic", "$share/pipeline/fleet/+/+/telemetry",
            "--mark-interval", "0.05", log=tmp_path / f"{mine.name}.log"))  # fmt: skip
    for log in (tmp_path / "one.log", tmp_path / "two.log"):
        wait_for(lambda log=log: "subscribed" in log.read_text(), what="subscription")
    marks = []
    device = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "device")
    device.on_message = lambda c, d, m: marks.append(json.loads(m.payload))
    device.on_connect = lambda c, *_: c.subscribe("fleet/g/dev1/ack", 1)
    device.connect("127.0.0.1", broker.port)
    device.loop_start()
    for number in range(1, 201):
        device.publish(topic(), senml(number), 1)
        if number % 20 == 0:
            time.sleep(0.05)  # not all in one read of one bridge
    wait_for(lambda: any(mark["upto"] == 200 for mark in marks), 30, "the whole mark")
    one, two = map(held, spools)
    assert sorted(one + two) == list(range(1, 201)) and one and two
    for bridge in bridges:
        assert end(bridge) == 0
    # After a restart each knows what the other has, without asking for it again.
    marks.clear()
    again = spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", spools[0], "--peer",
                  spools[1], "--client-id", "bridge-one", log=tmp_path / "again.log")  # fmt: skip
    wait_for(lambda: "subscribed" in (tmp_path / "again.log").read_text(), what="subscription")
    device.publish(topic(), senml(201), 1)  # not before: the other's session would get it
    told = {"epoch": EPOCH.hex(), "upto": 201, "missing": []}
    wait_for(lambda: told in marks, 30, "the mark of both")
    assert end(again) == 0
    device.disconnect()
    device.loop_stop()


@pytest.fixture(scope="module")
def secured():
    brokers.need_mosquitto()
    own = brokers.TLSBroker()
    (own.folder / "wrong.pem").write_bytes(brokers.Authority("umqtt_min test CA").pem)
    yield own
    own.stop()


def test_tls_with_both_certificates(secured, tmp_path):
    log, files = tmp_path / "log", secured.folder
    for port, more in ((secured.port, ()), (secured.port_mutual, (
            "--cert", files / "client.pem", "--key", files / "client-key.pem"))):  # fmt: skip
        bridge = spawn("bridge", "--broker", f"localhost:{port}", "--spool", tmp_path / str(port),
                       "--ca", files / "ca.pem", *more, log=log)  # fmt: skip
        wait_for(lambda p=port: f"connected to localhost:{p}" in log.read_text(), 30, "TLS")
        assert end(bridge) == 0


def test_an_impostor_on_the_path_does_not_end_a_bridge_that_works(secured, tmp_path):
    log, port = tmp_path / "log", secured.port
    pair = tmp_path / "pair.pem"
    pair.write_bytes(b"".join(brokers.Authority("umqtt_min test CA").issue("localhost")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    bridge = spawn("bridge", "--broker", f"localhost:{port}", "--spool", tmp_path / "spool",
                   "--ca", secured.folder / "ca.pem", log=log)  # fmt: skip
    wait_for(lambda: "subscribed to" in log.read_text(), 30, "TLS")
    secured.kill()
    with socket.create_server(("localhost", port)) as server:
        server.settimeout(30)
        taken, _ = server.accept()
        with taken, contextlib.suppress(OSError):
            context.wrap_socket(taken, server_side=True)
    wait_for(lambda: f"cannot use: localhost:{port} is not trusted" in log.read_text(), 30, "it")
    secured.start()
    wait_for(lambda: log.read_text().count("subscribed to") == 2, 60, "TLS again")
    assert end(bridge) == 0


@pytest.mark.parametrize("host,ca,words", [
    ("localhost", "wrong.pem", "not trusted"),
    ("127.0.0.1", "ca.pem", "not trusted"),
    ("localhost", "mosquitto.conf", "no certificate in PEM can be read"),
])  # fmt: skip
def test_what_is_not_trusted_ends_with_status_2(secured, tmp_path, host, ca, words):
    done = run("bridge", "--broker", f"{host}:{secured.port}", "--spool", tmp_path / "s",
               "--ca", secured.folder / ca, timeout=60)  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "s").exists() or not held(tmp_path / "s")
