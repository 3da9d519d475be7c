"""Runs one script of scripts/ on either interpreter: `run_script.py NAME HOST PORT [k=v ...]`.

Knows: the search path of device code, a Pin that remembers its levels.
Must not know: what the scripts do.
"""

import sys

MICROPYTHON = sys.implementation.name == "micropython"


class Pin:
    """machine.Pin for a host: an input that is pressed every third time it is asked."""

    IN = 0
    OUT = 1

    def __init__(self, id, mode=-1, value=None):
        self.levels = [] if value is None else [value]
        self._asked = 0

    def value(self, level=None):
        """Set the level, or ask for it."""
        if level is not None:
            self.levels.append(level)
            return None
        self._asked += 1
        return 0 if self._asked % 3 == 0 else 1


def main(argv):
    """Prepare the interpreter and call the script's main()."""
    here = argv[0].replace("\\", "/").rsplit("/", 1)[0]
    root = here + "/../.."
    shims = ["/boards/unix/shim"] if MICROPYTHON else ["/tests/shim"]
    sys.path[:0] = [root + p for p in ["/tests/interop/scripts"] + shims + ["/lib"]]
    if not MICROPYTHON:
        import mpshim  # noqa: F401
    import machine

    machine.Pin = Pin
    options = {}
    for pair in argv[4:]:
        key, _, value = pair.partition("=")
        options[key] = int(value) if value.isdigit() else value.encode()
    __import__(argv[1]).main(argv[2], int(argv[3]), **options)


if __name__ == "__main__":
    main(sys.argv)
