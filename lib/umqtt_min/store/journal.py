"""The journal: messages and protocol state that survive a power cut at any instant.

Knows: what the records mean, what happens to a message, where each live one is, reclaim.
Must not know: MQTT beyond a packet identifier and a PUBLISH body; bytes of a medium (log.py);
how a mount finds out what is valid (recovery.py).

From open() on nothing is allocated, on RAM and flash, but for the code of seldom.py when it is
needed for the first time. One caller at a time: the client's busy flag guards the journal like
its stream.
"""

from struct import pack_into

from ..port import const
from . import StoreFull
from .log import Log

_LATEST = const(2)  # as in __init__.py
_EIO = const(5)

# Record types, as in recovery.py
_REC = const(1)
_DONE = const(2)
_HOLD = const(3)
_SENT = const(4)
_TAIL = const(8)
_SESSION = const(0x20)
_PUT = const(0x40)  # | state << 3 | qos << 1 | retain
_SHORT = const(9)
_TIDYING = const(-1)  # as in log.py
_LONG = const(7)
_SETTLED = const(13)
_MAX_KEY = const(32)

# In the index: LIVE | state << 3 | qos << 1 | retain. The states are named in __init__.py.
_LIVE = const(0x80)
_STATE = const(0x18)
_RELEASED = const(0x08)
_HELD = const(0x10)
_AGAIN = const(0x18)
_ASKED = const(0x20)  # held in flash; what happens to it since again() is in RAM only


class Journal(Log):
    """A durable log of outgoing messages and of the state of one MQTT session.

    medium: a Medium.
    hold: True keeps an acknowledged message until confirm() covers it.
    policy: RAISE or DROP_OLDEST, for a message that finds no room, or LATEST; see __init__.py.
    max_age: seconds after which a message is dropped, by put() and expire(); 0 for never.
        The age of messages found at a mount begins there: flash knows no time.
    clock: a function that gives seconds, 0 to 2**30 - 1, for max_age.
    window: most numbers from the oldest live message to the newest, 1 to 65535; 3 bytes of
        RAM each, 5 where the medium is larger than 64 KiB. 0 for one per 96 bytes of the
        medium, 1024 at most. A mount takes more for a journal that holds more.
    inbound: incoming QoS 2 messages between PUBREC and PUBREL that are remembered over a
        reboot, 1 to 64; what a broker keeps open beyond that is remembered until then.
    page: bytes that one program never crosses, so that a torn one spoils no more; a multiple of
        16, 64 to 256.
    """

    user = None  # the client that has it: session.py
    _more = None  # incoming QoS 2 beyond `inbound`: an inbound.InboundIds
    begun = None  # a function of the client's session, which knows it better than `sent`
    max_age = 0

    def __init__(self, medium, **options):
        from .setup import prepare

        prepare(self, medium, **options)

    def __getattr__(self, name):
        # Looked up once: then it is a method like any other.
        seldom = __import__("umqtt_min.store.seldom", None, None, (name,))
        setattr(Journal, name, getattr(seldom, name))
        return getattr(self, name)

    def open(self):
        """Mount: replay, settle what a cut left behind, count the boot. Never fails for what
        is on the medium; what could not be read is in `skipped` (bytes). Again: nothing.

        Raises OSError EIO if no segment can be erased and programmed, ENOSPC if the file system
        has no room for a journal, ValueError for files of more segments or of another layout.
        """
        if self._head < 0:
            __import__("umqtt_min.store.scan", None, None, ("mount",)).mount(self)

    def close(self):
        """Give back what the medium holds open. Everything is durable already."""
        self._head = -1
        self.medium.close()

    def free(self):
        """Bytes that messages may still fill: an estimate, as if there were room for all
        segments."""
        more = (self.medium.count - self._made) * self._area * 7 // 8
        return max(0, self._capacity - self._used) + more

    # Messages.

    def put(self, pid, flags, topic, payload):
        """Store a message; durable when it returns.

        pid: packet identifier, 1..65535. flags: qos << 1 | retain.
        topic, payload: bytes-like. Returns its sequence number.
        Raises StoreFull, ValueError for a message that does not fit into a segment.
        """
        n = len(topic) + len(payload) + _LONG + 8
        if self._born:
            self.expire()
        self._admit(n)
        self.pid = pid
        self.flags = flags
        self._topic = topic
        self._payload = payload
        self._write(n)
        self.last_pid = pid
        self.live += 1
        self.seq += 1
        if self.policy == _LATEST:
            self._replace()
        self._topic = self._payload = None
        return self.seq - 1

    def _write(self, n):
        # _admit() has made room.
        tmp = self._tmp
        while True:
            place = (self._head << self._shift) + self._off
            self._begin(self._off)
            pack_into(">BHI", tmp, 0, _PUT | self.flags, n - _LONG, self.seq)
            pack_into(">H", tmp, 7, len(self._topic))
            self._emit(tmp, 0, 9)
            self._emit(self._topic, 0, len(self._topic))
            pack_into(">H", tmp, 0, self.pid)
            self._emit(tmp, 0, 2)
            self._emit(self._payload, 0, len(self._payload))
            if self._finish(n):
                break
            self._abandon()
            self._room(n, n)
        self._filled += self._up(n)
        self._count_in(place, n)
        n = self.seq % self._span
        self._places[n] = place
        self._states[n] = _LIVE | self.flags
        if self._born:
            self._born[n] = self._clock()

    def next(self, seq):
        """The smallest live sequence number above seq that is not held; 0 if there is none."""
        first = seq < self._first
        seq = self._first if first else seq + 1
        while seq < self.seq:
            state = self._states[seq % self._span]
            if state and state & _STATE != _HELD:
                break
            seq += 1
        if first:
            self._first = seq
        return seq if seq < self.seq else 0

    def find(self, seq):
        """Look up a message: length of its body, 0 if it is not live.

        Sets pid, flags and state; read() then gives the body.
        """
        state = self._state(seq)
        if not state:
            return 0
        self.flags = state & 7
        self.state = state >> 3 & 3
        seq = self._body = self._places[seq % self._span] + 7
        self.pid = self._word(seq + 2 + self._word(seq))
        return self._word(seq - 6) - 4

    def read(self, pos, buf, n):
        """Put bytes pos to pos + n of the body last found into buf[0:n]; the rest of buf may
        be overwritten, too."""
        pos += self._body
        if (pos & self.medium.size - 1) + len(buf) <= self.medium.size:
            self.medium.read(pos >> self._shift, pos & self.medium.size - 1, buf)
            return
        while n:
            n -= 1
            buf[n] = self._back[self._window(pos + n)]

    def mark(self, seq):
        """Durable: messages up to seq may have been sent."""
        if seq > self.sent:
            self._note(_SENT, seq)
            self.sent = seq

    def rec(self, seq):
        """Durable: PUBREC for it was received."""
        state = self._state(seq)
        if state:
            self._note(_REC, seq)
            self._set(seq, _LIVE | _RELEASED | state & 7)

    def done(self, seq):
        """Durable: its last acknowledgement was received. It is gone, or held."""
        state = self._state(seq)
        if state:
            if self.hold and seq > self.confirmed:
                self._note(_HOLD, seq)
                self._set(seq, _LIVE | _HELD | state & 7)
            else:
                self._note(_DONE, seq)
                self._set(seq, 0)

    def session(self, key):
        """Durable: a new MQTT session begins. Every message that is not held is queued and
        unsent, incoming identifiers are forgotten. key: at most 32 bytes."""
        n = len(key)
        if n > _MAX_KEY:
            raise ValueError("a session key has at most 32 bytes")
        while True:
            self._room(_LONG + n, 0)
            pack_into(">BH", self._tmp, 0, _SESSION, n)
            self._emit(self._tmp, 0, 3)
            self._emit(key, 0, n)
            if self._finish(_LONG + n):
                break
            self._abandon()
        self.key = bytes(key)
        self._renew()

    def _renew(self):
        self.sent = self._count = 0
        self._more = None
        seq = self.low
        while seq < self.seq:
            state = self._states[seq % self._span]
            if state and state & _STATE != _HELD:
                self._set(seq, state & ~_STATE)
            seq += 1

    # The index: one place and one state byte for each number of the window.

    def _state(self, seq):
        if seq < self.low or seq >= self.seq:
            return 0
        return self._states[seq % self._span]

    def _set(self, seq, state):
        """Change the state of a live message, and what is counted of it."""
        old = self._states[seq % self._span]
        self._states[seq % self._span] = state
        self.held += (state & _STATE == _HELD) - (old & _STATE == _HELD)
        if state:
            if seq < self._first and state & _STATE != _HELD:
                self._first = seq
            return
        self.live -= 1
        self._capacity = self._most
        state = self._places[seq % self._span]
        seq = -_LONG - self._word(state + 1)
        self._count_in(state, seq)
        seq = self.low
        while seq < self.seq and not self._states[seq % self._span]:
            seq += 1
        self.low = seq
        if self._first < seq:
            self._first = seq

    def _count_in(self, place, n):
        """A record of n bytes at a place is live; n < 0: one of -n bytes is not any more."""
        up = self._up(abs(n))
        # What it costs of a segment, its share of the waste at the end included.
        charge = self._area // max(1, self._area // up)
        self._loads[place >> self._shift] += up if n > 0 else -up
        self._used += charge if n > 0 else -charge

    # Room, by the policy.

    def _admit(self, n):
        """Make sure that a message of n bytes may be stored, by the policy."""
        if self._up(n + _SETTLED + 4) > self._area:
            self._too_large(n)
        charge = self._area // max(1, self._area // self._up(n))
        while True:
            if self._used + charge <= self._capacity and (
                    not self.live or self.seq - self.low < self._span):
                if self._make_room(n, n):
                    return
                self._capacity = self._used  # no use in trying again before something is gone
            if self._made < self.medium.count and self._grow():
                continue
            # LATEST, too: one that nobody replaces holds the numbers behind it.
            if not (self.live and self.policy):
                raise StoreFull()
            self._drop(self.low)

    def _grow(self):
        """Have one segment more, of those that are not made yet, if that is what is missing and
        there is room for it. Where messages are given up instead: asked once a segment."""
        if self.seq - self.low >= self._span or self.policy and self._asked == self._serial:
            return False
        self._asked = self._serial
        free, needed, _ = self.medium.room(1)
        if free < needed:
            return False
        return __import__("umqtt_min.store.files_room", None, None, ("grow",)).grow(self)

    def _drop(self, seq):
        self._note(_DONE, seq)
        self._set(seq, 0)
        self.dropped += 1

    def _room(self, n, message):
        """Make room, and begin a record there."""
        if not self._make_room(n, message):
            raise StoreFull()
        self._begin(self._off)

    def _make_room(self, n, message):
        """Open segments and reclaim old ones until the head takes a record of n bytes;
        message: n for a message, 0 for other records, which may fill what messages may not."""
        if self._head < 0:
            raise OSError(_EIO, "the journal is not open")
        n = self._up(n)
        tries = 2 * self._made
        while True:
            if self._short > 0:
                self._tidy()
            if self.medium.whole and self._off % self._page + n > self._page:
                self._pad(n)
            if self._off + n <= self._end and self._filled + message <= self._area:
                return True
            tries -= 1
            if tries < 0 or not self._open_next():
                return False

    def _pad(self, n):
        """Do not cut a record of n bytes in two, while segments are free: bytes are all that
        counts then, so that what was moved always fits."""
        off = (self._off + self._page - 1) // self._page * self._page
        if off + n <= self._end and self._free() > self.medium.spare + 1:
            self._off = off

    def _note(self, kind, value):
        """Append a short record."""
        while True:
            self._room(_SHORT, 0)
            pack_into(">BI", self._tmp, 0, kind, value)
            self._emit(self._tmp, 0, 5)
            if self._finish(_SHORT):
                return
            self._abandon()

    # Reclaim: the oldest segment's live messages are moved to the head.

    def _tidy(self):
        """Reclaim segments, oldest first, as long as few are free and one fits the head."""
        self._short = _TIDYING  # what is written meanwhile does not come here again
        try:
            seg = self._oldest(0)
            while self._reclaim(seg):
                seg = self._oldest(0)
        finally:
            self._short = 1
        self._short = self._free() <= self.medium.spare

    def _reclaim(self, seg):
        """Move the live messages of the oldest segment to the head, then give it up. False if it
        is not to be done now: few must be free, unless it costs nothing and using as few as
        possible is better than using all in turn; and what is live must fit the head."""
        seq = self._loads[seg]
        if self._free() > self.medium.spare and (seq or not self.medium.self_levelling):
            return False
        if seg == self._head or self._filled + seq > self._area:
            return False
        if self._off + seq + self._up(_SHORT) > self._end:
            return False
        self._move_all(seg)
        # Where the record does not fit, the next header says it: this segment is erased before
        # any that was reclaimed later.
        self._tail = self._serials[self._oldest(self._serials[seg])]
        if self._off + self._up(_SHORT) <= self._end:
            self._note(_TAIL, self._tail)
        self._serials[seg] = 0
        return True

    def _move_all(self, seg):
        seq = self.low
        while seq < self.seq:
            if self._states[seq % self._span]:
                if self._places[seq % self._span] >> self._shift == seg:
                    self._move(seq)
            seq += 1

    def _move(self, seq):
        kind = self._states[seq % self._span]
        # What was asked for again is held in flash.
        kind = _PUT | (kind & 7 | _HELD if kind & _ASKED else kind & 0x1F)
        seq %= self._span
        n = self._word(self._places[seq] + 1)
        while True:
            self._room(n + _LONG, n + _LONG)
            to = (self._head << self._shift) + self._off
            pack_into(">BH", self._tmp, 0, kind, n)
            self._emit(self._tmp, 0, 3)
            self._carry(self._places[seq] + 3, n)
            if self._finish(n + _LONG):
                break
            self._abandon()
        n = self._up(n + _LONG)
        self._filled += n
        self._moved(seq, to, n)

    def _moved(self, index, to, n):
        """The record of n bytes of a message in the index is at another place."""
        self._loads[self._places[index] >> self._shift] -= n
        self._loads[to >> self._shift] += n
        self._places[index] = to
