"""How the inner loops are compiled: by numba, once per machine, kept on disk.

Knows: numba, where compiled code is kept. Must not know: what is compiled.

numba looks at a function's own file only to decide whether the code that it kept is still right,
not at the files of the functions called. So the folder's name has a digest of all modules that
have such functions.
"""

import hashlib
import os
from pathlib import Path

import numba

PACKAGE = Path(__file__).resolve().parents[1]


def _digest():
    found = hashlib.sha256(numba.__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        if path.name == "layout.py" or b"jit import" in content:
            found.update(content)
    return found.hexdigest()[:16]


def _folder():
    """Beside the modules if one may write there, else in the user's own cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "mqtt_audit")
    for root in (PACKAGE / "__pycache__", cache):
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(root, os.W_OK):
            return root / f"kernels-{_digest()}"
    return None


if not os.environ.get("NUMBA_CACHE_DIR"):
    _kept = _folder()
    if _kept is not None:
        numba.config.CACHE_DIR = str(_kept)
        KEEP = True
    else:
        KEEP = False
else:
    KEEP = True

#: Every function that is compiled.
LOOPS = []


def _listed(compile_):
    def mark(function):
        LOOPS.append(compile_(function))
        return LOOPS[-1]

    return mark


def compiled():
    """How many of LOOPS this process has compiled, or has begun to, as none were kept."""
    return sum(bool(loop.stats.cache_misses) for loop in LOOPS)


#: A function that Python calls. _nrt=False: references to arrays are not counted, which took
#: most of the time of loops that only read and write rows; so none of these may make an array.
entry = _listed(numba.njit(cache=KEEP, error_model="numpy", _nrt=False))
#: One that only compiled functions call: without what Python needs it compiles faster.
kernel = _listed(numba.njit(
    cache=KEEP, error_model="numpy", _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
))  # fmt: skip
