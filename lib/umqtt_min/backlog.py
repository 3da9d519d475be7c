"""Messages that are sent from the store: those that waited, and those that are sent again.

Knows: DUP, PUBREL instead of PUBLISH, messages of which only a part fits the buffer.
Never knows: sockets, how the store keeps its records.
Loaded when there is the first of them. Functions with `client` are methods of MQTTClient, those
with `self` of session.py's Session.
"""

from .exception import MQTTException
from .port import const, ticks_add, ticks_diff, ticks_ms
from .timeouts import milliseconds
from .wire import pack

# As in errors.py, protocol.py and counters.py
_BUSY = const(21)
_DUP = const(3)
_SENT = const(2)
_REDELIVERED = const(4)
_BODY = const(5)

# The store's states of a record.
_RELEASED = const(1)
_AGAIN = const(3)


def flush(client, timeout=None):
    """Wait until all publishes are acknowledged.

    timeout: seconds, None: the client's. Returns True, or False if it was
    too short. Raises OSError when the connection ends, or is not there although
    something waits for it.
    """
    end = ticks_add(ticks_ms(), milliseconds(client, timeout))
    if not client._session:
        return True
    while True:
        if client.sock or client.inflight:  # else nothing is left to be waited for
            client.check_msg()
        if not client.inflight:
            return True
        left = ticks_diff(end, ticks_ms())
        if left <= 0:
            return False
        client._idle(left)


def confirm(client, seq):
    """The pipeline has made all up to sequence number `seq` durable: readings
    held for that are released. Returns how many."""
    _check(client, seq)
    return _guarded(client, client.store.confirm, seq)


def republish(client, first, last):
    """Send the held readings `first` to `last` once more, as new deliveries.
    Returns how many."""
    _check(client, first, last)
    return _guarded(client, client._session._again, first, last)


def _check(c, *numbers):
    for n in numbers:
        if not c._session or not isinstance(n, int):
            from .refuse import seqs

            seqs(c, n)


def _guarded(c, f, *args):
    # f(*args), on the store: no tick may touch it meanwhile.
    if c._busy & 1:
        raise MQTTException(_BUSY)
    b = c._busy
    c._busy = 1
    try:
        return f(*args)
    finally:
        c._busy = b


def _again(self, first, last):
    n = self._store.again(first, last)
    self._due = 0  # their identifiers are used once more
    if n and not (0 < self._back <= first):
        self._sent = self.begun()
        self._back = first
    return n


def _search(self, pid, n):
    # How many identifiers from `pid` on no message in the store has, `n` at most.
    seq = self._store.next(0)
    while seq:
        if self._store.find(seq):
            n = min(n, (self._client._wire(self._store.pid) - pid) % 65535)
        seq = self._store.next(seq)
    return n


def _send(self, seq):
    store = self._store
    if self._aged:
        store.expire()
        if not store.find(seq):
            return  # too old; pump() goes on behind it
    if seq > store.sent:
        store.mark(seq + self._size - 1)  # may move what find() finds
    n = store.find(seq)
    op = 0x30 | store.flags
    if store.state == _RELEASED:
        self._fly(seq, 7)
        self._release()
        return
    if store.state == _AGAIN:
        store.sending(seq)
    elif seq <= self._sent:
        op |= 8
        self._client._n[_REDELIVERED] += 1
    self._fly(seq, 5 if op & 4 else 4)
    self._send_body(op, n)
    self._client._n[_SENT] += 1


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
    c._n[_REDELIVERED] += 1
    self._owed = True
    c._tx.put(0x6A if c.protocol[_DUP] & 1 else 0x62, self._store.pid)


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
