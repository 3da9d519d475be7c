"""What few programs ask of a journal: the age of messages, the latest only, holding them for a
confirmation, incoming QoS 2. Plain functions, whose first argument is the journal.

Knows: the index of journal.py, how to append a short record.
Must not know: bytes of a medium; which segment is next.
Loaded by the journal when one of them is first called, and by open() where an option needs it.
"""

from struct import pack_into

from ..port import const
from . import StoreFull
from .log import copy

# As in journal.py
_CONFIRM = const(5)
_IN_ADD = const(6)
_IN_DEL = const(7)
_LIVE = const(0x80)
_STATE = const(0x18)
_HELD = const(0x10)
_AGAIN = const(0x18)
_ASKED = const(0x20)
_LONG = const(7)
_SETTLED = const(13)


def expire(self):
    """Drop messages older than max_age, oldest first; they are in `dropped`, too."""
    now = self._clock()
    while self.live and now - self._born[self.low % self._span] > self.max_age:
        self._drop(self.low)


def _replace(self):
    # Drop unsent messages that are queued for the topic just put. The new one is durable
    # already: a cut, or a file system that is full, leaves one too many, never one too few.
    seq = max(self.low, (self.begun() if self.begun else self.sent) + 1)
    while seq < self.seq - 1:
        if self._states[seq % self._span] & (_LIVE | _STATE) == _LIVE:
            if self._same_topic(self._places[seq % self._span] + 7):
                try:
                    self._drop(seq)
                except StoreFull:
                    return
        seq += 1


def _same_topic(self, place):
    n = len(self._topic)
    if self._word(place) != n:
        return False
    while n:
        n -= 1
        if self._back[self._window(place + 2 + n)] != self._topic[n]:
            return False
    return True


def _too_large(self, n):
    n -= _LONG + 8
    most = self._area // self._align * self._align - _SETTLED - 4 - _LONG - 8
    raise ValueError(
        "topic and payload have %d bytes, at most %d fit a segment of %d: send less at "
        "once, or give the store a larger segment=" % (n, most, self.medium.size))


def drop(self, seq):
    """Durable: a message is given up; it is in `dropped`, too."""
    self._drop(seq)


def confirm(self, seq):
    """Durable: the pipeline has everything up to seq. Held messages up to it are gone,
    others go when they are done. Returns how many went."""
    seq = min(seq, self.seq - 1)
    if seq <= self.confirmed:
        return 0
    self._note(_CONFIRM, seq)
    self.confirmed = seq
    return self._forget_held()


def _forget_held(self):
    count = 0
    seq = self.low
    while seq <= self.confirmed:
        if self._states[seq % self._span] & _HELD:  # asked for again or not
            self._set(seq, 0)
            count += 1
        seq += 1
    return count


def again(self, first, last):
    """Held messages from first to last are to be sent as new deliveries; how many.
    Not durable: after a reboot they are held as before."""
    count = 0
    seq = max(first, self.low)
    last = min(last, self.seq - 1)
    while seq <= last:
        state = self._states[seq % self._span]
        if state & _STATE == _HELD:
            state |= _AGAIN
            self._set(seq, state | _ASKED)
            count += 1
        seq += 1
    return count


def sending(self, seq):
    """A message that was AGAIN goes out: from here on it is like any other. Not durable."""
    state = self._state(seq)
    if state & _STATE == _AGAIN:
        self._set(seq, state & ~_STATE)


def in_add(self, pid):
    """Durable: an incoming QoS 2 message was delivered. Some brokers keep hundreds of them open:
    those beyond `inbound` are remembered in RAM only."""
    if self.in_has(pid):
        return
    if 2 * self._count < len(self._inbound):
        self._note(_IN_ADD, pid)
        self._in_add(pid)
        return
    self._keep(pid)


def _keep(self, pid):
    if self._more is None:
        from .inbound import InboundIds

        self._more = InboundIds()
    self._more.in_add(pid)


def _in_add(self, pid):
    if 2 * self._count < len(self._inbound) and not self.in_has(pid):
        pack_into(">H", self._inbound, 2 * self._count, pid)
        self._count += 1


def in_has(self, pid):
    """Whether that incoming message was delivered and is not yet released."""
    return _index(self, pid) >= 0 or self._more is not None and self._more.in_has(pid)


def _index(self, pid):
    for i in range(0, 2 * self._count, 2):
        if self._inbound[i] << 8 | self._inbound[i + 1] == pid:
            return i
    return -1


def in_del(self, pid):
    """Durable: PUBREL for it was received."""
    if self._more is not None:
        self._more.in_del(pid)
    if _index(self, pid) >= 0:
        self._note(_IN_DEL, pid)
        self._in_del(pid)


def _in_del(self, pid):
    i = _index(self, pid)
    if i >= 0:
        self._count -= 1
        copy(self._inbound, i, self._inbound, 2 * self._count, 2)
