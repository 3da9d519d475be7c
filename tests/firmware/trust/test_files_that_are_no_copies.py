"""Files that are no copy of keys, or were changed, or are of another kind: none is taken."""

import errno
import json
import os
import stat

import pytest
from keys_kit import FLAT, WORD, board_file, on_another_computer
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("words")


def test_what_is_no_file_is_no_copy(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert board_cli("keys", "import", tmp_path / "pipe") == 2
    assert "is no file" in capsys.readouterr().err
    assert board_cli("mark-keys", "--out", tmp_path / "no" / "keys") == 2
    assert f"there is no folder {tmp_path / 'no'}." in capsys.readouterr().err


def test_on_a_full_disk_the_file_is_named_and_none_is_left(monkeypatch, tmp_path, capsys):
    """An empty one would stand in the way of the same command."""
    monkeypatch.setattr(os, "fsync", _full)
    path = tmp_path / "s.pem"
    assert board_cli("signing-key", path, "--no-passphrase") == 2
    assert f"{path}: No space left on device: make room" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def _full(handle):
    raise OSError(errno.ENOSPC, "No space left on device")


SHAPES = [
    {"umqtt_keys": 1}, {"lock": None}, {"revoked": 7}, {"forgotten": [["x"]]},
    {"authorities": []}, {"lock": 7},
    {"lock": "x"}, {"boards": [{}]}, {"boards": [7]},
    {"authorities": {"fleet-1.pem": "x", "fleet-1-key.pem": "x"}},
    {"authorities": {"../fleet-1.pem": "x"}}, {"authorities": {"fleet-1.pem": "x"}},
    {"boards": [{"group": "..", "device": "x", "key": "ab" * 32}]},
    {"boards": [{"group": "g", "device": "x", "key": "ab" * 32, "count": "9"}]},
    {"boards": [{"group": "g", "device": "x", "key": "ab" * 32, "count": -1}]},
    {"boards": [{"group": "g", "device": "x", "key": "ab" * 32, "count": 10**30}]},
]  # fmt: skip


@pytest.mark.parametrize("change", SHAPES)
def test_a_file_that_is_no_copy_is_refused(change, monkeypatch, tmp_path, capsys):
    """What has no passphrase has no code that would tell."""
    flashed({**FLAT, "device": "oven"}, "oven")
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", "--no-passphrase", copy) == 0
    copy.write_text(json.dumps(json.loads(copy.read_text()) | change))
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", copy) == 2
    said = capsys.readouterr().err
    for word in ("Traceback", "object", "argument", "umqtt_board.", "PEM file"):  # Python's own
        assert word not in said
    found = {path.name for path in (tmp_path / "another").rglob("*") if path.is_file()}
    assert found <= {".lock", "oven.json"}


@pytest.mark.parametrize("change", [
    lambda said: said["boards"][0]["broker"].update(host="evil.example"),
    lambda said: said["boards"][0].update(count=said["boards"][0]["count"] + 1),
    lambda said: said["boards"][0].update(signs=True),
    lambda said: said.update(boards=said["boards"][1:]),
    lambda said: said.update(lock=""), lambda said: said.pop("code"),
])  # fmt: skip
def test_a_locked_copy_that_somebody_changed_is_refused(
    change, locked, monkeypatch, tmp_path, capsys
):
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    said = json.loads(copy.read_text())
    change(said)
    copy.write_text(json.dumps(said))
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", copy) == 2
    assert "is no file of `umqtt-board keys export`" in capsys.readouterr().err
    assert not list((tmp_path / "another").rglob("*.json"))


def test_nested_without_end_is_one_sentence(tmp_path, capsys):
    flashed({**FLAT, "device": "oven"}, "oven")
    flashed({**FLAT, "device": "fridge"}, "fridge")
    deep = tmp_path / "deep"
    deep.write_text("[" * 200000)
    board_file("oven").write_text("[" * 200000)
    capsys.readouterr()
    assert board_cli("keys", "import", deep) == 2
    said = capsys.readouterr().err
    assert "is no file of `umqtt-board keys export`" in said and "recursion" not in said
    assert board_cli("keys", "list") == 2
    said = capsys.readouterr()
    assert "g/oven  " in said.out and "is damaged" in said.out and "g/fridge\n" in said.out
    assert "recursion" not in said.out
    assert "1 of 2 keys cannot be read" in said.err


@pytest.mark.parametrize("command", ["export", "mark-keys"])
def test_what_is_no_file_is_not_replaced(command, tmp_path, capsys):
    """As root it would be /dev/null for everybody."""
    flashed({**FLAT, "device": "oven"}, "oven")
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    (tmp_path / "file").write_text('{"umqtt_keys": 1}' if command == "export" else "{}")
    link.symlink_to(tmp_path / "file")
    words = ["keys", "export", "--no-passphrase"] if command == "export" else [command, "--out"]
    assert board_cli(*words, pipe) == 2
    assert "is there and is no file" in capsys.readouterr().err
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert board_cli(*words, link) == 0
    assert link.is_symlink() and len((tmp_path / "file").read_text().splitlines()) > 0
    assert (tmp_path / "file").read_text() not in ("{}", '{"umqtt_keys": 1}')


def test_a_file_of_another_kind_is_not_written_over(tmp_path, capsys):
    flashed(FLAT | {"telemetry": "signed"}, "oven")
    copy, marks, readings, settings = (tmp_path / name for name in "cmrs")
    assert board_cli("keys", "export", "--no-passphrase", copy) == 0
    assert board_cli("mark-keys", "--out", marks) == 0
    assert board_cli("telemetry-keys", "--out", readings) == 0
    settings.write_text("[broker]")
    before = {path: path.read_bytes() for path in (copy, marks, readings, settings)}
    for command in (["keys", "export", "--no-passphrase"], ["mark-keys", "--out"],
                    ["telemetry-keys", "--out"]):  # fmt: skip
        wrong = 0
        for path in before:
            capsys.readouterr()
            if board_cli(*command, path):
                wrong += 1
                assert f"{path} is " in capsys.readouterr().err
                assert path.read_bytes() == before[path]
        assert wrong == 3  # and over its own
