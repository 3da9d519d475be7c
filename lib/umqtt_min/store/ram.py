"""RAMStore: the Store of contract.py in RAM alone. Nothing survives a reset.

Knows: where a message is in one block of RAM, and its state.
Must not know: packets; flash and the journal.

Messages lie in the block one behind the other, each in one piece; the block is a ring. The store
closes gaps between live messages when it needs the room. After open() it allocates for incoming
identifiers only: room for `inbound` of them when the first one comes, and more if more are open.
"""

import io
import os
from array import array

from ..port import const
from . import StoreFull

_LATEST = const(2)  # as in __init__.py
_EIO = const(5)
_MAX_KEY = const(32)
_MOST = const(0x3FFFFFFF)  # bytes of room: what small ints hold on every port

# The state byte of a message: LIVE | state << 3 | qos << 1 | retain.
_LIVE = const(0x80)
_STATE = const(0x18)
_IS_RELEASED = const(0x08)
_IS_HELD = const(0x10)
_IS_AGAIN = const(0x18)

_CHUNK = const(32)  # bytes that are moved at once
_chunk = bytearray(_CHUNK)
_one = bytearray(1)


class RAMStore:
    """Messages in RAM until they are acknowledged: redelivery over reconnects.

    size: bytes for messages, 64 at least; each takes topic + payload + 4 bytes.
    hold: True keeps an acknowledged message until confirm() covers it.
    policy: RAISE or DROP_OLDEST, for a message that finds no room, or LATEST; see __init__.py.
    messages: most messages, 1 to 65535; 9 to 17 bytes each. 0 for one per 96 bytes of size, 32
        at least and 1024 at most.
    inbound: incoming QoS 2 messages between PUBREC and PUBREL; the first one allocates room for
        so many, and more of them take from the heap.
    max_age: seconds after which a message is dropped, by put() and expire(); 0 for never.
    clock: a function that gives seconds, 0 to 2**30 - 1, for max_age.
    Raises ValueError for arguments out of range.
    """

    programs = programmed = erases = skipped = 0  # a journal counts these
    boot = 1
    confirmed = 0
    epoch = key = b""
    user = None
    begun = None
    _opened = False
    _inbox = None  # identifiers of incoming QoS 2 messages
    # What most stores leave as it is; it also keeps the attributes of one few enough for a hash
    # table with room: in a full one each method is looked for at 37 places.
    max_age = 0
    _inbound = 16
    _clock = _born = None

    def __init__(self, size=4096, hold=False, policy=0, messages=0, inbound=16, max_age=0,
                 clock=None):
        try:  # a bit is left where one is negative or too large
            odd = size - 64 | _MOST - size | inbound - 1 | messages
            odd |= policy | _LATEST - policy | 65535 - messages | 65535 - inbound
            odd = odd < 0 or max_age < 0 or (max_age or clock is not None) and clock() | 0 < 0
        except TypeError:
            odd = True
        if odd or messages is True:
            from .validate import refuse_ram

            refuse_ram(size, policy, messages, inbound, max_age, clock)
        if inbound != 16:
            self._inbound = inbound
        self.hold = hold
        self._size = size
        self.policy = policy
        if max_age:
            self.max_age = max_age
            self._clock = clock
        self._block = io.BytesIO()  # it copies at an offset without a slice
        self._block.seek(size - 1)
        self._block.write(b"\0")
        self._two = bytearray(2)
        self._table(messages or min(1024, max(32, size // 96)))
        self.seq = self.low = self._first = 1
        self.last_pid = self.sent = self.live = self.held = 0
        self.pid = self.flags = self.state = self.dropped = 0
        self._found = 0  # place of the message last found
        self._used = 0  # bytes of live messages
        self._end = 0  # of the newest message
        self._stop = 0  # up to here the next ones find room: put() looks no further

    def _table(self, count):
        # One slot for each message, in a ring, the oldest live one at _head.
        wide = "H" if self._size < 65536 else "I"
        zeros = [0] * count
        self._seqs = array("I", zeros)
        self._places = array(wide, zeros)
        self._lengths = array(wide, zeros)
        self._states = bytearray(count)  # 0: it is gone
        if self.max_age:
            self._born = array("I", zeros)
        self._slots = count
        self._head = self._count = 0

    def open(self):
        """Make the store ready; draws an epoch the first time."""
        self._opened = True
        if not self.epoch:
            self.epoch = os.urandom(8)

    def close(self):
        """Close. The messages stay until the object is collected."""
        self._opened = False
        self._stop = 0

    def free(self):
        """Bytes that messages may still fill."""
        return self._size - self._used

    # Messages.

    def put(self, pid, flags, topic, payload):
        """Store a message.

        pid: packet identifier, 1..65535. flags: qos << 1 | retain.
        topic, payload: bytes-like. Returns its sequence number.
        Raises StoreFull, ValueError for a message that is larger than the store.
        """
        n = len(topic) + len(payload) + 4
        if self._end + n > self._stop or self._count == self._slots:
            self._admit(n)
        b = self._block
        b.seek(self._end)
        self._two[0] = len(topic) >> 8
        self._two[1] = len(topic) & 255
        b.write(self._two)
        b.write(topic)
        self._two[0] = pid >> 8
        self._two[1] = pid & 255
        b.write(self._two)
        b.write(payload)
        self.last_pid = pid
        self._enter(flags, n)
        if self.policy == _LATEST:
            self._replace(topic)
        return self.seq - 1

    def _enter(self, flags, n):
        i = (self._head + self._count) % self._slots
        self._seqs[i] = self.seq
        self._places[i] = self._end
        self._lengths[i] = n
        self._states[i] = _LIVE | flags
        self._end += n
        self._used += n
        self._count += 1
        self.live += 1
        self.seq += 1

    def next(self, seq):
        """The smallest live sequence number above seq that is not held; 0 if there is none."""
        if seq < self._first:
            i = self._due(self._above(self._first - 1))
            self._first = i or self.seq
            return i
        return self._due(self._above(seq))

    def _due(self, i):
        while i < self._count:
            n = (self._head + i) % self._slots
            if self._states[n] and self._states[n] & _STATE != _IS_HELD:
                return self._seqs[n]
            i += 1
        return 0

    def find(self, seq):
        """Look up a message: length of its body, 0 if it is not live.

        Sets pid, flags and state; read() then gives the body.
        """
        i = self._slot(seq)
        if i < 0:
            return 0
        self.flags = self._states[i] & 7
        self.state = self._states[i] >> 3 & 3
        self._found = self._places[i]
        self.pid = self._word(2 + self._word(0))
        return self._lengths[i]

    def _word(self, pos):
        self.read(pos, self._two, 2)
        return self._two[0] << 8 | self._two[1]

    def read(self, pos, buf, n):
        """Put bytes pos to pos + n of the body last found into buf[0:n]; the rest of buf may
        be overwritten, too."""
        self._block.seek(self._found + pos)
        self._block.readinto(buf)

    def mark(self, seq):
        """Record that messages up to seq may have been sent."""
        if seq > self.sent:
            self.sent = seq

    def rec(self, seq):
        """Record that PUBREC for it was received."""
        i = self._slot(seq)
        if i >= 0:
            self._set(i, self._states[i] & ~_STATE | _IS_RELEASED)

    def done(self, seq):
        """Record that its last acknowledgement was received. It is gone, or held."""
        i = self._head
        if self._seqs[i] != seq or not self._states[i]:  # it is not the oldest
            i = self._slot(seq)
        if i >= 0:
            if self.hold and seq > self.confirmed:
                self._set(i, self._states[i] & ~_STATE | _IS_HELD)
            else:
                self._gone(i)

    def session(self, key):
        """Begin a new MQTT session. Every message that is not held is queued and unsent,
        incoming identifiers are forgotten. key: at most 32 bytes."""
        if len(key) > _MAX_KEY:
            raise ValueError("a session key has at most %d bytes" % _MAX_KEY)
        self.key = bytes(key)
        self.sent = 0
        if self._inbox:
            self._inbox.in_clear()
        i = self._count
        while i:
            i -= 1
            n = (self._head + i) % self._slots
            if self._states[n] and self._states[n] & _STATE != _IS_HELD:
                self._set(n, self._states[n] & ~_STATE)

    def drop(self, seq):
        """Give up a message; it is in `dropped`, too."""
        i = self._slot(seq)
        if i >= 0:
            self._drop(i)

    def expire(self):
        """Drop messages older than max_age, oldest first; they are in `dropped`, too."""
        now = self._clock()
        while self.live and now - self._born[self._head] > self.max_age:
            self._drop(self._head)

    # Held messages.

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
            if self._states[n] & (_LIVE | _IS_HELD) == _LIVE | _IS_HELD:
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
            if self._states[n] & (_LIVE | _STATE) == _LIVE | _IS_HELD:
                self._set(n, self._states[n] | _IS_AGAIN)
        return count - self.held

    def sending(self, seq):
        """A message that was AGAIN goes out: from here on it is like any other."""
        i = self._slot(seq)
        if i >= 0 and self._states[i] & _STATE == _IS_AGAIN:
            self._set(i, self._states[i] & ~_STATE)

    # Incoming QoS 2.

    def in_add(self, pid):
        """Record that an incoming QoS 2 message was delivered; again: nothing."""
        if not self._inbox:
            from .inbound import InboundIds

            self._inbox = InboundIds(self._inbound)
        if not self._inbox.in_has(pid):
            self._inbox.in_add(pid)

    def in_has(self, pid):
        """Whether that incoming message was delivered and is not yet released."""
        return bool(self._inbox and self._inbox.in_has(pid))

    def in_del(self, pid):
        """Record that PUBREL for it was received."""
        if self._inbox:
            self._inbox.in_del(pid)

    # The slots.

    def _above(self, seq):
        """How many slots from the head on have numbers up to seq."""
        i = seq - self.low + 1
        if i <= 0:
            return 0
        if i > self._count:
            i = self._count
        # From slot to slot numbers go up by one, or by more where some were given up.
        while i and self._seqs[(self._head + i - 1) % self._slots] > seq:
            i -= 1
        return i

    def _slot(self, seq):
        """The slot of a live message, -1 if there is none."""
        i = self._above(seq)
        if i:
            i = (self._head + i - 1) % self._slots
            if self._seqs[i] == seq and self._states[i]:
                return i
        return -1

    def _set(self, i, state):
        """Change the state of a live message, and what is counted of it."""
        self.held += (state & _STATE == _IS_HELD) - (self._states[i] & _STATE == _IS_HELD)
        self._states[i] = state
        if state & _STATE != _IS_HELD and self._seqs[i] < self._first:
            self._first = self._seqs[i]

    def _gone(self, i):
        if self._states[i] & _STATE == _IS_HELD:
            self.held -= 1
        self._states[i] = 0
        self.live -= 1
        self._used -= self._lengths[i]
        i = self._head
        while self._count and not self._states[i]:
            i = (i + 1) % self._slots
            self._count -= 1
        self._head = i
        self.low = self._seqs[i] if self._count else self.seq

    def _drop(self, i):
        self._gone(i)
        self.dropped += 1

    # The latest of each topic.

    def _replace(self, topic):
        """Drop unsent messages that are queued for the topic just put."""
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

    # Room.

    def _admit(self, n):
        """Find a place for n bytes, by the policy."""
        if n > self._size:
            raise ValueError("topic and payload have %d bytes, at most %d fit: see size="
                             % (n - 4, self._size - 4))
        if not self._opened:
            raise OSError(_EIO, "the store is not open")
        if self._born:
            self.expire()
        while not self._fits(n):
            if not self.policy:
                raise StoreFull()
            self._drop(self._head)
        if self._born:
            self._born[(self._head + self._count) % self._slots] = self._clock()
            self._stop = 0  # each message has to come here

    def _fits(self, n):
        if self._count < self._slots and self._place(n):
            return True
        if self.live == self._slots or self._used + n > self._size:
            return False
        start = self._places[self._head]
        if self._count == self.live and not 0 < start < self._end:
            return False  # there are no gaps
        self._close_up()
        return self._place(n)

    def _place(self, n):
        """Whether n bytes in one piece are free behind the newest message: from _end on."""
        start = self._places[self._head]
        if not self._count:
            self._end = start = 0
        self._stop = self._size
        if self._end < start or self._end == start and self._count:
            self._stop = start
        elif self._end + n > self._size and n <= start:
            self._end = 0
            self._stop = start
        return self._end + n <= self._stop

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
                self._keep(i)
            i = (i + 1) % self._slots

    def _keep(self, i):
        """Move a message, and what its slot says, behind those that were moved before."""
        n = self._lengths[i]
        if self._end + n > self._size:
            self._end = 0
        self._move(self._places[i], self._end, n)
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
