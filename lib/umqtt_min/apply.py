"""What a record says, applied to the index of a journal that is being mounted.

Knows: the types of records.  Must not know: which records count (replay.py).
"""

from micropython import const

from .bits import get4

# Record types, lengths and states, as in journal.py
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
_LONG = const(7)
_SETTLED = const(13)
_MAX_KEY = const(32)
_LIVE = const(0x80)
_STATE = const(0x18)
_RELEASED = const(0x08)
_HELD = const(0x10)


def apply(j, place):
    """Apply the valid record at a place."""
    i = j._window(place)
    kind = j._back[i]
    if kind >= _PUT:
        _apply_put(j, place)
    elif kind == _SESSION:
        _apply_session(j, place)
    elif kind == _SETTLE:
        j.boot = max(j.boot, get4(j._back, i + 9))
        if j._word(place + 1) > _SETTLED - _LONG + 4:
            apply(j, place + _SETTLED)
    else:
        _apply_short(j, kind, get4(j._back, i + 1))


def _apply_session(j, place):
    key = bytearray(min(j._word(place + 1), _MAX_KEY))
    j._read_window(place + 3, key, len(key))
    j.key = bytes(key)
    j._renew()


def _apply_put(j, place):
    i = j._window(place)
    kind = j._back[i] & 0x1F
    seq = get4(j._back, i + 3)
    if seq <= 0 or seq < j.seq - j._span:
        return
    raise_seq(j, seq + 1)
    if j._states[seq % j._span]:
        j._set(seq, 0)
    j._places[seq % j._span] = place
    if seq == j.seq - 1:
        j._find_pid(place + 7)
        j.last_pid = j.pid
    _add(j, seq, _LIVE | kind)


def _add(j, seq, state):
    if state & _STATE == _HELD and seq <= j.confirmed:
        return
    j._states[seq % j._span] = state
    j.live += 1
    j.held += state & _STATE == _HELD
    place = j._places[seq % j._span]
    j._count_in(place, j._word(place + 1) + _LONG)
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
    if kind == _IN_ADD:
        j._in_add(value)
    elif kind == _IN_DEL:
        j._in_del(value)
    elif kind == _TAIL:
        j._tail = max(j._tail, value)
    elif kind == _CONFIRM:
        raise_seq(j, value + 1)
        j.confirmed = max(j.confirmed, value)
        if j.held:
            j._forget_held()
    elif value > 0:
        _apply_seq(j, kind, value)


def _apply_seq(j, kind, seq):
    if kind == _SENT:
        j.sent = max(j.sent, seq)
        return
    raise_seq(j, seq + 1)
    state = j._state(seq)
    if not state:
        return
    if kind == _REC:
        j._set(seq, _LIVE | _RELEASED | state & 7)
    elif kind == _HOLD and seq > j.confirmed:
        j._set(seq, _LIVE | _HELD | state & 7)
    else:
        j._set(seq, 0)
