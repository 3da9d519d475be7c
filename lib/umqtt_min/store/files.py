"""FileStore, and its media: the files of a folder, where there is no raw flash region.

Knows: how to make a file durable on littlefs and on other file systems.
Must not know: records.

A segment is made whole (files_room.py) before it is used: what is written into it later needs
no room that other files could have taken.

Two layouts. `PlainFiles`: one file per segment, programmed in place and synced: host file
systems, FAT. `SmallFiles`: for littlefs, where syncing an append costs two erases: a segment
is cut into files so small that littlefs keeps them inside its directory log, and a program
rewrites one of them in one commit, which is atomic.
"""

import os
import sys

from ..port import const
from . import StoreFull
from .journal import Journal
from .log import copy
from .medium import Medium

_ENOENT = const(2)
_ENOSPC = const(28)
_RESERVE = const(6)  # blocks: what littlefs needs to copy on write, and to split directories
_BLANK = b"\xff" * 256


def _sync(file):
    """Make what was written to an open file durable."""
    file.flush()  # MicroPython: syncs on littlefs and on the unix port's POSIX files
    if hasattr(os, "fsync"):
        os.fsync(file.fileno())


def _sync_folder(folder):
    """Make new names in a folder durable, where the system lets a folder be opened."""
    if hasattr(os, "fsync"):
        handle = os.open(folder, 0)  # O_RDONLY
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _make(medium):
    """Make a medium's folder and those above it."""
    path = ""
    for part in medium.folder.split("/"):
        path += part
        if part and part != ".":
            try:
                os.mkdir(path)
                _sync_folder(path.rsplit("/", 1)[0] or "/" if "/" in path else ".")
            except OSError as e:  # it is there, or the last step says what is wrong
                if e.errno == _ENOSPC:
                    from .validate import refuse_room

                    refuse_room(medium, 3 + medium.spare)
        path += "/"
    os.listdir(medium.folder)


def _full(e):
    """Tell a file system that is full from one that is broken."""
    if e.errno == _ENOSPC:
        raise StoreFull()


def _fill(view, off, end):
    """Blank bytes off to end of a buffer."""
    while off < end:
        n = min(256, end - off)
        copy(view, off, _BLANK, 0, n)
        off += n


class _Files(Medium):
    """What both layouts have."""

    bulk: int  # bytes that a segment takes of the file system

    def __init__(self, folder, size, count):
        self.size = size
        self.count = count
        self.made = 0  # segments that have their files: 0 to made - 1
        self.folder = folder

    def room(self, segments):
        """How many blocks are free, how many so many segments more and the reserve take, and
        their size. Where the port cannot say it is all zero."""
        try:
            v = os.statvfs(self.folder)
        except (AttributeError, OSError):
            return 0, 0, 0
        # A littlefs that is full counts some blocks twice: then it has more free than there are.
        free = v[4] if v[4] < v[2] else 0
        # What is written into a large file is copied with all that is behind it.
        reserve = _RESERVE if self.whole else max(_RESERVE, self.size // v[1] + 3)
        return free, self.bulk * segments // v[1] + reserve, v[1]


class PlainFiles(_Files):
    """One file per segment, overwritten in place."""

    def __init__(self, folder, size, count):
        _Files.__init__(self, folder, size, count)
        self.bulk = size
        self._file = None
        self._segment = -1

    def open(self):
        """Make the folder if it is not there; see how many segments there are."""
        _make(self)
        for segment in range(self.count):
            try:
                os.stat(self.name(segment))
                self.made = segment + 1
            except OSError:
                pass  # not made yet

    def close(self):
        """Close the file at hand."""
        file = self._file
        self._file = None
        self._segment = -1
        if file:
            try:
                file.close()
            except OSError:
                pass  # what it could not write was said then

    def read(self, segment, off, buf):
        """Fill buf from the segment; a file that is missing or short reads as blank."""
        try:
            file = self._at(segment, "r+b")
            file.seek(off)
            n = file.readinto(buf)
        except OSError as e:
            if e.errno != _ENOENT:
                raise
            n = 0
        _fill(buf, n, len(buf))

    def program(self, segment, off, view):
        """Write a view's bytes, durable when it returns."""
        file = self._at(segment, "r+b")
        n = len(view)
        while n and view[n - 1] == 255:  # padding: on flash it changes nothing either
            n -= 1
        if n < len(view):
            view = view[:n]
        try:
            file.seek(off)
            file.write(view)
            _sync(file)
        except OSError as e:
            self._segment = -1  # a host's file would try again with every call
            _full(e)
            raise

    def erase(self, segment):
        """Make the segment's file, all 0xFF."""
        try:
            file = self._at(segment, "r+b")
        except OSError:
            file = self._at(segment, "w+b")
        file.seek(0)
        for _ in range(self.size // 256):
            file.write(_BLANK)
        _sync(file)
        _sync_folder(self.folder)

    def _at(self, segment, mode):
        if segment != self._segment:
            self.close()
            self._file = open(self.name(segment), mode)
            self._segment = segment
        return self._file

    def name(self, segment, number=0):
        """Path of a segment's file; number: there is one only."""
        return "%s/%03d.log" % (self.folder, segment)


class SmallFiles(_Files):
    """Segments cut into files of at most `page` bytes behind two bytes of generation.

    Erasing only counts a generation up: files of an older one read as blank, and the first
    program, the header's, makes it durable. So an erase costs nothing, and a segment's old
    content stays until the new header replaces it in one commit.
    """

    self_levelling = True  # littlefs spreads the wear; few files are better than all in turn
    whole = True

    def __init__(self, folder, size, count, chunk):
        _Files.__init__(self, folder, size, count)
        self.bulk = 5 * size  # pairs of blocks of its directory, about half full
        self.chunk = chunk
        self._buf = bytearray(chunk + 2)
        self._view = memoryview(self._buf)
        self._generations = [0] * count
        self._at = -1  # number of the file in _buf
        self._used = 0

    def open(self):
        """Make the folder; read the generation of every segment there is."""
        _make(self)
        self._at = -1
        for segment in range(self.count):
            self._generations[segment] = self._load(segment, 0, False)
            if self._used:
                self.made = segment + 1

    def close(self):
        """Nothing stays open."""
        self._at = -1

    def read(self, segment, off, buf):
        """Fill buf from the segment; what is missing reads as blank."""
        done = 0
        n = len(buf)
        while done < n:
            self._select(segment, off // self.chunk)
            at = off % self.chunk
            k = min(n - done, self.chunk - at)
            copy(buf, done, self._buf, at + 2, k)
            done += k
            off += k

    def program(self, segment, off, view):
        """Rewrite the file that holds off, durable when it returns. A program does not cross
        files; what goes over the end is padding."""
        self._select(segment, off // self.chunk)
        at = off % self.chunk
        n = min(len(view), self.chunk - at)
        while n and view[n - 1] == 255:
            n -= 1
        copy(self._buf, at + 2, view, 0, n)
        self._used = max(self._used, at + n)
        try:
            with open(self.name(segment, off // self.chunk), "wb") as file:
                file.write(self._view[: self._used + 2])
        except OSError as e:
            self._at = -1
            _full(e)
            raise

    def erase(self, segment):
        """From here on the segment reads as blank."""
        self._generations[segment] = (self._generations[segment] + 1) & 0xFFFF
        self._at = -1

    def blank(self, segment, number):
        """Write a file of a new segment, as long as it will ever be."""
        self._at = -1
        n = min(self.chunk, self.size - number * self.chunk) + 2
        _fill(self._buf, 2, n)
        self._buf[0] = self._buf[1] = 0
        with open(self.name(segment, number), "wb") as file:
            file.write(self._view[:n])

    def name(self, segment, number):
        """Path of the file with that number in a segment."""
        return "%s/%d.%d" % (self.folder, segment, number)

    def _select(self, segment, number):
        """Have a file in _buf, blank if it is of an older generation."""
        at = segment * 65536 + number
        if at == self._at:
            return
        self._at = -1
        generation = self._load(segment, number, True)
        if generation != self._generations[segment]:
            self._used = 0
            generation = self._generations[segment]
            _fill(self._buf, 2, len(self._buf))
        self._buf[0] = generation >> 8
        self._buf[1] = generation & 255
        self._at = at

    def _load(self, segment, number, whole):
        """Read a file; its generation."""
        self._used = 0
        try:
            with open(self.name(segment, number), "rb") as file:
                n = file.readinto(self._buf)
        except OSError as e:
            if e.errno != _ENOENT:
                raise
            n = 0
        if whole:
            _fill(self._buf, n, len(self._buf))
        if n < 2:
            return 0
        self._used = n - 2
        return self._buf[0] << 8 | self._buf[1]


def littlefs(folder):
    """Whether a folder is on littlefs, as far as the port can say."""
    if hasattr(os, "fsync"):
        return False
    try:
        import vfs

        mounts = vfs.mount()
    except (ImportError, TypeError):  # before 1.25: the ports' file system in flash is littlefs
        return sys.platform not in ("linux", "darwin", "win32")
    best = name = ""
    for device, path in mounts:
        prefix = path.rstrip("/") + "/"
        if (folder + "/").startswith(prefix) and len(prefix) >= len(best):
            best = prefix
            name = type(device).__name__
    return name.startswith("VfsLfs")


def FileMedium(folder, size=65536, segment=0, chunk=0, small=None):
    """The medium for a folder: SmallFiles on littlefs, PlainFiles elsewhere.

    size: bytes of all segments. segment: bytes of one, a power of two; 0 for 4096, or 2048 in
    small files. chunk: data bytes of a small file, a multiple of 16 from 64 to 240, at most
    what littlefs keeps inline less 2 (128 with its program size of 32, 512 with 256); 0 for
    224 on rp2, 112 elsewhere. small: True or False to choose the layout.
    """
    if not folder.startswith("/"):  # now, for os.chdir() may come
        folder = os.getcwd().rstrip("/") + "/" + folder
    if small is None:
        small = littlefs(folder)
    if small:
        segment = segment or 2048
        chunk = chunk or (224 if sys.platform == "rp2" else 112)
        return SmallFiles(folder, segment, size // segment, chunk)
    segment = segment or 4096
    return PlainFiles(folder, segment, size // segment)


class FileStore(Journal):
    """A journal in the files of a folder, which is made if need be: where there is no region.

    size, segment, chunk, small: see FileMedium. options: see Journal.
    """

    def __init__(self, folder, size=65536, segment=0, chunk=0, small=None, **options):
        try:  # a bit is left where one is negative or too large
            odd = not "" < folder or (size | segment | chunk | 240 - chunk) >> 30
        except TypeError:
            odd = True
        if odd:
            from .validate import refuse_folder

            refuse_folder(folder, size, segment, chunk)
        medium = FileMedium(folder, size, segment, chunk, small)
        Journal.__init__(self, medium, page=getattr(medium, "chunk", 256), **options)
