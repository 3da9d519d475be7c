"""The bridge against real brokers: killed at any moment it loses nothing that it acknowledged."""

import json
import os
import random
import shutil
import signal
import socket
import threading
import time

import brokers
import paho.mqtt.client as mqtt
import pytest
from bridge_kit import BOTH, sequences, spooled, start
from patience import PATIENCE
from pipeline_kit import EPOCH, end, publish, run, senml, spawn, topic, wait_for
from umqtt_pipeline.spool import consumers, reader
from umqtt_pipeline.spool.writer import SpoolWriter


@BOTH
def test_killed_at_random_it_loses_nothing_it_acknowledged(broker, device, tmp_path):
    folder = tmp_path / "spool"
    choose = random.Random(7)
    bridge = start(broker, folder)
    total = 0
    for _ in range(5):
        info = device.take(400)
        total += 400
        time.sleep(choose.uniform(0, 0.08))
        bridge.send_signal(signal.SIGKILL)
        bridge.wait()
        info.wait_for_publish(80)  # the broker has it, the bridge is down
        bridge = start(broker, folder)
    # Nothing is published again here: the broker kept what the bridge had not acknowledged.
    everything = set(range(1, total + 1))
    wait_for(lambda: set(sequences(folder)) == everything, 30, "every message")
    wait_for(lambda: device.upto == total, 10, "the mark")
    assert end(bridge) == 0
    assert device.marks[-1] == {"epoch": EPOCH.hex(), "upto": total, "missing": []}


SHIFTED = """
import os, time

def shifted(real, unit):
    return lambda: real() + int(open(os.environ["SHIFT"]).read()) * unit

time.time, time.time_ns = shifted(time.time, 1), shifted(time.time_ns, 10**9)
"""


def test_a_clock_before_1970(broker, device, tmp_path):
    """Refused at the start. Set back later, it costs the times of receipt, also in the header of
    a segment, and neither a message nor a mark."""
    folder, shift = tmp_path / "spool", tmp_path / "shift"
    (tmp_path / "sitecustomize.py").write_text(SHIFTED)  # of the bridge's interpreter
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    clock = {"PYTHONPATH": path, "SHIFT": str(shift)}
    early = -int(time.time()) - 90_000

    def set_clock(seconds):
        shift.with_suffix(".new").write_text(str(seconds))
        shift.with_suffix(".new").replace(shift)

    set_clock(early)
    done = run("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", folder, **clock)
    assert done.returncode == 2 and not folder.exists()
    assert done.stderr.startswith("Error: the clock of this computer says 1969-12-30: set it")
    set_clock(0)
    bridge = start(broker, folder, "--segment-bytes", "4096", environment=clock)
    device.take(1)
    device.confirmed()
    set_clock(early)
    for _ in range(2):
        device.take(75)
        device.confirmed()
    set_clock(0)
    device.take(1)
    device.confirmed()
    set_clock(-9 * 86_400)
    for _ in range(2):
        device.take(1)
        device.confirmed()
    assert end(bridge) == 0
    found = [block.received for block, _ in reader.walk(folder, 0, reader.durable(folder))]
    assert found[0] > 0 and found[-1] > 0 and found.count(0) >= 2
    assert set(sequences(folder)) == set(range(1, 155))
    assert len(list(folder.glob("*.seg"))) > 1
    said = (tmp_path / "bridge.log").read_text()
    assert said.count("says 1969-12-30: until it is set") == 1 and "Traceback" not in said
    assert said.count("was set back by 9 days") == 1
    bridge = start(broker, folder, environment=clock)  # as after a boot without a clock of its own
    device.take(1)
    device.confirmed()
    assert end(bridge) == 0
    assert (tmp_path / "bridge.log").read_text().count("was set back by 9 days") == 2


def test_a_broker_that_forgets_everything(broker, device, tmp_path):
    """iotcore killed with messages in its memory: the mark stands still, the device repeats."""
    folder = tmp_path / "spool"
    bridge = start(broker, folder)
    device.take(300)
    device.confirmed()
    bridge.send_signal(signal.SIGSTOP)
    device.take(300).wait_for_publish(80)  # acknowledged by the broker, unknown to the bridge
    broker.kill()
    broker.start()
    bridge.send_signal(signal.SIGCONT)
    device.take(50)
    device.confirmed()
    assert set(sequences(folder)) == set(range(1, 651))
    assert end(bridge) == 0
    said = (tmp_path / "bridge.log").read_text()
    assert said.count("session new") == 2 and said.count("has lost the session") == 1


@BOTH
def test_a_broker_that_forgets_while_the_bridge_is_down_is_told(broker, device, tmp_path):
    """What it held for the bridge is gone, and no device has to send it again."""
    log, told = tmp_path / "bridge.log", "has lost the session of client 'umqtt-bridge'"
    bridge = start(broker, tmp_path / "spool")
    end(bridge, signal.SIGKILL)
    device.take(3).wait_for_publish(80)
    assert "session new" in log.read_text() and told not in log.read_text()
    assert end(start(broker, tmp_path / "spool", "--client-id", "another")) == 0
    assert told not in log.read_text(), "it is new to this broker"
    assert end(start(broker, tmp_path / "spool")) == 0
    assert told not in log.read_text()
    broker.kill()
    broker.start()
    assert end(start(broker, tmp_path / "spool")) == 0
    assert log.read_text().count(told) == 1 and "`gaps` shows" in log.read_text()


def test_a_new_spool_for_a_session_that_is_known_is_told(broker, device, tmp_path):
    """Started in another folder, it would take the readings of the spool that is read."""
    log = tmp_path / "bridge.log"
    told = "a bridge of this name has had another spool"
    assert end(start(broker, tmp_path / "spool")) == 0
    assert end(start(broker, tmp_path / "spool")) == 0
    assert log.read_text().count("session present") == 1 and told not in log.read_text()
    device.take(1)
    bridge = start(broker, tmp_path / "spool")
    wait_for(lambda: spooled(tmp_path / "spool"), what="a message in the spool")
    assert end(bridge) == 0
    (tmp_path / "spool" / "spool.json").unlink()
    assert end(start(broker, tmp_path / "spool")) == 0
    assert "spool.json was missing: it is written again" in log.read_text()
    assert told not in log.read_text(), "it is the same one"
    assert end(start(broker, tmp_path / "other")) == 0
    assert log.read_text().count(told) == 1
    assert f"the spool in {tmp_path / 'other'} is new" in log.read_text()


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_what_an_earlier_run_asked_for_is_unsubscribed(broker, tmp_path):
    """The broker's session keeps it, and would go on delivering what nobody wants any more; also
    when the bridge was killed before the broker had forgotten it. (iotcore answers no UNSUBSCRIBE
    in a session that it has resumed.)"""
    folder, log = tmp_path / "spool", tmp_path / "bridge.log"

    def topics():
        return json.loads((folder / "session").read_bytes())["topics"]

    assert end(start(broker, folder, "--topic", "home/#", "--topic", "both/+")) == 0
    assert topics() == ["home/#", "both/+"]
    told = {"broker": f"127.0.0.1:{broker.port}", "client_id": "umqtt-bridge"}
    # As a run leaves it that was killed when it had asked for another one.
    (folder / "session").write_text(json.dumps({**told, "topics": ["never/#", *topics()]}))
    bridge = start(broker, folder, "--topic", "new/#", "--topic", "both/+")
    wait_for(lambda: "unsubscribed from never/#, home/#, which an" in log.read_text(), what="it")
    assert topics() == ["new/#", "both/+"]
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    for name in ("home/x", "both/x", "new/x"):
        client.publish(name, b"1", 1).wait_for_publish(PATIENCE * 30)
    wait_for(lambda: len(spooled(folder)) >= 2, what="the messages")
    client.disconnect()
    client.loop_stop()
    assert end(bridge) == 0
    assert {name for name, _ in spooled(folder)} == {b"both/x", b"new/x"}


def test_the_mark_survives_kills_and_deleted_segments(broker, device, tmp_path):
    folder = tmp_path / "spool"
    options = ("--segment-bytes", 4096)
    bridge = start(broker, folder, *options)
    for _ in range(2):
        device.take(200)
        device.confirmed()
    assert end(bridge) == 0  # saves the marks
    consumers.register(folder, "ingest", reader.durable(folder))
    bridge = start(broker, folder, *options)
    wait_for(lambda: len(reader.segments(folder)) == 1, what="deletion")
    bridge.kill()
    bridge.wait()
    assert not set(sequences(folder)) & set(range(1, 201))
    bridge = start(broker, folder, *options)
    device.take(1)
    wait_for(lambda: device.upto == 401, what="the mark")  # nothing was published again
    assert device.marks[-1] == {"epoch": EPOCH.hex(), "upto": 401, "missing": []}
    assert end(bridge) == 0


def test_missing_ranges_are_asked_for(broker, device, tmp_path):
    bridge = start(broker, tmp_path / "spool")
    device.publish(1, 3)
    device.publish(6, 6)
    device.publish(9, 9)
    gaps = {"epoch": EPOCH.hex(), "upto": 3, "missing": [[4, 5], [7, 8]]}
    wait_for(lambda: device.marks and device.marks[-1] == gaps, what="the gaps")
    device.publish(4, 8)
    wait_for(lambda: device.upto == 9, what="the mark")
    end(bridge)


def test_malformed_payloads_are_spooled_but_not_marked(broker, device, tmp_path):
    bridge = start(broker, tmp_path / "spool")
    strange = [b"", b"\xff\x00", b"{", "fl\u00fc".encode(), b"\x81\xa0"]
    for payload in strange:
        device.client.publish(topic(), payload, 1)
    device.client.publish("fleet/../etc/telemetry", senml(1, device="etc"), 1)
    device.take(1)
    device.confirmed()
    kept = spooled(tmp_path / "spool")
    assert [p for _, p in kept if p in strange] == strange
    assert {p.name for p in (tmp_path / "spool").iterdir()} <= {
        "spool.json", "deleted", "durable", "lock", "marks", "reserve", "session",
        f"{0:020d}.seg"}  # fmt: skip
    assert [m["upto"] for m in device.marks][-1] == 1
    end(bridge)


def test_the_marks_are_retained(broker, device, tmp_path):
    bridge = start(broker, tmp_path / "spool")
    device.take(5)
    device.confirmed()
    heard = []
    late = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "late")
    late.on_message = lambda c, d, m: heard.append((m.retain, json.loads(m.payload)["upto"]))
    late.connect("127.0.0.1", broker.port)
    late.subscribe("fleet/g/dev1/ack", 1)
    late.loop_start()
    wait_for(lambda: heard, what="the retained mark")
    late.loop_stop()
    late.disconnect()
    assert heard[0] == (True, 5)
    end(bridge)


def test_marks_do_not_wait_for_a_suback_behind_the_backlog(tmp_path):
    """Devices would send all of it again. This broker has a long backlog: SUBACK never comes."""
    heard, lost = bytearray(), threading.Event()

    def serve(server):
        peer, _ = server.accept()
        with peer:
            heard.extend(peer.recv(1000))
            peer.sendall(b"\x20\x02\x01\x00" + b"".join(
                publish(senml(n), packet_id=n) for n in range(1, 21)))  # fmt: skip
            while data := peer.recv(1000):
                heard.extend(data)
        lost.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        log = tmp_path / "log"
        bridge = spawn("bridge", "--broker", f"127.0.0.1:{server.getsockname()[1]}", "--spool",
                       tmp_path / "spool", "--mark-interval", "0.05", log=log)  # fmt: skip
        wait_for(lambda: b'"upto":20' in heard.replace(b" ", b"") or lost.is_set(), 30, "the mark")
        assert not lost.is_set() and "subscribed to" not in log.read_text()
        assert end(bridge) == 0


def test_qos_2_is_answered_in_four_steps(broker, device, tmp_path):
    bridge = start(broker, tmp_path / "spool", "--qos", 2)
    for sequence in range(1, 51):
        device.client.publish(topic(), senml(sequence), 2)
    wait_for(lambda: device.upto == 50, what="the mark")
    assert sorted(sequences(tmp_path / "spool")) == list(range(1, 51))
    end(bridge)


def test_an_unreachable_broker_is_retried_and_said(tmp_path):
    port = brokers.free_port()
    log = tmp_path / "log"
    bridge = spawn("bridge", "--broker", f"127.0.0.1:{port}", "--spool", tmp_path / "s", log=log)
    wait_for(lambda: log.exists() and log.read_text().count("refused") >= 2, what="two tries")
    assert bridge.poll() is None
    assert f"127.0.0.1:{port}" in log.read_text()
    assert "no broker listens there; is it running, and is that its port?" in log.read_text()
    assert end(bridge) == 0
    assert "ended: 0 messages received" in log.read_text()


def answering(reply):
    """A one-shot server on a free port that answers the first bytes it gets with `reply`."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with server, server.accept()[0] as client:
            client.recv(1000)
            client.sendall(reply)
            client.recv(1000)

    threading.Thread(target=serve, daemon=True).start()
    return server.getsockname()[1]


@pytest.mark.parametrize("code,words", [(2, "client id"), (4, "password"), (5, "authorised")])
def test_a_refused_login_ends_with_status_2(tmp_path, code, words):
    port = answering(b"\x20\x02\x00" + bytes([code]))
    done = run("bridge", "--broker", f"127.0.0.1:{port}", "--spool", tmp_path / "s")
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_mosquitto_refuses_the_login(tmp_path):
    brokers.need_mosquitto()
    own = brokers.Broker("mosquitto", "allow_anonymous false\n")
    try:
        done = run("bridge", "--broker", f"127.0.0.1:{own.port}", "--spool", tmp_path / "s",
                   "--username", "x", UMQTT_BROKER_PASSWORD="wrong")  # fmt: skip
    finally:
        own.stop()
    assert done.returncode == 2 and "refuses" in done.stderr


def test_iotcore_refuses_the_login(tmp_path):
    from umqtt_demo.broker import EmbeddedBroker

    with EmbeddedBroker(users={"name": "word"}) as own:
        done = run("bridge", "--broker", f"127.0.0.1:{own.port}", "--spool", tmp_path / "s",
                   "--username", "name", UMQTT_BROKER_PASSWORD="wrong", timeout=60)  # fmt: skip
        assert done.returncode == 2 and "refuses this login" in done.stderr
        bridge = start(own, tmp_path / "s", "--username", "name", "--password", "word")
        assert end(bridge) == 0


def test_a_refused_subscription_ends_with_status_2(tmp_path):
    port = answering(b"\x20\x02\x00\x00\x90\x03\x00\x01\x80")
    done = run("bridge", "--broker", f"127.0.0.1:{port}", "--spool", tmp_path / "s")
    assert done.returncode == 2 and "fleet/+/+/telemetry" in done.stderr


@pytest.mark.parametrize("arguments,words", [
    (["--broker", "nohost"], "HOST:PORT"),
    (["--broker", "h:99999"], "HOST:PORT"),
    (["--topic", "a/#/b"], "topic filter"),
    (["--qos", "3"], "--qos"),
    (["--password", "x"], "--username"),
    (["--spool", "/proc/none/x"], "/proc/none"),
])  # fmt: skip
def test_bad_arguments(tmp_path, arguments, words):
    given = {"--broker": "localhost:1", "--spool": str(tmp_path / "s")}
    given.update(zip(arguments[::2], arguments[1::2]))
    done = run("bridge", *[x for pair in given.items() for x in pair])
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_spool_in_use(broker, tmp_path):
    bridge = start(broker, tmp_path / "spool")
    done = run("bridge", "--broker", "localhost:1", "--spool", tmp_path / "spool")
    assert done.returncode == 2 and "in use" in done.stderr
    end(bridge)


def _removed(folder):
    shutil.rmtree(folder)


def _moved(folder):
    folder.rename(folder.with_name("moved"))


def _replaced(folder):
    _moved(folder)
    SpoolWriter(folder).close()


def _lock_removed(folder):
    (folder / "lock").unlink()


@pytest.mark.parametrize("take_away", [_removed, _moved, _replaced, _lock_removed])
def test_it_acknowledges_nothing_into_a_spool_that_was_taken_away(
    broker, device, tmp_path, take_away
):
    """Neither to the broker, which sends it again to the next bridge, nor by a mark."""
    folder, log = tmp_path / "spool", tmp_path / "bridge.log"
    bridge = start(broker, folder)
    device.take(100)
    wait_for(lambda: device.upto == 100, what="the mark")
    take_away(folder)
    device.take(200).wait_for_publish(80)
    assert bridge.wait(PATIENCE * 30) == 1
    assert f"{folder} was removed, moved or replaced" in log.read_text()
    assert "Traceback" not in log.read_text()
    if take_away is _replaced:
        assert not (folder / "marks").exists()
    assert device.upto == 100
    bridge = start(broker, folder)
    wait_for(lambda: set(range(101, 301)) <= set(sequences(folder)), what="all the rest")
    end(bridge)


def test_an_idle_bridge_notices_that_its_spool_is_gone(broker, tmp_path):
    bridge = start(broker, tmp_path / "spool")
    shutil.rmtree(tmp_path / "spool")
    assert bridge.wait(PATIENCE * 30) == 1
    assert "was removed, moved or replaced" in (tmp_path / "bridge.log").read_text()
