"""A board that is gone for good: no copy and no other computer brings it back."""

import json
import shutil

import pytest
from keys_kit import FLAT, WORD, keys_in, on_another_computer
from umqtt_board.errors import BoardError
from umqtt_board.ota import forgotten, giving, keys
from update_kit import board_cli, flashed

pytestmark = pytest.mark.usefixtures("words")


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
    assert forgotten.names() == {"g/oven"}


def test_a_copy_brings_no_forgotten_board_back(locked, tmp_path, capsys):
    copy = tmp_path / "copy"
    assert board_cli("keys", "export", copy) == 0
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert board_cli("keys", "import", copy) == 0
    assert "for they were forgotten here: g/oven." in capsys.readouterr().out
    assert keys.find("g", "oven") is None
    assert board_cli("keys", "import", "--replace", copy) == 0
    assert keys.load("g", "oven").key == locked["oven"] and not forgotten.names()
    forgotten.forget("g", "oven")
    assert board_cli("keys", "export", copy) == 0  # what is forgotten is not missed


def test_a_board_that_is_gone_is_forgotten(locked, capsys):
    assert board_cli("keys", "forget", "--group", "g", "--device", "lamp") != 0
    assert "no key of g/lamp (known there: fridge, oven)" in capsys.readouterr().out
    assert not forgotten.names()
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven") != 0  # nobody says yes
    assert keys.load("g", "oven").key == locked["oven"]
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0
    assert "g/oven: forgotten" in capsys.readouterr().out
    assert [record.device for record in keys.members("g")] == ["fridge"]
    assert keys.load("g", "fridge").key == locked["fridge"]
    # Who comes back under that name is a new board.
    assert flashed(FLAT, "oven", locked["oven"])[0]["command_key"] != locked["oven"]


SIGNS = FLAT | {"telemetry": "signed"}


@pytest.fixture
def two(monkeypatch, tmp_path):
    """Two computers with the same key of g/oven, and one of g/fridge: function that goes to one of
    them, "B" or "C"."""

    def go(name):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))

    monkeypatch.setenv("UMQTT_EXPORT_PASSPHRASE", WORD)
    go("B")
    for name in ("oven", "fridge"):
        flashed(SIGNS | {"device": name}, name)
    assert board_cli("keys", "export", tmp_path / "copy") == 0
    go("C")
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    go("B")
    return go


def forget():
    assert board_cli("keys", "forget", "--group", "g", "--device", "oven", "--yes") == 0


def oven_in(path):
    """The keys of the oven in a file of telemetry-keys."""
    return keys_in(path)["fleet/g/oven"]


def test_forgetting_wins_over_the_key_of_another_computer(two, tmp_path, capsys):
    stolen = keys.load("g", "oven").key
    forget()
    assert board_cli("keys", "export", tmp_path / "new") == 0
    assert stolen not in (tmp_path / "new").read_text()
    two("C")
    capsys.readouterr()
    assert board_cli("keys", "import", tmp_path / "new") == 0
    assert "removed, for the other computer has forgotten them: g/oven." in capsys.readouterr().out
    assert keys.find("g", "oven") is None and keys.load("g", "fridge")
    assert board_cli("keys", "import", tmp_path / "copy") == 0
    assert keys.find("g", "oven") is None


def test_a_forgotten_board_that_is_flashed_again_has_its_new_key_alone(two, tmp_path):
    """Whoever has stolen the old key signs nothing, whichever copy is brought in."""
    stolen = keys.load("g", "oven").key
    forget()
    now = flashed(SIGNS, "oven", stolen)[0]["command_key"]
    assert now != stolen
    assert board_cli("keys", "export", tmp_path / "new") == 0
    for computer, copies in (("B", ["copy"]), ("C", ["new", "copy"])):
        two(computer)
        for copy in copies:
            assert board_cli("keys", "import", tmp_path / copy) == 0
        record = keys.load("g", "oven")
        assert (record.key, record.former) == (now, [])
        assert board_cli("telemetry-keys", "--out", tmp_path / "keys") == 0
        assert isinstance(oven_in(tmp_path / "keys"), str)


def test_an_import_says_that_it_ends_former_keys(two, tmp_path, capsys):
    """Each time: what was taken back here would be gone again without a word."""
    flashed(SIGNS, "oven", None)  # another key
    assert board_cli("keys", "export", tmp_path / "with") == 0
    assert board_cli("telemetry-keys", "--no-former", "--out", tmp_path / "keys") == 0
    assert board_cli("keys", "export", tmp_path / "without") == 0
    two("C")
    for copy, told in (("with", False), ("without", True), ("without", False)):
        capsys.readouterr()
        assert board_cli("keys", "import", tmp_path / copy) == 0
        assert ("count no more here, either: g/oven. If" in capsys.readouterr().out) == told
    assert board_cli("telemetry-keys", "--with-former", "--out", tmp_path / "keys") == 0
    capsys.readouterr()
    assert board_cli("keys", "import", tmp_path / "without") == 0
    assert "count no more here, either: g/oven. If" in capsys.readouterr().out


def test_a_file_written_before_a_board_was_forgotten_brings_no_key_of_it_back(two, tmp_path):
    """Though nobody wrote it anew before the board was flashed again."""
    file, stolen = tmp_path / "keys", keys.load("g", "oven").key
    assert board_cli("telemetry-keys", "--out", file) == 0
    forget()
    now = flashed(SIGNS, "oven", stolen)[0]["command_key"]
    for more in ([], ["--no-former"]):
        file.write_text(json.dumps(json.loads(file.read_text()) | {
            "fleet/g/oven": [keys.readings_key(now), keys.readings_key(stolen)]}))  # fmt: skip
        assert board_cli("telemetry-keys", "--out", file, *more) == 0
        assert oven_in(file) == keys.readings_key(now)


def test_a_board_that_comes_back_with_its_old_key_signs_nothing_with_it(two):
    said, stolen = [], keys.load("g", "oven").key
    forget()
    giving.give(SIGNS, "oven", stolen, said.append, signed=stolen)
    assert stolen not in keys.load("g", "oven").former
    assert any("goes to quarantine" in text for text in said), said
    with pytest.raises(BoardError, match="was revoked: take it out"):
        giving.give(SIGNS | {"command_key": stolen}, "oven")


def test_a_file_in_which_a_board_is_forgotten_stays_so_on_another_computer(two, tmp_path, capsys):
    file = tmp_path / "keys"
    forget()
    assert board_cli("telemetry-keys", "--out", file) == 0
    assert oven_in(file) == []
    assert board_cli("keys", "export", tmp_path / "new") == 0
    two("C")
    capsys.readouterr()
    assert board_cli("telemetry-keys", "--out", file) == 0
    said = capsys.readouterr().out
    assert oven_in(file) == [] and "the signed readings of 1 board" in said
    assert "without a key, for another computer has forgotten them: fleet/g/oven." in said
    # A key that it has given since counts as soon as it knows which one was forgotten.
    flashed(SIGNS, "oven")
    assert board_cli("keys", "import", tmp_path / "new") == 0
    assert board_cli("telemetry-keys", "--out", file) == 0
    assert isinstance(oven_in(file), str)


def test_a_forgotten_board_stays_out_of_the_lists_that_another_computer_writes(
    two, tmp_path, capsys
):
    out = tmp_path / "made"
    acl = out / "broker" / "mosquitto.acl"
    assert board_cli("identity", "--out", out) == 0  # the oven has a certificate
    forget()
    assert board_cli("identity", "--out", out) == 0
    authorities = keys.authorities_folder()
    two("C")
    shutil.copytree(authorities, keys.authorities_folder(), dirs_exist_ok=True)
    for more in ((), ("--board", "g/oven")):
        assert board_cli("identity", "--out", out, *more) == 0
        said = capsys.readouterr().out.split("made: ")[-1]
        assert said.count("g/oven") == 1 and "--board" not in said, said
        assert "g/oven is not in the lists, for another computer" in said
        assert "g/oven" not in acl.read_text() and "g/fridge" in acl.read_text()
    flashed(SIGNS, "oven")
    assert board_cli("identity", "--out", out) == 0
    assert "user g/oven" in acl.read_text()


def test_a_forgotten_board_comes_back_into_the_lists_only_if_that_is_meant(
    two, tmp_path, capsys
):
    """Whoever has the lost board's certificate comes back with its name, so nobody is advised to
    do that, and an old command line does not."""
    out = tmp_path / "made"
    acl = out / "broker" / "mosquitto.acl"
    assert board_cli("identity", "--out", out) == 0  # the oven has a certificate
    forget()
    capsys.readouterr()
    assert board_cli("identity", "--out", out) == 0
    said = capsys.readouterr().out
    assert "g/oven was forgotten and is not in the lists" in said and "--board" not in said, said
    before = acl.read_text()
    assert board_cli("identity", "--out", out, "--board", "g/oven", "--board", "g/new") == 2
    said = capsys.readouterr().err
    assert "--board g/oven: it was forgotten" in said and "--yes" in said, said
    assert acl.read_text() == before and "g/oven" not in before
    assert board_cli("identity", "--out", out, "--board", "g/oven", "--yes") == 0
    assert "g/oven was forgotten and is in the lists again" in capsys.readouterr().out
    assert "user g/oven" in acl.read_text()
    flashed(SIGNS, "oven")
    assert board_cli("identity", "--out", out, "--board", "g/oven") == 0
    assert "was forgotten" not in capsys.readouterr().out


def test_the_folder_knows_a_forgotten_board_of_which_this_computer_never_had_a_key(
    two, tmp_path, capsys
):
    out = tmp_path / "made"
    assert board_cli("identity", "--out", out) == 0
    forget()
    assert board_cli("identity", "--out", out) == 0
    authorities = keys.authorities_folder()
    two("D")
    flashed(SIGNS | {"device": "lamp"}, "lamp")
    shutil.copytree(authorities, keys.authorities_folder(), dirs_exist_ok=True)
    capsys.readouterr()
    assert board_cli("identity", "--out", out) == 0
    said = capsys.readouterr().out
    assert "g/oven was forgotten and is not in the lists" in said, said
    assert "--board g/fridge has it in them" in said and "--board g/oven" not in said, said
    assert board_cli("identity", "--out", out, "--board", "g/oven") == 2


def test_a_forgotten_board_can_have_a_certificate_before_its_next_flash(two, tmp_path):
    """Its name comes back as soon as no computer here has the key that is void."""
    forget()
    out = tmp_path / "made"
    assert board_cli("identity", "--out", out, "--board", "g/oven", "--yes") == 0
    assert "user g/oven" in (out / "broker" / "mosquitto.acl").read_text()


def test_a_computer_with_void_keys_alone_writes_lists_without_boards(two, tmp_path, capsys):
    out = tmp_path / "made"
    forget()
    assert board_cli("keys", "forget", "--group", "g", "--device", "fridge", "--yes") == 0
    assert board_cli("identity", "--out", out) == 0
    authorities = keys.authorities_folder()
    two("C")
    shutil.copytree(authorities, keys.authorities_folder(), dirs_exist_ok=True)
    capsys.readouterr()
    assert board_cli("identity", "--out", out) == 0
    said = capsys.readouterr().out
    assert "for 0 boards" in said and said.count("is not in the lists, for another") == 2, said


def test_a_board_that_was_forgotten_without_its_key_is_told_of(two, tmp_path, capsys):
    """The computer that forgets it cannot say which key that was."""
    two("D")
    flashed(SIGNS | {"device": "lamp"}, "lamp")
    forget()
    assert board_cli("keys", "export", tmp_path / "new") == 0
    two("C")
    capsys.readouterr()
    assert board_cli("keys", "import", tmp_path / "new") == 0
    assert "which did not know the keys of here: g/oven." in capsys.readouterr().out
    assert keys.load("g", "oven")


def damaged(raw):
    """The ways in which a short file is damaged: each bit of it, each end, and none of it."""
    for at in range(len(raw)):
        yield raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        yield raw[:at]
    yield b"\xff\xfe\n g/lamp\n\x1b[2J\n"


def test_a_damaged_list_of_forgotten_boards_brings_none_back(two, tmp_path, capsys):
    forget()
    path = keys.root() / "forgotten"
    assert forgotten.names() == {"g/oven"}
    for raw in damaged(path.read_bytes()):
        path.write_bytes(raw)
        with pytest.raises(BoardError, match="forgotten is damaged, the list of boards that were"):
            forgotten.names()
    for command in (["keys", "import", tmp_path / "copy"], ["mark-keys", "--out", tmp_path / "m"],
                    ["identity", "--out", tmp_path / "made"]):  # fmt: skip
        assert board_cli(*command) == 2
        assert "If you cannot, remove it, and import the newest copy" in capsys.readouterr().err
    assert keys.find("g", "oven") is None


def test_a_damaged_list_of_what_is_void_brings_no_board_into_the_lists(two, tmp_path, capsys):
    forget()
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    two("C")
    path = tmp_path / "made" / "forgotten"
    path.write_bytes(path.read_bytes()[:-1])
    assert board_cli("identity", "--out", tmp_path / "made") == 2
    assert "forgotten is damaged, the list of keys that are void." in capsys.readouterr().err


def test_a_damaged_list_of_revoked_authorities_brings_none_back(two, tmp_path, capsys):
    assert board_cli("identity", "--out", tmp_path / "made") == 0
    assert board_cli("keys", "export", tmp_path / "old") == 0
    assert board_cli("keys", "revoke", "--authorities") == 0
    path = keys.authorities_folder() / "revoked"
    for raw in damaged(path.read_bytes()):
        path.write_bytes(raw)
        assert board_cli("keys", "import", tmp_path / "old") == 2
        assert "revoked is damaged, the list of authorities that" in capsys.readouterr().err
        assert not list(keys.authorities_folder().glob("*.pem"))
