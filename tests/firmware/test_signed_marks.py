"""Marks of the real bridge, signed; a publisher who may write on .../ack; and a board that heeds
the former alone."""

import json
import os
import subprocess
import sys

import pytest
from bench import Subscriber
from commands import Refused, seal, unseal
from patience import wait_until
from umqtt_board import cli
from umqtt_board.ota import keys, marks_cli
from umqtt_pipeline.bridge.mark_keys import MarkKeys


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def board_cli(*arguments):
    """Run `umqtt-board` in this process; its exit status."""
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return ended.value.code or 0


@pytest.fixture
def bridge(broker, tmp_path):
    """Function that starts a bridge with these arguments; it is killed at the end."""
    begun = []

    def start(*arguments):
        command = [sys.executable, "-m", "umqtt_pipeline", "bridge", "--broker",
                   f"127.0.0.1:{broker.port}", "--spool", str(tmp_path / "spool")]  # fmt: skip
        begun.append(subprocess.Popen([*command, *map(str, arguments)], env=os.environ))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def forged(status):
    """Marks for the board that has said this status: of who may publish, and has other keys."""
    topic = b"fleet/test/b1/ack"
    mark = {"epoch": status["epoch"], "upto": status["store"]["seq"] - 1, "missing": []}
    text = json.dumps(mark).encode()
    yield text
    yield seal(bytes(32), topic, text)
    yield seal(bytes.fromhex(keys.load("test", "b1").key), topic, text)
    yield text[:-1] + b',"code":""}'


def test_a_board_lets_go_of_nothing_but_for_a_mark_of_its_bridge(
    boards, broker, bridge, tmp_path, capsys
):
    flat = {"device": "b1", "group": "test", "broker.host": "127.0.0.1",
            "broker.port": broker.port}  # fmt: skip
    key = keys.give(flat, "b1")[0]["command_key"]
    board = boards.make(broker.port, "b1", command_key=key, confirm="pipeline", marks="signed",
                        report_s=1, readings=30, stall_s=1)  # fmt: skip
    with Subscriber(broker.port) as subscriber:

        def told(condition):
            fitting = [status for status in subscriber.status if "confirm" in status]
            return fitting and condition(fitting[-1]) and fitting[-1]

        board.power_on()
        status = wait_until(lambda: told(lambda said: said["store"]["held"] >= 20), 20, "readings")
        for payload in forged(status):
            subscriber.client.publish("fleet/test/b1/ack", payload, 1, True).wait_for_publish(10)
        status = wait_until(lambda: told(lambda said: said["confirm"]["malformed"] == 4), 20,
                            "four marks refused")  # fmt: skip
        assert status["confirm"]["mark"] == 0 and status["store"]["low"] == 1
        board.wait_for("mark refused: wrong code", 10)
        assert "all delivered" not in board.printed()
        file = tmp_path / "mark-keys.json"
        assert board_cli("mark-keys", "--out", file) == 0
        assert "keys for the marks of 1 boards" in capsys.readouterr().out
        assert file.stat().st_mode & 0o777 == 0o600 and key not in file.read_text()
        bridge("--mark-keys", file)
        board.wait_for("all delivered: 30 readings", 60)


def test_host_bridge_and_firmware_make_the_same_key_and_code(tmp_path):
    record = keys.Record("g", "oven", "000102030405060708090a0b0c0d0e0f")
    made = marks_cli.made([record], marks_cli.MARKS)
    # As in tests/device/firmware/test_fw_confirm.py.
    assert made == {"fleet/g/oven":
                    "cf887686166c282a979986e5fad218510cbfae5f78f758727a6c1458c9dd43f1"}
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(made))
    file.chmod(0o600)
    topic, mark = b"fleet/g/oven/ack", b'{"epoch":"00","upto":7,"missing":[]}'
    sealed = MarkKeys(file).seal(topic, mark)
    assert unseal(bytes.fromhex(made["fleet/g/oven"]), topic, sealed) == mark
    with pytest.raises(Refused):
        unseal(bytes.fromhex(record.key), topic, sealed)
    assert MarkKeys(file).seal(b"fleet/g/other/ack", mark) == mark


def test_keys_of_all_groups_or_of_one(tmp_path, capsys):
    assert board_cli("mark-keys", "--out", tmp_path / "none.json") == 0
    for group, device in (("g", "a"), ("g", "b"), ("h", "a")):
        keys.give({"device": device, "group": group, "broker.host": "h"}, device)
    for options, names in (((), ["fleet/g/a", "fleet/g/b", "fleet/h/a"]),
                           (("--group", "h"), ["fleet/h/a"])):  # fmt: skip
        file = tmp_path / "keys.json"
        assert board_cli("mark-keys", "--out", file, *options) == 0
        assert sorted(json.loads(file.read_text())) == names
    assert board_cli("mark-keys", "--out", file, "--group", "none") == 2
