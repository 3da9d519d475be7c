"""RAMStore: the window of messages in flight, in RAM alone. Nothing survives a reset.

Knows: where a message is in one block of RAM, and its state.
Must not know: packets; flash and the journal, whose interface this is (STORE.md).

Messages lie in the block one behind the other, each in one piece; behind the end of the block
comes its beginning. Gaps between live ones are closed when the room is needed. From open() on
nothing is allocated, but for the code of ram_seldom.py and ram_room.py and room for `inbound`
identifiers when they are needed for the first time, and for more identifiers than that at once.
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
_RELEASED = const(0x08)
_HELD = const(0x10)
_AGAIN = const(0x18)


class RAMStore:
    """Messages in RAM until they are acknowledged: redelivery over reconnects.

    size: bytes for messages, 64 at least; each takes topic + payload + 4 bytes.
    hold: True keeps an acknowledged message until confirm() covers it.
    policy: RAISE or DROP_OLDEST, for a message that finds no room, or LATEST; see __init__.py.
    window: most messages, 1 to 65535; 9 to 17 bytes each. 0 for one per 96 bytes of size, 32
        at least and 1024 at most.
    inbound: incoming QoS 2 messages between PUBREC and PUBREL that there is room for from the
        first one on; more of them take from the heap.
    max_age: seconds after which a message is dropped, by put() and expire(); 0 for never.
    clock: a function that gives seconds, 0 to 2**30 - 1, for max_age.
    Raises ValueError for arguments out of range.
    """

    programs = programmed = erases = skipped = 0  # a journal counts these
    boot = 1
    confirmed = 0
    epoch = key = b""
    user = None  # the client that has it: session.py
    _opened = False
    _inbox = None  # identifiers of incoming QoS 2 messages
    # What most stores leave as it is; it also keeps the attributes of one few enough for a hash
    # table with room: in a full one each method is looked for at 37 places.
    _inbound = 16
    _max_age = 0
    _clock = _born = None
    begun = None  # a function of the client's session, which knows it better than `sent`
    free: int  # bytes that messages may still fill

    def __getattr__(self, name):
        if name == "free":  # a property would make each `self.x = ...` look for one first
            return self._size - self._used
        # Looked up once: then it is a method like any other.
        place = "umqtt_min.store.ram_room" if name == "_close_up" else "umqtt_min.store.ram_seldom"
        setattr(RAMStore, name, getattr(__import__(place, None, None, (name,)), name))
        return getattr(self, name)

    def __init__(self, size=4096, hold=False, policy=0, window=0, inbound=16, max_age=0,
                 clock=None):
        try:  # a bit is left where one is negative or too large
            odd = size - 64 | _MOST - size | inbound - 1 | window
            odd |= policy | _LATEST - policy | 65535 - window | 65535 - inbound
            odd = odd < 0 or max_age < 0 or (max_age or clock is not None) and clock() | 0 < 0
        except TypeError:
            odd = True
        if odd or window is True:
            from .validate import refuse_ram

            refuse_ram(size, policy, window, inbound, max_age, clock)
        if inbound != 16:
            self._inbound = inbound
        self.hold = hold
        self._size = size
        self._policy = policy
        if max_age:
            self._max_age = max_age
            self._clock = clock
        self._block = io.BytesIO()  # it copies at an offset without a slice
        self._block.seek(size - 1)
        self._block.write(b"\0")
        self._two = bytearray(2)
        self._table(window or min(1024, max(32, size // 96)))
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
        if self._max_age:
            self._born = array("I", zeros)
        self._slots = count
        self._head = self._count = 0

    def open(self):
        """Be ready; an epoch is drawn the first time."""
        self._opened = True
        if not self.epoch:
            self.epoch = os.urandom(8)

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
        if self._policy == _LATEST:
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
            if self._states[n] and self._states[n] & _STATE != _HELD:
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
        """Messages up to seq may have been sent."""
        if seq > self.sent:
            self.sent = seq

    def rec(self, seq):
        """PUBREC for it was received."""
        i = self._slot(seq)
        if i >= 0:
            self._set(i, self._states[i] & ~_STATE | _RELEASED)

    def done(self, seq):
        """Its last acknowledgement was received. It is gone, or held."""
        i = self._head
        if self._seqs[i] != seq or not self._states[i]:  # it is not the oldest
            i = self._slot(seq)
        if i >= 0:
            if self.hold and seq > self.confirmed:
                self._set(i, self._states[i] & ~_STATE | _HELD)
            else:
                self._gone(i)

    def session(self, key):
        """A new MQTT session begins. Every message that is not held is queued and unsent,
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
            if self._states[n] and self._states[n] & _STATE != _HELD:
                self._set(n, self._states[n] & ~_STATE)

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
        self.held += (state & _STATE == _HELD) - (self._states[i] & _STATE == _HELD)
        self._states[i] = state
        if state & _STATE != _HELD and self._seqs[i] < self._first:
            self._first = self._seqs[i]

    def _gone(self, i):
        if self._states[i] & _STATE == _HELD:
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
            if not self._policy:
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
