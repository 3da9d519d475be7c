"""Each step of a flashing, cut: the tool is killed, or the board loses its power; then go on."""

import os
import signal
import subprocess
import sys

from umqtt_board.errors import BoardError
from umqtt_board.flash import steps
from umqtt_board.flash.build import Item
from umqtt_board.port import device

SETTINGS = 'device = "k"\n[broker]\nhost = "127.0.0.1"\nport = 1\n'
STEPS = ("write", "settings", "verify", "start")
PROGRAM = b"print('app ran')\nimport time\nwhile True:\n    time.sleep(1)\n"
SMALL = (Item("/boot.py", b""), Item("/lib/umqtt_min/__init__.py", b"__version__ = '9'\n"),
         Item("/main.py", PROGRAM))  # fmt: skip


def _command(board, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS)
    return [sys.executable, "-m", "umqtt_board", "flash", "--port", board.port, "--settings",
            str(settings), "--no-follow"]  # fmt: skip


def test_the_tool_is_killed_at_step_after_step(board, tmp_path):
    command = _command(board, tmp_path)
    for step in ("write", "verify"):
        tool = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in tool.stdout:
            if line.split()[0] == step:
                break
        os.kill(tool.pid, signal.SIGKILL)
        tool.communicate()
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert again.returncode == 0, again.stderr
    last = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert last.returncode == 0 and "nothing to do" in last.stdout, last.stderr


def test_the_board_loses_its_power_at_each_step(board, tmp_path, monkeypatch):
    monkeypatch.setattr(device, "ANSWER_S", 2)
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    for number, step in enumerate(STEPS):
        part = Item("/part.py", b"X = %d\n" % number * 900)
        monkeypatch.setattr(steps, "build", lambda part=part: [*SMALL, part])
        _cut_at(step, board, path)
        mark = len(board.printed())
        board.power_on()
        steps.flash("unix", board.port, path)
        board.wait_for("app ran", since=mark)
    assert steps.flash("unix", board.port, path).written == []


def _cut_at(step, board, path):
    cut = []

    def progress(name, text):
        if name == step and not cut:
            board.cut()
            cut.append(name)

    try:
        steps.flash("unix", board.port, path, progress=progress,
                    transfer=lambda done, total, name: progress("write", name))  # fmt: skip
        assert step == "start"  # the board was not needed any more
    except BoardError as error:
        assert "same command again" in str(error) or "does not answer" in str(error)
    assert cut == [step]
