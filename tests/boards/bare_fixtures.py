"""Fixtures of virtual boards with nothing on them, and of the real mpremote.

Must not know what a test is about.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PatientBoard

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
