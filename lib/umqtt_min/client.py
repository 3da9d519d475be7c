"""MQTTClient: the API, and what becomes of each packet that comes in.

Knows: who may call what when. Never knows: the bytes of a packet beyond its
first (transmit.py, receive.py), flash and the layout of the store; what is in
flight is session.py's where there is a store.

One flag, `_busy`, guards stream, parser and store. A keep-alive tick that finds
it set does nothing: the pump that holds it looks at the clock itself.
"""

from time import ticks_add, ticks_diff, ticks_ms

from micropython import const

from .errors import BUSY, ECONNRESET, ENOTCONN, PROTOCOL, TIMEOUT, MQTTException
from .protocol import ID_MAX, LITTLE, LOGIN, MQTT_3_1_1, STRICT, TOPIC_MAX
from .receive import Receiver
from .topics import check_name, check_utf8
from .transmit import Transmitter

# What _busy says: who has the stream. Odd: nobody else may touch it.
_FREE = const(0)
_MOST = const(268369912)  # payload that fits with the longest topic [MQTT 3.1.1, 2.2.3]
_MAIN = const(1)
_CALLBACK = const(2)  # the application's callback runs: the receive buffer is in use
_TICK = const(3)


class Counters:
    """What happened since the client was made; all int."""

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


def _field(name, s):
    # A field of CONNECT has a two-byte length.
    if s is not None and len(s) > 65535:
        raise ValueError("%s: 65535 bytes at most" % name)


def _string(name, s):
    # ... and is UTF-8 unless it is binary [MQTT-3.1.3-4, -11].
    _field(name, s)
    if s is not None:
        try:
            check_utf8(s)
        except ValueError as e:
            raise ValueError("%s: %s" % (name, e))


class MQTTClient:
    """An MQTT client; a superset of umqtt.simple's.

    client_id: str or bytes, of the length that the protocol allows;
    server: host name or address; port: 0 for 1883, or 8883 with TLS;
    user, password: str or bytes; keepalive: seconds, 0 to 65535 (0: none);
    ssl: an SSLContext, or True with ssl_params: certificate and name are checked;
    store: FileStore, FlashStore or RAMStore: QoS 1 and 2 publishes are in it
    before they are sent and are sent again until acknowledged;
    timer: a machine.Timer for the keep-alive; None: Timer(-1) where there is one;
    False: none; protocol: MQTT_3_1_1 or a row of legacy.py;
    buffer_size: bytes, 64 or more, of each of the two packet buffers;
    timeout: seconds that an answer may take and that a write may stand still;
    window: publishes in flight at most, 1 to 255;
    max_message: largest payload in bytes that the callback is given;
    connector: f(host, port, timeout_ms) -> non-blocking stream, instead of TCP.
    Raises ValueError for arguments out of range.
    """

    # What most clients never set costs nothing in each of them.
    cb = None
    on_oversize = None  # f(bytes): a message beyond max_message was drained
    piece = 0  # set_view_callback(): where a piece stands in its payload
    session_present = None
    lw_topic = None
    lw_msg = b""
    lw_flags = 0
    _views = None
    _one = False  # wait_msg(): stop after one message
    _error = ENOTCONN
    _granted = b""
    _codes = 0

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
        self.sock = None
        self._busy = _FREE
        self._session = None
        self._keep = None
        self._topic = None  # the last topic to publish to that was checked
        self._heard = None  # the last topic of a message that was checked
        self._block = True  # publish(wait=...), on its way down
        self._inbox = store  # incoming QoS 2 ids; in RAM where there is no store
        self._delivered = 0  # the first byte of the last PUBLISH that was delivered
        self._waiting = 0  # packet id whose acknowledgement somebody waits for
        self._ack = 0  # the acknowledgement that came: first byte of the packet
        self.pid = 0
        self.counters = Counters()
        self.client_id = _bytes(client_id)
        self.server = server
        self.port = port or (8883 if ssl else 1883)
        self.user = _bytes(user)
        self.pswd = _bytes(password)
        self.keepalive = keepalive
        self.ssl = ssl
        self.ssl_params = ssl_params
        self.protocol = protocol
        self.store = store
        self.timer = timer
        self.max_message = max_message
        self.connector = connector
        self._check_arguments(buffer_size)
        self._tmo = int(timeout * 1000)
        self._tx = Transmitter(buffer_size, self._tmo, self.counters, self._failed)
        self._rx = Receiver(buffer_size, self)
        if store:
            from .session import Session

            self._session = Session(self, store, window)

    def _check_arguments(self, buffer_size):
        most = self.protocol[ID_MAX]
        if not 0 <= self.keepalive <= 65535:
            raise ValueError("keepalive: 0 to 65535 seconds")
        if self.pswd is not None and self.user is None:
            raise ValueError("password without user [MQTT-3.1.2-22]")
        if self.user is not None and not self.protocol[LOGIN]:
            raise ValueError("this protocol version has no user name")
        _string("client_id", self.client_id)
        _string("user", self.user)
        _field("password", self.pswd)
        if buffer_size < 64:
            raise ValueError("buffer_size: 64 bytes or more")
        if most and not 0 < len(self.client_id) <= most:
            raise ValueError("client_id: 1 to %d bytes" % most)

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
        from .views import hand

        self._views = f
        self._hand = hand

    def set_last_will(self, topic, msg, retain=False, qos=0):
        """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

        topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
        """
        topic = _bytes(topic)
        if not 0 <= qos <= 2:
            raise ValueError("qos: 0, 1 or 2")
        check_name(topic, self.protocol[TOPIC_MAX])
        msg = _bytes(msg)
        _field("last will", msg)
        self.lw_topic = topic
        self.lw_msg = msg
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
                self._tx.control(0xE0, 0)
            except OSError:
                pass  # it is closed all the same
            self._close()

    def _open(self, sock, waiter):
        # A stream that has neither sent nor received anything.
        self.sock = self._tx.sock = sock
        self._tx.wait = waiter
        self._tx.left = 0
        self._tx.nagle = True
        self._tx.time = ticks_ms()
        self._rx.open(sock)

    def _close(self):
        sock = self.sock
        self._busy = _FREE
        if self._keep:
            self._keep.stop()
        self._open(None, self._tx.wait)
        if sock:
            try:
                sock.close()
            except OSError:
                pass

    def _lost(self, e):
        # The connection ends because of `e`; who calls raises it.
        if self.sock:
            self.counters.closed += 1
        self._error = ECONNRESET
        if isinstance(e, MQTTException):
            self.counters.last_error = 1000 + e.reason
        elif isinstance(e, OSError):
            if e.args and isinstance(e.args[0], int):
                self._error = e.args[0]
            self.counters.last_error = self._error
        self._close()
        return e

    def _failed(self):
        # As _lost(), where a name for the exception would cost a frame from the heap.
        if self.sock:
            self._lost(OSError(ECONNRESET))
        self._busy = _FREE

    def _bad(self, what):
        # The broker broke the protocol [MQTT-4.8.0-1]: `what` is a statement or packet.
        raise self._lost(MQTTException(PROTOCOL, what))

    def _enter(self):
        # Take the stream for a packet; returns what `_busy` goes back to.
        if self._busy & 1:  # a timer of the application came in between
            raise MQTTException(BUSY)
        if self.sock is None:
            raise OSError(self._error)
        b = self._busy
        self._busy = _MAIN
        return b

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
        if len(msg) > _MOST:  # here, not with the stream in hand
            raise ValueError("message of %d bytes" % len(msg))
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
        self._tx.publish(op, topic, 0, msg)
        self._busy = b
        self.counters.sent += 1

    def _publish_acked(self, topic, msg, flags):
        if not 2 <= flags <= 5:
            raise ValueError("qos: 0, 1 or 2")
        if self._tx.nagle:
            self._tx.prompt()  # it must not wait for the TCP ACK of what went before
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
        self._tx.publish(flags, topic, pid, msg)
        return self._acked(flags)

    def _acked(self, flags):
        # The message that has just been sent is acknowledged to its end.
        self.counters.sent += 1
        flags = 0x40 if flags & 2 else 0x70
        try:
            flags = self._await(self.pid, flags, self._tmo)
        except OSError:
            self._failed()
            if self._ack != flags:  # else it came with the end of the stream
                raise
        except BaseException:
            self._failed()
            raise
        self._busy = _FREE
        if not flags:
            raise MQTTException(TIMEOUT, None, self.pid)
        self.counters.forgotten -= 1
        self.counters.acked += 1
        return self.pid

    def _await(self, pid, ack, end):
        # Pump until the acknowledgement `ack` of `pid` is in, or `end` ms are over: False.
        end = ticks_add(ticks_ms(), end)
        self._waiting = pid
        self._ack = 0
        while True:
            pid = ticks_diff(end, ticks_ms())
            if pid <= 0:
                break
            self._idle(pid)
            self._pump(False)
            if self._ack == ack:
                break
        self._waiting = 0
        return self._ack == ack

    def _wire(self, pid):
        # The value whose big-endian bytes are the packet identifier on the wire.
        return pid >> 8 | (pid & 255) << 8 if self.protocol[LITTLE] else pid

    def _next_pid(self):
        # 1 to 65535, none that is in flight [MQTT-2.3.1-1, -2].
        while True:
            pid = self.pid = self.pid % 65535 + 1
            if not (self._session and self._session.uses(pid)):
                return pid

    def ping(self):
        """Send PINGREQ; the answer is awaited by the keep-alive, not here."""
        b = self._enter()
        self._pingreq()
        self._busy = b

    def _pingreq(self):
        self.counters.pings += 1
        self._tx.control(0xC0, 0)

    def tick(self):
        """What the keep-alive timer does: for those who have a timer of their own. It
        may be called at any instant, also in the middle of another call. Never raises."""
        if self._keep:
            self._keep.tick(None)

    def subscribe(self, topic, qos=0, timeout=None):
        """Subscribe and wait for SUBACK; messages may come before it.

        topic: one filter (str or bytes), or a list of (filter, qos);
        timeout: seconds, None: the client's.
        Returns the QoS granted, or a list of them. Raises MQTTException
        SUBSCRIBE_REFUSED with the filter as detail, TIMEOUT; OSError; ValueError.
        """
        from .subscribe import subscribe

        return subscribe(self, topic, qos, timeout)

    def unsubscribe(self, topic, timeout=None):
        """Unsubscribe from one filter or a list of them and wait for UNSUBACK."""
        from .subscribe import unsubscribe

        unsubscribe(self, topic, timeout)

    # What only a store makes possible

    def flush(self, timeout=None):
        """Wait until all publishes are acknowledged.

        timeout: seconds, None: the client's. Returns True, or False if it was
        too short. Raises OSError when the connection ends.
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
        """Wait, without limit, until one message has been delivered.

        A link that is dead ends it (OSError) where there is a keep-alive.
        """
        self._one = True
        try:
            while True:
                op = self.check_msg()
                if op:
                    return op
                self._idle(1000)
        finally:
            self._one = False

    def _idle(self, ms):
        # Until something may be read, and not longer than the keep-alive allows.
        if self._rx.whole():
            return
        if self.keepalive:
            ms = min(ms, self.keepalive * 125)
        self._tx.wait.readable(min(ms, 1000))

    def _pump(self, tick):
        # All that has arrived; in a tick it stops before a PUBLISH.
        # Returns the first byte of the last PUBLISH delivered, 0 without one.
        rx = self._rx
        self._delivered = 0
        op = 1  # 0: all that has arrived was looked at
        n = 64  # a flood must not keep the application for ever
        if self._tx.left:
            self._tx.write()
        while n and not (tick and (self._tx.left or rx.big)):
            op = rx.whole()
            if op:
                if tick and op >> 4 == 3:
                    break  # it is for the application
                rx.start = rx.next
                self._handle(op)
                n -= 1
                if self._one and self._delivered or self._waiting and self._ack:
                    break
            elif not rx.fill():
                break
        if self._keep and not self._tx.left:
            self._keep.check(not op)
        if self._session and not tick:
            self._session.pump()
        return self._delivered

    def _handle(self, op):
        t = op >> 4
        if t == 3:
            self._on_publish(op)
        elif op & 15 != (2 if t == 6 else 0) and self.protocol[STRICT]:
            self._bad("flags 0x%02x [MQTT-2.2.2-2]" % op)
        elif t == 13:
            if self._rx.n:
                self._bad("PINGRESP")
        elif 4 <= t <= 7:
            self._on_ack(t)
        elif t == 9 or t == 11:
            self._on_suback(t)
        else:
            self._bad("packet type %d" % t)

    def _on_ack(self, t):
        p = self._rx.p
        if self._rx.n != 2:
            self._bad("length of an acknowledgement")
        pid = self._rx.buf[p] << 8 | self._rx.buf[p + 1]
        if not pid:
            self._bad("packet identifier 0 [MQTT-2.3.1-1]")
        if t == 6:
            # Released: the id may come again as another message [MQTT-4.3.3-2].
            if self._inbox:
                self._inbox.in_del(pid)
            self._tx.control(0x70, pid)
            return
        if self._session:
            self._session.on_ack(t, self._wire(pid))
        elif self._wire(pid) == self._waiting:
            self._ack = t << 4
        elif t != 5:
            self.counters.unexpected += 1
        if t == 5:
            self._tx.control(0x62, pid)

    def _on_suback(self, t):
        from .subscribe import on_suback

        on_suback(self, t)

    def _on_publish(self, op):
        p = self._rx.p + 2  # the topic, t bytes
        pid = 0
        t = self._rx.buf[p - 2] << 8 | self._rx.buf[p - 1] if self._rx.n > 1 else 65536
        if op & 6 == 6 or p + t + (2 if op & 6 else 0) > self._rx.next:
            self._bad("PUBLISH [MQTT-3.3.1-4]")
        if op & 6:
            pid = self._rx.buf[p + t] << 8 | self._rx.buf[p + t + 1]
            if not pid:
                self._bad("packet identifier 0 [MQTT-2.3.1-1]")
            if op & 4 and self._seen(pid):
                return
        if self._views:
            self._hand(self, p, p + t, op)
        else:
            self._deliver_small(p, p + t, pid)
        self._delivered = op
        if pid:
            self._acknowledge(op, pid)

    def _deliver_small(self, p, end, pid):
        topic = bytes(self._rx.rungs[0][p:end])
        if topic != self._heard:
            self._hear(topic)
        if pid:
            end += 2
        msg = bytes(self._rx.rungs[0][end : self._rx.next])
        self._deliver(topic, msg)

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

    def _called(self):
        # The callback has returned; it may have closed the connection.
        if self.sock is None:
            raise OSError(self._error)
        self._busy = _MAIN

    def _seen(self, pid):
        # An incoming QoS 2 message that was delivered already: only PUBREC again.
        if self._known(pid):
            self.counters.duplicates += 1
            self._tx.control(0x50, pid)
            return True
        return False

    def _known(self, pid):
        if self._inbox is None:
            from .inbox import Inbox

            self._inbox = Inbox()
        return self._inbox.in_has(pid)

    def _acknowledge(self, op, pid):
        # After the callback has returned; a QoS 2 id is durable before PUBREC.
        if self._tx.nagle:
            self._tx.prompt()  # the next acknowledgement must not wait for this one's TCP ACK
        if op & 2:
            self._tx.control(0x40, pid)
        else:
            self._inbox.in_add(pid)
            self._tx.control(0x50, pid)
