"""The keys of the operator's computer in a copy, and on another computer."""

import json

import pytest
from keys_kit import FLAT, OTHER, WORD, everything, on_another_computer, open_copy
from umqtt_board.errors import BoardError
from umqtt_board.lock import lock
from umqtt_board.ota import counters, keys
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("words")


def test_a_locked_copy_brings_all_keys_to_a_new_computer(locked, monkeypatch, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    count = keys.next_count(keys.every())
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", "--no-passphrase", copy) == 2
    capsys.readouterr()
    assert board_cli("keys", "export", copy) == 0
    assert "copy: keys of 2 boards, and of the authorities of cert" in capsys.readouterr().out
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


def test_a_copy_of_open_keys_has_a_passphrase_of_its_own(monkeypatch, tmp_path, capsys):
    key = flashed(FLAT, "oven")[0]["command_key"]
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 2 and not copy.exists()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "export", copy) == 0
    assert "copy: keys of 1 board\n" in capsys.readouterr().out
    assert key.encode() not in copy.read_bytes() and key.encode() in everything()
    assert board_cli("keys", "export", "--no-passphrase", tmp_path / "open") == 0
    assert key.encode() in (tmp_path / "open").read_bytes()
    on_another_computer(monkeypatch, tmp_path)
    assert board_cli("keys", "import", tmp_path / "open") == 0
    assert keys.load("g", "oven").key == key and not lock.path(keys.home()).exists()


@pytest.mark.parametrize("word", [None, "", OTHER])
def test_an_import_on_a_new_computer_says_which_passphrase_opens_the_keys(
    word, monkeypatch, tmp_path, capsys
):
    """The environment says it, as it does for the first key of a computer; else it is the copy's,
    and a command that does not open the keys says so again."""
    key = flashed(FLAT, "oven")[0]["command_key"]
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    on_another_computer(monkeypatch, tmp_path)
    if word is not None:
        monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", word)
    capsys.readouterr()
    assert board_cli("keys", "import", copy) == 0
    said = capsys.readouterr().out
    assert {None: f"locked: the passphrase of {copy} opens them", "": "have no passphrase",
            OTHER: "locked: the passphrase in UMQTT_KEYS_PASSPHRASE opens them"}[word] in said
    lock.forget()
    if word is None:
        monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", "")
        assert board_cli("keys", "list") == 2
        error = capsys.readouterr().err
        assert "UMQTT_KEYS_PASSPHRASE is empty" in error and "of the copy that" in error
        monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert keys.load("g", "oven").key == key


def test_an_import_with_a_passphrase_that_is_too_short_takes_nothing(
    locked, monkeypatch, tmp_path, capsys
):
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", "short")
    assert board_cli("keys", "import", copy) == 2
    assert "12 characters or more" in capsys.readouterr().err and not keys.in_use()


def test_a_copy_never_takes_a_key_of_this_computer_away(locked, monkeypatch, tmp_path, capsys):
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    keys.revoke([keys.load("g", "fridge")])
    now = flashed(FLAT, "oven")[0]["command_key"]  # erased and flashed again
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    told = capsys.readouterr().out
    assert "for the keys here are of a later flash: g/oven" in told
    assert ", 1 stays as it is here" in told
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
    assert (record.key, record.former, record.others) == (now, [], [locked["oven"]])


@pytest.mark.parametrize("known", [True, False])
def test_the_key_of_the_later_flash_counts(known, locked, monkeypatch, tmp_path, capsys):
    """The computer with the copy has flashed the board since: its bridge signs with that key, and
    this one takes it. Keys of an older version do not say when: then it keeps its own, but writes
    none of them into the files."""
    if not known:
        monkeypatch.setattr(keys.Record, "after", lambda record, other: False)
    marks, readings = tmp_path / "marks", tmp_path / "readings"
    assert board_cli("keys", "export", tmp_path / "old") == 0
    keys.revoke([keys.load("g", "oven")])
    flashed(FLAT | {"telemetry": "signed"}, "oven", locked["oven"])
    assert board_cli("mark-keys", "--out", marks) == 0
    assert board_cli("telemetry-keys", "--no-former", "--out", readings) == 0
    assert board_cli("keys", "export", tmp_path / "new") == 0
    right = marks.read_bytes(), readings.read_bytes()
    assert b"fleet/g/oven" in right[1]
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "old") == 0
    capsys.readouterr()
    assert board_cli("keys", "import", tmp_path / "new") == 0
    said = capsys.readouterr().out
    assert ("the file's keys take the place of those here: g/oven. " in said) is known
    assert ("nothing proves that the file's are later: g/oven. " in said) is not known
    assert board_cli("keys", "import", tmp_path / "old") == 0
    assert (keys.load("g", "oven").key == locked["oven"]) is not known
    for more in (["--no-former"],) if known else ([], ["--no-former"]):
        assert board_cli("mark-keys", "--out", marks) == 0
        assert board_cli("telemetry-keys", *more, "--out", readings) == 0
        assert (marks.read_bytes(), readings.read_bytes()) == right
    assert board_cli("keys", "import", "--replace", tmp_path / "new") == 0
    assert board_cli("mark-keys", "--out", marks) == 0
    assert marks.read_bytes() == right[0]


def test_an_open_copy_takes_no_key_away_by_a_late_time(monkeypatch, tmp_path):
    """Anybody may have written it."""
    key = flashed(FLAT, "oven")[0]["command_key"]
    record = keys.load("g", "oven")
    record.key, record.given = "ee" * 32, record.given + 1000
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 0
    assert keys.load("g", "oven").key == key
    assert board_cli("keys", "import", "--replace", copy) == 0
    assert keys.load("g", "oven").key == "ee" * 32


def test_a_flash_that_has_not_ended_gives_way_to_no_later_one(locked, monkeypatch, tmp_path):
    """The board may have the key by now."""
    flashed(FLAT, "oven")
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    record = keys.load("g", "oven")
    record.given -= 1
    record.change("ee" * 32)
    keys.save(record)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert keys.load("g", "oven").key == "ee" * 32


def test_a_copy_pushes_out_no_key_that_this_computer_has_given(monkeypatch, tmp_path):
    given = [flashed(FLAT, "oven")[0]["command_key"] for _ in range(keys.FORMER)]
    record = keys.load("g", "oven")
    held = record.former
    record.key, record.former = "ee" * 32, [f"{n:064x}" for n in range(4)]
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 0
    record = keys.load("g", "oven")
    assert (record.key, record.former) == (given[-1], held)
    assert record.others == ["ee" * 32, *(f"{n:064x}" for n in range(4))]


def test_a_counter_that_would_shut_everybody_out_is_not_taken(monkeypatch, tmp_path, capsys):
    flashed(FLAT, "oven")
    record = keys.load("g", "oven")
    record.device, record.count = "ghost", (1 << 53) - 2
    copy = open_copy(tmp_path, record)
    assert board_cli("keys", "import", copy) == 0
    assert "without their counters, which are a month ahead of this computer's clock: g/ghost" in (
        capsys.readouterr().out)
    assert not counters.ahead(keys.find("g", "ghost").count)
    # One that is here already stops no other board's for good.
    record.count = (1 << 53) - 1
    keys.save(record)
    with pytest.raises(BoardError, match="counter of ghost is at its end"):
        keys.next_count(keys.members("g"))
    keys.revoke([record])
    flashed(FLAT, "ghost")
    assert keys.next_count(keys.members("g")) < 1 << 52


def flashed_since(record, monkeypatch, tmp_path):
    """The Record comes to another computer as it is; here its board is flashed with another key,
    and the copy of that is returned, with the key."""
    keys.save(record)
    assert board_cli("keys", "export", tmp_path / "before") == 0
    keys.revoke([record])
    key = flashed(FLAT, "oven", record.key)[0]["command_key"]
    assert board_cli("keys", "export", tmp_path / "since") == 0
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "before") == 0
    return tmp_path / "since", key


def test_a_counter_months_ahead_does_not_take_the_time_of_the_flash_along(
    locked, monkeypatch, tmp_path, capsys
):
    """The board was commanded by a clock that was months ahead, then flashed with a right one: a
    computer that has imported both copies has the later key."""
    record = keys.load("g", "oven")
    record.count += 400 * 86_400_000
    since, key = flashed_since(record, monkeypatch, tmp_path)
    held = keys.load("g", "oven")
    assert held.given == record.given and not counters.ahead(held.count)
    assert board_cli("keys", "import", since) == 0
    assert "take the place of those here: g/oven" in capsys.readouterr().out
    assert keys.load("g", "oven").key == key


@pytest.mark.parametrize("days", [20, 100])
def test_the_key_of_a_flash_is_later_than_that_of_a_clock_that_was_ahead(
    locked, days, monkeypatch, tmp_path, capsys
):
    """By 20 days, which counters follow, or by months, which say nothing. And the counter of the
    key that was replaced goes with it: the computer whose clock was ahead would shut out all
    others once more."""
    record = keys.load("g", "oven")
    record.given = counters.now() + days * 86_400_000
    record.count = counters.now() + 200 * 86_400_000
    since, key = flashed_since(record, monkeypatch, tmp_path)
    held = keys.load("g", "oven")
    held.given, held.count = record.given, record.count  # as where its clock was so far ahead
    keys.save(held)
    capsys.readouterr()
    assert board_cli("keys", "import", since) == 0
    assert "take the place of those here: g/oven" in capsys.readouterr().out
    taken = keys.load("g", "oven")
    assert taken.key == key and not counters.ahead(taken.count)


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


def test_a_copy_brings_a_lost_lock_back(locked, tmp_path, monkeypatch):
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    lock.path(keys.home()).unlink()
    lock.forget()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert keys.load("g", "oven").key == locked["oven"]
    assert locked["oven"].encode() not in everything()


@pytest.mark.parametrize("harm", [
    lambda data: data[: len(data) // 2], lambda data: b"",
    lambda data: data.replace(data[100:104], b"AAAA"),
])  # fmt: skip
def test_a_copy_brings_a_damaged_lock_back(locked, harm, tmp_path, monkeypatch, capsys):
    path = lock.path(keys.home())
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    path.write_bytes(harm(path.read_bytes()))
    lock.forget()
    assert board_cli("keys", "list") == 2
    assert "`umqtt-board keys import --yes` of your copy brings it back" in capsys.readouterr().err
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 2
    assert "--yes puts the copy's in its place" in capsys.readouterr().err
    assert board_cli("keys", "import", "--yes", tmp_path / "copy") == 0
    lock.forget()
    assert {record.device: record.key for record in keys.every()} == locked
    assert locked["oven"].encode() not in everything()


def test_a_copy_of_other_keys_puts_no_lock_in_the_place_of_one_that_does_not_open(
    locked, tmp_path, monkeypatch
):
    path = lock.path(keys.home())
    home = keys.home().parent
    on_another_computer(monkeypatch, tmp_path)
    monkeypatch.setenv("UMQTT_KEYS_PASSPHRASE", WORD)
    flashed(FLAT, "lamp")
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    path.write_bytes(path.read_bytes()[:100])
    lock.forget()
    assert board_cli("keys", "import", "--yes", tmp_path / "copy") == 2
    assert len(path.read_bytes()) == 100 and keys.files()


def test_what_comes_to_locked_authorities_alone_is_locked(locked, tmp_path, monkeypatch):
    """Boards and lock are lost, and the authorities are there."""
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    lock.path(keys.home()).unlink()
    for path in keys.files():
        path.unlink()
    lock.forget()
    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    lock.forget()
    assert {record.device: record.key for record in keys.every()} == locked
    assert locked["oven"].encode() not in everything()


def test_a_file_of_keys_forgets_the_time_of_a_clock_that_was_ahead(tmp_path):
    """Else no later flash would ever count as later than that one."""
    flashed(FLAT | {"device": "oven"}, "oven")
    out = tmp_path / "marks.json"
    assert board_cli("mark-keys", "--out", out) == 0
    right = json.loads(out.read_text())
    ahead = right | {"given": {"fleet/g/oven": counters.now() + 10 * 365 * 86_400_000}}
    out.write_text(json.dumps(ahead))
    assert board_cli("mark-keys", "--out", out) == 0
    assert json.loads(out.read_text()) == right
