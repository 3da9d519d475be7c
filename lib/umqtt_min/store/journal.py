"""The journal: messages and protocol state that survive a power cut at any instant.

Knows: what the records mean, what happens to a message. It is the Store of contract.py.
Must not know: MQTT beyond a packet identifier and a PUBLISH body; which segment a record goes to
(index.py); bytes of a medium (segment_log.py); how a mount finds out what is valid (recovery.py).

From open() on nothing is allocated, on RAM and flash. One caller at a time: the client's busy flag
guards the journal like its stream.
"""

from struct import pack_into

from ..port import const
from . import StoreFull, give_back
from .index import IndexedLog
from .segment_log import copy

_LATEST = const(2)  # as in __init__.py

# Record types and lengths: JOURNAL.md.
_REC = const(1)
_DONE = const(2)
_HOLD = const(3)
_SENT = const(4)
_CONFIRM = const(5)
_IN_ADD = const(6)
_IN_DEL = const(7)
_SESSION = const(0x20)
_PUT = const(0x40)  # | state << 3 | qos << 1 | retain
_LONG = const(7)
_MAX_KEY = const(32)

# In the index: see index.py
_LIVE = const(0x80)
_STATE = const(0x18)
_IS_RELEASED = const(0x08)
_IS_HELD = const(0x10)
_IS_AGAIN = const(0x18)
_ASKED = const(0x20)


class Journal(IndexedLog):
    """A durable log of outgoing messages and of the state of one MQTT session.

    medium: a Medium.
    hold: True keeps an acknowledged message until confirm() covers it.
    policy: RAISE or DROP_OLDEST, for a message that finds no room, or LATEST; see __init__.py.
    max_age: seconds after which a message is dropped, by put() and expire(); 0 for never.
        The age of messages found at a mount begins at the mount: flash keeps no time.
    clock: a function that gives seconds, 0 to 2**30 - 1, for max_age.
    messages: most numbers from the oldest live message to the newest, 1 to 65535; 3 bytes of
        RAM each, 5 where the medium is larger than 64 KiB. 0 for one per 96 bytes of the
        medium, 1024 at most. A mount takes more for a journal that holds more.
    inbound: how many incoming QoS 2 messages between PUBREC and PUBREL the journal remembers
        over a reboot, 1 to 64; if a broker keeps more open, RAM remembers the rest.
    chunk: bytes that one program never crosses, so that a torn one spoils no more; a multiple of
        16, 64 to 256; 0 for the medium's.
    Raises ValueError for arguments out of range, and for a medium that cannot hold a journal.
    """

    def __init__(self, medium, hold=False, policy=0, messages=0, inbound=32, chunk=0, max_age=0,
                 clock=None):
        try:  # | is for whole numbers only; it is negative where one of them is
            wrong = (messages | inbound | policy | chunk) < 0 or messages > 65535
            wrong = wrong or messages is True or not 0 < inbound <= 64
            wrong = wrong or policy > _LATEST or max_age < 0
            wrong = wrong or (max_age or clock is not None) and clock() | 0 < 0
        except TypeError:
            wrong = True
        if wrong:
            from .validate import refuse_options

            refuse_options(policy, messages, inbound, chunk, max_age, clock)
        self.user = self.begun = None
        self.hold = hold
        self.max_age = max_age
        self._clock = clock
        self.skipped = 0  # bytes that the latest mount could not use
        self._topic = self._payload = None  # of the message that is being put
        self._more = None  # incoming QoS 2 beyond `inbound`: an inbound.InboundIds
        span = messages or min(1024, max(32, medium.size * medium.count // 96))
        IndexedLog.__init__(self, medium, chunk, span, inbound, policy, max_age)
        self._clear()

    def open(self):
        """Mount: replay, settle the effects of a cut, count the boot. Any content mounts;
        `skipped` counts the bytes that it could not read. Does nothing if it is open already.

        Raises OSError EIO if no segment can be erased and programmed, ENOSPC if the file system
        has no room for a journal, ValueError for a journal made with other arguments that does
        not fit these.
        """
        if self._head < 0:
            from .recovery import Recovery

            try:
                Recovery(self).mount()
            except BaseException:
                self._head = -1
                raise
            finally:
                give_back("recovery", "scan", "replay", "settle")

    def close(self):
        """Close the medium. All data is durable already."""
        self._head = -1
        self.medium.close()

    def _clear(self):
        """Forget the content of the medium."""
        IndexedLog._clear(self)
        self.pid = self.flags = self.state = 0
        self._body = 0  # place of the body of the message last found

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
            if state and state & _STATE != _IS_HELD:
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
        if (pos & self._size - 1) + len(buf) <= self._size:
            self.medium.read(pos >> self._shift, pos & self._size - 1, buf)
            return
        while n:
            n -= 1
            buf[n] = self._back[self._in_back(pos + n)]

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
            self._set(seq, _LIVE | _IS_RELEASED | state & 7)

    def done(self, seq):
        """Durable: its last acknowledgement was received. It is gone, or held."""
        state = self._state(seq)
        if state:
            if self.hold and seq > self.confirmed:
                self._note(_HOLD, seq)
                self._set(seq, _LIVE | _IS_HELD | state & 7)
            else:
                self._note(_DONE, seq)
                self._set(seq, 0)

    def drop(self, seq):
        """Durable: a message is given up; it is in `dropped`, too."""
        if self._state(seq):
            self._drop(seq)

    def expire(self):
        """Drop messages older than max_age, oldest first; they are in `dropped`, too."""
        now = self._clock()
        while self.live and now - self._born[self.low % self._span] > self.max_age:
            self._drop(self.low)

    # LATEST: of each topic.

    def _replace(self):
        """Drop unsent messages that are queued for the topic just put. The new one is durable
        already: a cut, or a full file system, leaves one too many, never one too few."""
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
            if self._back[self._in_back(place + 2 + n)] != self._topic[n]:
                return False
        return True

    # Held messages: acknowledged, to be confirmed by the pipeline.

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
            if self._states[seq % self._span] & _IS_HELD:  # asked for again or not
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
            if state & _STATE == _IS_HELD:
                state |= _IS_AGAIN
                self._set(seq, state | _ASKED)
                count += 1
            seq += 1
        return count

    def sending(self, seq):
        """A message that was AGAIN goes out: from here on it is like any other. Not durable."""
        state = self._state(seq)
        if state & _STATE == _IS_AGAIN:
            self._set(seq, state & ~_STATE)

    # The session.

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
            if state and state & _STATE != _IS_HELD:
                self._set(seq, state & ~_STATE)
            seq += 1

    # Incoming QoS 2.

    def in_add(self, pid):
        """Durable: an incoming QoS 2 message was delivered. Some brokers keep hundreds of them
        open: those beyond `inbound` are remembered in RAM only."""
        if self.in_has(pid):
            return
        if 2 * self._count < len(self._inbound):
            self._note(_IN_ADD, pid)
            self._in_add(pid)
            return
        self._keep(pid)

    def in_has(self, pid):
        """Whether that incoming message was delivered and is not yet released."""
        return self._in_index(pid) >= 0 or self._more is not None and self._more.in_has(pid)

    def in_del(self, pid):
        """Durable: PUBREL for it was received."""
        if self._more is not None:
            self._more.in_del(pid)
        if self._in_index(pid) >= 0:
            self._note(_IN_DEL, pid)
            self._in_del(pid)

    def _keep(self, pid):
        if self._more is None:
            from .inbound import InboundIds

            self._more = InboundIds()
        self._more.in_add(pid)

    def _in_add(self, pid):
        if 2 * self._count < len(self._inbound) and not self.in_has(pid):
            pack_into(">H", self._inbound, 2 * self._count, pid)
            self._count += 1

    def _in_index(self, pid):
        for i in range(0, 2 * self._count, 2):
            if self._inbound[i] << 8 | self._inbound[i + 1] == pid:
                return i
        return -1

    def _in_del(self, pid):
        i = self._in_index(pid)
        if i >= 0:
            self._count -= 1
            copy(self._inbound, i, self._inbound, 2 * self._count, 2)
