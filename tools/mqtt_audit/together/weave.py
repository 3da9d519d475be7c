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


def twins(rows, which, side):
    """Of each row: ALONE, or one of the same segments in several captures: FIRST, LATER. What a
    capture has several times, as what is sent again, is the same by its turn. which, side: as
    mark() has them."""
    found = np.full(len(rows), ALONE, np.uint8)
    some = np.flatnonzero((side >= 0) & (rows["flags"] & COPY == 0))
    of = [rows[name][some].astype(np.uint64) for name in ("seq", "ack", "cap", "stamp", "ident")]
    number = side[some].astype(np.uint64) << np.uint64(8) | rows["flags"][some]
    for part in of:
        number = (number ^ part) * np.uint64(0x9E3779B97F4A7C15)
        number ^= number >> np.uint64(29)
    order = np.lexsort((which[some], number))
    new = np.ones(len(some), bool)
    new[1:] = (np.diff(number[order]) > 0) | (np.diff(which[some][order]) != 0)
    place = np.arange(len(some))
    turn = np.zeros(len(some), np.uint64)
    turn[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    number += turn * np.uint64(0xC2B2AE3D27D4EB4F)
    _, first, at, many = np.unique(number, True, True, True)
    found[some] = np.where(many[at] == 1, ALONE, np.where(first[at] == place, FIRST, LATER))
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
        mark(self._rows, self.which, side, twins(self._rows, self.which, side), own,
             np.zeros((2 * len(used), 2), SIDE))  # fmt: skip
        for start in range(0, len(side), BUNCH):
            here = start + np.flatnonzero(side[start : start + BUNCH] >= 0)
            rows, which = self._rows[here], self.which[here]
            at = np.cumsum(rows["cap"], dtype=np.int64) - rows["cap"]
            data = np.zeros(int(rows["cap"].sum(dtype=np.int64)), np.uint8)
            for number, source in enumerate(self._data):
                collect(rows, which, number, source, data, at)
            rows["off"] = at
            yield data, rows
