"""Names that a board reports and those in a tampered copy lead nowhere: no file of this computer
is read or written for them, and none of the board's but the firmware's own."""

import dataclasses
import hashlib
import json
import os

import pytest
from certificates import Authority
from umqtt_board import boards
from umqtt_board.backup import copies, known
from umqtt_board.errors import BoardError
from umqtt_board.ota import keys
from umqtt_board.port import device
from umqtt_board.settings import settings_file

UNIX = boards.load("unix")
SETTINGS = b'{"broker.host":"h"}'
# What a board runs before anybody can ask it for anything: it lists what it likes, and gives
# each of these names a content.
HOSTILE = """
import builtins, io, os, sys
class Name:
    def __init__(self, text):
        self.text = text
    def __radd__(self, other):
        return self.text
class Os:
    def __getattr__(self, name):
        return getattr(os, name)
    def ilistdir(self, folder):
        return [(Name(name), 0x8000) for name in NAMES]
def lie(path, mode="r"):
    return io.BytesIO(b"hostile") if path in NAMES else honest(path, mode)
honest, builtins.open = builtins.open, lie
sys.modules["os"] = Os()
"""


def quiet(*_):
    """No progress."""


def strange(folder):
    """Names that lead out of a folder, or are no names of the firmware's, for one in `folder`."""
    return [
        f"/{folder}/absolute", "/mqtt/../../../dots", "/mqtt/../settings.json", "/mqtt/..",
        "/mqtt/", "C:\\drive", "/C:/drive", "/mqtt/0.0\0", "/MQTT/0.0", "/Settings.json",
        "/mqtt/000.LOG", "/mqtt/" + "9" * 300 + ".0", "/mqtt/\u0661.0", "/main.py", "mqtt/0.0",
        "//mqtt/0.0", "",
    ]  # fmt: skip


def test_no_name_that_a_board_reports_leads_out_of_the_copy(board, put, tmp_path):
    names = [*strange(tmp_path), "/mqtt/0.0", "/mqtt/17.31", "/mqtt/002.log", "/mqtt/0.0"]
    put(board, "settings.json", SETTINGS.decode())
    put(board, "boot.py", f"NAMES = {names!r}\n{HOSTILE}")
    place, said = tmp_path / "copies", []
    place.mkdir()
    before = {path for path in tmp_path.rglob("*")}
    with device.Device(board.port) as one:
        assert copies.waiting_in_files(one) == 0
        copies.backup(one, UNIX, place / "copy", lambda *what: said.append(what[1]), quiet)
    made = {path for path in tmp_path.rglob("*") if place not in path.parents} - before
    assert made == set()
    files = sorted(str(p.relative_to(place)) for p in place.rglob("*") if p.is_file())
    assert files == ["copy/files/mqtt/0.0", "copy/files/mqtt/002.log", "copy/files/mqtt/17.31",
                     "copy/files/settings.json", "copy/journal.img", "copy/manifest.json"]
    told = [line for line in said if line.startswith("not copied: ")]
    assert len(told) == len(strange(tmp_path))
    assert all(line.isascii() and line.isprintable() and len(line) < 150 for line in told)


def copy_with(folder, files):
    """A copy of these files, {path: content}, whole by its manifest."""
    (folder / "files" / "mqtt").mkdir(parents=True)
    for path, data in files.items():
        place = folder / f"files/{path}"
        if "\0" not in path and len(path) < 200 and path not in ("", "/mqtt/..", "/mqtt/"):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    sums = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    manifest = {"board": "unix", "made": "today", "files": sums, "region": None}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.mark.parametrize("number", range(len(strange(""))))
def test_a_copy_with_another_name_in_it_is_refused(tmp_path, number):
    name = strange(tmp_path)[number]
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS, name: b"print('mine now')"})
    with pytest.raises(BoardError, match="is no copy of a board .*is no file that a copy holds"):
        copies.load(copy, UNIX)


@pytest.mark.parametrize("files", [7, "x", ["/settings.json"], {"/settings.json": 7}, None])
def test_a_manifest_of_another_shape_is_refused(tmp_path, files):
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    manifest = json.loads((copy / "manifest.json").read_text())
    for changed in (manifest | {"files": files}, manifest | {"region": 7}, [], 7):
        (copy / "manifest.json").write_text(json.dumps(changed))
        with pytest.raises(BoardError, match="is no copy of a board|is damaged"):
            copies.load(copy, UNIX)
    (copy / "manifest.json").write_text("[" * 200000)
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)


@pytest.mark.parametrize("place", ["files/settings.json", "files", "manifest.json"])
def test_a_copy_follows_no_link(tmp_path, place):
    """What is behind it would go to the board, and from there to whoever holds that."""
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    copies.load(copy, UNIX)
    (copy / place).rename(tmp_path / "secret")
    (copy / place).symlink_to(tmp_path / "secret")
    with pytest.raises(BoardError, match="is no copy of a board .* is a link"):
        copies.load(copy, UNIX)


def test_a_copy_with_what_is_no_plain_file_makes_nobody_wait(tmp_path):
    copy = copy_with(tmp_path / "copy", {"/settings.json": SETTINGS})
    (copy / "files" / "settings.json").unlink()
    os.mkfifo(copy / "files" / "settings.json")
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)
    (copy / "files" / "settings.json").unlink()
    with open(copy / "files" / "settings.json", "wb") as file:
        file.truncate(known.LARGEST + 1)
    with pytest.raises(BoardError, match="is no copy of a board"):
        copies.load(copy, UNIX)


def test_a_certificate_that_a_board_names_is_no_file_of_this_computer(tmp_path):
    mine = tmp_path / "ca.pem"
    mine.write_bytes(Authority("mine").pem)
    there = {"broker.host": "h", "broker.ca": str(mine)}
    assert settings_file.changed(there, {"window": 3})["broker.ca"] == str(mine)
    given = settings_file.changed({"broker.host": "h"}, {"broker.ca": str(mine)})
    assert given["broker.ca"] == mine.read_text()


def test_names_that_differ_only_in_case_share_no_key(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    flat = {"device": "oven", "group": "g", "broker.host": "h"}
    _, count = keys.give(flat, "oven")
    record = keys.load("g", "oven")
    assert dataclasses.asdict(record)["count"] == count
    # As a disk would answer that takes both names for one.
    (keys.root() / "g" / "OVEN.json").symlink_to("oven.json")
    for ask in (lambda: keys.find("g", "OVEN"), lambda: keys.give(flat, "OVEN", record.key)):
        with pytest.raises(BoardError, match="cannot have names that differ only in case"):
            ask()
