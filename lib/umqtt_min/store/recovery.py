"""Replay: which records of the log count, in which order, and what they say to the index.

Knows: torn tails, jumps over what a recovery declared void, the types of records.
Must not know: which segments are in the log (scan.py), what is written after a replay (settle.py).
`m` is the Scan of the mount, `j` the journal.
"""

from ..port import const
from .log import copy
from .scan import get4

_NOWHERE = const(0x3FFFFFFF)  # as in log.py
_HEADER = const(44)
_MAX_KEY = const(32)
_MOST_IDS = const(128)  # bytes of identifiers in a header: inbound= is at most 64
# Record types: STORE.md.
_REC = const(1)
_HOLD = const(3)
_SENT = const(4)
_CONFIRM = const(5)
_IN_ADD = const(6)
_IN_DEL = const(7)
_TAIL = const(8)
_SESSION = const(0x20)
_SETTLE = const(0x21)
_PUT = const(0x40)
_MARK = const(0x2A)  # one byte, first of a page where a recovery began
_LONG = const(7)
_BLANK = const(255)
_SETTLED = const(13)  # offset of the carried record in a SETTLE record
# As in journal.py
_LIVE = const(0x80)
_STATE = const(0x18)
_RELEASED = const(0x08)
_HELD = const(0x10)


def replay(m, seg):
    """Apply the log, which begins in a segment, to the index."""
    j = m.j
    m._base = j._serials[seg]
    order = []
    while not order or order[-1] != seg:
        order.append(seg)
        collect(m, seg)
        seg = j._oldest(j._serials[seg]) if j._serials[seg] < max(j._serials) else seg
    _next_jump(m, 0)
    for seg in order:
        _segment(m, seg)
    for seg in order[:-1]:
        if j._serials[seg] < j._tail:
            _bury(m, seg)
    if m._now > m._landing:  # what was written behind it proves it whole
        _forget(m)
    j._head = order[-1]


def _forget(m):
    """Free the segments that a SETTLE record passed over."""
    for seg in m._void:
        m.j._serials[seg] = 0
    m._void = []


def _segment(m, seg):
    j = m.j
    off = m.load(seg)
    start = _position(m, j._serials[seg], 0)
    if start + off < m.resume:
        off = m.resume - start
        if off >= j.medium.size:
            m._void.append(seg)
            return
        off = _after_mark(m, seg, off)
    else:
        _snapshot(m)
    m._copies = []
    m._redundant = True
    j._filled = 0
    m._first = off
    m._before = (j._serials[seg], off, 0, 0)
    before = m._now
    while off < j.medium.size:
        off = _step(m, seg, start, off)
    if m._now == before and m.resume >= start + j.medium.size:
        m._void.append(seg)


def _step(m, seg, start, off):
    """Go over one record, or over what is not one; the offset behind it."""
    j = m.j
    if start + off >= m._from:
        return _leap(m, seg, start)
    n = m._valid(seg, off)
    if n > 0:
        accept(m, seg, off, n)
        return j._up(off + n)
    m._end = off
    limit = min(j._end, m._from - start)
    to = m._resync(seg, off + 1, limit)
    while off < to and not j.medium.noisy:
        j.skipped += m._byte(seg, off) != _BLANK
        off += 1
    return j.medium.size if to >= j._end else to


def _leap(m, seg, start):
    j = m.j
    _forget(m)  # this jump begins behind the last one: that is whole
    m.resume = m.to
    _next_jump(m, m.to)
    off = m.resume - start
    if off >= j.medium.size:
        return off
    return _after_mark(m, seg, off)


def _after_mark(m, seg, off):
    """The SETTLE record at a place to go on from: it may have a MARK before it."""
    j = m.j
    if m._byte(seg, off) == _MARK:
        off += j._up(1)
    m._landing = _position(m, j._serials[seg], off)
    return off


def accept(m, seg, off, n):
    j = m.j
    place = m.place = (seg << j._shift) + off
    i = j._window(place)
    settle = j._back[i] == _SETTLE
    if settle:
        m._serial = get4(j._back, i + 3)
        m._off = j._back[i + 7] << 8 | j._back[i + 8]
        m.place += _SETTLED
        m.size = n - _SETTLED - 4
    else:
        m._serial = j._serials[seg]
        m._off = off
        m.size = n - 4
    m._seg = seg
    m._start = off
    m._end = j._up(off + n)
    m._now = _position(m, j._serials[seg], off)
    if settle and (off == m._first or m._before[:2] == (m._serial, m._off)):
        m._before = (m._serial, m._off, m.place, m.size)
    elif m.size:
        _original(m, seg, m.place)
    _apply(j, place)


def _original(m, seg, place):
    """Note where a message is that seems to be in the log a second time. Whatever else
    is in a segment makes it count."""
    j = m.j
    i = j._window(place)
    if j._back[i] < _PUT:
        m._redundant = False
        return
    seq = get4(j._back, i + 3)
    j._filled += j._up(m.size + 4)
    if j._state(seq) and j._places[seq % j._span] >> j._shift != seg:
        m._copies.append((seq % j._span, j._places[seq % j._span]))
    elif m._redundant and seq % j._span not in [index for index, _ in m._copies]:
        m._redundant = False


def _snapshot(m):
    """Take over what the header just loaded says."""
    j = m.j
    back = j._back
    j.boot = max(j.boot, get4(back, 24))
    seq = get4(back, 28)
    j.sent = get4(back, 32)
    j.last_pid = back[40] << 8 | back[41]
    j.key = bytes(back[_HEADER : _HEADER + back[42]])
    j.confirmed = max(j.confirmed, get4(back, 36))
    j._count = back[43]
    if 2 * j._count > len(j._inbound):  # inbound= was larger
        j._inbound = bytearray(2 * j._count)
    copy(j._inbound, 0, back, _HEADER + back[42], 2 * j._count)
    j._tail = max(j._tail, get4(back, 20))
    _raise_seq(j, seq)
    if j.held:
        j._forget_held()


def _bury(m, seg):
    """The segment was reclaimed: what the index still has in it was moved and is done."""
    j = m.j
    for seq in range(j.low, j.seq):
        if j._state(seq) and j._places[seq % j._span] >> j._shift == seg:
            j._set(seq, 0)
    j._serials[seg] = 0


# Jumps over what does not count.


def _candidate(m, seg, off):
    """The next place behind off where a recovery has left a valid SETTLE record, 0 if
    there is none: a page that begins with MARK, then the record."""
    j = m.j
    off = (off // j._page + 1) * j._page
    while off < j._end:
        if m._byte(seg, off) == _MARK and m._settles(seg, off + j._up(1)):
            return off
        off += j._page
    return 0


def collect(m, seg):
    """Note the SETTLE records of a segment whose header was just loaded."""
    j = m.j
    off = m.load(seg)
    serial = j._serials[seg]
    if m._settles(seg, off):
        _jump(m, seg, off, _position(m, serial, off))
    off = _candidate(m, seg, off)
    while off:
        _jump(m, seg, off + j._up(1), _position(m, serial, off))
        off = _candidate(m, seg, off)


def _jump(m, seg, off, to):
    j = m.j
    i = m._at(seg, off)
    serial = get4(j._back, i + 3)
    at = max(0, _position(m, serial, j._back[i + 7] << 8 | j._back[i + 8]))
    if at < to:
        m._jumps.append(at)
        m._jumps.append(to)


def _position(m, serial, off):
    """A place as one number that grows along the log."""
    return (serial - m._base) * m.j.medium.size + off


def _next_jump(m, at):
    m._from = m.to = _NOWHERE
    jumps = m._jumps
    for i in range(0, len(jumps), 2):
        if jumps[i + 1] > at:
            if jumps[i] < m._from or jumps[i] == m._from and jumps[i + 1] > m.to:
                m._from = jumps[i]
                m.to = jumps[i + 1]


# What a record says, applied to the index.


def _apply(j, place):
    """Apply the valid record at a place."""
    i = j._window(place)
    kind = j._back[i]
    if kind >= _PUT:
        _apply_put(j, place)
    elif kind == _SESSION:
        key = bytearray(min(j._word(place + 1), _MAX_KEY))
        j._body = place + 3
        j.read(0, key, len(key))
        j.key = bytes(key)
        j._renew()
    elif kind == _SETTLE:
        j.boot = max(j.boot, get4(j._back, i + 9))
        if j._word(place + 1) > _SETTLED - _LONG + 4:
            _apply(j, place + _SETTLED)
    else:
        _apply_short(j, kind, get4(j._back, i + 1))


def _apply_put(j, place):
    i = j._window(place)
    kind = j._back[i] & 0x1F
    seq = get4(j._back, i + 3)
    if seq <= 0:
        return
    if seq < j.seq - j._span:
        _miss(j, seq)
        return
    _raise_seq(j, seq + 1)
    if j._states[seq % j._span]:
        j._set(seq, 0)
    j._places[seq % j._span] = place
    if seq == j.seq - 1:
        i = place + 9 + j._word(place + 7)
        j.last_pid = j._word(i)
    if kind & _STATE == _HELD and seq <= j.confirmed:
        return
    j._states[seq % j._span] = _LIVE | kind
    j.live += 1
    j.held += kind & _STATE == _HELD
    j._count_in(place, j._word(place + 1) + _LONG)
    j.low = min(j.low, seq)
    j._first = j.low


def _raise_seq(j, seq):
    """Numbers below seq were given."""
    while j.low <= seq - 1 - j._span and j.live:
        _miss(j, j.low)
        j._set(j.low, 0)
    j.seq = max(j.seq, seq)
    if not j.live:
        j.low = j._first = j.seq


def _miss(j, seq):
    """The index has no room for a message, for window= was larger when it was stored."""
    j._missed = min(j._missed or seq, seq)


def _apply_short(j, kind, value):
    if kind == _IN_ADD:
        if 2 * j._count == len(j._inbound) < _MOST_IDS:
            j._inbound += bytes(2)
        j._in_add(value)
    elif kind == _IN_DEL:
        j._in_del(value)
    elif kind == _TAIL:
        j._tail = max(j._tail, value)
    elif kind == _CONFIRM:
        _raise_seq(j, value + 1)
        j.confirmed = max(j.confirmed, value)
        if j.held:
            j._forget_held()
    elif value > 0:
        _apply_seq(j, kind, value)


def _apply_seq(j, kind, seq):
    if kind == _SENT:
        j.sent = max(j.sent, seq)
        return
    _raise_seq(j, seq + 1)
    state = j._state(seq)
    if not state:
        return
    if kind == _REC:
        j._set(seq, _LIVE | _RELEASED | state & 7)
    elif kind == _HOLD and seq > j.confirmed:
        j._set(seq, _LIVE | _HELD | state & 7)
    else:
        j._set(seq, 0)
