"""The keys of signed marks: for which boards, and the same on host, bridge and board."""

import json

import pytest
from commands import Refused, unseal
from keys_kit import keys_in
from umqtt_board.flash.steps import flash
from umqtt_board.ota import giving, keys, marks_cli
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("home")


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
        giving.give({"device": device, "group": group, "broker.host": "h"}, device)
    for options, names in (((), ["fleet/g/a", "fleet/g/b", "fleet/h/a"]),
                           (("--group", "h"), ["fleet/h/a"])):  # fmt: skip
        file = tmp_path / f"keys{len(names)}.json"
        assert board_cli("mark-keys", "--out", file, *options) == 0
        assert sorted(keys_in(file)) == names
    assert board_cli("mark-keys", "--out", file, "--group", "none") == 2


def test_a_computer_with_an_old_key_leaves_the_one_that_another_has_given(
    tmp_path, monkeypatch, capsys
):
    file, flat = tmp_path / "keys", {"group": "g", "device": "oven", "broker.host": "h"}
    flashed(flat, "oven")
    old = keys.load("g", "oven")
    assert board_cli("mark-keys", "--out", file) == 0
    flashed(flat, "oven")  # it knows the key before
    assert board_cli("mark-keys", "--out", file) == 0
    assert "another computer" not in capsys.readouterr().out
    right = keys_in(file)
    assert right == marks_cli.made([keys.load("g", "oven")], marks_cli.MARKS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "elsewhere"))
    with keys.locked():
        keys.save(old)
    assert board_cli("mark-keys", "--out", file) == 0
    said = capsys.readouterr().out
    assert "another computer has given them a key: fleet/g/oven." in said
    assert keys_in(file) == right
    assert board_cli("mark-keys", "--out", file, "--replace") == 0
    assert keys_in(file) == marks_cli.made([old], marks_cli.MARKS)


def test_a_flash_learns_the_key_that_another_computer_has_given(boards, tmp_path):
    """So it knows that the one in the file is older."""
    board = boards.make(1, "oven", group="g", command_key="5c" * 32, marks="signed")
    board.power_on()
    file = tmp_path / "keys"
    file.write_text(json.dumps(marks_cli.made([keys.Record("g", "oven", "5c" * 32)],
                                              marks_cli.MARKS)))  # fmt: skip
    settings = {"broker": {"host": "127.0.0.1", "port": 1}, "device": "oven", "group": "g",
                "marks": "signed"}  # fmt: skip
    flash("unix", port=board.port, settings=settings, giving=giving)
    assert board_cli("mark-keys", "--out", file) == 0
    assert keys_in(file) == marks_cli.made(keys.every(), marks_cli.MARKS)
