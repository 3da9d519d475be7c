"""What a restore asks before it changes settings, certificates or keys of a board."""

import json

import pytest
from certificates import Authority
from keep_kit import backup, change_settings, cli, content, restore
from umqtt_board.errors import BoardError
from umqtt_board.ota import giving, keys


def test_a_restore_asks_before_a_board_comes_to_its_broker_with_another_or_no_certificate(
    used, tmp_path
):
    backup(used, tmp_path / "copy")
    held = json.loads((tmp_path / "copy" / "files" / "settings.json").read_text())
    held["broker.ca"] = Authority("broker").pem.decode()
    (one, key), (_, other) = (Authority(name).issue("kitchen") for name in ("a", "b"))
    for given, why in (
        ({"broker.cert": one.decode(), "broker.key": other.decode()}, "got that of another cert"),
        ({"broker.cert": one.decode(), "broker.key": "rubbish"}, "broker.key: expected PEM text"),
        ({"broker.cert": one.decode(), "broker.key": key.decode()}, "broker.cert, broker.key of"),
    ):
        change_settings(tmp_path / "copy", held | given)
        with pytest.raises(BoardError, match=f"Nothing was changed: .*{why}"):
            restore(used, tmp_path / "copy")


def test_a_restore_says_which_settings_it_changes(used, mpremote, tmp_path):
    copy = tmp_path / "copy"
    backup(used, copy)
    held = json.loads((copy / "files" / "settings.json").read_text())
    change_settings(copy, held | {"broker.host": "evil\x1b[2J", "broker.password": "word-9",
                          "marks": "any", "window": 5})  # fmt: skip
    place = ("--board", "unix", "--folder", str(used.folder))
    before = mpremote(used, "cat", ":settings.json")
    status, said = cli("restore", *place, "--from", str(copy))
    assert status == 2 and ("Nothing was changed: the copy changes broker.host, broker.password, "
                            "window of the board") in said, said  # fmt: skip
    assert mpremote(used, "cat", ":settings.json") == before
    status, said = cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0, said
    assert 'broker.host: "h" becomes "evil' in said and "\x1b" not in said
    assert "broker.password: (secret) becomes another" in said and "word-9" not in said
    assert "window: (default) becomes 5" in said and "marks:" not in said
    assert "device:" not in said
    authority = Authority("umqtt_min test CA")
    cert, key = (pem.decode() for pem in authority.issue("default/two"))
    change_settings(copy, held | {"broker.ca": authority.pem.decode(), "broker.cert": cert,
                          "broker.key": key})  # fmt: skip
    status, said = cli("restore", *place, "--from", str(copy))
    assert status == 2 and "is the certificate of default/two, and this board is default/one" in (
        said)
    # One refusal names all that would have to be allowed; --yes says what it allows.
    assert "; besides, the copy changes broker.ca, broker.cert, broker.host, broker.key, " in said
    status, said = cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0 and "copy changes broker.ca, broker.cert, broker.host, broker.key, " in said
    assert "--yes        broker.cert is the certificate of default/two" in said
    assert "broker.cert: (default) becomes the certificate 'default/two' " in said


def test_settings_with_which_a_board_does_not_start_are_written_only_if_wanted(
    used, mpremote, tmp_path
):
    copy = tmp_path / "copy"
    backup(used, copy)
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    strange = {"broker.host": "h", "device": "\x1b[2Jx/y\ud800", "telemetry": "signed"}
    for settings, why, change in (
        ({"broker.host": 5}, "broker.host: expected a text", 'broker.host: "h" becomes 5'),
        (strange, "device: expected ", 'broker.host: 5 becomes "h"'),
    ):
        change_settings(copy, settings | {"\ud800": 1, "command_key": "5e" * 32})
        before = mpremote(used, "cat", ":settings.json")
        status, said = cli("restore", *place, data=tmp_path)
        assert status == 2 and "Nothing was changed: " in said and "does not start" in said
        assert why in said and mpremote(used, "cat", ":settings.json") == before
        status, said = cli("restore", *place, "--yes", data=tmp_path)
        assert status == 0 and change in said, said
        assert "\x1b" not in said
        # What the operator was told is what the board reads, and a foreign key is not in it.
        written = json.loads(mpremote(used, "cat", ":settings.json"))
        assert written == settings | {"\ud800": 1}


def test_a_board_keeps_its_settings_where_those_of_a_copy_are_damaged(used, mpremote, tmp_path):
    """MicroPython may read what Python does not, and nobody would be told what it says."""
    copy = tmp_path / "copy"
    backup(used, copy)
    before = mpremote(used, "cat", ":settings.json")
    for data in (b"7", b'{"device":"one",,"broker.host":"evil"}', b'{"dev', b"\xff\xfe{"):
        change_settings(copy, data)
        with pytest.raises(BoardError, match="Nothing was changed: the settings .* are damaged"):
            restore(used, copy)
        restore(used, copy, yes=True)
        assert mpremote(used, "cat", ":settings.json") == before


def test_a_copy_takes_no_command_key_away_unasked(used, put, mpremote, tmp_path):
    settings = {"device": "one", "broker.host": "h", "command_key": "5e" * 32}
    put(used, "settings.json", json.dumps(settings))
    put(used, "main.py", "print('main ran')\n")
    copy = tmp_path / "copy"
    backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"commands": False}))
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    status, said = cli("restore", *place, data=tmp_path)
    assert status == 2 and "Nothing was changed: the copy changes command_key of" in said, said
    assert "The board runs on as it was" in said
    assert json.loads(mpremote(used, "cat", ":settings.json")) == settings
    status, said = cli("restore", *place, "--yes", data=tmp_path)
    assert status == 0 and "obeys no command and no update until a flash" in said, said
    assert "command_key" not in json.loads(mpremote(used, "cat", ":settings.json"))


def test_a_board_without_settings_gets_unasked_only_what_this_computer_gave_it(
    board, put, mpremote, tmp_path, monkeypatch
):
    """There is nothing on the board to compare the copy's settings with."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for name in ("one", "two"):
        flat, count = giving.give({"device": name, "broker.host": "h", "marks": "signed",
                                   "broker.user": "u", "broker.password": "word"}, name)
        record = keys.load("default", name)
        record.arrived()
        keys.save(record)
        put(board, "settings.json", json.dumps(flat))
        put(board, "state.json", json.dumps({"count": count + 20 * 86_400_000}))
        backup(board, tmp_path / f"of {name}")
    held = json.loads((tmp_path / "of one" / "files" / "settings.json").read_text())
    mpremote(board, "rm", ":settings.json", ":state.json")
    place = ("--board", "unix", "--folder", str(board.folder), "--from", str(tmp_path / "of one"))
    for change, word in (
        ({"broker.host": "evil"}, "broker.host in the copy is not what this computer gave"),
        ({"marks": "any"}, "marks in the copy is not what this computer gave default/one last"),
        ({"retention": 1, "ntp": "evil"}, "ntp, retention in the copy is not what this computer"),
        ({"readings": 1, "sensor": "mine"}, "readings, sensor in the copy is not what this"),
        ({"readings": 1}, "this computer last gave default/one:\n"),
        ({"readings": 1}, "readings: (default) becomes 1\n"),
        ({"broker.password": "word-9"}, "broker.password in the copy is not what this computer"),
        ({"broker.password": "word-9"}, "broker.password: (secret) becomes another\n"),
        ({"broker.password": ""}, 'broker.password: (secret) becomes ""\n'),
        ({"device": "two"}, "a key that default/two never had on this computer"),
        ({"device": "three"}, "this computer knows none of default/three"),
    ):
        change_settings(tmp_path / "of one", held | change)
        status, said = cli("restore", *place, data=tmp_path)
        assert status == 2 and word in said, said
    change_settings(tmp_path / "of one", held)
    manifest = json.loads((tmp_path / "of one" / "manifest.json").read_text())
    (tmp_path / "of one" / "manifest.json").write_text(json.dumps(manifest | {"commands": False}))
    status, said = cli("restore", *place, data=tmp_path)
    assert status == 2 and "command_key in the copy is not what this computer gave" in said, said
    assert "settings.json" not in mpremote(board, "ls")
    (tmp_path / "of one" / "manifest.json").write_text(json.dumps(manifest))
    status, said = cli("restore", *place, data=tmp_path)
    assert status == 0, said
    written = json.loads(mpremote(board, "cat", ":settings.json"))
    record = keys.load("default", "one")
    assert written == held | {"command_key": record.key}
    # Commands have counters above the one that came back.
    assert json.loads(mpremote(board, "cat", ":state.json"))["count"] == record.count


def test_readings_signed_with_a_key_that_is_not_here_are_told_of(
    used, put, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    signed = {"device": "one", "broker.host": "h", "telemetry": "signed"}
    put(used, "settings.json", json.dumps(signed | {"command_key": "5e" * 32}))
    copy = tmp_path / "copy"
    backup(used, copy)
    assert "5e" * 8 not in (copy / "manifest.json").read_text()
    # Another board, which a computer without that key has flashed.
    key = giving.give(signed, "one")[0]["command_key"]
    put(used, "settings.json", json.dumps(signed | {"command_key": key}))
    before = content(used)
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    status, said = cli("restore", *place)
    assert status == 2 and "a key of one that this computer does not have" in said, said
    assert content(used) == before
    record = keys.load("default", "one")
    record.had("5e" * 32)  # as `keys import` does
    keys.save(record)
    status, said = cli("restore", *place)
    assert status == 0, said


def test_readings_signed_with_the_key_that_the_board_shows_need_no_key_here(
    used, put, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    put(used, "settings.json", json.dumps({"device": "one", "broker.host": "h", "telemetry":
                                           "signed", "command_key": "5e" * 32}))  # fmt: skip
    backup(used, tmp_path / "copy")
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(tmp_path / "copy"))
    status, said = cli("restore", *place)
    assert status == 0 and keys.load("default", "one").former == ["5e" * 32], said
