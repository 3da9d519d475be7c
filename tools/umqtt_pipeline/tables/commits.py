"""The commits in the log of a Delta table, as `verify` reads them: whether all are there, and each
is one that Delta Lake takes.

Knows the form of a commit. Must not know what a row of a table means, nor what has been decided.
"""

import json
import re
import zlib
from bisect import bisect_left
from collections import deque
from concurrent.futures import ThreadPoolExecutor

from .checkpoints import ACTIONS, Look
from .store import APPLICATION

NAMED = re.compile(r"(?:.*/)?\d{12}-.*-([0-9a-f]{8})\.parquet")  #: a data file of ours, by its CRC
COMMIT = re.compile(r".*/_delta_log/(\d{20})\.json")
AT_ONCE = 8  #: files that are read: an object store takes its time for each
READ_BYTES = 256 << 20  #: of data files that are read at a time, if it is not one that is longer


class Log:
    """The log of a table. found: a verifying.Verified that is told. until: see
    checkpoints.Look, which is `checkpoints`. named: versions whose commit is named as wrong, once
    all were gone through. behind_gaps: those before whose commit others are missing"""

    def __init__(self, found, storage, name, until=None):
        self._found, self._storage, self._name = found, storage, name
        names = storage.listed(f"{name}/_delta_log")
        listed = [COMMIT.fullmatch(each) for each in names]
        self._commits = sorted((int(each[1]), each[0]) for each in listed if each)
        self.named, self.behind_gaps = set(), set()
        self.checkpoints = Look(storage, f"{name}/_delta_log", names, until)

    @property
    def first(self):
        """The version of the oldest commit that is there, None if there is none."""
        return self._commits[0][0] if self._commits else None

    @property
    def last(self):
        """(version, path) of the newest commit, (None, None) if there is none."""
        version, file = self._commits[-1] if self._commits else (None, None)
        return version, file and self._storage.path(file)

    def commits(self):
        """Yield (path, version, [actions]) of the commits that are there and whole. The oldest may
        be removed meanwhile, as Delta Lake does after a month. Whoever takes one names what is
        wrong with it before the next: no checkpoint is judged by it then."""
        found, storage, before = self._found, self._storage, None
        reads = read_ahead(storage, [(file, 0) for _, file in self._commits])
        found.doing(f"the log of {self._name}")
        if self._commits:
            self.checkpoints.begin(self._commits[0][0])
        for count, ((version, file), read) in enumerate(zip(self._commits, reads), 1):
            found.at(f"{count:,} of {len(self._commits):,} commits")
            path = storage.path(file)
            if before is None and version and not self.checkpoints.sums_up(version):
                before = -1
            if before is not None and version != before + 1:
                gone = f"commits {before + 1} to {version - 1} before it are"
                if version == before + 2:
                    gone = f"commit {before + 1} before it is"
                found.say(path, f"the {gone} missing")
                self.behind_gaps.add(version)
                self.checkpoints.take(before + 1, None)
            before = version
            wrong = len(found.wrong)
            actions = self._actions(path, version, read)
            if actions is not None:
                yield path, version, actions
            if len(found.wrong) > wrong:
                self.named.add(version)
            self.checkpoints.take(version, actions if len(found.wrong) == wrong else None)
        self.checkpoints.rest()

    def misplaced(self, path, version, why):
        """Name a commit that is there and whole, and stands in the place of another one: in the
        line on the gap before it, if there is one."""
        self.checkpoints.doubt()
        if version in self.behind_gaps:
            self._found.add(path, f"; and {why}")
        else:
            self._found.say(path, why)

    def reread(self):
        """Yield (version, [actions]) of the commits that are there and of Delta Lake's form, once
        more; commits() names the others."""
        reads = read_ahead(self._storage, [(file, 0) for _, file in self._commits])
        for (version, _), read in zip(self._commits, reads):
            try:
                actions = _parsed(read.result())
            except (OSError, ValueError, TypeError, AttributeError):
                continue
            yield version, actions

    def name_the_cause(self, why, opens):
        """Name what keeps readers from opening the table, once all commits were gone through,
        unless it is named already. why: in a reader's words;   opens: function of a version,
        whether it can be opened as it was then"""
        newest = self.checkpoints.newest
        if self.checkpoints.hint_is_wrong() or self.checkpoints.strays:
            return
        if newest is not None and not opens(newest):
            self.checkpoints.to_blame(why)
            return
        later = [version for version, _ in self._commits if newest is None or version > newest]
        at = bisect_left(later, True, key=lambda version: not opens(version))
        version = later[at] if at < len(later) else None
        if version is None:
            self._found.say(self._storage.path(self._name), f"its log cannot be read: {why}")
        elif version not in self.named | self.behind_gaps:
            self._found.say(self._storage.path(dict(self._commits)[version]),
                            f"Delta Lake cannot read it: {why}")  # fmt: skip
            self.named.add(version)

    def _actions(self, path, version, read):
        """Those of a commit; None if it is damaged or gone. read: a Future of its bytes."""
        try:
            data = read.result()
            self._found.bytes += len(data)
            actions = _parsed(data)
            if not actions:
                raise ValueError("it is empty, and so no action of Delta Lake")
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


def read_ahead(storage, files):
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


def _parsed(data):
    """The (kind, content) of each line of a commit. Raises ValueError."""
    return [_action(line) for line in data.decode().splitlines()]


def _action(line):
    """(kind, content) of a line of a commit. Raises ValueError."""
    try:
        told = json.loads(line)
    except ValueError:
        if line and not line.strip("\0"):
            raise ValueError(f"a line of {len(line):,} zero bytes is no action of Delta Lake")
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
    parameters = one(actions, "commitInfo").get("operationParameters", {})
    for name, kind in (("metadata", "metaData"), ("protocol", "protocol")):
        if name in parameters and json.loads(parameters[name]) != one(actions, kind):
            raise ValueError(f"its {kind} is not what was written")


def one(actions, kind):
    """The content of the only action of a kind, {} if there is none."""
    return next((content for name, content in actions if name == kind), {})


def as_written(name, data):
    """Whether the bytes of a data file have the check value in its name; None if that has none."""
    told = NAMED.fullmatch(name)
    return f"{zlib.crc32(data):08x}" == told[1] if told else None


def is_whole(storage, name, size):
    """Whether a data file is there, and is what was written: so many bytes, and as_written()."""
    try:
        data = storage.read(name)
    except OSError:
        return False
    return len(data) == size and as_written(name, data) is not False


def columns_of(actions):
    """The names of the columns that a commit says that its table has; None if it says none.
    Raises KeyError, TypeError, ValueError, AttributeError."""
    told = one(actions, "metaData")
    if not told:
        return None
    return {field["name"] for field in json.loads(told["schemaString"])["fields"]}


def number_of(actions):
    """The highest number of a batch that a commit says it is of, None if it says none."""
    return max((told["version"] for kind, told in actions
                if kind == "txn" and told["appId"] == APPLICATION), default=None)  # fmt: skip


def digest(actions):
    """A digest of what actions do to a table, in whatever order."""
    return zlib.crc32(json.dumps(sorted(json.dumps(each, sort_keys=True) for each in actions))
                      .encode())  # fmt: skip
