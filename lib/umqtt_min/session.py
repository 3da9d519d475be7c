"""What is in flight: the state machine of outgoing QoS 1 and 2 messages.

Knows: packet identifiers, the order of delivery, which acknowledgement comes
next. The messages themselves are in the store; here is only a window over it.
Never knows: sockets, how the store keeps its records.

A message in flight sits in slot `sequence number % window`: the window spans
that many sequence numbers at most, so that no two share a slot.
"""

import hashlib
import os
import time
from array import array

from micropython import const

from .client import MQTTException
from .full import JournalFull
from .wire import header

# As in errors.py, protocol.py and counters.py
_TIMEOUT = const(17)
_LOST = const(18)
_NOT_CONNECTED = const(19)
_STORE_FULL = const(20)
_BUSY = const(21)
_NAME = const(0)
_DUP = const(3)
_SENT = const(2)
_ACKED = const(3)
_REDELIVERED = const(4)
_UNEXPECTED = const(8)
_LOST_SESSIONS = const(11)
_BODY = const(5)

# The store's states of a record.
_RELEASED = const(1)
_HELD = const(2)
_AGAIN = const(3)

_CALLBACK = const(2)  # as in client.py
_HOPELESS = const(3)  # connections in a row


def session_key(client):
    """Eight bytes that name the MQTT session: server, port, client id, protocol."""
    name = "%s %d " % (client.server, client.port)
    h = hashlib.sha256(name.encode() + client.protocol[_NAME] + client.client_id)
    return h.digest()[:8]


def _begin_session(self, window):
    self._session = Session(self, self.store, window)


def flush(self, timeout=None):
    """Wait until all publishes are acknowledged.

    timeout: seconds, None: the client's. Returns True, or False if it was
    too short. Raises OSError when the connection ends, or is not there although
    something waits for it.
    """
    return not self._session or self._session.flush(timeout)


def confirm(self, seq):
    """The pipeline has made all up to sequence number `seq` durable: readings
    held for that are released. Returns how many."""
    return self._session.guarded(self.store.confirm, seq)


def republish(self, first, last):
    """Send the held readings `first` to `last` once more, as new deliveries.
    Returns how many."""
    return self._session.guarded(self._session.again, first, last)


class Session:
    """The window of one client over its store.

    window: messages in flight at most, 1 to 255.
    """

    def __init__(self, client, store, window):
        if not 0 < window < 256:
            raise ValueError("window=%r: 1 to 255" % (window,))
        if isinstance(store, type) or not hasattr(store, "put"):
            raise ValueError("store=%r: FileStore(), FlashStore() or RAMStore()" % (store,))
        self._client = client
        self._store = store
        self._size = window
        self._pids = array("H", bytes(2 * window))
        self._seqs = [0] * window
        self._next = bytearray(window)  # packet type that is awaited; 0: slot is free
        self._count = 0
        self._first = 0  # oldest sequence number in flight
        self._cursor = 0  # all up to here was sent, or passed over, on this connection
        self._sent = -1  # sending has begun up to here in this session; -1: since boot unknown
        self._back = 0  # go back to this one when nothing is in flight
        self._view = memoryview(client._tx.buf)[_BODY:]
        self.pid = self.seq = 0  # of the message stored last
        self._topic = self._msg = None  # and its contents, until it is sent
        self._busy = self._id = 0
        # Connections in a row on which PUBREL was sent again and nothing came back.
        self._vain = 0
        self._owed = False  # PUBREL was sent again on this one, and nothing has come yet
        store.open()
        # A new journal starts anywhere: a broker may still hold ids of an erased one.
        client.pid = store.last_pid or int.from_bytes(os.urandom(2), "big")

    def resume(self, fresh):
        """CONNACK is in. fresh: the broker has no session, or must not have one."""
        store = self._store
        key = session_key(self._client)
        if fresh or self._vain < 0 or store.key != key:
            if store.live:
                self._client._n[_LOST_SESSIONS] += 1
            store.session(key)
            self._sent = 0
        elif self._sent < 0:
            self._sent = store.sent
        for i in range(self._size):
            self._next[i] = 0
        self._count = self._cursor = self._back = 0
        self._vain = self._vain + 1 if self._owed else 0
        self._owed = False
        self._client._tx.prompt()  # none of them may wait for another's TCP ACK
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
        if self._client._busy & 1:
            raise MQTTException(_BUSY)
        wait = self._client._block and self._client._busy != _CALLBACK
        pid = self.pid = self._client._next_pid()
        self._topic = topic  # attributes, for arguments would make frames too large
        self._msg = msg
        self._put(flags)
        if self._client.sock:
            self._offer(flags)
        self._topic = self._msg = None
        if wait:
            self._wait(self.seq, pid)
        return pid

    def _put(self, flags):
        # Durable when it returns; no tick may touch the store meanwhile.
        self._busy = self._client._busy
        self._client._busy = 1
        try:
            self._id = self._client._wire(self.pid)
            self.seq = self._store.put(self._id, flags, self._topic, self._msg)
        except JournalFull:
            self._client._busy = self._busy
            raise MQTTException(_STORE_FULL)
        except BaseException:
            self._client._busy = self._busy
            raise
        self._client._busy = self._busy

    def _offer(self, flags):
        # A message that is stored is not lost by an error here: the next call of
        # the application hears of it.
        self._client._busy = 1
        try:
            if self._room(self.seq) and self._store.next(self._cursor) == self.seq:
                self._send_new(flags)
            else:
                self.pump()
        except OSError:
            self._client._failed()
            return
        self._client._busy = self._busy

    def _send_new(self, flags):
        # Straight from the caller's buffers: nothing is read back from flash.
        c = self._client
        self._begin(self.seq)
        c._tx.pid = self._id
        c._tx.publish(0x30 | flags, self._topic, self._msg)
        c._n[_SENT] += 1
        self._fly(self.seq, self.pid, 4 if flags < 4 else 5)

    def _begin(self, seq):
        # Before the first byte of it goes out: it "may have been sent".
        if seq > self._store.sent:
            self._store.mark(seq + self._size - 1)
        if seq > self._sent:
            self._sent = seq

    def _room(self, seq):
        if self._back:
            return False
        return not self._count or seq - self._first < self._size

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
        while True:
            seq = self._store.next(self._cursor)
            if not seq or not self._room(seq):
                return
            self._send(seq)

    def _send(self, seq):
        store = self._store
        n = store.find(seq)
        pid = self._client._wire(store.pid)
        if store.state == _RELEASED:
            self._release(seq, pid)
            return
        op = 0x30 | store.flags
        if store.state == _AGAIN:
            store.sending(seq)
        elif seq <= self._sent:
            op |= 8
            self._client._n[_REDELIVERED] += 1
        self._begin(seq)
        self._send_body(op, n)
        self._client._n[_SENT] += 1
        op = 5 if op & 4 else 4
        self._fly(seq, pid, op)

    def _release(self, seq, pid):
        # PUBREL instead of PUBLISH once PUBREC has come [MQTT-4.3.3-1].
        c = self._client
        c._n[_REDELIVERED] += 1
        self._owed = True
        c._tx.control(0x6A if c.protocol[_DUP] & 1 else 0x62, c._wire(pid))
        self._fly(seq, pid, 7)

    def _send_body(self, op, n):
        # The record is the packet but for its fixed header.
        tx = self._client._tx
        tx.topic = None  # it is overwritten
        i = header(tx.buf, op, n)
        op = min(n, len(self._view))
        self._store.read(0, self._view, op)
        tx.send(tx.buf, i, _BODY + op - i)
        while op < n:
            op += self._send_piece(op, n - op)

    def _send_piece(self, pos, n):
        n = min(n, len(self._view))
        self._store.read(pos, self._view, n)
        self._client._tx.send(self._client._tx.buf, _BODY, n)
        return n

    def guarded(self, f, *args):
        """f(*args), on the store: no tick may touch it meanwhile."""
        c = self._client
        if c._busy & 1:
            raise MQTTException(_BUSY)
        b = c._busy
        c._busy = 1
        try:
            return f(*args)
        finally:
            c._busy = b

    def flush(self, timeout):
        """See flush() below."""
        c = self._client
        ms = c._tmo if timeout is None else int(timeout * 1000)
        end = time.ticks_add(time.ticks_ms(), ms)
        while True:
            if c.sock or c.inflight:  # else nothing is left to be waited for
                c.check_msg()
            if not c.inflight:
                return True
            left = time.ticks_diff(end, time.ticks_ms())
            if left <= 0:
                return False
            c._idle(left)

    def again(self, first, last):
        """Held readings `first` to `last` are to be sent anew; returns how many."""
        n = self._store.again(first, last)
        if n and not (0 < self._back <= first):
            self._back = first
        return n

    def uses(self, pid):
        """True if a message with this identifier is in flight or waits to be sent."""
        if self._count and self._slot(pid) >= 0:
            return True
        store = self._store
        if store.seq - store.low < 60000:
            return False  # ids are given in order: none can have come round
        seq = store.next(0)
        while seq:
            if store.find(seq) and self._client._wire(store.pid) == pid:
                return True
            seq = store.next(seq)
        return False

    # Acknowledgements

    def _slot(self, pid):
        i = self._first % self._size
        if self._pids[i] == pid and self._next[i]:
            return i
        for i in range(self._size):
            if self._pids[i] == pid and self._next[i]:
                return i
        return -1

    def on_ack(self, t, pid):
        """PUBACK (4), PUBREC (5) or PUBCOMP (7) has come for `pid`."""
        i = self._slot(pid) if self._count else -1
        self._owed = False
        if i < 0:
            self._client._n[_UNEXPECTED] += 1
        elif t == 5 and self._next[i] >= 5:
            if self._next[i] == 5:
                self._store.rec(self._seqs[i])  # durable before PUBREL [MQTT-4.3.3-1]
                self._next[i] = 7
        elif t == self._next[i]:
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
            while not (self._next[seq % self._size] and self._seqs[seq % self._size] == seq):
                seq += 1
            self._first = seq

    def _wait(self, seq, pid):
        # Until the last acknowledgement; the message stays stored if it fails.
        end = time.ticks_add(time.ticks_ms(), self._client._tmo)
        reason = 0 if self._client.sock else _NOT_CONNECTED
        while not reason:
            left = time.ticks_diff(end, time.ticks_ms())
            if left <= 0:
                reason = _TIMEOUT
            else:
                self._client._idle(left)
                reason = self._step()
            if self._is_done(seq):
                return
        raise MQTTException(reason, None, pid, True)

    def _step(self):
        try:
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
