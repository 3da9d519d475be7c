"""What a board holds is kept over everything: backup, erase, flash, restore."""

import hashlib
import json
import os
import shutil
import time

import pytest
from keep_kit import UNIX, backup, change_settings, cli, content, quiet, restore
from umqtt_board import boards
from umqtt_board.backup import copies, half, held, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.ota import counters, giving, keys
from umqtt_board.port import device


def test_backup_erase_restore(used, mpremote, tmp_path):
    before = content(used)
    place = ("--board", "unix", "--folder", str(used.folder))
    status, said = cli("backup", *place, data=tmp_path)
    assert status == 0, said
    (copy,) = (tmp_path / "umqtt_min" / "backups").iterdir()
    assert copy.stat().st_mode & 0o077 == 0
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert len(files) == 4 and all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    status, said = cli("erase", *place)
    assert status == 2 and "Nothing was erased. Everything on" in said and "YES=1" in said
    assert content(used) == before
    status, said = cli("erase", *place, "--yes")
    assert status == 0 and content(used) == b"\xff" * len(before)
    status, said = cli("restore", *place, "--from", str(copy))
    assert status == 2 and "this computer knows none of default/one" in said, said
    assert "besides, the journal in the copy is none that a board can read" in said
    assert content(used) == b"\xff" * len(before)
    status, said = cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0 and "the board has no firmware: `make flash` brings it" in said, said
    assert content(used) == before
    assert "secret-word" not in said + used.printed()
    assert "secret-word" in mpremote(used, "cat", ":settings.json")


def test_a_board_stands_still_after_a_backup_and_runs_after_a_restore(used, put, tmp_path):
    put(used, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    place = ("--board", "unix", "--port", used.port)
    used.reset()
    used.wait_for("main ran")
    mark = len(used.printed())
    status, said = cli("backup", *place, "--to", str(tmp_path / "copy"))
    assert status == 0 and "stands still at its prompt" in said
    assert "main ran" not in used.printed()[mark:]
    status, said = cli("restore", *place, "--from", str(tmp_path / "copy"))
    assert status == 0 and "if the board ran on after that" in said and "no firmware" not in said
    used.wait_for("main ran", since=mark)


def test_a_copy_commands_nobody_and_a_restore_brings_the_valid_key(
    used, put, mpremote, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    put(used, "settings.json",
        json.dumps({"device": "one", "broker.host": "h", "command_key": "5e" * 32}))
    copy = tmp_path / "copy"
    assert backup(used, copy)["commands"]
    held = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert b"5e" * 16 not in held and b"command_key" not in held
    before, _ = giving.give({"device": "one", "broker.host": "h"}, "one")
    record = keys.load("default", "one")
    record.arrived()
    keys.save(record)
    place = ("--board", "unix", "--folder", str(used.folder))
    status, said = cli("restore", *place, "--from", str(copy))
    assert status == 0, said
    after = json.loads(mpremote(used, "cat", ":settings.json"))
    assert after["command_key"] == keys.load("default", "one").key
    # The board has not shown the key that this computer had: see giving.give().
    assert after["command_key"] not in ("5e" * 32, before["command_key"])


def test_what_a_killed_backup_has_left_goes_away_after_a_day(used, tmp_path):
    for name, age in (("old", copies.DAY_S + 60), ("new", 60)):
        left = tmp_path / f".unfinished-{name}"
        left.mkdir()
        (left / "settings.json").write_text("secret")
        then = time.time() - age
        os.utime(left, (then, then))
    backup(used, tmp_path / "copy")
    assert [path.name for path in tmp_path.glob(".unfinished-*")] == [".unfinished-new"]


def test_a_manifest_that_lacks_something_is_one_sentence(used, tmp_path):
    backup(used, tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    whole = manifest.read_text()
    form = "it does not have the form that it should have"
    for spoil, why in (
        (lambda said: said.pop("made"), form), (lambda said: said.pop("board"), form),
        (lambda said: said.update(made=7), "when and of which board"),
        (lambda said: said.update(key=None), "the fingerprint of its key"),
        (lambda said: said["region"].pop("size"), form),
        (lambda said: said["region"].update(size="x"), "how large the journal"),
        (lambda said: said.update(region=[1]), form),
    ):  # fmt: skip
        said = json.loads(whole)
        spoil(said)
        manifest.write_text(json.dumps(said))
        with pytest.raises(BoardError, match=f"is no copy of a board .*{why}"):
            copies.load(tmp_path / "copy", UNIX)
    manifest.write_text(whole)
    copies.load(tmp_path / "copy", UNIX)


def test_a_counter_in_a_copy_that_somebody_has_changed_does_not_count(
    used, put, mpremote, tmp_path
):
    """A board that takes it over would obey no command any more."""
    put(used, "settings.json", json.dumps({"device": "one", "broker.host": "h"}))
    put(used, "state.json", json.dumps({"count": 7, "boot": 3}))
    copy = tmp_path / "copy"
    backup(used, copy)
    data = json.dumps({"count": (1 << 53) - 1, "boot": 3}).encode()
    (copy / "files" / "state.json").write_bytes(data)
    said = json.loads((copy / "manifest.json").read_text())
    said["files"]["/state.json"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(said))
    place = ("--board", "unix", "--folder", str(used.folder))
    status, told = cli("restore", *place, "--from", str(copy))
    assert status == 0 and "a month ahead" in told, told
    assert "the board has no firmware" in told and "the board starts" not in told
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7, "boot": 3}


def test_a_damaged_state_in_a_copy_is_said(used, mpremote, tmp_path):
    copy = tmp_path / "copy"
    backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "files" / "state.json").write_bytes(b"{")
    manifest["files"]["/state.json"] = hashlib.sha256(b"{").hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    status, said = cli("restore", "--board", "unix", "--folder", str(used.folder), "--from",
                        str(copy))  # fmt: skip
    assert status == 0 and "the state in the copy is damaged" in said, said
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7}


def test_a_new_key_gives_a_counter_up_that_is_months_ahead():
    far = json.dumps({"count": counters.now() + 400 * 86_400_000}).encode()
    assert json.loads(counters.forward(far, b"{}", 9))["count"] > counters.now()
    assert json.loads(counters.forward(far, b"{}", 9, anew=True))["count"] == 9
    assert json.loads(counters.forward(b'{"count": 12}', b"{}", 9, anew=True))["count"] == 12


def test_a_counter_never_goes_backwards(used, put, mpremote, tmp_path):
    backup(used, tmp_path / "copy")
    put(used, "state.json", '{"count": 9, "interval_ms": 70, "interval_was": 10000}')
    with pytest.raises(BoardError, match="has the board measure every 50 ms, as if by command"):
        restore(used, tmp_path / "copy")
    restore(used, tmp_path / "copy", yes=True)
    there = {"count": 9, "interval_ms": 50, "interval_was": 10000}
    assert json.loads(mpremote(used, "cat", ":state.json")) == there


def test_an_interval_by_command_that_the_settings_have_is_not_asked_about(used, put, tmp_path):
    put(used, "state.json", '{"count": 7, "interval_ms": 10000, "interval_was": 10000}')
    backup(used, tmp_path / "copy")
    put(used, "state.json", '{"count": 7}')
    with device.Device(used.port) as one:
        asked = restoring.Restore(one, UNIX, copies.load(tmp_path / "copy", UNIX), quiet, None)
        assert not [*asked._of_interval()]


@pytest.mark.parametrize("wrong", ["-5", '"x"', "1" + 30 * "0"])
def test_an_interval_that_is_none_does_not_come_back(wrong, used, put, mpremote, tmp_path):
    """The board would not heed it: nobody is to be told that it counts."""
    put(used, "state.json", '{"count": 7, "interval_ms": %s, "interval_was": 10000}' % wrong)
    backup(used, tmp_path / "copy")
    said = []
    with device.Device(used.port) as one:
        restoring.restore(one, UNIX, copies.load(tmp_path / "copy", UNIX), lambda text: True,
                       lambda step, text: said.append(text), quiet)  # fmt: skip
    assert [text for text in said if "interval_ms" in text] == [
        "the interval_ms by command in this copy would change nothing, and is left out"]
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7}


def test_a_restore_that_is_cut_leaves_no_running_program_and_is_done_again(
    used, put, mpremote, tmp_path, monkeypatch
):
    monkeypatch.setattr(device, "ANSWER_S", 2)
    put(used, "main.py", "print('main ran')\n")
    backup(used, tmp_path / "copy")
    mpremote(used, "exec", "import vboard\nfor n in range(16): vboard.journal.ioctl(6, n)")
    used.cut_after(20)
    used.reset()
    with pytest.raises(BoardError, match="was lost while"):
        restore(used, tmp_path / "copy", yes=True)
    used.cut_after(None)
    mark = len(used.printed())
    used.power_on()
    used.wait_for(">>> ", since=mark)
    assert "main ran" not in used.printed()[mark:]
    with device.Device(used.port) as one:
        told = "an earlier restore onto the board was cut"
        with pytest.raises(BoardError, match=f"Nothing was copied: {told}"):
            copies.backup(one, UNIX, tmp_path / "other", quiet, quiet)
        with pytest.raises(BoardError, match=f"{told}.* Run that restore again.*YES=1 .* erases"):
            steps.refuse_half(one)
        assert steps.refuse_half(one, lambda text: told in text)
    shutil.copytree(tmp_path / "copy", tmp_path / "changed")
    change_settings(tmp_path / "changed", {"device": "two", "broker.host": "h"})
    asked = ("an earlier restore of another copy was cut.* It will be erased; .*YES=1.*; besides, "
             f"the copy changes .*The board does not run: {told}")  # fmt: skip
    with pytest.raises(restoring.Refused, match=asked) as refused:
        restore(used, tmp_path / "changed")
    assert not refused.value.runs
    restore(used, tmp_path / "copy")  # nothing is asked: what is there now is nobody's
    used.reset()
    used.wait_for("main ran", since=mark)
    assert content(used)[3 * 4096 :].startswith(b"message" * 100)
    backup(used, tmp_path / "other")


def test_a_copy_without_a_journal_over_half_of_another_one(used, mpremote, tmp_path):
    """It would leave half a journal on the board."""
    backup(used, tmp_path / "copy")
    manifest = tmp_path / "copy" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"region": None}))
    with device.Device(used.port) as one:
        half.begin(one, "another one")
    with pytest.raises(restoring.Refused, match="an earlier restore of another copy was cut"):
        restore(used, tmp_path / "copy")
    assert b"message" in content(used)
    restore(used, tmp_path / "copy", yes=True)
    assert content(used) == b"\xff" * len(content(used))
    backup(used, tmp_path / "other")


def test_half_of_a_copy_that_is_given_up_is_a_board_without_messages(used, mpremote):
    with device.Device(used.port) as one:
        half.begin(one, "a copy")
        assert half.of(one) == "a copy"
        held.give_up(one, UNIX)
        assert half.of(one) is None and held.waiting_in_region(one, UNIX) == 0
    assert content(used) == b"\xff" * len(content(used))


def test_a_board_that_says_it_has_no_journal_region_is_told_of(used, tmp_path, monkeypatch):
    monkeypatch.setattr(copies.verify, "opening", lambda journal: "region = None")
    said = []
    with device.Device(used.port) as one:
        copies.backup(one, UNIX, tmp_path / "copy", lambda *words: said.append(words), quiet)
    assert ("backup", "the board has no journal region, or cannot open it: readings that may be "
                      "there are not in this copy") in said  # fmt: skip


def test_a_damaged_copy_is_refused(used, tmp_path):
    copy = tmp_path / "copy"
    backup(used, copy)
    copies.load(copy, UNIX)
    for name, said in (("files/state.json", "is damaged"), ("journal.img", "is damaged"),
                       ("manifest.json", "is no copy of a board")):  # fmt: skip
        good = (copy / name).read_bytes()
        (copy / name).write_bytes(b"x")
        with pytest.raises(BoardError, match=said):
            copies.load(copy, UNIX)
        (copy / name).write_bytes(good)


def test_a_copy_of_another_board_and_a_folder_that_is_there(used, tmp_path):
    backup(used, tmp_path / "copy")
    with pytest.raises(BoardError, match="is of BOARD=unix, not esp32"):
        copies.load(tmp_path / "copy", boards.load("esp32"))
    with pytest.raises(BoardError, match="is there already: give the name of a new folder"):
        backup(used, tmp_path / "copy")
    status, said = cli("restore", "--from", str(tmp_path / "none"))
    assert status == 2 and "is no copy of a board" in said


def test_a_file_that_cannot_be_read_is_not_taken_for_none(board, mpremote, tmp_path):
    """A copy without it would bring the board back without its counter of commands."""
    mpremote(board, "fs", "mkdir", ":state.json")
    with pytest.raises(BoardError, match="failed while reading /state.json: OSError"):
        backup(board, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
