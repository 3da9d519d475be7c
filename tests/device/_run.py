"""Runs the test functions of one device test file: `_run.py FILE NAME...`, on both interpreters.

Knows: the search path of device code and the line protocol that the pytest plugin reads:
    RUN name / PASS name / FAIL name, then the traceback, then END name
Must not know: pytest, what the tests are about.
Exit status: 0 all passed, 1 something failed, 2 the file could not be loaded.
"""

import gc
import os
import sys

MICROPYTHON = sys.implementation.name == "micropython"
WASM = getattr(sys.implementation, "_build", "") == "wasi"


def _root():
    here = __file__.replace("\\", "/").rsplit("/", 1)[0]
    return here + "/../.."


def _library(root):
    # Another one, of .mpy files or of a release, must be there: else the installed one is tested.
    lib = os.getenv("DEVICE_LIB")
    if not lib:
        return root + "/lib"
    try:
        os.stat(lib + "/umqtt_min")
    except OSError:
        raise ValueError("DEVICE_LIB=%s: there is no umqtt_min in that folder" % lib)
    return lib


def set_path(root):
    """Put the folders of device code and test helpers in front of the search path."""
    shims = ["/boards/unix/shim"] if MICROPYTHON else ["/tests/shim"]
    if WASM:
        shims.append("/tests/wasm")
    folders = [root + f for f in ["/tests/device/kit"] + shims]
    folders.append(_library(root))
    folders.append(root + "/firmware")
    # The WebAssembly build sees no other folder, and takes that for an error.
    sys.path[:] = folders + [p for p in sys.path[1:] if p and not WASM]


def load(path):
    """Execute the file and return its names."""
    names = {"__name__": path.rsplit("/", 1)[-1][:-3], "__file__": path}
    with open(path) as f:
        code = compile(f.read(), path, "exec")
    exec(code, names)
    return names


def _print_error(e):
    if MICROPYTHON:
        sys.print_exception(e)
    else:
        import traceback

        traceback.print_exception(e, file=sys.stdout)


def _flush():
    if not MICROPYTHON:
        sys.stdout.flush()


def run(names, name):
    """Run one function; True if it passed."""
    print("RUN", name)
    _flush()
    errors = _call(names[name]) + _call(_clean_up)
    if errors:
        print("FAIL", name)
        for e in errors:
            _print_error(e)
        print("END", name)
    else:
        print("PASS", name)
    _flush()
    return not errors


def _call(function):
    try:
        function()
    except Exception as e:  # whatever it is belongs to this test
        return [e]
    return []


def _clean_up():
    # Timers stop, the clock is real again; what a strict broker has seen is part of the result.
    softtimer = sys.modules.get("softtimer")
    if softtimer:
        softtimer.timers.clear()
        softtimer.set_virtual(False)
    gc.collect()
    if "strict_broker" in sys.modules:
        sys.modules["strict_broker"].check_all()


def main(path, wanted):
    """Load the file, run what is wanted, return the exit status."""
    set_path(_root())
    if WASM:
        import nogc  # noqa: F401
    if not MICROPYTHON:
        import mpshim  # noqa: F401
    try:
        names = load(path)
    except Exception as e:
        print("LOADFAIL", path)
        _print_error(e)
        return 2
    failed = [n for n in wanted if not run(names, n)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
