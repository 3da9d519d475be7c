"""The way out and the way in: packets over a non-blocking stream.

Knows: fixed headers, PUBLISH laid down in a buffer, partial writes and reads, how long a
write may stand still. Never knows: what a packet means, who may send what when.
Two objects beside the client, because MicroPython finds the methods of an object with
few attributes much faster than those of one with many.

A packet is laid down with its body (variable header and payload) at index 5, and the
fixed header right before it: one buffer, one write, whatever the Remaining Length.
"""

from .packets import pack
from .port import const, sleep_ms, ticks_diff, ticks_ms

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any

_RUNGS = const(4)
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
    stop: "Any" = None  # what stops the timer of the keep-alive, while it runs

    def __init__(self, client, buffer_size):
        self.client = client
        self.buf = bytearray(buffer_size + 5)

    def publish(self, op, topic, msg):
        """Send a PUBLISH from the caller's buffers, in one write where it fits.

        op: first byte; with QoS 1 and 2 `pid`, as on the wire, is in it. Raises OSError.
        """
        if self.waiting:
            self.drain()
        i = 7 + len(topic)
        n = i + len(msg)
        if n + 2 > len(self.buf):
            return self.client._send_large(op, topic, msg)
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

    def begin(self, op, topic, rest):
        """Send the fixed header and the topic length of a PUBLISH that does not fit the buffer.

        topic, rest: bytes of the topic, and of what follows it.
        """
        self.topic = None
        self.push()  # it takes more than one write
        op = pack(self.buf, op, 2 + topic + rest)
        self.buf[5] = topic >> 8
        self.buf[6] = topic & 255
        self.send(self.buf, op, 7 - op)

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


class Receiver:
    """Bytes from the stream, cut into packets, for `client`, since connect.py set it.

    buffer_size: the longest packet in bytes that is received whole.

    Where reads may land: readinto() takes no offset and a slice would allocate, so that
    views of the buffer are made once, one per rung of `step` bytes. The packet at the head
    begins below the second rung, so that `buffer_size` bytes of it end below the last but one.
    """

    # What reads in place of this: the large.Large that is on its way in, or receive.Answers that
    # go out before. No entry of an instance until there is one: a full table makes all slow.
    due: "Any" = None
    start: int  # what has been read and not been taken, to `end`
    end: int
    request: "Any" = None  # when the PINGREQ was sent since which nothing came
    waiting = 0  # packet id, as on the wire, whose acknowledgement somebody waits for
    code: int  # first byte of that when it has come
    message: int  # first byte of the last PUBLISH delivered
    pings: int  # PINGREQ sent and not answered, those of the keep-alive too
    asked: int  # bit n is set: the answer to the one after n others is for the application
    ended = False  # a packet has come that ends wait_msg()
    single = False  # stop after one message
    exact = False  # wait_msg(): nothing is read beyond the packet at the head

    def __init__(self, client, buffer_size):
        self.client = client
        self.step = buffer_size // _RUNGS
        self.buf = bytearray((_RUNGS + 2) * self.step)
        view = memoryview(self.buf)
        self.target = [view]
        while len(self.target) < _RUNGS + 2:
            view = view[self.step :]
            self.target.append(view)

    def peek(self):
        """The first byte of the packet at the head of the buffer, 0 if it is not whole.

        Then `pos` is where its body begins, `n` how long that is, `next` its end.
        """
        p = self.start + 1
        n = shift = 0
        while True:
            if p >= self.end:  # as it is while a large.Large is on its way in
                return 0
            b = self.buf[p]
            p += 1
            n |= (b & 127) << shift
            shift += 7
            if b < 128:
                break
            if shift == 28 or self.buf[self.start] < 16:
                b = 0  # as a byte too many is
                break
        self.pos = p
        self.n = n
        self.next = p = p + n
        if not b and shift > 7 or self.buf[self.start] < 16:
            return self.client._receives().on_packet(0)  # it is malformed
        if p <= self.end:
            return self.buf[self.start]
        if p - self.start > _RUNGS * self.step:
            self.client._receives().on_packet(0)  # it is received apart, if it is a PUBLISH
        return 0

    def answers(self):
        """PINGRESP has come: whether it answers the application's ping(). The broker answers in
        the order of the PINGREQs."""
        if self.pings:
            self.pings -= 1
        asked = self.asked & 1
        self.asked >>= 1
        return asked == 1

    def fill(self, exact):
        """Read what is there behind what is left; returns 0 if nothing came. OSError.

        exact, or somebody waits: not beyond the packet at the head, for programs that poll the
        socket. 4 bytes first: what is answered to has no more, and every PUBLISH has.
        """
        if self.due:
            return self.due.read()
        n = 65536
        if exact or self.exact or self.waiting:
            n = self.end - self.start
            n = 4 - n if n < 4 else max(self.next - self.end, 1)
        i = self.start // self.step
        if self.start == self.end:
            self.start = self.end = i = 0
        elif i:
            # The head of a packet, down to below the second rung.
            self.buf[: len(self.target[i])] = self.target[i]
            i *= self.step
            self.start -= i
            self.end -= i
        i = (self.end + self.step - 1) // self.step
        n = self.read(self.target[i], n)
        if n and i * self.step != self.end:
            self.buf[self.end : self.end + len(self.target[i])] = self.target[i]
        self.end += n
        return n

    def read(self, buf, n):
        """Read into `buf`, `n` at most; returns how much, 0: nothing came. OSError at the end."""
        n = self.client.sock.readinto(buf, n)
        if n:
            self.request = None
            self.time = ticks_ms()  # when the last byte came
            return n
        if n is None:
            return 0
        raise OSError(self.client._lost(104))
