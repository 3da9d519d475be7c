"""The keys of signed marks: for which boards, and the same on host, bridge and board."""

import json

import pytest
from commands import Refused, unseal
from umqtt_board.ota import giving, keys, marks_cli
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from update_kit import board_cli

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
        assert sorted(json.loads(file.read_text())) == names
    assert board_cli("mark-keys", "--out", file, "--group", "none") == 2
