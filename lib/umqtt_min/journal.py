"""The journal: messages and protocol state that survive a power cut at any instant.

Knows: what the records mean, what happens to a message, the policies of a full journal.
Must not know: MQTT beyond a packet identifier and a PUBLISH body; bytes of a medium (log.py);
where records go (segments.py); how a mount finds out what is valid (replay.py).

From open() on nothing is allocated, on RAM and flash. One caller at a time: the client's
busy flag guards the journal like its stream.
"""

import sys
from array import array

from .full import DROP_OLDEST, LATEST, RAISE, JournalFull
from .log import (
    CONFIRM,
    DONE,
    EIO,
    HOLD,
    IN_ADD,
    IN_DEL,
    LONG,
    MAX_KEY,
    PUT,
    REC,
    SENT,
    SESSION,
    SETTLED,
)
from .segments import AGAIN, ASKED, HELD, LIVE, RELEASED, STATE, Segments


def _unload():
    """Give back the code that only a mount needs: a third of the journal's."""
    if sys.implementation.name != "micropython":
        return  # a host has the room, and tests mount thousands of times
    for name in ("settle", "replay", "apply"):
        if sys.modules.pop("umqtt_min." + name, None):
            delattr(sys.modules["umqtt_min"], name)


class Journal(Segments):
    """A durable log of outgoing messages and of the state of one MQTT session.

    medium: FlashMedium or FileMedium.
    hold: True keeps an acknowledged message until confirm() covers it.
    policy: RAISE or DROP_OLDEST, for a message that finds no room, or LATEST.
    max_age: seconds after which a message is dropped, by put() and expire(); 0 for never.
        The age of messages found at a mount begins there: flash knows no time.
    clock: a function that gives seconds, 0 to 2**30 - 1, for max_age.
    window: most numbers from the oldest live message to the newest, 16 to 65535; 5 bytes of
        RAM each. 0 for one per 96 bytes of the medium, 1024 at most.
    inbound: most incoming QoS 2 messages between PUBREC and PUBREL, 1 to 64.
    page: see Log.
    """

    def __init__(self, medium, hold=False, policy=RAISE, window=0, inbound=32, page=256,
                 max_age=0, clock=None):
        if policy not in (RAISE, DROP_OLDEST, LATEST):
            raise ValueError("policy must be RAISE, DROP_OLDEST or LATEST")
        if max_age and not clock:
            raise ValueError("max_age needs a clock: a function that gives seconds")
        if not 1 <= inbound <= 64:
            raise ValueError("inbound must be 1 to 64")
        super().__init__(medium, page, window, inbound)
        self.hold = hold
        self._policy = policy
        self._max_age = max_age
        self._clock = clock
        self._born = array("I", [0] * self._span) if max_age else None
        self.dropped = 0
        self.skipped = 0
        self._opened = False

    def open(self):
        """Mount: replay, settle what a cut left behind, count the boot. Never fails for what
        is on the medium; what could not be read is in `skipped` (bytes). Again: nothing.

        Raises OSError EIO if no segment can be erased and programmed.
        """
        if self._opened:
            return
        from .settle import mount

        self.medium.open()
        self._clear()
        try:
            mount(self)
        finally:
            _unload()
        self._opened = True
        if self._max_age:
            for i in range(self._span):
                self._born[i] = self._clock()

    def close(self):
        """Give back what the medium holds open. Everything is durable already."""
        self._opened = False
        self._head = -1
        self.medium.close()

    @property
    def free(self):
        """Bytes that messages may still fill: an estimate."""
        return max(0, self._capacity - self._used)

    # Messages.

    def put(self, pid, flags, topic, payload):
        """Store a message; durable when it returns.

        pid: packet identifier, 1..65535. flags: qos << 1 | retain.
        topic, payload: bytes-like. Returns its sequence number.
        Raises JournalFull, ValueError for a message that does not fit into a segment.
        """
        n = len(topic) + len(payload) + LONG + 8
        if self._max_age:
            self.expire()
        self._admit(n)
        self._pid = pid
        self._flags = flags
        self._topic = topic
        self._payload = payload
        self._write(n)
        self.last_pid = pid
        self.live += 1
        self.seq += 1
        if self._policy == LATEST:
            self._replace()
        self._topic = self._payload = None
        return self.seq - 1

    def _write(self, n):
        while True:
            self._room(n, n)
            self._begin_record(self._off)
            self._emit_kind(PUT | self._flags, n - LONG)
            self._emit4(self.seq)
            self._emit_text(self._topic)
            self._tmp[0] = self._pid >> 8
            self._tmp[1] = self._pid & 255
            self._emit(self._tmp, 0, 2)
            self._emit(self._payload, 0, len(self._payload))
            place = self._here()
            if self._finish(n):
                break
            self._abandon()
        self._filled += self._up(n)
        self._count_in(place, n)
        self._places[self.seq % self._span] = place
        self._states[self.seq % self._span] = LIVE | self._flags
        if self._max_age:
            self._born[self.seq % self._span] = self._clock()

    def _replace(self):
        """Drop unsent messages that are queued for the topic just put. The new one is durable
        already: a cut leaves one too many, never one too few."""
        seq = max(self.low, self.sent + 1)
        while seq < self.seq - 1:
            if self._states[seq % self._span] & (LIVE | STATE) == LIVE:
                if self._same_topic(self._places[seq % self._span] + 7):
                    self._drop(seq)
            seq += 1

    def _same_topic(self, place):
        n = len(self._topic)
        if self._byte(place) != n >> 8 or self._byte(place + 1) != n & 255:
            return False
        while n:
            n -= 1
            if self._byte(place + 2 + n) != self._topic[n]:
                return False
        return True

    def _byte(self, place):
        return self._back[self._window(place >> self._shift, place & self._size - 1)]

    def expire(self):
        """Drop messages older than max_age, oldest first; they are in `dropped`, too."""
        now = self._clock()
        while self.live and now - self._born[self.low % self._span] > self._max_age:
            self._drop(self.low)

    def _emit_text(self, text):
        n = len(text)
        self._tmp[0] = n >> 8
        self._tmp[1] = n & 255
        self._emit(self._tmp, 0, 2)
        self._emit(text, 0, n)

    def next(self, seq):
        """The smallest live sequence number above seq that is not held; 0 if there is none."""
        if seq < self._first - 1:
            seq = self._first - 1
        first = seq == self._first - 1
        seq += 1
        while seq < self.seq:
            state = self._states[seq % self._span]
            if state and state & STATE != HELD << 3:
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
        self._body = self._places[seq % self._span] + 7
        return self._find_body(self._body >> self._shift, self._body & self._size - 1)

    def _find_body(self, seg, off):
        self._find_pid(seg, off)
        return self._length(seg, off - 7)

    def _find_pid(self, seg, off):
        i = self._window(seg, off)
        off += 2 + (self._back[i] << 8 | self._back[i + 1])
        i = self._window(seg, off)
        self.pid = self._back[i] << 8 | self._back[i + 1]

    def read(self, pos, buf, n):
        """Put bytes pos to pos + n of the body last found into buf[0:n]; the rest of buf may
        be overwritten, too."""
        pos += self._body & self._size - 1
        if pos + len(buf) <= self._size:
            self.medium.read(self._body >> self._shift, pos, buf)
        else:
            self._read_window(self._body >> self._shift, pos, buf, n)

    def _seek(self, place):
        """read() gives what is at a place."""
        self._body = place

    def mark(self, seq):
        """Durable: messages up to seq may have been sent."""
        if seq > self.sent:
            self._note(SENT, seq)
            self.sent = seq

    def rec(self, seq):
        """Durable: PUBREC for it was received."""
        state = self._state(seq)
        if state:
            self._note(REC, seq)
            self._set(seq, LIVE | RELEASED << 3 | state & 7)

    def done(self, seq):
        """Durable: its last acknowledgement was received. It is gone, or held."""
        state = self._state(seq)
        if not state:
            return
        if self.hold and seq > self.confirmed:
            self._note(HOLD, seq)
            self._set(seq, LIVE | HELD << 3 | state & 7)
        else:
            self._note(DONE, seq)
            self._set(seq, 0)

    def confirm(self, seq):
        """Durable: the pipeline has everything up to seq. Held messages up to it are gone,
        others go when they are done. Returns how many went."""
        seq = min(seq, self.seq - 1)
        if seq <= self.confirmed:
            return 0
        self._note(CONFIRM, seq)
        self.confirmed = seq
        return self._forget_held()

    def _forget_held(self):
        count = 0
        seq = self.low
        while seq <= self.confirmed:
            if self._states[seq % self._span] & STATE == HELD << 3:
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
            if state & STATE == HELD << 3:
                state |= AGAIN << 3
                self._set(seq, state | ASKED)
                count += 1
            seq += 1
        return count

    def sending(self, seq):
        """A message that was AGAIN goes out: from here on it is like any other. Not durable."""
        state = self._state(seq)
        if state & STATE == AGAIN << 3:
            self._set(seq, state & ~STATE)

    # The session.

    def session(self, key):
        """Durable: a new MQTT session begins. Every message that is not held is queued and
        unsent, incoming identifiers are forgotten. key: at most 32 bytes."""
        if len(key) > MAX_KEY:
            raise ValueError("a session key has at most %d bytes" % MAX_KEY)
        while True:
            self._room(LONG + len(key), 0)
            self._begin_record(self._off)
            self._emit_kind(SESSION, len(key))
            self._emit(key, 0, len(key))
            if self._finish(LONG + len(key)):
                break
            self._abandon()
        self.key = bytes(key)
        self._renew()

    def _renew(self):
        self.sent = self._count = 0
        seq = self.low
        while seq < self.seq:
            state = self._states[seq % self._span]
            if state and state & STATE != HELD << 3:
                self._set(seq, state & ~STATE)
            seq += 1

    def in_add(self, pid):
        """Durable: an incoming QoS 2 message was delivered. Raises JournalFull if more than
        `inbound` of them are open."""
        if self.in_has(pid):
            return
        if self._count == len(self._inbound):
            raise JournalFull()
        self._note(IN_ADD, pid)
        self._in_add(pid)

    def _in_add(self, pid):
        if self._count < len(self._inbound) and not self.in_has(pid):
            self._inbound[self._count] = pid
            self._count += 1

    def in_has(self, pid):
        """Whether that incoming message was delivered and is not yet released."""
        for i in range(self._count):
            if self._inbound[i] == pid:
                return True
        return False

    def in_del(self, pid):
        """Durable: PUBREL for it was received."""
        if self.in_has(pid):
            self._note(IN_DEL, pid)
            self._in_del(pid)

    def _in_del(self, pid):
        for i in range(self._count):
            if self._inbound[i] == pid:
                self._count -= 1
                self._inbound[i] = self._inbound[self._count]
                return

    # Room, by the policy.

    def _admit(self, n):
        """Make sure that a message of n bytes may be stored, by the policy."""
        if self._up(n + SETTLED + 4) > self._area:
            self._too_large(n - LONG - 8)
        if self._head < 0:
            raise OSError(EIO, "the journal is not open")
        while not self._fits(n):
            if not (self.live and self._may_drop()):
                raise JournalFull()
            self._drop(self.low)

    def _may_drop(self):
        # LATEST takes little room, but one that nobody replaces holds the numbers behind it.
        if self._policy == LATEST:
            return self.seq - self.low >= self._span
        return self._policy == DROP_OLDEST

    def _too_large(self, n):
        most = self._area // self._align * self._align - SETTLED - 4 - LONG - 8
        raise ValueError(
            "topic and payload have %d bytes, at most %d fit a segment of %d: send less at "
            "once, or give the store a larger segment=" % (n, most, self._size))

    def _fits(self, n):
        if self._used + self._charge(n) > self._capacity:
            return False
        if self.seq - self.low >= self._span and self.live:
            return False
        if self._make_room(n, n):
            return True
        self._capacity = self._used  # no use in trying again before something is gone
        return False

    def _drop(self, seq):
        self._note(DONE, seq)
        self._set(seq, 0)
        self.dropped += 1
