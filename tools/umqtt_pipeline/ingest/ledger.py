"""What ingest has decided: one intent for each batch, replay or compaction.

Knows what belongs to the intents of ingest beside its tables: the files of the state, how far each
spool is read. Must not know what a row of a table or of the state means.

    TABLES/_state/intents/        the intents (tables/intents.py)
    TABLES/_state/PART/*.parquet  the state (state.py); the intents say which files count
"""

import json

from ..spool import consumers
from ..spool.files import SpoolError
from ..tables import intents
from ..tables.intents import PUT_BACK, Intents
from ..tables.schema import ALL, DELETED, STATE
from ..tables.storage import place, storage_of
from ..tables.store import Tables, last_of
from . import deleted, state

NAME = "_state/intents"
#: As if before the first batch. query: which batch of which query was the last; places: the last
#: offset of each spool.
NONE = {**intents.NONE, "query": None, "places": {}, "state": {}}


class Ledger(Intents):
    """The intents of ingest's Tables. mend: whoever makes it is the only one to write these."""

    def __init__(self, tables, mend=True):
        super().__init__(tables, NAME, ALL, NONE, "ingest, compact, replay or clean", mend)

    def recover(self):
        """Make the commits that a killed batch has left undone, and remove the files of one that
        was not decided. Raises SpoolError if tables and intents do not belong together."""
        if self.storage.shared:  # somebody else may have decided a batch
            self.refresh()
        self._check()
        self.finish()
        self.forget_undecided()
        needed = {name for names in self.last["state"].values() for name in names}
        age = self.storage.patience
        for part in (*STATE, DELETED):
            for name in set(self.storage.children(f"_state/{part}", age)) - needed:
                self.storage.remove(name)

    def delete(self, gone, expired):
        """Decide that tables lose old files, whose numbers are remembered, and make the commits.

        gone      {table: (Files added, Files deleted)}
        expired   {table: highest number of a batch that has been deleted}

        Raises SpoolError, OSError.
        """
        now = deleted.after(self.storage, self.last["state"], self.next(), gone)
        old = self.decide("expire", gone, expired=expired, state=now)
        self.finish()
        state.forget(self.storage, old["state"], now)

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
                raise SpoolError(_not_known(self.storage, name, held))
            if held != touched.get(name, -1) and not (
                touched[name] == number and held == before.get(name, -1)
                    and self.written(name)):  # fmt: skip
                has = f"the batches up to {held} only" if held >= 0 else "no batch"
                raise SpoolError(f"{self.storage.path(name)} has {has}, and lacks batch "
                                 f"{touched[name]}: it is an older copy, unless `umqtt-pipeline "
                                 f"verify` names a file in its log; {PUT_BACK}")


def _not_known(storage, name, number):
    return (f"{storage.path(name)} has batch {number}, which {storage.path('_state')} does not "
            "know: its rows would come a second time. Put that folder back as it was, or begin in "
            "another folder (--tables)")  # fmt: skip


def lost(root):
    """What is to be said of tables below `root` whose `_state` is gone: text, or None if no table
    there has a batch. Raises DeltaError."""
    tables = Tables(root, {})
    for name in ALL:
        held = tables.find(name)
        if held is not None and last_of(held) >= 0:
            return _not_known(tables.storage, name, last_of(held))
    return None


def newest(root):
    """The newest intent of the tables below `root`; nothing is changed, and ingest may run. Raises
    SpoolError."""
    tables = Tables(root, {})
    known = tables.storage.listed(f"{NAME}/_delta_log")
    return Ledger(tables, mend=False).last if known else NONE


def state_files(root):
    """The files of the state that count. Raises SpoolError."""
    return [name for names in newest(root)["state"].values() for name in names]


def finished(root, intent, spools=()):
    """Whether all commits of an intent of the tables below `root` are known to have been made:
    Spark's checkpoint, or the file of a reader, says that its batch is done. False if nothing says
    so. spools: places of spools, with the files of their readers. Raises Unreachable."""
    query = intent["query"]
    if intent["kind"] != "batch" or not query:
        return False
    storage = storage_of(root)
    try:
        known = json.loads(storage.read("_checkpoint/metadata"))["id"] == query["id"]
    except (OSError, ValueError, TypeError, KeyError):
        known = False
    if known and storage.exists(f"_checkpoint/commits/{query['batch']}"):
        return True
    ends = [json.loads(end) for end in query["end"] or ()]
    return any(end in ends for each in spools for end in consumers.committed(each, place(root)))


def ready(root):
    """Have the tables below `root` as the last batch left them, whatever was killed. Raises
    SpoolError if they do not belong together, Gone if one is not there."""
    ledger = Ledger(Tables(root, {}))
    ledger.tables.check_made(*ledger.last["touched"])  # before an empty one is made in its place
    Ledger(Tables(root, ALL)).recover()
