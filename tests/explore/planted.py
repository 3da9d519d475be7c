"""Faults that are planted into a copy of the library: each must be found.

Knows: planted.txt. Must not know: what the lines mean, how they are found.
"""

import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def read():
    """{name: (file, lines, what stands there instead)}."""
    faults = {}
    for block in (HERE / "planted.txt").read_text().split("\n== ")[1:]:
        name, file, *lines = block.rstrip("\n").split("\n")
        old = "".join(line[1:] + "\n" for line in lines if line.startswith("-"))
        new = "".join(line[1:] + "\n" for line in lines if line.startswith("+"))
        faults[name] = file, old, new
    return faults


FAULTS = read()


def plant(name, folder):
    """A copy of lib/ with that fault in `folder`; returns it, for DEVICE_LIB. Raises ValueError
    where the lines are not there, or not only once: then the fault must be planted anew."""
    file, old, new = FAULTS[name]
    lib = Path(folder) / "lib"
    shutil.copytree(ROOT / "lib", lib, ignore=shutil.ignore_patterns("__pycache__", "examples"))
    path = lib / "umqtt_min" / file
    source = path.read_text()
    if source.count(old) != 1:
        raise ValueError("%s: its lines are %d times in %s: plant it anew"
                         % (name, source.count(old), file))  # fmt: skip
    path.write_text(source.replace(old, new))
    return lib
