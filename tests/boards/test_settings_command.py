"""`umqtt-board settings`: the file that a newcomer flashes a board with."""

import os
import stat
import sys
import tomllib
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from umqtt_board import cli
from umqtt_board.errors import BoardError
from umqtt_board.settings import settings_cli, settings_file


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments, said=""):
    """What `umqtt-board settings` prints; raises what it raises."""
    done = CliRunner().invoke(settings_cli.settings, arguments, input=said,
                              standalone_mode=False)  # fmt: skip
    if done.exception:
        raise done.exception
    return done.output


def test_it_promises_exactly_once_unless_told_otherwise(folder):
    said = command("--broker", "10.0.0.2:1884", "--wifi", "Büro", "--device", "oven")
    flat = settings_file.gather(folder / "settings.toml", {})
    assert flat["confirm"] == "pipeline" and "exactly once" in said
    assert (flat["broker.host"], flat["broker.port"]) == ("10.0.0.2", 1884)
    assert (flat["wifi.ssid"], flat["device"]) == ("Büro", "oven")
    said = command("other.toml", "--broker", "b", "--confirm", "broker")
    assert settings_file.gather(folder / "other.toml", {})["confirm"] == "broker"
    assert "loses with its memory is lost" in said


def test_a_broker_that_is_none_is_asked_for_again_at_once(folder, monkeypatch):
    """All answers had been taken before the first was looked at."""
    monkeypatch.setattr(settings_cli, "sys", SimpleNamespace(stdin=SimpleNamespace(
        isatty=lambda: True)))  # fmt: skip
    said = command(said="http://x y\n10.0.0.9:1885\n\n\n")
    flat = settings_file.gather(folder / "settings.toml", {})
    assert (flat["broker.host"], flat["broker.port"]) == ("10.0.0.9", 1885)
    assert said.index("expected HOST or HOST:PORT") < said.index("Wi-Fi network")


def test_every_key_stands_in_it(folder):
    command()
    text = (folder / "settings.toml").read_text()
    for key, *_ in settings_file.firmware_settings().SCHEMA:
        assert key.rpartition(".")[2] + " = " in text, key
    found = {key: value for key, value in tomllib.loads(text).items() if value != {}}
    assert found == {"confirm": "pipeline"}


def test_a_file_that_is_there_stays(folder):
    (folder / "settings.toml").write_text("mine")
    with pytest.raises(BoardError, match="settings.toml: is there already.*--force"):
        command("--broker", "b")
    assert (folder / "settings.toml").read_text() == "mine"
    command("--broker", "b", "--force")
    assert "mine" not in (folder / "settings.toml").read_text()


@pytest.mark.parametrize("arguments, words", [
    (["--broker", "host:x"], "HOST or HOST:PORT"),
    (["--broker", "host:70000"], "broker.port: expected"),
    (["--broker", "b", "--device", "a/b"], "device: expected"),
])
def test_what_is_wrong_leaves_no_file(folder, arguments, words):
    with pytest.raises(BoardError, match=words):
        command(*arguments)
    assert os.listdir(folder) == []


def test_only_its_owner_reads_it(folder):
    command("--broker", "b")
    assert stat.S_IMODE((folder / "settings.toml").stat().st_mode) == 0o600


@pytest.mark.parametrize("address, host, port", [
    ("::1", "::1", None), ("[::1]:1883", "::1", 1883), ("host", "host", None)])
def test_addresses(folder, address, host, port):
    command("--broker", address)
    found = tomllib.loads((folder / "settings.toml").read_text())["broker"]
    assert found == {"host": host, **({"port": port} if port else {})}


def test_flashing_without_settings_ends_by_saying_what_is_missing(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["umqtt-board"])
    try:
        with pytest.raises(SystemExit) as end:
            cli.main(["flash", "--board", "unix", "--folder", str(folder / "board")])
    finally:
        with pytest.raises(SystemExit):
            cli.main(["stop", "--folder", str(folder / "board")])
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert "without settings" in said and "umqtt-board settings" in said
