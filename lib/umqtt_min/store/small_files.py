"""SmallFiles: the layout for littlefs, where syncing an append costs two erases.

Knows: what littlefs keeps inside its directory log.
Must not know: records; when a segment is made (files.py).
"""

from ..port import const
from .files import Files, fill, raise_if_full
from .segment_log import copy

_ENOENT = const(2)


class SmallFiles(Files):
    """Segments cut into files of at most `chunk` bytes behind two bytes of generation. littlefs
    keeps files so small inside its directory log, and a program rewrites one of them in one
    atomic commit. File p of segment n is `n.p`.

    An erase only counts the generation up, so it costs nothing. Files of an older generation
    read as blank. The first program, the header's, makes the erase durable: the old content of
    the segment stays until the new header replaces it in one commit.
    """

    self_levelling = True  # littlefs spreads the wear; few files are better than all in turn
    whole = True
    other = "/000.log"

    def __init__(self, folder, size, count, chunk):
        Files.__init__(self, folder, size, count)
        self.bulk = 5 * size  # pairs of blocks of its directory, about half full
        self.chunk = self.file_size = chunk
        self._buf = bytearray(chunk + 2)
        self._view = memoryview(self._buf)
        self._generations = [0] * count
        self._at = -1  # number of the file in _buf
        self._used = 0

    def _find(self):
        """See how many segments there are, and the generation of each."""
        self._at = -1
        for segment in range(self.count):
            self._generations[segment] = self._load(segment, 0, False)
            if self._used:
                self.made = segment + 1

    def close(self):
        """Nothing stays open."""
        self._at = -1

    def read(self, segment, off, buf):
        """Fill buf from the segment; missing bytes read as blank."""
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
        files; bytes beyond the end are padding."""
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
            raise_if_full(e)
            raise

    def erase(self, segment):
        """From here on the segment reads as blank."""
        self._generations[segment] = (self._generations[segment] + 1) & 0xFFFF
        self._at = -1

    def make(self, segment):
        """Write all files of a new segment, the first one last."""
        self._at = -1
        for number in range(self._last(), -1, -1):
            n = min(self.chunk, self.size - number * self.chunk) + 2
            fill(self._buf, 2, n)
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
            fill(self._buf, 2, len(self._buf))
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
            fill(self._buf, n, len(self._buf))
        if n < 2:
            return 0
        self._used = n - 2
        return self._buf[0] << 8 | self._buf[1]
