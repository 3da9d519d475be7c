"""Runs fuzzers on this interpreter: `worker.py FIRST COUNT CASES`, for seeds FIRST and on.

Knows: the fuzzer of tests/device, the lines that campaign.py reads:
    SEED seed mutations closings    after each seed
    BROKEN seed, then a traceback
Must not know: how many workers there are. Runs on MicroPython and on CPython.
"""

import sys

ROOT = __file__.replace("\\", "/").rsplit("/", 1)[0] + "/../.."
sys.path.insert(0, ROOT + "/tests/device")

import _run  # noqa: E402

_run.set_path(ROOT)
if not _run.MICROPYTHON:
    import mpshim  # noqa: F401

from fuzz import Fuzzer  # noqa: E402


def main(first, count, cases):
    """Run; returns the exit status."""
    status = 0
    for seed in range(first, first + count):
        try:
            fuzzer = Fuzzer(seed)
            fuzzer.run(cases)
            print("SEED", seed, fuzzer.mutated, fuzzer.closings)
        except Exception as e:  # whatever escapes is a finding
            status = 1
            print("BROKEN", seed)
            _run._print_error(e)
        _run._flush()
    return status


if __name__ == "__main__":
    sys.exit(main(*[int(a) for a in sys.argv[1:4]]))
