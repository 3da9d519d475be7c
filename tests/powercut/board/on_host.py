"""The publisher on CPython, with FileStore: `on_host.py HOST PORT QOS FOLDER LOG`.

Knows: the search path of device code.  Must not know: what is published.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests/shim"), str(ROOT / "lib")]

import mpshim  # noqa: E402, F401
import publisher  # noqa: E402
from umqtt_min import FileStore  # noqa: E402

if __name__ == "__main__":
    handle = os.open(sys.argv[5], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    publisher.main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), FileStore(sys.argv[4]),
                   lambda line: os.write(handle, line.encode() + b"\n"))
