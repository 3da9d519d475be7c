"""Where things lie, and where what is built goes. Knows nothing else.

In the project's folder everything lies in its tree. Installed from a wheel, boards and firmware
lie beside this file, the library beside this package, and the folder that one works in takes the
place of the project's: settings.toml is looked for there, and build/ is made there.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
INSTALLED = (_HERE / "data").is_dir()
PROJECT = Path.cwd() if INSTALLED else _HERE.parents[1]
BOARDS = (_HERE / "data" if INSTALLED else PROJECT) / "boards"
FIRMWARE = (_HERE / "data" if INSTALLED else PROJECT) / "firmware"
LIBRARY = _HERE.parent / "umqtt_min" if INSTALLED else PROJECT / "lib" / "umqtt_min"
BUILD = PROJECT / "build"
VIRTUAL = BUILD / "boards" / "unix"  # the virtual board that `make flash BOARD=unix` means
