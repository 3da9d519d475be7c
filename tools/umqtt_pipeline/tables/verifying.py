"""A look at all that counts below a place: whether it is what was written.

Knows how each kind of file can be told from a damaged one. Must not know what a row means.

    data files        the CRC-32 in their names; size, rows and statistics in the log of the table
                      (table_look.py)
    intents           a check value of their own (decisions.py)
    logs of tables    a commit says what the intent of its number says; other programs commit, too:
                      of those the known actions, and the number of rows of their files
                      (commits.py, table_look.py)
    checkpoints       what the commits before them say (checkpoints.py)
    large payloads    the CRC-32 in their names (large.py)
"""

from umqtt_runtime import failures, progress

from ..spool.files import SpoolError, broken_link, leads_nowhere
from . import large
from .commits import as_written
from .decisions import INGEST, Decided
from .schema import ALL
from .store import Tables, existing
from .table_look import TableLook


class Verified:
    """What was found: how many files and bytes; `wrong`, a list of sentences; and `notes`, what is
    to be said and is no damage.

    watch: a progress.Watch that is told how far it is, or None
    """

    def __init__(self, watch=None):
        self.files = self.bytes = 0
        self.wrong, self.notes, self.watch = [], [], watch
        self.referred = {}  # {(spool, offset) of a payload in a file of its own: names of tables}

    def doing(self, what):
        """A step begins."""
        if self.watch:
            self.watch.doing(what)

    def at(self, far):
        """How far the step is."""
        if self.watch:
            self.watch.at(far)

    def say(self, path, why):
        """Name what is wrong, in one line. A link that leads nowhere is named in the place of all
        that would be below it, once."""
        link = broken_link(path)
        line = f"{link or path}: {failures.plain(leads_nowhere(link) if link else why)}"
        if not link or line not in self.wrong:
            self.wrong.append(line)

    def add(self, path, more):
        """Add to the line that names a path what to do; returns whether there is one."""
        for at, line in enumerate(self.wrong):
            if line.startswith(f"{path}: "):
                self.wrong[at] += more
                return True
        return False

    def refer(self, table, payloads):
        """A table refers to payloads in files of their own: their (spool, offset)."""
        for each in payloads:
            self.referred.setdefault(each, set()).add(table)

    def look(self, storage, name, size=None, read=None):
        """Compare a file with the check value in its name, or, if it is not that or has none, with
        its size in the log: a log may be wrong about a file that is whole. Returns its bytes, None
        if they are wrong. read: a Future of them, if they are read already."""
        path = storage.path(name)
        try:
            data = storage.read(name) if read is None else read.result()
        except OSError as error:
            self.say(path, error.strerror or error)
            return None
        self.files, self.bytes = self.files + 1, self.bytes + len(data)
        sound = as_written(name, data)
        if sound:
            return data
        if size is not None and len(data) != size:
            self.say(path, f"{len(data)} bytes, the log says {size}")
        elif sound is False:
            self.say(path, "its bytes are not those that were written")
        else:
            return data
        return None


def verify(root, state, finished, columns=ALL):
    """Look at every byte that counts of the tables below `root`; returns Verified. Ingest and gold
    may go on meanwhile.

    state      function that gives the names of the files of ingest's state; it may raise
               SpoolError
    finished   function of an intent of ingest: whether it is known that all its commits were made
    columns    {table: {column: type}} of the tables that are known
    """
    with progress.Watch(None, "verify", doing="listing") as watch:
        found = Verified(watch)
        _verify(found, root, state, finished, columns)
    found.watch = None
    return found


def damaged(root, name, version=None):
    """What is wrong with the first data file of a table that is damaged, in one line; None if all
    are whole. version: the table as it was then. Raises Gone, DeltaError."""
    tables, found = Tables(root, {}), Verified()
    for file in tables.files(name, version):
        found.look(tables.storage, f"{name}/{file.path}", file.size)
        if found.wrong:
            return found.wrong[0]
    return None


def _verify(found, root, state, finished, columns):
    storage = Tables(root, {}).storage
    for name, why in storage.no_files():
        line = f"{storage.path(name)}: {failures.plain(why)}: nothing else was looked at"
        found.wrong.append(line)
    if found.wrong:
        return
    decided = _decided(found, Tables(root, {}), finished)  # first: all but the last are committed
    tables = existing(root)
    numbers = {name: TableLook(found, tables, name, decided, columns).look()
               for name in tables.columns}  # fmt: skip
    _look_at_no_intents(found, tables.storage, decided, numbers)
    _look_at_unknown(found, tables.storage, decided, numbers)
    for each in decided:
        there = {*tables.columns, *tables.storage.dangling()}
        _look_at_gone(found, tables.storage, each, sorted(each.there - there))
    lacking = set()
    for each in decided:
        if _look_beyond(found, tables.storage, each):
            lacking.add(each.name)
        _look_at_unfinished(found, tables, each)
    for name in tables.storage.dangling():
        found.say(tables.storage.path(name), "")
    found.doing("large payloads")
    large.look(found, tables.storage, found.referred)
    found.doing("the state of ingest")
    copied = any(each.copied for each in decided if each.name == INGEST)
    _look_at_state(found, tables.storage, state, copied or INGEST in lacking)


def _look_beyond(found, storage, decided):
    """Look at commits that are newer than the newest intent was: it may be an older copy, or
    somebody has gone on meanwhile. Returns whether intents are missing: those after the newest
    one, if each of them has commits."""
    if decided.newest is None:  # a line of its own says so
        return bool(decided.beyond)
    last = _newest(found, storage, decided.name) if decided.beyond else 0
    beyond = [(path, number) for path, number in decided.beyond
              if number > last and decided.whole]  # fmt: skip
    numbers = sorted({number for _, number in beyond})
    if not numbers:
        return False
    first, newest, path = numbers[0], numbers[-1], storage.path(decided.name)
    if numbers != list(range(last + 1, newest + 1)):
        for commit, number in beyond:
            found.say(commit, f"it is of {decided.what} {number}, which {path} does not know")
        return False
    which = f"{decided.what} {first} has"
    if first != newest:
        which = f"{decided.what} {first} to {decided.what} {newest} have"
    tables = {commit.removeprefix(storage.path("")).strip("/").partition("/")[0]
              for commit, _ in beyond}  # fmt: skip
    found.say(path, f"it lacks what {which} decided, and there are commits of it in "
                    f"{', '.join(sorted(tables))}")  # fmt: skip
    return True


def _look_at_no_intents(found, storage, decided, numbers):
    """Tell that the intents of ingest are gone, if a table has a batch. numbers: {table: highest
    number of a batch, None if its log cannot be read}"""
    state = [each for each in decided if each.name == INGEST]
    if any(each.newest or not each.whole for each in state):
        return
    names = [name for name, number in numbers.items() if name in ALL and number not in (None, -1)]
    if names:
        why = "no batch is in it" if state else "it is gone"
        found.say(storage.path(INGEST), f"{why}, and there are batches in {', '.join(names)}")


def _look_at_unknown(found, storage, decided, numbers):
    """Say which tables of gold have commits, and none of its intents, which are there, knows
    them."""
    known = {name for each in decided for name in each.touched}
    names = sorted(name for name, number in numbers.items()
                   if name not in {*ALL, *known} and number not in (None, -1))  # fmt: skip
    for each in decided:
        if names and each.name != INGEST and each.whole:
            found.notes.append(f"{storage.path(each.name)}: it has lost what was decided on "
                               f"{', '.join(names)}: the next `umqtt-pipeline {each.program}` "
                               "makes all anew")  # fmt: skip


def _newest(found, storage, name):
    """The number of the newest intent by now."""
    return Decided(Verified(found.watch), storage, name).last


def _look_at_unfinished(found, tables, decided):
    """Say which commits of the newest intent are not made; not if somebody has gone on
    meanwhile."""
    names = [name for name in decided.to_come if not decided.committed(tables, name)]
    if names and _newest(found, tables.storage, decided.name) == decided.last:
        who, then = {"expire": ("clean", "still see what it deletes"),
                     "compact": ("compact or ingest", "see the same rows in smaller files"),
                     "replay": ("replay", "do not see what it brings"),
                     }.get(decided.newest["kind"], (decided.program, "do not see what it brings"))
        found.notes.append(
            f"{tables.storage.path(decided.name)}: {decided.what} {decided.last} has no commit in "
            f"{', '.join(names)}: {who} is just making it, a kill came before, or it was lost. "
            f"The next `umqtt-pipeline {decided.program}` makes it; until then readers {then}")


def _look_at_gone(found, storage, decided, names):
    """Tell of tables that are gone; those of gold may be removed by whoever does not want them."""
    if decided.name == INGEST:
        for name in names:
            why = ("to which no batch has brought anything: the next `umqtt-pipeline ingest` "
                   "makes it again")
            if name in decided.touched:
                why = f"which batch {decided.touched[name]} has changed"
            found.say(storage.path(name), f"this table is gone, {why}")
    elif names:
        found.say(storage.root, f"tables of gold are gone: {', '.join(names)}. `umqtt-pipeline "
                  "gold` makes them again; if you do not want gold any more, remove "
                  f"{storage.path(decided.name.partition('/')[0])} and its other tables, too")


def _look_at_state(found, storage, state, older):
    """older: whether intents after these are missing, or these are copies of older ones: batches
    may have taken other files in the place of the state's"""
    try:
        for name in state():
            if older and not storage.exists(name):
                continue
            before = len(found.wrong)
            found.look(storage, name)
            if len(found.wrong) > before and name not in state():
                found.wrong.pop()  # a batch has taken another in its place
    except SpoolError as error:
        if not any(line.startswith(storage.path(INGEST)) for line in found.wrong):
            found.wrong.append(str(error))


def _decided(found, tables, finished):
    storage = tables.storage
    names = [f"{name}/intents" for name in storage.children("") if name.startswith("_")]
    decided = [Decided(found, storage, name) for name in sorted(names)
               if storage.listed(f"{name}/_delta_log")]  # fmt: skip
    for each in decided:
        each.look_at_newest(tables, finished if each.name == INGEST else lambda intent: False)
    return decided
