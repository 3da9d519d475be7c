"""MQTTClient: the API, and what becomes of each packet that comes in.

Knows: who may call what when, QoS 0 and 1, the keep-alive. Never knows: flash and the
layout of the store; what is in flight is session.py's where there is a store.

One flag, `_busy`, guards stream, parser and store. A keep-alive tick that finds
it set does nothing: the pump that holds it looks at the clock itself.

What only some programs need is imported by the method that needs it: session.py with a store,
receive.py with a callback or with the first packet that is no PUBACK or PINGRESP.
"""

from sys import modules

from .counters import Counters
from .exception import MQTTException
from .packets import MQTT_3_1_1
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

# As in errors.py
_TIMEOUT = const(17)
_BUSY = const(21)

# As in packets.py
_PUBLISH = const(0x30)
_PUBACK = const(0x40)
_PUBCOMP = const(0x70)
_PINGREQ = const(0xC0)
_PINGRESP = const(0xD0)
_DISCONNECT = const(0xE0)
_TYPE = const(0xF0)
_RETAIN = const(0x01)
_QOS_1 = const(0x02)
_QOS = const(0x06)
_ROW_TOPIC_MAX = const(2)
_ROW_LITTLE = const(4)

_PROTOCOL = const(16)  # as in errors.py
_MOST = const(268369912)  # payload that fits with the longest topic [MQTT 3.1.1, 2.2.3]
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
    False: none; protocol: MQTT_3_1_1 or another row of packets.py;
    buffer_size: bytes, 64 or more, of each of the two packet buffers;
    timeout: seconds that an answer may take and that a write may stand still;
    window: publishes in flight at most, 1 to 255;
    max_message: largest payload in bytes that is put together for the callback;
    connector: f(host, port, timeout_ms) -> non-blocking stream, instead of TCP;
    durable_inbox: another store than `store`, where incoming QoS 2 messages are before PUBREC
    goes out: see durable.py.
    Raises ValueError for arguments out of range.
    """

    # What most clients never set costs nothing in each of them. Nor does it fill the hash table of
    # their attributes (of 23; with a store 29), in which all calls get slower when it is full.
    user = pswd = lw_topic = connector = ssl_params = None
    sock: "Any" = None
    connected = False  # True between connect() and the end of the connection
    cb: "Any" = None  # f(topic, msg): see set_callback()
    on_oversize: "Any" = None  # f(bytes): a message beyond max_message was drained
    piece = 0  # where the piece at hand stands in its payload: see set_view_callback()
    _inbox: "Any" = None  # incoming QoS 2 identifiers: the store, or inbox.Inbox
    _session: "Any" = None  # the Session of a client with a store
    _incoming: "Any" = None  # the receive.Incoming, from the first packet or callback on
    _durable: "Any" = None  # the durable.DurableInbox
    _validate: "Any" = None  # the module, from the first argument that it has to look at
    _narrow: "Any" = None  # the last long view whose items were found to be bytes
    session_present: "Any" = None  # what CONNACK said; None: nothing
    _topic: "Any" = object()  # the last topic of bytes that was checked; nobody's: none
    _pair: "Any" = (_topic, None)  # the last topic that is a str, and its bytes
    _thrown = False  # the callback raised what ended the latest connection
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
        connector=None,
        durable_inbox=None,
    ):
        self.counters = Counters()
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
            or not plain(self.client_id)
        ):
            self.ssl_params = ssl_params
            mend_imports()
            from .options import complete

            complete(self, user, password, connector, timeout, window, buffer_size)
        self._tx = Sender(self, buffer_size)
        self._rx = Receiver(self, buffer_size)
        if store:
            from .session import Session

            self._inbox = store
            self._session = Session(self, store, window)
        if durable_inbox is not None:
            mend_imports()
            from .durable import DurableInbox

            DurableInbox(self, durable_inbox)

    def inflight(self):
        """How many messages in the store are not acknowledged; 0 without a store."""
        # No property: with one MicroPython looks for a setter at each assignment to the client.
        return self.store.live - self.store.held if self.store else 0

    def _bytes(self, s):
        # str or bytes-like as bytes-like.
        if isinstance(s, str):
            return s.encode()
        if isinstance(s, bytes) or isinstance(s, bytearray):
            return s  # a tuple of types would be made anew each time
        return self._checks().as_bytes(self, s)

    def _checks(self):
        # The module validate. An import statement takes heap each time, an attribute does not.
        if self._validate is None:
            mend_imports()
            from . import validate

            self._validate = validate
        return self._validate

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
                self._tx.put(_DISCONNECT)
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
            self.counters.closed += 1
            if not code:
                code = 104
                if self._busy == _CALLBACK:
                    code = 103
                    self._thrown = True
        if code:
            self.counters.last_error = code
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
                self._checks().refuse_qos(qos)
            qos = int(qos) << 1 | (1 if retain else 0) | (_WAIT if wait else 0)
            if self._session:
                return self._session.publish(topic, msg, qos)
            return self._publish_acked(topic, msg, qos)
        if self._busy & 1 or self.sock is None:
            self._raise()
        self._busy |= 1
        self._tx.publish(_PUBLISH | _RETAIN if retain else _PUBLISH, topic, msg)
        self._busy &= 2
        self.counters.sent += 1

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
            mend_imports()
            from .topics import check_name

            check_name(name, self.protocol[_ROW_TOPIC_MAX])
        if isinstance(topic, bytes):
            self._topic = topic
        elif isinstance(topic, str):
            self._pair = (topic, name)
        return name

    def _publish_acked(self, name, msg, flags):
        # Without a store; flags: QoS << 1 | retain | _WAIT.
        if not flags & _WAIT or self._busy == _CALLBACK:
            self._checks().refuse_qos(flags >> 1 & 3)
        tx = self._tx
        if not tx.count:
            tx.push()  # it must not wait for the TCP ACK of what went before
        if self._busy & 1 or self.sock is None:
            self._raise()
        self._busy |= 1
        pid = self._next_pid()
        tx.pid = self._wire(pid)
        # From here on the caller's buffers hold the message: after an error it is forgotten.
        self.counters.forgotten += 1
        tx.publish(_PUBLISH | flags & (_QOS | _RETAIN), name, msg)
        self.counters.sent += 1
        self._rx.waiting = tx.pid
        tx.timeout = ticks_add(ticks_ms(), self._tmo)
        self._await(_PUBACK if flags & _QOS_1 else _PUBCOMP)
        self.counters.forgotten -= 1
        self.counters.acked += 1
        return pid

    def _await(self, op):
        # Pump until the acknowledgement `op` of what the receiver waits for is in, or it is
        # time; gives the stream back.
        self._rx.code = 0
        try:
            while self._rx.code != op and ticks_diff(self._tx.timeout, ticks_ms()) > 0:
                self._idle(ticks_diff(self._tx.timeout, ticks_ms()))
                if self._durable:
                    self._durable.pump()
                else:
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
        return pid >> 8 | (pid & 255) << 8 if self.protocol[_ROW_LITTLE] else pid

    def _next_pid(self):
        # 1 to 65535, none that is in flight [MQTT-2.3.1-1, -2].
        while True:
            pid = self.pid = self.pid % 65535 + 1
            if not (self._session and self._session.uses(pid)):
                return pid

    def flush(self, timeout=None):
        """Wait until all publishes are acknowledged.

        timeout: seconds, None: the client's. Returns True, or False if it was
        too short. Raises OSError when the connection ends, or is not there although
        something waits for it.
        """
        end = self._tmo if timeout is None else self._checks().milliseconds(self, timeout)
        end = ticks_add(ticks_ms(), end)
        if not self._session:
            return True
        while True:
            if self.sock or self.inflight():  # else nothing is left to be waited for
                self.check_msg()
            if not self.inflight():
                return True
            left = ticks_diff(end, ticks_ms())
            if left <= 0:
                return False
            self._idle(left)

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
            op = self._durable.pump() if self._durable else self._pump(False)
        except BaseException:
            self._lost()
            raise
        self._busy = 0
        return op or None

    def wait_msg(self):
        """Wait, without limit, for one packet, and handle it.

        Nothing is read beyond it: a program may poll the socket for the next one.
        Returns the first byte of a PUBLISH, None for an acknowledgement and for the answer
        to ping(). What answers the keep-alive's own PINGREQ does not end the wait; only where it
        was there before the call does None say so, to a program that had polled the socket.
        A link that is dead ends it (OSError) where there is a keep-alive.
        """
        rx = self._rx
        rx.single = rx.exact = True
        rx.ended = False
        rx.n = -1
        try:
            op = self.check_msg()
            rx.ended |= rx.n >= 0
            # A packet has been handled, and nothing of one is left.
            while not op and (not rx.ended or rx.start != rx.end or rx.due):
                self._idle(1000)
                op = self.check_msg()
            return op
        finally:
            rx.single = rx.exact = False

    def set_callback(self, f):
        """f(topic, msg) is called with bytes for each message received; None: nothing is.

        Raises ValueError for what cannot be called.
        """
        self.cb = self._receives().callback(f)

    def set_view_callback(self, f):
        """f(topic, payload, flags, left) is called for each message, and nothing is copied.

        topic, payload: memoryviews of the receive buffer, good until f returns;
        flags: retain | QoS << 1 | DUP << 3; left: bytes of the payload still to come.
        A message longer than the buffer comes in pieces: `client.piece` is then
        where the piece stands in the payload, and left is 0 with the last one; after
        a lost connection it begins again at 0. It is acknowledged after the last.
        f=None: the messages go to the callback of set_callback(). Raises ValueError for what
        cannot be called.
        """
        incoming = self._receives()
        incoming.views = incoming.callback(f)

    def _receives(self):
        # What receives is loaded with the first callback, or with the first packet that needs it.
        if self._incoming is None:
            try:
                mend_imports()
                from .receive import Incoming

                self._incoming = Incoming(self)
            except MemoryError:
                if self._busy & 1:
                    self._lost()  # whoever has the stream cannot go on
                raise
        return self._incoming

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
            self._tx.waiting
            or rx.due
            or rx.end > rx.start
            and rx.buf[rx.start] & _TYPE == _PUBLISH
        ):
            op = rx.peek()
            if op:
                rx.start = rx.next
                if op & _TYPE == _PUBLISH:
                    (self._incoming or self._receives()).on_publish(op)
                elif op != _PINGRESP or rx.n:
                    self._on_ack(op)
                n -= 1
                rx.ended |= op != _PINGRESP or rx.answers()
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
        self.counters.pings += 1
        self._tx.put(_PINGREQ)

    def _on_ack(self, op):
        rx = self._rx
        pid = 0
        if op == _PUBACK and rx.n == 2:
            pid = rx.buf[rx.pos] << 8 | rx.buf[rx.pos + 1]
        if not pid:
            self._receives().on_packet(op)
        elif self._session:
            self._session.on_ack(_PUBACK, pid)
        elif pid == rx.waiting:
            rx.code = op
        else:
            self.counters.unexpected += 1

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

    def ping(self):
        """Send PINGREQ; its answer ends wait_msg(). This call does not wait for it."""
        self._enter()
        self._ping(1)
        self._busy &= 2

    def _enter(self):
        # Take the stream for a packet; `_busy &= 2` gives it back.
        if self._busy & 1 or self.sock is None:  # a timer of the application came in between
            self._raise()
        self._busy |= 1

    def _bad(self, detail):
        # The broker broke the protocol [MQTT-4.8.0-1]: `detail` is a statement or packet.
        self._lost(1000 + _PROTOCOL)
        raise MQTTException(_PROTOCOL, detail)

    # What is loaded when it is first used

    def set_last_will(self, topic, msg, retain=False, qos=0):
        """What the broker publishes when this client is lost [MQTT 3.1.1, 3.1.2.5].

        topic, msg: str or bytes; qos: 0, 1 or 2. Raises ValueError.
        """
        mend_imports()
        from .arguments import set_last_will

        return set_last_will(self, topic, msg, retain, qos)

    def subscribe(self, topic, qos=0, handler=None, timeout=None):
        """Subscribe and wait for SUBACK; messages may come before it.

        topic: one filter (str or bytes), or a list of (filter, qos);
        handler: f(topic, msg), called with bytes for each message that matches; None: one that
        the filter has already stays, else the callback gets what comes;
        timeout: seconds, None: the client's.
        Returns the QoS granted, or a list of them. Raises MQTTException
        SUBSCRIBE_REFUSED with the filter as detail, TIMEOUT; OSError; ValueError.
        """
        mend_imports()
        from .subscribe import subscribe

        return subscribe(self, topic, qos, handler, timeout)

    def unsubscribe(self, topic, timeout=None):
        """Unsubscribe from one filter or a list of them and wait for UNSUBACK."""
        mend_imports()
        from .subscribe import unsubscribe

        return unsubscribe(self, topic, timeout)

    def publisher(self, topic, retain=False, qos=0):
        """Returns p(payload), which publishes to `topic`: as publish(), only faster.

        topic: str or bytes; qos: 0, 1 or 2; payload: str or bytes-like. p() returns and
        raises what publish() does. The topic is checked here: ValueError.
        """
        mend_imports()
        from .publisher import publisher

        return publisher(self, topic, retain, qos)

    def confirm(self, seq):
        """The pipeline has made all up to sequence number `seq` durable: readings
        held for that are released. Returns how many."""
        return self._held(seq).confirm(seq)

    def republish(self, first, last):
        """Send the held readings `first` to `last` once more, as new deliveries.
        Returns how many."""
        return self._held(first, last).republish(first, last)

    def _held(self, *numbers):
        # The session, for sequence numbers of its messages.
        for seq in numbers:
            if not self._session or not isinstance(seq, int):
                mend_imports()
                from .refuse import seqs

                seqs(self, seq)
        return self._session

    def stuck(self):
        """How many connections in a row sent the oldest message and ended without its
        acknowledgement, those that disconnect() ended not counted.

        From the third on it is sent alone: so it is this one that the broker does not take.
        0 without a store, and after a reboot.
        """
        return self._session.stuck() if self._session else 0

    def discard(self):
        """Give up the oldest message that the broker has not taken.

        It is counted in the store's `dropped`. Returns its packet identifier and its topic as
        bytes; None if there is none: a QoS 2 message whose PUBREC has come is the broker's
        already, one that is held was acknowledged. If it is under way its identifier stays in
        use until the connection ends, or its acknowledgement comes.
        Raises MQTTException BUSY in a callback, OSError of the store.
        """
        if self._busy:
            raise MQTTException(_BUSY)
        return self._session.discard() if self._session else None

    def _send_large(self, op, topic, msg):
        # A PUBLISH that does not fit into the buffer, piece by piece.
        tx = self._tx
        if len(msg) > _MOST:
            self._busy &= 2
            raise ValueError("message of %d bytes" % len(msg))
        tx.begin(op, len(topic), len(msg) + 2 if op & _QOS else len(msg))
        tx.drain()
        tx.send(topic, 0, len(topic))
        tx.drain()
        if op & _QOS:
            tx.buf[0] = tx.pid >> 8
            tx.buf[1] = tx.pid & 255
            tx.send(tx.buf, 0, 2)
            tx.drain()
        tx.send(msg, 0, len(msg))
