"""The way out: packets into a non-blocking stream.

Knows: fixed headers, PUBLISH laid down in a buffer, partial writes, how long a write may stand
still. Never knows: what a packet means, who may send what when.
An object beside the client, as receiver.py has one, because MicroPython finds the methods of an
object with few attributes much faster than those of one with many.

A packet is laid down with its body (variable header and payload) at index 5, and the
fixed header right before it: one buffer, one write, whatever the Remaining Length.
"""

from .packets import pack
from .port import const, mend_imports, sleep_ms, ticks_diff, ticks_ms

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any

_QOS = const(0x06)  # as in packets.py
_QUICK = const(16)  # messages of QoS 0
_NEVER = const(536870912)


class Sender:
    """One packet after another into the stream of `client`, since connect.py set it.

    buffer_size: bytes of topic and payload that go out in one write.
    """

    sock: "Any" = None
    poll: "Any"  # of the same stream; None where the port cannot poll it
    waiting = 0  # bytes of the packet under way that are not out yet
    sleep = True  # False in a timer's callback: what does not go out now stays
    topic = None  # the topic that lies in the buffer already
    count = 0  # so many messages of QoS 0 until Nagle's algorithm is on again; 0: it is
    pid: int  # of the next message of QoS 1 and 2, as on the wire
    limit: int  # ms that a write may stand still; for CONNECT, and so for TLS, what is left
    timeout: "Any"  # when the answer that is waited for is too late
    errno = 107  # what ended the connection; ENOTCONN
    large: "Any" = None  # f(sender, op, topic, msg) for what does not fit: large.py

    def __init__(self, client, buffer_size):
        self.client = client
        self.buf = bytearray(buffer_size + 5)

    def begin(self, limit):
        """A connection begins; limit: ms that a write may stand still, for CONNECT."""
        # What is an attribute already takes nothing from a heap that may be full, or locked in a
        # timer's callback, when it is needed.
        self.timeout = self.count = self.pid = 0
        self.topic = None
        self.sleep = True
        self.errno = 107
        self.time = ticks_ms()  # when the last byte went out
        self.limit = limit

    def publish(self, op, topic, msg):
        """Send a PUBLISH from the caller's buffers, in one write where it fits.

        op: first byte; with QoS 1 and 2 `pid`, as on the wire, is in it. Raises OSError.
        """
        if self.waiting:
            self.drain()
        i = 7 + len(topic)
        n = i + len(msg)
        if n + 2 > len(self.buf):
            return (self.large or self._load_large())(self, op, topic, msg)
        if topic is not self.topic:
            # It stays where it is for the next message, if nobody can change it meanwhile.
            self.topic = topic if isinstance(topic, bytes) else None
            self.buf[5] = len(topic) >> 8
            self.buf[6] = len(topic) & 255
            self.buf[7:i] = topic
        if op & _QOS:
            self.buf[i] = self.pid >> 8
            self.buf[i + 1] = self.pid & 255
            i += 2
            n += 2
        elif self.count:
            self.count -= 1
            self.push(0)
        self.buf[i:n] = msg
        i = pack(self.buf, op, n - 5)
        n -= i
        self.send(self.buf, i, n)

    def _load_large(self):
        try:
            mend_imports()
            from .large import send

            self.large = send
        except MemoryError:
            self.client._busy &= 2
            raise
        return send

    def push(self, count=_QUICK):
        """Switch Nagle's algorithm off, where the stream can; push(0): on, if it is time.

        It holds a small packet back until the one before it is acknowledged by TCP:
        good for a burst at QoS 0, 40 ms of delay where several packets or pieces go
        out and are waited for.
        """
        if not self.count:
            self.count = count
            try:
                self.sock.setsockopt(6, 1, 1 if count else 0)  # IPPROTO_TCP, TCP_NODELAY
            except Exception:  # a stream without it: do not ask again
                self.count = _NEVER

    def put(self, op, pid=0):
        """Send a packet of two bytes, or of four with `pid` (as on the wire)."""
        if self.waiting:
            self.drain()
        c = self.buf  # the room for the fixed header of a PUBLISH is enough
        c[0] = op
        c[1] = 2 if pid else 0
        c[2] = pid >> 8
        c[3] = pid & 255
        self.send(c, 0, c[1] + 2)

    def send(self, buf, off, n):
        """Send buf[off:off + n], all of it, or raise OSError. What waits must be out before:
        see drain()."""
        self.data = buf
        self.pos = off
        self.waiting = n
        if self.write() and self.sleep:
            self.drain()

    def write(self):
        """One attempt; returns how many bytes are left. After a short write the
        next one is of the same remaining bytes: TLS insists on that."""
        try:
            n = self.sock.write(self.data, self.pos, self.waiting)
        except BaseException:
            self.client._lost()
            raise
        if n:
            self.pos += n
            self.waiting -= n
            self.time = ticks_ms()  # when the last byte went out
        return self.waiting

    def drain(self):
        """Wait until the packet under way is out. Raises OSError ETIMEDOUT."""
        self.time = ticks_ms()
        try:
            while self.waiting:
                self.wait(4, 100)
                t = ticks_diff(ticks_ms(), self.time)
                if t > self.client.counters.stall:
                    self.client.counters.stall = t
                self.write()
                if ticks_diff(ticks_ms(), self.time) > self.limit:
                    raise OSError(110)
        except BaseException:
            self.client._lost()  # half a packet is out: nothing else can follow it
            raise

    def wait(self, event, timeout):
        """Return when the stream can be read (event 1, POLLIN) or written (4, POLLOUT),
        or after `timeout` milliseconds."""
        if self.poll:
            self.poll.modify(self.sock, event)
            for _ in self.poll.ipoll(timeout):
                pass
        else:
            sleep_ms(min(timeout, 1))
