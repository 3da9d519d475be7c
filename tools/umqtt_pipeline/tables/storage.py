"""Where the files of the tables lie, and how one is written so that it stays.

Knows folders, files and bytes; objects.py has the same for an object store. Must not know tables,
rows or Delta Lake. What `storage_of` gives goes to Spark's workers with the tasks, which write and
read by it.
"""

import json
import logging
import os
import shutil
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from ..spool.files import in_place_of_file, make_folder, read_plain, sync_folder
from .objects import Objects

log = logging.getLogger("umqtt.tables")

END = b"PAR1"  #: of each Parquet file, which begins in the same way


def is_object_store(root):
    """Whether the tables below `root` are in an object store."""
    return str(root).startswith("s3://")


def storage_of(root):
    """The Storage, or the Objects, below `root`: a folder or s3://BUCKET/PREFIX."""
    return Objects(root) if is_object_store(root) else Storage(root)


def place(root):
    """Where the tables below `root` lie, in one form only."""
    return str(root).rstrip("/") if is_object_store(root) else str(Path(root).resolve())


def are_there(root):
    """Whether ingest has made tables below `root`. Raises OSError if that cannot be known."""
    held = storage_of(root)
    held.check()
    return held.exists("_state")


@contextmanager
def _named(target):
    """An error of the system while the file `target` is written names it: of a full disk it would
    not."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(target))


def _ends_as_parquet(path):
    data = path.read_bytes()
    return len(data) > 2 * len(END) and data.endswith(END)


def _put_aside(path):
    aside = path.with_name(f"{path.name}.torn")
    log.warning("%s is torn, as a power cut leaves it: it is now %s", path, aside)
    path.replace(aside)


def _is_own_folder(path):
    """Whether it is a folder that may be in a log, as other programs have them there."""
    return path.is_dir() and not path.is_symlink() and path.suffix not in (".json", ".parquet")


class Storage:
    """Files below one folder. root: its path; what a method is given lies below it, in words
    separated by slashes."""

    shared = False  #: with other machines
    patience = 0  #: seconds until a file that nobody needs is surely nobody's: there is a lock
    options = None  #: that Delta Lake is told

    def __init__(self, root):
        self.root = str(Path(root).absolute())

    def uri(self, name=""):
        """What Delta Lake takes for the place `name`."""
        return os.path.join(self.root, name) if name else self.root

    path = uri  #: the same for people
    key = uri  #: what `files` calls it

    @property
    def files(self):
        """The pyarrow file system that knows `key`."""
        return fs.LocalFileSystem()

    def check(self):
        """A folder can be used, or says why not when it is."""

    def keep(self, name, data):
        """Write bytes so that a power cut leaves them, and the name; nobody may look at a file
        before it is known to be whole. Raises OSError."""
        target = Path(self.root, name)
        make_folder(target.parent)
        with _named(target), open(target, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        sync_folder(target.parent)

    def put(self, name, data):
        """Write bytes that nobody needs after a power cut. Raises OSError."""
        target = Path(self.root, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _named(target):
            target.write_bytes(data)

    def read(self, name):
        """All bytes of a file. Raises OSError."""
        return read_plain(Path(self.root, name))

    def exists(self, name):
        """Whether there is anything of that name."""
        return Path(self.root, name).exists()

    def listed(self, name):
        """The names of all files below `name`, from the root on."""
        found = (p for p in Path(self.root, name).rglob("*") if p.is_file())
        return sorted(p.relative_to(self.root).as_posix() for p in found)

    def sync(self, name):
        """Make a file durable that somebody else has written, and its name; a file that is not
        there is left out. Raises OSError."""
        target = Path(self.root, name)
        try:
            handle = os.open(target, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        for folder in target.parents:
            sync_folder(folder)
            if folder == Path(self.root).parent:
                break

    def remove(self, name):
        """Remove a file, or a folder with all that is in it; one that is gone will do."""
        target = Path(self.root, name)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def children(self, name, older_than=0):
        """The names in a folder of what was last changed so many seconds ago."""
        folder = Path(self.root, name)
        if not folder.is_dir():
            return []
        return [f"{name}/{child.name}".removeprefix("/") for child in folder.iterdir()
                if time.time() - child.lstat().st_mtime >= older_than]  # fmt: skip

    def dangling(self):
        """The names of the links right below the root that lead nowhere."""
        return sorted(each.name for each in Path(self.root).iterdir()
                      if each.is_symlink() and not each.exists())  # fmt: skip

    def no_files(self):
        """[(name, what there is)] of what stands in the place of a log of a table, or of a file of
        one: Delta Lake would wait for ever for what is in a pipe, and takes a broken link, or a
        folder, for a file that is missing."""
        found = {}
        for folder in (each for depth in ("*", "_*/*") for each in Path(self.root).glob(depth)):
            log = folder / "_delta_log"
            if log.is_dir():
                found |= {each: in_place_of_file(each) for each in log.iterdir()
                          if not _is_own_folder(each)}  # fmt: skip
            elif log.exists() or log.is_symlink():
                found[log] = in_place_of_file(log) or "it is no folder, but a file"
        return sorted((path.relative_to(self.root).as_posix(), why)
                      for path, why in found.items() if why)  # fmt: skip

    def remove_matching(self, name, pattern, older_than=0):
        """Remove the files of a table's folder, and of its days, whose names fit a pattern."""
        until = time.time() - older_than
        for depth in ("", "*/"):
            for path in Path(self.root, name).glob(depth + pattern):
                if not older_than or path.stat().st_mtime <= until:
                    path.unlink(missing_ok=True)

    def put_torn_aside(self, name):
        """Rename the last commit of the log `name` if it is torn, as a power cut leaves it: it is
        made again. Every one before it was made durable before the next one began. It is kept for
        whoever has to find out what a disk has lost, which may look the same. So is the last
        checkpoint, which says what the commits say."""
        for path in sorted(Path(self.root, name).glob("*.checkpoint.parquet"))[-1:]:
            if not _ends_as_parquet(path):
                _put_aside(path)
                self.remove(f"{name}/_last_checkpoint")  # readers insist on what it names
        found = sorted(Path(self.root, name).glob("*.json"))
        try:
            for line in found[-1].read_text().splitlines() or [""] if found else ():
                json.loads(line)
        except ValueError:
            _put_aside(found[-1])

    def empty_commit(self, name, version=None):
        """The first commit without a byte of the log `name` that readers of a version need, or
        None: Delta Lake takes it for one that changes nothing. version: None, the latest."""
        sizes, newest = {}, -1
        try:
            with os.scandir(Path(self.root, name)) as entries:
                for entry in entries:
                    number = entry.name[:20]
                    if not number.isdecimal() or version is not None and int(number) > version:
                        continue
                    if entry.name.endswith(".checkpoint.parquet"):
                        newest = max(newest, int(number))
                    elif entry.name == f"{number}.json":
                        sizes[int(number)] = entry.stat().st_size
        except FileNotFoundError:
            return None
        gone = [number for number, size in sizes.items() if number > newest and not size]
        return f"{min(gone):020d}.json" if gone else None

    def read_parquet(self, name, **how):
        """A Parquet file as an Arrow table; page checksums are verified. Raises pa.ArrowException,
        OSError."""
        return pq.ParquetFile(pa.BufferReader(self.read(name)),
                              page_checksum_verification=True).read(**how)  # fmt: skip


def table_of(data, schema):
    """The bytes of a Parquet file as an Arrow table."""
    return pq.read_table(pa.BufferReader(data), schema=schema)


def parquet(rows, dictionary=True, compression="zstd"):
    """An Arrow table as the bytes of a Parquet file with a checksum for each page.

    dictionary: names of the columns whose values come again and again, or True for all
    """
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression=compression, use_dictionary=dictionary,
                   write_page_checksum=True)  # fmt: skip
    return out.getvalue()
