"""The demonstration itself, small: real boards, broker, bridge and Spark, and real faults."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from patience import PATIENCE
from processes import alive
from umqtt_demo.ports import free_port, listens
from umqtt_demo.procs import Child, descendants, wait_until

DEADLINE_S = PATIENCE * 240


def start(out, *arguments, env=None):
    command = [sys.executable, "-m", "umqtt_demo", "--out", str(out), *arguments]
    # Where the tests run in the background of a shell, SIGINT is ignored in all that they start.
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, **(env or {})},
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def finish(process, out):
    try:
        text, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=60)
        pytest.fail("not done in %d s:\n%s" % (DEADLINE_S, text))
    return text


@pytest.mark.timeout(DEADLINE_S + 90)
def test_every_reading_is_in_the_table_once_whatever_a_hostile_publisher_does(tmp_path):
    out = tmp_path / "demo"
    process = start(out, "--attack", "--boards", "2", "--readings", "20", "--interval-ms", "400",
                    "--seed", "3", "--fault", "board", "--fault", "link", "--fault", "broker")
    text = finish(process, out)
    assert process.returncode == 0, text
    run = json.loads((out / "run.json").read_text())
    verdicts = [device["verdict"] for device in run["devices"]]
    assert [(told["taken"], told["rows"]) for told in verdicts] == [(20, 20), (20, 20)]
    sent = re.search(r"the hostile publisher ends: (\d+) messages", text)
    assert int(sent[1]) > 100 and sum(told["duplicates"] for told in verdicts) > 0
    # A reading may have been cut off on the board that lost its power, and on no other.
    cuts = [sum(o["kind"] == "board" and o["target"] == d["name"] for o in run["outages"])
            for d in run["devices"]]
    assert [told["cuts"] for told in verdicts] == cuts and sorted(cuts) == [0, 2]
    kinds = {outage["kind"] for outage in run["outages"]}
    assert kinds == {"board", "link", "broker", "bridge"}
    assert "Every reading is in the table exactly once" in (out / "report.html").read_text()


@pytest.mark.timeout(DEADLINE_S + 90)
def test_without_the_mark_of_the_pipeline_the_loss_is_seen(tmp_path):
    # The count must be able to fail: here the broker's word is believed, and the broker dies.
    out = tmp_path / "demo"
    process = start(out, "--boards", "1", "--readings", "15", "--interval-ms", "300",
                    "--seed", "1", "--fault", "broker", "--confirm", "broker", "--patience", "30")
    text = finish(process, out)
    assert process.returncode == 1, text
    assert "not in silver" in text
    run = json.loads((out / "run.json").read_text())
    assert run["devices"][0]["verdict"]["missing"]


@pytest.mark.timeout(DEADLINE_S + 90)
@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_whatever_ends_it_no_process_stays(tmp_path, number, status):
    process = start(tmp_path / "demo", "--boards", "1", "--readings", "1000", "--fault", "none")
    events = tmp_path / "demo" / "events.jsonl"
    assert wait_until(lambda: events.exists() and "running" in events.read_text(), DEADLINE_S, 0.2)
    # Broker, bridge, ingest with its JVM, the board and its supervisor, the guard.
    assert wait_until(lambda: len(descendants(process.pid)) >= 7, 60), descendants(process.pid)
    family = descendants(process.pid)
    process.send_signal(number)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == status, text
    assert wait_until(lambda: not any(map(alive, family)), 30), family


@pytest.mark.timeout(DEADLINE_S + 90)
@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
def test_somebody_elses_broker_is_cut_off_and_left_as_it_was(tmp_path):
    port, out = free_port(), tmp_path / "demo"
    (tmp_path / "passwords").touch(mode=0o600)
    subprocess.run(["mosquitto_passwd", "-b", tmp_path / "passwords", "demo", "secret"],
                   check=True)
    (tmp_path / "conf").write_text(
        "listener %d 127.0.0.1\nallow_anonymous false\npassword_file %s\nuser root\n"
        % (port, tmp_path / "passwords"))
    broker = Child(["mosquitto", "-c", tmp_path / "conf"], tmp_path / "log").start()
    try:
        assert wait_until(lambda: listens(port), 60)
        process = start(out, "--boards", "1", "--readings", "15", "--interval-ms", "300",
                        "--seed", "2", "--fault", "broker", "--fault", "bridge",
                        "--broker", "127.0.0.1:%d" % port,
                        env={"UMQTT_BROKER_USER": "demo", "UMQTT_BROKER_PASSWORD": "secret"})
        text = finish(process, out)
        assert process.returncode == 0, text
        assert "not ours to kill" in text and broker.running
        again = "SEED=2 BROKER=127.0.0.1:%d" % port
        assert again in (out / "report.html").read_text()
        assert retained(port, "demo", "secret") == []
    finally:
        broker.kill()


def retained(port, user, password):
    """Topics of the messages that the broker keeps for those who subscribe later."""
    import paho.mqtt.client as paho

    topics, done = [], []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "look")
    client.username_pw_set(user, password)
    client.on_message = lambda _c, _u, message: (done if message.topic == "end" else topics
                                                 ).append(message.topic)
    client.on_connect = lambda *_: client.subscribe([("#", 1)])
    # Retained messages are sent on subscribing: before what is published after SUBACK.
    client.on_subscribe = lambda *_: client.publish("end", b"", qos=1)
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert wait_until(lambda: done, 20)
    client.disconnect()
    client.loop_stop()
    return topics
