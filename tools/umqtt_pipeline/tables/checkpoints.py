"""The checkpoints in the log of a Delta table: whether each can be read, and says what the commits
before it say.

Knows the actions of Delta Lake, and how a checkpoint holds them. Must not know what a row of a
table means, nor whose commits these are.

A reader takes the newest checkpoint and the commits after it, so a bit that flips in a checkpoint
changes what is read, or keeps the table from being opened, though each commit is whole. A
checkpoint has no check value. As long as the commits are there that it sums up, it can be removed.
"""

import json
import re
from collections import Counter
from itertools import islice
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from umqtt_runtime import failures

NAME = re.compile(r"(\d{20})\.checkpoint\.parquet")
#: checkpoints of other forms, which readers take, too, and which nobody writes to these tables
_OTHER = re.compile(r"(\d{20})\.(checkpoint\..+\.(parquet|json)|\d{20}\.compacted\.json)")
_SUMMARY = re.compile(r"(\d{20})\.crc")  #: what Spark writes beside a commit
_FILE = {"path", "partitionValues", "size", "dataChange", "stats", "tags", "deletionVector",
         "baseRowId", "defaultRowCommitVersion"}  # fmt: skip
#: what a line of a log may be, and what may stand in it (None: anything)
ACTIONS = {
    **dict.fromkeys(("commitInfo", "protocol", "metaData", "cdc", "domainMetadata")),
    "add": _FILE | {"modificationTime", "clusteringProvider"},
    "remove": _FILE | {"deletionTimestamp", "extendedFileMetadata"},
    "txn": {"appId", "version", "lastUpdated"},
}
#: what else a checkpoint may hold, and of a file
_MORE, _PARSED = {"sidecar", "checkpointMetadata"}, {"stats_parsed", "partitionValues_parsed"}
UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError)
SOME = 20  #: files that are read to know which of two checkpoints is right
HINT = "_last_checkpoint"  #: the file that says which checkpoint is the newest


class State:
    """What the commits up to a version say of a table: {path: action} of the files that it has and
    of those that it had, and what else a reader heeds."""

    def __init__(self):
        self.added, self.removed, self.of, self.numbers = {}, {}, {}, {}

    def copy(self):
        """It as it is now."""
        made = State()
        made.added, made.removed, made.of, made.numbers = map(
            dict, (self.added, self.removed, self.of, self.numbers))
        return made

    def take(self, actions):
        """The (kind, content) of the next commit, or of a checkpoint."""
        for kind, told in actions:
            if kind == "remove":
                self.added.pop(told["path"], None)
                self.removed[told["path"]] = told
        for kind, told in actions:
            if kind == "add":
                self.removed.pop(told["path"], None)
                self.added[told["path"]] = told
            elif kind == "txn":
                self.numbers[told["appId"]] = told["version"]
            elif kind in ("protocol", "metaData"):
                self.of[kind] = _plain(told)


def read(data):
    """All columns of a checkpoint, as an Arrow table. Raises pa.ArrowException, OSError,
    ValueError."""
    for name, count in Counter(pq.read_schema(pa.BufferReader(data)).names).items():
        if count > 1:  # pyarrow's own error has the whole schema in it
            raise ValueError(f"its column {name!r} is there twice")
    held = pq.read_table(pa.BufferReader(data))
    held.validate(full=True)
    for column in held.schema:
        known = ACTIONS.get(column.name) or ()
        names = {field.name for field in column.type} if known else set()
        if column.name not in {*ACTIONS, *_MORE} or names - {*known, *_PARSED}:
            raise ValueError(f"its column {column.name!r} is none of Delta Lake")
    return held


def actions(held):
    """The (kind, content) of each row of a checkpoint, an Arrow table. Raises ValueError."""
    found = []
    for row in held.to_pylist():
        told = [(kind, content) for kind, content in row.items() if content is not None]
        if len(told) != 1:
            which = f"is of {len(told)} actions at once" if told else "is of no action"
            raise ValueError(f"a row of it {which}, by the columns that it has")
        kind, content = told[0]
        found.append((kind, {name: value for name, value in content.items() if value is not None}))
    return found


def paths(held):
    """{(path, bytes)} of the files that the table has, by a checkpoint, an Arrow table."""
    rows = _rows(held, "add")
    return set(zip(rows.field("path").to_pylist(), rows.field("size").to_pylist()))


def twice(held):
    """What a checkpoint, an Arrow table, says more than once, in a few words each: readers take
    all rows of a file, and any one of what a table is like."""
    there = set(held.column_names)
    wrong = [f"it has {kind} twice" for kind in ("protocol", "metaData")
             if kind in there and len(held[kind]) - held[kind].null_count > 1]  # fmt: skip
    keys = {"add": "path", "remove": "path", "txn": "appId"}
    names = {kind: Counter(_rows(held, kind).field(key).to_pylist() if kind in there else ())
             for kind, key in keys.items()}  # fmt: skip
    for kind in ("add", "txn"):
        wrong += [f"it has {name!r} twice" for name, count in names[kind].items() if count > 1]
    # Some readers go by the later row, and some by the one that adds.
    return wrong + [f"it has {name!r} as added and as removed"
                    for name in names["add"] if name in names["remove"]]  # fmt: skip


def _rows(held, kind):
    """The contents of the actions of one kind in a checkpoint, an Arrow array of structs."""
    rows = held[kind].combine_chunks()
    return rows.filter(rows.is_valid())


def differences(state, found):
    """What the actions of a checkpoint say otherwise than the commits up to it, in a few words
    each. state: of the commits;   found: State of the checkpoint. Times are left out: no reader
    needs them. Of the files that the table had, a checkpoint need not have all."""
    wrong = [f"its {kind}" for kind in ("protocol", "metaData")
             if kind in state.of and found.of.get(kind) != state.of[kind]]  # fmt: skip
    if found.numbers != state.numbers:
        wrong.append("the numbers of batches")
    if set(found.added) != set(state.added):
        wrong.append("the names of files")
    for path in sorted(set(found.added) & set(state.added)):
        said, told = found.added[path], state.added[path]
        if "stats_parsed" in said:  # Spark may write these in its place
            said = {**said, "stats": told.get("stats")}
        if _file(said) != _file(told):
            wrong.append(f"what it says of {path!r}")
    for path, told in sorted(found.removed.items()):
        if path not in state.removed or _file(told) != _file(state.removed[path]):
            wrong.append(f"the removed file {path!r}")
    return wrong


def _is_other(state, found):
    """Whether a checkpoint is of these commits, but for the one that made the table: that is of
    another one. state: of the commits;   found: State of the checkpoint"""
    told, said = state.of.get("metaData", {}), found.of.get("metaData", {})
    return set(found.added) == set(state.added) and found.numbers == state.numbers and all(
        told.get(name) != said.get(name) for name in ("id", "createdTime"))


class Look:
    """A look at the checkpoints of one log, while its commits are gone through in their order.

    storage: Storage;   log: the name of its folder;   names: of all files in it
    until: a version; None: the last

    state    State after the last commit, None if nothing tells it
    kept     State of the version `until`, the same
    wrong    [(name, why)] of what is damaged, with what to do
    strays   whether readers may take a file that does not belong there, which is in `wrong`
    unsure   whether the newest and the one before it do not agree, and either may be wrong
    other    whether the commit that makes the table is of another one, by the newest checkpoint
    bytes    how many were read
    """

    def __init__(self, storage, log, names, until=None):
        self._storage, self._log, self._table = storage, log, log.rpartition("/")[0]
        of = {form: [(int(told[1]), name) for name in names
                     if (told := form.fullmatch(name.removeprefix(f"{log}/")))]
              for form in (NAME, _OTHER, _SUMMARY)}  # fmt: skip
        self._names, self._summaries = dict(of[NAME]), dict(of[_SUMMARY])
        self._others = [name for _, name in of[_OTHER]]
        self._left, self.state, self.wrong, self.bytes = dict(self._names), None, [], 0
        self._until, self.kept, self._last, self.strays = until, None, None, False
        self._judged, self.other, self._doubted = [], False, False
        self.unsure = False
        self._pairs = []  # (name, why) of those that a later one does not agree with
        self._seed = None  # version of the checkpoint that `state` begins with; None: the table's
        self._numbers = {}  # of batches, as the commits say them that are whole
        self._known = False  # whether the commits tell what the newest checkpoint has to say

    def begin(self, version):
        """The oldest commit that is there is of this version: the log may be cleaned up to it."""
        if version - 1 in self._left:
            self._look(version - 1, self._left.pop(version - 1))

    def take(self, version, told):
        """The (kind, content) of the commit of a version; None if it is missing or damaged."""
        if not version and told is not None:
            self.state, self._seed = State(), None
        try:
            if told is None:
                self.state = None
            elif self.state is not None:
                self.state.take(told)
        except (KeyError, TypeError, AttributeError):  # whoever looks at that commit says so
            self.state = None
        self._numbers.update((each["appId"], each["version"]) for kind, each in told or ()
                             if kind == "txn" and {"appId", "version"} <= set(each))
        self._last = version
        if version in self._left:
            self._look(version, self._left.pop(version))
        if version in self._summaries and self.state is not None:
            self._look_at_summary(self._summaries[version])
        if version == self._until and self.state is not None:
            self.kept = self.state.copy()

    def doubt(self):
        """A commit stands in the place of another one, or is lost though no version is missing:
        the commits are no judge of a checkpoint, and cannot take its place."""
        self._doubted = True

    def rest(self):
        """There are no more commits."""
        known = self.state is not None and not self._doubted
        for version, name in sorted(self._left.items()):
            if self._last is not None and version > self._last:
                self._look_at_later(version, name)
        for name in self._others:
            self._say_stray(name, "none of these programs writes a checkpoint of this form, and "
                                  "readers take it in the place of commits")  # fmt: skip
        # A stray file may have had readers find a version that no commit is of.
        if self._until is None or self.strays and self._until > (self._last or 0):
            self.kept = self.state
        self.state = None
        for version, name in sorted(self._left.items()):
            self._look(version, name)
        for version, why, by_commits, whole in self._judged:
            if self._doubted or self.other:
                whole = False
            if whole or not by_commits:
                self._say(version, why, whole)
        self.wrong += () if self._doubted or self.other else self._pairs
        self._look_at_hint(known and not self.other)

    def sums_up(self, version):
        """Whether there is a checkpoint of all commits before a version, or of more."""
        return any(each >= version - 1 for each in self._names)

    @property
    def seed(self):
        """(name of the checkpoint that `state` begins with, `state`); None if that begins with
        the table, or nothing tells it."""
        if self._seed is None or self.state is None:
            return None
        return self._names[self._seed], self.state

    @property
    def newest(self):
        """The version of the newest checkpoint, None if there is none."""
        return max(self._names, default=None)

    def newest_is_wrong(self):
        """Whether readers take a checkpoint that is named in `wrong`."""
        return any(name == self._names.get(self.newest) for name, _ in self.wrong)

    def hint_is_wrong(self):
        """Whether the file is named in `wrong` that says which checkpoint is the newest."""
        return any(name == f"{self._log}/{HINT}" for name, _ in self.wrong)

    def to_blame(self, why):
        """A reader cannot open the table as of the newest checkpoint: that is to blame, unless it
        is named in `wrong` already."""
        if not self.newest_is_wrong():
            self._say(self.newest, f"it cannot be read ({_words(why)})", self._known)

    def _look(self, version, name):
        newest, known = version == self.newest, self.state is not None
        self._known = known  # of the newest in the end: they are looked at in their order
        try:
            data = self._storage.read(name)
            self.bytes += len(data)
            held, found = read(data), State()
            if known and not newest and self._seed is None:
                had = {(path, told.get("size")) for path, told in self.state.added.items()}
                wrong = ["the names and bytes of files"] if paths(held) != had else []
            else:
                found.take(actions(held))
                wrong = differences(self.state, found) if known else self._strange(found)
            repeated = twice(held)
        except FileNotFoundError:  # Delta Lake removes it after a month
            return
        except UNREADABLE as error:
            self._judged.append((version, f"it cannot be read ({_words(error)})", False, known))
            return
        if not known and wrong:
            self._judged.append((version, wrong[0], False, False))
        elif repeated or not wrong:
            if repeated:
                self._judge(version, repeated, known, by_commits=False)
            elif not known:
                self.state, self._seed = found, version
        elif self._seed is None or self._lacks(found) and not self._lacks(self.state, found):
            self._judge(version, wrong, known)
            self.other = self.other or newest and _is_other(self.state, found)
        else:
            self._disagree(version, wrong, found)

    def _strange(self, found):
        """What is wrong with a checkpoint that nothing can be compared with, in a list; it is what
        later ones will be compared with. Raises UNREADABLE."""
        for told in found.added.values():
            _file(told)
        for who, number in self._numbers.items():
            if found.numbers.get(who, -1) < number:
                return [f"it is of batch {found.numbers.get(who, -1)}, and a commit that it sums "
                        f"up is of batch {number}: an older one has taken its place"]
        some = [(path, told.get("size")) for path, told in islice(found.added.items(), SOME)]
        if some and not any(self._is_there(*each) for each in some):
            return ["none of the files is there that it names: another file has taken its place"]
        return []

    def _judge(self, version, wrong, known, by_commits=True):
        first, *more = wrong
        why = f"it does not say what the commits up to it say: {first}"
        why += f" and {len(more)} more" if more else ""
        self._judged.append((version, why, by_commits, known))

    def _lacks(self, state, other=None):
        """Whether there is a file that a State has, and `other` (None: what the commits say) has
        not, which is not there as the State says: that State is wrong. Some of them are looked
        at."""
        other = self.state if other is None else other
        apart = ((path, told.get("size")) for path, told in state.added.items()
                 if told.get("size") != other.added.get(path, {}).get("size"))  # fmt: skip
        return not all(self._is_there(*each) for each in islice(apart, SOME))

    def _is_there(self, path, size):
        try:
            return len(self._storage.read(f"{self._table}/{unquote(path)}")) == size
        except (OSError, ValueError):
            return False

    def _disagree(self, version, wrong, found):
        """A checkpoint does not say what the one before it and the commits after that say. The
        commits that it sums up are not all there, or one is damaged, so the one before it may be
        wrong; from here on this one counts."""
        name = self._names[self._seed]
        why = ("it and the commits after it do not say what the checkpoint of version "
               f"{version} says: {wrong[0]}")  # fmt: skip
        why += f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        if self._lacks(self.state, found) and not self._lacks(found):
            why += "; that one is right, readers need this one for earlier versions alone"
        else:
            why += ". One of the two is damaged: put both back as they were, and remove neither"
        self._pairs.append((name, why))
        self.unsure = version == self.newest
        self.state, self._seed = found, version

    def _look_at_later(self, version, name):
        """A checkpoint of a version that is newer than all commits: it is a stray one, unless it
        has a newer batch than those of them that are whole."""
        try:
            found = State()
            found.take(actions(read(self._storage.read(name))))
            newer = any(number > self._numbers.get(who, -1)
                        for who, number in found.numbers.items())
        except FileNotFoundError:
            return
        except UNREADABLE:
            newer = False
        if not newer and not self._storage.exists(f"{self._log}/{version:020d}.json"):
            del self._left[version], self._names[version]
            gone = f"the commits {self._last + 1} to {version} that lead up to it are"
            if version == self._last + 1:
                gone = f"the commit {version}, which it sums up, is"
            self._say_stray(name, f"{gone} missing", always=bool(self._numbers))

    def _look_at_summary(self, name):
        """What Spark has written of a table beside a commit: readers may take from it what the
        table is like. One that is cut they leave out."""
        try:
            data = self._storage.read(name)
            told = json.loads(data)
            said = {"metaData": told.get("metadata"), "protocol": told.get("protocol")}
        except (OSError, ValueError, AttributeError):
            return
        self.bytes += len(data)
        for kind, content in said.items():
            told = self.state.of.get(kind)
            if content is not None and told is not None and _plain(content) != told:
                self._say_stray(name, f"its {kind} is not what the commits up to it say", "")
                return

    def _say_stray(self, name, why, also=f", and remove {HINT}", always=False):
        """always: it can be spared even if nobody knows what the commits before it say."""
        self.strays = True
        if self.state is not None or always:
            why += f". When nobody writes to this log, move this file elsewhere{also}"
        self.wrong.append((name, why))

    def _say(self, version, why, known):
        later = [each for each in self._names if each > version]
        if later:
            why += ("; the table is whole as it is now, but not as it was in its versions "
                    f"{version} to {min(later) - 1}")
        if known:
            also = "" if later else f" and {HINT}"
            why += f". All commits that readers need in its place are there: remove it{also}"
        self.wrong.append((self._names[version], why))

    def _look_at_hint(self, known):
        name = f"{self._log}/{HINT}"
        try:
            told = json.loads(self._storage.read(name))
            if not isinstance(told, dict):
                raise ValueError("it is no JSON object")
            version = told["version"]
            if told.get("parts") is not None or told.get("v2Checkpoint") is not None:
                raise ValueError("it names a checkpoint of a form that nobody writes here")
            there = version in self._names or any(
                f"/{version:020d}.checkpoint" in each for each in self._storage.listed(self._log))
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self.wrong.append((name, f"it cannot be read ({_words(error)}): remove it, "
                                     "readers find the newest checkpoint without it"))  # fmt: skip
            return
        if not there:
            why = f"the checkpoint of version {version}, which it names, is gone"
            if known:
                why += ". All commits are there: remove this file, and readers take those"
            self.wrong.append((name, why))


def _words(error):
    """What a library says of damaged bytes, of which it may cite some."""
    text = failures.plain(error)[:200]
    return text if text.isprintable() else ascii(text)[1:-1]


def _file(told):
    """What a reader heeds of a file; null and nothing are the same."""
    stats = told.get("stats")
    return (told.get("size"), dict(told.get("partitionValues") or {}),
            json.loads(stats) if stats else None, told.get("deletionVector"))  # fmt: skip


def _plain(told):
    """An action as JSON and Parquet have it in common: no nulls, no empty maps, pairs as dicts."""
    if isinstance(told, list) and told and all(isinstance(each, tuple) for each in told):
        told = dict(told)
    if isinstance(told, dict):
        kept = {name: _plain(value) for name, value in told.items()}
        return {name: value for name, value in kept.items() if value not in (None, {}, [])}
    return told
