"""Fixtures of the board tests: a virtual board in a temporary folder, and the real mpremote."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PatientBoard
from umqtt_board.flash import build, steps
from umqtt_board.port import device

MPREMOTE = [sys.executable, "-m", "mpremote"]


@pytest.fixture
def make_board(tmp_path):
    """Function that makes virtual boards, switched off at the end of the test."""
    made = []

    def make(name="one", **options):
        board = PatientBoard(tmp_path / name, name=name, **options)
        made.append(board)
        return board

    yield make
    for board in made:
        board.power_off()


@pytest.fixture
def board(make_board):
    """One virtual board with power and nothing on it."""
    board = make_board()
    board.power_on()
    return board


@pytest.fixture
def mpremote():
    """Function that runs mpremote on a board; returns what it printed."""

    def run(board, *command, status=0):
        done = subprocess.run(
            [*MPREMOTE, "connect", board.port, *command],
            capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def put(mpremote, tmp_path):
    """Function that writes a text as a file on a board, by `mpremote cp`."""

    def write(board, name, text):
        source = tmp_path / "put" / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        mpremote(board, "cp", str(source), f":{name}")
        return Path(source)

    return write


@pytest.fixture
def pico(board, put):
    """A virtual board with a module rp2: its filesystem lies in flash as on an rp2 board."""
    put(board, "rp2.py", (Path(__file__).parent / "rp2_module.py").read_text())
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
    monkeypatch.setattr(device, "ANSWER_S", 2)
    write.folder = folder
    return write


@pytest.fixture
def files_on(mpremote):
    """Function that lists the files on a board."""
    code = """
import os
def walk(folder):
    for entry in os.ilistdir(folder or "/"):
        path = folder + "/" + entry[0]
        walk(path) if entry[1] == 0x4000 else print(path)
walk("")
"""
    return lambda board: sorted(mpremote(board, "exec", code).split())
