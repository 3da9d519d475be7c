"""Plain Parquet tables that any reader can open, written so that a batch may be run twice.

Knows folders, files and Spark DataFrames. Must not know what a row means.

    ROOT/TABLE/[date=YYYY-MM-DD/]ingest-NNNNNNNNNNNN-KKKK.parquet

N is the number of the batch, K counts its files. Spark writes below ROOT/_staging, outside of
every table, so that no reader meets half a file whatever its rules for hidden names; the files
are fsynced and then renamed into the table. A batch that is run again first takes away what an
interrupted run of the same number left.
"""

import os
import shutil
import time
import uuid
from pathlib import Path

from .spool import sync_folder


def ddl(columns):
    """{name: type} as the text that Spark takes for a schema."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


class Tables:
    """The tables below one folder. columns: {table: {name: type}, the partition column last};
    owner: whose files in the staging folder these are."""

    def __init__(self, root, columns, owner="ingest"):
        self.root = Path(root).absolute()
        self.owner = owner
        self.schemas = {name: ddl(kinds) for name, kinds in columns.items()}
        for name in columns:
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def path(self, name):
        return self.root / name

    @staticmethod
    def _prefix(number):
        return f"ingest-{number:012d}-"

    def files(self, name, number=None):
        """Data files of a table (of one batch), sorted."""
        pattern = "*.parquet" if number is None else f"{self._prefix(number)}*.parquet"
        return sorted(p for p in self.path(name).rglob(pattern) if p.name[0] not in "._")

    @staticmethod
    def number(path):
        """Batch number of a data file."""
        return int(Path(path).name.split("-")[1])

    def read(self, spark, name, paths=None):
        """A table, or some of its files, as a DataFrame with the table's schema."""
        reader = spark.read.schema(self.schemas[name]).option("basePath", str(self.path(name)))
        if paths is None:
            paths = self.files(name)
        if not paths:
            return spark.createDataFrame([], self.schemas[name])
        return reader.parquet(*map(str, paths))

    def write(self, df, name, number, partition="date"):
        """Write `df` as what batch `number` adds to a table; returns the files' paths."""
        staged = self.stage(df, partition)
        for old in self.files(name, number):
            old.unlink()
        placed = []
        for count, file in enumerate(staged_files(staged)):
            folder = self.path(name) / file.parent.relative_to(staged)
            target = folder / f"{self._prefix(number)}{count:04d}.parquet"
            placed.append(place(file, target))
        shutil.rmtree(staged)
        return placed

    def replace(self, df, name, partition=None):
        """Replace a whole table by `df`, one file (per partition), each by one rename."""
        staged = self.stage(df.repartition(partition) if partition else df.coalesce(1), partition)
        keep = set()
        for file in staged_files(staged):
            folder = self.path(name) / file.parent.relative_to(staged)
            keep.add(place(file, folder / "all.parquet"))
        for old in self.files(name):
            if old not in keep:
                old.unlink()
        shutil.rmtree(staged)

    def rewrite(self, df, by, paths):
        """Replace single files: `df` has in column `by` the index into `paths` of the file that
        a row belongs to. Every file is replaced by one rename, so an interrupted run has lost
        nothing and may be repeated."""
        staged = self.stage(df.repartition(by), by)
        for file in staged_files(staged):
            place(file, paths[int(file.parent.name.partition("=")[2])])
        shutil.rmtree(staged)

    def stage(self, df, partition=None):
        """Write a DataFrame somewhere hidden; returns the folder."""
        folder = self.root / "_staging" / f"{self.owner}-{uuid.uuid4().hex}"
        writer = df.write.mode("errorifexists")
        (writer.partitionBy(partition) if partition else writer).parquet(str(folder))
        return folder

    def clean(self, older_than=0):
        """Remove what killed runs of this owner left staged, if older than so many seconds."""
        for folder in (self.root / "_staging").glob(f"{self.owner}-*"):
            if time.time() - folder.stat().st_mtime >= older_than:
                shutil.rmtree(folder, ignore_errors=True)


def staged_files(folder):
    """The Parquet files that Spark wrote, in an order that does not depend on its names' uuid."""
    return sorted(folder.rglob("*.parquet"), key=lambda p: (str(p.parent), p.name))


def place(file, target):
    """Make a staged file durable and rename it; returns the target."""
    handle = os.open(file, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file, target)
    sync_folder(target.parent)
    return target
