"""FileStore, and what its media share: the files of a folder, where there is no raw flash region.

Knows: how a journal grows in a file system, which layout fits it.  Must not know: records.

Two layouts. `PlainFiles` (plain_files.py): one file per segment, programmed in place and synced:
host file systems, FAT. `SmallFiles` (small_files.py): for littlefs.

Before use, a segment gets all its files at full length, and only while the file system keeps a
reserve. So later writes need no room that other files could have taken. A journal with some of its
segments made is a smaller journal. Acknowledgements still find room when it is full.
"""

import os
import sys

from ..port import const
from . import StoreFull
from .journal import Journal
from .medium import Medium
from .segment_log import copy

_ENOENT = const(2)
_ENOSPC = const(28)
_RESERVE = const(6)  # blocks: what littlefs needs to copy on write, and to split directories
BLANK = b"\xff" * 256


class FileStore(Journal):
    """A journal in the files of a folder, for boards without a flash region. Makes the folder if
    it is missing.

    size, segment, chunk, small: see file_medium(). options: see Journal.
    """

    def __init__(self, folder, size=65536, segment=0, chunk=0, small=None, **options):
        try:  # | is for whole numbers only; it is negative where one of them is
            wrong = not "" < folder or (size | segment | chunk) >> 30
            wrong = wrong or chunk and chunk not in range(64, 241, 16)
        except TypeError:
            wrong = True
        if wrong:
            from .validate import refuse_folder

            refuse_folder(folder, size, segment, chunk)
        medium = file_medium(folder, size, segment, chunk, small)
        Journal.__init__(self, medium, **options)


def file_medium(folder, size=65536, segment=0, chunk=0, small=None):
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
        from .small_files import SmallFiles

        segment = segment or 2048
        chunk = chunk or (224 if sys.platform == "rp2" else 112)
        return SmallFiles(folder, segment, size // segment, chunk)
    from .plain_files import PlainFiles

    segment = segment or 4096
    return PlainFiles(folder, segment, size // segment)


def littlefs(folder):
    """Whether a folder is on littlefs, as far as the port can tell."""
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


def fill(view, off, end):
    """Blank bytes off to end of a buffer."""
    while off < end:
        n = min(256, end - off)
        copy(view, off, BLANK, 0, n)
        off += n


def raise_if_full(e):
    """Tell a file system that is full from one that is broken."""
    if e.errno == _ENOSPC:
        raise StoreFull()


def sync_folder(folder):
    """Make new names in a folder durable, if the system can open a folder."""
    if hasattr(os, "fsync"):
        handle = os.open(folder, 0)  # O_RDONLY
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def exists(name):
    """Whether there is a file of that name."""
    try:
        os.stat(name)
        return True
    except OSError:
        return False


class Files(Medium):
    """What both layouts have: segments that are made one by one.

    A layout has name(segment, number), the path of a segment's file, and make(segment).
    """

    growing = True
    file_size: int  # data bytes of a file
    bulk: int  # bytes that a segment takes of the file system
    other: str  # a file that the other layout has

    def __init__(self, folder, size, count):
        self.size = size
        self.count = count
        self.made = 0  # segments that have their files: 0 to made - 1
        self.folder = self.where = folder

    def open(self):
        """Make the folder if it is missing. Raises ValueError, before it writes a file, if the
        folder has a journal of which these arguments would find nothing, or not all."""
        self._make_folder()
        self._find()
        count = self.count
        while exists(self.name(count, 0)):
            count += 1
        if count > self.count or not self.made and exists(self.folder + self.other):
            from .validate import refuse_journal

            refuse_journal(self, count)

    def _find(self):
        """See how many segments there are."""
        raise NotImplementedError

    def name(self, segment, number):
        """Path of the file with that number in a segment."""
        raise NotImplementedError

    def make(self, segment):
        """Make all files of a segment, blank and at full length. File 0 comes last: it marks the
        segment as whole."""
        raise NotImplementedError

    def _make_folder(self):
        """Make the folder and those above it."""
        path = ""
        for part in self.folder.split("/"):
            path += part
            if part and part != ".":
                try:
                    os.mkdir(path)
                    sync_folder(path.rsplit("/", 1)[0] or "/" if "/" in path else ".")
                except OSError as e:  # it is there, or the last step says what is wrong
                    if e.errno == _ENOSPC:
                        self._refuse(3 + self.spare)
            path += "/"
        try:
            os.listdir(self.folder)
        except OSError as e:
            from .validate import refuse_unusable

            refuse_unusable(self.folder, e.errno)

    def _refuse(self, segments):
        from .validate import refuse_room

        refuse_room(self, segments)

    # Room in the file system.

    def room(self, segments):
        """Free blocks; blocks that so many more segments and the reserve need; bytes of a block.
        All are 0 if the port cannot tell."""
        try:
            v = os.statvfs(self.folder)
        except (AttributeError, OSError):
            return 0, 0, 0
        # A littlefs that is full counts some blocks twice: then it has more free than there are.
        free = v[4] if v[4] <= v[2] else 0
        # What is written into a large file is copied with all that is behind it.
        reserve = _RESERVE if self.whole else max(_RESERVE, self.size // v[1] + 3)
        return free, self.bulk * segments // v[1] + reserve, v[1]

    def _missing(self, segments):
        free, needed, _ = self.room(segments)
        return free < needed

    def _last(self):
        """Number of a segment's last file."""
        return (self.size - 1) // self.file_size

    def _in_blocks(self, block):
        # Whether each of several files is too long for littlefs's directories: it takes a block.
        return self.file_size < self.size and 8 * (self.file_size + 2) > block > 0

    # Segments are made.

    def begin(self, least, serials):
        """Make segments until there are `least`. A mount calls it before it writes.

        serials: the serial number of each segment, 0 for an empty one.
        Raises OSError ENOSPC if there is no room for them.
        """
        begun = self._sweep()
        kept = self.made if max(serials) else 0  # a first start that was cut has stored nothing
        if self.made < least:
            # What was begun had room when it began: it is tried, then once more from the start.
            if not begun and self._missing(least) or not self._up_to(least, kept):
                if not begun or kept or not self._up_to(least, kept):
                    self._refuse(least - kept)
        self._relieve(serials)

    def add(self):
        """Make one more segment; False if the file system has no room for it and the reserve."""
        return not self._missing(1) and self._add()

    def _sweep(self):
        """Remove the segment that a cut left unfinished. True if there was any segment, whole or
        not."""
        half = exists(self.name(self.made, self._last()))
        if half:
            self._remove(self.made)
        block = self.room(0)[2]
        if self._in_blocks(block):
            # And room in directories: see _add().
            self.bulk = (self._last() + 1) * (block + 264)
        return half or self.made > 0

    def _relieve(self, serials):
        """If no block is free and each file takes one, remove the files of free segments to make
        room. Split directories or other files may have taken the reserve. Later writes make the
        files again."""
        free, _, block = self.room(0)
        if free < 2 and self._in_blocks(block):
            for segment in range(self.made):
                if not serials[segment]:
                    for number in range(1, self._last() + 1):
                        try:
                            os.remove(self.name(segment, number))
                        except OSError:
                            pass  # removed before

    def _up_to(self, count, kept):
        while self.made < count:
            if not self._add():
                while self.made > kept:
                    self.made -= 1
                    self._remove(self.made)
                return False
        return True

    def _add(self):
        """Make a segment. False if the file system ran out of room, or of the reserve."""
        segment = self.made
        before = self.room(0)[0]
        try:
            self.make(segment)
        except OSError as e:
            if e.errno != _ENOSPC:
                raise
            self._remove(segment)
            return False
        free, needed, block = self.room(0)
        files = self._last() + 1
        taken = before - free - files
        if taken >= 0 and files > 1:  # a block each: then to write one takes a free block
            # Directories are split later on, down to four entries of 33 bytes in a pair of 512.
            needed += (segment + 1) * max(0, files * 2 // max(1, block // 128) - taken)
        if free < needed:
            self.bulk += (needed - free) * block  # it is not tried in vain again
            self._remove(segment)
            return False
        self.made = segment + 1
        return True

    def _remove(self, segment):
        self.close()
        for number in range(self._last() + 1):
            try:
                os.remove(self.name(segment, number))
            except OSError:
                pass  # it was not made
