"""The keys of signed readings: for which boards, and the same on host and board."""

import json

import pytest
from bench import Subscriber
from umqtt_board.flash.steps import flash
from umqtt_board.ota import keys, marks_cli
from umqtt_pipeline.decode.signed import WRONG, TelemetryKeys
from update_kit import board_cli

pytestmark = pytest.mark.usefixtures("home")


def test_host_and_firmware_make_the_same_code(tmp_path):
    from signing import signer
    from telemetry import Packer

    record = keys.Record("g", "oven", "000102030405060708090a0b0c0d0e0f", signs=True)
    made = marks_cli.made([record], marks_cli.TELEMETRY)
    (tmp_path / "keys").write_text(json.dumps(made))
    (tmp_path / "keys").chmod(0o600)
    held = TelemetryKeys(tmp_path / "keys")
    settings = {"telemetry": "signed", "command_key": record.key, "group": "g", "device": "oven"}
    packer = Packer("oven", bytes(8), 1, (("t", "Cel", 2), ("n", None, 0)), signer(settings))
    payload = bytes(packer.view(packer.pack(1, 1, 0, 0, (5, 6))))
    assert held.fault(b"fleet/g/oven/telemetry", payload) is None
    assert held.fault(b"fleet/g/oven/telemetry", payload[:-1] + b"x") == WRONG


def test_only_boards_that_sign_are_in_the_file(tmp_path):
    for device, telemetry in (("a", "signed"), ("b", "plain"), ("c", None)):
        more = {"telemetry": telemetry} if telemetry else {}
        keys.give({"device": device, "group": "g", "broker.host": "h", **more}, device)
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert list(json.loads((tmp_path / "keys").read_text())) == ["fleet/g/a"]
    # Flashed once more without it.
    keys.give({"device": "a", "group": "g", "broker.host": "h"}, "a")
    assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
    assert json.loads((tmp_path / "keys").read_text()) == {}


def sign(record, number=1):
    """(topic, payload) of a reading, packed by the firmware under that key."""
    from signing import signer
    from telemetry import Packer

    settings = {"telemetry": "signed", "command_key": record.key, "group": "g", "device": "oven"}
    packer = Packer("oven", bytes(8), 1, (("t", "Cel", 2),), signer(settings))
    return b"fleet/g/oven/telemetry", bytes(packer.view(packer.pack(number, 1, 0, 0, (5,))))


def test_readings_held_over_a_change_of_keys_stay_the_boards(tmp_path, capsys):
    flat = {"device": "oven", "group": "g", "broker.host": "h", "telemetry": "signed"}
    held = []
    for _ in range(keys.FORMER + 2):
        keys.give(flat, "oven")  # shows no key: it gets another one each time
        held.append(sign(keys.load("g", "oven")))
    record = keys.load("g", "oven")
    assert len(record.former) == keys.FORMER and record.key not in record.former
    for options, good in (([], keys.FORMER + 1), (["--no-former"], 1)):
        capsys.readouterr()
        assert board_cli("telemetry-keys", "--out", tmp_path / "keys", *options) == 0
        assert ("1 of them had other keys" in capsys.readouterr().out) is (good > 1)
        faults = [TelemetryKeys(tmp_path / "keys").fault(*one) for one in held]
        assert faults == [WRONG] * (len(held) - good) + [None] * good
    assert board_cli("mark-keys", "--out", tmp_path / "marks") == 0
    assert isinstance(json.loads((tmp_path / "marks").read_text())["fleet/g/oven"], str)


def test_a_board_with_another_key_delivers_what_it_held(boards, broker, bridge, tmp_path, capsys):
    """The day on which the operator's computer is lost: boards/LOST_COMPUTER.md, steps 4 to 7."""
    flat = {"device": "oven", "group": "g", "broker.host": "127.0.0.1", "telemetry": "signed"}
    key = keys.give(flat, "oven")[0]["command_key"]
    board = boards.make(broker.port, "oven", group="g", command_key=key, confirm="pipeline",
                        marks="signed", telemetry="signed", readings=20)  # fmt: skip
    with Subscriber(broker.port) as seen:
        board.power_on()
        seen.await_readings(20)  # and nobody makes them durable
        assert board_cli("keys", "revoke", "--all") == 0
        flash("unix", port=board.port, keys=keys.for_board)
        assert keys.load("g", "oven").former == [key]
        for name in ("mark", "telemetry"):
            assert board_cli(f"{name}-keys", "--out", tmp_path / name) == 0, capsys.readouterr()
        bridge("--mark-keys", tmp_path / "mark", "--telemetry-keys", tmp_path / "telemetry")
        board.wait_for("all delivered", 60)


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_file_of_keys_is_its_owners_alone(name, tmp_path):
    assert board_cli(name, "--out", tmp_path / "keys") == 0
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
