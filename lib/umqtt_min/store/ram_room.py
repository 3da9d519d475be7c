"""Room in a RAMStore whose messages have gaps between them: they are moved together. Plain
functions, whose first argument is the store.

Knows: the slots of ram.py.  Must not know: packets.
Loaded by the store when gaps are first in the way of a message.
"""

from ..port import const

_CHUNK = const(32)  # bytes that are moved at once
_chunk = bytearray(_CHUNK)
_one = bytearray(1)


def _close_up(self):
    """Move the messages together, oldest first."""
    i = self._head
    n = self._count
    # In one row: to the beginning of the block.
    self._end = 0 if self._places[i] < self._end else self._places[i]
    self._count = 0
    while n:
        n -= 1
        if self._states[i]:
            _keep(self, i)
        i = (i + 1) % self._slots


def _keep(self, i):
    """Move a message, and what its slot says, behind those that were moved before."""
    n = self._lengths[i]
    if self._end + n > self._size:
        self._end = 0
    _move(self, self._places[i], self._end, n)
    n = (self._head + self._count) % self._slots
    self._seqs[n] = self._seqs[i]
    self._states[n] = self._states[i]
    self._lengths[n] = self._lengths[i]
    self._places[n] = self._end
    if self._born:
        self._born[n] = self._born[i]
    self._end += self._lengths[i]
    self._count += 1


def _move(self, place, to, n):
    """Copy n bytes within the block, downwards or to where nothing is."""
    while n and place != to:
        part = _chunk if n >= _CHUNK else _one
        self._block.seek(place)
        self._block.readinto(part)
        self._block.seek(to)
        self._block.write(part)
        place += len(part)
        to += len(part)
        n -= len(part)
