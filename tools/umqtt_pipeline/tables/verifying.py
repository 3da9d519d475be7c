"""A look at all that counts below a place: whether it is what was written.

Knows how each kind of file can be told from a damaged one. Must not know what a row means.

    data files        the CRC-32 in their names; size, rows and statistics in the log of the table
    intents           a check value of their own
    logs of tables    a commit says what the intent of its number says; other programs commit, too:
                      of those the known actions, and the number of rows of their files
    checkpoints       what the commits before them say (checkpoints.py)
    large payloads    the CRC-32 in their names (large.py)
"""

import json
import re
import zlib
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from umqtt_runtime import failures, progress

from ..spool.files import SpoolError
from . import large
from .checkpoints import ACTIONS, Look
from .intents import check_of
from .schema import ALL, PARTITION
from .store import APPLICATION, File, Tables, existing, files_of, last_of, opened

NAMED = re.compile(r"(?:.*/)?\d{12}-.*-([0-9a-f]{8})\.parquet")
COMMIT = re.compile(r".*/_delta_log/(\d{20})\.json")
AT_ONCE = 8  #: files that are read: an object store takes its time for each
READ_BYTES = 256 << 20  #: of data files that are read at a time, if it is not one that is longer
INGEST = "_state/intents"  #: whose intents must be there when tables are


class Verified:
    """What was found: how many files and bytes; `wrong`, a list of sentences; and `notes`, what is
    to be said and is no damage.

    watch: a progress.Watch that is told how far it is, or None
    """

    def __init__(self, watch=None):
        self.files = self.bytes = 0
        self.wrong, self.notes, self.watch = [], [], watch
        self.referred = {}  # {(spool, offset) of a payload in a file of its own: name of a table}

    def doing(self, what):
        """A step begins."""
        if self.watch:
            self.watch.doing(what)

    def at(self, far):
        """How far the step is."""
        if self.watch:
            self.watch.at(far)

    def say(self, path, why):
        """Name what is wrong, in one line."""
        self.wrong.append(f"{path}: {failures.plain(why)}")

    def look(self, storage, name, size=None, read=None):
        """Compare a file with the check value in its name, and with its size in the log. Returns
        its bytes, None if they are wrong. read: a Future of them, if they are read already."""
        path = storage.path(name)
        try:
            data = storage.read(name) if read is None else read.result()
        except OSError as error:
            self.say(path, error.strerror or error)
            return None
        self.files, self.bytes = self.files + 1, self.bytes + len(data)
        told = NAMED.fullmatch(name)
        if size is not None and len(data) != size:
            self.say(path, f"{len(data)} bytes, the log says {size}")
        elif told and f"{zlib.crc32(data):08x}" != told[1]:
            self.say(path, "its bytes are not those that were written")
        else:
            return data
        return None


def verify(root, state, finished):
    """Look at every byte that counts of the tables below `root`; returns Verified. Ingest and gold
    may go on meanwhile.

    state      function that gives the names of the files of ingest's state; it may raise
               SpoolError
    finished   function of an intent of ingest: whether it is known that all its commits were made
    """
    with progress.Watch(None, "verify", doing="listing") as watch:
        found = Verified(watch)
        _verify(found, root, state, finished)
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


def _verify(found, root, state, finished):
    storage = Tables(root, {}).storage
    for name in storage.waiting():  # Delta Lake would open it
        found.say(storage.path(name), "it is no plain file: nothing else was looked at")
    if found.wrong:
        return
    decided = _decided(found, Tables(root, {}), finished)  # first: all but the last are committed
    tables = existing(root)
    numbers = {name: _Table(found, tables, name, decided).look() for name in tables.columns}
    if INGEST not in [each.name for each in decided]:
        _look_at_no_intents(found, tables.storage, numbers)
    for each in decided:
        _look_at_gone(found, tables.storage, each, sorted(each.there - set(tables.columns)))
    for each in decided:
        _look_beyond(found, tables.storage, each)
        _look_at_unfinished(found, tables, each)
    for name in tables.storage.dangling():
        found.say(tables.storage.path(name), "it is a link that leads nowhere")
    found.doing("large payloads")
    large.look(found, tables.storage, found.referred)
    found.doing("the state of ingest")
    _look_at_state(found, tables.storage, state)


def _look_beyond(found, storage, decided):
    """Look at commits that are newer than the newest intent was: it may be an older copy, or
    somebody has gone on meanwhile."""
    last = _newest(found, storage, decided.name) if decided.beyond else 0
    for path, number in decided.beyond:
        if number > last and decided.whole:
            found.say(path, f"it is of {decided.what} {number}, which "
                      f"{storage.path(decided.name)} does not know")  # fmt: skip


def _look_at_no_intents(found, storage, numbers):
    """Tell that the intents of ingest are gone, if a table has a batch. numbers: {table: highest
    number of a batch, None if its log cannot be read}"""
    names = [name for name, number in numbers.items() if name in ALL and number not in (None, -1)]
    if names:
        found.say(storage.path(INGEST), f"it is gone, and there are batches in {', '.join(names)}")


def _newest(found, storage, name):
    """The number of the newest intent by now."""
    return _Decided(Verified(found.watch), storage, name).last


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


def _look_at_state(found, storage, state):
    try:
        for name in state():
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
    decided = [_Decided(found, storage, name) for name in sorted(names)
               if storage.listed(f"{name}/_delta_log")]  # fmt: skip
    for each in decided:
        each.look_at_newest(tables, finished if each.name == INGEST else lambda intent: False)
    return decided


class _Decided:
    """The intents of ingest, or of gold, as far as they are still there.

    tables    {table: {number: what that intent does to it, as `_done` says}}
    touched   {table: number of the last intent that changed it};   first, last: numbers
    there     names of the tables that had been made when the newest intent was written
    newest    the newest intent, whose commits may not be made yet
    made      names of the tables in which the newest intent was committed, or must have been:
              its commits are made in turn
    to_come   names of those in which it is not, and can be; nobody can tell whether it was
    whole     whether none of them is damaged
    beyond    [(path of a commit, its number)] of those that none of the intents is of, yet
    """

    def __init__(self, found, storage, name):
        self.name = name
        self.what, self.program = ("batch", "ingest") if name == INGEST else ("intent", "gold")
        self.tables, self.touched, self.there, self.first, self.last = {}, {}, set(), None, -1
        self.beyond, self.newest, self.made, self._storage = [], None, set(), storage
        self.to_come = []
        before, log = len(found.wrong), _Log(found, storage, name)
        for path, version, actions in log.commits():
            told = _one(actions, "commitInfo")
            intent = told.get("intent")
            if not version and intent is None:
                continue  # the log was made
            if not isinstance(intent, dict) or told.get("check") != check_of(intent):
                found.say(path, "it is not the intent that was written")
                continue
            self._take(intent)
        self.whole = len(found.wrong) == before
        try:
            opened(storage, name)
        except DeltaError as error:
            if self.whole:  # else the look at the state says so
                log.checkpoints.to_blame(failures.plain(error))
        log.say()

    def _take(self, intent):
        number, change = intent["number"], intent.get("kind") != "compact"
        self.first = number if self.first is None else self.first
        self.last, self.touched, self.newest = number, intent["touched"], intent
        self.there = {*self.touched, *intent.get("there", ())}
        for table, both in intent["tables"].items():
            added, removed = ([File(*each) for each in files] for files in both)
            self.tables.setdefault(table, {})[number] = _done(
                [_added(each, change) for each in added]
                + [_removed(each, change) for each in removed])  # fmt: skip

    def look_at_newest(self, tables, finished):
        """Find which commits of the newest intent are made. To be called before the tables are
        looked at: ingest, or gold, may go on meanwhile. finished: as `verify` has it."""
        in_turn = list(self.newest["tables"]) if self.newest else []
        known = bool(in_turn) and finished(self.newest)
        while in_turn and not known and not self.committed(tables, in_turn[-1]):
            in_turn.pop()
        self.made.update(in_turn)

    def committed(self, tables, name):
        """Whether the newest intent is committed in a table."""
        try:
            return tables.number(name) >= self.last
        except (DeltaError, SpoolError, OSError, ValueError, TypeError):
            return False  # the look at that table says why

    def can_come(self, table, number):
        """Whether a table whose last commit is of `number` is as it was before the newest intent,
        and still has the files of that: then the next ingest, or gold, makes the commit."""
        if self.touched[table] != self.last or number != self.newest["before"].get(table, -1):
            return False
        return all(self._storage.exists(f"{table}/{path}")
                   for path, *_ in self.newest["tables"][table][0])  # fmt: skip


def _added(file, change):
    return ["add", file.path, file.size, file.partition, change, file.statistics]


def _removed(file, change):
    return ["remove", file.path, file.size, file.partition, change]


def _done(actions):
    """A digest of what actions do to a table, in whatever order."""
    return zlib.crc32(json.dumps(sorted(json.dumps(each, sort_keys=True) for each in actions))
                      .encode())  # fmt: skip


class _Log:
    """The log of a table. checkpoints: checkpoints.Look"""

    def __init__(self, found, storage, name):
        self._found, self._storage, self._name = found, storage, name
        names = storage.listed(f"{name}/_delta_log")
        listed = [COMMIT.fullmatch(each) for each in names]
        self._commits = sorted((int(each[1]), each[0]) for each in listed if each)
        self.checkpoints = Look(storage, f"{name}/_delta_log", names)

    def commits(self):
        """Yield (path, version, [actions]) of the commits that are there and whole. The oldest may
        be removed meanwhile, as Delta Lake does after a month."""
        found, storage, before = self._found, self._storage, None
        reads = _read_ahead(storage, [(file, 0) for _, file in self._commits])
        found.doing(f"the log of {self._name}")
        for count, ((version, file), read) in enumerate(zip(self._commits, reads), 1):
            found.at(f"{count:,} of {len(self._commits):,} commits")
            path = storage.path(file)
            if before is not None and version != before + 1:
                gone = f"commits {before + 1} to {version - 1} before it are"
                if version == before + 2:
                    gone = f"commit {before + 1} before it is"
                found.say(path, f"the {gone} missing")
                self.checkpoints.take(before + 1, None)
            before = version
            actions = self._actions(path, version, read)
            self.checkpoints.take(version, actions)
            if actions is not None:
                yield path, version, actions
        self.checkpoints.rest()

    def _actions(self, path, version, read):
        """Those of a commit; None if it is damaged or gone. read: a Future of its bytes."""
        try:
            data = read.result()
            self._found.bytes += len(data)
            actions = [_action(line) for line in data.decode().splitlines()]
            if not version:
                _look_at_first(actions)
            return actions
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            self._found.say(path, error)
        return None

    def say(self):
        """Name what is wrong with the checkpoints, once all commits were gone through."""
        self._found.bytes += self.checkpoints.bytes
        for name, why in self.checkpoints.wrong:
            self._found.say(self._storage.path(name), why)


def _read_ahead(storage, files):
    """Yield the Futures of the bytes of files in their order, while up to AT_ONCE of them, and
    READ_BYTES, are read. files: their (name, size)."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        under_way, held = deque(), 0
        for name, size in files:
            while under_way and (len(under_way) == AT_ONCE or held + size > READ_BYTES):
                read, room = under_way.popleft()
                yield read
                held -= room
            under_way.append((pool.submit(storage.read, name), size))
            held += size
        while under_way:
            yield under_way.popleft()[0]
    finally:
        # Python may end a generator that nobody has read to its end wherever it collects garbage:
        # within the start of a thread, too, which holds the lock that waiting for a thread needs.
        pool.shutdown(wait=False, cancel_futures=True)


def _action(line):
    """(kind, content) of a line of a commit. Raises ValueError."""
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if not isinstance(told, dict) or len(told) != 1:
        raise ValueError(f"{line[:60]!r} is no action of Delta Lake")
    ((kind, content),) = told.items()
    if kind not in ACTIONS or not isinstance(content, dict):
        raise ValueError(f"{kind[:60]!r} is no action of Delta Lake")
    for name in set(content) - (ACTIONS[kind] or set(content)):
        raise ValueError(f"{name[:60]!r} is nothing that Delta Lake says of an action {kind!r}")
    return kind, content


def _look_at_first(actions):
    """What a table is like stands in its first commit twice. Raises ValueError if the two are not
    the same."""
    parameters = _one(actions, "commitInfo").get("operationParameters", {})
    for name, kind in (("metadata", "metaData"), ("protocol", "protocol")):
        if name in parameters and json.loads(parameters[name]) != _one(actions, kind):
            raise ValueError(f"its {kind} is not what was written")


def _one(actions, kind):
    """The content of the only action of a kind, {} if there is none."""
    return next((content for name, content in actions if name == kind), {})


class _Table:
    """One table: its log, and the files that it consists of."""

    def __init__(self, found, tables, name, decided):
        self.found, self.tables, self.name = found, tables, name
        self.storage, self.path = tables.storage, tables.storage.path(name)
        self.decided = [each for each in decided if name in each.touched]
        self._came, self._replaced = {}, {}

    def look(self):
        """Returns the highest number of a batch that the table has, None if its log cannot be
        read."""
        before = len(self.found.wrong)
        try:
            held = opened(self.storage, self.name) or self.tables.there(self.name)
            files, number, version = files_of(held), last_of(held), held.version()
            names = [field.name for field in held.schema().fields]
        except (DeltaError, SpoolError, OSError, ValueError, TypeError) as error:
            self._commits(None, failures.plain(error))
            return None
        named = self._commits(version)
        self._look_at_number(number)
        self.found.doing(self.name)
        reads = _read_ahead(self.storage, [(self._place(file), file.size) for file in files])
        for count, (file, read) in enumerate(zip(files, reads), 1):
            self.found.at(f"{count:,} of {len(files):,} files")
            self._look_at(file, names, read)
        if named is not None and len(self.found.wrong) == before:
            if {file.path for file in files} != named:
                self.found.say(self.path, "the checkpoint in its log has other files than its "
                               "commits name")  # fmt: skip
        self._look_at_replaced()
        return number

    # -- the log ----------------------------------------------------------------------------------

    def _commits(self, until, why=None):
        """Look at all commits and checkpoints. Returns the names of the files that the table has
        by them, up to a version; None if that cannot be known. why: a reader cannot open it"""
        named, numbers, before = None, set(), len(self.found.wrong)
        log = _Log(self.found, self.storage, self.name)
        for path, version, actions in log.commits():
            try:
                numbers |= self._look_at_commit(path, actions)
                self._follow(version, actions)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self.found.say(path, f"an action of it is not whole ({error!r})")
            if version == until and log.checkpoints.state is not None:
                named = set(log.checkpoints.state.added)
        whole = len(self.found.wrong) == before
        if why is not None and not (whole and log.checkpoints.to_blame(why)):
            self.found.say(self.path, f"its log cannot be read: {why}")
        log.say()
        # Gold may have been killed, and have made all anew: not each of its intents is committed.
        for each in (each for each in self.decided if each.whole and whole and self.name in ALL):
            lacking = {number for number in each.tables.get(self.name, ())
                       if number < each.last and numbers and number > min(numbers)} - numbers
            for number in sorted(lacking):
                self.found.say(self.path, f"its log has no commit of {each.what} {number}")
        return named

    def _follow(self, version, actions):
        """Keep which files a commit has replaced, and of which versions of the table they are."""
        for kind, told in actions:
            if kind == "add":
                self._came[told["path"]] = version
                self._replaced.pop(told["path"], None)
            elif kind == "remove" and told.get("size") is not None:
                since = self._came.pop(told["path"], None)
                self._replaced[told["path"]] = told["size"], since, version - 1

    def _look_at_commit(self, path, actions):
        """Returns the numbers of batches that it is of."""
        done, ours = [], []
        for kind, told in actions:
            if kind == "add":
                stats = json.loads(told["stats"]) if told.get("stats") else None
                int(told["modificationTime"])
                done.append(["add", told["path"], told["size"], told["partitionValues"],
                             told["dataChange"], stats])  # fmt: skip
                ours.append(NAMED.fullmatch(told["path"]))
            elif kind == "remove":
                done.append(["remove", told["path"], told.get("size"),
                             told.get("partitionValues"), told["dataChange"]])  # fmt: skip
        numbers = {told["version"] for kind, told in actions
                   if kind == "txn" and told["appId"] == APPLICATION}  # fmt: skip
        for each in self.decided if numbers else ():
            self._compare(path, each, max(numbers), done)
        if not numbers and any(ours) and self.decided and (
                _one(actions, "commitInfo").get("operation") == "WRITE"):  # fmt: skip
            self.found.say(path, "it adds files of a batch, and does not say of which")
        return numbers

    def _compare(self, path, decided, number, done):
        known = decided.tables.get(self.name, {})
        if number in known:
            if known[number] != _done(done):
                self.found.say(path, f"it does not say what {decided.what} {number} has decided")
        elif decided.whole and decided.first is not None and (
                decided.first <= number <= decided.last):  # fmt: skip
            self.found.say(path, f"no {decided.what} {number} has changed this table")
        elif number > decided.last:
            decided.beyond.append((path, number))

    def _look_at_number(self, number):
        """Whether the table is as new as the intents say. Ingest and gold may go on meanwhile:
        what they decide is not older than the table."""
        for each in self.decided:
            touched = each.touched[self.name]
            if number >= touched:
                continue
            if not each.can_come(self.name, number):
                which = f"after {each.what} {number}" if number >= 0 else f"of any {each.what}"
                self.found.say(self.path, f"it has no commit {which}, and {each.what} {touched} "
                               "has changed it")  # fmt: skip
            elif self.name in each.made:
                self.found.say(self.path, f"its log has lost its commit of {each.what} {touched}: "
                               f"the next `umqtt-pipeline {each.program}` makes it again")
            else:
                each.to_come.append(self.name)

    def _look_at_replaced(self):
        """Look at the files that only earlier versions of the table have, as far as `clean` has
        not removed them; it may do so meanwhile."""
        there = set(self.storage.listed(self.name)) if self._replaced else ()
        names = {f"{self.name}/{path}": of for path, of in sorted(self._replaced.items())}
        names = {name: of for name, of in names.items() if name in there}
        self.found.doing(f"earlier versions of {self.name}")
        reads = _read_ahead(self.storage, [(name, size) for name, (size, *_) in names.items()])
        for count, ((name, (size, since, until)), read) in enumerate(zip(names.items(), reads), 1):
            self.found.at(f"{count:,} of {len(names):,} files")
            before = len(self.found.wrong)
            if not isinstance(read.exception(), FileNotFoundError):
                self.found.look(self.storage, name, size, read)
            if len(self.found.wrong) > before:
                which = f"{since} to {until}" if since is not None else f"up to {until}"
                self.found.wrong[-1] += ("; the table is whole as it is now, but not as it was in "
                                         f"its versions {which}")  # fmt: skip

    # -- the files --------------------------------------------------------------------------------

    def _place(self, file):
        return f"{self.name}/{file.path}"

    def _look_at(self, file, names, read):
        """Compare a file with what the log says of it. read: a Future of its bytes."""
        name = self._place(file)
        path, data = self.storage.path(name), self.found.look(self.storage, name, file.size, read)
        if data is None:
            return
        try:
            footer = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            self.found.say(path, error)
            return
        wrong = []
        if file.rows != footer.metadata.num_rows:
            wrong.append(f"{file.rows} rows, and it has {footer.metadata.num_rows}")
        folder = file.path.rpartition("/")[0].removeprefix(f"{PARTITION}=")
        if NAMED.fullmatch(name):
            if (file.day or "") != folder:
                wrong.append(f"the day {file.day}, and it lies in {folder}")
            wrong += _not_the_ends(file, footer.metadata)
        wrong += [f"no column {each}" for each in footer.schema_arrow.names if each not in names]
        if wrong:
            self.found.say(path, f"the log of its table says: {'; '.join(wrong)}")
        elif self.name in large.TABLES:
            self.found.referred.update(dict.fromkeys(large.referred(footer), self.name))


def _not_the_ends(file, metadata):
    """What the log says of the least and greatest values of a file that its footer does not."""
    told, ends = {*file.least, *file.greatest}, {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, held = column.path_in_schema, column.statistics
            if name in told and held is not None and held.has_min_max:
                low, high = ends.get(name, (held.min, held.max))
                ends[name] = min(low, held.min), max(high, held.max)
    said = {name: (file.least.get(name), file.greatest.get(name)) for name in ends}
    return [f"{name} from {said[name][0]} to {said[name][1]}, and it has {low} to {high}"
            for name, (low, high) in sorted(ends.items()) if said[name] != (low, high)]
