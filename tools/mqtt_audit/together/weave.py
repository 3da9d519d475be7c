"""The segments of several captures in the order of time, as those of one; compiled.

Knows: segments, which capture each is from. Must not know: files of tables, what payloads mean.

What two captures have must count once. Of segments that are the same in several, the first one
counts, and the others are a COPY. Of another one, as a network card may cut or join them, it tells
how far it goes: one that is new in its own capture and goes no further than the others have come
is a COPY. One that its own capture has had before was sent again: of these as many count as the
capture has that has most.
"""

import numpy as np

from ..compiled.arena import copy
from ..compiled.jit import entry, kernel, wide
from ..compiled.layout import COPY, FIN, MASK, SYN
from ..scratch import BUNCH
from ..tcp.sequence import diff

FAR = 1 << 26  #: bytes; so far from its place a segment is of another connection

#: How far one direction of a pair of endpoints has come, in one capture or in all. There are two
#: of them: [FULL] of segments with data, which go up to the end of their bytes; [EMPTY] of all
#: segments, which go up to the sum of that and of what they acknowledge. again: how often a
#: segment brought nothing new. isn, isn_known: of FULL only.
SIDE = np.dtype([("to", "i8"), ("again", "i8"), ("isn", "i8"), ("known", "u1"),
                 ("isn_known", "u1")], align=True)  # fmt: skip
EMPTY, FULL = 0, 1
ALONE, FIRST, LATER = range(3)  #: what twins() says
POSITIVE = (1 << 63) - 1


@kernel
def _forget(own, every, k):
    """Another connection begins between the same endpoints."""
    for kind in range(2):
        for j in range(own.shape[1]):
            own[k, j, kind]["known"] = own[k, j, kind]["again"] = 0
        every[k, kind]["known"] = every[k, kind]["again"] = 0


@kernel
def _copied(o, e, begin, end):
    """Whether a segment is a copy. It is new in its own capture if it begins where that has come
    to, or behind it."""
    if o["known"] and diff(begin, o["to"]) < 0:
        o["again"] += 1
        copied = o["again"] <= e["again"]
        e["again"] = max(e["again"], o["again"])
        return copied
    return e["known"] and diff(end, e["to"]) <= 0


@kernel
def _reach(side, to):
    """Note how far one capture, or all, have come."""
    if not side["known"] or diff(to, side["to"]) > 0:
        side["to"], side["known"] = to, 1


@entry
def _number(rows, side, numbers):
    """Numbers that are the same for the same segments. side: as mark() has it."""
    for i in range(len(rows)):
        row, number = rows[i], wide(side[i]) << 8 | rows[i]["flags"]
        for part in (wide(row["seq"]) << 32 | row["ack"], wide(row["stamp"]) << 16 | row["ident"],
                     wide(row["cap"])):  # fmt: skip
            number = (number ^ part) * 0x1E3779B97F4A7C15 & POSITIVE
            number ^= number >> 29
        numbers[i] = number


@entry
def _pair(numbers, order, rows, which, side, many, firsts, found):
    """Fill `found` as twins() says. order: places of the rows by number, equal ones in turn; many:
    zeros, one for each capture; firsts: room for as many places as there are rows."""
    begin = 0
    while begin < len(order):
        end, turns = begin, 0
        while end < len(order) and numbers[order[end]] == numbers[order[begin]]:
            i = order[end]
            end += 1
            if side[i] < 0 or rows[i]["flags"] & COPY:
                continue
            turn = many[which[i]]
            many[which[i]] += 1
            if turn < turns:
                found[firsts[turn]], found[i] = FIRST, LATER
            else:
                firsts[turns] = i
                turns += 1
        for k in range(begin, end):
            many[which[order[k]]] = 0
        begin = end


def twins(rows, which, side, captures):
    """Of each row: ALONE, or one of the same segments in several captures: FIRST, LATER. What a
    capture has several times, as what is sent again, is the same by its turn. which, side: as
    mark() has them; captures: how many there are."""
    numbers, found = np.zeros(len(rows), np.int64), np.full(len(rows), ALONE, np.uint8)
    _number(rows, side, numbers)
    _pair(numbers, np.argsort(numbers, kind="stable"), rows, which, side,
          np.zeros(captures, np.int64), np.zeros(len(rows), np.int64), found)  # fmt: skip
    return found


@entry
def mark(rows, which, side, twin, own, every):
    """Set COPY where it belongs. which: capture of each row; side: its place in `own` (rows of
    SIDE by side, capture, kind) and in `every` (by side, kind), -1: none; twin: as twins() says.
    A segment that was cut off has the bytes that are there: others may have the rest."""
    for i in range(len(rows)):
        row, k = rows[i], side[i]
        if k < 0:
            continue
        row["wire"] = row["cap"]
        if row["flags"] & COPY:
            continue
        seq, e = wide(row["seq"]), every[k, FULL]
        opens = row["flags"] & SYN and not (e["isn_known"] and e["isn"] == seq)
        if opens or e["known"] and abs(diff(seq, e["to"])) > FAR:
            _forget(own, every, k)
            e["isn_known"], e["isn"] = opens > 0, seq
        end = seq + row["wire"] + (row["flags"] & (SYN | FIN) > 0) & MASK
        far = end + row["ack"] & MASK
        copied = twin[i] == LATER
        if row["wire"]:
            if twin[i] == ALONE:
                copied = _copied(own[k, which[i], FULL], e, seq, end)
            _reach(own[k, which[i], FULL], end)
            _reach(e, end)
        elif twin[i] == ALONE:
            copied = _copied(own[k, which[i], EMPTY], every[k, EMPTY], far - 1, far)
        _reach(own[k, which[i], EMPTY], far)
        _reach(every[k, EMPTY], far)
        if copied:
            row["flags"] |= COPY


@entry
def collect(rows, which, number, source, target, at):
    """Copy the payloads of the rows of one capture from its bytes to their places `at`."""
    for i in range(len(rows)):
        if which[i] == number:
            copy(source, rows[i]["off"], wide(rows[i]["cap"]), target, at[i])


class Woven:
    """Captures read as one. members: [(name, bytes, rows of layout.KEY, of layout.SEGMENT, ns that
    its clock is ahead)]. before: how many segments of these captures have their numbers from
    others, so that no two have the same. `names`, `which`, `frames`: the capture, and the frame in
    it, of what is frame before + n + 1 here; `keys`: those of all, one capture behind the
    other."""

    def __init__(self, members, before=0):
        self.before = before
        self.names = [name for name, *_ in members]
        self._data = [data for _, data, *_ in members]
        self.keys = np.concatenate([keys for _, _, keys, *_ in members])
        many = [len(rows) for *_, rows, _ in members]
        first = np.cumsum([0, *(len(keys) for _, _, keys, *_ in members)])
        which = np.repeat(np.arange(len(members)), many)
        rows = np.concatenate([rows for *_, rows, _ in members])
        rows["key"] += first[which].astype(np.uint32)
        rows["time"] -= np.array([ahead for *_, ahead in members], np.int64)[which]
        # A capture's own order stays, also where its clock goes back.
        time = [np.maximum.accumulate(part) for part in np.split(
            rows["time"], np.cumsum(many)[:-1])]  # fmt: skip
        order = np.argsort(np.concatenate(time), kind="stable")
        self._rows, self.which = rows[order], which[order]
        self.frames = self._rows["frame"].astype(np.int64)
        self._rows["frame"] = np.arange(before + 1, before + len(order) + 1)

    def bunches(self, pair_of):
        """Yields (bytes, segments whose payloads lie in them). pair_of: number of the pair of
        endpoints of each key, or -1: its segments are left out."""
        used, pair = np.unique(pair_of, return_inverse=True)
        side = 2 * pair[self._rows["key"]] + self._rows["dir"]
        side[pair_of[self._rows["key"]] < 0] = -1
        own = np.zeros((2 * len(used), len(self.names), 2), SIDE)
        twin = twins(self._rows, self.which, side, len(self.names))
        mark(self._rows, self.which, side, twin, own, np.zeros((2 * len(used), 2), SIDE))
        for start in range(0, len(side), BUNCH):
            here = start + np.flatnonzero(side[start : start + BUNCH] >= 0)
            rows, which = self._rows[here], self.which[here]
            at = np.cumsum(rows["cap"], dtype=np.int64) - rows["cap"]
            data = np.zeros(int(rows["cap"].sum(dtype=np.int64)), np.uint8)
            for number, source in enumerate(self._data):
                collect(rows, which, number, source, data, at)
            rows["off"] = at
            yield data, rows
