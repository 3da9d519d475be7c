"""Payloads that are too large for a row: files in `_large`, to which rows of bronze and quarantine
without a payload refer.

    SPOOL-OFFSET-CRC.bin    the payload of the packet at that place of that spool, and its crc32

Knows which file a row refers to. Must not know Delta Lake, or what else stands in a row. A packet
of Kafka without a payload has no file: its `spool` is no id.
"""

import logging
import re
import zlib
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..spool.files import SPOOL_ID

log = logging.getLogger("umqtt.tables")

FOLDER = "_large"
TABLES = ("bronze", "quarantine")
NAME = re.compile(rf"{FOLDER}/({SPOOL_ID.pattern})-(\d+)-([0-9a-f]{{8}})\.bin")
LEFT = re.compile(rf"{FOLDER}/\.{SPOOL_ID.pattern}-.*\.bin\.\d+")  #: by a killed writer


def referred(held):
    """{(spool, offset)} of the payloads that rows of a pq.ParquetFile of bronze or quarantine
    refer to."""
    found, names = set(), ["payload", "spool", "offset"]
    if not set(names) <= set(held.schema_arrow.names):  # somebody else's file
        return found
    for number in range(held.num_row_groups):
        if _may_lack_payloads(held.metadata.row_group(number)):
            rows = held.read_row_group(number, names)
            rows = rows.filter(pc.is_null(rows["payload"]))
            found.update(zip(rows["spool"].to_pylist(), rows["offset"].to_pylist()))
    return {(spool, at) for spool, at in found if SPOOL_ID.fullmatch(spool)}


def place(spool, offset):
    """The name of the file of a row, which ends with a CRC that the row does not have."""
    return f"{FOLDER}/{spool}-{offset}-*.bin"


def _by_row(storage):
    """{(spool, offset): [(name of a file, the CRC-32 in it)]}. There may be several: an older copy
    of a spool that was put back has other packets at the same places."""
    found = {}
    for name in storage.children(FOLDER):
        told = NAME.fullmatch(name)
        if told:
            found.setdefault((told[1], int(told[2])), []).append((name, told[3]))
    return found


class Payloads:
    """The payloads of rows that are there, one at a time. storage: of the tables"""

    def __init__(self, storage):
        self._storage = storage

    @cached_property
    def _names(self):
        return _by_row(self._storage)

    def of(self, spool, offset):
        """The payload of a row; None if its file is gone or damaged, or one of several."""
        names = self._names.get((spool, offset), ())
        if len(names) != 1:
            return None
        ((name, check),) = names
        try:
            data = self._storage.read(name)
        except OSError:
            return None
        return data if f"{zlib.crc32(data):08x}" == check else None


def _may_lack_payloads(group):
    """Whether a row of a row group may have no payload, as far as its footer says it."""
    columns = (group.column(number) for number in range(group.num_columns))
    told = next((each.statistics for each in columns if each.path_in_schema == "payload"), None)
    return told is None or not told.has_null_count or told.null_count > 0


def look(found, storage, wanted):
    """Look at every byte of the files that rows refer to. found: a verifying.Verified that is
    told; wanted: {(spool, offset): names of the tables}"""
    there = _by_row(storage) if wanted else {}
    cure = ("put it back; if the spool still has its packet, delete "
            f"{storage.path('_checkpoint')} and start ingest, which writes it again")
    for (spool, at), tables in sorted(wanted.items()):
        if (spool, at) not in there:
            who = f"{' and '.join(sorted(tables))} {'refer' if len(tables) > 1 else 'refers'}"
            found.say(storage.path(place(spool, at)), f"it is gone, and {who} to it: {cure}")
        for name, check in there.get((spool, at), ()):
            data = found.look(storage, name)
            if data is not None and f"{zlib.crc32(data):08x}" != check:
                found.say(storage.path(name), "its bytes are not those that were written: "
                          f"{cure}")  # fmt: skip


def vacuum(storage, dry_run=False):
    """Remove the files that no row refers to, in any data file that is still there: a table can be
    read as it was, with its payloads. Nobody may write to the tables meanwhile; in an object store
    files younger than its `patience` stay. Returns how many. dry_run: only count them"""
    names = storage.children(FOLDER, storage.patience)
    if not names:
        return 0
    needed = set()
    for name in (each for table in TABLES for each in storage.listed(table)):
        if not name.endswith(".parquet") or "/_delta_log/" in name:
            continue
        try:
            with pq.ParquetFile(storage.key(name), filesystem=storage.files) as held:
                needed |= referred(held)
        except (pa.ArrowException, OSError) as error:
            log.warning("no file of %s is removed, because %s cannot be read: %s",
                        storage.path(FOLDER), storage.path(name), error)  # fmt: skip
            return 0
    gone = [name for name in names if _is_unused(name, needed)]
    for name in gone if not dry_run else ():
        storage.remove(name)
    return len(gone)


def _is_unused(name, needed):
    """Whether a file of the folder is one of ours, or what a kill has left of one, that no row
    needs."""
    told = NAME.fullmatch(name)
    if told:
        return (told[1], int(told[2])) not in needed
    return LEFT.fullmatch(name) is not None
