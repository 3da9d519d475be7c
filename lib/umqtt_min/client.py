"""MQTTClient: the API, and what becomes of each packet that comes in.

Knows: who may call what when, QoS 0 and 1, the keep-alive. Never knows: flash and the
layout of the store; what is in flight is session.py's where there is a store.

One flag, `_busy`, guards stream, parser and store. A keep-alive tick that finds
it set does nothing: the pump that holds it looks at the clock itself.

This module and wire.py are what every program pays for. A method that is not here,
with a name that lazy.py lists, is loaded into the class when it is first used.
"""

from sys import modules

from .exception import MQTTException
from .port import const, ticks_add, ticks_diff, ticks_ms
from .wire import Receiver, Sender

# For type checkers, which are told that it is true: check_types.py.
_TYPING = const(0)
if _TYPING:
    from typing import Any

# What _busy says: who has the stream. Odd: nobody else may touch it.
_MAIN = const(1)
_WAIT = const(16)  # publish() waits for the acknowledgement: beside QoS << 1 and retain
_CALLBACK = const(2)  # the application's callback runs: the receive buffer is in use

# As in errors.py and counters.py
_TIMEOUT = const(17)
_BUSY = const(21)
_CLOSED = const(1)
_SENT = const(2)
_ACKED = const(3)
_UNEXPECTED = const(8)
_FORGOTTEN = const(9)
_PINGS = const(10)
_LAST_ERROR = const(13)

# OASIS MQTT 3.1.1, as protocol.py explains it.
MQTT_3_1_1 = (b"\x00\x04MQTT\x04", 0, 65535, 0, False, True, True, True)
_LITTLE = const(4)
_MOST_PINGS = const(28)  # PINGREQ without an answer, of which is known who sent them


def plain(s):
    """True if bytes-like `s` is 1 to 32767 bytes of ASCII without control
    characters' U+0000 and without wildcards: a good topic name, nothing to look up."""
    for b in s:
        if not 0 < b < 127 or b == 35 or b == 43:
            return False
    return 0 < len(s) < 32768


def mend_imports():
    """Forget modules for which there was no memory: MicroPython keeps an entry without a value for
    them, and crashes with the next import of that name."""
    for key in modules:
        if modules.get(key, key) is key:
            modules.pop(key, None)
            return mend_imports()  # the dictionary has changed


def module(name):
    """The module of this package with that name, which is imported when it is first used."""
    mend_imports()
    return __import__("umqtt_min." + name, None, None, "*")


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
    max_message: largest payload in bytes that is put together for the callback;
    connector: f(host, port, timeout_ms) -> non-blocking stream, instead of TCP.
    Raises ValueError for arguments out of range.
    """

    # What most clients never set costs nothing in each of them. Nor does it fill the hash table of
    # their attributes (of 23; with a store 29), in which all calls get slower when it is full.
    user = pswd = lw_topic = connector = ssl_params = None
    sock: "Any" = None
    connected = False  # True between connect() and the end of the connection
    _session: "Any" = None
    _inbox: "Any" = None  # incoming QoS 2 ids: the store, or inbox.py
    _topic: "Any" = object()  # the last topic of bytes that was checked; nobody's: none
    _pair: "Any" = (_topic, None)  # the last topic that is a str, and its bytes
    _busy = 0
    pid = 0

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
        self._n = [0] * 14  # see counters.py
        self.client_id = self._bytes(client_id)
        self.server = server
        self.port = port or (8883 if ssl else 1883)
        self.keepalive = keepalive
        self.ssl = ssl
        self.protocol = protocol
        self.store = store
        self.timer = timer
        self.max_message = max_message
        try:
            self._tmo = int(timeout * 1000)
            # Negative or too large: a bit is left. Of another type: an exception.
            odd = (max_message | self._tmo - 1 | buffer_size - 64) >> 12
            odd |= keepalive | port | (window | window - 1) << 8
            odd = odd >> 16 or not "" < server
        except Exception:
            odd = True
        if (
            odd
            or ssl
            or ssl_params
            or timer is not None
            and timer is not False
            or connector is not None
            or True in (port, keepalive, window)
            or user is not None
            or password is not None
            or protocol is not MQTT_3_1_1
            or type(self) is not MQTTClient
            or not plain(self.client_id)
        ):
            self.ssl_params = ssl_params
            mend_imports()
            from .options import complete

            complete(self, user, password, connector, timeout, window, buffer_size)
        self._tx = Sender(self, buffer_size)
        self._rx = Receiver(self, buffer_size)
        if store:
            self._begin_session(window)

    if _TYPING:  # these are loaded when they are first used, from where lazy.py says

        from .counters import Counters

        counters: Counters  # what happened since the client was made
        inflight: int  # messages in the store whose acknowledgement has not come yet

        cb: Any
        on_oversize: Any
        _narrow: Any
        piece: int
        session_present: Any
        _views: Any
        _heard: Any
        _late: Any
        _answers: Any

        def ping(self): ...
        def set_callback(self, f): ...
        def set_view_callback(self, f): ...
        def wait_msg(self): ...
        def set_last_will(self, topic, msg, retain=False, qos=0): ...
        def publisher(self, topic, retain=False, qos=0): ...
        def subscribe(self, topic, qos=0, timeout=None): ...
        def unsubscribe(self, topic, timeout=None): ...
        def flush(self, timeout=None): ...
        def confirm(self, seq): ...
        def republish(self, first, last): ...
        def discard(self): ...
        def stuck(self): ...
        def _begin_session(self, window): ...
        def _odd(self, what, kind=0): ...
        def _send_large(self, op, topic, msg): ...
        def _enter(self): ...
        def _bad(self, detail): ...
        def _pid(self, p): ...
        def _rare(self, op): ...
        def _seen(self, pid): ...
        def _known(self, pid): ...
        def _on_publish(self, op): ...

    else:

        def __getattr__(self, name):
            if name == "inflight":  # the one that is asked for again and again
                return self.store.live - self.store.held if self.store else 0
            return module("lazy").find(self, name)

    def _bytes(self, s):
        # str or bytes-like as bytes-like.
        if isinstance(s, str):
            return s.encode()
        if isinstance(s, bytes) or isinstance(s, bytearray):
            return s  # a tuple of types would be made anew each time
        return self._odd(s)

    # The connection

    def connect(self, clean_session=None, timeout=None):
        """Connect, log in, and take up the session.

        clean_session: None means True without a store, False with one;
        timeout: seconds for the whole of it, None: the client's timeout.
        Returns True if the broker still had the session (MQTT 3.1.1).
        Raises OSError (network), MQTTException (refused, no CONNACK, broken
        protocol), ValueError (empty client id with a session [MQTT-3.1.3-7]).
        """
        mend_imports()
        from .connect import connect

        return connect(self, clean_session, timeout)

    def disconnect(self):
        """Send DISCONNECT and close; does nothing without a connection."""
        if self._busy > _MAIN:
            self._raise()
        if self.sock:
            self._busy = _MAIN
            try:
                self._tx.put(0xE0)
            except OSError:
                pass  # it is closed all the same
            self._close()

    def _close(self):
        tx = self._tx
        rx = self._rx
        sock = self.sock
        if rx.due:
            rx.due.close()
        self.connected = False
        self.sock = tx.sock = None
        self._busy = tx.waiting = rx.waiting = 0
        if tx.stop:
            tx.stop()
            tx.stop = None
        if sock:
            try:
                sock.close()
            except OSError:
                pass

    def _lost(self, code=0):
        # The connection ends, and whoever calls raises what ended it. code: its errno, or reason
        # of an MQTTException + 1000, 0: the network's, or 103 if it is the callback that raises;
        # returned. It may have ended already.
        if self.sock:
            self._n[_CLOSED] += 1
            code = code or (103 if self._busy == _CALLBACK else 104)
        if code:
            self._n[_LAST_ERROR] = code
            self._tx.errno = code if code < 1000 else 104
            self._close()
        self._busy = 0
        return code

    def _raise(self, reason=_BUSY, pid=0):
        # The exception of that reason; _BUSY: nobody has the stream, or somebody else.
        if reason == _BUSY and not self._busy:
            raise OSError(self._tx.errno)
        raise MQTTException(reason, None, pid)

    # Sending

    def publish(self, topic, msg, retain=False, qos=0, wait=True):
        """Publish a message.

        topic, msg: bytes-like or str; qos: 0, 1 or 2; wait: with QoS 1 and 2,
        wait for the acknowledgement (at most `timeout` seconds); wait=False
        returns as soon as the message is in the store, connected or not.
        Returns the packet identifier, None at QoS 0. Raises OSError, ValueError,
        MQTTException (.stored tells whether the store will send it again).
        """
        if topic is not self._topic:
            topic = self._name_of(topic)
        if type(msg) is not bytes:
            msg = self._bytes(msg)
        if qos:
            if qos not in (1, 2):
                self._odd(qos, 2)
            qos = int(qos) << 1 | (1 if retain else 0) | (_WAIT if wait else 0)
            if self._session:
                return self._session.publish(topic, msg, qos)
            return self._publish_acked(topic, msg, qos)
        if self._busy & 1 or self.sock is None:
            self._raise()
        self._busy |= 1
        self._tx.publish(0x31 if retain else 0x30, topic, msg)
        self._busy &= 2
        self._n[_SENT] += 1

    def _name_of(self, topic):
        # The topic name as bytes-like, checked. str and bytes do not change: what was checked once
        # need not be checked again. A publish() in an interrupt may do this for another topic at
        # any line of ours: what one publish() works with are its own variables, and the pair is
        # read at once.
        pair = self._pair
        if topic is pair[0]:
            return pair[1]
        name = self._bytes(topic)
        if not plain(name):
            self._odd(name, 1)
        if isinstance(topic, bytes):
            self._topic = topic
        elif isinstance(topic, str):
            self._pair = (topic, name)
        return name

    def _publish_acked(self, name, msg, flags):
        # Without a store; flags: QoS << 1 | retain | _WAIT.
        if not flags & _WAIT or self._busy == _CALLBACK:
            self._odd(flags >> 1 & 3, 2)
        tx = self._tx
        if not tx.count:
            tx.push()  # it must not wait for the TCP ACK of what went before
        if self._busy & 1 or self.sock is None:
            self._raise()
        self._busy |= 1
        pid = self._next_pid()
        tx.pid = self._wire(pid)
        # From here on the caller's buffers hold the message: after an error it is forgotten.
        self._n[_FORGOTTEN] += 1
        tx.publish(0x30 | flags & 7, name, msg)
        self._n[_SENT] += 1
        self._rx.waiting = tx.pid
        tx.timeout = ticks_add(ticks_ms(), self._tmo)
        self._await(0x40 if flags & 2 else 0x70)
        self._n[_FORGOTTEN] -= 1
        self._n[_ACKED] += 1
        return pid

    def _await(self, op):
        # Pump until the acknowledgement `op` of what the receiver waits for is in, or it is
        # time; gives the stream back.
        self._rx.code = 0
        try:
            while self._rx.code != op and ticks_diff(self._tx.timeout, ticks_ms()) > 0:
                self._idle(ticks_diff(self._tx.timeout, ticks_ms()))
                self._pump(False)
        except OSError:
            self._lost()
            if self._rx.code != op:  # else it came with the end of the stream
                raise
        except BaseException:
            self._lost()
            raise
        op = self._rx.code != op and self._rx.waiting
        self._busy = self._rx.waiting = 0
        if op:
            self._raise(_TIMEOUT, self._wire(op))

    def _wire(self, pid):
        # The value whose big-endian bytes are the packet identifier on the wire.
        return pid >> 8 | (pid & 255) << 8 if self.protocol[_LITTLE] else pid

    def _next_pid(self):
        # 1 to 65535, none that is in flight [MQTT-2.3.1-1, -2].
        while True:
            pid = self.pid = self.pid % 65535 + 1
            if not (self._session and self._session.uses(pid)):
                return pid

    # Receiving

    def check_msg(self):
        """Handle what has arrived, send what may be sent, keep the link alive; does not wait
        for the broker, but (up to `timeout`) for a write that the network does not take.

        Returns the first byte of the last PUBLISH delivered, None if there was none.
        Raises OSError, MQTTException; what the callback raises.
        """
        if self._busy or self.sock is None:
            self._raise()
        self._busy = _MAIN
        try:
            op = self._pump(False)
        except BaseException:
            self._lost()
            raise
        self._busy = 0
        return op or None

    def _idle(self, timeout):
        # Until something may be read, and not longer than the keep-alive allows.
        if timeout > 0 and not self._rx.peek():
            self._tx.wait(1, min(timeout, 1000, self.keepalive * 125 or 1000))

    def _pump(self, tick):
        # All that has arrived; in a tick it stops before a PUBLISH.
        # Returns the first byte of the last PUBLISH delivered, 0 without one.
        rx = self._rx
        rx.message = 0
        op = 1  # 0: all that has arrived was looked at
        n = 64  # then nothing more is read: a flood must not keep the application for ever
        if self._tx.waiting:
            self._tx.write()
        # A tick leaves a PUBLISH where it is: in the socket, for whoever polls that.
        while not tick or not (
            self._tx.waiting or rx.due or rx.end > rx.start and rx.buf[rx.start] >> 4 == 3
        ):
            op = rx.peek()
            if op:
                rx.start = rx.next
                if op >> 4 == 3:
                    self._on_publish(op)
                elif op != 0xD0 or rx.n:
                    self._on_ack(op)
                n -= 1
                rx.ended |= op != 0xD0 or rx.answers()
            elif not rx.fill(tick) or n <= 0:
                break
            if rx.message and rx.single or rx.waiting and rx.code:
                break
        else:
            op = 1
        if self.keepalive and not self._tx.waiting:
            self._keep_alive(op)
        if self._session and not tick:
            self._session.pump()
        return rx.message

    def _ping(self, asked):
        # PINGREQ; asked: 1 if the application wants to hear of the answer, else 0.
        rx = self._rx
        if rx.pings < _MOST_PINGS:
            rx.asked |= asked << rx.pings
        rx.pings += 1
        self._n[_PINGS] += 1
        self._tx.put(0xC0)

    def _on_ack(self, op):
        rx = self._rx
        pid = 0
        if op == 0x40 and rx.n == 2:
            pid = rx.buf[rx.pos] << 8 | rx.buf[rx.pos + 1]
        if not pid:
            self._rare(op)
        elif self._session:
            self._session.on_ack(4, pid)
        elif pid == rx.waiting:
            rx.code = op
        else:
            self._n[_UNEXPECTED] += 1

    # The keep-alive. It reckons with ticks_ms: ticks of the timer get lost, it only wakes.

    def tick(self, timer=None):
        """What the keep-alive timer does: for those who have a timer of their own. It
        may be called at any instant, also in the middle of another call. Never raises."""
        if self._busy & 1 or not (self.sock and self.keepalive):
            return
        self._busy |= 1
        self._tx.sleep = False
        try:
            # No room to write: a tick does not wait for it.
            if not (self._tx.waiting and self._tx.write()):
                if self._busy & 2:
                    self._keep_alive(1)  # the receive buffer is in use
                else:
                    self._pump(True)
        except Exception:
            self._lost()  # the next call of the application says so
        self._tx.sleep = True
        self._busy &= 2

    def _keep_alive(self, op):
        # PINGREQ after half the keep-alive without sending or without receiving; not
        # a byte in another half: OSError, the link is dead [MQTT-3.1.2-23].
        # op: not 0 where bytes may wait that cannot be read now.
        rx = self._rx
        now = ticks_ms()
        quiet = ticks_diff(now, self._tx.time) >= self.keepalive * 500
        if rx.request is not None:
            if not op and ticks_diff(now, rx.request) >= self.keepalive * 500:
                raise OSError(self._lost(110))
        elif quiet or ticks_diff(now, rx.time) >= self.keepalive * 500:
            quiet = True
            rx.request = now
        if quiet:
            self._ping(0)
