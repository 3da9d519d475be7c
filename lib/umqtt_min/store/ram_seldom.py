"""What few programs ask of a RAMStore: closing it, the age of messages, the latest only, holding
them for a confirmation, incoming QoS 2. Plain functions, whose first argument is the store.

Knows: the slots of ram.py.  Must not know: packets.
Loaded by the store when one of them is first called.
"""

from ..port import const
from .inbound import InboundIds

# As in ram.py
_LIVE = const(0x80)
_STATE = const(0x18)
_HELD = const(0x10)
_AGAIN = const(0x18)

_one = bytearray(1)


def close(self):
    """What was stored stays until the object is collected."""
    self._opened = False
    self._stop = 0


def expire(self):
    """Drop messages older than max_age, oldest first; they are in `dropped`, too."""
    now = self._clock()
    while self.live and now - self._born[self._head] > self._max_age:
        self._drop(self._head)


def _replace(self, topic):
    # Drop unsent messages that are queued for the topic just put.
    sent = self.begun() if self.begun else self.sent
    i = self._count - 1
    while i > 0:
        i -= 1
        n = (self._head + i) % self._slots
        if self._seqs[n] <= sent:
            return
        if self._states[n] & (_LIVE | _STATE) == _LIVE and self._same(self._places[n], topic):
            self._drop(n)


def _same(self, place, topic):
    self._block.seek(place)
    self._block.readinto(self._two)
    if len(topic) != self._two[0] << 8 | self._two[1]:
        return False
    for c in topic:
        self._block.readinto(_one)
        if c != _one[0]:
            return False
    return True


def drop(self, seq):
    """A message is given up; it is in `dropped`, too."""
    self._drop(self._slot(seq))


def confirm(self, seq):
    """The pipeline has everything up to seq. Held messages up to it are gone, others go
    when they are done. Returns how many went."""
    seq = min(seq, self.seq - 1)
    if seq <= self.confirmed:
        return 0
    self.confirmed = seq
    seq = self.live
    i = self._above(self.confirmed)
    while i:  # from the newest on: only when the oldest goes do the others move up
        i -= 1
        n = (self._head + i) % self._slots
        if self._states[n] & (_LIVE | _HELD) == _LIVE | _HELD:
            self._gone(n)
    return seq - self.live


def again(self, first, last):
    """Held messages from first to last are to be sent as new deliveries; how many."""
    count = self.held
    i = self._above(last)
    while i:
        i -= 1
        n = (self._head + i) % self._slots
        if self._seqs[n] < first:
            break
        if self._states[n] & (_LIVE | _STATE) == _LIVE | _HELD:
            self._set(n, self._states[n] | _AGAIN)
    return count - self.held


def sending(self, seq):
    """A message that was AGAIN goes out: from here on it is like any other."""
    i = self._slot(seq)
    if i >= 0 and self._states[i] & _STATE == _AGAIN:
        self._set(i, self._states[i] & ~_STATE)


def in_add(self, pid):
    """An incoming QoS 2 message was delivered; again: nothing."""
    if not self._inbox:
        self._inbox = InboundIds(self._inbound)
    if not self._inbox.in_has(pid):
        self._inbox.in_add(pid)


def in_has(self, pid):
    """Whether that incoming message was delivered and is not yet released."""
    return bool(self._inbox and self._inbox.in_has(pid))


def in_del(self, pid):
    """PUBREL for it was received."""
    if self._inbox:
        self._inbox.in_del(pid)
