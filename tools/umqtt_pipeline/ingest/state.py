"""The state of ingest below TABLES/_state: which numbers were seen, whose clock is known.

Knows versions, files and numbers of batches. Must not know what a row of the state means.

    TABLES/_state/ingest.json    which query counts its batches from which number
    TABLES/_state/N/PART/K-of-B.parquet     what batch N made of bucket K (of B) of a part
    TABLES/_state/N/manifest.json           the files of every part as of batch N, in N and in
                                            earlier folders; written as the last thing of a batch
"""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..spool.files import SpoolError, make_folder, replace_file
from ..tables.schema import STATE, TABLES
from ..tables.store import Tables, place

VERSION = 2  #: of manifest.json
PUT_BACK = "put that file back as it was, or begin in another folder (--tables)"


def read_part(path, schema):
    """A Parquet file of the state as an Arrow table. Raises SpoolError for a damaged one."""
    try:
        return pq.read_table(path, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise SpoolError(f"{path} is damaged ({str(error).partition(chr(10))[0]}): {PUT_BACK}")


def _json(path):
    """What a file of JSON says, as a dict. Raises FileNotFoundError, SpoolError."""
    try:
        told = json.loads(path.read_text())
        if not isinstance(told, dict):
            raise ValueError("no object")
        return told
    except ValueError:
        raise SpoolError(f"{path} is damaged: {PUT_BACK}")


class State:
    """The versions of the state below TABLES/_state."""

    def __init__(self, tables):
        self.tables = tables
        self.root = tables.root / "_state"
        make_folder(self.root)
        self.pointer = self.root / "ingest.json"

    def folder(self, number):
        return self.root / f"{number:012d}"

    def _known(self):
        """What the pointer says: {query, base} and, while one is at work, {replay: number}."""
        try:
            return _json(self.pointer)
        except FileNotFoundError:
            return None

    def begun(self):
        """Whether any batch was begun."""
        return self._known() is not None

    def number(self, query, batch, newest):
        """The number of batch `batch` of the query with that id; counts on over queries.

        newest: called when the query is a new one (Spark's checkpoint was deleted), for `again`.
        """
        known = self._known()
        if known is None or known["query"] != query:
            number = self.next()
            known = {"version": 1, "query": query, "base": number - batch,
                     "again": newest() if number else None}  # fmt: skip
            self._point(known)
        return known["base"] + batch

    def again(self):
        """Time of receipt (unix us) up to which this query may meet packets that an earlier one
        has put into bronze; None if there was none."""
        return (self._known() or {}).get("again")

    def _point(self, known):
        replace_file(self.pointer, json.dumps(known).encode())

    def next(self):
        """The number that comes behind all that are whole: a batch that was begun and is not
        known to the query any more is replaced."""
        done = [int(p.parent.name) for p in self.root.glob("*/manifest.json")]
        return max(done, default=-1) + 1

    def begin_replay(self):
        """Take a number for a batch that is none of the query's, before it changes anything: the
        query's own count on behind it."""
        known = self._known()
        number = self.next()
        self._point({**known, "base": known["base"] + 1, "replay": number})
        return number

    def replaying(self):
        """The number of a replay that was begun and not finished, or None."""
        return (self._known() or {}).get("replay")

    def end_replay(self):
        known = self._known()
        del known["replay"]
        self._point(known)

    def last(self):
        """Number of the last batch that is whole; -1 if there is none."""
        return max((n for n in range(self.next() - 2, self.next()) if self.done(n)), default=-1)

    def done(self, number):
        return (self.folder(number) / "manifest.json").exists()

    def _manifest(self, number):
        """{part: [path below the state's folder]} after batch `number`; empty for none."""
        path = self.folder(number) / "manifest.json"
        if not path.exists():
            return {}
        told = _json(path)
        form = told.get("version")
        if form != VERSION:
            raise SpoolError(f"{path}: format {form}, this program reads {VERSION}: begin in "
                             "another folder (--tables)")  # fmt: skip
        return told["parts"]

    def files(self, before):
        """{part: [path]} of the state as batch `before` - 1 left it."""
        if before and not self.done(before - 1):
            raise SpoolError(f"{self.folder(before - 1)} is missing: without the state of the "
                             "batch before, duplicates would not be known. Put that folder back "
                             "as it was, or begin in another folder (--tables)")  # fmt: skip
        held = self._manifest(before - 1)
        return {part: [str(self.root / path) for path in held.get(part, ())] for part in STATE}

    def write(self, number, staged):
        """Finish batch `number`. staged: [(part, bucket, buckets, staged file)]; what a part has
        of other buckets stays as it was."""
        held = self._manifest(number - 1)
        folder = self.folder(number)
        shutil.rmtree(folder, ignore_errors=True)
        for part, bucket, buckets, file in staged:
            target = folder / part / f"{bucket:04d}-of-{buckets:04d}.parquet"
            place(file, target)
            kept = [path for path in held.get(part, ()) if Path(path).name != target.name
                    and path.endswith(f"-of-{buckets:04d}.parquet")]  # fmt: skip
            held[part] = sorted([*kept, str(target.relative_to(self.root))])
        make_folder(folder)
        text = json.dumps({"version": VERSION, "parts": held})
        replace_file(folder / "manifest.json", text.encode())
        self._forget(number, held)

    def _forget(self, number, held):
        """Drop what neither batch `number` nor the one before, should it be asked for, needs."""
        needed = {*sum(held.values(), []), *sum(self._manifest(number - 1).values(), [])}
        kept = {f"{number:012d}", f"{number - 1:012d}", *(Path(p).parts[0] for p in needed)}
        for old in self.root.iterdir():
            if old.name.isdigit() and old.name not in kept:
                shutil.rmtree(old)


def check(root):
    """Raises SpoolError if the tables below `root` hold batches that the state does not know:
    their rows would come a second time."""
    tables = Tables(root, TABLES)
    state = State(tables)
    # The number that an interrupted batch may have; it was written down before its first file.
    known = state.next() if state.begun() else -1
    for name in TABLES:
        for path in tables.files(name):
            if tables.span(path)[1] > known:
                raise SpoolError(f"{path} is of a batch that {state.root} does not know: put that "
                                 "folder back as it was, or begin in another folder (--tables)")
