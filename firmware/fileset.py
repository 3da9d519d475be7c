"""A set of files in a folder, written and read back as one run of bytes; its form is in ota.py.

Knows the index, files and folders. Must not know pieces, keys or which set runs.
"""

import hashlib
import os
from binascii import hexlify

import loader


class Refused(ValueError):
    """The update cannot be taken; str() says why."""


def remove(path):
    """Remove a file or a folder with all that is in it; nothing when it is not there."""
    try:
        entries = list(os.ilistdir(path)) if hasattr(os, "ilistdir") else [
            (name,) for name in os.listdir(path)]
    except OSError:
        entries = None
    if entries is None:
        try:
            os.remove(path)
        except OSError:
            pass
        return
    for entry in entries:
        remove(path + "/" + entry[0])
    os.rmdir(path)


def make_folders(path):
    """Make the folders above a file; those that are there stay."""
    at = path.find("/", 1)
    while at > 0:
        try:
            os.mkdir(path[:at])
        except OSError as error:
            if error.args[0] != 17:
                raise
        at = path.find("/", at + 1)


def free():
    """Return the bytes that are free where the sets lie."""
    try:
        size = os.statvfs(loader.ROOT)
    except OSError:
        size = os.statvfs(loader.ROOT.rsplit("/", 1)[0] or "/")
    return size[0] * size[3]


class Files:
    """The set in its folder, written and read as one run of bytes.

    folder  where it lies
    index   length of its index, bytes
    """

    def __init__(self, folder, index):
        self.folder = folder
        self._index = index
        self._rows = None
        self._file = None
        self._left = 0
        self._hash = None

    def rows(self):
        """Open the index for row(), from its start."""
        if self._rows:
            self._rows.close()
        self._rows = open(self.folder + "/index", "rb")

    def row(self):
        """Return (size, SHA-256 as text, path on the board) of the next file, None at the end."""
        line = self._rows.readline()
        if not line:
            return None
        try:
            size, sha, name = line.decode().split()
            size = int(size)
        except ValueError:
            raise Refused("the index is damaged")
        if size < 0 or name.startswith("/") or ".." in name or "\\" in name:
            raise Refused("no name for a file of a set: %r" % name)
        return size, sha, self.folder + "/" + name

    def seek(self, at):
        """Go on writing `at` bytes from the start of the run; what lies before it is there."""
        self.close()
        path = self.folder + "/index"
        self._left = self._index
        if at >= self._index:
            at -= self._index
            self.rows()
            self._left = 0
            while at:
                self._left, _, path = self.row()
                if at < self._left:
                    break
                at -= self._left
                self._left = 0
        if self._left:
            self._left -= at
            make_folders(path)
            self._file = open(path, "r+b" if at else "wb")
            if at:
                self._file.seek(at)

    def write(self, data):
        """Write a memoryview; files are opened and closed on the way."""
        while len(data):
            if not self._left:
                self._next()
            n = min(self._left, len(data))
            if self._file.write(data[:n]) != n:
                raise OSError(28)
            self._left -= n
            data = data[n:]

    def _next(self):
        self._shut()
        if self._rows is None:
            self.rows()
        while not self._left:
            found = self.row()
            if found is None:
                raise Refused("longer than its index says")
            self._left = found[0]
            make_folders(found[2])
            self._file = open(found[2], "wb")
            if not self._left:
                self._shut()

    def sync(self):
        """Make durable what was written."""
        if self._file:
            self._file.flush()
            if hasattr(os, "fsync"):
                os.fsync(self._file.fileno())

    def _shut(self):
        if self._file:
            self.sync()
            self._file.close()
            self._file = None

    def close(self):
        """Close what is open."""
        self._shut()
        if self._rows:
            self._rows.close()
            self._rows = None

    # Reading all of it back

    def check(self):
        """Check one file more; return the SHA-256 of the run when all are right, else None.

        Raises Refused for a file that is not what the index says.
        """
        if self._hash is None:
            self._hash = hashlib.sha256()
            _read(self.folder + "/index", self._hash, None)
            self.rows()
            return None
        found = self.row()
        if found is None:
            digest, self._hash = self._hash.digest(), None
            return digest
        size, sha, path = found
        one = hashlib.sha256()
        if _read(path, self._hash, one) != size or hexlify(one.digest()).decode() != sha:
            self._hash = None
            raise Refused("%s is not what the index says" % path)
        return None


def _read(path, whole, one):
    # Add a file to one or two hashes; returns its length.
    length = 0
    buf = bytearray(512)
    view = memoryview(buf)
    try:
        with open(path, "rb") as file:
            while True:
                n = file.readinto(buf)
                if not n:
                    return length
                whole.update(view[:n])
                if one:
                    one.update(view[:n])
                length += n
    except OSError:
        return -1
