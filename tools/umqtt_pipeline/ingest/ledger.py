"""What ingest has decided: one intent for each batch, in a log of its own.

Knows numbers, intents, and the order in which the commits of a batch are made. Must not know what
a row of a table or of the state means.

    TABLES/_state/intents/        a Delta table without rows: its commits are the intents
    TABLES/_state/PART/*.parquet  the state (state.py); the intents say which files count

An intent has a number and says all that a batch, a replay or a compaction changes: the files added
and removed in each table, the files of the state after it, how far each spool is read. `decide`
writes it at one instant, and only if nobody else has written one of that number. From then on the
batch is a fact: `finish` makes a commit in each table, and whoever starts after a kill makes those
that are missing (`recover`). Before that instant nothing has happened: what a killed batch has
written are files that no log names.
"""

import json
import logging

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ..spool.files import SpoolError
from ..tables.lock import InUse
from ..tables.schema import ALL, STATE
from ..tables.store import File, Tables

log = logging.getLogger("umqtt.ledger")

NAME = "_state/intents"
COLUMN = pa.schema([("none", pa.int64())])  #: a table must have one
PUT_BACK = "put it back as it was, or begin in another folder (--tables)"
#: As if before the first batch. query: which batch of which query was the last; places: the last
#: offset of each spool; touched: the last number that changed a table.
NONE = {"number": -1, "query": None, "places": {}, "state": {}, "tables": {}, "touched": {},
        "before": {}}  # fmt: skip


class Ledger:
    """The intents of some Tables. last: the newest one, a dict as in NONE. mend: whoever makes it
    is the only one to write these tables."""

    def __init__(self, tables, mend=True):
        self.tables, self.storage = tables, tables.storage
        self._unfinished = True  # until it is known
        if mend:
            self.storage.drop_torn(f"{NAME}/_delta_log")
        try:
            self._log = DeltaTable(self.storage.uri(NAME), storage_options=self.storage.options)
        except TableNotFoundError:
            self._log = DeltaTable.create(self.storage.uri(NAME), COLUMN, mode="ignore",
                                          storage_options=self.storage.options)  # fmt: skip
            self._sync()
        except DeltaError as error:
            raise self._damaged(error)
        self.last = self._newest()

    def _damaged(self, error):
        where = self.storage.path(NAME)
        return SpoolError(f"{where} is damaged ({str(error).partition(chr(10))[0]}): {PUT_BACK}")

    def _newest(self):
        # Not by history(): it finds nothing below a folder with some names.
        try:
            text = self.storage.read(f"{NAME}/_delta_log/{self._log.version():020d}.json")
            told = [json.loads(line) for line in text.splitlines()]
        except (OSError, ValueError) as error:
            raise self._damaged(error)
        found = next((each["commitInfo"].get("intent") for each in told if "commitInfo" in each),
                     None)  # fmt: skip
        if found is None and self._log.version():
            raise self._damaged("its last commit is no intent")
        return found or NONE

    def _sync(self):
        for end in (f"{self._log.version():020d}.json", "_last_checkpoint",
                    f"{self._log.version():020d}.checkpoint.parquet"):  # fmt: skip
            self.storage.sync(f"{NAME}/_delta_log/{end}")

    def next(self):
        """The number of the next batch."""
        return self.last["number"] + 1

    def recover(self):
        """Make the commits that a killed batch has left undone, and remove the files of one that
        was not decided. Raises SpoolError if tables and intents do not belong together."""
        if self.storage.shared:  # somebody else may have decided a batch
            self._log.update_incremental()
            self._unfinished, self.last = True, self._newest()
        self._check()
        self.finish()
        self.forget_undecided()
        needed = {name for names in self.last["state"].values() for name in names}
        age = self.storage.patience
        for part in STATE:
            for name in set(self.storage.children(f"_state/{part}", age)) - needed:
                self.storage.remove(name)

    def forget_undecided(self):
        """Remove the tables' files of a batch that was not decided."""
        for name in ALL:
            self.storage.remove_matching(name, f"{self.next():012d}-*.parquet",
                                         self.storage.patience)  # fmt: skip

    def _check(self):
        """Raises SpoolError if a table is newer or older than the intents say."""
        number, before, touched = (self.last[key] for key in ("number", "before", "touched"))
        for name in ALL:
            held = self.tables.number(name)
            if held > number:
                raise SpoolError(
                    f"{self.storage.path(name)} has batch {held}, which "
                    f"{self.storage.path('_state')} does not know: its rows would come a second "
                    f"time. Put that folder back as it was, or begin in another folder (--tables)")
            if held != touched.get(name, -1) and not (
                touched[name] == number and held == before.get(name, -1)):  # fmt: skip
                raise SpoolError(
                    f"{self.storage.path(name)} has the batches up to {held} only, and lacks "
                    f"{touched[name]}: it is an older copy; {PUT_BACK}")

    def decide(self, kind, tables, **more):
        """Write the next intent; returns it. `tables` is {name: (Files added, Files removed)}, in
        the order of the commits; `more` replaces what the last intent says. Raises InUse if
        somebody else has written one of that number."""
        number, touched = self.next(), self.last["touched"]
        made = {**self.last, **more, "number": number, "kind": kind,
                "before": {name: touched.get(name, -1) for name in tables},
                "touched": {**touched, **dict.fromkeys(tables, number)},
                "tables": {name: [[each.kept() for each in files] for files in both]
                           for name, both in tables.items()}}  # fmt: skip
        try:
            self._log.create_write_transaction(
                [], mode="append", schema=Schema.from_arrow(COLUMN),
                commit_properties=CommitProperties({"intent": made}, max_commit_retries=0))
        except CommitFailedError:
            raise InUse(f"{self.tables.storage.root} is being written by another ingest, compact "
                        "or replay")  # fmt: skip
        self._log.update_incremental()
        self._unfinished, old, self.last = True, self.last, made
        self._sync()
        return old

    def finish(self):
        """Make the commits of the newest intent that are not made yet."""
        if not self._unfinished:
            return
        number, kind = self.last["number"], self.last.get("kind")
        for name, both in self.last["tables"].items():
            added, removed = ([File(*each) for each in files] for files in both)
            self.tables.commit(name, number, added, removed, kind != "compact")
        self._unfinished = False


def newest(root):
    """The newest intent of the tables below `root`; nothing is changed, and ingest may run. Raises
    SpoolError."""
    tables = Tables(root, {})
    return Ledger(tables, mend=False).last if tables.find(NAME) else NONE


def state_files(root):
    """The files of the state that count. Raises SpoolError."""
    return [name for names in newest(root)["state"].values() for name in names]


def ready(root):
    """Have the tables below `root` as the last batch left them, whatever was killed. Raises
    SpoolError if they do not belong together."""
    Ledger(Tables(root, ALL)).recover()
