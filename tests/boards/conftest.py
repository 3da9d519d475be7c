"""Fixtures of the board tests: virtual boards, and a small project to flash."""

import functools
from pathlib import Path

import pytest
from bare_fixtures import board, make_board, mpremote, put  # noqa: F401
from fetch_kit import get, server  # noqa: F401
from keep_kit import JOURNAL
from umqtt_board.flash import build, steps
from umqtt_board.port import device


@pytest.fixture
def pico(board, put):  # noqa: F811
    """A virtual board with a module rp2: its filesystem lies in flash as on an rp2 board."""
    put(board, "rp2.py", (Path(__file__).parent / "rp2_module.py").read_text())
    return board


@pytest.fixture
def used(board, put):  # noqa: F811
    """A board with settings, counters and a journal."""
    put(board, "settings.json",
        '{"device":"one","broker.host":"h","broker.user":"u","broker.password":"secret-word"}')
    put(board, "state.json", '{"count": 7, "interval_ms": 50, "interval_was": 10000}')
    with device.Device(board.port) as one:
        assert one.value(JOURNAL, int) == 1
    return board


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A small library and firmware in place of the real ones; returns a writer of their files."""

    def write(name, text):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    write("lib/__init__.py", "__version__ = '9.9'\n")
    write("lib/part.py", "def f():\n    return 1\n")
    write("firmware/boot.py", "print('boot ran')\n")
    write("firmware/main.py", "import app\n")
    write("firmware/app.py", "import time\nimport sensors.one\nprint('app ran')\n"
                             "while True:\n    time.sleep(1)\n")  # fmt: skip
    write("firmware/sensors/one.py", "X = 1\n")
    write("firmware/big.py", "".join(f"V{n} = 'value {n}'\n" for n in range(600)))
    folder = tmp_path / "project"
    monkeypatch.setattr(steps, "build", functools.partial(
        build.build, folder / "lib", folder / "firmware", folder / "out"))  # fmt: skip
    monkeypatch.setattr(device, "ANSWER_S", 8)
    write.folder = folder
    return write


@pytest.fixture
def files_on(mpremote):  # noqa: F811
    """Function that lists the files on a board."""
    code = """
import os
def walk(folder):
    for entry in os.ilistdir(folder or "/"):
        path = folder + "/" + entry[0]
        walk(path) if entry[1] == 0x4000 else print(path)
walk("")
"""
    return lambda one: sorted(mpremote(one, "exec", code).split())
