"""Which planted faults the device tests find, too: those that none of them finds are what the
explorer is worth.

    .venv/bin/python tests/explore/others.py [part of a fault's name]

Prints for each fault the first test that fails with it, or "only the explorer". A fault that is
found takes some seconds of processor, one that is not takes two minutes.

Knows: how the device tests are run on another copy of the library. Must not know: what they test.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import planted  # noqa: E402

DEVICE = planted.ROOT / "tests" / "device"
ROOMS = ("session", "store", "client", "protocol", "aio")
DEADLINE = 3600  # seconds of all of them


def first_failure(name):
    """The first test that fails with that fault, "" if none does."""
    near = "store" if planted.FAULTS[name][0].startswith("store/") else "session"
    rooms = [str(DEVICE / room) for room in (near, *(r for r in ROOMS if r != near))]
    words = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", "-rf"]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "DEVICE_LIB": str(planted.plant(name, folder))}
        done = subprocess.run([sys.executable, "-m", "pytest", *words, *rooms], env=env, text=True,
                              cwd=planted.ROOT, capture_output=True, timeout=DEADLINE)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout + done.stderr)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0].split()[1] if failed else ""


def main(words):
    """Run it."""
    for name in planted.FAULTS:
        if not words or words[0] in name:
            print("%-56s %s" % (name, first_failure(name) or "only the explorer"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
