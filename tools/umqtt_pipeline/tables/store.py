"""Plain Parquet tables that any reader can open, written so that a batch may be run twice.

Knows folders, files and Spark DataFrames. Must not know what a row means.

    ROOT/TABLE/[date=YYYY-MM-DD/]ingest-NNNNNNNNNNNN-KKKK.parquet
    ROOT/TABLE/[date=YYYY-MM-DD/]compact-NNNNNNNNNNNN-MMMMMMMMMMMM-XXXXXXXX-KKKK.parquet

N is the number of the batch (the second form: of batches N to M), K counts its files. Spark
writes below ROOT/_staging, outside of every table, so that no reader meets half a file whatever
its rules for hidden names; the files are fsynced and then renamed into the table. A batch that is
run again replaces what an interrupted run of the same number left.

    ROOT/TABLE/date=1970-01-01/empty.parquet

has no rows: whoever opens a table finds its columns, also before the first row came.

What takes the place of several files at once (`swap`) is made ready as a folder, which one system
call then exchanges for the folder in the table. A reader that lists the table sees the old files
or the new ones. One that listed it before and opens the files after finds no such file, an error
and never a wrong row, since no name is used twice for other rows; it lists again. One that has
just opened the old folder must still find its names there, or it would take it for empty: the old
folder is kept for LISTING_S.
"""

import errno
import os
import shutil
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from umqtt_runtime.files import exchange, reader

from ..spool.files import make_folder, sync_folder


def ddl(columns):
    """{name: type} as the text that Spark takes for a schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


LISTING_S = 60  #: a reader lists a folder within so many seconds
EMPTY = "empty.parquet"
PARTITION = "date"
_ARROW = {
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "int": pa.int32(),
    "bigint": pa.int64(), "double": pa.float64(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip


def arrow_type(kind):
    """The pyarrow type of a Spark type's text: a simple type, a struct of those, an array."""
    if kind.startswith("array<"):
        return pa.list_(pa.field("element", arrow_type(kind[6:-1])))
    if kind.startswith("struct<"):
        fields = (field.split(":") for field in kind[7:-1].split(","))
        return pa.struct([(name, arrow_type(of)) for name, of in fields])
    return _ARROW[kind]


def arrow_schema(columns):
    """{name: type} as a pyarrow schema."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])


class Tables:
    """The tables below one folder. columns: {table: {name: type}, the partition column last};
    owner: whose files in the staging folder these are."""

    def __init__(self, root, columns, owner="ingest"):
        self.root = Path(root).absolute()
        self.owner = owner
        self.schemas = {name: ddl(kinds) for name, kinds in columns.items()}
        make_folder(self.root)
        for name, kinds in columns.items():
            if PARTITION in kinds:
                self._show_columns(name, kinds)
            else:  # gets a file when it is made, however few rows
                make_folder(self.path(name))

    def _show_columns(self, name, kinds):
        """Have a file without rows in a table; in a partition, or the partitions would not be
        found by every reader. A table's folder comes with it: none is met empty."""
        target = self.path(name) / f"{PARTITION}=1970-01-01" / EMPTY
        schema = arrow_schema({c: kind for c, kind in kinds.items() if c != PARTITION})
        if target.exists() and pq.read_schema(target).equals(schema):
            return
        staged = self.staging()
        pq.write_table(schema.empty_table(), staged / EMPTY)
        ready = place(staged / EMPTY, staged / target.relative_to(self.root))
        try:
            os.replace(staged / name, self.path(name))  # also what is there and empty
            sync_folder(self.root)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            place(ready, target)
        shutil.rmtree(staged)

    def path(self, name):
        return self.root / name

    @staticmethod
    def _prefix(number):
        return f"ingest-{number:012d}-"

    def files(self, name, number=None):
        """Data files of a table (of one batch), sorted."""
        pattern = "*.parquet" if number is None else f"{self._prefix(number)}*.parquet"
        found = self.path(name).rglob(pattern)
        return sorted(p for p in found if p.name[0] not in "._" and p.name != EMPTY)

    @staticmethod
    def span(path):
        """Numbers of the first and the last batch with rows in a data file."""
        parts = Path(path).name.split("-")
        return int(parts[1]), int(parts[2] if parts[0] == "compact" else parts[1])

    def drifted(self, name, path):
        """Whether a data file lacks columns that the table has got since."""
        held = pq.read_schema(path).names
        return [column for column in self.schemas[name].split(", ")[:-1]
                if column.split("`")[1] not in held] != []  # fmt: skip

    def read(self, spark, name, paths=None):
        """A table, or some of its files, as a DataFrame with the table's schema."""
        if paths is None:
            paths = self.files(name)
        return self._frame(spark, name, self.path(name), paths)

    def _frame(self, spark, name, base, paths):
        if not paths:
            return spark.createDataFrame([], self.schemas[name])
        within = reader(spark, self.schemas[name]).option("basePath", str(base))
        return within.parquet(*map(str, paths))

    @contextmanager
    def as_now(self, spark, names):
        """The tables `names` as they are now, in that order, as [DataFrame]: hard links keep their
        files until the context ends, whoever replaces or compacts them meanwhile."""
        folder = self.staging()
        try:
            parts = [(name, folder / str(place)) for place, name in enumerate(names)]
            yield [self._frame(spark, name, part, self._linked(name, part))
                   for name, part in parts]  # fmt: skip
        finally:
            shutil.rmtree(folder)

    def _linked(self, name, folder):
        """Link all data files of a table into a new folder; returns the links."""
        while True:
            try:
                return [_link(path, folder / path.relative_to(self.path(name)))
                        for path in self.files(name)]  # fmt: skip
            except FileNotFoundError:  # replaced since it was listed; soon done, it is only links
                shutil.rmtree(folder, ignore_errors=True)

    def put(self, name, number, files):
        """Place staged files as all that batch `number` adds to a table; returns their paths.

        files: [(folder in the table, such as "date=2026-01-31", staged file)], in the same order
        whenever the batch is run
        """
        placed = []
        for count, (folder, file) in enumerate(files):
            target = self.path(name) / folder / f"{self._prefix(number)}{count:04d}.parquet"
            placed.append(place(file, target))
        for old in self.files(name, number):  # of an interrupted run
            if old not in placed:
                old.unlink()
        return placed

    def replace(self, df, name, partition=None):
        """Replace a whole table by `df`, one file (per partition), at one instant."""
        staged = self.stage(df.repartition(partition) if partition else df.coalesce(1), partition)
        token = uuid.uuid4().hex[:8]
        new = {file: file.parent.relative_to(staged) / f"all-{token}.parquet"
               for file in staged_files(staged)}  # fmt: skip
        self.swap(self.path(name), new, self.path(name).rglob(EMPTY))
        shutil.rmtree(staged)

    def swap(self, folder, new, kept):
        """Replace at one instant what a folder of a table holds.

        new: {staged file: its path below `folder`}; kept: files of `folder` that stay.
        """
        ready = self.staging()
        for file, target in new.items():
            place(file, ready / target)
        for file in kept:
            target = ready / file.relative_to(folder)
            make_folder(target.parent)
            os.link(file, target)
            sync_folder(target.parent)
        sync_folder(ready)
        exchange(ready, folder)
        sync_folder(folder.parent)
        os.utime(ready)
        os.replace(ready, ready.with_name(f"swapped-{uuid.uuid4().hex}"))
        self._forget_swapped()

    def _forget_swapped(self):
        """Remove the folders that were swapped out, when nobody can be listing them any more."""
        for folder in (self.root / "_staging").glob("swapped-*"):
            with suppress(FileNotFoundError):  # ingest and gold may both be at it
                if time.time() - folder.stat().st_mtime >= LISTING_S:
                    shutil.rmtree(folder, ignore_errors=True)

    def rewrite(self, df, by, paths):
        """Replace single files: `df` has in column `by` the index into `paths` of the file that
        a row belongs to. Every file is replaced by one rename, so an interrupted run has lost
        nothing and may be repeated."""
        staged = self.stage(df.repartition(by), by)
        for file in staged_files(staged):
            place(file, paths[int(file.parent.name.partition("=")[2])])
        shutil.rmtree(staged)

    def staging(self, made=True):
        """A new folder where nobody looks; `made`: it is there, not only named."""
        folder = self.root / "_staging" / f"{self.owner}-{uuid.uuid4().hex}"
        if made:
            folder.mkdir(parents=True)
        return folder

    def stage(self, df, partition=None):
        """Write a DataFrame somewhere hidden; returns the folder."""
        folder = self.staging(made=False)
        writer = df.write.mode("errorifexists")
        (writer.partitionBy(partition) if partition else writer).parquet(str(folder))
        return folder

    def clean(self, older_than=0):
        """Remove what killed runs of this owner left staged, if older than so many seconds."""
        for folder in (self.root / "_staging").glob(f"{self.owner}-*"):
            if time.time() - folder.stat().st_mtime >= older_than:
                shutil.rmtree(folder, ignore_errors=True)
        self._forget_swapped()


def staged_files(folder):
    """The Parquet files that Spark wrote, in an order that does not depend on its names' uuid."""
    return sorted(folder.rglob("*.parquet"), key=lambda p: (str(p.parent), p.name))


def _link(path, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(path, target)
    return target


def place(file, target):
    """Make a staged file durable and rename it; returns the target."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    make_folder(target.parent)
    os.replace(file, target)
    sync_folder(target.parent)
    return target
