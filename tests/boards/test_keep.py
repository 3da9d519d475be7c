"""What a board holds is kept over everything: backup, erase, flash, restore."""

import contextlib
import hashlib
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from zlib import crc32

import pytest
from certificates import Authority
from umqtt_board import boards
from umqtt_board.backup import copies, held, journal, restoring
from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.ota import counters, giving, keys
from umqtt_board.port import device
from umqtt_min import FileStore

UNIX = boards.load("unix")
JOURNAL = "import vboard\nvboard.journal.writeblocks(3, b'message' * 100, 0)\nprint(1)"


def _cli(*arguments, data=None):
    done = subprocess.run(
        [sys.executable, "-m", "umqtt_board", *arguments], capture_output=True, text=True,
        timeout=120, env=os.environ | ({"XDG_DATA_HOME": str(data)} if data else {}),
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def used(board, put):
    """A board with settings, counters and a journal."""
    put(board, "settings.json",
        '{"device":"one","broker.host":"h","broker.user":"u","broker.password":"secret-word"}')
    put(board, "state.json", '{"count": 7, "interval_ms": 50, "interval_was": 10000}')
    with device.Device(board.port) as one:
        assert one.value(JOURNAL) == 1
    return board


def _flash(board):
    """The image without what the filesystem does by itself."""
    return board.flash_image.read_bytes()[board.config["filesystem"] :]


def _quiet(*_):
    """No progress."""


def _backup(board, target):
    with device.Device(board.port) as one:
        return copies.backup(one, UNIX, target, _quiet, _quiet)


def _restore(board, source, yes=False):
    with device.Device(board.port) as one:
        restoring.restore(one, UNIX, copies.load(source, UNIX), lambda text: yes, _quiet, _quiet)


def test_backup_erase_restore(used, mpremote, tmp_path):
    before = _flash(used)
    place = ("--board", "unix", "--folder", str(used.folder))
    status, said = _cli("backup", *place, data=tmp_path)
    assert status == 0, said
    (copy,) = (tmp_path / "umqtt_min" / "backups").iterdir()
    assert copy.stat().st_mode & 0o077 == 0
    files = [path for path in copy.rglob("*") if path.is_file()]
    assert len(files) == 4 and all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    status, said = _cli("erase", *place)
    assert status == 2 and "Nothing was erased. Everything on" in said and "YES=1" in said
    assert _flash(used) == before
    status, said = _cli("erase", *place, "--yes")
    assert status == 0 and _flash(used) == b"\xff" * len(before)
    status, said = _cli("restore", *place, "--from", str(copy))
    assert status == 2 and "this computer knows none of default/one" in said, said
    assert "besides, the journal in the copy is none that a board can read" in said
    assert _flash(used) == b"\xff" * len(before)
    status, said = _cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0 and "the board has no firmware: `make flash` brings it" in said, said
    assert _flash(used) == before
    assert "secret-word" not in said + used.printed()
    assert "secret-word" in mpremote(used, "cat", ":settings.json")


def test_a_board_stands_still_after_a_backup_and_runs_after_a_restore(used, put, tmp_path):
    put(used, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    place = ("--board", "unix", "--port", used.port)
    used.reset()
    used.wait_for("main ran")
    mark = len(used.printed())
    status, said = _cli("backup", *place, "--to", str(tmp_path / "copy"))
    assert status == 0 and "stands still at its prompt" in said
    assert "main ran" not in used.printed()[mark:]
    status, said = _cli("restore", *place, "--from", str(tmp_path / "copy"))
    assert status == 0 and "if the board ran on after that" in said and "no firmware" not in said
    used.wait_for("main ran", since=mark)


def test_a_copy_commands_nobody_and_a_restore_brings_the_valid_key(
    used, put, mpremote, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    put(used, "settings.json",
        json.dumps({"device": "one", "broker.host": "h", "command_key": "5e" * 32}))
    copy = tmp_path / "copy"
    assert _backup(used, copy)["commands"]
    held = b"".join(path.read_bytes() for path in copy.rglob("*") if path.is_file())
    assert b"5e" * 16 not in held and b"command_key" not in held
    before, _ = giving.give({"device": "one", "broker.host": "h"}, "one")
    record = keys.load("default", "one")
    record.arrived()
    keys.save(record)
    place = ("--board", "unix", "--folder", str(used.folder))
    status, said = _cli("restore", *place, "--from", str(copy))
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
    _backup(used, tmp_path / "copy")
    assert [path.name for path in tmp_path.glob(".unfinished-*")] == [".unfinished-new"]


def test_a_manifest_that_lacks_something_is_one_sentence(used, tmp_path):
    _backup(used, tmp_path / "copy")
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
    _backup(used, copy)
    data = json.dumps({"count": (1 << 53) - 1, "boot": 3}).encode()
    (copy / "files" / "state.json").write_bytes(data)
    said = json.loads((copy / "manifest.json").read_text())
    said["files"]["/state.json"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(said))
    place = ("--board", "unix", "--folder", str(used.folder))
    status, told = _cli("restore", *place, "--from", str(copy))
    assert status == 0 and "months ahead" in told, told
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7, "boot": 3}


def test_readings_signed_with_a_key_that_is_not_here_are_told_of(
    used, put, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    signed = {"device": "one", "broker.host": "h", "telemetry": "signed"}
    put(used, "settings.json", json.dumps(signed | {"command_key": "5e" * 32}))
    copy = tmp_path / "copy"
    _backup(used, copy)
    assert "5e" * 8 not in (copy / "manifest.json").read_text()
    # Another board, which a computer without that key has flashed.
    key = giving.give(signed, "one")[0]["command_key"]
    put(used, "settings.json", json.dumps(signed | {"command_key": key}))
    before = _flash(used)
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    status, said = _cli("restore", *place)
    assert status == 2 and "a key of one that this computer does not have" in said, said
    assert _flash(used) == before
    record = keys.load("default", "one")
    record.had("5e" * 32)  # as `keys import` does
    keys.save(record)
    status, said = _cli("restore", *place)
    assert status == 0, said


def test_readings_signed_with_the_key_that_the_board_shows_need_no_key_here(
    used, put, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    put(used, "settings.json", json.dumps({"device": "one", "broker.host": "h", "telemetry":
                                           "signed", "command_key": "5e" * 32}))  # fmt: skip
    _backup(used, tmp_path / "copy")
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(tmp_path / "copy"))
    status, said = _cli("restore", *place)
    assert status == 0 and keys.load("default", "one").former == ["5e" * 32], said


def _change(copy, settings):
    """Other settings in a copy that is whole by its manifest, as its thief may leave it. bytes:
    as they are."""
    data = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
    (copy / "files" / "settings.json").write_bytes(data)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"]["/settings.json"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_a_restore_asks_before_a_board_comes_to_its_broker_with_another_or_no_certificate(
    used, tmp_path
):
    _backup(used, tmp_path / "copy")
    held = json.loads((tmp_path / "copy" / "files" / "settings.json").read_text())
    held["broker.ca"] = Authority("broker").pem.decode()
    (one, key), (_, other) = (Authority(name).issue("kitchen") for name in ("a", "b"))
    for given, why in (
        ({"broker.cert": one.decode(), "broker.key": other.decode()}, "got that of another cert"),
        ({"broker.cert": one.decode(), "broker.key": "rubbish"}, "broker.key: expected PEM text"),
        ({"broker.cert": one.decode(), "broker.key": key.decode()}, "broker.cert, broker.key of"),
    ):
        _change(tmp_path / "copy", held | given)
        with pytest.raises(BoardError, match=f"Nothing was changed: .*{why}"):
            _restore(used, tmp_path / "copy")


def test_a_restore_says_which_settings_it_changes(used, mpremote, tmp_path):
    copy = tmp_path / "copy"
    _backup(used, copy)
    held = json.loads((copy / "files" / "settings.json").read_text())
    _change(copy, held | {"broker.host": "evil\x1b[2J", "broker.password": "word-9",
                          "marks": "any", "window": 5})  # fmt: skip
    place = ("--board", "unix", "--folder", str(used.folder))
    before = mpremote(used, "cat", ":settings.json")
    status, said = _cli("restore", *place, "--from", str(copy))
    assert status == 2 and ("Nothing was changed: the copy changes broker.host, broker.password, "
                            "window of the board") in said, said  # fmt: skip
    assert mpremote(used, "cat", ":settings.json") == before
    status, said = _cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0, said
    assert 'broker.host: "h" becomes "evil' in said and "\x1b" not in said
    assert "broker.password: (secret) becomes another" in said and "word-9" not in said
    assert "window: (default) becomes 5" in said and "marks:" not in said
    assert "device:" not in said
    authority = Authority("umqtt_min test CA")
    cert, key = (pem.decode() for pem in authority.issue("default/two"))
    _change(copy, held | {"broker.ca": authority.pem.decode(), "broker.cert": cert,
                          "broker.key": key})  # fmt: skip
    status, said = _cli("restore", *place, "--from", str(copy))
    assert status == 2 and "is the certificate of default/two, and this board is default/one" in (
        said)
    # One refusal names all that would have to be allowed; --yes says what it allows.
    assert "; besides, the copy changes broker.ca, broker.cert, broker.host, broker.key, " in said
    status, said = _cli("restore", *place, "--from", str(copy), "--yes")
    assert status == 0 and "copy changes broker.ca, broker.cert, broker.host, broker.key, " in said
    assert "--yes        broker.cert is the certificate of default/two" in said
    assert "broker.cert: (default) becomes the certificate 'default/two' " in said


def test_settings_with_which_a_board_does_not_start_are_written_only_if_wanted(
    used, mpremote, tmp_path
):
    copy = tmp_path / "copy"
    _backup(used, copy)
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    strange = {"broker.host": "h", "device": "\x1b[2Jx/y\ud800", "telemetry": "signed"}
    for settings, why, change in (
        ({"broker.host": 5}, "broker.host: expected a text", 'broker.host: "h" becomes 5'),
        (strange, "device: expected ", 'broker.host: 5 becomes "h"'),
    ):
        _change(copy, settings | {"\ud800": 1, "command_key": "5e" * 32})
        before = mpremote(used, "cat", ":settings.json")
        status, said = _cli("restore", *place, data=tmp_path)
        assert status == 2 and "Nothing was changed: " in said and "does not start" in said
        assert why in said and mpremote(used, "cat", ":settings.json") == before
        status, said = _cli("restore", *place, "--yes", data=tmp_path)
        assert status == 0 and change in said, said
        assert "\x1b" not in said
        # What the operator was told is what the board reads, and a foreign key is not in it.
        written = json.loads(mpremote(used, "cat", ":settings.json"))
        assert written == settings | {"\ud800": 1}


def test_a_board_keeps_its_settings_where_those_of_a_copy_are_damaged(used, mpremote, tmp_path):
    """MicroPython may read what Python does not, and nobody would be told what it says."""
    copy = tmp_path / "copy"
    _backup(used, copy)
    before = mpremote(used, "cat", ":settings.json")
    for data in (b"7", b'{"device":"one",,"broker.host":"evil"}', b'{"dev', b"\xff\xfe{"):
        _change(copy, data)
        with pytest.raises(BoardError, match="Nothing was changed: the settings .* are damaged"):
            _restore(used, copy)
        _restore(used, copy, yes=True)
        assert mpremote(used, "cat", ":settings.json") == before


def test_a_copy_takes_no_command_key_away_unasked(used, put, mpremote, tmp_path):
    settings = {"device": "one", "broker.host": "h", "command_key": "5e" * 32}
    put(used, "settings.json", json.dumps(settings))
    copy = tmp_path / "copy"
    _backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"commands": False}))
    place = ("--board", "unix", "--folder", str(used.folder), "--from", str(copy))
    status, said = _cli("restore", *place, data=tmp_path)
    assert status == 2 and "Nothing was changed: the copy changes command_key of" in said, said
    assert "The board runs on as it was" in said
    assert json.loads(mpremote(used, "cat", ":settings.json")) == settings
    status, said = _cli("restore", *place, "--yes", data=tmp_path)
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
        _backup(board, tmp_path / f"of {name}")
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
        _change(tmp_path / "of one", held | change)
        status, said = _cli("restore", *place, data=tmp_path)
        assert status == 2 and word in said, said
    _change(tmp_path / "of one", held)
    manifest = json.loads((tmp_path / "of one" / "manifest.json").read_text())
    (tmp_path / "of one" / "manifest.json").write_text(json.dumps(manifest | {"commands": False}))
    status, said = _cli("restore", *place, data=tmp_path)
    assert status == 2 and "command_key in the copy is not what this computer gave" in said, said
    assert "settings.json" not in mpremote(board, "ls")
    (tmp_path / "of one" / "manifest.json").write_text(json.dumps(manifest))
    status, said = _cli("restore", *place, data=tmp_path)
    assert status == 0, said
    written = json.loads(mpremote(board, "cat", ":settings.json"))
    record = keys.load("default", "one")
    assert written == held | {"command_key": record.key}
    # Commands have counters above the one that came back.
    assert json.loads(mpremote(board, "cat", ":state.json"))["count"] == record.count


def test_a_damaged_state_in_a_copy_is_said(used, mpremote, tmp_path):
    copy = tmp_path / "copy"
    _backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "files" / "state.json").write_bytes(b"{")
    manifest["files"]["/state.json"] = hashlib.sha256(b"{").hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    status, said = _cli("restore", "--board", "unix", "--folder", str(used.folder), "--from",
                        str(copy))  # fmt: skip
    assert status == 0 and "the state in the copy is damaged" in said, said
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7}


@pytest.mark.parametrize("where, settings", [
    ("region", None), ("files", None), ("region", b"{,}"), ("region", b""),
])  # fmt: skip
def test_a_journal_that_the_board_cannot_deliver_does_not_come_back_unasked(
    used, tmp_path, where, settings
):
    """Nor beside settings that are damaged or were taken out, when the board keeps its own."""
    copy, folder = tmp_path / "copy", tmp_path / "other"
    _backup(used, copy)
    before = _flash(used)
    manifest = json.loads((copy / "manifest.json").read_text())
    store = FileStore(str(folder), size=manifest["region"]["size"], segment=4096, small=False)
    store.open()
    own = b"fleet/default/one/telemetry"
    for pid, flags, topic in ((1, 2, own), (2, 2, b"fleet/default/two/telemetry"), (3, 4, own),
                              (4, 2, own + b"#"), (0, 2, own), (5, 6, own)):  # fmt: skip
        store.put(pid, flags, topic, b"21.5")
    store.close()
    if settings == b"":
        del manifest["files"]["/settings.json"]
    _put_messages(copy, folder, manifest, where)
    if settings:
        _change(copy, settings)
    with device.Device(used.port) as one, pytest.raises(BoardError, match="4 of 6 messages"):
        restoring.restore(one, UNIX, copies.load(copy, UNIX),
                          lambda text: "no readings of default/one" not in text,
                          _quiet, _quiet)  # fmt: skip
    assert _flash(used) == before


def _three_messages(folder, size):
    store = FileStore(str(folder), size=size, segment=4096, small=False)
    store.open()
    for pid in (1, 2, 3):
        store.put(pid, 2, b"fleet/default/one/telemetry", b"21.5")
    store.close()


@pytest.mark.parametrize("where, store, there, new", [
    ("region", "files", "its journal region", "files"),
    ("files", "auto", "files", "its journal region"), ("region", "auto", "", ""),
])  # fmt: skip
def test_a_board_that_would_not_look_for_its_messages_is_not_restored_unasked(
    used, tmp_path, where, store, there, new
):
    copy, folder = tmp_path / "copy", tmp_path / "three"
    _backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    _three_messages(folder, manifest["region"]["size"])
    _put_messages(copy, folder, manifest, where)
    _change(copy, {"device": "one", "broker.host": "h", "broker.user": "u", "store": store})
    asked = []
    with device.Device(used.port) as one:
        restoring.restore(one, UNIX, copies.load(copy, UNIX),
                          lambda text: asked.append(text) or True, _quiet, _quiet)  # fmt: skip
    said = [text for text in asked if "undelivered" in text]
    assert said == ([] if not there else [
        f'with store = "{store}" the board keeps its readings in {new}: 3 that it and the copy '
        f"hold in {there} stay there, undelivered, until store is "
        f'"{"auto" if new == "files" else "files"}" again'])  # fmt: skip


def test_a_flash_names_a_certificate_that_is_nowhere(used, put):
    put(used, "broker.der", "certificate")
    flat = {"device": "one", "broker.host": "h", "broker.ca": "/broker.der"}
    with device.Device(used.port) as one:
        steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        flat["broker.ca"] = "/identity/broker-ac.pem"
        with pytest.raises(BoardError, match="neither this computer nor the board has broker.ca = "
                                             "/identity/broker-ac.pem"):  # fmt: skip
            steps.refuse_harm(one, UNIX, flat, None, lambda text: False)
        steps.refuse_harm(one, UNIX, flat, None, lambda text: True)


def test_a_new_key_gives_a_counter_up_that_is_months_ahead():
    far = json.dumps({"count": counters.now() + 400 * 86_400_000}).encode()
    assert json.loads(counters.forward(far, b"{}", 9))["count"] > counters.now()
    assert json.loads(counters.forward(far, b"{}", 9, anew=True))["count"] == 9
    assert json.loads(counters.forward(b'{"count": 12}', b"{}", 9, anew=True))["count"] == 12


def test_a_flash_moves_no_store_away_from_its_messages_unasked(used, tmp_path):
    """Other settings alone, and a board that holds nothing where they do not look, are free."""
    there = {"device": "one", "broker.host": "h"}
    files = there | {"store": "files"}
    with device.Device(used.port) as one:
        steps.refuse_harm(one, UNIX, files, there, lambda text: False)
    used.cut()
    size = used.config["journal"]
    _three_messages(tmp_path / "three", size)
    with open(used.flash_image, "r+b") as flash:
        flash.seek(used.config["filesystem"])
        flash.write(journal.load(tmp_path / "three").ljust(size, b"\xff"))
    used.power_on()
    with device.Device(used.port) as one:
        for flat, old in ((files, there), (files, None)):
            with pytest.raises(BoardError, match="3 that it holds in its journal region stay"):
                steps.refuse_harm(one, UNIX, flat, old, lambda text: False)
        steps.refuse_harm(one, UNIX, files, there, lambda text: "undelivered" in text)
        for flat, old in ((files | {"interval_ms": 50}, files), (there, None), (None, there)):
            steps.refuse_harm(one, UNIX, flat, old, lambda text: False)


@pytest.mark.parametrize("boot, seq, confirmed, ok", [
    (3, 101, 100, True), (3, 101, 101, False), (3, 1 << 29, 0, False), (1 << 30, 101, 0, False),
    (3, 101, 500_000, False), (3, 1_000_000, 0, False),
])  # fmt: skip
def test_a_journal_with_numbers_of_no_board_does_not_come_back_unasked(
    used, tmp_path, boot, seq, confirmed, ok
):
    copy = tmp_path / "copy"
    _backup(used, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    head = b"uMqJ" + bytes([1, 12, 16, 0]) + b"an epoch" + struct.pack(
        ">6IHBB", 5, 0, boot, seq, 0, confirmed, 0, 0, 0)  # fmt: skip
    head += struct.pack(">I", crc32(head))
    topic = b"fleet/default/one/telemetry"
    put = b"\x42" + struct.pack(">HIH", 8 + len(topic), 100, len(topic)) + topic + b"\0\x05"
    put += struct.pack(">I", crc32(head[-4:] + struct.pack(">H", len(head)) + put))
    image = (head + put).ljust(manifest["region"]["size"], b"\xff")
    (copy / "journal.img").write_bytes(image)
    manifest["region"]["sha256"] = hashlib.sha256(image).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert 100 in journal.Journal(image).live
    asked = []
    with device.Device(used.port) as one:
        with contextlib.nullcontext() if ok else pytest.raises(BoardError, match="of no board"):
            restoring.restore(one, UNIX, copies.load(copy, UNIX),
                              lambda text: asked.append(text) or len(asked) < 2,
                              _quiet, _quiet)  # fmt: skip
    assert len(asked) == (1 if ok else 2)


def _put_messages(copy, folder, manifest, where):
    """The journal in `folder` comes into a copy, as its region or as files of its store."""
    manifest = {**manifest, "files": dict(manifest["files"])}
    if where == "region":
        image = journal.load(folder).ljust(manifest["region"]["size"], b"\xff")
        manifest["region"] = {"size": len(image), "sha256": hashlib.sha256(image).hexdigest()}
        (copy / "journal.img").write_bytes(image)
    else:
        manifest["region"] = None
        (copy / "files" / "mqtt").mkdir()
        for file in folder.iterdir():
            data = file.read_bytes()
            (copy / "files" / "mqtt" / file.name).write_bytes(data)
            manifest["files"][f"/mqtt/{file.name}"] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_newer_messages_in_files_are_not_replaced_unasked(used, put, mpremote, tmp_path):
    """And none of them stays beside those of the copy, as a part of their journal."""
    copy, folder = tmp_path / "copy", tmp_path / "three"
    flat = {"device": "one", "broker.host": "h", "broker.user": "u", "store": "files"}
    put(used, "settings.json", json.dumps(flat | {"broker.password": "secret-word"}))
    size = used.config["journal"]
    _three_messages(folder, size)
    mpremote(used, "mkdir", ":mqtt")
    for file in folder.iterdir():
        mpremote(used, "cp", str(file), f":mqtt/{file.name}")
    _backup(used, copy)
    _restore(used, copy)  # the same: nothing to ask
    store = FileStore(str(folder), size=size, segment=4096, small=False)
    store.open()
    store.put(4, 2, b"fleet/default/one/telemetry", b"5")
    store.close()
    newer = {file.name: file.read_bytes() for file in folder.iterdir()} | {"9.log": b"more"}
    for name, data in newer.items():
        (folder / name).write_bytes(data)
        mpremote(used, "cp", str(folder / name), f":mqtt/{name}")
    with pytest.raises(BoardError, match="has given the numbers 4 to 4 since"):
        _restore(used, copy)
    _restore(used, copy, yes=True)
    (tmp_path / "again").mkdir()
    _backup(used, tmp_path / "again" / "copy")
    there = tmp_path / "again" / "copy" / "files" / "mqtt"
    assert {file.name: file.read_bytes() for file in there.iterdir()} == {
        file.name: file.read_bytes() for file in (copy / "files" / "mqtt").iterdir()}


def test_newer_messages_are_not_replaced_unasked(used, mpremote, tmp_path):
    _backup(used, tmp_path / "copy")
    code = "import vboard\nvboard.journal.writeblocks(4, b'newer', 0)\nprint(1)"
    mpremote(used, "exec", code)
    before = _flash(used)
    with pytest.raises(BoardError, match="Nothing was changed: the messages .* will be replaced"):
        _restore(used, tmp_path / "copy")
    assert _flash(used) == before
    _restore(used, tmp_path / "copy", yes=True)
    assert _flash(used) != before
    _restore(used, tmp_path / "copy")  # the same already: nothing to ask


def test_a_counter_never_goes_backwards(used, put, mpremote, tmp_path):
    _backup(used, tmp_path / "copy")
    put(used, "state.json", '{"count": 9, "interval_ms": 70, "interval_was": 10000}')
    with pytest.raises(BoardError, match="has the board measure every 50 ms, as if by command"):
        _restore(used, tmp_path / "copy")
    _restore(used, tmp_path / "copy", yes=True)
    there = {"count": 9, "interval_ms": 50, "interval_was": 10000}
    assert json.loads(mpremote(used, "cat", ":state.json")) == there


@pytest.mark.parametrize("wrong", ["-5", '"x"', "1" + 30 * "0"])
def test_an_interval_that_is_none_does_not_come_back(wrong, used, put, mpremote, tmp_path):
    """The board would not heed it: nobody is to be told that it counts."""
    put(used, "state.json", '{"count": 7, "interval_ms": %s, "interval_was": 10000}' % wrong)
    _backup(used, tmp_path / "copy")
    said = []
    with device.Device(used.port) as one:
        restoring.restore(one, UNIX, copies.load(tmp_path / "copy", UNIX), lambda text: True,
                       lambda step, text: said.append(text), _quiet)  # fmt: skip
    assert [text for text in said if "interval_ms" in text] == [
        "the interval_ms in the state of the copy is none that the board heeds, and is left out"]
    assert json.loads(mpremote(used, "cat", ":state.json")) == {"count": 7}


def test_a_restore_that_is_cut_leaves_no_running_program_and_is_done_again(
    used, put, mpremote, tmp_path, monkeypatch
):
    monkeypatch.setattr(device, "ANSWER_S", 2)
    put(used, "main.py", "print('main ran')\n")
    _backup(used, tmp_path / "copy")
    mpremote(used, "exec", "import vboard\nfor n in range(16): vboard.journal.ioctl(6, n)")
    used.cut_after(20)
    used.reset()
    with pytest.raises(BoardError, match="was lost while"):
        _restore(used, tmp_path / "copy", yes=True)
    used.cut_after(None)
    mark = len(used.printed())
    used.power_on()
    used.wait_for(">>> ", since=mark)
    assert "main ran" not in used.printed()[mark:]
    _restore(used, tmp_path / "copy", yes=True)
    used.reset()
    used.wait_for("main ran", since=mark)
    assert _flash(used)[3 * 4096 :].startswith(b"message" * 100)


def test_messages_in_files_are_counted_and_kept(board, mpremote, tmp_path):
    with device.Device(board.port) as one:
        assert held.waiting_in_files(one) == 0
    code = """
import sys
sys.path[:] = [sys.argv[1]]
from umqtt_min.store.files import FileStore
store = FileStore(sys.argv[2])
store.open()
for n in range(3):
    store.put(n + 1, 2, b"topic", b"payload %d" % n)
"""
    script, folder = tmp_path / "fill.py", tmp_path / "mqtt"
    script.write_text(code)
    library = boards.BOARDS.parent / "lib"
    interpreter = Path(sys.executable).with_name("micropython")
    subprocess.run([interpreter, script, library, folder], check=True, timeout=60)
    mpremote(board, "fs", "cp", "-r", str(folder), ":")
    with device.Device(board.port) as one:
        assert held.waiting_in_files(one) == 3
        manifest = copies.backup(one, UNIX, tmp_path / "copy", _quiet, _quiet)
    assert any(path.startswith("/mqtt/") for path in manifest["files"])


def test_a_damaged_copy_is_refused(used, tmp_path):
    copy = tmp_path / "copy"
    _backup(used, copy)
    copies.load(copy, UNIX)
    for name, said in (("files/state.json", "is damaged"), ("journal.img", "is damaged"),
                       ("manifest.json", "is no copy of a board")):  # fmt: skip
        good = (copy / name).read_bytes()
        (copy / name).write_bytes(b"x")
        with pytest.raises(BoardError, match=said):
            copies.load(copy, UNIX)
        (copy / name).write_bytes(good)


def test_a_copy_of_another_board_and_a_folder_that_is_there(used, tmp_path):
    _backup(used, tmp_path / "copy")
    with pytest.raises(BoardError, match="is of BOARD=unix, not esp32"):
        copies.load(tmp_path / "copy", boards.load("esp32"))
    with pytest.raises(BoardError, match="is there already: give the name of a new folder"):
        _backup(used, tmp_path / "copy")
    status, said = _cli("restore", "--from", str(tmp_path / "none"))
    assert status == 2 and "is no copy of a board" in said


def test_a_file_that_cannot_be_read_is_not_taken_for_none(board, mpremote, tmp_path):
    """A copy without it would bring the board back without its counter of commands."""
    mpremote(board, "fs", "mkdir", ":state.json")
    with pytest.raises(BoardError, match="failed while reading /state.json: OSError"):
        _backup(board, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
