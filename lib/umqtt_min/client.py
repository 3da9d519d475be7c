"""MQTTClient: the API, and the pumps that move packets between it and the stream.

Knows: packets, the stream, who may call what when. Never knows: flash, the
layout of the store; what is in flight is session.py's where there is a store.

One flag, `_busy`, guards stream, parser and store. A keep-alive tick that finds
it set does nothing: the pump that holds it looks at the clock itself.
"""

import time

from micropython import const

from .errors import BUSY, PROTOCOL, TIMEOUT, MQTTException
from .packet import MAX_LENGTH, body, header, length, move
from .protocol import ID_MAX, LITTLE, LOGIN, MQTT_3_1_1, STRICT, TOPIC_MAX
from .topics import check_name

_BODY = const(5)
_RUNGS = const(8)
_ENOTCONN = const(107)
_ECONNRESET = const(104)
_ETIMEDOUT = const(110)

# What _busy says: who has the stream.
_FREE = const(0)
_MAIN = const(1)
_CALLBACK = const(2)  # the application's callback runs: the receive buffer is in use
_TICK = const(3)


class Counters:
    """What happened since the client was made; all int, `last_error` as well."""

    connects = 0
    closed = 0  # connections that ended without disconnect()
    sent = 0  # PUBLISH sent, first time or again
    acked = 0  # QoS 1 and 2 publishes acknowledged to the end
    redelivered = 0  # PUBLISH or PUBREL sent again
    received = 0  # messages given to the application
    duplicates = 0  # QoS 2 messages that had been received before
    oversize = 0  # messages longer than max_message, acknowledged unread
    unexpected = 0  # acknowledgements of something unknown
    forgotten = 0  # QoS 1 and 2 publishes given up without a store
    pings = 0
    lost_sessions = 0
    stall = 0  # longest time without progress in a write, in ms
    last_error = 0  # errno, or reason of an MQTTException + 1000


def _bytes(s):
    return s.encode() if isinstance(s, str) else s


class MQTTClient:
    """An MQTT client; a superset of umqtt.simple's.

    client_id: str or bytes, of the length that the protocol allows;
    server: host name or address; port: 0 for 1883, or 8883 with TLS;
    user, password: str or bytes; keepalive: seconds, 0 to 65535 (0: none);
    ssl: an SSLContext, or True for one that checks certificate and host name;
    store: FileStore, FlashStore or RAMStore: QoS 1 and 2 publishes are in it
    before they are sent and are sent again until acknowledged;
    timer: a machine.Timer for the keep-alive; None: Timer(-1) where there is one;
    False: none; protocol: MQTT_3_1_1 or a row of legacy.py;
    buffer_size: bytes, 64 or more, of each of the two packet buffers;
    timeout: seconds that an answer may take and that a write may stand still;
    window: publishes in flight at most, 1 to 255;
    max_message: largest message in bytes that a callback is given;
    connector: f(host, port, timeout_ms) -> non-blocking stream, instead of TCP.
    Raises ValueError for arguments out of range.
    """

    def __init__(
        self,
        client_id,
        server,
        port=0,
        user=None,
        password=None,
        keepalive=0,
        ssl=None,
        ssl_params=None,
        *,
        store=None,
        timer=None,
        protocol=MQTT_3_1_1,
        buffer_size=256,
        timeout=30,
        window=16,
        max_message=32768,
        connector=None
    ):
        if not 0 <= keepalive <= 65535:
            raise ValueError("keepalive: 0 to 65535 seconds")
        if password is not None and user is None:
            raise ValueError("password without user [MQTT-3.1.2-22]")
        if user is not None and not protocol[LOGIN]:
            raise ValueError("this protocol version has no user name")
        if buffer_size < 64:
            raise ValueError("buffer_size: 64 bytes or more")
        self.client_id = _bytes(client_id)
        if protocol[ID_MAX] and not 0 < len(self.client_id) <= protocol[ID_MAX]:
            raise ValueError("client_id: 1 to %d bytes" % protocol[ID_MAX])
        self.server = server
        self.port = port or (8883 if ssl else 1883)
        self.user = _bytes(user)
        self.pswd = _bytes(password)
        self.keepalive = keepalive
        self.ssl = ssl
        self.ssl_params = ssl_params
        self.protocol = protocol
        self.timeout = timeout
        self.max_message = max_message
        self.connector = connector
        self.timer = timer
        self.store = store
        self.counters = Counters()
        self.cb = None
        self._views = None
        self.piece = 0
        self.on_oversize = None  # f(bytes): a message beyond max_message was drained
        self.sock = None
        self.session_present = None
        self.pid = 0
        self.lw_topic = None
        self.lw_msg = b""
        self.lw_flags = 0
        self._busy = _FREE
        self._tmo = int(timeout * 1000)
        self._block = True  # publish(wait=...), on its way down
        self._error = _ENOTCONN
        self._topic = None  # the last topic to publish to that was checked
        self._heard = None  # the last topic of a message that was checked
        self._inbox = store  # incoming QoS 2 ids; in RAM where there is no store
        self._keep = None
        self._big = None  # a message longer than the buffer, on its way in
        self._waiting = 0  # packet id whose acknowledgement somebody waits for
        self._delivered = 0  # the first byte of the last PUBLISH that was delivered
        self._ack = 0  # the acknowledgement that came: first byte of the packet
        self._code = 0  # SUBACK: the return code
        self._tx = bytearray(buffer_size + _BODY)
        self._room = buffer_size - 4  # for topic and payload of a PUBLISH
        self._tb = self._tx
        self._to = self._tn = 0
        self._ctl = bytearray(4)
        self._step = buffer_size // _RUNGS
        self._rx = bytearray(buffer_size + self._step)
        # Where reads may land: readinto() takes no offset and a slice would
        # allocate, so that views of the buffer are made once, one per rung.
        mv = memoryview(self._rx)
        self._rungs = [mv[i * self._step :] for i in range(_RUNGS + 1)]
        self._reset()
        self._session = None
        if store:
            from .session import Session

            self._session = Session(self, store, window)

    # The connection

    def set_callback(self, f):
        """f(topic, msg) is called with bytes for each message received."""
        self.cb = f

    def set_view_callback(self, f):
        """f(topic, payload, flags, left) is called instead, and nothing is copied.

        topic, payload: memoryviews of the receive buffer, good until f returns;
        flags: retain | QoS << 1 | DUP << 3; left: bytes of the payload still to come.
        A message longer than the buffer comes in pieces: `client.piece` is then
        where the piece stands in the payload, and left is 0 with the last one; after
        a lost connection it begins again at 0. It is acknowledged after the last.
        """
        self._views = f

    def set_last_will(self, topic, msg, retain=False, qos=0):
        """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

        topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
        """
        topic = _bytes(topic)
        if not 0 <= qos <= 2:
            raise ValueError("qos: 0, 1 or 2")
        check_name(topic, self.protocol[TOPIC_MAX])
        self.lw_topic = topic
        self.lw_msg = _bytes(msg)
        self.lw_flags = 4 | qos << 3 | (0x20 if retain else 0)

    @property
    def connected(self):
        """True between connect() and the end of the connection."""
        return self.sock is not None

    @property
    def inflight(self):
        """Messages in the store whose acknowledgement has not come yet."""
        return self.store.live - self.store.held if self.store else 0

    def connect(self, clean_session=None, timeout=None):
        """Connect, log in, and take up the session.

        clean_session: None means True without a store, False with one;
        timeout: seconds for the whole of it, None: the client's timeout.
        Returns True if the broker still had the session (MQTT 3.1.1).
        Raises OSError (network), MQTTException (refused, no CONNACK, broken
        protocol), ValueError (empty client id with a session [MQTT-3.1.3-7]).
        """
        from .connect import connect

        if self._busy > _MAIN:
            raise MQTTException(BUSY)
        if clean_session is None:
            clean_session = self.store is None
        if not (clean_session or self.client_id):
            raise ValueError("an empty client_id needs clean_session=True [MQTT-3.1.3-7]")
        self._close()
        self._busy = _MAIN
        try:
            connect(self, clean_session, self._tmo if timeout is None else int(timeout * 1000))
        except BaseException as e:
            self._lost(e)
            raise
        self._busy = _FREE
        return bool(self.session_present)

    def disconnect(self):
        """Send DISCONNECT and close; does nothing without a connection."""
        if self._busy > _MAIN:
            raise MQTTException(BUSY)
        if self.sock:
            self._busy = _MAIN
            try:
                self._control(0xE0, 0)
            except OSError:
                pass  # it is closed all the same
            self._close()

    def _close(self):
        sock = self.sock
        self.sock = None
        self._busy = _FREE
        if self._keep:
            self._keep.stop()
        self._reset()
        if sock:
            try:
                sock.close()
            except OSError:
                pass

    def _reset(self):
        # The state of a stream that has neither sent nor received anything.
        self._s = self._e = self._p = self._n = self._next = 0
        self._tn = 0
        self._big = None
        self._ping = False
        self._tx_t = self._rx_t = time.ticks_ms()

    def _lost(self, e):
        # The connection ends because of `e`; who calls raises it.
        c = self.counters
        if isinstance(e, OSError):
            self._error = c.last_error = e.args[0] if e.args else _ECONNRESET
        elif isinstance(e, MQTTException):
            c.last_error = 1000 + e.reason
            self._error = _ECONNRESET
        if self.sock:
            c.closed += 1
        self._close()
        return e

    def _failed(self):
        # As _lost(), where a name for the exception would cost a frame from the heap.
        if self.sock:
            self._lost(OSError(_ECONNRESET))
        self._busy = _FREE

    def _bad(self, what):
        # The broker broke the protocol [MQTT-4.8.0-1]: `what` is a statement or packet.
        raise self._lost(MQTTException(PROTOCOL, what))

    # Sending

    def publish(self, topic, msg, retain=False, qos=0, wait=True):
        """Publish a message.

        topic, msg: bytes-like or str; qos: 0, 1 or 2; wait: with QoS 1 and 2,
        wait for the acknowledgement (at most `timeout` seconds); wait=False
        returns as soon as the message is in the store, connected or not.
        Returns the packet identifier, None at QoS 0. Raises OSError, ValueError,
        MQTTException (.stored tells whether the store will send it again).
        """
        if isinstance(topic, str):
            topic = topic.encode()
        if isinstance(msg, str):
            msg = msg.encode()
        if topic is not self._topic:
            self._check(topic)
        len(msg)  # TypeError here, not with the stream in hand
        if qos:
            self._block = wait
            qos = qos << 1 | (1 if retain else 0)
            return self._publish_acked(topic, msg, qos)
        self._publish0(topic, msg, 0x31 if retain else 0x30)

    def _check(self, topic):
        # bytes do not change: what was checked once need not be checked again.
        check_name(topic, self.protocol[TOPIC_MAX])
        if isinstance(topic, bytes):
            self._topic = topic

    def _publish0(self, topic, msg, op):
        b = self._enter()
        self._put(op, topic, 0, msg)
        self._busy = b
        self.counters.sent += 1

    def _put(self, op, topic, pid, msg):
        # One PUBLISH from the caller's buffers: one write where it fits.
        if self._tn:
            self._drain()
        if len(topic) + len(msg) > self._room:
            return self._put_large(op, topic, pid, msg)
        pid = body(self._tx, topic, pid, msg)  # the end of it from here on
        op = header(self._tx, op, pid - _BODY)
        pid -= op
        self._send(self._tx, op, pid)

    def _put_large(self, op, topic, pid, msg):
        tx = self._tx
        n = len(topic)
        total = 2 + n + (2 if pid else 0) + len(msg)
        if total > MAX_LENGTH or n > 65535:
            self._busy = _FREE
            raise ValueError("packet of %d bytes" % total)
        i = header(tx, op, total)
        tx[_BODY] = n >> 8
        tx[_BODY + 1] = n & 255
        self._send(tx, i, _BODY + 2 - i)
        self._send(topic, 0, n)
        if pid:
            tx[0] = pid >> 8
            tx[1] = pid & 255
            self._send(tx, 0, 2)
        self._send(msg, 0, len(msg))

    def _enter(self):
        # Take the stream for a packet; returns what `_busy` goes back to.
        if self._busy & 1:  # _MAIN or _TICK: a timer of the application came in between
            raise MQTTException(BUSY)
        if self.sock is None:
            raise OSError(self._error)
        b = self._busy
        self._busy = _MAIN
        return b

    def _send(self, buf, off, n):
        # All of buf[off:off + n], or an OSError and the connection closed.
        if self._tn:
            self._drain()
        self._tb = buf
        self._to = off
        self._tn = n
        if self._write() and self._busy != _TICK:
            self._drain()
        self._tx_t = time.ticks_ms()

    def _write(self):
        # One attempt; returns how many bytes are left. After a short write the
        # next one is of the same remaining bytes: TLS insists on that.
        try:
            n = self.sock.write(self._tb, self._to, self._tn)
        except BaseException:
            self._failed()
            raise
        if n:
            self._to += n
            self._tn -= n
        return self._tn

    def _drain(self):
        t = time.ticks_ms()
        while self._tn:
            n = self._tn
            self._wait.writable(100)
            stall = time.ticks_diff(time.ticks_ms(), t)
            if stall > self.counters.stall:
                self.counters.stall = stall
            if self._write() != n:
                t = time.ticks_ms()
            elif stall > self._tmo:
                raise self._lost(OSError(_ETIMEDOUT))

    def _control(self, op, pid):
        # A packet of two or four bytes.
        if self._tn:
            self._drain()
        c = self._ctl
        c[0] = op
        c[1] = 0
        if pid:
            if self.protocol[LITTLE]:
                pid = pid >> 8 | (pid & 255) << 8
            c[1] = 2
            c[2] = pid >> 8
            c[3] = pid & 255
        self._send(c, 0, 4 if pid else 2)

    def _wire(self, pid):
        # The value whose big-endian bytes are the packet identifier on the wire.
        return pid >> 8 | (pid & 255) << 8 if self.protocol[LITTLE] else pid

    def _next_pid(self):
        # 1 to 65535, none that is in flight [MQTT-2.3.1-1, -2].
        while True:
            pid = self.pid = self.pid % 65535 + 1
            if not (self._session and self._session.uses(pid)):
                return pid

    def _publish_acked(self, topic, msg, flags):
        if not 2 <= flags <= 5:
            raise ValueError("qos: 0, 1 or 2")
        if self._session:
            return self._session.publish(topic, msg, flags)
        if not self._block or self._busy == _CALLBACK:
            raise ValueError("no acknowledgement can be awaited here: give the client a"
                             " store, such as store=RAMStore()")
        self._enter()
        self._next_pid()
        pid = self._wire(self.pid)
        # From here on the caller's buffers hold the message: after an error it is forgotten.
        self.counters.forgotten += 1
        flags |= 0x30
        self._put(flags, topic, pid, msg)
        return self._acked(flags)

    def _acked(self, flags):
        # The message that has just been sent is acknowledged to its end.
        self.counters.sent += 1
        flags = 0x40 if flags & 2 else 0x70
        try:
            flags = self._await(self.pid, flags)
        except BaseException:
            self._failed()
            raise
        self._busy = _FREE
        if not flags:
            raise MQTTException(TIMEOUT, None, self.pid)
        self.counters.forgotten -= 1
        self.counters.acked += 1
        return self.pid

    def _await(self, pid, ack):
        # Pump until the acknowledgement `ack` of `pid` is in; False: not in time.
        end = time.ticks_add(time.ticks_ms(), self._tmo)
        self._waiting = pid
        self._ack = 0
        while True:
            self._pump(False)
            if self._ack == ack:
                break
            pid = time.ticks_diff(end, time.ticks_ms())
            if pid <= 0:
                break
            self._idle(pid)
        self._waiting = 0
        return self._ack == ack

    def ping(self):
        """Send PINGREQ; the answer is awaited by the keep-alive, not here."""
        b = self._enter()
        self._pingreq()
        self._busy = b

    def _pingreq(self):
        self.counters.pings += 1
        self._control(0xC0, 0)

    def subscribe(self, topic, qos=0):
        """Subscribe and wait for SUBACK; messages may come before it.

        topic: one filter (str or bytes), or a list of (filter, qos).
        Returns the QoS granted, or a list of them. Raises MQTTException
        SUBSCRIBE_REFUSED with the filter as detail, TIMEOUT; OSError; ValueError.
        """
        from .subscribe import subscribe

        return subscribe(self, topic, qos)

    def unsubscribe(self, topic):
        """Unsubscribe from one filter or a list of them and wait for UNSUBACK."""
        from .subscribe import unsubscribe

        unsubscribe(self, topic)

    # Receiving

    def check_msg(self):
        """Handle what has arrived, send what may be sent, keep the link alive;
        never waits for the broker.

        Returns the first byte of the last PUBLISH delivered, None if there was none.
        Raises OSError, MQTTException; what the callback raises.
        """
        op = self._enter()
        if op:
            self._busy = op
            raise MQTTException(BUSY)
        try:
            op = self._pump(False)
        except BaseException:
            self._failed()
            raise
        self._busy = _FREE
        return op or None

    def wait_msg(self):
        """Wait, without limit, until a message has been delivered.

        A link that is dead ends it (OSError) where there is a keep-alive.
        """
        while True:
            op = self.check_msg()
            if op:
                return op
            self._idle(1000)

    def flush(self, timeout=None):
        """Wait until all publishes are acknowledged.

        timeout: seconds, None: the client's. Returns True, or False if it was
        too short. Raises OSError when the connection ends.
        """
        ms = self._tmo if timeout is None else int(timeout * 1000)
        end = time.ticks_add(time.ticks_ms(), ms)
        while True:
            self.check_msg()
            if not self.inflight:
                return True
            left = time.ticks_diff(end, time.ticks_ms())
            if left <= 0:
                return False
            self._idle(left)

    def confirm(self, seq):
        """The pipeline has made all up to sequence number `seq` durable: readings
        held for that are released. Returns how many."""
        return self._guarded(self.store.confirm, seq)

    def republish(self, first, last):
        """Send the held readings `first` to `last` once more, as new deliveries.
        Returns how many."""
        return self._guarded(self._session.again, first, last)

    def _guarded(self, f, *args):
        # No tick may touch the store meanwhile.
        if self._busy & 1:
            raise MQTTException(BUSY)
        b = self._busy
        self._busy = _MAIN
        try:
            return f(*args)
        finally:
            self._busy = b

    def _idle(self, ms):
        # Until something may be read, and not longer than the keep-alive allows.
        if self.keepalive:
            ms = min(ms, self.keepalive * 125)
        self._wait.readable(min(ms, 1000))

    def _pump(self, tick):
        # All that has arrived; in a tick it stops before a PUBLISH.
        # Returns the first byte of the last PUBLISH delivered, 0 without one.
        self._delivered = 0
        n = 64  # a flood must not keep the application for ever
        op = 0
        if self._tn:
            self._write()
        while n and not (tick and (self._tn or self._big)):
            op = self._whole()
            if not op:
                if not self._fill():
                    break
            elif tick and op >> 4 == 3:
                break  # it is for the application; what is behind it is not seen
            else:
                self._s = self._next
                self._handle(op)
                n -= 1
        if not self._tn:
            self._alive(not (tick and (op or self._big)))
        if self._session and not tick:
            self._session.pump()
        return self._delivered

    def _whole(self):
        # The first byte of the packet at the head of the buffer if it is whole:
        # its body is then at _p, _n bytes long, the next packet at _next. Else 0.
        if self._big:
            return 0
        p = self._s
        n = self._e - p
        if n < 2:
            return 0
        n = self._rx[p + 1]
        if n < 128:
            p += 2
        else:
            n = length(self._rx, p + 1, self._e)
            if n < 0:
                return 0 if n == -1 else self._bad("Remaining Length")
            p += 3 if n < 16384 else 4 if n < 2097152 else 5
        if p + n > self._e:
            return self._part(p, n)
        self._p = p
        self._n = n
        self._next = p + n
        return self._rx[self._s]

    def _part(self, p, n):
        # A packet that is not whole yet. One that cannot become whole in the
        # buffer is received apart, if it is a PUBLISH.
        if p - self._s + n > len(self._rx) - self._step:
            if self._rx[self._s] >> 4 != 3:
                self._bad("packet of %d bytes" % n)
            from .large import Large

            Large(self, p, n)
        return 0

    def _fill(self):
        # Read what is there behind what is left. Returns 0 if nothing came.
        if self._big:
            return self._big.more()
        n = 0
        if self._s == self._e:
            self._s = self._e = 0
        else:
            n = self._align()
        n = self._read(self._rungs[n])
        self._e += n
        return n

    def _read(self, view):
        try:
            view = self.sock.readinto(view)  # how many, from here on
        except BaseException:
            self._failed()
            raise
        if not view:
            return self._nothing(view)
        self._ping = False
        self._rx_t = time.ticks_ms()
        return view

    def _nothing(self, n):
        if n is None:
            return 0
        raise self._lost(OSError(_ECONNRESET))  # the end of the stream

    def _align(self):
        # Move the beginning of a packet so that it ends where a view begins;
        # returns that view's number. A packet in two reads is rare: bytes will do.
        n = self._e - self._s
        g = (n + self._step - 1) // self._step
        d = g * self._step - self._e
        if d:
            move(self._rx, self._s, self._e, d)
            self._s += d
            self._e += d
        return g

    def _handle(self, op):
        t = op >> 4
        if t == 3:
            self._on_publish(op)
        elif op & 15 != (2 if t == 6 else 0) and self.protocol[STRICT]:
            self._bad("flags 0x%02x [MQTT-2.2.2-2]" % op)
        elif t == 13:
            if self._n:
                self._bad("PINGRESP")
        elif 4 <= t <= 7:
            self._on_ack(t)
        elif t == 9 or t == 11:
            self._on_suback(t)
        else:
            self._bad("packet type %d" % t)

    def _on_ack(self, t):
        p = self._p
        if self._n != 2:
            self._bad("length of an acknowledgement")
        pid = self._wire(self._rx[p] << 8 | self._rx[p + 1])
        if not pid:
            self._bad("packet identifier 0 [MQTT-2.3.1-1]")
        if t == 6:
            # Released: the id may come again as another message [MQTT-4.3.3-2].
            if self._inbox:
                self._inbox.in_del(pid)
            self._control(0x70, pid)
        elif self._session:
            self._session.on_ack(t, pid)
        elif pid == self._waiting:
            self._ack = t << 4
            if t == 5:
                self._control(0x62, pid)
        elif t == 5:
            self._control(0x62, pid)
        else:
            self.counters.unexpected += 1

    def _on_suback(self, t):
        from .subscribe import on_suback

        on_suback(self, t)

    def _on_publish(self, op):
        p = self._p + 2  # the topic, t bytes
        pid = 0
        t = self._rx[p - 2] << 8 | self._rx[p - 1] if self._n > 1 else self._n
        if op & 6 == 6 or p + t + (2 if op & 6 else 0) > self._next:
            self._bad("PUBLISH [MQTT-3.3.1-4]")
        if op & 6:
            pid = self._wire(self._rx[p + t] << 8 | self._rx[p + t + 1])
            if not pid:
                self._bad("packet identifier 0 [MQTT-2.3.1-1]")
            if op & 4 and self._seen(pid):
                return
        if self._views:
            self._hand(p, p + t, op)
        else:
            self._deliver_small(p, p + t, pid)
        self._delivered = op
        if pid:
            self._acknowledge(op, pid)

    def _deliver_small(self, p, end, pid):
        topic = bytes(self._rungs[0][p:end])
        if topic != self._heard:
            self._hear(topic)
        if pid:
            end += 2
        msg = bytes(self._rungs[0][end : self._next])
        self._deliver(topic, msg)

    def _hand(self, p, end, op):
        topic = self._rungs[0][p:end]
        if topic != self._heard:
            self._hear(topic)
        if op & 6:
            end += 2
        p = self._rungs[0][end : self._next]
        op &= 15
        self.counters.received += 1
        self._call(topic, p, op, 0)

    def _call(self, topic, payload, flags, left):
        self._busy = _CALLBACK
        self._views(topic, payload, flags, left)
        self._called()

    def _called(self):
        # The callback has returned; it may have closed the connection.
        if self.sock is None:
            raise OSError(self._error)
        self._busy = _MAIN

    def _hear(self, topic):
        # The topic name of a PUBLISH is checked when it is another one.
        try:
            check_name(topic, 65535)
        except ValueError as e:
            self._bad("PUBLISH: %s [MQTT-3.3.2-1]" % e)
        if not self._views or self._heard is None:
            self._heard = bytes(topic)  # views: not a copy of each

    def _deliver(self, topic, msg):
        self.counters.received += 1
        if self.cb is None:
            return
        # An exception ends the connection, in whoever pumps: the message is not
        # acknowledged, it comes again with the next one.
        self._busy = _CALLBACK
        self.cb(topic, msg)
        self._called()

    def _seen(self, pid):
        # An incoming QoS 2 message that was delivered already: only PUBREC again.
        if self._known(pid):
            self.counters.duplicates += 1
            self._control(0x50, pid)
            return True
        return False

    def _known(self, pid):
        if self._inbox is None:
            from .inbox import Inbox

            self._inbox = Inbox()
        return self._inbox.in_has(pid)

    def _acknowledge(self, op, pid):
        # After the callback has returned; a QoS 2 id is durable before PUBREC.
        if op & 2:
            self._control(0x40, pid)
        else:
            self._inbox.in_add(pid)
            self._control(0x50, pid)

    # The keep-alive

    def _alive(self, reading):
        # PINGREQ after half the keep-alive without sending or without receiving;
        # not a byte in another half: the link is dead.
        if not self.keepalive:
            return
        now = time.ticks_ms()
        half = self.keepalive * 500
        if self._ping:
            if reading and time.ticks_diff(now, self._ping_t) >= half:
                raise self._lost(OSError(_ETIMEDOUT))
            if time.ticks_diff(now, self._tx_t) < half:
                return
        elif time.ticks_diff(now, self._tx_t) < half and time.ticks_diff(now, self._rx_t) < half:
            return
        self._pinged(now)

    def _pinged(self, now):
        if not self._ping:
            self._ping = True
            self._ping_t = now
        self._pingreq()

    def tick(self):
        """What the keep-alive timer calls: it may come at any instant. Never raises."""
        b = self._busy
        if self.sock is None or b & 1:
            return
        self._busy = _TICK
        try:
            self._tick(b)
        except Exception:
            self._failed()  # the next call of the application says so
        if self.sock:
            self._busy = b

    def _tick(self, b):
        if self._tn and self._write():
            return  # no room to write: the main pump waits, a tick does not
        if b == _CALLBACK:
            self._alive(False)
        else:
            self._pump(True)
