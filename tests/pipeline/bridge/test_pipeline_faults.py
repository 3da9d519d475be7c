"""How a connection of the bridge ends, and what an operator is told: what passes is waited for,
what only a human can mend is said and ends it."""

import socket
import ssl
import threading
from contextlib import suppress

import pytest
from brokers import free_port
from certificates import Authority
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from pipeline_kit import run, spawn, wait_for
from umqtt_pipeline import commands, wire
from umqtt_pipeline.bridge import service
from umqtt_pipeline.bridge.connection import Settings, certificates
from umqtt_pipeline.bridge.faults import REBUFFS, Faults, Refused, Untrusted
from umqtt_pipeline.bridge.session_file import SessionFile


def test_two_bridges_with_one_client_id_say_so(broker, tmp_path):
    logs = [tmp_path / name for name in ("a.log", "b.log")]
    for log in logs:
        spawn("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", log.with_suffix(".s"),
              log=log)  # fmt: skip
    wait_for(lambda: any("another client seems to use the client id 'umqtt-bridge'"
                         in log.read_text() for log in logs), 60, "the reason")  # fmt: skip


def test_a_port_without_tls_and_a_peer_that_is_not_there(broker, tmp_path):
    done = run("bridge", "--broker", f"127.0.0.1:{broker.port}", "--spool", tmp_path / "s",
               "--tls", "--peer", "nosuch", timeout=90)  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "if the port has no TLS" in done.stderr and "peer nosuch: nosuch is not" in done.stderr


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """A folder of certificates and keys, good ones and others."""
    folder, mine = tmp_path_factory.mktemp("pems"), Authority("umqtt_min test CA")
    cert, key = mine.issue("me")
    secret = load_pem_private_key(key, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))  # fmt: skip
    files = {"ca": mine.pem, "der": mine.certificate, "cert": cert, "key": key, "secret": secret,
             "other": mine.issue("me")[1], "both": cert + key, "rubbish": b"rubbish", "empty": b"",
             "cut": mine.pem[:99]}  # fmt: skip
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


CERT = ("--cert", "cert", "--key")


@pytest.mark.parametrize("options,words", [
    *((("--ca", name), "--ca") for name in ("der", "rubbish", "empty", "cut", "key", "gone", ".")),
    ((*CERT, "rubbish"), "--key"), ((*CERT, "other"), "--key"), (("--cert", "cert"), "--key"),
    (("--cert", "rubbish"), "--cert"), (("--cert", "gone"), "--cert"),
    ((*CERT, "secret"), "passphrase"), ((*CERT, "gone"), "--key"),
])  # fmt: skip
def test_a_file_of_certificates_that_cannot_be_used_is_no_reason_to_wait(
        pems, tmp_path, monkeypatch, options, words):  # fmt: skip
    """The broker is down: it is not even asked."""
    monkeypatch.chdir(pems)
    monkeypatch.setattr(service.Bridge, "run", lambda self: pytest.fail("it waits for a broker"))
    done = CliRunner().invoke(commands.main, (
        "bridge", "--broker", f"localhost:{free_port()}", "--spool", str(tmp_path / "s"),
        *options))  # fmt: skip
    assert done.exit_code == 2 and words in done.output and options[-1] in done.output
    assert not (tmp_path / "s").exists()


def test_certificates_that_can_be_used(pems):
    for files in ({"ca": "ca"}, {"cert": "cert", "key": "key"}, {"cert": "both"}, {"tls": True}):
        told = {name: str(pems / file) if name != "tls" else file for name, file in files.items()}
        assert certificates(Settings("h", 1, "s", **told)).check_hostname


def serving(answer, first):
    """The port of a server in a thread of its own: it says `answer` to the first line that comes,
    or at once (first), and then waits."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(client,), daemon=True).start()

    def talk(client):
        with suppress(OSError), client:
            said = b"" if first else client.recv(4096)
            while said and b"\n" not in said:
                said = client.recv(4096)  # b"": it has closed
            client.sendall(answer)
            while client.recv(4096):
                pass

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize("known", [True, False])
def test_a_broker_that_was_there_once_is_waited_for_behind_a_forwarder(tmp_path, known):
    """That takes each connection, and closes it while the broker is down."""
    closed = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        settings = Settings("127.0.0.1", port, str(tmp_path / "s"), client_id="c",
                            backoff_max=0.05)  # fmt: skip
        if known:
            (tmp_path / "s").mkdir()
            SessionFile(tmp_path / "s", f"127.0.0.1:{port}", "c").keep(["t"])
        made = service.Bridge(settings)

        def serve():
            while len(closed) < 2 * REBUFFS:
                peer, _ = server.accept()
                peer.recv(1000)
                peer.close()
                closed.append(peer)
            made.stop()

        threading.Thread(target=serve, daemon=True).start()
        if known:
            made.run()
            assert len(closed) == 2 * REBUFFS
        else:
            with pytest.raises(Refused, match="--wait goes on trying"):
                made.run()


@pytest.mark.parametrize("answer,first,words", [
    (b"HTTP/1.0 400 Bad Request\r\n\r\n", True, "an HTTP server ('HTTP/1.0 400 Bad Request')"),
    (b"HTTP/1.0 200 OK\r\n\r\n", False, "an HTTP server ('HTTP/1.0 200 OK')"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", True, "an SSH server ('SSH-2.0-OpenSSH_9.2')"),
    (b"\x15\x03\x01\x00\x02\x02F", True, "a server that speaks TLS: --tls or --ca FILE"),
    (b"220 mail ready\r\n", True, "a mail or FTP server"),
    (b"\x1b[2Jfoo\n", True, "something that is no MQTT broker, first byte 0x1b,"),
])  # fmt: skip
def test_the_bridge_says_what_answers_where_no_broker_is(tmp_path, answer, first, words):
    """It waited for ever at an HTTP port: the server waits for a line, the bridge for CONNACK."""
    with serving(answer, first) as server:
        settings = Settings("127.0.0.1", server.getsockname()[1], str(tmp_path / "s"),
                            connect_timeout=0.5, backoff_max=0.1)  # fmt: skip
        made = service.Bridge(settings)
        ended = threading.Timer(20, made.stop)
        ended.start()
        with pytest.raises(Refused) as told:
            made.run()
        ended.cancel()
    assert words in str(told.value) and "\x1b" not in str(told.value)


def test_a_broker_that_says_nothing_is_waited_for(tmp_path):
    with serving(b"", False) as server:
        made = service.Bridge(Settings("127.0.0.1", server.getsockname()[1], str(tmp_path / "s"),
                                      connect_timeout=0.2, backoff_max=0.1))  # fmt: skip
        threading.Timer(2, made.stop).start()
        made.run()
    assert "no CONNACK within" in made.state()["last_error"]


def test_the_same_failure_is_told_once_and_every_15_seconds(tmp_path, monkeypatch, caplog):
    """It was a line a second for as long as the broker was down."""
    now, errors = [1000.0], ["refused"] * 5 + ["no route"] + ["refused"] * 2
    made = service.Bridge(Settings("127.0.0.1", 1, str(tmp_path / "s")))
    monkeypatch.setattr("umqtt_pipeline.bridge.service.time.monotonic", lambda: now[0])
    for said in errors:
        made._lost(OSError(said))
        now[0] += 4
    lines = [record.getMessage() for record in caplog.records if "trying again" in record.message]
    told = ["refused", "refused", "no route", "refused"]
    assert [line.split(": ")[-1].split(";")[0] for line in lines] == told


def ends(faults, *errors, unheard=True):
    """What is said of the last of some connections that were lost before they were in use."""
    for error in errors:
        said = faults.lost(error, unheard)
    return said


def alert():
    error = ssl.SSLError(1, "alert")
    error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    return error


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
LATER = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


@pytest.mark.parametrize("error,times,words", [
    (UNKNOWN, 1, "no such name; --wait"), (alert(), 1, "certificate.*--cert"),
    (wire.ProtocolError("x"), 1, "does not speak MQTT 3.1.1: x; if it is the port for TLS"),
    (wire.Closed("gone"), 6, "6 times without CONNACK.*or it wants TLS.*; --wait"),
    (Untrusted("no TLS handshake"), 6, "h:1: no TLS handshake, 6 times; --wait goes on trying"),
    (Refused("h:1 is not trusted"), 1, "^h:1 is not trusted$"),
])  # fmt: skip
def test_what_another_try_does_not_mend_ends_a_bridge_that_was_never_connected(
        error, times, words):
    faults = Faults("h:1", "me", False)
    if times > 1:
        ends(faults, *[error] * (times - 1))
        assert "h:1" in ends(faults, ConnectionRefusedError("down"))  # it counts from there
        ends(faults, *[error] * (times - 1))
    with pytest.raises(Refused, match=words):
        ends(faults, error)
    faults = Faults("h:1", "me", False)
    faults.ready()
    assert "connection lost" in faults.lost(wire.Closed("bye"), False)
    assert "h:1" in ends(faults, *[error] * 10)  # it worked once: it may again


def test_what_may_pass_is_waited_for():
    faults = Faults("h:1", "me", True, wait=True)
    for error in (LATER, UNKNOWN, ConnectionRefusedError("down"), TimeoutError("slow")):
        assert str(error) in ends(faults, *[error] * 20, unheard=False)
    # A load balancer, or ssh -L, takes the connection of whoever comes, and closes it.
    for error in (wire.Closed("closed"), Untrusted("no TLS handshake")):
        assert str(error) in ends(faults, *[error] * 20)


def test_a_client_id_that_another_uses_is_seen_by_the_third_brief_connection(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("umqtt_pipeline.bridge.faults.time.monotonic", lambda: now[0])
    faults = Faults("h:1", "me", False)

    def lived(seconds, error=None):
        faults.ready()
        now[0] += seconds
        return "another client" in faults.lost(error or wire.Closed("bye"), False)

    assert [lived(s) for s in (1, 1, 60, 1, 1)] == [False] * 5
    assert lived(1) and lived(1) and not lived(1, TimeoutError("silent"))
    assert [lived(1), lived(1)] == [False] * 2
    ends(faults, ConnectionRefusedError("the broker is down"))
    assert not lived(1)
