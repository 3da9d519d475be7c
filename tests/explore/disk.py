"""The files of a board, held in the explorer's hand.

Knows: what a file system promises: on a host what was synced, on littlefs a file as it was closed.
Must not know: what is in a file.

    mount("/board/0", disk)      # names below that folder are the disk's
    disk.boot()                  # the power is back: what was not durable is gone

Import it before the library: it changes the process that it is imported in. All other names go to
the real file system.
"""

import builtins
import os

from nor import PowerCut

ENOENT, EEXIST = 2, 17
MOUNTS = {}  # folder: Disk
_REAL = {name: getattr(os, name) for name in ("stat", "mkdir", "remove", "listdir", "open",
                                              "close", "fsync")}  # fmt: skip
_OPEN = builtins.open


class Disk:
    """The files of one folder. whole: a file changes at once, when it is closed (littlefs);
    else with fsync, which may be torn, and a new one is found again when its folder was synced,
    too. cut: f(bytes that change) -> at which of them the power goes, -1: it does not."""

    def __init__(self, cut, whole, durable=None):
        self.cut = cut
        self.whole = whole
        self.dead = False
        self.durable = durable or {}  # name: bytes that survive
        self.nameless = {}  # name: bytes that were synced, but not the folder since
        self.data = dict(self.durable)  # name: bytes that are read

    def boot(self):
        """The power is back."""
        self.dead = False
        self.nameless.clear()
        self.data = dict(self.durable)

    def commit(self, name):
        """Make a file durable."""
        new = self.data[name]
        files = self.durable if self.whole or name in self.durable else self.nameless
        old = files.get(name)
        if old == new:
            return
        changed = (old or b"").ljust(len(new), b"\xff")
        first = 0
        while first < len(new) - 1 and changed[first] == new[first]:
            first += 1
        end = len(new)
        while end > first + 1 and changed[end - 1] == new[end - 1]:
            end -= 1
        cut = self.cut(new[first:end], self.whole)
        if cut < 0:
            files[name] = new
            return
        if cut >= end - first:
            files[name] = new
        elif cut and not self.whole:
            cut += first
            files[name] = changed[:first] + new[first:cut] + changed[cut:]
        self.dead = True
        raise PowerCut()

    def alive(self):
        """Raises PowerCut where it is not."""
        if self.dead:
            raise PowerCut()


class File:
    """An open file."""

    def __init__(self, disk, name, mode):
        disk.alive()
        if name not in disk.data and "w" not in mode:
            raise OSError(ENOENT, name)
        self.disk = disk
        self.name = name
        self.at = 0
        self.written = False
        if "w" in mode:
            disk.data[name] = b""
            self.written = True

    def seek(self, at):
        """As a file's."""
        self.at = at

    def readinto(self, buf):
        """As a file's."""
        self.disk.alive()
        data = self.disk.data[self.name][self.at : self.at + len(buf)]
        buf[: len(data)] = data
        self.at += len(data)
        return len(data)

    def write(self, view):
        """As a file's."""
        self.disk.alive()
        data = self.disk.data[self.name].ljust(self.at, b"\0")
        end = self.at + len(view)
        self.disk.data[self.name] = data[: self.at] + bytes(view) + data[end:]
        self.at = end
        self.written = True
        return len(view)

    def flush(self):
        """As a file's: nothing is durable by that."""

    def fileno(self):
        """What os.fsync() is given."""
        return self

    def sync(self):
        """What os.fsync() does."""
        self.disk.alive()
        self.disk.commit(self.name)

    def close(self):
        """As a file's."""
        if self.disk.whole and self.written and not self.disk.dead:
            self.written = False
            self.disk.commit(self.name)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is None:
            self.close()


class Folder:
    """An open folder."""

    def __init__(self, disk):
        self.disk = disk

    def sync(self):
        """What os.fsync() does: the names in it are durable."""
        self.disk.alive()
        self.disk.durable.update(self.disk.nameless)
        self.disk.nameless.clear()

    def close(self):
        """What os.close() does."""


def mount(folder, disk):
    """Names below that folder are the disk's from here on."""
    MOUNTS[folder] = disk


def _find(path):
    # (disk, name in it), or (None, path).
    if isinstance(path, str):
        for folder, disk in MOUNTS.items():
            if path == folder or path.startswith(folder + "/"):
                return disk, path[len(folder) + 1 :]
    return None, path


def _open(path, mode="r", *args, **options):
    disk, name = _find(path)
    return File(disk, name, mode) if disk else _OPEN(path, mode, *args, **options)


def _stat(path, *args, **options):
    disk, name = _find(path)
    if disk is None:
        return _REAL["stat"](path, *args, **options)
    if name and name not in disk.data:
        raise OSError(ENOENT, path)
    return (0,)


def _mkdir(path, *args, **options):
    if any(folder == path or folder.startswith(path + "/") for folder in MOUNTS):
        raise OSError(EEXIST, path)
    _REAL["mkdir"](path, *args, **options)


def _remove(path, *args, **options):
    disk, name = _find(path)
    if disk is None:
        _REAL["remove"](path, *args, **options)
    elif disk.data.pop(name, None) is None:
        raise OSError(ENOENT, path)
    else:
        disk.durable.pop(name, None)
        disk.nameless.pop(name, None)


def _listdir(path="."):
    disk, _ = _find(path)
    return _REAL["listdir"](path) if disk is None else list(disk.data)


def _open_folder(path, flags, *args, **options):
    disk, _ = _find(path)
    return _REAL["open"](path, flags, *args, **options) if disk is None else Folder(disk)


def _fsync(handle):
    if isinstance(handle, (File, Folder)):
        handle.sync()
    else:
        _REAL["fsync"](handle)


def _close(handle):
    if isinstance(handle, Folder):
        handle.close()
    else:
        _REAL["close"](handle)


def install():
    """Change this process."""
    builtins.open = _open
    os.stat = _stat
    os.mkdir = _mkdir
    os.remove = _remove
    os.listdir = _listdir
    os.open = _open_folder
    os.fsync = _fsync
    os.close = _close


install()
