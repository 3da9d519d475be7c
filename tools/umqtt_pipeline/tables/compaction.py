"""Compaction: the small files of a table's day become few large ones, in one instant.

Knows which files may be joined. Must not know how they are exchanged (store.py), nor what a row
means. It works while no batch is written: after one, inside ingest, or alone (`umqtt-pipeline
compact`, which takes the lock of ingest).

Only batches that are whole are touched: one that was interrupted replaces its own files when it
is run again, and looks for them under their own names. Files that were written before the table
got a column are joined whatever their number, so that every file of a day has all of them.
"""

import logging
import shutil
import uuid

from .store import staged_files

log = logging.getLogger("umqtt.compact")

TARGET = 128 << 20  #: bytes; files that reach half of it are left alone
SMALL = 8  #: files of a day for which `umqtt-pipeline compact` begins
# Rows of a device side by side: smaller, and quicker to find.
ORDER = {"bronze": ["offset"], "quarantine": ["offset"],
         "silver": ["group", "device", "epoch", "sequence"], "batches": ["batch"]}  # fmt: skip


def run(spark, tables, last, small=SMALL, columns=False):
    """Compact every table of `tables` as far as batch `last`; returns {table: files joined}.

    small     so many small files of a day are worth it, at least 2
    columns   also where files lack columns that the table has now (every file is looked into)
    """
    joined = {}
    for name in tables.schemas:
        folders = {}
        for path in tables.files(name):
            folders.setdefault(path.parent, []).append(path)
        for folder, paths in folders.items():
            chosen = _chosen(tables, name, paths, last, small, columns)
            if chosen:
                _join(spark, tables, name, folder, chosen)
                joined[name] = joined.get(name, 0) + len(chosen)
    return joined


def _chosen(tables, name, paths, last, small, columns):
    """The files of a day to be joined; none if it is not worth it."""
    whole = [path for path in paths if tables.span(path)[1] <= last]
    old = [path for path in whole if columns and tables.drifted(name, path)]
    little = _level(path for path in whole if path.stat().st_size < TARGET // 2)
    return sorted({*old, *little}) if len(little) >= max(2, small) or old else []


def _level(paths):
    """Of these files the smallest; none that is larger than all before it together. What was
    joined waits until as much has come again, so that no row is written more than log2 times."""
    chosen, size = [], 0
    for path in sorted(paths, key=lambda path: path.stat().st_size):
        if len(chosen) > 1 and path.stat().st_size > size:
            break
        chosen.append(path)
        size += path.stat().st_size
    return chosen


def _join(spark, tables, name, folder, paths):
    """Replace `paths`, all in `folder`, by as few files as there must be."""
    size = sum(path.stat().st_size for path in paths)
    count = max(1, round(size / TARGET))
    columns = ORDER.get(name, ["group", "device", "epoch", "sequence", "offset"])
    rows = tables.read(spark, name, paths)
    # Without the day: the folder has it.
    rows = rows.drop("date").repartitionByRange(count, *columns) if count > 1 else (
        rows.drop("date").coalesce(1))  # fmt: skip
    staged = tables.stage(rows.sortWithinPartitions(*columns))
    spans = [tables.span(path) for path in paths]
    low, high = min(first for first, _ in spans), max(last for _, last in spans)
    stem = f"compact-{low:012d}-{high:012d}-{uuid.uuid4().hex[:8]}"
    new = {file: f"{stem}-{number:04d}.parquet"
           for number, file in enumerate(staged_files(staged))}  # fmt: skip
    kept = [path for path in tables.files(name) if path.parent == folder and path not in paths]
    tables.swap(folder, new, kept)
    shutil.rmtree(staged)
    log.info("%s/%s: %d files, %d bytes, are now %d", name, folder.name, len(paths), size,
             len(new))  # fmt: skip
