"""The keys of signed readings: for which boards, and the same on host and board."""

import json

import pytest
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


@pytest.mark.parametrize("name", ["mark-keys", "telemetry-keys"])
def test_a_file_of_keys_is_its_owners_alone(name, tmp_path):
    assert board_cli(name, "--out", tmp_path / "keys") == 0
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o600
