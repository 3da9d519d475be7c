"""Files of the tables in an object store, which is `s3://BUCKET/PREFIX`.

Knows objects, by a client of spool/objects.py, which says how the store is found. Spark's workers
need its environment, too. Must not know tables, rows or Delta Lake.

A put is whole or not there, and durable when it is answered: there is nothing to sync, and no
commit is torn.
"""

import datetime
from datetime import timedelta
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..spool.objects import PLACE, Unreachable, allow_http, store, unreachable

__all__ = ["PLACE", "Objects", "Unreachable"]

DAY = 86_400


class Objects:
    """The same as storage.Storage for the objects below `root`."""

    shared = True  #: with other machines: no lock of this one keeps them off
    #: a file that nobody needs may be one of a batch that another machine is just writing, unless
    #: it is older than so many seconds
    patience = DAY

    def __init__(self, root):
        self.root = root.rstrip("/")

    @property
    def options(self):
        """What Delta Lake is told of the store: a commit is a put that one writer wins."""
        return {"aws_conditional_put": "etag", "allow_http": str(allow_http()).lower()}

    @property
    def _objects(self):
        return store(self.root)

    def uri(self, name=""):
        """What Delta Lake takes for the place `name`."""
        return f"{self.root}/{name}" if name else self.root

    path = uri  #: the same for people

    @staticmethod
    def key(name):
        """What `files` calls the place `name`."""
        return name

    @property
    def files(self):
        """The pyarrow file system that knows `key`; it only reads."""
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.root, self.options))

    def check(self):
        """Raises Unreachable unless the store answers and lets us in."""
        try:
            next(iter(self._objects.list("_state", chunk_size=1)), None)
        except Exception as error:  # of the store, of the network, for want of obstore
            raise unreachable(error, self.root)

    def keep(self, name, data):
        """Write bytes, whole and durable. Raises OSError."""
        self._objects.put(name, bytes(data))

    put = keep

    def read(self, name):
        """All bytes of an object. Raises OSError."""
        return bytes(self._objects.get(name).bytes())

    def exists(self, name):
        """Whether there is an object of that name, or one below it."""
        if any(True for part in self._objects.list(name) for _ in part):
            return True
        try:
            self._objects.head(name)
        except FileNotFoundError:
            return False
        return True

    def listed(self, name):
        """The names of all objects below `name`, from the root on."""
        return sorted(each["path"] for part in self._objects.list(name) for each in part)

    def sync(self, name):
        """A put is durable."""

    def put_torn_aside(self, name):
        """A put is never torn."""

    def empty_commit(self, name, version=None):
        """A put is whole."""

    def remove(self, name):
        """Remove an object and all that is below that name; one that is gone will do."""
        self._objects.delete([name, *self.listed(name)])

    def children(self, name, older_than=0):
        """The names directly below a name of what was last changed so many seconds ago."""
        at = {}
        for part in self._objects.list(name or None):
            for each in part:
                child = each["path"].removeprefix(f"{name}/").partition("/")[0]
                at[child] = max(each["last_modified"], at.get(child, each["last_modified"]))
        until = datetime.datetime.now(datetime.UTC) - timedelta(seconds=older_than)
        return [f"{name}/{child}".removeprefix("/") for child, when in at.items()
                if not older_than or when <= until]  # fmt: skip

    def dangling(self):
        """A store has no links."""
        return []

    def no_files(self):
        """A store has nothing but objects."""
        return []

    def remove_matching(self, name, pattern, older_than=0):
        """Remove what lies in a table, or in its days, and fits a pattern."""
        until = datetime.datetime.now(datetime.UTC) - timedelta(seconds=older_than)
        found = [each["path"] for part in self._objects.list(name) for each in part
                 if fnmatchcase(each["path"].rpartition("/")[2], pattern)
                 and each["path"].removeprefix(f"{name}/").count("/") < 2
                 and (not older_than or each["last_modified"] <= until)]  # fmt: skip
        if found:
            self._objects.delete(found)

    def read_parquet(self, name, **how):
        """A Parquet file as an Arrow table; page checksums are verified. Raises pa.ArrowException,
        OSError."""
        return pq.ParquetFile(pa.BufferReader(self.read(name)),
                              page_checksum_verification=True).read(**how)  # fmt: skip
