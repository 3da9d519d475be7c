"""Where things lie in the project, and where what is built goes. Knows nothing else."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
BOARDS = PROJECT / "boards"
LIBRARY = PROJECT / "lib" / "umqtt_min"
FIRMWARE = PROJECT / "firmware"
BUILD = PROJECT / "build"
VIRTUAL = BUILD / "boards" / "unix"  # the virtual board that `make flash BOARD=unix` means
