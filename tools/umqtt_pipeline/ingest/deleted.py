"""The numbers of readings, clock records and packets in quarantine that `clean` has deleted: they
came, and gold must not say of them that they never did.

Knows how the files of silver, clock and quarantine tell a number, and the part of the state that
has them, as ranges in one file. Must not know which files are deleted, nor why.
"""

import logging
import zlib

import pyarrow as pa

from ..spool.files import SpoolError
from ..tables.quarantine import numbered
from ..tables.schema import DELETED, KEY, PARTITION, SEEN, arrow_schema
from ..tables.storage import parquet
from . import dedup
from .state import Held

log = logging.getLogger("umqtt.tables")

OF = {"silver": [*KEY, "sequence"], "clock": [*KEY, "sequence"],
      "quarantine": ["topic", "epoch", "sequence"]}  # fmt: skip
SCHEMA = arrow_schema(SEEN)
AT_ONCE = 1_000_000  #: ranges that are joined with those before, or as many as these are
TRIES = 3  #: to read the file: another run of `clean` may have put one in its place


def ranges(storage, state):
    """The deleted numbers, as an Arrow table of SEEN. state: {part: [names of its files]}. Raises
    SpoolError."""
    names = state.get(DELETED, ())
    return pa.concat_tables([SCHEMA.empty_table(), *(Held(storage, name, SCHEMA).all()
                                                     for name in names)])  # fmt: skip


def newest(storage, state):
    """The same of tables at which others are at work. state: a function that gives the state by
    now."""
    for left in range(TRIES, 0, -1):
        try:
            return ranges(storage, state())
        except SpoolError:
            if left == 1:
                raise


def after(storage, state, number, gone):
    """Write the numbers deleted by now; returns the state with them.

    number  of the batch;   gone: {table: (Files added, Files deleted)}
    Raises SpoolError, OSError.
    """
    found, more = ranges(storage, state), []
    for table in set(gone) & set(OF):
        for file in gone[table][1]:
            more.append(dedup.joined_seen(_of_file(storage, table, file)))
            if sum(map(len, more)) > max(AT_ONCE, len(found)):
                found, more = dedup.joined_seen(pa.concat_tables([found, *more])), []
    found = dedup.joined_seen(pa.concat_tables([found, *more]))
    if not len(found):
        return state
    data = parquet(found)
    name = f"_state/{DELETED}/{number:012d}-0000-of-0001-{zlib.crc32(data):08x}.parquet"
    storage.keep(name, data)
    return {**state, DELETED: [name]}


def _of_file(storage, table, file):
    """The numbers in a data file, as SEEN."""
    path = f"{table}/{file.path}"
    try:
        rows = storage.read_parquet(path, columns=OF[table])
    except (OSError, pa.ArrowException) as error:
        log.warning("%s: it cannot be read (%s): gold will say that its numbers never came",
                    storage.path(path), error)  # fmt: skip
        return SCHEMA.empty_table()
    if table == "quarantine":
        rows = rows.append_column(PARTITION, pa.nulls(len(rows), pa.date32()))
        rows = pa.Table.from_batches(numbered(rows.to_batches()))
    rows = rows.filter(rows["sequence"].is_valid())
    numbers = rows["sequence"]
    return pa.table([*(rows[name] for name in KEY), numbers, numbers], schema=SCHEMA)
