"""In-memory streams with the semantics of MicroPython's non-blocking sockets.

Knows: write/readinto/ready of a stream, how a network fails.
Must not know: packets; the client.

    net = Network(broker)                     # a connector: net(host, port, timeout_ms) -> stream
    client = MQTTClient(..., connector=net)
    net.max_write = 3                         # and so on: see Network
"""

POLLIN, POLLOUT, POLLHUP = 1, 4, 16
ECONNREFUSED, ECONNRESET = 111, 104


class Network:
    """Makes streams to one broker; what is set here holds for every stream, at once.

    max_write, max_read: most bytes that one call moves, 0: no limit.  Both may be a function.
    write_stalls, read_stalls: so many of the next calls give None.
    cut_after_write, cut_after_read: the link ends after so many more bytes; -1: never.
    black_hole: what is written gets lost, nothing can be read, nothing fails (half-open link).
    reset: the end shows as OSError(ECONNRESET) and not as end of stream.
    refuse: connecting raises OSError(ECONNREFUSED) so many times.
    hook: f(where) called at the start of every write and readinto ("write", "read") and at their
        end ("written", "done"): a timer's callback may come there.  It is never nested.
    """

    def __init__(self, broker):
        self.broker = broker
        self.max_write = self.max_read = 0
        self.write_stalls = self.read_stalls = 0
        self.cut_after_write = self.cut_after_read = -1
        self.black_hole = self.reset = False
        self.refuse = 0
        self.hook = None
        self.streams = []
        self._hooked = False

    def __call__(self, host, port, timeout_ms):
        """The connector."""
        if self.refuse:
            self.refuse -= 1
            raise OSError(ECONNREFUSED)
        stream = BrokerStream(self)
        self.streams.append(stream)
        return stream

    @property
    def stream(self):
        """The stream of the latest connection."""
        return self.streams[-1]

    def cut(self):
        """End the latest connection now, with what is under way lost."""
        self.stream.end()

    def call_hook(self, where):
        """Call the hook unless it is running."""
        if self.hook and not self._hooked:
            self._hooked = True
            try:
                self.hook(where)
            finally:
                self._hooked = False


def _limit(limit, n):
    limit = limit() if callable(limit) else limit
    return min(limit, n) if limit else n


class BrokerStream:
    """One connection to a StrictBroker."""

    def __init__(self, network):
        self.network = network
        self.conn = network.broker.accept()
        self.ended = False  # the link is cut
        self.closed = False  # the client closed
        self.blocking = True
        self.writes = []  # what each call of write offered, in bytes

    def end(self):
        """Cut the link."""
        self.ended = True
        self.conn.gone(False)

    def setblocking(self, flag):
        """Only non-blocking is served."""
        self.blocking = flag

    def settimeout(self, seconds):
        """0 is non-blocking."""
        self.blocking = seconds != 0

    def close(self):
        """The client closes."""
        self.closed = True
        self.conn.gone()

    def _check(self):
        if self.closed:
            raise OSError(9)  # EBADF: the client uses what it closed

    def write(self, buf, *where):
        """write(buf), write(buf, n), write(buf, off, n) -> count, None if nothing can go now."""
        net = self.network
        net.call_hook("write")
        view = memoryview(buf)
        if len(where) == 1:
            view = view[: where[0]]
        elif where:
            view = view[where[0] : where[0] + where[1]]
        self._check()
        self.writes.append(len(view))
        n = self._write(net, view)
        net.call_hook("written")
        return n

    def _write(self, net, view):
        if net.black_hole:
            return len(view)
        if self.ended or not self.conn.open:
            raise OSError(ECONNRESET)
        if net.write_stalls:
            net.write_stalls -= 1
            return None
        n = _limit(net.max_write, len(view))
        if net.cut_after_write >= 0:
            n = min(n, net.cut_after_write)
            net.cut_after_write -= n
        self.conn.feed(bytes(view[:n]))
        if net.cut_after_write == 0:
            net.cut_after_write = -1
            self.end()
            if not n:
                raise OSError(ECONNRESET)
        return n

    def readinto(self, buf, n=-1):
        """readinto(buf[, n]) -> count, None if nothing is there, 0 at the end."""
        net = self.network
        net.call_hook("read")
        self._check()
        n = self._read(net, buf, len(buf) if n < 0 else min(n, len(buf)))
        net.call_hook("done")
        return n

    def _read(self, net, buf, n):
        if net.black_hole:
            return None
        if self.ended:
            return self._over(net)
        if net.read_stalls:
            net.read_stalls -= 1
            return None
        n = _limit(net.max_read, n)
        if net.cut_after_read >= 0:
            n = min(n, net.cut_after_read)
        part = self.conn.take(n)
        if net.cut_after_read >= 0:
            net.cut_after_read -= len(part)
            if net.cut_after_read == 0:
                net.cut_after_read = -1
                self.end()
        if not part:
            return None if self.conn.open and not self.ended else self._over(net)
        memoryview(buf)[: len(part)] = part
        return len(part)

    def _over(self, net):
        if net.reset:
            raise OSError(ECONNRESET)
        return 0

    def ready(self, mask):
        """Events for poll: what of mask would not give None."""
        net = self.network
        if net.black_hole:
            return mask & POLLOUT
        if self.ended or not self.conn.open:
            return mask & (POLLIN | POLLOUT) | POLLHUP
        events = 0 if net.write_stalls else POLLOUT
        if self.conn.out and not net.read_stalls:
            events |= POLLIN
        return events & mask


class Echo:
    """A stream that acknowledges what is published to it and allocates nothing once made.

    For measuring what the client allocates.  Sees only PUBLISH, PUBREL and PINGREQ written by one
    call each; `push(packet)` prepares bytes to be read `times` times.
    """

    def __init__(self):
        self._answer = bytearray(4)
        self._pending = 0  # bytes of _answer to be read
        self._packet = b""
        self._view = memoryview(b"")
        self._times = 0
        self.written = 0  # bytes
        self.publishes = 0
        self.pings = 0

    def connect(self, host, port, timeout_ms):
        """The connector: accepts any CONNECT."""
        self.say(0x20, 2, 0, 0)
        return self

    def say(self, a, b, c, d):
        """Let the next bytes read be these four."""
        answer = self._answer
        answer[0] = a
        answer[1] = b
        answer[2] = c
        answer[3] = d
        self._pending = 4

    def push(self, packet, times=1):
        """Let packet be read that many times."""
        self._packet = packet
        self._times = times

    def setblocking(self, flag):
        """Never blocks."""

    def close(self):
        """Nothing is open."""

    def ready(self, mask):
        """Events for poll."""
        return mask if self._pending or self._times else mask & POLLOUT

    def write(self, buf, off=0, n=-1):
        """write(buf, off, n): takes all of it."""
        # Every function here keeps locals and arguments few: a frame of more than 11 words would
        # come from the heap and hide what the client takes.
        if n < 0:
            n = len(buf)
        self.written += n
        op = buf[off] >> 4
        if op == 3:
            self._publish(buf, off)
        elif op == 6:
            self._acknowledge(buf, off + 2, 0x70)
        elif op == 12:
            self.pings += 1
            self._answer[0] = 0xD0
            self._answer[1] = 0
            self._pending = 2
        return n

    def _publish(self, buf, off):
        self.publishes += 1
        op = buf[off] & 6
        if not op:
            return
        off += 1
        while buf[off] & 128:
            off += 1
        off += 3 + (buf[off + 1] << 8 | buf[off + 2])
        self._acknowledge(buf, off, 0x40 if op == 2 else 0x50)

    def _acknowledge(self, buf, i, op):
        answer = self._answer
        answer[0] = op
        answer[1] = 2
        answer[2] = buf[i]
        answer[3] = buf[i + 1]
        self._pending = 4

    def readinto(self, buf, n=-1):
        """What was prepared, the acknowledgement first."""
        if self._pending:
            return self._read_answer(buf)
        if not self._times:
            return None
        self._times -= 1
        n = len(self._packet)
        buf[:n] = self._packet
        return n

    def _read_answer(self, buf):
        n = self._pending
        self._pending = 0
        if n == 4:
            buf[3] = self._answer[3]
            buf[2] = self._answer[2]
        buf[1] = self._answer[1]
        buf[0] = self._answer[0]
        return n
