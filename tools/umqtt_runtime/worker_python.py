"""The Python that Spark starts for its workers: this one, with pyspark as it is installed.

Spark puts its own archive of pyspark, a zip, in front of each worker's path, and an archive keeps
no compiled modules: each of the five or more processes of a query would compile all of pyspark
anew, one or two seconds of a processor each. So Spark is given a small script that leaves those
entries out and becomes Python. Must not know sessions or what workers do.
"""

import sys
import zlib
from pathlib import Path

from .own_folder import own_folder, write

SCRIPT = """#!/bin/sh
# Made by umqtt_pipeline, whose umqtt_runtime/worker_python.py says why.
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
    case "$entry" in
    '{pyspark}'/python/lib/*.zip | '{pyspark}'/jars/*.jar) ;;
    *) kept="$kept${{kept:+:}}$entry" ;;
    esac
done
export PYTHONPATH="$kept"
exec '{python}' "$@"
"""


def worker_python(master):
    """Path of the program for `PYSPARK_PYTHON`, as a string. master: Spark's, such as "local[2]".

    It is `sys.executable` itself where pyspark comes out of an archive, and for other machines:
    they may have this Python at this place, but not what is made here.
    """
    import pyspark

    # Behind links: Spark names its archive by the path that they lead to.
    package = Path(pyspark.__file__).resolve().parent
    if not package.is_dir() or not master.startswith("local"):
        return sys.executable
    quoted = {name: str(path).replace("'", "'\\''")
              for name, path in (("pyspark", package), ("python", sys.executable))}  # fmt: skip
    text = SCRIPT.format(**quoted)
    program = own_folder() / "bin" / f"python-{zlib.crc32(text.encode()):08x}"
    program.parent.mkdir(exist_ok=True)
    write(program, text, 0o755)
    return str(program)
