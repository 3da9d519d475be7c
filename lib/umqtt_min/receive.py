"""The way in: bytes from a non-blocking stream, cut into packets.

Knows: a buffer, the fixed header, packets in pieces. Never knows: what a packet
means. A packet that does not fit is received by large.py.
"""

from time import ticks_ms

from micropython import const

from .errors import ECONNRESET
from .packet import length, move

_RUNGS = const(8)


class Receiver:
    """size: the longest packet in bytes that is received whole; client: whose it is."""

    def __init__(self, size, client):
        self.sock = None
        self.time = ticks_ms()  # when the last byte came
        self.heard = True  # something came since this was last cleared
        self.p = self.n = 0  # body of the packet that whole() found, and its length
        self.next = 0  # its end
        self.start = self.end = 0  # what has been read and not been taken
        self.big = None
        self.size = size
        self._client = client
        self._step = size // _RUNGS
        self.buf = bytearray(size + self._step)
        # Where reads may land: readinto() takes no offset and a slice would
        # allocate, so that views of the buffer are made once, one per rung.
        mv = memoryview(self.buf)
        self.rungs = [mv[i * self._step :] for i in range(_RUNGS + 1)]

    def open(self, sock):
        """Begin with a new stream, None when it is closed."""
        self.sock = sock
        self.big = None
        self._client.piece = 0
        self.start = self.end = self.next = 0
        self.heard = True
        self.time = ticks_ms()

    def whole(self):
        """The first byte of the packet at the head of the buffer, 0 if it is not whole."""
        p = self.start
        n = self.end - p
        if n < 2 or self.big:
            return 0
        n = self.buf[p + 1]
        if self.buf[p] < 16:
            self._client._bad("packet type 0 [MQTT 3.1.1, 2.2.1]")
        if n < 128:
            p += 2
        else:
            n = length(self.buf, p + 1, self.end)
            if n < 0:
                return 0 if n == -1 else self._client._bad("Remaining Length")
            p += 3 if n < 16384 else 4 if n < 2097152 else 5
        if p + n > self.end:
            return self._part(p, n)
        self.p = p
        self.n = n
        self.next = p + n
        return self.buf[self.start]

    def _part(self, p, n):
        # A packet that is not whole yet. One that cannot become whole here is
        # received apart, if it is a PUBLISH.
        if p - self.start + n > self.size:
            if self.buf[self.start] >> 4 != 3:
                self._client._bad("packet of %d bytes" % n)
            from .large import Large

            Large(self._client, p, n)
        return 0

    def fill(self):
        """Read what is there behind what is left; returns 0 if nothing came. OSError."""
        if self.big:
            return self.big.more()
        n = 0
        if self.start == self.end:
            self.start = self.end = 0
        else:
            n = self._align()
        n = self.read(self.rungs[n])
        self.end += n
        return n

    def read(self, view):
        """Read into `view`; returns how much, 0 if nothing came. OSError at the end."""
        view = self.sock.readinto(view)  # how many, from here on
        if view:
            self.heard = True
            self.time = ticks_ms()
            return view
        if view is None:
            return 0
        raise self._client._lost(OSError(ECONNRESET))

    def _align(self):
        # Move the beginning of a packet so that it ends where a view begins;
        # returns that view's number. A packet in two reads is rare: bytes will do.
        n = self.end - self.start
        g = (n + self._step - 1) // self._step
        d = g * self._step - self.end
        if d:
            move(self.buf, self.start, self.end, d)
            self.start += d
            self.end += d
        return g
