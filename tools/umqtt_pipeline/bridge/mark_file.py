"""The file `marks` of a spool: what the bridge knows of every device, as of a position there.

Knows the file's records, and how a save survives a kill. Must not know sockets, or how a mark
moves (marks.py).

    marks    records, one behind the other: the first has all marks, each further one those that
             changed since; together they are true at the position that the last one says

    record   magic "umk2", length of the body u32, its crc32 u32, crc32 of these 12 bytes u32;
             body: length u32 of ABOUT, and ABOUT as JSON:
                 {"position", "peers": {spool id: position}, "shipped", "new": N, "marks": M,
                  "ranges": R}; shipped: all that counts of peers is in an object store
             N lengths of topics u16, the topics, N epochs of 8 bytes: marks with the next numbers,
             from 0 on
             M numbers u32, M `upto` u64, M `at` i64, M counts of ranges u32
             R first numbers u64, R last numbers u64

A save costs what has changed. When the changes are as long as all marks together, these are
written anew into another file, which takes the place of the old one. A record that a kill has left
half written is as if it had never been begun.
"""

import json
import os
import struct
import zlib
from itertools import chain, islice
from pathlib import Path

import numpy as np

from ..spool.files import replace_file
from .marks import Mark

HEAD = struct.Struct("<4sIII")
MAGIC = b"umk2"
LEAST = 1 << 20  #: bytes of changes that are no reason to write all marks anew


def record(marks, position, peers, whole, shipped=False):
    """The bytes of a record. whole: of all marks, else of those that changed since the last."""
    new = list(islice(marks.marks, 0 if whole else marks.named, None))
    told = list(marks.marks.values() if whole else marks.changed)
    topics = [topic for topic, _ in new]
    ranged = [mark for mark in told if mark.starts]
    about = {"position": position, "peers": peers, "shipped": shipped, "new": len(new),
             "marks": len(told), "ranges": sum(len(mark.starts) for mark in ranged)}  # fmt: skip
    text = json.dumps(about).encode()
    body = b"".join((
        len(text).to_bytes(4, "little"), text,
        np.array([len(topic) for topic in topics], "<u2").tobytes(),
        *topics, *(epoch for _, epoch in new),
        np.array([mark.number for mark in told], "<u4").tobytes(),
        np.array([mark.upto for mark in told], "<u8").tobytes(),
        np.array([mark.at for mark in told], "<i8").tobytes(),
        np.array([len(mark.starts) for mark in told], "<u4").tobytes(),
        np.array(list(chain.from_iterable(m.starts for m in ranged)), "<u8").tobytes(),
        np.array(list(chain.from_iterable(m.ends for m in ranged)), "<u8").tobytes(),
    ))  # fmt: skip
    head = HEAD.pack(MAGIC, len(body), zlib.crc32(body), 0)[:12]
    return head + zlib.crc32(head).to_bytes(4, "little") + body


def records(raw):
    """Yield (end, body) of the whole records that `raw` begins with, up to the first that is not
    whole."""
    at, view = 0, memoryview(raw)
    while len(raw) - at >= HEAD.size:
        magic, length, check, own = HEAD.unpack_from(raw, at)
        end = at + HEAD.size + length
        if magic != MAGIC or own != zlib.crc32(view[at : at + 12]) or end > len(raw):
            return
        body = view[at + HEAD.size : end]
        if zlib.crc32(body) != check:
            return
        yield end, body
        at = end


def about(body):
    """What a record says of itself, and where its columns begin: (dict, place)."""
    length = int.from_bytes(body[:4], "little")
    return json.loads(bytes(body[4 : 4 + length])), 4 + length


def newest(raw):
    """What the last record in the bytes of a file says of itself, without a look at the marks;
    None if the first one is damaged."""
    found = [body for _, body in records(raw)]
    return about(found[-1])[0] if found else None


def is_damaged(raw):
    """Whether the bytes of a file are not those that were written. Of a last record that is not
    whole nobody can tell: a kill leaves one, too."""
    ends = [end for end, _ in records(raw)]
    at = raw.find(MAGIC, ends[-1] + 1) if ends else -1
    while at >= 0:  # each was durable before the next one was begun
        if next(records(raw[at:]), None):
            return True
        at = raw.find(MAGIC, at + 1)
    return not ends


def load(marks, raw):
    """Take over into `marks`, which are empty, what the bytes of a file say; returns (position,
    peers, [end of each record], shipped). Raises ValueError if there is no whole record."""
    told, ends = None, []
    for end, body in records(raw):
        told = _take(marks, body)
        ends.append(end)
    if told is None:
        raise ValueError("wrong check value")
    marks.saved()
    return told["position"], told["peers"], ends, told["shipped"]


class _Columns:
    """Reads one column after the other."""

    def __init__(self, body, at):
        self.body, self.at = body, at

    def numbers(self, kind, count):
        column = np.frombuffer(self.body, kind, count, self.at)
        self.at += column.nbytes
        return column.tolist()

    def texts(self, lengths):
        ends = list(np.cumsum([self.at, *lengths]))
        self.at = int(ends[-1])
        return [bytes(self.body[a:b]) for a, b in zip(ends, ends[1:])]


def _take(marks, body):
    told, at = about(body)
    columns = _Columns(body, at)
    topics = columns.texts(columns.numbers("<u2", told["new"]))
    for key in zip(topics, columns.texts([8] * told["new"])):
        marks.marks[key] = Mark(number=len(marks.marks))
    count = told["marks"]
    numbers, uptos, times, ranges = (columns.numbers(kind, count)
                                     for kind in ("<u4", "<u8", "<i8", "<u4"))  # fmt: skip
    starts, ends = (columns.numbers("<u8", told["ranges"]) for _ in range(2))
    listed, at = list(marks.marks.values()), 0
    for number, upto, when, held in zip(numbers, uptos, times, ranges):
        mark = listed[number]
        mark.upto, mark.at = upto, when
        mark.starts, mark.ends = ((starts[at : at + held], ends[at : at + held]) if held
                                  else ((), ()))  # fmt: skip
        at += held
    return told


class MarkFile:
    """The file `marks` in the folder of a spool. shipped: all that its marks count of peers is in
    an object store; whole: bytes of its first record, once known."""

    def __init__(self, folder, shipped=False):
        self.path, self.shipped = Path(folder, "marks"), shipped
        self.whole, self._end = 0, 0  # 0: all marks have to be written

    def load(self, marks):
        """Take over what the file says into `marks`, which are empty; returns (position, {id of a
        peer: position}). Raises FileNotFoundError, ValueError if it is damaged."""
        position, peers, ends, shipped = load(marks, self.path.read_bytes())
        self.shipped = self.shipped and (shipped or not peers)
        self.whole, self._end = ends[0], ends[-1]
        return position, peers

    def save(self, marks, position, peers):
        """Write down `marks` as of `position` of the spool and those of the peers, and fsync.
        Raises OSError; what was saved before is true all the same."""
        new = record(marks, position, peers, False, self.shipped) if self._end else b""
        if not new or self._end + len(new) > 2 * self.whole + LEAST or not self._append(new):
            new = record(marks, position, peers, True, self.shipped)
            replace_file(self.path, new)
            self.whole, self._end = len(new), 0
        self._end += len(new)
        marks.saved()

    def _append(self, new):
        """Whether the file was there to be added to."""
        try:
            with open(self.path, "r+b") as out:
                out.truncate(self._end)  # what a kill, or a full disk, has left behind that
                out.seek(self._end)
                out.write(new)
                out.flush()
                os.fsync(out.fileno())
        except FileNotFoundError:
            return False
        return True
