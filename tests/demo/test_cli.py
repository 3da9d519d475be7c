"""Bad input: a clear message and exit status 2, before anything is started."""

import fcntl
import http.server
import os
import shutil
import socket
import subprocess
import sys
import threading

import pytest
from umqtt_demo.broker import BrokerError, EmbeddedBroker, check_login, parse_address


def demo(*arguments, out, env=None):
    command = [sys.executable, "-m", "umqtt_demo", "--out", str(out), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120,
                          env={**os.environ, **(env or {})})


@pytest.mark.parametrize("arguments, words", [
    (["--boards", "0"], ["--boards", "from 1 to 16", "BOARDS=3"]),
    (["--boards", "three"], ["--boards", "three", "whole number", "python -m umqtt_demo --help"]),
    (["--readings", "0"], ["--readings", "from 1 to 100000", "READINGS=120"]),
    (["--seed", "x"], ["--seed", "'x': expected a whole number", "SEED=0"]),
    (["--interval-ms", "1"], ["--interval-ms"]),
    (["--fault", "meteor"], ["meteor"]),
    (["--broker", "somewhere"], ["BROKER=somewhere", "HOST:PORT"]),
    (["--broker", "somewhere:99999"], ["BROKER=somewhere:99999", "1..65535"]),
    (["--broker", "embedded:x"], ["embedded:PORT"]),
    (["--broker", "127.0.0.1:1"], ["127.0.0.1:1", "no broker"]),
])
def test_bad_arguments(tmp_path, arguments, words):
    done = demo(*arguments, out=tmp_path / "out")
    assert done.returncode == 2, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_a_port_in_use(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = demo("--broker", "embedded:%d" % port, out=tmp_path / "out")
    assert done.returncode == 2
    assert "port %d" % port in done.stderr and "in use" in done.stderr


def test_a_folder_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    done = demo(out=tmp_path)
    assert done.returncode == 2 and "no demo has made" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_a_file_for_a_folder(tmp_path):
    (tmp_path / "notes.md").write_text("mine")
    done = demo(out=tmp_path / "notes.md")
    assert done.returncode == 2 and "this is a file" in done.stderr
    assert (tmp_path / "notes.md").read_text() == "mine"


def test_a_folder_in_use_by_another_demo(tmp_path):
    with open(tmp_path / ".umqtt-demo", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = demo(out=tmp_path)
    assert done.returncode == 2 and "another demo" in done.stderr


def test_a_broker_that_closes_on_a_wrong_login(tmp_path):
    """What an earlier run has left stays."""
    (tmp_path / "out").mkdir()
    for name in (".umqtt-demo", "report.html"):
        (tmp_path / "out" / name).write_text("")
    with EmbeddedBroker(users={"demo": "right"}) as broker:
        check_login("127.0.0.1", broker.port, "demo", "right")
        done = demo("--broker", broker.address, out=tmp_path / "out",
                    env={"UMQTT_BROKER_USER": "demo", "UMQTT_BROKER_PASSWORD": "wrong"})
    assert done.returncode == 2
    assert "refuses this login" in done.stderr and "wrong" not in done.stderr
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.skipif(not shutil.which("mosquitto"), reason="mosquitto is not installed")
def test_a_broker_that_refuses_in_connack(tmp_path):
    from umqtt_demo.ports import free_port
    from umqtt_demo.procs import Child, wait_until

    port = free_port()
    (tmp_path / "passwords").touch(mode=0o600)
    (tmp_path / "conf").write_text("listener %d 127.0.0.1\nallow_anonymous false\n" % port)
    broker = Child(["mosquitto", "-c", tmp_path / "conf"], tmp_path / "log").start()
    try:
        def refused():
            with pytest.raises(BrokerError) as error:
                check_login("127.0.0.1", port)
            return "no broker" not in str(error.value)

        assert wait_until(refused, 20)
        done = demo("--broker", "127.0.0.1:%d" % port, out=tmp_path / "out")
    finally:
        broker.kill()
    assert done.returncode == 2 and "refused a client without user name" in done.stderr


def test_a_server_that_is_no_broker():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(BrokerError, match="sends no CONNACK"):
            check_login("127.0.0.1", server.getsockname()[1], timeout=1)
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BrokerError, match="no MQTT broker at .*an HTTP server .* answers"):
            check_login("127.0.0.1", server.server_port, timeout=1)
        server.shutdown()


def test_addresses():
    assert parse_address("10.0.0.1:1883") == ("10.0.0.1", 1883)
    assert parse_address("[::1]:1883") == ("::1", 1883)
    for wrong in ("", "host", ":1883", "host:0", "host:65536", "user:word@host:1", "a b:1"):
        with pytest.raises(BrokerError, match="BROKER="):
            parse_address(wrong)


def test_what_a_killed_broker_had_in_memory_is_gone():
    # The demo's main fault: were the broker durable, killing it would show nothing.
    import paho.mqtt.client as paho

    with EmbeddedBroker() as broker:
        for _ in range(2):
            client = paho.Client(paho.CallbackAPIVersion.VERSION2, "p", clean_session=False)
            present = []
            client.on_connect = lambda _c, _u, flags, *_, seen=present: seen.append(
                flags.session_present)
            client.connect("127.0.0.1", broker.port)
            client.loop_start()
            for _ in range(100):
                if present:
                    break
                client._thread.join(0.05)
            client.disconnect()
            client.loop_stop()
            assert present == [False]
            pid = broker.pid
            broker.kill()
            assert not broker.running
            broker.start()
            assert broker.pid != pid
