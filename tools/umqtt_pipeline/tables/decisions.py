"""What was decided, as `verify` reads it: the intents of ingest, and of gold.

Knows the form of an intent, and which of its commits can still be made. Must not know what a row
of a table means.
"""

from deltalake.exceptions import DeltaError
from umqtt_runtime import failures

from ..spool.files import SpoolError
from .commits import Log, columns_of, digest, is_whole, one
from .intents import COLUMN, FORMAT, check_of
from .places import Places
from .schema import ALL
from .store import File, opened

INGEST = "_state/intents"  #: whose intents must be there when tables are


class Decided:
    """The intents of ingest, or of gold, as far as they are still there.

    tables    {table: {number: what that intent does to it, as `commits.digest` says}}
    anew      {number: whether that intent of gold has made all anew; None: it does not say}
    touched   {table: number of the last intent that changed it};   first, last: numbers
    there     names of the tables that had been made when the newest intent was written
    newest    the newest intent, whose commits may not be made yet
    made      names of the tables in which the newest intent was committed, or must have been:
              its commits are made in turn
    to_come   names of those in which it is not, and can be; nobody can tell whether it was
    whole     whether none of them is damaged; copies behind the newest one do no harm to them
    copied    whether there are such copies
    beyond    [(path of a commit, its number)] of those that none of the intents is of, yet
    """

    def __init__(self, found, storage, name):
        self.name = name
        self.what, self.program = ("batch", "ingest") if name == INGEST else ("intent", "gold")
        self.tables, self.touched, self.there, self.first, self.last = {}, {}, set(), None, -1
        self.beyond, self.newest, self.made, self._storage = [], None, set(), storage
        self.to_come, self.anew, self._lost, copies = [], {}, [], []
        before, log = len(found.wrong), Log(found, storage, name)
        places = Places(log, self._number_of)
        known = before  # lines up to the newest intent that is in its place
        for path, version, actions in log.commits():
            told = one(actions, "commitInfo")
            intent = told.get("intent")
            if not version and intent is None:
                if columns_of(actions) != set(COLUMN.names):
                    log.misplaced(path, version, "it is not what makes this log: another file has "
                                                 "taken its place")  # fmt: skip
                continue
            if not {"intent", "check"} & set(told) and len(actions) > 1:
                log.misplaced(path, version, "it is no intent: another file has taken its place")
                copies.append(path)
                continue
            if not isinstance(intent, dict) or told.get("check") != check_of(intent):
                found.say(path, "it is not the intent that was written")
                continue
            if told.get("format") != FORMAT:
                found.say(path, "another version of umqtt-pipeline has written it")
                break
            if strange := self._strange(intent):
                what = "file" if places.has_numbers() else "folder"
                log.misplaced(
                    path, version, f"it is an intent on {strange[0]}, and this log is of other "
                                   f"tables: another {what} has taken its place")  # fmt: skip
                if what == "folder":
                    break
                copies.append(path)
                continue
            if self._is_a_copy(places, intent["number"], version):
                log.misplaced(path, version, f"it is {self.what} {intent['number']} in the place "
                                             "of another one")  # fmt: skip
                copies.append(path)
                continue
            self._look_at_lost(log, path, version, intent["number"], intent.get("anew"))
            self._take(intent)
            known, copies = len(found.wrong), []
        self.copied = bool(copies)
        for path in copies:
            found.add(path, f". When no {self.program} runs, move this file elsewhere")
        self.whole = known == before and len(found.wrong) == known + len(copies)
        try:
            opened(storage, name)
        except DeltaError as error:
            log.name_the_cause(failures.plain(error), self._opens)
        log.say()

    def _is_a_copy(self, places, number, version):
        """Whether an intent is that of another place in the log. places: Places of the log"""
        return (not version or number != self.last + 1) and places.is_strange(version)

    def _look_at_lost(self, log, path, version, number, anew):
        """Say that intents before one are lost, though no version is missing. After a gold that
        has made all anew there need be none: it goes on from whatever its tables have. anew:
        whether it has, None if it does not say so"""
        # The first commits of a log are removed after a month, that which makes it among them.
        cut = self.first is None and log.first and log.checkpoints.sums_up(version)
        expected = number if cut or not version else self.last + 1
        if not version:
            log.misplaced(path, version, f"it is {self.what} {number}, and what makes this log, "
                                         "whose place it has, is lost")  # fmt: skip
        elif expected < number:
            self._lost.append((expected, number))
            known = {version - 1} & log.named or version in log.behind_gaps
            if not known and (self.name == INGEST or anew is False):
                log.misplaced(path, version, f"it is {self.what} {number}, and {self.what} "
                                             f"{number - 1}, whose place it has, is lost")

    def is_lost(self, number):
        """Whether there may have been an intent of that number that is not there."""
        return any(first <= number < end for first, end in self._lost)

    def _number_of(self, actions):
        """The number of an intent that is whole and of this log, None if it is none."""
        told = one(actions, "commitInfo")
        intent = told.get("intent")
        if not isinstance(intent, dict) or told.get("check") != check_of(intent):
            return None
        return None if self._strange(intent) else intent["number"]

    def _strange(self, intent):
        """Names of the tables in an intent that those of this log are never on."""
        return [each for each in (*intent["touched"], *intent["tables"])
                if (each in ALL) != (self.name == INGEST)]  # fmt: skip

    def _opens(self, version):
        try:
            opened(self._storage, self.name, version)
        except DeltaError:
            return False
        return True

    def _take(self, intent):
        number, change = intent["number"], intent.get("kind") != "compact"
        self.first = number if self.first is None else self.first
        self.last, self.touched, self.newest = number, intent["touched"], intent
        self.anew[number] = intent.get("anew")
        self.there = {*self.touched, *intent.get("there", ())}
        for table, both in intent["tables"].items():
            added, removed = ([File.of(*each) for each in files] for files in both)
            self.tables.setdefault(table, {})[number] = digest(
                [_added(each, change) for each in added]
                + [_removed(each, change) for each in removed])  # fmt: skip

    def knows(self, table, number):
        """Whether that intent has changed a table, or is older than those that are there."""
        return number in self.tables.get(table, ()) or number < (self.first or 0)

    def may_change(self, table):
        """Whether these intents are those that may change a table."""
        return table in self.touched or self.name == INGEST and table in ALL

    def look_at_newest(self, tables, finished):
        """Find which commits of the newest intent are made. To be called before the tables are
        looked at: ingest, or gold, may go on meanwhile. finished: as `verifying.verify` has it."""
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
        if self.newest is None or self.touched.get(table) != self.last:
            return False
        if number != self.newest["before"].get(table, -1):
            return False
        return all(is_whole(self._storage, f"{table}/{path}", size)
                   for path, size, *_ in self.newest["tables"][table][0])  # fmt: skip


def _added(file, change):
    return ["add", file.path, file.size, file.partition, change, file.statistics]


def _removed(file, change):
    return ["remove", file.path, file.size, file.partition, change]
