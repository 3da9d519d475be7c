"""Where the compiled loops are kept, and whether a run has them compiled at all.

Knows: folders, sizes of captures. Must not know: numba, what a loop does.

numba looks at a function's own file only to decide whether the code that it kept is still right,
not at the files of the functions called. So the folder's name has a digest of all modules that
have such functions.
"""

import hashlib
import os
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
#: Bytes of captures that Python works through sooner than numba has compiled the loops.
PLAIN = 512 << 10

_plain = False


def _sources():
    """{path: content} of the modules whose change makes kept code wrong."""
    every = {path: path.read_bytes() for path in sorted(PACKAGE.rglob("*.py"))}
    return {path: content for path, content in every.items()
            if path.name in ("layout.py", "jit.py")
            or b"jit import" in content and path != Path(__file__).resolve()}  # fmt: skip


def _digest():
    found = hashlib.sha256(version("numba").encode())
    for content in _sources().values():
        found.update(content)
    return found.hexdigest()[:16]


def folder():
    """The folder of the compiled loops: the one that NUMBA_CACHE_DIR names, else one beside the
    modules if one may write there, else one in the user's own cache; None if there is none."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mqtt_audit")
    for root in [Path(named)] if named else [PACKAGE / "__pycache__", cache]:
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root / f"kernels-{_digest()}"
    return None


def _mark():
    found = folder()
    return found and found / "whole"


def keep():
    """All loops are compiled and kept: later runs have them."""
    mark = _mark()
    if mark:
        mark.touch()


def _compiled():
    """Whether an earlier run has compiled all loops, and numba takes them: it does not if a module
    is newer, be its content the same."""
    mark = _mark()
    if not mark or not mark.exists():
        return False
    return mark.stat().st_mtime >= max(path.stat().st_mtime for path in _sources())


def choose(size):
    """Decide for captures of so many bytes, before the loops are imported: Python runs these if
    there is little to do and no earlier run has compiled them."""
    global _plain
    _plain = size <= PLAIN and not _compiled()


def plain():
    """Whether Python runs the loops as they are."""
    return _plain
