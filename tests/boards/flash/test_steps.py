"""Each step of a flashing alone, by `umqtt-board step`."""

import pytest
from umqtt_board import cli
from umqtt_board.errors import BoardError
from umqtt_board.paths import BUILD
from umqtt_board.port import device


@pytest.fixture
def step(board, capsys):
    """Function that runs one step on the board; returns what it said."""

    def run(name, *arguments):
        place = () if name == "build" else ("--port", board.port)
        cli.cli(["step", name, *place, *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_one_step_after_the_other(step, board, tmp_path, iotcore, mpremote):
    settings = tmp_path / "settings.toml"
    settings.write_text(f'device = "s"\n[broker]\nhost = "127.0.0.1"\nport = {iotcore.port}\n')
    assert f"port         {board.port} (given)" in step("port")
    assert "MicroPython 1." in step("interpreter")
    assert str(BUILD / "device") in step("build") and (BUILD / "device" / "app.mpy").exists()
    with pytest.raises(BoardError, match=r"/aio/core.mpy, .* is not what was installed"):
        step("verify")
    assert "install      done\n  settings     none" in step("install")
    assert "settings     written" in step("settings", "--settings", settings)
    assert "settings     same" in step("settings", "--settings", settings)
    assert "umqtt_min " in step("verify")
    assert "acknowledged the first publish" in step("start")


def test_a_step_that_fails_leaves_the_board_at_work(step, board, put, monkeypatch):
    put(board, "main.py", "print('main ran')\nimport time\nwhile True:\n    time.sleep(1)\n")
    mark = len(board.printed())
    with pytest.raises(BoardError, match="Which settings"):
        step("settings")
    board.wait_for("main ran", since=mark)
    mark = len(board.printed())
    monkeypatch.setenv("UMQTT_WINDOW", "3")
    with pytest.raises(BoardError, match="environment .*\n  broker.host: expected a text"):
        step("settings")
    board.wait_for("main ran", since=mark)


def test_a_file_that_comes_back_wrong_is_not_put_in_force(step, put, board, mpremote, monkeypatch):
    put(board, "settings.json", '{"broker.host":"h"}')
    write = device.Device.write_file
    monkeypatch.setattr(device.Device, "write_file",
                        lambda self, path, data: write(self, path, data[:-1]))
    monkeypatch.setenv("UMQTT_WINDOW", "3")
    with pytest.raises(BoardError, match="reads back from /state.json.new is not what was"):
        step("settings")
    assert mpremote(board, "cat", ":settings.json") == '{"broker.host":"h"}'


def test_a_board_whose_flash_was_cut_is_to_be_flashed_again(step, put, board, capsys, tmp_path):
    put(board, "main.py.off", "print('main ran')\n")
    with pytest.raises(BoardError, match="no program that starts: a flash was cut, or there was"):
        step("start")
    copy = str(tmp_path / "copy")
    cli.cli(["backup", "--port", board.port, "--to", copy], standalone_mode=False)
    said = capsys.readouterr().out
    assert "`make flash` starts it" in said and "reset button" not in said


def test_half_of_a_copy_is_not_what_was_installed(step, put, board):
    put(board, "restore.half", "a copy")
    for name in ("verify", "install", "start"):
        with pytest.raises(BoardError, match="an earlier restore onto the board was cut"):
            step(name)


def test_the_virtual_board_has_no_image():
    with pytest.raises(BoardError, match="BOARD=unix brings its interpreter along"):
        cli.cli(["step", "image", "--board", "unix"], standalone_mode=False)
