"""Intents: what a run changes in several tables, decided at one instant.

Knows numbers, intents, and the order in which the commits of one are made. Must not know what a
row of a table means, nor who decides.

    ROOT/NAME/        a Delta table without rows: its commits are the intents

Delta Lake has no commit over several tables. An intent has a number and says which files each
table gains and loses. `decide` writes it at one instant, and only if nobody else has written one
in its place. From then on it is a fact: `finish` makes a commit in each table, and whoever starts
after a kill makes those that are missing. Before that instant nothing has happened: what a killed
run has written are files that no log names.
"""

import json
import zlib

import pyarrow as pa
from deltalake import CommitProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from umqtt_runtime import failures

from ..spool.files import SpoolError
from .commits import is_whole
from .lock import InUse
from .store import File, begin, naming, opened

COLUMN = pa.schema([("none", pa.int64())])  #: a table must have one
FORMAT = 1  #: number of the form of an intent, which is written beside it
PUT_BACK = "put it back as it was, or begin in another folder (--tables)"
#: As if before the first one. touched: the last number that changed a table; before: the one
#: before that, of the tables that the newest intent changes; there: the tables that had been made,
#: those that no intent has changed among them.
NONE = {"number": -1, "tables": {}, "touched": {}, "before": {}, "there": []}


def check_of(intent):
    """The check value that is written beside an intent: the log has none of its own."""
    return zlib.crc32(json.dumps(intent, sort_keys=True).encode())


class Intents:
    """The intents of some Tables. last: the newest one, a dict as in NONE.

    name      of their own table, below the root
    changing  names of the tables that they may change
    nothing   what holds before the first one
    writers   who else may write them, in words
    mend      whoever makes this is the only one to write these tables

    Raises SpoolError if they are damaged.
    """

    advice = PUT_BACK  #: for them when they are damaged

    def __init__(self, tables, name, changing, nothing, writers, mend=True):
        self.tables, self.storage, self.name = tables, tables.storage, name
        self._changing = sorted(changing)
        self._nothing, self._writers = nothing, writers
        self._unfinished = True  # until it is known
        if mend:
            self.storage.put_torn_aside(f"{name}/_delta_log")
        try:
            self._log = opened(self.storage, name)
        except DeltaError as error:
            raise self._damaged(error)
        if self._log is None:
            self._log = begin(self.storage, name, COLUMN)
            self._sync()
        self.last = self._newest()

    def _damaged(self, error):
        where = self.storage.path(self.name)
        return SpoolError(f"{where} is damaged ({failures.plain(error)}): {self.advice}")

    def _newest(self):
        # Not by history(): it finds nothing below a folder with some names.
        try:
            version = f"{self._log.version():020d}"
            text = self.storage.read(f"{self.name}/_delta_log/{version}.json")
            told = [json.loads(line) for line in text.splitlines()]
        except (OSError, ValueError) as error:
            raise self._damaged(error)
        info = next((each["commitInfo"] for each in told if "commitInfo" in each), {})
        found = info.get("intent")
        if found is None and self._log.version():
            raise self._damaged("its last commit is no intent")
        if found is not None and info.get("check") != check_of(found):
            raise self._damaged("its last intent is not what was written")
        if found is not None and info.get("format") != FORMAT:
            raise SpoolError(f"{self.storage.path(self.name)}: another version of umqtt-pipeline "
                             f"has written it: {self.advice}")  # fmt: skip
        if found is not None and set(self._nothing) - set(found):
            raise self._damaged("its last intent is that of another folder")
        return found or self._nothing

    def _sync(self):
        for end in (f"{self._log.version():020d}.json", "_last_checkpoint",
                    f"{self._log.version():020d}.checkpoint.parquet"):  # fmt: skip
            self.storage.sync(f"{self.name}/_delta_log/{end}")

    def refresh(self):
        """Look again at what is decided: somebody else may have done so."""
        self._log.update_incremental()
        self._unfinished, self.last = True, self._newest()

    def check_place(self):
        """Raises Gone if somebody has removed the intents or one of the tables."""
        self.tables.check_place(self.name)

    def next(self):
        """The number of the next intent."""
        return self.last["number"] + 1

    def decide(self, kind, tables, **more):
        """Write the next intent; returns the one before. `tables` is {name: (Files added, Files
        removed)}, in the order of the commits; `more` replaces what the last intent says. Raises
        InUse if somebody else has written one in its place, Gone."""
        self.check_place()
        number, touched = self.next(), self.last["touched"]
        made = {**self.last, **more, "number": number, "kind": kind,
                "before": {name: touched.get(name, -1) for name in tables},
                "touched": {**touched, **dict.fromkeys(tables, number)},
                "there": self._changing,
                "tables": {name: [[each.kept() for each in files] for files in both]
                           for name, both in tables.items()}}  # fmt: skip
        try:
            with naming(self.storage.path(f"{self.name}/_delta_log")):
                self._log.create_write_transaction(
                    [], mode="append", schema=Schema.from_arrow(COLUMN),
                    commit_properties=CommitProperties(
                        {"intent": made, "check": check_of(made), "format": FORMAT},
                        max_commit_retries=0))
        except CommitFailedError:
            raise InUse(f"{self.storage.root} is being written by another {self._writers}")
        self._log.update_incremental()
        self._unfinished, old, self.last = True, self.last, made
        self._sync()
        return old

    def written(self, name):
        """Whether the files are there, and whole, that the newest intent adds to a table, which
        lacks its commit: they are not if somebody has removed the table since then, or a power cut
        has taken both."""
        added = self.last["tables"].get(name, [()])[0]
        return all(is_whole(self.storage, f"{name}/{path}", size) for path, size, *_ in added)

    def finish(self):
        """Make the commits of the newest intent that are not made yet."""
        if not self._unfinished:
            return
        number, kind = self.last["number"], self.last.get("kind")
        for name, both in self.last["tables"].items():
            added, removed = ([File.of(*each) for each in files] for files in both)
            self.tables.commit(name, number, added, removed, kind != "compact")
        self._unfinished = False
