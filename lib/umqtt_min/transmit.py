"""The way out: one packet after another into a non-blocking stream.

Knows: a buffer, partial writes, how long a write may stand still. Never knows:
who may send what when. State of its own, because MicroPython finds the methods
of an object with few attributes much faster than those of one with many.
"""

from time import ticks_diff, ticks_ms

from .errors import ETIMEDOUT
from .packet import BODY, body, header
from .stream import prompt

publish_large = None


def _load():
    # A name of the module: a local one would make the caller's frame too large.
    global publish_large
    from .large import publish as publish_large


class Transmitter:
    """size: bytes of topic and payload that go out in one write; limit: ms that a
    write may stand still; counters: of the client; failed: called when the stream
    is broken, before the OSError passes on."""

    def __init__(self, size, limit, counters, failed):
        self.buf = bytearray(size + BODY)
        self.room = size - 4
        self.sock = None
        self.wait = None  # stream.Waiter of the same stream
        self.time = ticks_ms()  # at the end of the last packet
        self.left = 0  # bytes of the packet under way that are not out yet
        self.nagle = True  # as sockets are; see prompt()
        self.patient = True  # False in a timer's callback: what does not go out now stays
        self._off = 0
        self._out = self.buf
        self._ctl = bytearray(4)
        self._limit = limit
        self._counters = counters
        self._failed = failed

    def publish(self, op, topic, pid, msg):
        """Send a PUBLISH from the caller's buffers, in one write where it fits.

        op: first byte; pid: as on the wire, 0 at QoS 0. Raises OSError.
        """
        if self.left:
            self.drain()
        if len(topic) + len(msg) > self.room:
            return self._publish_large(op, topic, pid, msg)
        pid = body(self.buf, topic, pid, msg)  # the end of it from here on
        op = header(self.buf, op, pid - BODY)
        pid -= op
        self.send(self.buf, op, pid)

    def _publish_large(self, op, topic, pid, msg):
        if not publish_large:
            _load()
        publish_large(self, op, topic, pid, msg)  # type: ignore[misc]  # no longer None

    def prompt(self):
        """Switch Nagle's algorithm off for this connection, where the stream can.

        It holds a small packet back until the one before it is acknowledged by TCP:
        good for a burst at QoS 0, 40 ms of delay where several packets or pieces go
        out and are waited for.
        """
        if self.nagle:
            self.nagle = False
            prompt(self.sock)

    def control(self, op, pid):
        """Send a packet of two bytes, or of four with `pid` (as on the wire)."""
        if self.left:
            self.drain()
        c = self._ctl
        c[0] = op
        if pid:
            c[1] = 2
            c[2] = pid >> 8
            c[3] = pid & 255
            self.send(c, 0, 4)
        else:
            c[1] = 0
            self.send(c, 0, 2)

    def send(self, buf, off, n):
        """Send buf[off:off + n], all of it, or raise OSError."""
        if self.left:
            self.drain()
        self._out = buf
        self._off = off
        self.left = n
        if self.write() and self.patient:
            self.drain()
        self.time = ticks_ms()

    def write(self):
        """One attempt; returns how many bytes are left. After a short write the
        next one is of the same remaining bytes: TLS insists on that."""
        try:
            n = self.sock.write(self._out, self._off, self.left)
        except BaseException:
            self._failed()
            raise
        if n:
            self._off += n
            self.left -= n
        return self.left

    def drain(self):
        """Wait until the packet under way is out. Raises OSError ETIMEDOUT."""
        t = ticks_ms()
        while self.left:
            n = self.left
            self.wait.writable(100)
            stall = ticks_diff(ticks_ms(), t)
            if stall > self._counters.stall:
                self._counters.stall = stall
            if self.write() != n:
                t = ticks_ms()
            elif stall > self._limit:
                self._failed()
                raise OSError(ETIMEDOUT)
