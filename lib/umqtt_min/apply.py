"""What a record says, applied to the index of a journal that is being mounted.

Knows: the types of records.  Must not know: which records count (replay.py).
"""

from .bits import get4
from .log import (
    CONFIRM,
    HOLD,
    IN_ADD,
    IN_DEL,
    LONG,
    MAX_KEY,
    PUT,
    REC,
    SENT,
    SESSION,
    SETTLE,
    SETTLED,
    TAIL,
)
from .segments import HELD, LIVE, RELEASED, STATE


def apply(j, seg, off):
    """Apply the valid record at off."""
    i = j._window(seg, off)
    kind = j._back[i]
    if kind >= PUT:
        _apply_put(j, seg, off)
    elif kind == SESSION:
        _apply_session(j, seg, off)
    elif kind == SETTLE:
        j.boot = max(j.boot, get4(j._back, i + 9))
        if j._length(seg, off) > SETTLED - LONG:
            apply(j, seg, off + SETTLED)
    else:
        _apply_short(j, kind, get4(j._back, i + 1))


def _apply_session(j, seg, off):
    n = j._length(seg, off) + 4
    key = bytearray(min(n, MAX_KEY))
    j._read_window(seg, off + 3, key, len(key))
    j.key = bytes(key)
    j._renew()


def _apply_put(j, seg, off):
    i = j._window(seg, off)
    kind = j._back[i] & 0x1F
    seq = get4(j._back, i + 3)
    if seq <= 0 or seq < j.seq - j._span:
        return
    raise_seq(j, seq + 1)
    if j._states[seq % j._span]:
        j._set(seq, 0)
    j._places[seq % j._span] = (seg << j._shift) + off
    n = j._length(seg, off)
    if seq == j.seq - 1:
        j._find_pid(seg, off + 7)
        j.last_pid = j.pid
    _add(j, seq, LIVE | kind, n)


def _add(j, seq, state, n):
    if state & STATE == HELD << 3 and seq <= j.confirmed:
        return
    j._states[seq % j._span] = state
    j.live += 1
    j.held += state & STATE == HELD << 3
    j._count_in(j._places[seq % j._span], n + LONG + 4)
    j.low = min(j.low, seq)
    j._first = j.low


def raise_seq(j, seq):
    """Numbers below seq were given. What the window has no room for, because it was larger when
    it was stored, is dropped."""
    while j.low <= seq - 1 - j._span and j.live:
        j._set(j.low, 0)
        j.dropped += 1
    j.seq = max(j.seq, seq)
    if not j.live:
        j.low = j._first = j.seq


def _apply_short(j, kind, value):
    if kind == IN_ADD:
        j._in_add(value)
    elif kind == IN_DEL:
        j._in_del(value)
    elif kind == TAIL:
        j._tail = max(j._tail, value)
    elif kind == CONFIRM:
        raise_seq(j, value + 1)
        j.confirmed = max(j.confirmed, value)
        j._forget_held()
    elif value > 0:
        _apply_seq(j, kind, value)


def _apply_seq(j, kind, seq):
    if kind == SENT:
        j.sent = max(j.sent, seq)
        return
    raise_seq(j, seq + 1)
    state = j._state(seq)
    if not state:
        return
    if kind == REC:
        j._set(seq, LIVE | RELEASED << 3 | state & 7)
    elif kind == HOLD and seq > j.confirmed:
        j._set(seq, LIVE | HELD << 3 | state & 7)
    else:
        j._set(seq, 0)
