"""Who may write the tables of a folder. Must not know what is written."""

import fcntl
import time
from pathlib import Path

from umqtt_runtime import progress

from ..spool.files import make_folder
from .storage import is_object_store

#: commands that hold the lock and come to an end by themselves
ENDING = ("replay", "compact", "clean")
LOOK_S = 0.2


class InUse(Exception):
    """Another process writes these tables. passing: it will end by itself."""

    def __init__(self, text, passing=False):
        super().__init__(text)
        self.passing = passing


class Lock:
    """Keeps a second ingest, compact, replay or clean off the same tables. A killed one's JVM may
    live on for a moment and still write; the next one waits for its end.

    who        the command that takes the lock: the lock's file says it
    patience   seconds that a killed one's JVM may take to be gone
    wait       seconds that a command which comes to an end by itself may take

    Raises InUse.

    In an object store there is no such lock: of two writers one gets the number of a batch
    (ingest/ledger.py), and the other one fails."""

    def __init__(self, tables_root, who="ingest", patience=60, wait=0):
        self._file, self._who = None, who
        if is_object_store(tables_root):
            return
        folder = Path(tables_root, "_state")
        make_folder(folder)
        self._file = open(folder / "lock", "a+")
        if not self._taken():
            self._wait_until_free(tables_root, wait)
        self._wait_for(self._said()[-1:], patience)
        self._say(who)

    def _taken(self):
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _said(self):
        """What who has, or had, the lock says of itself: its command, and its JVM."""
        self._file.seek(0)
        return self._file.read().split()

    def _say(self, *words):
        self._file.truncate(0)
        self._file.write(" ".join(words))
        self._file.flush()

    def _wait_until_free(self, root, wait):
        end, known = time.monotonic() + wait, None
        with progress.Watch(None, self._who, doing="waiting for the tables") as watch:
            while True:
                time.sleep(LOOK_S)  # who has just taken it may not have said so yet
                if self._taken():
                    return
                other = next(iter(self._said()), "")
                passing = other in ENDING
                if not passing or time.monotonic() >= end:
                    whose = f"a {other}" if passing else "an ingest"
                    raise InUse(f"{root} is being written by {whose}", passing)
                if other != known:
                    known = other
                    watch.doing(f"waiting until {other} is done")

    @staticmethod
    def _wait_for(process, patience):
        end = time.monotonic() + patience
        while process and process[0].isdigit() and time.monotonic() < end:
            try:
                if b"java" not in Path("/proc", process[0], "cmdline").read_bytes():
                    return
            except OSError:
                return
            time.sleep(0.1)

    def holds(self, spark):
        """Write down which JVM works under this lock."""
        if self._file is None:
            return
        handle = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
        self._say(self._who, str(handle.pid()))
