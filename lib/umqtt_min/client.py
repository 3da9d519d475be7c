"""MQTTClient: the API.

Knows: who may call what when, and who does it: sender.py and receiver.py, session.py with a store,
keepalive.py with a keep-alive, incoming.py with a callback. Never knows: flash and the layout of
the store.

One flag, `_busy`, guards stream, parser and store. A keep-alive tick that finds
it set does nothing: the pump that holds it looks at the clock itself.

What only some programs need is imported by the method that needs it.
"""

from .counters import Counters
from .exception import MQTTException
from .packets import MQTT_3_1_1
from .port import const, mend_imports
from .sender import Sender

# For type checkers, which are told that it is true: check_types.py.
_TYPING = const(0)
if _TYPING:
    from typing import Any

# What _busy says: who has the stream. Odd: nobody else may touch it.
_MAIN = const(1)
_WAIT = const(16)  # publish() waits for the acknowledgement: beside QoS << 1 and retain
_CALLBACK = const(2)  # the application's callback runs: the receive buffer is in use

# As in errors.py
_BUSY = const(21)

# As in packets.py
_PUBLISH = const(0x30)
_DISCONNECT = const(0xE0)
_RETAIN = const(0x01)
_ROW_TOPIC_MAX = const(2)


def plain(s):
    """True if bytes-like `s` is 1 to 32767 bytes from 1 to 126 without wildcards: a good
    topic name, of which nothing is to be looked up."""
    for b in s:
        if not 0 < b < 127 or b == 35 or b == 43:
            return False
    return 0 < len(s) < 32768


def within(value, least, most):
    """True if `value` is a whole number in that range; a bool is none."""
    return type(value) is int and least <= value <= most


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
    goes out: see durable.py;
    on_connect: f(session_present), called at the end of connect(); it may publish and subscribe;
    on_disconnect: f(reason), called when a connection has ended: reason is 0 for disconnect(), an
    errno, or 1000 + a reason of errors.py. It may be called in an interrupt (by the keep-alive),
    and must not raise; log: f(line), a str for each connection, attempt and end. One that
    raises is not called again.
    Raises ValueError for arguments out of range.
    """

    # What most clients never set costs nothing in each of them. Nor does it fill the hash table of
    # their attributes (of 23; with a store 29), in which all calls get slower when it is full.
    user = pswd = lw_topic = connector = ssl_params = None
    cb: "Any" = None  # f(topic, msg): see set_callback()
    on_oversize: "Any" = None  # f(bytes): a message beyond max_message was drained
    piece = 0  # where the piece at hand stands in its payload: see set_view_callback()
    _inbox: "Any" = None  # incoming QoS 2 identifiers: the store, or inbox.Inbox
    _session: "Any" = None  # the Session of a client with a store
    _alive: "Any" = None  # the keepalive.KeepAlive
    _durable: "Any" = None  # the durable.DurableInbox
    _events: "Any" = None  # the events.Events
    _as_bytes: "Any" = None  # validate.as_bytes(), from the first argument that it has to look at
    _narrow: "Any" = None  # the last long view whose items were found to be bytes
    _topic: "Any" = object()  # the last topic of bytes that was checked; nobody's: none
    _pair: "Any" = (_topic, None)  # the last topic that is a str, and its bytes

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
        on_connect=None,
        on_disconnect=None,
        log=None,
    ):
        self.counters = Counters()
        self._busy = self.pid = 0
        self.sock: "Any" = None
        self.session_present: "Any" = None  # what CONNACK said; None: nothing
        self.connected = False  # True between connect() and the end of the connection
        self._thrown = False  # the callback raised what ended the latest connection
        self.client_id = bytes(self._bytes(client_id, "client_id"))
        self.server = server
        self.port = port or (8883 if ssl else 1883)
        self.keepalive = keepalive
        self.ssl = ssl
        self.protocol = protocol
        self.store = store
        self.timer = timer
        self.max_message = max_message
        # What is usual is right; all else is looked at in words, by code that few need.
        if (
            not within(port, 0, 65535)
            or not within(keepalive, 0, 65535)
            or not within(window, 1, 255)
            or not within(buffer_size, 64, 65536)
            or not within(max_message, 0, 1048576)
            or not within(timeout, 1, 3600)
            or not server
            or not isinstance(server, str)
            or ssl
            or ssl_params
            or timer is not None
            and timer is not False
            or connector is not None
            or user is not None
            or password is not None
            or protocol is not MQTT_3_1_1
            or not plain(self.client_id)
        ):
            self.ssl_params = ssl_params
            mend_imports()
            from .arguments import complete

            complete(self, user, password, connector, timeout, window, buffer_size)
        self._tmo = int(timeout * 1000)
        self._tx = Sender(self, buffer_size)
        self._rx: "Any" = None  # the receiver.Receiver: see _receiver()
        if store is not None:
            from .session import Session

            self._inbox = store
            self._session = Session(self, store, window)
        if durable_inbox is not None:
            mend_imports()
            from .durable import DurableInbox

            DurableInbox(self, durable_inbox)
        elif store is not None:
            self._receiver()
        if on_connect is not None or on_disconnect is not None or log is not None:
            mend_imports()
            from .events import Events

            self._events = Events(self, on_connect, on_disconnect, log)

    def inflight(self):
        """How many messages in the store are not acknowledged; 0 without a store."""
        # No property: with one MicroPython looks for a setter at each assignment to the client.
        return 0 if self.store is None else self.store.live - self.store.held

    def _bytes(self, s, name="msg"):
        # str or bytes-like as bytes-like; name: of the argument, for who reads the error.
        if isinstance(s, str):
            return s.encode()
        if isinstance(s, bytes) or isinstance(s, bytearray):
            return s  # a tuple of types would be made anew each time
        if self._as_bytes is None:  # an import statement takes heap each time, this does not
            mend_imports()
            from .validate import as_bytes

            self._as_bytes = as_bytes
        return self._as_bytes(self, s, name)

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
                if self._session:
                    self._session.clear()  # it was not in vain for what was in flight
            except OSError:
                pass  # it is closed all the same
            self._close()

    def _close(self, reason=0):
        # reason: see on_disconnect.
        tx = self._tx
        rx = self._rx
        sock = self.sock
        if rx is not None:
            if rx.due:
                rx.due.close()
            rx.waiting = 0
        self.connected = False
        self.sock = tx.sock = None
        self._busy = tx.waiting = 0
        if self._alive is not None:
            self._alive.close()
        if sock:
            try:
                sock.close()
            except OSError:
                pass
        if self._events is not None:
            self._events.ended(reason)

    def _lost(self, code=0):
        # The connection ends, and whoever calls raises what ended it. code: its errno, or reason
        # of an MQTTException + 1000, 0: the network's, or 103 if it is the callback that raises.
        # Returns it. The connection may have ended before.
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
            self._close(code)
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
        if qos != 0:  # None, too, is none
            if qos not in (1, 2):
                self._refuse(qos)
            qos = int(qos) << 1 | (1 if retain else 0) | (_WAIT if wait else 0)
            if self._session:
                return self._session.publish(topic, msg, qos)
            if not qos & _WAIT or self._busy == _CALLBACK:
                self._refuse(qos >> 1 & 3)
            return self._receiver().publish(topic, msg, qos)
        if self._busy & 1 or self.sock is None:
            self._raise()
        self._busy |= 1
        self._tx.publish(_PUBLISH | _RETAIN if retain else _PUBLISH, topic, msg)
        self._busy &= 2
        self.counters.sent += 1

    def _refuse(self, qos):
        mend_imports()
        from .validate import refuse_qos

        refuse_qos(qos)

    def _name_of(self, topic):
        # The topic name as bytes-like, checked. str and bytes do not change: what was checked once
        # need not be checked again. A publish() in an interrupt may do this for another topic at
        # any line of ours: what one publish() works with are its own variables, and the pair is
        # read at once.
        pair = self._pair
        if topic is pair[0]:
            return pair[1]
        name = self._bytes(topic, "topic")
        if not plain(name):
            mend_imports()
            from .topics import check_name

            check_name(name, self.protocol[_ROW_TOPIC_MAX])
        if isinstance(topic, bytes):
            self._topic = topic
        elif isinstance(topic, str):
            self._pair = (topic, name)
        return name

    def flush(self, timeout=None):
        """Wait until all publishes are acknowledged.

        timeout: seconds, None: the client's. Returns True, or False if it was
        too short. Raises OSError when the connection ends, or is not there although
        something waits for it.
        """
        return self._receiver().flush(timeout)

    # Receiving

    def check_msg(self):
        """Handle what has arrived, send what may be sent, keep the link alive; does not wait
        for the broker, but (up to `timeout`) for a write that the network does not take.

        Returns the first byte of the last PUBLISH delivered, None if there was none.
        Raises OSError, MQTTException; what the callback raises.
        """
        return (self._rx or self._receiver()).check_msg(False)

    def wait_msg(self):
        """Wait, without limit, for one packet, and handle it.

        At most three bytes are read beyond it: a program may poll the socket for the next one.
        Returns the first byte of a PUBLISH, None for an acknowledgement and for the answer
        to ping(). What answers the keep-alive's own PINGREQ does not end the wait; only where it
        was there before the call does None say so, to a program that had polled the socket.
        A link that is dead ends it (OSError) where there is a keep-alive.
        """
        rx = self._rx or self._receiver()
        return rx.check_msg(True) or rx.wait_msg()

    def set_callback(self, f):
        """f(topic, msg) is called with bytes for each message received; None: nothing is.

        Raises ValueError for what cannot be called.
        """
        self.cb = self._receiver().messages().callback(f)

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
        self._receiver().messages().view_callback(f)

    def _receiver(self):
        # What reads is loaded when something is to be read.
        if self._rx is None:
            mend_imports()
            from .receiver import Receiver

            self._rx = Receiver(self, len(self._tx.buf) - 5)
        return self._rx

    def tick(self, timer=None):
        """What the keep-alive timer does: for those who have a timer of their own. It
        may be called at any instant, also in the middle of another call. Never raises."""
        if self._alive is not None:
            self._alive.tick()

    def ping(self):
        """Send PINGREQ; its answer ends wait_msg(). This call does not wait for it."""
        self._receiver().ask()

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
        return self._stored().confirm(seq)

    def republish(self, first, last):
        """Send the held readings `first` to `last` once more, as new deliveries.
        Returns how many."""
        return self._stored().republish(first, last)

    def _stored(self):
        # The session, for calls that only a client with a store has.
        if self._session is None:
            mend_imports()
            from .reasons import refuse_no_store

            refuse_no_store()
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
        return self._session.discard() if self._session else None
