"""Who may write the tables of a folder. Must not know what is written."""

import fcntl
import time
from pathlib import Path

from ..spool.files import make_folder
from .storage import is_object_store


class InUse(Exception):
    """Another process writes these tables."""


class Lock:
    """Keeps a second ingest, compact or replay off the same tables. A killed one's JVM may live on
    for a moment and still write; the next one waits for its end.

    In an object store there is no such lock: of two writers one gets the number of a batch
    (ingest/ledger.py), and the other one fails."""

    def __init__(self, tables_root, patience=60):
        self._file = None
        if is_object_store(tables_root):
            return
        folder = Path(tables_root, "_state")
        make_folder(folder)
        self._file = open(folder / "lock", "a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"{tables_root} is being written by another ingest, compact or replay")
        self._file.seek(0)
        self._wait_for(self._file.read().strip(), patience)

    @staticmethod
    def _wait_for(process, patience):
        end = time.monotonic() + patience
        while process.isdigit() and time.monotonic() < end:
            try:
                if b"java" not in Path("/proc", process, "cmdline").read_bytes():
                    return
            except OSError:
                return
            time.sleep(0.1)

    def holds(self, spark):
        """Write down which JVM works under this lock."""
        if self._file is None:
            return
        handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
        self._file.truncate(0)
        self._file.write(str(handle.pid()))
        self._file.flush()
