"""The keys of the operator's computer at rest: locked and revoked."""

import json
import os
import pty
import select
import subprocess
import sys

import pytest
from bench import Subscriber
from keys_kit import FLAT, OTHER, WORD, board_file, everything, on_another_computer
from umqtt_board.errors import BoardError
from umqtt_board.flash.steps import flash
from umqtt_board.lock import lock
from umqtt_board.ota import giving, keys
from umqtt_board.ota.reports import hmac_sha256
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("words")


def test_who_sets_no_passphrase_is_told_once_and_keeps_working(capsys):
    said = []
    given, _ = flashed(FLAT, "oven", tell=said.append)
    assert len(said) == 1 and "without a passphrase" in said[0] and "keys lock" in said[0]
    flashed(FLAT, "fridge", tell=said.append)
    assert len(said) == 1
    assert json.loads(board_file("oven").read_text())["key"] == given["command_key"]
    assert board_cli("keys", "list") == 0
    assert "no passphrase" in capsys.readouterr().out


def test_an_empty_passphrase_in_the_environment_means_none(monkeypatch):
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", "")
    said = []
    flashed(FLAT, "oven", tell=said.append)
    assert not said and "key" in json.loads(board_file("oven").read_text())


def test_a_passphrase_from_the_first_key_on(locked, monkeypatch, tmp_path, capsys):
    for key in locked.values():
        assert key.encode() not in everything() and bytes.fromhex(key) not in everything()
    assert {path.stat().st_mode & 0o777 for path in keys.home().rglob("*") if path.is_file()
            and path.name != ".lock"} == {0o600}  # fmt: skip
    lock.forget()
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", OTHER)
    assert board_cli("keys", "list") == 2
    assert "passphrase is wrong" in capsys.readouterr().err
    monkeypatch.delenv("UMQTT_KEYS_PASSPHRASE")
    assert board_cli("keys", "list") == 2
    assert "UMQTT_KEYS_PASSPHRASE_FILE" in capsys.readouterr().err
    (tmp_path / "word").write_text(WORD + "\n")
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE_FILE", str(tmp_path / "word"))
    assert {record.device: record.key for record in keys.every()} == locked
    count = keys.next_count(keys.every())
    assert keys.load("g", "oven").count == count
    assert locked["oven"].encode() not in everything()


def test_a_passphrase_that_is_short_locks_nothing(monkeypatch):
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", "short")
    with pytest.raises(BoardError, match="12 characters"):
        flashed(FLAT, "oven")
    assert not list(keys.home().rglob("*.json"))


@pytest.mark.parametrize("typed, sealed", [(f"{WORD}\n{WORD}\n", True), ("\n", False)])
def test_at_a_terminal_the_first_key_asks_and_enter_goes_without(typed, sealed, tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "umqtt_board", "identity", "--board", "g/a", "--out", "made"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
                          start_new_session=True, env=os.environ) as child:  # fmt: skip
        os.close(theirs)
        said = b""
        for line in typed.splitlines(keepends=True):
            said = read_until(ours, b": ", said)
            os.write(ours, line.encode())
        said = read_until(ours, b"the operator", said)
        assert child.wait(60) == 0
    os.close(ours)
    assert b"Press Enter to go without" in said and WORD.encode() not in said
    assert lock.path(keys.home()).exists() is sealed
    assert (b"ENCRYPTED" in (keys.authorities_folder() / "fleet-1-key.pem").read_bytes()) is sealed


def read_until(terminal, end, said):
    """What was said until a prompt ends so; `said` is what came before. Ends with an error when
    the program does, or says nothing for a minute."""
    new = b""
    while end not in new or (end == b": " and not new.endswith(end)):
        assert select.select([terminal], [], [], 60)[0], said + new
        new += os.read(terminal, 4096)
    return said + new


def test_keys_that_were_open_are_locked_and_unlocked(monkeypatch, capsys, tmp_path):
    key = flashed(FLAT, "oven")[0]["command_key"]
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    private = keys.authorities_folder() / "fleet-1-key.pem"
    assert board_cli("keys", "lock") == 2  # nobody to ask
    assert board_cli("keys", "lock", "--change") == 2
    assert key.encode() in everything()
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert board_cli("keys", "lock") == 0
    assert key.encode() not in everything() and b"ENCRYPTED" in private.read_bytes()
    assert keys.load("g", "oven").key == key
    capsys.readouterr()
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    assert "0 certificates made, 3 kept" in capsys.readouterr().out
    assert board_cli("keys", "unlock") == 0
    assert not lock.path(keys.home()).exists() and b"ENCRYPTED" not in private.read_bytes()
    monkeypatch.delenv("UMQTT_KEYS_PASSPHRASE")
    lock.forget()
    assert keys.load("g", "oven").key == key
    assert board_cli("identity", "--out", tmp_path / "made") == 0


def test_another_passphrase_changes_one_file(locked, monkeypatch, capsys):
    before = board_file("oven").read_bytes()
    monkeypatch.setenv("UMQTT_KEYS_NEW_PASSPHRASE", "short")
    assert board_cli("keys", "lock", "--change") == 2
    monkeypatch.setenv("UMQTT_KEYS_NEW_PASSPHRASE", OTHER)
    assert board_cli("keys", "lock", "--change") == 0
    lock.forget()
    assert board_cli("keys", "list") == 2 and "wrong" in capsys.readouterr().err
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", OTHER)
    assert keys.load("g", "oven").key == locked["oven"]
    said = json.loads(before), json.loads(board_file("oven").read_bytes())
    assert said[0].keys() == said[1].keys() and "key" not in said[1]


def test_a_sealed_key_opens_for_its_own_board_alone(locked):
    said = json.loads(board_file("oven").read_text())
    board_file("fridge").write_text(json.dumps(said | {"device": "fridge"}))
    with pytest.raises(BoardError, match="fridge.json is damaged"):
        keys.load("g", "fridge")
    board_file("oven").write_text(json.dumps(said | {"sealed": said["sealed"][:-8] + "AAAAAAA="}))
    with pytest.raises(BoardError, match="oven.json is damaged"):
        keys.load("g", "oven")


def test_sealed_keys_without_their_lock_are_named(locked):
    lock.path(keys.home()).unlink()
    with pytest.raises(BoardError, match="lock.pem is not there"):
        keys.load("g", "oven")


def test_the_bridge_takes_the_keys_of_a_locked_computer(locked, monkeypatch, tmp_path):
    assert board_cli("mark-keys", "--out", tmp_path / "locked") == 0
    assert board_cli("keys", "unlock") == 0
    assert board_cli("mark-keys", "--out", tmp_path / "open") == 0
    assert (tmp_path / "locked").read_bytes() == (tmp_path / "open").read_bytes()
    assert (tmp_path / "locked").stat().st_mode & 0o777 == 0o600
    topic, mark = b"fleet/g/oven/ack", b'{"upto":1}'
    code = hmac_sha256(hmac_sha256(locked["oven"], b"umqtt marks"), topic + b"\n" + mark)
    assert MarkKeys(tmp_path / "locked").seal(topic, mark) == b'{"upto":1,"code":"%s"}' % (
        code.encode())


def test_what_a_killed_command_has_left_in_clear_goes_away(locked):
    left = board_file("oven").with_name(".oven-abcd.aside")
    left.write_text(json.dumps({"key": locked["oven"]}))
    assert board_cli("keys", "lock") == 0
    assert not left.exists() and locked["oven"].encode() not in everything()


def test_a_second_lock_is_not_put_over_keys_whose_lock_is_lost(locked, capsys):
    lock.path(keys.home()).unlink()
    lock.forget()
    assert board_cli("keys", "lock") == 2
    assert "bring it back from a copy" in capsys.readouterr().err.replace("\n", " ")
    assert not lock.path(keys.home()).exists()


def test_a_lock_that_was_cut_short_says_so(locked, capsys):
    data = json.loads(board_file("oven").read_text())
    data["key"] = locked["oven"]
    del data["sealed"]
    board_file("oven").write_text(json.dumps(data))
    assert board_cli("keys", "list") == 0
    assert "but 1 of them are still in clear" in capsys.readouterr().out
    assert board_cli("keys", "lock") == 0
    assert board_cli("keys", "list") == 0
    assert "in clear" not in capsys.readouterr().out.split("locked.", 1)[1]


def test_a_board_whose_flash_was_cut_is_in_the_list(locked, capsys):
    giving.give(FLAT, "oven")
    assert board_cli("keys", "list") == 0
    assert "g/oven  its last flash has not ended: flash it\n" in capsys.readouterr().out


def test_a_revoked_key_is_given_to_no_board_again(locked, capsys):
    assert board_cli("keys", "revoke") == 2
    # As of a variable of a script that is not set: not the whole group.
    assert board_cli("keys", "revoke", "--group", "g", "--device", "") == 2
    # All of the group, or of all groups?
    assert board_cli("keys", "revoke", "--group", "other", "--all") == 2
    assert board_cli("keys", "revoke", "--device", "oven", "--all") == 2
    assert not any(record.revoked for record in keys.every())
    assert board_cli("keys", "revoke", "--group", "g", "--device", "oven") == 0
    assert board_cli("keys", "list") == 0
    assert "g/oven  revoked: flash it\n" in capsys.readouterr().out
    with pytest.raises(BoardError, match="was revoked"):
        flashed(FLAT | {"command_key": locked["oven"]}, "oven")
    said = []
    after = flashed(FLAT, "oven", locked["oven"], said.append)[0]["command_key"]
    assert after != locked["oven"] and said == ["the key of oven was revoked: it gets a new one"]
    assert flashed(FLAT, "oven", after)[0]["command_key"] == after
    assert keys.load("g", "fridge").key == locked["fridge"]
    assert board_cli("keys", "revoke", "--all") == 0
    assert all(record.revoked for record in keys.every())


def test_lock_and_unlock_say_what_they_have_locked(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", "")
    assert board_cli("identity", "--out", tmp_path / "made", "--board", "g/oven") == 0
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    for command, says in (("lock", "are locked"), ("unlock", "have no passphrase now")):
        capsys.readouterr()
        assert board_cli("keys", command) == 0
        assert f"0 keys of boards and 2 of authorities {says}" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["unlock", "export"])
def test_an_authority_that_is_damaged_stops_nothing_half_way(locked, command, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    path = keys.authorities_folder() / "fleet-1-key.pem"
    path.write_bytes(path.read_bytes()[:60])
    before = everything()
    more = [tmp_path / "copy"] if command == "export" else []
    assert board_cli("keys", command, *more) == 2
    said = capsys.readouterr().err
    assert f"{path} is damaged, or locked with" in said and "remove it and fleet-1.pem," in said
    assert "`umqtt-board keys import`" in said and "deserialize" not in said
    assert everything() == before and not (tmp_path / "copy").exists()


def test_revoked_authorities_sign_nothing_any_more(locked, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made", "--host", "localhost") == 0
    before = {path.name: path.read_bytes() for path in keys.authorities_folder().glob("*.pem")}
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert "broker-ca, fleet-1" in capsys.readouterr().out
    assert not list(keys.authorities_folder().glob("*.pem"))
    assert board_cli("identity", "--out", tmp_path / "new", "--host", "localhost") == 0
    after = {path.name: path.read_bytes() for path in keys.authorities_folder().glob("*.pem")}
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())
    assert (tmp_path / "new" / "broker" / "fleet-ca.pem").read_bytes() == after["fleet-1.pem"]


def test_a_board_obeys_a_locked_key_and_loses_a_revoked_one(
    boards, broker, locked, monkeypatch, capsys
):
    """Flashed, commanded, revoked and flashed again, as it goes without a terminal."""
    board = boards.make(broker.port, "oven", group="g", command_key=locked["oven"])
    board.power_on()
    with Subscriber(broker.port) as seen:
        seen.await_readings(1)
        where = ("--device", "oven", "--group", "g", "--broker", f"127.0.0.1:{broker.port}")
        lock.forget()
        assert board_cli("command", *where, "interval", "2") == 0, capsys.readouterr()
    board.wait_for("interval 2000 ms by command", 10)
    flash("unix", port=board.port, giving=giving)
    assert keys.load("g", "oven").key == locked["oven"]
    assert board_cli("keys", "revoke", "--group", "g", "--device", "oven") == 0
    flash("unix", port=board.port, giving=giving)
    assert keys.load("g", "oven").key != locked["oven"] and not keys.load("g", "oven").revoked
    assert board_cli("command", *where, "interval", "3") == 0, capsys.readouterr()
    board.wait_for("interval 3000 ms by command", 10)
@pytest.mark.parametrize("command", ["lock", "unlock"])
def test_what_was_cut_half_way_opens_and_is_completed(locked, command, tmp_path):
    """The lock is there, and one board's key is in clear, one authority's locked."""
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    keys.put(keys.load("g", "oven"), None)
    private = keys.authorities_folder() / "fleet-1-key.pem"
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    assert locked["oven"].encode() in everything()
    assert {record.device: record.key for record in keys.every()} == locked
    assert board_cli("keys", command) == 0
    assert (locked["oven"].encode() in everything()) is (command == "unlock")
    assert (b"ENCRYPTED" in private.read_bytes()) is (command == "lock")
    assert {record.device: record.key for record in keys.every()} == locked


@pytest.mark.parametrize("word", ["x" * 1024, "a\udcff" * 12])
def test_what_can_be_no_passphrase_is_one_sentence(word, monkeypatch, tmp_path, capsys):
    flashed(FLAT, "oven")
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", word)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", word)
    for words in (["keys", "lock"], ["keys", "export", tmp_path / "copy"]):
        assert board_cli(*words) == 2
        assert "The passphrase of " in capsys.readouterr().err


def test_a_key_of_before_is_as_sealed_as_the_key(locked, monkeypatch, tmp_path):
    keys.revoke(keys.every())
    flashed(FLAT, "oven")
    assert keys.load("g", "oven").former == [locked["oven"]]
    assert locked["oven"].encode() not in everything()
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    assert locked["oven"] not in (tmp_path / "copy").read_text()
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert keys.load("g", "oven").former == [locked["oven"]]
