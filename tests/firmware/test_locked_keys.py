"""The keys of the operator's computer at rest: locked, copied to another computer, revoked."""

import json
import os
import pty
import select
import stat
import subprocess
import sys

import pytest
from bench import Subscriber
from umqtt_board.errors import BoardError
from umqtt_board.flash.steps import flash
from umqtt_board.lock import lock
from umqtt_board.ota import giving, keys
from umqtt_board.ota.reports import hmac_sha256
from umqtt_pipeline.bridge.mark_keys import MarkKeys
from update_kit import board_cli, flashed

WORD = "correct horse battery"
OTHER = "another horse, another battery"
FLAT = {"device": "oven", "group": "g", "broker.host": "10.0.0.2"}


@pytest.fixture(autouse=True)
def words(monkeypatch, home):
    """No passphrase is set, none is remembered."""
    for name in ("KEYS", "KEYS_NEW", "EXPORT"):
        for end in ("", "_FILE"):
            monkeypatch.delenv(f"UMQTT_{name}_PASSPHRASE{end}", raising=False)
    lock.forget()
    yield
    lock.forget()


@pytest.fixture
def locked(monkeypatch):
    """The passphrase is in the environment, and two boards have keys: {name: key}."""
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    return {name: flashed(FLAT | {"device": name}, name)[0]["command_key"]
            for name in ("oven", "fridge")}  # fmt: skip


def everything():
    """All bytes of the files below the folder of the keys."""
    return b"\n".join(path.read_bytes() for path in keys.home().rglob("*") if path.is_file())


def board_file(name):
    return keys.root() / "g" / f"{name}.json"


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


def on_another_computer(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another"))
    monkeypatch.delenv("UMQTT_KEYS_PASSPHRASE", raising=False)
    lock.forget()
    assert not keys.in_use()


def test_a_locked_copy_brings_all_keys_to_a_new_computer(locked, monkeypatch, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    count = keys.next_count(keys.every())
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", "--no-passphrase", copy) == 2
    assert board_cli("keys", "export", copy) == 0
    assert copy.stat().st_mode & 0o777 == 0o600
    assert b"BEGIN PRIVATE KEY" not in copy.read_bytes()
    for key in locked.values():
        assert key.encode() not in copy.read_bytes()
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", OTHER)
    assert board_cli("keys", "import", copy) == 2 and not keys.in_use()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", copy) == 0
    lock.forget()
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert {record.device: (record.key, record.count) for record in keys.every()} == {
        name: (key, count) for name, key in locked.items()}
    capsys.readouterr()
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    assert "0 certificates made, 4 kept" in capsys.readouterr().out


def test_a_copy_of_open_keys_has_a_passphrase_of_its_own(monkeypatch, tmp_path):
    key = flashed(FLAT, "oven")[0]["command_key"]
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 2 and not copy.exists()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "export", copy) == 0
    assert key.encode() not in copy.read_bytes() and key.encode() in everything()
    assert board_cli("keys", "export", "--no-passphrase", tmp_path / "open") == 0
    assert key.encode() in (tmp_path / "open").read_bytes()
    on_another_computer(monkeypatch, tmp_path)
    assert board_cli("keys", "import", tmp_path / "open") == 0
    assert keys.load("g", "oven").key == key and not lock.path(keys.home()).exists()


def test_a_copy_never_takes_a_key_of_this_computer_away(locked, monkeypatch, tmp_path, capsys):
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    keys.revoke([keys.load("g", "fridge")])
    now = flashed(FLAT, "oven")[0]["command_key"]  # erased and flashed again
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert "kept as they are here, for the file has others: g/oven" in capsys.readouterr().out
    assert keys.load("g", "oven").key == now != locked["oven"]
    assert keys.load("g", "fridge").revoked


def test_a_copy_that_comes_late_brings_the_keys_of_readings_that_are_held(
    locked, monkeypatch, tmp_path
):
    """A computer without the copy has flashed the board meanwhile."""
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    on_another_computer(monkeypatch, tmp_path)
    now = flashed(FLAT, "oven")[0]["command_key"]
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    record = keys.load("g", "oven")
    assert (record.key, record.former) == (now, [locked["oven"]])


def open_copy(folder, record):
    """A file of `keys export --no-passphrase` with one board, as anybody may write it."""
    path = folder / "copy"
    path.write_text(json.dumps({"umqtt_keys": 2, "lock": "", "authorities": {},
                                "boards": [keys.packed(record, None)]}))  # fmt: skip
    return path


def test_a_copy_pushes_out_no_key_that_this_computer_has_given(monkeypatch, tmp_path):
    given = [flashed(FLAT, "oven")[0]["command_key"] for _ in range(keys.FORMER)]
    record = keys.load("g", "oven")
    held = record.former
    record.key, record.former = "ee" * 32, [f"{n:064x}" for n in range(4)]
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 0
    record = keys.load("g", "oven")
    assert record.key == given[-1] and record.former == [*held, "ee" * 32]


def test_a_counter_that_would_shut_everybody_out_is_not_taken(monkeypatch, tmp_path, capsys):
    flashed(FLAT, "oven")
    record = keys.load("g", "oven")
    record.device, record.count = "ghost", (1 << 53) - 2
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 2
    assert "the counter of ghost is months ahead" in capsys.readouterr().err
    assert keys.find("g", "ghost") is None
    # One that is here already stops no other board's for good.
    record.count = (1 << 53) - 1
    keys.save(record)
    with pytest.raises(BoardError, match="counter of ghost is at its end"):
        keys.next_count(keys.members("g"))
    keys.revoke([record])
    flashed(FLAT, "ghost")
    assert keys.next_count(keys.members("g")) < 1 << 52


def test_an_open_file_is_not_taken_into_locked_keys_without_a_question(locked, tmp_path, capsys):
    record = keys.load("g", "oven")
    record.device = "new"
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 2
    assert "anybody may have changed it" in capsys.readouterr().err
    assert keys.find("g", "new") is None
    assert board_cli("keys", "import", "--yes", copy) == 0
    assert keys.find("g", "new")


def test_no_copy_brings_a_revoked_authority_back(locked, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made", "--host", "localhost") == 0
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    assert board_cli("keys", "revoke", "--authorities") == 0
    for _ in range(2):
        capsys.readouterr()
        assert board_cli("keys", "import", tmp_path / "copy") == 0
        said = capsys.readouterr().out
        assert "for they were revoked here: broker-ca.pem, fleet-1.pem" in said
        assert not list(keys.authorities_folder().glob("*.pem"))
    assert board_cli("identity", "--out", tmp_path / "new", "--host", "localhost") == 0
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert len(list(keys.authorities_folder().glob("*.pem"))) == 4


@pytest.mark.parametrize("harm", ["key lost", "key damaged", "certificate lost",
                                  "certificate damaged"])
def test_an_authority_comes_back_from_a_copy(locked, harm, tmp_path, capsys):
    made, copy = tmp_path / "made", tmp_path / "copy"
    assert board_cli("identity", "--out", made, "--host", "localhost") == 0
    assert board_cli("keys", "export", copy) == 0
    trusted = (made / "broker" / "fleet-ca.pem").read_bytes()
    path = keys.authorities_folder() / (
        "fleet-1.pem" if harm.startswith("certificate") else "fleet-1-key.pem")
    before = path.read_bytes()
    if harm.endswith("lost"):
        path.unlink()
    else:
        path.write_bytes(before[: len(before) // 2])
    assert board_cli("identity", "--out", made, "--host", "localhost") == 2
    assert "Bring them back from a copy" in capsys.readouterr().err
    assert board_cli("keys", "import", copy) == 0
    assert "1 keys are new here" in capsys.readouterr().out
    assert board_cli("identity", "--out", made, "--host", "localhost") == 0
    assert "0 certificates made" in capsys.readouterr().out
    assert (made / "broker" / "fleet-ca.pem").read_bytes() == trusted


def test_a_copy_puts_no_other_authority_beside_one_without_its_key(locked, monkeypatch, tmp_path):
    made, copy = tmp_path / "made", tmp_path / "copy"
    assert board_cli("identity", "--out", made) == 0
    home = keys.home()
    on_another_computer(monkeypatch, tmp_path)
    flashed(FLAT, "oven")
    assert board_cli("identity", "--out", tmp_path / "other") == 0
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "export", copy) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent))
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    (keys.authorities_folder() / "fleet-1-key.pem").unlink()
    before = (keys.authorities_folder() / "fleet-1.pem").read_bytes()
    assert board_cli("keys", "import", "--yes", copy) == 0
    assert not (keys.authorities_folder() / "fleet-1-key.pem").exists()
    assert (keys.authorities_folder() / "fleet-1.pem").read_bytes() == before


def test_a_copy_with_more_boards_is_not_written_over(locked, tmp_path, monkeypatch, capsys):
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    before = copy.read_bytes()
    on_another_computer(monkeypatch, tmp_path)
    flashed(FLAT, "oven")
    assert board_cli("keys", "export", copy) == 2
    assert "boards that this computer has no key of: g/fridge." in capsys.readouterr().err
    assert copy.read_bytes() == before


def test_a_copy_says_what_was_revoked_and_forgotten(locked, monkeypatch, tmp_path):
    """A third computer takes the new copy, and then the old one."""
    old, new = tmp_path / "old", tmp_path / "new"
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    assert board_cli("keys", "export", old) == 0
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert board_cli("keys", "export", new) == 0
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    for path in (new, old):
        assert board_cli("keys", "import", path) == 0
        assert [record.device for record in keys.members("g")] == ["fridge"]
        assert not list(keys.authorities_folder().glob("*.pem"))
    assert keys.forgotten() == {"g/oven"}


def test_an_authority_that_another_computer_has_revoked_signs_no_more(
        locked, monkeypatch, tmp_path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    stolen = (keys.authorities_folder() / "fleet-1.pem").read_bytes()
    assert board_cli("keys", "export", old) == 0
    assert board_cli("keys", "revoke", "--authorities") == 0
    assert board_cli("identity", "--out", tmp_path / "other") == 0
    other = (keys.authorities_folder() / "fleet-1.pem").read_bytes()
    assert board_cli("keys", "export", new) == 0
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert board_cli("keys", "import", old) == 0
    assert (keys.authorities_folder() / "fleet-1.pem").read_bytes() == stolen
    capsys.readouterr()
    assert board_cli("keys", "import", new) == 0
    assert "other computer has revoked them: broker-ca.pem, fleet-1.pem" in capsys.readouterr().out
    assert (keys.authorities_folder() / "fleet-1.pem").read_bytes() == other
    assert board_cli("identity", "--out", tmp_path / "other") == 0
    assert "0 certificates made" in capsys.readouterr().out


def test_a_computer_takes_the_key_that_another_one_has_given(locked, monkeypatch, tmp_path):
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    on_another_computer(monkeypatch, tmp_path)
    before = flashed(FLAT, "oven")[0]["command_key"]
    count = keys.next_count(keys.members("g"))
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", "--replace", tmp_path / "copy") == 0
    record = keys.load("g", "oven")
    assert (record.key, record.former) == (locked["oven"], [before])
    assert keys.next_count([record]) > count


def test_a_copy_brings_no_forgotten_board_back(locked, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert board_cli("keys", "import", copy) == 0
    assert "for they were forgotten here: g/oven." in capsys.readouterr().out
    assert keys.find("g", "oven") is None
    assert board_cli("keys", "import", "--replace", copy) == 0
    assert keys.load("g", "oven").key == locked["oven"] and not keys.forgotten()
    keys.forget("g", "oven")
    assert board_cli("keys", "export", copy) == 0  # what is forgotten is not missed


def test_what_a_killed_command_has_left_in_clear_goes_away(locked):
    left = board_file("oven").with_name(".oven-abcd.aside")
    left.write_text(json.dumps({"key": locked["oven"]}))
    assert board_cli("keys", "lock") == 0
    assert not left.exists() and locked["oven"].encode() not in everything()


def test_a_copy_brings_a_lost_lock_back(locked, tmp_path, monkeypatch):
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    lock.path(keys.home()).unlink()
    lock.forget()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert keys.load("g", "oven").key == locked["oven"]
    assert locked["oven"].encode() not in everything()


def test_a_second_lock_is_not_put_over_keys_whose_lock_is_lost(locked, capsys):
    lock.path(keys.home()).unlink()
    lock.forget()
    assert board_cli("keys", "lock") == 2
    assert "bring it back from a copy" in capsys.readouterr().err.replace("\n", " ")
    assert not lock.path(keys.home()).exists()


def test_what_is_no_file_is_no_copy(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert board_cli("keys", "import", tmp_path / "pipe") == 2
    assert "is no file" in capsys.readouterr().err
    assert board_cli("mark-keys", "--out", tmp_path / "no" / "keys") == 2
    assert f"there is no folder {tmp_path / 'no'}." in capsys.readouterr().err


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


SHAPES = [
    {"umqtt_keys": 1}, {"lock": None}, {"revoked": 7}, {"forgotten": [["x"]]},
    {"lock": "x"}, {"boards": [{}]}, {"boards": [7]},
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
    assert "Traceback" not in capsys.readouterr().err
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
    assert "is no file of `umqtt-board keys export`" in capsys.readouterr().err
    assert board_cli("keys", "list") == 2
    said = capsys.readouterr()
    assert "g/oven  " in said.out and "is damaged" in said.out and "g/fridge\n" in said.out
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


@pytest.mark.parametrize("word", ["x" * 1024, "a\udcff" * 12])
def test_what_can_be_no_passphrase_is_one_sentence(word, monkeypatch, tmp_path, capsys):
    flashed(FLAT, "oven")
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", word)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", word)
    for words in (["keys", "lock"], ["keys", "export", tmp_path / "copy"]):
        assert board_cli(*words) == 2
        assert "The passphrase of " in capsys.readouterr().err


def test_a_revoked_key_is_given_to_no_board_again(locked, capsys):
    assert board_cli("keys", "revoke") == 2
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


def test_a_board_that_is_gone_is_forgotten(locked, capsys):
    assert board_cli("keys", "forget", "--group", "g", "--device", "lamp") != 0
    assert "no key of g/lamp (known there: fridge, oven)" in capsys.readouterr().out
    assert not keys.forgotten()
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven") != 0  # nobody says yes
    assert keys.load("g", "oven").key == locked["oven"]
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert "g/oven: forgotten" in capsys.readouterr().out
    assert [record.device for record in keys.members("g")] == ["fridge"]
    assert keys.load("g", "fridge").key == locked["fridge"]
    # Who comes back under that name is a new board.
    assert flashed(FLAT, "oven", locked["oven"])[0]["command_key"] != locked["oven"]


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
