"""One table, as `verify` judges it: its log beside what was decided, and its files beside its log.

Knows what a commit says of a data file, and what the footer of that says. Must not know what a row
means, nor how an intent is read (decisions.py).
"""

import json
from bisect import bisect_left, bisect_right

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError
from deltalake.table import SUPPORTED_READER_FEATURES
from umqtt_runtime import failures

from ..spool.files import SpoolError
from . import large
from .commits import NAMED, Log, columns_of, digest, number_of, one, read_ahead
from .places import Places
from .schema import ALL, PARTITION
from .statistics import ends_of
from .store import APPLICATION, file_added, files_of, last_of, opened

UNREADABLE = (DeltaError, SpoolError, OSError, ValueError, TypeError)  #: of a log that is damaged


class TableLook:
    """A look at one table: its log, and the files that it consists of.

    found     a verifying.Verified that is told;   tables: Tables, with this one among them
    decided   the intents that may have changed it (decisions.Decided)
    columns   {table: {column: type}} of the tables that are known
    """

    def __init__(self, found, tables, name, decided, columns=ALL):
        self.found, self.tables, self.name = found, tables, name
        self.storage, self.path = tables.storage, tables.storage.path(name)
        self.decided = [each for each in decided if each.may_change(name)]
        self._known = columns
        self._came, self._replaced = {}, {}
        self._what = "batch" if name in ALL else "intent"
        self._misplaced = []  # paths that are named because files are in the place of others
        self._unsure = False  # the newest checkpoint may be wrong, and nobody can tell
        self._misread = False  # readers take a checkpoint that is wrong, or a stray one
        self._named = set()  # versions whose commit is named
        self._checkpoint = -1  # version of the newest checkpoint
        self._columns = None  # the last version whose commit says which columns there are
        self._types = {}  # those columns, and their types
        self._number_known = True  # no commit that is named can be of the newest number
        self._log_wrong = {}  # {path in the log: [what it says otherwise than a whole file]}

    def look(self):
        """Returns the highest number of a batch that the table has, None if its log cannot be
        read."""
        before = len(self.found.wrong)
        try:
            read, version, why = *self._read(), None
        except UNREADABLE as error:
            read, version, why = None, None, failures.plain(error)
        state = self._commits(version, why)
        if self._misread:  # what a damaged checkpoint says of a file is no fault of that
            read = state and _said(state)
        if read is None:
            return None
        files, number, names = read
        if self._number_known:
            self._look_at_number(number)
        self.found.doing(self.name)
        reads = read_ahead(self.storage, [(self._place(file), file.size) for file in files])
        for count, (file, read) in enumerate(zip(files, reads), 1):
            self.found.at(f"{count:,} of {len(files):,} files")
            self._look_at(file, names, read)
        for path, (first, *more) in self._log_wrong.items():
            self.found.say(path, first + (f"; and {len(more)} more" if more else ""))
        if state is not None and len(self.found.wrong) == before:
            if {file.path for file in files} != set(state.added):
                self.found.say(self.path, "the checkpoint in its log has other files than its "
                               "commits name")  # fmt: skip
        self._look_at_replaced()
        return number

    def _read(self, version=None):
        """What a reader finds, now or at a version: (Files, highest number of a batch, names of
        columns), and the version. Raises UNREADABLE."""
        held = opened(self.storage, self.name, version) or self.tables.there(self.name)
        names = [field.name for field in held.schema().fields]
        return (files_of(held), last_of(held), names), held.version()

    def _opens(self, version):
        try:
            self._read(version)
        except UNREADABLE:
            return False
        return True

    # -- the log ----------------------------------------------------------------------------------

    def _commits(self, until, why=None):
        """Look at all commits and checkpoints. Returns the checkpoints.State of the table by the
        commits, up to a version; None if that cannot be known. why: a reader cannot open it"""
        before = len(self.found.wrong)
        of = {}  # {version: number of the batch that its commit says it is of}
        strange = set()  # versions whose commit stands in the place of another one
        log = Log(self.found, self.storage, self.name, until)
        at = _Place(log, {number for each in self.decided
                          for number in each.tables.get(self.name, ())})
        for path, version, actions in log.commits():
            lines = len(self.found.wrong)
            try:
                number = number_of(actions)
                if self._is_strange(at, path, version, actions, number):
                    strange.add(version)
                    continue
                self._follow(path, version, actions)
                self._look_at_commit(path, actions, number)
                if number is not None and len(self.found.wrong) == before:
                    self._look_at_lost(at, path, actions, number)
                if number is not None and len(self.found.wrong) == lines:
                    of[version] = number
                    for each in self.decided:
                        if number > each.last:
                            each.beyond.append((path, number))
                at.take(version, number)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                why = f"no {error.args[0]}" if isinstance(error, KeyError) else error
                self.found.say(path, f"an action of it is not whole ({why})")
        state = log.checkpoints.kept
        if why is not None:
            log.name_the_cause(why, self._opens)
        if log.checkpoints.other and self._columns not in log.named:
            version = self._columns
            log.misplaced(f"{self.path}/_delta_log/{version:020d}.json", version,
                          "it makes another table than the checkpoint says: another file has "
                          "taken its place")
            log.named.add(version)
        self._tell_what_to_do(log, of, strange)
        log.say()
        self._unsure = log.checkpoints.unsure
        self._misread = log.checkpoints.newest_is_wrong() or log.checkpoints.strays
        self._named = log.named
        self._checkpoint = -1 if log.checkpoints.newest is None else log.checkpoints.newest
        self._number_known = max(of, default=-1) > max(log.named | strange, default=-2)
        return state

    def _is_strange(self, at, path, version, actions, number):
        """Whether somebody has put a commit in the place of another one, which is said. number: of
        the batch that it says it is of, None for none"""
        other = self._of_another_log(actions, version, number)
        if not other and not at.is_strange(version, number):
            return False
        if other:
            at.log.misplaced(path, version, f"{other}: another file has taken its place")
            if one(actions, "metaData"):  # readers take it
                self._columns = version
            self._misplaced.append(path)
            return True
        lines = len(self.found.wrong)
        self._look_at_commit(path, actions, number)
        if len(self.found.wrong) > lines:  # it may be in its place, and say something wrong
            return True
        before, after = at.places.between(version)
        if number in at.places.before(version):
            why = f"an earlier commit is of {self._what} {number} already"
        else:
            which, other = ("after", after) if before is None or before < number else (
                "before", before)  # fmt: skip
            why = (f"it is of {self._what} {number}, and the commit {which} it is of {self._what} "
                   f"{other}: another commit has taken its place")
        at.log.misplaced(path, version, why)
        self._misplaced.append(path)
        return True

    def _of_another_log(self, actions, version, number):
        """What a commit is that nobody makes in the log of this table at that version; None if it
        is not such a one."""
        told, columns = one(actions, "commitInfo"), columns_of(actions)
        if told.get("intent") is not None:
            return "it is an intent, and no commit of a table"
        if version and told.get("operation") == "CREATE TABLE":
            return "it is the commit that makes a table"
        if not version and columns is None:
            return "it does not make the table, as the first commit of a log does"
        own = set(self._known.get(self.name, ()))
        if not version and own and not columns <= own and (
            not columns & own or any(columns <= set(each) for each in self._known.values())
        ):
            return f"it makes a table with a column {min(columns - own)!r}"
        if number is not None and not all(each.knows(self.name, number) for each in self.decided):
            added = [told["path"] for kind, told in actions if kind == "add"]
            if added and not any(self.storage.exists(f"{self.name}/{each}") for each in added):
                return "none of the files is there that it adds"
        return None

    def _look_at_lost(self, at, path, actions, number):
        """Say which commits before one are lost that their intents tell of, though no version is
        missing; of gold also which file nothing has brought that it removes."""
        gold, state = self.name not in ALL, at.log.checkpoints.state
        removed = {told["path"] for kind, told in actions if kind == "remove"}
        if not at.begun and at.log.checkpoints.seed is not None:
            self._look_at_seed(at, number, removed)
            return
        for each in (each for each in self.decided if each.whole):
            lost = at.lost(number)
            # Gold may have been killed, and have made all anew: not each of its intents is
            # committed. Older ones do not say whether they have.
            anew = each.anew.get(number)
            if gold and lost and anew is None:
                anew = state is None or set(state.added) <= removed
            for other in () if gold and anew else lost:
                name, what = at.instead or path, f"of {each.what} {number}"
                self.found.say(self.path, f"its log has no commit of {each.what} {other}: "
                               f"{name.rpartition('/')[2]}, which is in its place, is "
                               f"{f'of no {each.what}' if at.instead else what}")  # fmt: skip
                self._misplaced.append(self.path)
                at.log.checkpoints.doubt()
        unknown = gold and state is not None and sorted(removed.difference(state.added))
        if unknown and self.path not in self._misplaced:
            self.found.say(path, f"it removes {unknown[0]}, which the table does not have: a "
                           "commit before it is lost")  # fmt: skip
            self._misplaced.append(path)
            at.log.checkpoints.doubt()

    def _look_at_seed(self, at, number, removed):
        """Say that the checkpoint is an older one which the first commit that is there follows.
        number: of the batch of that;   removed: the paths of the files that it removes"""
        name, state = at.log.checkpoints.seed
        path, last = self.storage.path(name), state.numbers.get(APPLICATION, -1)
        known = {each for decided in self.decided if decided.whole
                 for each in decided.tables.get(self.name, ())}  # fmt: skip
        known = [each for each in known if last < each < number]
        if self.name in ALL and known:
            self.found.say(path, f"it is of {self._what} {last}, and the commit after it is of "
                           f"{self._what} {number}: what {self._what} {min(known)} has changed is "
                           "not in it, an older one has taken its place")  # fmt: skip
        elif not removed <= set(state.added):
            self.found.say(path, f"the commit after it removes {min(removed - set(state.added))}, "
                           "which it does not have: another one has taken its place")
        else:
            return
        at.log.checkpoints.doubt()

    def _tell_what_to_do(self, log, of, strange):
        """The newest commit, if it is named, can be made again from the newest intent, or needs
        not be there; a table of gold can be made again. of: {version: number of a batch} of the
        commits that are whole. strange: versions whose commit stands in the place of another one
        """
        if not self._newest_can_go(log, of, strange) and self.name not in ALL:
            for path in dict.fromkeys(self._misplaced):
                self.found.add(path, ". You may remove this table: the next `umqtt-pipeline gold` "
                               "makes it again")  # fmt: skip

    def _newest_can_go(self, log, of, strange):
        """Say of the newest commit, if it is named, that it can go; returns whether it can."""
        version, path = log.last
        wrong = version in log.named | log.behind_gaps
        if not wrong or version <= (log.checkpoints.newest or 0):
            return False
        if log.first and not log.checkpoints.sums_up(log.first):  # what makes the table is gone
            return False
        number = max((number for at, number in of.items() if at < version), default=-1)
        for each in self.decided:
            if each.whole and each.can_come(self.name, number):
                return self.found.add(
                    path, f". When no {each.program} runs, move this file elsewhere; the next "
                    f"`umqtt-pipeline {each.program}` makes that commit again")
        if version in strange and all(number >= each.touched.get(self.name, -1)
                                          for each in self.decided):
            return self.found.add(path, ". When nobody writes to this log, move this file "
                                  "elsewhere")  # fmt: skip
        return False

    def _follow(self, path, version, actions):
        """Keep which files a commit has replaced, and of which versions of the table they are, and
        look at what it says that the table is like."""
        for kind, told in actions:
            if kind == "add":
                self._came[told["path"]] = version
                self._replaced.pop(told["path"], None)
            elif kind == "remove" and told.get("size") is not None:
                since = self._came.pop(told["path"], None)
                self._replaced[told["path"]] = told["size"], since, version - 1
            elif kind == "metaData":
                self._columns = version
                if self.name in ALL:
                    self._look_at_columns(path, told)
            elif kind == "protocol":
                unknown = set(told.get("readerFeatures") or ()) - SUPPORTED_READER_FEATURES
                if unknown:
                    self.found.say(path, f"no reader here knows {', '.join(sorted(unknown))}, "
                                   "which its protocol asks for")  # fmt: skip

    def _look_at_columns(self, path, told):
        """Whoever changes the columns of these tables only adds some: there are files with the
        others. told: a metaData"""
        fields = json.loads(told["schemaString"])["fields"]
        types = {field["name"]: field["type"] for field in fields}
        for name, kind in self._types.items():
            if name not in types:
                self.found.say(path, f"it takes the column {name} away")
                break
            if types[name] != kind:
                self.found.say(path, f"it makes the column {name} of type {kind!r} one of "
                               f"{types[name]!r}")  # fmt: skip
                break
        else:
            self._types = types

    def _look_at_commit(self, path, actions, number):
        """number: of the batch that it says it is of, None for none"""
        done, ours = [], []
        info = one(actions, "commitInfo")
        # Who else appends removes nothing.
        appends = (info.get("operationParameters") or {}).get("mode") == "Append"
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
                ours.append(appends and NAMED.fullmatch(told["path"]))
        for each in self.decided if number is not None else ():
            self._compare(path, each, number, done)
        if number is None and any(ours) and self.decided and info.get("operation") == "WRITE":
            self.found.say(path, "it is a commit of a batch, and does not say of which")

    def _compare(self, path, decided, number, done):
        known = decided.tables.get(self.name, {})
        if number in known:
            if known[number] != digest(done):
                self.found.say(path, f"it does not say what {decided.what} {number} has decided")
        elif decided.whole and decided.first is not None and (
                decided.first <= number <= decided.last
                and not decided.is_lost(number)):  # fmt: skip
            self.found.say(path, f"no {decided.what} {number} has changed this table")
        elif done and digest(done) in known.values():
            self.found.say(path, f"it says that it is of {decided.what} {number}, and does what "
                           "another one has decided")  # fmt: skip

    def _look_at_number(self, number):
        """Whether the table is as new as the intents say. Ingest and gold may go on meanwhile:
        what they decide is not older than the table."""
        for each in self.decided:
            touched = each.touched.get(self.name, -1)
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
        reads = read_ahead(self.storage, [(name, size) for name, (size, *_) in names.items()])
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
        """Compare a file with what the log says of it. read: a Future of its bytes.

        If a file has the check value in its name, what the log says otherwise is no fault of the
        file: the log is named."""
        name, came = self._place(file), self._came.get(file.path)
        if self._is_named(came) and isinstance(read.exception(), FileNotFoundError):
            return  # its name may be what is wrong with that commit
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
        ours = NAMED.fullmatch(name)
        if ours:
            wrong += self._not_of_ours(file, len(data), footer.metadata)
        lacking = [f"no column {each}" for each in footer.schema_arrow.names if each not in names]
        if not ours and wrong + lacking:
            self.found.say(path, f"the log of its table says: {'; '.join(wrong + lacking)}")
        if ours and wrong:
            self._blame(came, f"it says of {file.path}: {'; '.join(wrong)}")
        if ours and lacking and not self._in_doubt():
            self._blame(self._columns, f"it says: {'; '.join(lacking)}, and {file.path} has it")
        if self.name in large.TABLES:
            self.found.refer(self.name, large.referred(footer))

    def _not_of_ours(self, file, size, metadata):
        """What the log says of a file that is whole, by the check value in its name, and is not
        so."""
        wrong, folder = [], file.path.rpartition("/")[0].removeprefix(f"{PARTITION}=")
        if file.size != size:
            wrong.append(f"{file.size} bytes, and it has {size}")
        if self._in_doubt():  # the columns may give days and ends another type
            return wrong
        if (file.day or "") != folder:
            wrong.append(f"the day {file.day}, and it lies in {folder}")
        return wrong + _not_the_ends(file, metadata)

    def _is_named(self, version):
        """Whether what readers take from the commit of a version is named as wrong. None: of one
        that is gone, or could not be read here."""
        if version is None:
            version = max(self._named, default=-1)
        return version in self._named and version > self._checkpoint

    def _in_doubt(self):
        """Whether readers may take the columns from a commit that is named as wrong: Delta Lake
        may take what is no JSON to others."""
        since = -1 if self._columns is None else self._columns
        return any(version >= max(since, self._checkpoint + 1) for version in self._named)

    def _blame(self, version, why):
        """The log is wrong, by the commit of a version (None: it is gone), unless that is named:
        then readers take it from the newest checkpoint, or nothing more is to be said."""
        if self._is_named(version):
            return
        end = f"{self._checkpoint:020d}.checkpoint.parquet" if self._checkpoint >= 0 else ""
        summed_up = self._unsure and version is not None and version <= self._checkpoint
        if version is not None and version not in self._named and not summed_up:
            end = f"{version:020d}.json"
        self._log_wrong.setdefault(f"{self.path}/_delta_log/{end}", []).append(why)


class _Place:
    """Where a look is that goes through the commits of a log.

    log       a commits.Log;   places: Places of it
    known     numbers of the batches that have changed the table, by their intents
    instead   path of the first commit without a number since the last one with one, None for none
    """

    def __init__(self, log, known):
        self.log, self.places = log, Places(log, number_of, known)
        self._known, self._before, self.instead = sorted(known), None, None
        self.begun = False  # whether a commit with a number was in its place

    def take(self, version, number):
        """A commit is in its place. number: of its batch, None for none"""
        self.begun = self.begun or number is not None or not version
        if number is not None:
            self._before, self.instead = number, None
        elif not version:
            self._before = -1
        else:
            self.instead = self.instead or f"{version:020d}.json"

    def lost(self, number):
        """The known numbers between that of the last commit and this one; none are known to be
        lost before the first commit of a log that does not begin with its table."""
        if self._before is None:
            return []
        return self._known[bisect_right(self._known, self._before):
                           bisect_left(self._known, number)]  # fmt: skip

    def is_strange(self, version, number):
        """Whether a commit stands in the place of another one, by its number, None for none."""
        if number is None or version and self._before is None:
            return False
        if version and number > self._before and not self.lost(number):
            return False
        return self.places.is_strange(version)


def _said(state):
    """(Files, highest number of a batch, names of columns) of a table, by its commits; None if one
    of these is damaged. state: checkpoints.State"""
    try:
        files = sorted(map(file_added, state.added.values()), key=lambda each: each.path)
        fields = json.loads(state.of["metaData"]["schemaString"])["fields"]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return files, state.numbers.get(APPLICATION, -1), [field["name"] for field in fields]


def _not_the_ends(file, metadata):
    """What the log says of the least and greatest values of a file that its footer does not."""
    least, greatest, ends = file.told.least, file.told.greatest, {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, held = column.path_in_schema, column.statistics
            if name in least and held is not None and held.has_min_max:
                low, high = ends.get(name, (held.min, held.max))
                ends[name] = min(low, held.min), max(high, held.max)
    said = {name: (least[name], greatest.get(name)) for name in ends}
    ends = {name: ends_of(*both) for name, both in ends.items()}
    return [f"{name} from {said[name][0]} to {said[name][1]}, and it has {low} to {high}"
            for name, (low, high) in sorted(ends.items()) if said[name] != (low, high)]
