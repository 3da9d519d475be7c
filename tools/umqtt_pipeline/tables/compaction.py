"""Compaction: the small files of a table's day become few large ones, in one commit.

Knows which files may be joined. Must not know what a row means. A compaction is decided by an
intent like a batch, and so never meets one half way: killed anywhere, the tables have the same
rows, in the old files or in the new ones.
"""

import logging

log = logging.getLogger("umqtt.compact")

TARGET = 128 << 20  #: bytes; files that reach half of it are left alone
SMALL = 8  #: files of a day for which `umqtt-pipeline compact` begins
# Rows of a device side by side: smaller, and quicker to find.
ORDER = {"bronze": ["spool", "offset"], "quarantine": ["spool", "offset"],
         "silver": ["group", "device", "epoch", "sequence"], "batches": ["batch"]}  # fmt: skip


def run(spark, tables, ledger, small=SMALL):
    """Compact every table of `tables`; returns {table: files joined}.

    ledger  of these tables;   small: so many small files of a day are worth it, at least 2
    """
    changes, number = {}, ledger.next()
    for name in tables.columns:
        days = {}
        for file in tables.files(name):
            days.setdefault(file.day, []).append(file)
        for files in days.values():
            chosen = _chosen(files, small)
            if chosen:
                made, gone = changes.setdefault(name, ([], []))
                made += _join(spark, tables, name, number, chosen)
                gone += chosen
    if changes:
        ledger.decide("compact", changes)
        ledger.finish()
    for name, (made, gone) in changes.items():
        log.info("%s: %d files, %d bytes, are now %d", name, len(gone),
                 sum(file.size for file in gone), len(made))  # fmt: skip
    return {name: len(gone) for name, (_, gone) in changes.items()}


def _chosen(files, small):
    """The files of a day to be joined; none if it is not worth it."""
    little = _level(file for file in files if file.size < TARGET // 2)
    return little if len(little) >= max(2, small) else []


def _level(files):
    """Of these files the smallest; none that is larger than all before it together. What was
    joined waits until as much has come again, so that no row is written more than log2 times."""
    chosen, size = [], 0
    for file in sorted(files, key=lambda file: (file.size, file.path)):
        if len(chosen) > 1 and file.size > size:
            break
        chosen.append(file)
        size += file.size
    return chosen


def _join(spark, tables, name, number, files):
    """Write the rows of `files`, all of one day, into as few files as there must be."""
    count = max(1, round(sum(file.size for file in files) / TARGET))
    columns = ORDER.get(name, ["group", "device", "epoch", "sequence", "offset"])
    rows = tables.read(spark, name, files)
    rows = rows.repartitionByRange(count, *columns) if count > 1 else rows.coalesce(1)
    return tables.store(rows.sortWithinPartitions(*columns), name, number)
