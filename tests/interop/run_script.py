"""Runs one script of scripts/ on either interpreter: `run_script.py NAME HOST PORT [k=v ...]`.

With peers=FOLDER its imports are what they were before: FOLDER/umqtt/simple.py, robust.py.

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
    sys.path[:0] = [root + p for p in shims + ["/lib"]]
    if not MICROPYTHON:
        import mpshim  # noqa: F401
    import machine

    machine.Pin = Pin
    options = {}
    for pair in argv[4:]:
        key, _, value = pair.partition("=")
        options[key] = int(value) if value.isdigit() else value.encode()
    load(root, argv[1], options.pop("peers", b"").decode())(argv[2], int(argv[3]), **options)


def load(root, name, peers):
    """main() of the script, with this library or the one that it was written for."""
    with open(root + "/tests/interop/scripts/" + name + ".py") as f:
        text = f.read()
    if peers:
        sys.path.insert(0, peers)
        text = text.replace("umqtt_min.robust", "umqtt.robust")
        text = text.replace("from umqtt_min import", "from umqtt.simple import")
    names = {"__name__": name}
    exec(text, names)
    return names["main"]


if __name__ == "__main__":
    main(sys.argv)
