"""The journal: messages and protocol state that survive a power cut at any instant.

Knows: what the records mean, which messages are live and where they are, reclaim.
Must not know: MQTT beyond a packet identifier and a PUBLISH body; bytes of a medium (log.py);
how a mount finds out what is valid (replay.py).

From open() on nothing is allocated, on RAM and flash. One caller at a time: the client's
busy flag guards the journal like its stream.
"""

from array import array

from .bits import get4, put4, start
from .log import (
    CONFIRM,
    DONE,
    EIO,
    HEADER,
    HOLD,
    IN_ADD,
    IN_DEL,
    LONG,
    MAX_KEY,
    NOWHERE,
    PUT,
    REC,
    SENT,
    SESSION,
    SETTLE,
    SETTLED,
    SHORT,
    TAIL,
    JournalFull,
    Log,
    const,
)

# States of a message.
QUEUED = const(0)
RELEASED = const(1)  # PUBREC recorded: PUBREL is due
HELD = const(2)  # acknowledged, not yet confirmed by the pipeline
AGAIN = const(3)  # held, to be sent as a new delivery

LIVE = const(0x80)  # in the index: LIVE | state << 3 | qos << 1 | retain
_STATE = const(0x18)
_ASKED = const(0x20)  # held in flash; what happens to it since again() is in RAM only

# What happens to a message that finds the journal full.
RAISE = const(0)
DROP_OLDEST = const(1)
LATEST = const(2)  # and, full or not: a message replaces unsent ones of the same topic


class Journal(Log):
    """A durable log of outgoing messages and of the state of one MQTT session.

    medium: RAMMedium, FlashMedium or FileMedium.
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
        super().__init__(medium, page)
        if policy not in (RAISE, DROP_OLDEST, LATEST):
            raise ValueError("policy must be RAISE, DROP_OLDEST or LATEST")
        if max_age and not clock:
            raise ValueError("max_age needs a clock: a function that gives seconds")
        if not 1 <= inbound <= 64:
            raise ValueError("inbound must be 1 to 64")
        self.hold = hold
        self._policy = policy
        self._span = window or min(1024, max(32, self._size * medium.count // 96))
        self._places = array("I", [0] * self._span)  # segment * size + offset of each record
        self._states = bytearray(self._span)
        self._max_age = max_age
        self._clock = clock
        self._born = array("I", [0] * self._span) if max_age else None
        self._inbound = array("H", [0] * inbound)
        # Bytes of messages in a segment, at most: so that all of them fit into any other one,
        # beside the largest header, a SETTLE and a TAIL record.
        self._area = self._end - self._up(HEADER + MAX_KEY + 4 + 2 * inbound)
        self._area -= self._up(SHORT) + self._up(SETTLED + 4)
        self._loads = array("I", [0] * medium.count)  # bytes of live messages in each segment
        self._keep = 1 + medium.spare  # segments kept free
        # Acknowledgements must find room also when messages fill the rest; where each takes a
        # page of its own, a segment is set aside for them.
        full = medium.count - self._keep - (self._align > 16)
        self._limit_live = full * self._area * 7 // 8
        self.epoch = b""
        self.key = b""
        self.dropped = 0
        self.skipped = 0
        self.boot = 0
        self._opened = False
        self._clear()

    def _clear(self):
        self.seq = self.low = self._first = 1
        self.last_pid = self.sent = self.live = self.held = 0
        self.pid = self.flags = self.state = 0
        self.confirmed = 0
        self._count = 0  # incoming identifiers
        self._used = 0  # bytes of live records, as they fill segments
        self._capacity = self._limit_live
        self._serial = self._tail = 0
        self._body = 0  # place of the body of the message last found
        self._filled = 0  # bytes of messages in the head, live or not
        self._tidying = False
        self._short = False  # fewer segments are free than should be
        for i in range(self._span):
            self._states[i] = 0
        for i in range(self.medium.count):
            self._loads[i] = 0

    def open(self):
        """Mount: replay, settle what a cut left behind, count the boot. Never fails for what
        is on the medium; what could not be read is in `skipped` (bytes). Again: nothing.

        Raises OSError EIO if no segment can be erased and programmed.
        """
        if self._opened:
            return
        from .replay import mount

        self.medium.open()
        self._clear()
        mount(self)
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
        Raises JournalFull, ValueError for a message that is larger than a segment.
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
            if self._states[seq % self._span] & (LIVE | _STATE) == LIVE:
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
            if state and state & _STATE != HELD << 3:
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

    def _length(self, seg, off):
        i = self._window(seg, off)
        return (self._back[i + 1] << 8 | self._back[i + 2]) - 4

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
            if self._states[seq % self._span] & (LIVE | HELD << 3) == LIVE | HELD << 3:
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
            if state & (LIVE | _STATE) == LIVE | HELD << 3:
                self._set(seq, state | AGAIN << 3 | _ASKED)
                count += 1
            seq += 1
        return count

    def sending(self, seq):
        """A message that was AGAIN goes out: from here on it is like any other. Not durable."""
        state = self._state(seq)
        if state & _STATE == AGAIN << 3:
            self._set(seq, state & ~_STATE)

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
            if state and state & _STATE != HELD << 3:
                self._set(seq, state & ~_STATE)
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

    # The index: one place and one state byte for each number of the window.

    def _state(self, seq):
        if seq < self.low or seq >= self.seq:
            return 0
        return self._states[seq % self._span]

    def _set(self, seq, state):
        """Change the state of a live message, and what is counted of it."""
        old = self._states[seq % self._span]
        self._states[seq % self._span] = state
        self.held -= old & _STATE == HELD << 3
        self.held += state & _STATE == HELD << 3
        if not state:
            self._gone(seq)
        elif seq < self._first and state & _STATE != HELD << 3:
            self._first = seq

    def _gone(self, seq):
        self.live -= 1
        self._count_out(self._places[seq % self._span])
        self._capacity = self._limit_live
        while self.low < self.seq and not self._states[self.low % self._span]:
            self.low += 1
        if self._first < self.low:
            self._first = self.low

    def _count_in(self, place, n):
        """A live record of n bytes is at a place."""
        self._loads[place >> self._shift] += self._up(n)
        self._used += self._charge(n)

    def _count_out(self, place):
        n = self._content(place) + LONG
        self._loads[place >> self._shift] -= self._up(n)
        self._used -= self._charge(n)

    def _charge(self, n):
        """What a record of n bytes costs of a segment, its share of the waste at the end
        included."""
        n = self._up(n)
        return self._area // max(1, self._area // n)

    # Room.

    def _admit(self, n):
        """Make sure that a message of n bytes may be stored, by the policy."""
        if self._up(n + SETTLED + 4) > self._area:
            raise ValueError("a message of %d bytes does not fit a segment of %d"
                             % (n - LONG - 8, self._size))
        if self._head < 0:
            raise OSError(EIO, "the journal is not open")
        while not self._fits(n):
            if self._policy != DROP_OLDEST or not self.live:
                raise JournalFull()
            self._drop(self.low)

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

    def _room(self, n, message):
        if not self._make_room(n, message):
            raise JournalFull()

    def _make_room(self, n, message):
        """Open segments and reclaim old ones until the head takes a record of n bytes;
        message: n for a message, 0 for other records, which may fill what messages may not."""
        n = self._up(n)
        tries = 2 * self.medium.count
        while True:
            if self._short and not self._tidying:
                self._tidy()
            if self.medium.whole and self._off % self._page + n > self._page:
                self._off = (self._off + self._page - 1) // self._page * self._page
            if self._off + n <= self._end and self._filled + message <= self._area:
                return True
            tries -= 1
            if tries < 0 or not self._open_next():
                return False

    def _tidy(self):
        """Reclaim segments, oldest first, as long as few are free and one fits the head."""
        self._tidying = True  # what is written meanwhile does not come here again
        try:
            self._reclaim_some()
        finally:
            self._tidying = False
        self._short = self._free() < self._keep

    def _reclaim_some(self):
        while self._reclaimable(self._oldest(0)):
            self._reclaim(self._oldest(0))

    def _reclaimable(self, seg):
        """Whether to reclaim a segment now: few are free, or it costs nothing and using as few
        as possible is better than using all in turn; and what is live fits the head."""
        n = self._loads[seg]
        if self._free() >= self._keep and (n or not self.medium.levelled):
            return False
        if seg == self._head or self._filled + n > self._area:
            return False
        return self._off + n + self._up(SHORT) <= self._end

    def _note(self, kind, value):
        """Append a short record."""
        if self._head < 0:
            raise OSError(EIO, "the journal is not open")
        while True:
            self._room(SHORT, 0)
            self._begin_record(self._off)
            self._tmp[0] = kind
            put4(self._tmp, 1, value)
            self._emit(self._tmp, 0, 5)
            if self._finish(SHORT):
                return
            self._abandon()

    def _here(self):
        return (self._head << self._shift) + self._off

    # Segments: opened in turn, reclaimed oldest first.

    def _free(self):
        n = 0
        for i in range(self.medium.count):
            if not self._serials[i] and not self._bad[i]:
                n += 1
        return n

    def _pick(self):
        """The next free segment, -1 if there is none."""
        i = -1 if self.medium.levelled else self._head
        for _ in range(self.medium.count):
            i = (i + 1) % self.medium.count
            if not self._serials[i] and not self._bad[i]:
                return i
        return -1

    def _open_next(self):
        """Erase a free segment and write its header. False if there is none; a segment that
        does not take it is not tried again before the next mount."""
        while True:
            seg = self._pick()
            if seg < 0:
                return False
            self._serial += 1
            if self._open_segment(seg):
                self._filled = 0
                self._short = self.medium.levelled or self._free() < self._keep
                return True
            self._bad[seg] = 1

    def _open_segment(self, seg):
        if not self._erase(seg):
            return False
        head = self._head
        off = self._off
        self._head = seg
        self._off = 0
        if self._header():
            self._serials[seg] = self._serial
            return True
        self._head = head
        self._off = off
        return False

    def _erase(self, seg):
        self.erases += 1
        self._window_seg = -1
        try:
            self.medium.erase(seg)
        except OSError:
            return False
        return True

    def _header(self):
        """The header proves that the erase was complete, and repeats all state that is not
        in messages."""
        start(self._crc)
        self._begin(0)
        self._emit(self._magic, 0, 8)
        self._emit(self.epoch, 0, 8)
        self._emit4(self._serial)
        self._emit4(self._tail or self._serial)
        self._emit4(self.boot)
        self._emit4(self.seq)
        self._emit4(self.sent)
        self._emit4(self.confirmed)
        n = self._header_tail()
        self._off = 0
        if not self._finish(n + 4):
            return False
        for i in range(4):
            self._seed[i] = self._crc[3 - i] ^ 255
        return True

    def _header_tail(self):
        tmp = self._tmp
        tmp[0] = self.last_pid >> 8
        tmp[1] = self.last_pid & 255
        tmp[2] = len(self.key)
        tmp[3] = self._count
        self._emit(tmp, 0, 4)
        self._emit(self.key, 0, len(self.key))
        for i in range(self._count):
            tmp[0] = self._inbound[i] >> 8
            tmp[1] = self._inbound[i] & 255
            self._emit(tmp, 0, 2)
        return HEADER + len(self.key) + 2 * self._count

    def _abandon(self):
        """The flash did not take a record: nothing more goes into this segment."""
        serial = self._serial
        off = self._off
        while True:
            if not self._open_next():
                raise OSError(EIO, "no segment takes what is programmed")
            self._void(serial, off, 0)
            if self._finish(LONG + 10):
                return

    def _void(self, serial, off, n):
        """Begin a SETTLE record: what lies between that place and here does not count, except
        n bytes of a record that the caller carries over."""
        self._begin_record(self._off)
        self._emit_kind(SETTLE, 10 + n)
        self._emit4(serial)
        self._tmp[0] = off >> 8
        self._tmp[1] = off & 255
        self._emit(self._tmp, 0, 2)
        self._emit4(self.boot)

    def _reclaim(self, seg):
        """Move the live messages of the oldest segment to the head, then give it up."""
        self._move_all(seg)
        self._next_tail(seg)

    def _next_tail(self, seg):
        """Say that a segment is given up. Where the record does not fit, the next header says
        it: this segment is erased before any that was reclaimed later."""
        self._tail = self._serials[self._oldest(self._serials[seg])]
        if self._off + self._up(SHORT) <= self._end:
            self._note(TAIL, self._tail)
        self._serials[seg] = 0

    def _oldest(self, serial):
        """The segment with the smallest serial above that one."""
        best = NOWHERE
        seg = self._head
        for i in range(self.medium.count):
            if serial < self._serials[i] < best:
                best = self._serials[i]
                seg = i
        return seg

    def _move_all(self, seg):
        seq = self.low
        while seq < self.seq:
            if self._states[seq % self._span]:
                if self._places[seq % self._span] >> self._shift == seg:
                    self._move(seq)
            seq += 1

    def _move(self, seq):
        n = self._content(self._places[seq % self._span])
        while True:
            self._room(n + LONG, n + LONG)
            to = self._here()
            self._begin_record(self._off)
            self._emit_kind(self._kind(seq), n)
            self._carry_place(self._places[seq % self._span] + 3, n)
            if self._finish(n + LONG):
                break
            self._abandon()
        self._moved(seq, to, n + LONG)

    def _moved(self, seq, to, n):
        n = self._up(n)
        self._filled += n
        self._loads[self._places[seq % self._span] >> self._shift] -= n
        self._loads[to >> self._shift] += n
        self._places[seq % self._span] = to

    def _content(self, place):
        """Bytes of content of the record at a place."""
        return self._length(place >> self._shift, place & self._size - 1) + 4

    def _carry_place(self, place, n):
        self._carry(place >> self._shift, place & self._size - 1, n)

    def _kind(self, seq):
        """Type byte of a message's record: what was asked for again is held in flash."""
        state = self._states[seq % self._span]
        return PUT | (state & 7 | HELD << 3 if state & _ASKED else state & 0x1F)

    def _read_window(self, seg, off, buf, n):
        while n:
            n -= 1
            buf[n] = self._back[self._window(seg, off + n)]

    # Replay: what a record says, applied to the index.

    def apply(self, seg, off):
        """Apply the valid record at off."""
        i = self._window(seg, off)
        kind = self._back[i]
        if kind >= PUT:
            self._apply_put(seg, off)
        elif kind == SESSION:
            self._apply_session(seg, off)
        elif kind == SETTLE:
            self.boot = max(self.boot, get4(self._back, i + 9))
            if self._length(seg, off) > SETTLED - LONG:
                self.apply(seg, off + SETTLED)
        else:
            self._apply_short(kind, get4(self._back, i + 1))

    def _apply_session(self, seg, off):
        n = self._length(seg, off) + 4
        key = bytearray(min(n, MAX_KEY))
        self._read_window(seg, off + 3, key, len(key))
        self.key = bytes(key)
        self._renew()

    def _apply_put(self, seg, off):
        i = self._window(seg, off)
        kind = self._back[i] & 0x1F
        seq = get4(self._back, i + 3)
        if seq <= 0 or seq < self.seq - self._span:
            return
        self.raise_seq(seq + 1)
        if self._states[seq % self._span]:
            self._set(seq, 0)
        self._places[seq % self._span] = (seg << self._shift) + off
        n = self._length(seg, off)
        if seq == self.seq - 1:
            self._find_pid(seg, off + 7)
            self.last_pid = self.pid
        self._add(seq, LIVE | kind, n)

    def _add(self, seq, state, n):
        if state & _STATE == HELD << 3 and seq <= self.confirmed:
            return
        self._states[seq % self._span] = state
        self.live += 1
        self.held += state & _STATE == HELD << 3
        self._count_in(self._places[seq % self._span], n + LONG + 4)
        self.low = min(self.low, seq)
        self._first = self.low

    def raise_seq(self, seq):
        """Numbers below seq were given. The window moves on over what it pushes out."""
        while self.low <= seq - 1 - self._span and self.live:
            self._set(self.low, 0)
        self.seq = max(self.seq, seq)
        if not self.live:
            self.low = self._first = self.seq

    def _apply_short(self, kind, value):
        if kind == IN_ADD:
            self._in_add(value)
        elif kind == IN_DEL:
            self._in_del(value)
        elif kind == TAIL:
            self._tail = max(self._tail, value)
        elif kind == CONFIRM:
            self.raise_seq(value + 1)
            self.confirmed = max(self.confirmed, value)
            self._forget_held()
        elif value > 0:
            self._apply_seq(kind, value)

    def _apply_seq(self, kind, seq):
        if kind == SENT:
            self.sent = max(self.sent, seq)
            return
        self.raise_seq(seq + 1)
        state = self._state(seq)
        if not state:
            return
        if kind == REC:
            self._set(seq, LIVE | RELEASED << 3 | state & 7)
        elif kind == HOLD and seq > self.confirmed:
            self._set(seq, LIVE | HELD << 3 | state & 7)
        else:
            self._set(seq, 0)
