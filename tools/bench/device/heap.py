"""What a client costs: heap.py DRIVER HOST PORT; prints Python literals, a name before each.

import, connect: bytes of heap kept after each; modules: what was imported, also what was given
back since;
OPERATION: bytes allocated per call, the collector switched off.
"""

import builtins
import gc
import sys

_CALLS = 16


def _note(seen):
    # Modules may be given back: what was ever there is seen when it is imported.
    plain = builtins.__import__

    def noting(*arguments):
        module = plain(*arguments)
        seen.update(sys.modules)
        return module

    builtins.__import__ = noting


def used():
    gc.collect()
    return gc.mem_alloc()


def _operation(driver, c, op):
    driver.do(c, op, _CALLS)
    gc.collect()
    gc.disable()
    before = gc.mem_alloc()
    driver.do(c, op, _CALLS)
    after = gc.mem_alloc()
    gc.enable()
    return (after - before) / _CALLS


def main(driver, host, port):
    driver = __import__("drive_" + driver)
    here = set(sys.modules)
    seen = set()
    _note(seen)
    a = used()
    driver.load()
    b = used()
    c = driver.connect(host, int(port), "bench-heap")
    d = used()
    driver.do(c, "qos0", 1)
    driver.do(c, "qos1", 1)
    print("import", b - a)
    print("connect", d - b)
    print("modules", [m for m in seen if m not in here])
    for op in ("qos0", "qos1", "qos2", "ping", "idle"):
        if op in driver.OPS:
            print(op, _operation(driver, c, op))


main(*sys.argv[1:])
