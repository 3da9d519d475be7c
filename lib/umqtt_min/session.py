"""What is in flight: the state machine of outgoing QoS 1 and 2 messages.

Knows: packet identifiers, the order of delivery, which acknowledgement comes
next. The messages themselves are in the store; here is only a window over it.
Never knows: sockets, how the store keeps its records.

A message in flight sits in slot `sequence number % window`: the window spans
that many sequence numbers at most, so that no two share a slot.
"""

import os
from array import array

from .exception import MQTTException
from .packets import pack
from .port import const, ticks_add, ticks_diff, ticks_ms
from .store import StoreFull

# As in errors.py
_TIMEOUT = const(17)
_LOST = const(18)
_NOT_CONNECTED = const(19)
_STORE_FULL = const(20)
_BUSY = const(21)
_GIVEN_UP = const(23)

# As in packets.py
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_PUBREC = const(0x50)
_PUBREL = const(0x62)
_PUBCOMP = const(0x70)
_QOS_2 = const(0x04)
_FLAGS_OF_A_MESSAGE = const(0x07)  # QoS and retain
_DUP = const(0x08)
_ROW_DUP = const(3)
_ROW_LITTLE = const(4)

_RELEASED = const(1)  # as in store/__init__.py
_HELD = const(2)
_AGAIN = const(3)
_LATEST = const(2)  # as in store/__init__.py
_WAIT = const(16)  # as in client.py
_BODY = const(5)  # as in sender.py


class Session:
    """The window of one client over its store.

    window: messages in flight at most, 1 to 255.
    """

    # For stuck(): the oldest message, how many connections were in vain for it, and the count
    # of those that ended without disconnect() when the latest began.
    _tried = _vainly = _ends = 0
    _awaited = 0  # number of the message whose end publish() waits for, and whether it has come
    _acked = False
    _outer = 0  # the same of the publish() that this one, in an interrupt, has interrupted
    _outer_acked = False
    _aged = False  # the store has max_age
    proved = True  # False: nothing goes out before the broker has sent something: see resume.py
    _putting = False  # publish() has a message that is not stored, or whose number is not taken

    def __init__(self, client, store, window):
        if not 0 < window < 256 or isinstance(store, type) or not hasattr(store, "put"):
            from .reasons import refuse_session

            refuse_session(store, window)
        self._client = client
        self._store = store
        self._size = window
        self._pids = array("H", bytes(2 * window))
        self._seqs = array("I", bytes(4 * window))
        self._next = bytearray(window)  # first byte of what is awaited; 0: slot is free
        self._count = 0
        self._first = 0  # oldest sequence number in flight
        self._cursor = 0  # all up to here was sent, or passed over, on this connection
        self._back = 0  # go back to this one when nothing is in flight
        self._view = memoryview(client._tx.buf)[_BODY:]
        self._due = self._far = 0  # identifiers that are free: see uses()
        self.seq = 0  # of the message stored last
        # Connections in a row on which PUBREL was sent again and nothing came back.
        self._vain = 0
        # True: PUBREL was sent again on this connection, and nothing has come back yet.
        # None: the last connection has been counted.
        self._owed = False
        store.open()
        if store.max_age:
            self._aged = True
        self.claim()

    def claim(self):
        """The store is this client's from now on. Raises ValueError while another client that
        has it is connected: both would send what is in it."""
        store = self._store
        client = self._client
        user = getattr(store, "user", None)
        if user is client:
            return
        if user and user.sock:
            from .reasons import refuse_taken

            refuse_taken(user)
        store.user = client
        # Sending has begun up to here in this session, or up to _cursor. The store's mark is made
        # for some messages at once, and may be ahead of what there is.
        self._sent = min(store.sent, store.seq - 1)
        # Only where it is asked for: each attribute more makes all calls of an object slower.
        if store.policy == _LATEST:
            store.begun = self.begun
        # A new journal starts anywhere: a broker may still hold ids of an erased one.
        client.pid = store.last_pid or int.from_bytes(os.urandom(2), "big")
        self._due = 0

    def begun(self):
        """Messages up to this sequence number may have been sent."""
        return max(self._sent, self._cursor)

    # Sending

    def publish(self, name, msg, flags):
        """Store a message, send it if its turn has come; returns its packet identifier.

        flags: QoS << 1 | retain | _WAIT: wait for its end, but not inside a callback.
        """
        # An interrupt may publish at any line. While _putting is set none does, so that the
        # message at hand can lie in attributes: more arguments would make frames too large.
        if self._client._busy & 1 or self._putting or flags & _WAIT and self._outer:
            raise MQTTException(_BUSY)
        if self._store.user is not self._client:
            self.claim()
        self._putting = True
        self._busy = self._client._busy
        if self._busy:
            flags &= _FLAGS_OF_A_MESSAGE
        self._waits = flags & _WAIT
        self._flags = flags & _FLAGS_OF_A_MESSAGE
        self._name = name
        self._guard(msg)
        name = self._given  # before the next one may be put
        msg = self.seq
        self._putting = False
        if flags & _WAIT:
            self._wait(msg, name)
        return name

    def _guard(self, msg):
        self.seq = 0
        self._client._busy = 1  # no tick may touch the store meanwhile
        try:
            self._put(msg)
        except StoreFull:
            if self._failed():
                raise MQTTException(_STORE_FULL)
        except OSError:
            if self._failed():
                raise
        except BaseException:
            if not self._failed() and self._waits:  # no memory for what is loaded then
                self._restore()
            self._putting = False
            raise

    def _failed(self):
        # True if nothing was stored. A message that is stored is not lost by an error of
        # the network: the next call of the application hears of it.
        c = self._client
        if self.seq:
            c._lost()
            return False
        c._busy = self._busy
        self._putting = False
        return True

    def _put(self, msg):
        c = self._client
        if c.sock and not c._tx.count:
            c._tx.push()  # it must not wait for the TCP ACK of what went before
        n = self._due
        if c.pid + 1 == n < self._far:
            c.pid = n
            self._due = n + 1
        else:
            n = c._rx.next_pid()
        self._given = n
        if c.protocol[_ROW_LITTLE]:
            n = c._rx.wire(n)
        c._tx.pid = n
        self.seq = n = self._store.put(n, self._flags, self._name, msg)  # durable when it returns
        if self._waits:
            # Before its first byte goes out: a tick may see its end.
            self._outer = self._awaited
            self._outer_acked = self._acked
            self._acked = False
            self._awaited = n
        if c.sock:
            if self._cursor == n - 1 and self._room(n):
                self._send_new(n, msg)
            else:
                self.pump()
        c._busy = self._busy

    def _restore(self):
        # Nobody waits any more but whom this publish() has interrupted.
        self._acked = self._outer_acked
        self._awaited = self._outer
        self._outer = 0

    def _send_new(self, seq, msg):
        # Straight from the caller's buffers: nothing is read back from flash.
        c = self._client
        if seq > self._store.sent:
            self._store.mark(seq + self._size - 1)
        i = seq % self._size
        self._seqs[i] = seq
        self._pids[i] = c._tx.pid
        self._next[i] = _PUBACK if self._flags < _QOS_2 else _PUBREC
        if not self._count:
            self._first = seq
        self._count += 1
        self._cursor = seq  # before the first byte goes out: it "may have been sent"
        c._tx.publish(_PUBLISH | self._flags, self._name, msg)
        c.counters.sent += 1

    def _room(self, seq):
        return not (self._back or self._count and seq - self._first >= self._size)

    def pump(self):
        """Send what the window has room for, from the store, in order."""
        if not self.proved:
            if self._client._rx.request is not None:
                return
            self.proved = True
        if self._back and not self._count:
            self._cursor = min(self._cursor, self._back - 1)  # never on: what is between waits
            self._back = 0
        last = self._store.seq - 1
        while self._cursor < last:
            seq = self._store.next(self._cursor)
            if not seq:
                self._cursor = last
            elif self._room(seq):
                self._send(seq)
            else:
                return

    def uses(self, pid):
        """True if a message with this identifier is in flight, waits to be sent, or is held."""
        # Identifiers are given one after the other: who looked once knows how many are free.
        if self._due == pid < self._far:
            self._due = pid + 1
            return False
        return self._look(pid)

    def _look(self, pid):
        n = 30000  # so many at most are known to be free without a look
        for i in range(self._size):
            if self._next[i]:
                i = self._client._rx.wire(self._pids[i])
                n = min(n, (i - pid) % 65535)
        # One that is held may be asked for again when all identifiers have passed.
        i = self._store.low
        while i < self._store.seq:
            if self._store.find(i):
                n = min(n, (self._client._rx.wire(self._store.pid) - pid) % 65535)
            i += 1
        self._due = pid + 1
        self._far = min(65536, pid + n)
        return not n

    # From the store

    def confirm(self, seq):
        """See MQTTClient.confirm()."""
        self._take(seq)
        try:
            return self._store.confirm(seq)
        finally:
            self._client._busy &= 2

    def republish(self, first, last):
        """See MQTTClient.republish()."""
        self._take(first, last)
        # Without `finally`: again() raises nothing, and such a frame would be on the heap.
        n = self._store.again(first, last)
        if n and not (0 < self._back <= first):
            self._sent = self.begun()
            self._back = max(first, 1)
        self._client._busy &= 2
        return n

    def _take(self, first=0, last=0):
        # No tick may touch the store until `client._busy &= 2`.
        if not (isinstance(first, int) and isinstance(last, int)):
            from .reasons import refuse_seq

            refuse_seq(last if isinstance(first, int) else first)
        if self._client._busy & 1:
            raise MQTTException(_BUSY)
        self._client._busy |= 1

    def _send(self, seq):
        store = self._store
        if self._aged:
            store.expire()
            if not store.find(seq):
                return  # too old; pump() goes on behind it
        if seq > store.sent:
            store.mark(seq + self._size - 1)  # may move what find() finds
        n = store.find(seq)
        op = _PUBLISH | store.flags
        if store.state == _RELEASED:
            self._fly(seq, _PUBCOMP)
            self._release()
            return
        if store.state == _AGAIN:
            store.sending(seq)
        elif seq <= self._sent:
            op |= _DUP
            self._client.counters.redelivered += 1
        self._fly(seq, _PUBREC if op & _QOS_2 else _PUBACK)
        self._send_body(op, n)
        self._client.counters.sent += 1

    def _fly(self, seq, ack):
        # Before the first byte goes out: it "may have been sent".
        i = seq % self._size
        self._seqs[i] = seq
        self._pids[i] = self._store.pid
        self._next[i] = ack
        if not self._count:
            self._first = seq
        self._count += 1
        self._cursor = seq

    def _release(self):
        # PUBREL instead of PUBLISH once PUBREC has come [MQTT-4.3.3-1].
        c = self._client
        c.counters.redelivered += 1
        self._owed = True
        c._tx.put(_PUBREL | _DUP if c.protocol[_ROW_DUP] & 1 else _PUBREL, self._store.pid)

    def _send_body(self, op, n):
        # The record is the packet but for its fixed header.
        tx = self._client._tx
        if tx.waiting:
            tx.drain()  # what a tick could not send may lie in the buffer
        tx.topic = None  # it is overwritten
        i = pack(tx.buf, op, n)
        op = min(n, len(self._view))
        self._store.read(0, self._view, op)
        tx.send(tx.buf, i, _BODY + op - i)
        while op < n:
            op += self._send_piece(op, n - op)

    def _send_piece(self, pos, n):
        tx = self._client._tx
        if tx.waiting:
            tx.drain()
        n = min(n, len(self._view))
        self._store.read(pos, self._view, n)
        tx.send(tx.buf, _BODY, n)
        return n

    # Acknowledgements

    def on_ack(self, t, pid):
        """PUBACK, PUBREC or PUBCOMP, `t`, has come for `pid`, as on the wire."""
        i = self._first % self._size
        if self._pids[i] != pid or not self._next[i]:
            i = self._slot(pid)
        self._owed = False
        if i < 0:
            self._client.counters.unexpected += 1
        elif self._next[i] == t:
            if t == _PUBREC:
                self._store.rec(self._seqs[i])  # durable before PUBREL [MQTT-4.3.3-1]
                self._next[i] = _PUBCOMP
            else:
                self._end(i)
        elif t != _PUBREC or self._next[i] < _PUBREC:
            self._client._rx.bad("acknowledgement of another QoS")

    def _slot(self, pid):
        for i in range(self._size):
            if self._pids[i] == pid and self._next[i]:
                return i
        return -1

    def _end(self, i):
        self._store.done(self._seqs[i])
        self._next[i] = 0
        self._count -= 1
        self._client.counters.acked += 1
        if self._seqs[i] == self._awaited:
            self._acked = True
        elif self._seqs[i] == self._outer:
            self._outer_acked = True
        # Behind those, too, that have ended before an older one.
        while self._count and not self._next[self._first % self._size]:
            self._first += 1

    def _wait(self, seq, pid):
        # Until the last acknowledgement; the message stays stored if it fails.
        end = ticks_add(ticks_ms(), self._client._tmo)
        reason = 0 if self._client.sock else _NOT_CONNECTED
        while not reason:
            reason = self._step(ticks_diff(end, ticks_ms()))
            if self._is_done(seq):
                if self._acked:
                    self._restore()
                    return
                reason = _GIVEN_UP
        self._restore()
        self._miss(reason, seq, pid)

    def _miss(self, reason, seq, pid):
        i = seq % self._size
        i = reason == _TIMEOUT and (self._seqs[i] == seq and self._next[i] or _PUBLISH)
        raise MQTTException(reason, i or None, pid, reason != _GIVEN_UP)

    def _step(self, left):
        if left <= 0:
            return _TIMEOUT
        try:
            self._client._rx.idle(left)
            self._client.check_msg()
            return 0
        except OSError:
            if not self._client._thrown:
                return _LOST
            self._restore()
            raise  # of the callback: the application's own
        except BaseException:
            self._restore()
            raise

    def _is_done(self, seq):
        i = seq % self._size
        if self._next[i] and self._seqs[i] == seq:
            return False
        # republish() moves the cursor back: then the store knows.
        return seq <= self._cursor or not self._store.find(seq) or self._store.state >= _HELD

    # A message that the broker does not take

    def stuck(self):
        """See MQTTClient.stuck()."""
        if self._client._busy & 1:
            raise MQTTException(_BUSY)
        c = self._client
        return self._vain_count(not c.sock and self._ends != c.counters.closed)

    def discard(self):
        """See MQTTClient.discard()."""
        if self._client._busy:
            raise MQTTException(_BUSY)
        self._take()
        try:
            return self._give_up(self._oldest())
        finally:
            self._client._busy &= 2

    def _give_up(self, seq):
        store = self._store
        if not seq:
            return None
        pid = self._client._rx.wire(store.pid)
        topic = bytearray(2)
        store.read(0, topic, 2)
        topic = bytearray(topic[0] << 8 | topic[1])
        store.read(2, topic, len(topic))
        store.drop(seq)
        return pid, bytes(topic)

    def _oldest(self):
        # Number of the oldest message that the broker is not known to have, 0 if there is none;
        # find() has looked it up.
        store = self._store
        seq = store.next(0)
        while seq and store.find(seq) and store.state == _RELEASED:
            seq = store.next(seq)
        return seq

    def _vain_count(self, ended):
        # See stuck(); ended: of the connection at hand no acknowledgement can come any more.
        seq = self._oldest()
        n = self._vainly if seq == self._tried else 0
        i = seq % self._size
        if seq and ended and self._next[i] and self._seqs[i] == seq:
            n += 1
        return n

    def ended(self, lost):
        """A connection has ended, and another one has come: count it if it was lost. Returns the
        count."""
        self._vainly = self._vain_count(lost)
        self._tried = self._oldest()
        return self._vainly

    def clear(self):
        """Nothing is in flight any more."""
        for i in range(self._size):
            self._next[i] = 0
        self._count = 0

    def send_alone(self):
        """Send the oldest message, after the PUBRELs that are due; the others wait for its end."""
        seq = self._store.next(0)
        while seq and self._room(seq):
            self._send(seq)
            if self._next[seq % self._size] != _PUBCOMP:
                self._back = seq + 1
            seq = self._store.next(seq)
