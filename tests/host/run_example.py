"""Runs main() of one example on either interpreter: `run_example.py NAME key=value ...`.

Knows: the search path of device code.  Must not know: what the examples do.
"""

import sys

MICROPYTHON = sys.implementation.name == "micropython"


def _value(text):
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


def _asleep(ms=0):
    print("deepsleep", ms)


def main(argv):
    """Prepare the interpreter and call the example's main()."""
    root = argv[0].replace("\\", "/").rsplit("/", 1)[0] + "/../.."
    shims = ["/boards/unix/shim"] if MICROPYTHON else ["/tests/shim"]
    sys.path[:0] = [root + p for p in shims + ["/lib"]]
    if not MICROPYTHON:
        import mpshim  # noqa: F401
    import machine

    machine.deepsleep = _asleep
    path = root + "/lib/umqtt_min/examples/" + argv[1] + ".py"
    names = {"__name__": argv[1], "__file__": path}
    with open(path) as f:
        exec(compile(f.read(), path, "exec"), names)
    pairs = [a.split("=", 1) for a in argv[2:]]
    names["main"](**{key: value if key == "server" else _value(value) for key, value in pairs})


if __name__ == "__main__":
    main(sys.argv)
