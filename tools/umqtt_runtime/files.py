"""Files that Spark reads by name, and two paths that change places in one instant.

Must not know what is in a file.
"""

import ctypes
import errno
import os
from pathlib import Path


def reader(spark, schema):
    """Spark's reader of files with this schema, to which a path is a name and not a pattern: by
    an option that Spark has for itself (DataSource.GLOB_PATHS_KEY). A pattern in which all is
    escaped would do but for names that have a colon, too."""
    return spark.read.schema(schema).option("__globPaths__", "false")


def exchange(one, other):
    """Let two paths change places, by one system call where the system has it (Linux, on its own
    file systems). Elsewhere there are two, and an instant with nothing at `other`."""
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "renameat2", None)
    if call is not None:
        here = -100  # AT_FDCWD
        if not call(here, os.fsencode(one), here, os.fsencode(other), 2):  # RENAME_EXCHANGE
            return
        error = ctypes.get_errno()
        if error not in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
            raise OSError(error, os.strerror(error), str(other))
    aside = Path(f"{one}.old")
    os.rename(other, aside)
    os.rename(one, other)
    os.rename(aside, one)
