"""The checkpoint of a streaming query that was killed before it had planned anything.

Knows how Spark lays out a checkpoint and what it calls its temporary files. Must not know spools
or tables.

Spark writes offsets/N as offsets/.N.UUID.tmp and renames it. Killed, or on a full disk, between
the two it leaves the temporary file. For N > 0 that does no harm; but a query without any batch
has to find the folders of its logs empty (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), and would
never start again.
"""

import logging
import re
from pathlib import Path

log = logging.getLogger("umqtt.checkpoint")

LOGS = ("offsets", "commits")
_UUID = "-".join(f"[0-9a-f]{{{n}}}" for n in (8, 4, 4, 4, 12))
#: CheckpointFileManager's names; the second is what Hadoop's local file system keeps beside it
TEMPORARY = re.compile(rf"\.[0-9]+\.{_UUID}\.tmp|\.\.[0-9]+\.{_UUID}\.tmp\.crc")


def tidy(folder):
    """Remove Spark's temporary files from a checkpoint in which no batch was ever planned.

    folder  of the checkpoint of a query that does not run; it may be missing

    Returns the number of files removed. A checkpoint with a planned batch is left as it is, and
    so is any file of another form. Raises OSError.
    """
    parts = [part for name in LOGS if (part := Path(folder, name)).is_dir()]
    files = [file for part in parts for file in part.iterdir()]
    if any(file.name.isdigit() for file in files):
        return 0
    torn = [file for file in files if TEMPORARY.fullmatch(file.name)]
    for file in torn:
        file.unlink()
        log.info("%s: removed; no batch was planned yet", file)
    return len(torn)
