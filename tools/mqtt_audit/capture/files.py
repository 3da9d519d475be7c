"""A capture file: what format it is, its frames in pieces.

Knows: magic numbers, file sizes, gzip. Must not know: frames' content, Spark.
"""

import mmap
import os
import stat
from functools import partial

import numpy as np

from ..compiled.layout import FRAME, P_MORE, PROBLEM
from . import records
from .sizes import GZIP
from .unpacking import Unpacking, unpacked

PIECE = 1 << 16  #: frames read at once
LISTED = 1000  #: problems of a file's frames that get a row each; the rest is counted
MAX_INTERFACES = 4096
_PCAP = {
    b"\xd4\xc3\xb2\xa1": (0, 1000),
    b"\xa1\xb2\xc3\xd4": (1, 1000),
    b"\x4d\x3c\xb2\xa1": (0, 1),
    b"\xa1\xb2\x3c\x4d": (1, 1),
}
#: Others of the family, of which Wireshark makes a pcap file.
_COUSINS = {b"\x34\xcd\xb2\xa1": "modified pcap (Kuznetzov)",
            b"\xa1\xb2\xcd\x34": "modified pcap (Kuznetzov)"}  # fmt: skip
_NOKIA = "pcap as Nokia's firewalls write it"
_CONVERT = "{}: is a {}; convert it first (editcap -F pcap IN OUT)"
_ORDERS = (b"\x1a\x2b\x3c\x4d", b"\x4d\x3c\x2b\x1a")
_PACKED = {b"\x28\xb5\x2f\xfd": "unzstd", b"\x04\x22\x4d\x18": "unlz4", b"\xfd7zXZ": "unxz",
           b"BZh": "bunzip2"}  # fmt: skip
HEAD = 28  #: bytes that tell what kind of capture it is
_LOOKED = 1 << 13  #: bytes that are looked at, if there are so many: some kinds begin alike
_READ = 1 << 16  #: bytes of a packed file read at once


def shown(name):
    """A file's name, or a text with one, as it is told: bytes of it that are no UTF-8 as \\xHH."""
    return str(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class NotACapture(Exception):
    """The file cannot be read or is no pcap and no pcapng; the text says what it is."""

    def __init__(self, text):
        super().__init__(shown(text))


def _say(path, error):
    return NotACapture(f"{path}: {error.strerror or error}")


def magic(path):
    """What kind of capture a file is: ('pcap', big, ns per unit, link type) or ('pcapng',).
    Raises NotACapture."""
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise NotACapture(f"{path}: Is a directory; name the captures in it, as {path}/*.pcap")
        if not stat.S_ISREG(mode):  # open() may wait for ever
            raise NotACapture(f"{path}: is no regular file; to read what comes from it, give - "
                              f"for it and redirect standard input: < {path}")  # fmt: skip
        with open(path, "rb") as file:
            head = file.read(_LOOKED)
            if head.startswith(GZIP):
                file.seek(0)
                head = _unpacked_head(path, file)
    except OSError as error:
        raise _say(path, error)
    return kind(path, head)


def _unpacked_head(path, file):
    """The first bytes of what a packed file holds."""
    unpacking, head = Unpacking(), b""
    for made in unpacked(iter(partial(file.read, _READ), b""), unpacking):
        head += made
        if len(head) >= _LOOKED:
            return head
    if len(head) < HEAD and unpacking.wrong:
        raise torn(path, unpacking)
    return head


def torn(path, unpacking):
    """What is raised of a packed file of which not even the beginning can be unpacked."""
    return NotACapture(f"{path}: damaged gzip file ({unpacking.wrong})")


def kind(path, head):
    """The same of the first bytes of a capture (28 or more, or all there are)."""
    if head[:4] in _COUSINS:
        raise NotACapture(_CONVERT.format(path, _COUSINS[head[:4]]))
    if head[:4] in _PCAP:
        if len(head) < 24:
            raise NotACapture(f"{path}: the header of the pcap file is cut off")
        big, units = _PCAP[head[:4]]
        if _records(head, big, 20) and not _records(head, big, 16):
            raise NotACapture(_CONVERT.format(path, _NOKIA))
        link = int.from_bytes(head[20:24], "big" if big else "little") & 0x0FFF_FFFF
        return "pcap", big, units, link
    if head[:4] == b"\x0a\x0d\x0d\x0a" and head[8:12] in _ORDERS:
        return ("pcapng",)
    for mark, program in _PACKED.items():
        if head.startswith(mark):
            raise NotACapture(f"{path}: is compressed; unpack it first ({program})")
    raise NotACapture(f"{path}: neither pcap nor pcapng" + ("" if head else " (it is empty)"))


def _records(head, big, size):
    """Whether three records with headers of so many bytes follow one another, as far as they are
    there; two at least."""
    order, at, seen, known = "big" if big else "little", 24, 0, None
    while at + size <= len(head) and seen < 3:
        sec, _, kept, wire = (int.from_bytes(head[at + k : at + k + 4], order)
                              for k in range(0, 16, 4))  # fmt: skip
        if not 14 <= kept <= min(wire, records.MAX_FRAME) or (
                known is not None and abs(sec - known) > records.NEAR):  # fmt: skip
            return False
        at, seen, known = at + size + kept, seen + 1, sec
    return seen > 1


def unpack(path, target):
    """Unpack into the file `target`; returns what is wrong with what could not be read, or None.
    Raises OSError (disk full)."""
    unpacking = Unpacking()
    with open(path, "rb") as file, open(target, "wb") as out:
        for made in unpacked(iter(partial(file.read, _READ), b""), unpacking):
            out.write(made)
    return unpacking.wrong


def content(path):
    """The file's bytes as an array, mapped and not read. Raises NotACapture.

    Private and writable, so that compiled loops see one type of array whatever they work on."""
    try:
        with open(path, "rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), np.uint8)
    except OSError as error:
        raise _say(path, error)


class Capture:
    """One file. `data`: its bytes; iterate over it to get (number of the first frame, frames).

    After the iteration `problems` has the damage found, as rows of layout.PROBLEM. part: one of
    parts(), of which the frames are then read alone."""

    def __init__(self, path, part=None):
        kind = magic(path)
        self.data = content(path)
        self._pieces = 0
        self._ng = kind[0] == "pcapng"
        self._state = np.zeros(records.STATE, np.int64)
        self._interfaces = np.zeros((MAX_INTERFACES if self._ng else 0, 4), np.int64)
        self._state[[records.LAST, records.BEFORE]] = 0 if self._ng else -1
        if self._ng:
            self._state[records.BIG] = self.data[8] == 0x1A
        else:
            self._state[records.POS] = 24
            self._state[[records.BIG, records.UNITS, records.LINK]] = kind[1:]
        self._problems = np.zeros(LISTED, PROBLEM)
        if part:
            self._state[:], self._pieces = part["state"], part["pieces"]
            self._interfaces[: len(part["interfaces"])] = part["interfaces"]

    def _here(self):
        """The state as it is now, to go on from in another process."""
        known = self._state[records.INTERFACES]
        return {"state": self._state.copy(), "pieces": 0,
                "interfaces": self._interfaces[:known].copy()}  # fmt: skip

    def parts(self, size):
        """Cut the file into parts of about `size` bytes, each of which can be read alone: a list
        for Capture(part=...). All of the file's frames are gone through, and its damage is found,
        but none of them is looked into."""
        parts, begun = [], size
        position = int(self._state[records.POS])
        here = self._here()
        for _ in self:
            if begun >= size:
                parts.append(here)
                begun = 0
            parts[-1]["pieces"] += 1
            begun += int(self._state[records.POS]) - position
            position, here = int(self._state[records.POS]), self._here()
        return parts

    def __iter__(self):
        frames = np.zeros(PIECE, FRAME)
        left = self._pieces or -1
        while not self._state[records.DONE] and left:
            left -= 1
            first = int(self._state[records.FRAMES]) + 1
            if self._ng:
                n = records.pcapng(self.data, len(self.data), self._state, self._interfaces,
                                   frames, self._problems)  # fmt: skip
            else:
                n = records.pcap(self.data, len(self.data), self._state, frames, self._problems)
            yield first, frames[:n]

    @property
    def frames(self):
        """How many frames were read so far."""
        return int(self._state[records.FRAMES])

    @property
    def problems(self):
        """Rows of layout.PROBLEM, the last one saying how many are not listed."""
        rows = self._problems[: self._state[records.PROBLEMS]]
        if not self._state[records.LOST]:
            return rows
        more = np.zeros(1, PROBLEM)
        more["kind"], more["count"], more["conn"] = P_MORE, self._state[records.LOST], -1
        return np.concatenate([rows, more])
