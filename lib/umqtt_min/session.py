"""What is in flight: the state machine of outgoing QoS 1 and 2 messages.

Knows: packet identifiers, the order of delivery, which acknowledgement comes
next. The messages themselves are in the store; here is only a window over it.
Never knows: sockets, how the store keeps its records.

A message in flight sits in slot `sequence number % window`: the window spans
that many sequence numbers at most, so that no two share a slot. What is not sent
straight from the caller's buffers is sent by backlog.py, loaded when it is needed.
"""

import os
from array import array
from time import ticks_add, ticks_diff, ticks_ms

from micropython import const

from .client import MQTTException
from .full import JournalFull

# As in errors.py and counters.py
_TIMEOUT = const(17)
_LOST = const(18)
_NOT_CONNECTED = const(19)
_STORE_FULL = const(20)
_BUSY = const(21)
_SENT = const(2)
_ACKED = const(3)
_UNEXPECTED = const(8)

_HELD = const(2)  # as in store.py
_CALLBACK = const(2)  # as in client.py
_BODY = const(5)  # as in wire.py
_HOPELESS = const(3)  # connections in a row


def _begin_session(self, window):
    self._inbox = self.store
    self._session = Session(self, self.store, window)


class Session:
    """The window of one client over its store.

    window: messages in flight at most, 1 to 255.
    """

    def __init__(self, client, store, window):
        if not 0 < window < 256 or isinstance(store, type) or not hasattr(store, "put"):
            from .backlog import refuse

            refuse(store, window)
        self._client = client
        self._store = store
        self._size = window
        self._pids = array("H", bytes(2 * window))
        self._seqs = array("I", bytes(4 * window))
        self._next = bytearray(window)  # packet type that is awaited; 0: slot is free
        self._count = 0
        self._first = 0  # oldest sequence number in flight
        self._cursor = 0  # all up to here was sent, or passed over, on this connection
        self._sent = -1  # sending has begun up to here in this session; -1: since boot unknown
        self._back = 0  # go back to this one when nothing is in flight
        self._view = memoryview(client._tx.buf)[_BODY:]
        self._due = self._far = 0  # identifiers that are free: see uses()
        self.seq = 0  # of the message stored last
        # Connections in a row on which PUBREL was sent again and nothing came back.
        self._vain = 0
        self._owed = False  # PUBREL was sent again on this one, and nothing has come yet
        store.open()
        # A new journal starts anywhere: a broker may still hold ids of an erased one.
        client.pid = store.last_pid or int.from_bytes(os.urandom(2), "big")

    def __getattr__(self, name):
        # Looked up once: then it is a method like any other.
        backlog = __import__("umqtt_min.backlog", None, None, (name,))
        setattr(Session, name, getattr(backlog, name))
        return getattr(self, name)

    def resume(self, fresh):
        """CONNACK is in. fresh: the broker has no session, or must not have one."""
        from .resume import resume

        resume(self, self._client, self._store, fresh)
        self.pump()

    def hopeless(self):
        """True if the broker will not take this session up again.

        Some close on a PUBREL whose message they have completed, instead of answering
        it [MQTT-4.3.3-2], and would do so for ever.
        """
        return self._vain + self._owed >= _HOPELESS

    def forget(self):
        """The broker was made to forget the session: all is sent as new after CONNACK."""
        self._owed = False
        self._vain = -1

    # Sending

    def publish(self, topic, msg, flags):
        """Store a message, send it if its turn has come; returns its packet identifier.

        flags: QoS << 1 | retain. Waits for the end if the client is set to.
        """
        c = self._client
        if c._busy & 1:
            raise MQTTException(_BUSY)
        self._busy = c._busy
        self._topic = topic  # attributes, for arguments would make frames too large
        self._msg = msg
        self._flags = flags
        self._put(c)
        flags = c.pid
        if c.sock:
            self._offer(c)
        else:
            c._busy = self._busy
        self._topic = self._msg = None
        if c._block and self._busy != _CALLBACK:
            self._wait(self.seq, flags)
        return flags

    def _put(self, c):
        # Durable when it returns; no tick may touch the store meanwhile.
        c._busy = 1
        try:
            self._id = c._wire(c._next_pid())
            self.seq = self._store.put(self._id, self._flags, self._topic, self._msg)
        except JournalFull:
            c._busy = self._busy
            raise MQTTException(_STORE_FULL)
        except BaseException:
            c._busy = self._busy
            raise

    def _offer(self, c):
        # A message that is stored is not lost by an error here: the next call of
        # the application hears of it.
        try:
            if self._cursor == self.seq - 1 and self._room(self.seq):
                self._send_new(c, self.seq)
            else:
                self.pump()
        except OSError:
            c._lost()
            return
        except BaseException:
            c._lost()  # no memory for what is loaded then
            raise
        c._busy = self._busy

    def _send_new(self, c, seq):
        # Straight from the caller's buffers: nothing is read back from flash.
        self._begin(seq)
        c._tx.pid = self._id
        c._tx.publish(0x30 | self._flags, self._topic, self._msg)
        c._n[_SENT] += 1
        self._fly(seq, c.pid, 4 if self._flags < 4 else 5)

    def _begin(self, seq):
        # Before the first byte of it goes out: it "may have been sent".
        if seq > self._store.sent:
            self._store.mark(seq + self._size - 1)
        if seq > self._sent:
            self._sent = seq

    def _room(self, seq):
        return not (self._back or self._count and seq - self._first >= self._size)

    def _fly(self, seq, pid, ack):
        i = seq % self._size
        self._seqs[i] = seq
        self._pids[i] = pid
        self._next[i] = ack
        if not self._count:
            self._first = seq
        self._count += 1
        self._cursor = seq

    def pump(self):
        """Send what the window has room for, from the store, in order."""
        if self._back and not self._count:
            self._cursor = self._back - 1
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
        """True if a message with this identifier is in flight or waits to be sent."""
        # Identifiers are given one after the other: who looked once knows how many are free.
        if self._due == pid < self._far:
            self._due = pid + 1
            return False
        return self._look(pid)

    def _look(self, pid):
        n = 60000  # so far behind are none that wait: they are given in order
        for i in range(self._size):
            if self._next[i]:
                n = min(n, (self._pids[i] - pid) % 65535)
        if self._store.seq - self._store.low >= 30000:
            n = self._search(pid, n)
        self._due = pid + 1
        self._far = min(65536, pid + min(n, 30000))
        return not n

    # Acknowledgements

    def _slot(self, pid):
        for i in range(self._size):
            if self._pids[i] == pid and self._next[i]:
                return i
        return -1

    def on_ack(self, t, pid):
        """PUBACK (4), PUBREC (5) or PUBCOMP (7) has come for `pid`."""
        i = self._first % self._size
        if self._pids[i] != pid or not self._next[i]:
            i = self._slot(pid)
        self._owed = False
        n = self._next[i] if i >= 0 else 0
        if not n:
            self._client._n[_UNEXPECTED] += 1
        elif t == 5 and n >= 5:
            if n == 5:
                self._store.rec(self._seqs[i])  # durable before PUBREL [MQTT-4.3.3-1]
                self._next[i] = 7
        elif t == n:
            self._end(i)
        else:
            self._client._bad("acknowledgement of another QoS")

    def _end(self, i):
        seq = self._seqs[i]
        self._store.done(seq)
        self._next[i] = 0
        self._count -= 1
        self._client._n[_ACKED] += 1
        if seq == self._first and self._count:
            while True:
                seq += 1
                i = seq % self._size
                if self._next[i] and self._seqs[i] == seq:
                    break
            self._first = seq

    def _wait(self, seq, pid):
        # Until the last acknowledgement; the message stays stored if it fails.
        end = ticks_add(ticks_ms(), self._client._tmo)
        reason = 0 if self._client.sock else _NOT_CONNECTED
        while not reason:
            reason = self._step(ticks_diff(end, ticks_ms()))
            if self._is_done(seq):
                return
        raise MQTTException(reason, None, pid, True)

    def _step(self, left):
        if left <= 0:
            return _TIMEOUT
        try:
            self._client._idle(left)
            self._client.check_msg()
            return 0
        except OSError:
            return _LOST

    def _is_done(self, seq):
        i = seq % self._size
        if self._next[i] and self._seqs[i] == seq:
            return False
        # republish() moves the cursor back: then the store knows.
        return seq <= self._cursor or not self._store.find(seq) or self._store.state >= _HELD
