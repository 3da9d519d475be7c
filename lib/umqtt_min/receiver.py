"""The way in: bytes from a non-blocking stream, cut into packets, each handed to who handles it;
and the wait for an answer.

Knows: fixed headers, partial reads, PUBACK and PINGRESP. Never knows: what becomes of a message
(incoming.py), of what is in flight (session.py).
Loaded with the first callback, store, keep-alive, or look at what has come: who publishes at QoS 0
and never looks does not pay for it.
"""

from .exception import MQTTException
from .port import const, mend_imports, ticks_add, ticks_diff, ticks_ms

_TYPING = const(0)  # see client.py
if _TYPING:
    from typing import Any

# As in packets.py
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_PUBREC = const(0x50)
_PUBCOMP = const(0x70)
_PINGREQ = const(0xC0)
_PINGRESP = const(0xD0)
_TYPE = const(0xF0)
_RETAIN = const(0x01)
_QOS_1 = const(0x02)
_QOS = const(0x06)
_ROW_LITTLE = const(4)

_ENDS = const(2)
_MAIN = const(1)  # as in client.py

# As in errors.py
_PROTOCOL = const(16)
_TIMEOUT = const(17)

_RUNGS = const(4)
_AHEAD = const(3)  # bytes of the next packet that wait_msg() reads with the one at the head
_FLOOD = const(64)  # packets that one call handles before it reads no more
_MOST_PINGS = const(28)  # PINGREQ without an answer, of which is known who sent them


class Receiver:
    """Bytes from the stream, cut into packets, for `client`, since connect.py set it.

    buffer_size: the longest packet in bytes that is received whole.

    Where reads may land: readinto() takes no offset and a slice would allocate, so that
    views of the buffer are made once, one per rung of `step` bytes. The packet at the head
    begins below the second rung, so that `buffer_size` bytes of it end below the last but one.
    One view more begins at the fourth byte: what follows the beginning of a packet that
    wait_msg() has read ahead lands right behind that.
    """

    incoming: "Any" = None  # the incoming.Incoming: see messages()
    waits: "Any" = None  # called by wait_msg() once a second at least
    milliseconds: "Any" = None  # validate.milliseconds(), from the first flush(timeout) on

    def __init__(self, client, buffer_size):
        self.client = client
        self.tx = client._tx
        # 25 attributes: of 29 places, and what is looked at most is one of them. With 22 the
        # table (of 23) would be full, and each call of a method half as slow again.
        self.alive: "Any" = None  # the keepalive.KeepAlive
        # What reads in place of this: the large.Large that is on its way in, or
        # incoming.Answers that go out before.
        self.due: "Any" = None
        self.waiting = 0  # packet id, as on the wire, whose acknowledgement somebody waits for
        self.single = False  # stop after one message
        self.alone: "Any" = False  # an acknowledgement does not wait for those of other messages
        self.step = buffer_size // _RUNGS
        self.buf = bytearray((_RUNGS + 2) * self.step)
        view = memoryview(self.buf)
        self.target = [view]
        while len(self.target) < _RUNGS + 2:
            view = view[self.step :]
            self.target.append(view)
        self.behind = self.target[0][_AHEAD:]
        self.plain = min(127, _RUNGS * self.step - 2)  # longest body that peek() needs no look at
        self.begin()

    def begin(self):
        """A connection begins.

        What is an attribute already takes nothing from a heap that may be full, or locked in a
        timer's callback, when it is needed.
        """
        self.ended = 0  # bits: a packet has been handled, and one that ends wait_msg()
        self.start = self.end = 0  # what has been read and not been taken
        self.pos = self.n = self.next = 0  # see peek()
        self.code = 0  # first byte of the acknowledgement waited for, when it has come
        self.message = 0  # first byte of the last PUBLISH delivered
        self.pings = 0  # PINGREQ sent and not answered, those of the keep-alive too
        self.asked = 0  # bit n is set: the answer to the one after n others is for the application
        self.request = None  # when the PINGREQ was sent since which nothing came
        self.time = ticks_ms()  # when the last byte came

    # Packets

    def peek(self):
        """The first byte of the packet at the head of the buffer, 0 if it is not whole.

        Then `pos` is where its body begins, `n` how long that is, `next` its end; 0: that is not
        known yet.
        """
        if self.next > self.start:  # it was looked at
            return self.buf[self.start] if self.next <= self.end else 0
        p = self.start + 2
        if p > self.end:  # as it is while a large.Large is on its way in
            self.next = 0
            return 0
        self.pos = p
        self.n = self.buf[p - 1]
        self.next = p = p + self.n
        if self.n > self.plain or self.buf[self.start] < 16:
            return self.measure(self.start + 1)
        if p <= self.end:
            return self.buf[self.start]
        return 0

    def measure(self, p):
        """See peek(), for a Remaining Length of more than one byte, which begins at `p`, for what
        does not fit into the buffer, and for what is malformed."""
        n = shift = 0
        while True:
            if p >= self.end:
                self.next = 0
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
            return self.messages().on_packet(0)  # it is malformed
        if p <= self.end:
            return self.buf[self.start]
        if p - self.start > _RUNGS * self.step:
            self.messages().on_packet(0)  # it is received apart, if it is a PUBLISH
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

        exact: no message is read beyond the packet at the head, for programs that poll the socket.
        """
        if self.due:
            return self.due.read()
        i = self.end - self.start
        n = 65536
        if exact:
            # Programs of umqtt.simple poll the socket, and count on one message for each call.
            # So no whole message may stay in the buffer, which wakes nobody, and none may be
            # handed out beside another one. 4 bytes have an answer, and no PUBLISH. Of the packet
            # behind the one at the head 3 bytes come with it: they tell its length, so that one
            # read takes it, and the rest still wakes who polls. Only PINGRESP is not longer. It
            # is left in the socket where the application waits for one.
            n = self.next - self.end
            if n < 1:  # its length is not known yet
                n = 4 - i if i < 4 else 1
            if not self.asked:
                n += _AHEAD
        if i == _AHEAD:
            i = self.start
            if i:
                b = self.buf
                b[0] = b[i]
                b[1] = b[i + 1]
                b[2] = b[i + 2]
                self.start = 0
                self.end = _AHEAD
                self.pos -= i
                self.next -= i
            n = self.read(self.behind, n)
            self.end += n
            return n
        i = self.start // self.step
        if self.start == self.end:
            self.start = self.end = self.next = i = 0
        elif i:
            # The head of a packet, down to below the second rung.
            self.copy(0, i)
            i *= self.step
            self.start -= i
            self.end -= i
            self.pos -= i
            self.next -= i  # where it is not known it stays so
        i = (self.end + self.step - 1) // self.step
        n = self.read(self.target[i], n)
        if n and i * self.step != self.end:
            self.copy(self.end, i)
        self.end += n
        return n

    def copy(self, at, i):
        """What lies at rung `i` and above goes down to `at`."""
        self.buf[at : at + len(self.target[i])] = self.target[i]

    def ahead(self):
        """Handle the message whose first bytes wait_msg() has read ahead, if the rest is there:
        what pump() does, with fewer calls. Returns its first byte; 0: pump() has to go on."""
        i = self.start
        if self.end - i != _AHEAD:
            return 0
        b = self.buf
        n = b[i + 1]
        if (
            not 1 < n <= self.plain
            or b[i] & _TYPE != _PUBLISH
            or self.due
            or self.asked
            or self.tx.waiting
        ):
            return 0
        if i:
            b[0] = b[i]
            b[1] = n
            b[2] = b[i + 2]
            self.start = 0
        self.pos = 2
        self.n = n
        self.next = n = n + 2
        self.end = _AHEAD
        i = self.client.sock.readinto(self.behind, n)
        if not i:
            return 0  # pump() hears of it once more
        self.request = None
        self.time = ticks_ms()
        self.end = i = i + _AHEAD
        if i < n:
            return 0
        self.start = n
        self.message = 0
        self.ended = _ENDS
        self.alone = True
        (self.incoming or self.messages()).on_publish(b[0])
        if self.alive is not None and not self.tx.waiting:
            self.alive.check(1)
        if self.client._session is not None:
            self.client._session.pump()
        return self.message

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

    # The pump

    def pump(self, tick, exact=False):
        """Handle all that has arrived; in a tick it stops before a PUBLISH.

        exact: one message only, and no other is read, for wait_msg().
        Returns the first byte of the last PUBLISH delivered, 0 without one.
        """
        self.message = 0
        self.alone = exact or self.single or self.waiting
        op = 1  # 0: all that has arrived was looked at
        n = _FLOOD  # then nothing more is read: a flood must not keep the application for ever
        if self.tx.waiting:
            self.tx.write()
        # A tick leaves a PUBLISH where it is: in the socket, for whoever polls that.
        while not tick or not (
            self.tx.waiting
            or self.due
            or self.end > self.start
            and self.buf[self.start] & _TYPE == _PUBLISH
        ):
            op = self.peek()
            if op:
                self.start = self.next
                n -= 1
                if op & _TYPE == _PUBLISH:
                    self.ended = _ENDS
                    (self.incoming or self.messages()).on_publish(op)
                else:
                    if op != _PINGRESP or self.n:
                        self.on_ack(op)
                    self.ended |= _ENDS if op != _PINGRESP or self.answers() else 1
            elif not self.fill(tick or exact or self.waiting) or n <= 0:
                break
            if self.message and (exact or self.single) or self.waiting and self.code:
                break
        else:
            # What is read ahead hides no dead link: nothing more comes there.
            op = self.readable()
        if self.alive is not None and not self.tx.waiting:
            self.alive.check(op)
        if self.client._session is not None and not tick:
            self.client._session.pump()
        return self.message

    def readable(self):
        """1 if something can be read now, or nobody knows; else 0."""
        poll = self.tx.poll
        if not poll:
            return 1
        poll.modify(self.client.sock, 1)
        for _ in poll.ipoll(0):
            return 1
        return 0

    def idle(self, timeout):
        """Wait until something may be read, for `timeout` ms at most, and not longer than the
        keep-alive allows."""
        if timeout > 0 and not self.peek():
            self.tx.wait(1, min(timeout, 1000, self.client.keepalive * 125 or 1000))

    def on_ack(self, op):
        """A packet that is no PUBLISH is in, with the first byte `op`."""
        pid = 0
        if op == _PUBACK and self.n == 2:
            pid = self.buf[self.pos] << 8 | self.buf[self.pos + 1]
        if not pid:
            self.messages().on_packet(op)
        elif self.client._session is not None:
            self.client._session.on_ack(_PUBACK, pid)
        elif pid == self.waiting:
            self.code = op
        else:
            self.client.counters.unexpected += 1

    def ping(self, asked):
        """Send PINGREQ; asked: 1 if the application wants to hear of the answer, else 0."""
        if self.pings < _MOST_PINGS:
            self.asked |= asked << self.pings
        self.pings += 1
        self.client.counters.pings += 1
        self.tx.put(_PINGREQ)

    def messages(self):
        """The incoming.Incoming, which is loaded with the first callback, or with the first packet
        that needs it."""
        if self.incoming is None:
            try:
                mend_imports()
                from .incoming import Incoming

                self.incoming = Incoming(self.client)
            except MemoryError:
                if self.client._busy & 1:
                    self.client._lost()  # whoever has the stream cannot go on
                raise
        return self.incoming

    def bad(self, detail):
        """The broker broke the protocol [MQTT-4.8.0-1]: end the connection, raise MQTTException.
        detail: a statement or packet."""
        self.client._lost(1000 + _PROTOCOL)
        raise MQTTException(_PROTOCOL, detail)

    # Those who ask and wait

    def enter(self):
        """Take the stream for a packet; `client._busy &= 2` gives it back."""
        c = self.client
        if c._busy & 1 or c.sock is None:  # a timer of the application came in between
            c._raise()
        c._busy |= 1

    def ask(self):
        """See MQTTClient.ping()."""
        self.enter()
        self.ping(1)
        self.client._busy &= 2

    def next_pid(self):
        """A packet identifier that is not in flight, 1 to 65535 [MQTT-2.3.1-1, -2]."""
        c = self.client
        while True:
            pid = c.pid = c.pid % 65535 + 1
            if c._session is None or not c._session.uses(pid):
                return pid

    def wire(self, pid):
        """The value whose big-endian bytes are the packet identifier `pid` on the wire."""
        return pid >> 8 | (pid & 255) << 8 if self.client.protocol[_ROW_LITTLE] else pid

    def check_msg(self, exact):
        """See MQTTClient.check_msg(); exact: see pump()."""
        if self.client._busy or self.client.sock is None:
            self.client._raise()
        self.client._busy = _MAIN
        self.ended = 0
        try:
            exact = exact and self.ahead() or self.pump(False, exact)
        except BaseException:
            self.client._lost()
            raise
        self.client._busy = 0
        return exact or None

    def wait_msg(self):
        """Go on after a check_msg(True) that has brought no message: see MQTTClient.wait_msg()."""
        op = None
        # A packet has been handled, and nothing of one is left.
        ended = self.ended or self.start != self.end
        while not op and (not ended or self.start != self.end or self.due):
            self.idle(1000)
            if self.waits:
                self.waits()
            op = self.check_msg(True)
            ended |= self.ended & _ENDS
        return op

    def flush(self, timeout):
        """See MQTTClient.flush()."""
        c = self.client
        timeout = ticks_add(ticks_ms(), c._tmo if timeout is None else self._ms(timeout))
        while c._session is not None:
            if c.sock or c.inflight():  # else nothing is left to be waited for
                c.check_msg()
            if not c.inflight():
                break
            if ticks_diff(timeout, ticks_ms()) <= 0:
                return False
            self.idle(ticks_diff(timeout, ticks_ms()))
        return True

    def _ms(self, timeout):
        if self.milliseconds is None:  # an import statement takes heap each time
            from .validate import milliseconds

            self.milliseconds = milliseconds
        return self.milliseconds(self.client, timeout)

    def publish(self, name, msg, flags):
        """Publish at QoS 1 or 2 without a store; flags: QoS << 1 | retain. Returns the packet
        identifier when the last acknowledgement is in."""
        c = self.client
        if not self.tx.count:
            self.tx.push()  # it must not wait for the TCP ACK of what went before
        self.enter()
        pid = self.next_pid()
        self.tx.pid = self.wire(pid)
        # From here on the caller's buffers hold the message: after an error it is forgotten.
        c.counters.forgotten += 1
        self.tx.publish(_PUBLISH | flags & (_QOS | _RETAIN), name, msg)
        c.counters.sent += 1
        self.waiting = self.tx.pid
        self.tx.timeout = ticks_add(ticks_ms(), c._tmo)
        self.wait_for(_PUBACK if flags & _QOS_1 else _PUBCOMP)
        c.counters.forgotten -= 1
        c.counters.acked += 1
        return pid

    def wait_for(self, op):
        """Pump until the acknowledgement `op` of what `waiting` names is in, or the sender's
        `timeout` has come: MQTTException TIMEOUT; gives the stream back."""
        self.code = 0
        try:
            while self.code != op and ticks_diff(self.tx.timeout, ticks_ms()) > 0:
                self.idle(ticks_diff(self.tx.timeout, ticks_ms()))
                self.pump(False)
        except OSError:
            self.client._lost()
            if self.code != op:  # else it came with the end of the stream
                raise
        except BaseException:
            self.client._lost()
            raise
        if self.code != op and self.waiting:
            self._miss(op)
        self.client._busy = self.waiting = 0

    def _miss(self, op):
        # A method of its own, as in session.py: with it the frame above would be on the heap.
        pid = self.wire(self.waiting)
        self.client._busy = self.waiting = 0
        if op == _PUBCOMP and not self.code:
            op = _PUBREC
        raise MQTTException(_TIMEOUT, op, pid)
