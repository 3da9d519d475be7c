"""Runs fuzzers on this interpreter: `worker.py OF FIRST COUNT CASES`, from seed FIRST on.

OF is "client" or "firmware".
Knows: the fuzzers of tests/device/kit, the lines that campaign.py reads:
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



def fuzzer_of(what):
    """The class that fuzzes the client or the firmware."""
    if what == "firmware":
        from fw_fuzz import FirmwareFuzzer

        return FirmwareFuzzer
    from fuzz import Fuzzer

    return Fuzzer


def main(what, first, count, cases):
    """Run; returns the exit status."""
    status = 0
    made = fuzzer_of(what)
    for seed in range(first, first + count):
        try:
            fuzzer = made(seed)
            fuzzer.run(cases)
            print("SEED", seed, fuzzer.mutated, fuzzer.closings)
        except Exception as e:  # whatever escapes is a finding
            status = 1
            print("BROKEN", seed)
            _run._print_error(e)
        _run._flush()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *[int(a) for a in sys.argv[2:5]]))
