"""Settling: what a power cut left undecided is decided, and the decision written down.

Knows: the end of the log as a replay found it, SETTLE records, MARK bytes.
Must not know: what messages are for.

A torn program may read either way on every later boot. So a SETTLE record says from where on the
old log does not count, and carries the last accepted record, whose bits nothing proves to be
whole. STORE.md has the proof. `m` is the Scan of the mount, `j` the journal.
"""

import os

from ..port import const

_EIO = const(5)
_PUT = const(0x40)  # as in recovery.py
_MARK = const(0x2A)
_LONG = const(7)
_TAIL = const(8)
_SHORT = const(9)
_SETTLED = const(13)
_BLANK = const(255)


def settle(m, seg):
    """Decide and write down what a cut may have left open; seg < 0: there is no journal yet."""
    if seg < 0:
        _format(m)
    else:
        _settle(m)
    # As many segments are to be free as there should be. Where each mount takes a new one it is
    # one more.
    j = m.j
    tail = j._tail
    j._short = j._free() <= j.medium.spare
    for _ in range(2 * j._made):
        if j._short:
            j._tidy()
        if j._free() >= j.medium.spare + j.medium.once or not j._open_next():
            break
    # A segment that may be given up must not be the only one that knows this boot.
    if seg >= 0 and tail == j._tail and (m._redundant or m._seg != j._head):
        if not j.medium.once:
            j._note(_TAIL, tail)


def _give_up(m):
    """The newest segment holds nothing but copies: go back to the originals. If no other
    segment is free it is erased at once. Where it settles something in an older segment
    that is the last resort: a cut in the erase leaves that to be settled again."""
    j = m.j
    m._void.append(j._head)
    m._serial, m._off, m.place, m.size = m._before
    for index, place in m._copies:
        j._moved(index, place, j._up(j._word(place + 1) + _LONG))
    if not j._free():
        m._bytes = bytearray(m.size)
        j._body = m.place
        j.read(0, m._bytes, m.size)
        j._serials[j._head] = 0


def _format(m):
    j = m.j
    j.epoch = os.urandom(8)
    j._head = j.medium.count - 1
    j._tail = 0
    m._serial = m._off = 0
    j.boot = 1
    _in_new(m)
    j._tail = j._serial


def _settle(m):
    j = m.j
    j._tail = j._tail or m._base
    j.boot += 1
    if j._free() < 2:  # the segment with the last mount's number may have been given up
        j.boot += int.from_bytes(os.urandom(2), "big")
    # Which pages are untouched cannot be told for sure: where none may be programmed twice
    # there is no going on in this segment.
    at = 0 if j.medium.once or m._husk or m.anew else _fresh_page(m)
    size = j._up(1) + _SETTLED + m.size + 4
    full = False
    # The reclaim that was cut has to find room for its rest; a journal that had more segments,
    # for the oldest of those that it has.
    if not j._free() and (m._redundant or _fewer(j) and not m._void):
        rest = j._loads[j._oldest(0)]
        size += rest + j._up(_SHORT)
        full = j._filled + rest + (j._up(m.size + 4) if m.size > _SHORT else 0) > j._area
    if not at or full or at + size > j._end:
        _in_new(m)
        return
    m.load(j._head)
    if _mark_up_to(m, at):
        j._off = at + j._up(1)
        if _write_settle(m):
            return
    _in_new(m)


def _fewer(j):
    # Whether the journal may have had more blocks.
    return getattr(j.medium, "others", False)


def _fresh_page(m):
    """The first page of the head that no torn program can have touched, 0 if none.

    A program never crosses a page, so a torn one without any trace is in the page where
    the log ends; what a visible record claims to fill may be torn further on."""
    j = m.j
    seg = j._head
    last = max(m._end, m._last(seg))
    last = max(last, m._end + m._extent(seg, m._end))
    off = j._page
    while off < j._end:
        if m._byte(seg, off) == _MARK:
            settle = off + j._up(1)
            last = max(last, settle + max(1, m._extent(seg, settle)))
        off += j._page
    off = (last // j._page + 1) * j._page
    return off if off < j._end else 0


def _mark_up_to(m, last):
    """Mark the pages behind the log up to that one, in this order.

    Another boot may read weak bits differently and choose another page. A mark that a cut
    left invisible has visible ones before it: so no boot chooses a page before it, and
    whoever goes on there writes the same byte over it."""
    j = m.j
    at = (m._end + j._page - 1) // j._page * j._page
    while at <= last:
        if m._byte(j._head, at) in (_BLANK, _MARK):
            if not _mark(m, at):
                return False
        at += j._page
    return True


def _mark(m, at):
    """The page is touched from here on."""
    j = m.j
    j._begin(at)
    j._tmp[0] = _MARK
    j._emit(j._tmp, 0, 1)
    j._flush()
    return not j._failed


def _write_settle(m):
    j = m.j
    n = m.size
    if n and m._bytes is None:
        kind = j._back[j._window(m.place)]
    else:
        kind = m._bytes[0] if n else 0
    to = (j._head << j._shift) + j._off + _SETTLED
    j._void(m._serial, m._off, n)
    if m._bytes is None:
        j._carry(m.place, n)
    else:
        j._emit(m._bytes, 0, n)
    if not j._finish(_SETTLED + n + 4):
        return False
    if kind >= _PUT:  # the index follows a message that was carried over
        n = j._up(n + 4)
        j._filled += n
        for i in range(j._span):
            if j._states[i] and j._places[i] == m.place:
                j._moved(i, to, n)
    for seg in m._void:
        if seg != j._head:
            j._serials[seg] = 0
    return True


def _in_new(m):
    """Settle in a new segment. If the one before held nothing but copies it is given up:
    however often a recovery is cut, it does not run out of segments."""
    j = m.j
    if m._redundant and j._oldest(0) != j._head:
        _give_up(m)
    elif not j._free() and _fewer(j):
        from .validate import refuse_full

        refuse_full(j.medium)
    elif m._seg == j._head and not j.medium.once:
        _fasten(m)
    while j._open_next():
        if _write_settle(m):
            return
    raise OSError(_EIO, "no segment takes what is programmed")


def _fasten(m):
    """Decide in place, so that nothing has to be carried over and the new segment takes all that
    is live in the oldest one: the last record is programmed once more, with the same bytes, so
    that its bits are whole; the byte behind it is made 0, so that no record begins there."""
    j = m.j
    j._off = m._start  # not 0: no header, no erase
    j._begin(m._start)
    j._carry((j._head << j._shift) + m._start, m._end - m._start)
    if m._end < j._end:
        j._tmp[0] = 0
        j._emit(j._tmp, 0, 1)
    j._flush()
    if not j._failed:
        m._serial = j._serials[j._head]
        m._off = m._end
        m.size = 0
