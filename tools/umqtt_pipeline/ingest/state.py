"""The state of ingest: which numbers were seen, whose clock is known.

Knows the files of the state. Must not know what a row of it means, nor which of the files count:
the intents say that (ledger.py), as {part: [name]}.

    TABLES/_state/PART/NNNNNNNNNNNN-KKKK-of-BBBB-CCCCCCCC.parquet

what batch N made of bucket K (of B) of a part; C is the CRC-32 of the file.
"""

import re
import zlib

from ..spool.files import SpoolError
from ..tables.schema import STATE
from ..tables.storage import parquet, table_of

NAME = re.compile(r"\d{12}-(\d{4})-of-(\d{4})-([0-9a-f]{8})\.parquet")
DAMAGED = "is damaged ({}): put that file back as it was, or begin in another folder (--tables)"


def bucket_of(name):
    """(bucket, of how many) of a file of the state."""
    return tuple(map(int, NAME.fullmatch(name.rpartition("/")[2]).groups()[:2]))


def keep_part(storage, part, number, bucket, buckets, rows):
    """Write what batch `number` made of a bucket of a part; returns the file's name."""
    data = parquet(rows)
    name = f"_state/{part}/{number:012d}-{bucket:04d}-of-{buckets:04d}-{zlib.crc32(data):08x}"
    storage.keep(f"{name}.parquet", data)
    return f"{name}.parquet"


def read_part(storage, name, schema):
    """A file of the state as an Arrow table. Raises SpoolError for a damaged or a missing one."""
    try:
        data = storage.read(name)
    except OSError as error:
        raise SpoolError(f"{storage.path(name)} {DAMAGED.format(error.strerror)}")
    if f"{zlib.crc32(data):08x}" != NAME.fullmatch(name.rpartition("/")[2])[3]:
        why = "its bytes are not those that were written"
        raise SpoolError(f"{storage.path(name)} {DAMAGED.format(why)}")
    return table_of(data, schema)


def after(held, made, buckets):
    """The state {part: [name]} when a batch has left `held` and written the files `made`, a list
    of (part, name). What a part has of other buckets stays as it was."""
    found = {part: list(held.get(part, ())) for part in STATE}
    for part, name in made:
        bucket = bucket_of(name)[0]
        found[part] = [old for old in found[part]
                       if bucket_of(old)[1] == buckets and bucket_of(old)[0] != bucket]
        found[part].append(name)
    return {part: sorted(names) for part, names in found.items()}


def forget(storage, old, now):
    """Remove the files of the state `old` that the state `now` does not need."""
    needed = {name for names in now.values() for name in names}
    for name in {name for names in old.values() for name in names} - needed:
        storage.remove(name)
