"""Waiting for the first acknowledgement ends as soon as the board's log says that it is no use."""

import json
import socket
import ssl
import threading
import time

import pytest
from certificates import Authority
from strict_server import StrictServer
from umqtt_board.errors import BoardError
from umqtt_board.flash import follow, steps

BASE = {"device": "one", "broker.host": "127.0.0.1", "retry.first_ms": 200}


@pytest.fixture
def refusing():
    """Port of a broker that answers every CONNECT with return code 4 [MQTT 3.1.1, table 3.1]."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(b"\x20\x02\x00\x04")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


# The longest wait is beyond the time limit of a test: these end because of what the board says.
def test_a_broker_that_is_not_there_ends_the_waiting(board):
    said = "nothing listens there: start .* see to broker.host and broker.port in settings.toml"
    with pytest.raises(BoardError, match=said):
        steps.flash("unix", board.port, BASE | {"broker.port": 1}, follow_log=True,
                    follow_timeout=3600)  # fmt: skip


def test_a_ca_in_the_settings_means_tls_up_to_the_acknowledgement(board, tmp_path):
    authority = Authority("umqtt_min test CA")
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "chain.pem").write_bytes(b"".join(authority.issue("localhost")))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain.pem")
    settings = tmp_path / "settings.toml"
    with StrictServer(tls=context) as server:
        settings.write_text('device = "one"\n[broker]\nhost = "localhost"\nca = "ca.pem"\n'
                            f"port = {server.port}\n")
        report = steps.flash("unix", board.port, settings, follow_log=True, follow_timeout=60)
        assert report.acknowledged and not server.handshake_errors
        board.cut()


@pytest.mark.parametrize("said, names", [
    ("umqtt: ValueError: invalid cert, next try in 199 ms", ("broker.ca", "broker.cert")),
    ("umqtt: ValueError: invalid key, next try in 54 ms", ("broker.key",)),
    ("umqtt: MQTTException: [22], next try in 54 ms", ("broker.cert", "broker.key")),
])  # fmt: skip
def test_the_settings_of_a_certificate_that_is_wrong_are_named(said, names):
    """Files on the board are not always looked at before: YES=1, or `umqtt-board step start`."""
    verdict = follow.Verdict()
    advice = next(found for found in (verdict.advice(said) for _ in range(9)) if found)
    assert all(name in advice for name in names)


def test_flashing_ends_safe_mode_and_mends_a_damaged_counter(board, put, iotcore, mpremote):
    put(board, "resets.json", '{"row": 9, "power": 3, "crash": 9}')
    put(board, "state.json", '{"count": 12')
    settings = BASE | {"broker.port": iotcore.port, "command_key": "00" * 16}
    before = time.time_ns() // 1_000_000
    report = steps.flash("unix", board.port, settings, follow_log=True, follow_timeout=60)
    assert report.acknowledged and "safe mode" not in board.printed()
    resets = json.loads(mpremote(board, "cat", ":resets.json"))
    assert (resets["row"], resets["power"], resets["crash"]) == (0, 3, 9)
    assert json.loads(mpremote(board, "cat", ":state.json"))["count"] >= before
    assert "damaged" not in board.printed()


def test_a_program_that_crashes_ends_the_waiting_with_what_it_said(
    board, put, mpremote
):
    mpremote(board, "fs", "mkdir", ":sensors")
    put(board, "sensors/bomb.py", "raise RuntimeError('bomb')\n")
    with pytest.raises(BoardError, match="its program has ended.*RuntimeError: bomb"):
        steps.flash("unix", board.port, BASE | {"broker.port": 1, "sensor": "bomb"},
                    follow_log=True, follow_timeout=3600)  # fmt: skip


def test_a_refused_login_ends_the_waiting(board, refusing):
    with pytest.raises(BoardError, match="refuses the login: see to broker.user and broker.pass"):
        steps.flash("unix", board.port, BASE | {"broker.port": refusing}, follow_log=True,
                    follow_timeout=3600)  # fmt: skip


@pytest.fixture
def silent():
    """Port at which connections are accepted and nothing is said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_listener_that_says_nothing_ends_the_waiting(board, silent):
    settings = BASE | {"broker.port": silent, "connect_s": 1}
    with pytest.raises(BoardError, match="what listens there does not answer as an MQTT broker"):
        steps.flash("unix", board.port, settings, follow_log=True, follow_timeout=3600)


@pytest.mark.parametrize("line, times, said", [
    ("umqtt: MQTTException: [4] the broker refuses user name or password: check them, next try "
     "in 3 ms", 1, "refuses the login: see to broker.user and broker.password"),
    ("umqtt: MQTTException: [5] the broker does not authorise this client", 1, "the login"),
    ("umqtt: MQTTException: [2] the broker refuses this client id", 1, "another device ="),
    ("umqtt: MQTTException: [22] the broker closed the connection instead of", 3, "broker.tls"),
    ("umqtt: OSError: [Errno 111] ECONNREFUSED, next try in 185 ms", 2, "nothing listens"),
    ("umqtt: OSError: -2, next try in 3 ms", 2, "that name is not known"),
    ("umqtt: OSError: -202, next try in 3 ms", 2, "that name is not known"),
    ("umqtt: OSError: [addrinfo error -2], next try in 3 ms", 2, "that name is not known"),
    ("umqtt: OSError: [Errno 113] EHOSTUNREACH, next try in 3 ms", 3, "cannot be reached"),
    ("umqtt: MQTTException: [17] no answer in time: see timeout= (no CONNACK), next try in 3 ms",
     2, "does not answer as an MQTT broker: see to broker.host, broker.port"),
    ("umqtt: OSError: 110, next try in 3 ms", 3, "nothing answers at that address"),
    ("umqtt: OSError: [Errno 110] ETIMEDOUT, next try in 3 ms", 3, "nothing answers at that"),
    ("umqtt: ValueError: certificate verify failed, next try", 3, "see to broker.ca"),
    ("umqtt: wifi not joined (status 202), next try in 3 ms", 3, "wifi.ssid and wifi.password"),
    ("umqtt: settings: /settings.json: not JSON", 1, "refuses its settings"),
])  # fmt: skip
def test_lines_that_end_the_waiting(line, times, said):
    verdict = follow.Verdict()
    for _ in range(times - 1):
        assert verdict.advice(line) is None
    assert said in verdict.advice(line)


@pytest.mark.parametrize("line", [
    "umqtt: one boot 1 after hard, epoch ddf77fc7733ba7e3, next number 1, 0 stored",
    "umqtt: connected to h:1883, session new, 1 to send",
    "umqtt: OSError: [Errno 104] ECONNRESET, next try in 185 ms",
    "umqtt: ntp: OSError: [Errno 110] ETIMEDOUT, next try in 1000 ms",
])  # fmt: skip
def test_lines_that_may_come_while_all_goes_well(line):
    verdict = follow.Verdict()
    assert [verdict.advice(line) for _ in range(9)] == [None] * 9
