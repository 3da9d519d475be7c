"""A broker without I/O that forgives nothing: it is fed what a client writes and checks all of it.

Knows: the flows of MQTT 3.1.1, 3.1 and the MQIpdp draft, sessions, how to misbehave on request.
Must not know: sockets (tests/strict_server.py), in-memory streams (broker_stream.py), the client.

    broker = StrictBroker()             # levels 4, 3 and 2, by what CONNECT says
    conn = broker.accept()
    conn.feed(bytes from the client)    # raises ProtocolError, and keeps it in broker.errors
    conn.take(n)                        # bytes for the client
    conn.gone()                         # the connection ended

Every broker made is looked at when the test function ends (`check_all`): errors that were not
taken with `expect()` fail the test, wherever they were raised.
"""

import time

from strict_wire import (
    CONNECT,
    DISCONNECT,
    LEVELS,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ProtocolError,
    decode_length,
    fail,
    matches,
    number,
    packet,
    parse,
    parse_connect,
    text,
)

DROP = "drop"  # do what the packet asks, send no answer
HOLD = "hold"  # keep the answer back until release()
CLOSE = "close"  # close instead of answering
ANSWER_CLOSE = "answer, close"  # answer, then close

_made = []


def check_all():
    """Check and forget every broker made since the last call; raises ProtocolError."""
    brokers = _made[:]
    _made.clear()
    for broker in brokers:
        broker.check()


class Message:
    """An application message."""

    def __init__(self, topic, payload, qos, retain, dup=False, pid=0, client_id=b"", will=False):
        self.topic = bytes(topic)
        self.payload = bytes(payload)
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.pid = pid
        self.client_id = client_id
        self.will = will

    def __repr__(self):
        return "Message(%r, %r, qos=%d, retain=%d, dup=%d, pid=%d)" % (
            self.topic, self.payload, self.qos, self.retain, self.dup, self.pid
        )  # fmt: skip

    def same(self, other):
        """True if it is the same publication."""
        return (
            self.topic == other.topic
            and self.payload == other.payload
            and self.qos == other.qos
            and self.retain == other.retain
        )


class Inflight:
    """A QoS 1 or 2 PUBLISH of the client that it cannot know to be finished.

    resent: it came in this connection, for the first time or again.
    seen: PUBREC was read by the client.  released: PUBREL came.
    """

    def __init__(self, message):
        self.message = message
        self.seen = self.released = False
        self.resent = True

    @property
    def outstanding(self):
        """True while its PUBLISH has to be re-sent before anything newer is sent."""
        return not (self.resent or self.seen or self.released)


class Outgoing:
    """A QoS 1 or 2 PUBLISH to the client that it has not acknowledged to the end."""

    def __init__(self, message):
        self.message = message
        self.state = PUBLISH  # what was sent last: PUBLISH or PUBREL


class Session:
    """What outlives a connection."""

    def __init__(self, client_id):
        self.client_id = client_id
        self.subscriptions = {}
        self.incoming = []  # Inflight, in the order of their first arrival
        self.outgoing = []  # Outgoing
        self.queue = []  # messages that came while the client was away
        self.requests = {}  # id of SUBSCRIBE and UNSUBSCRIBE not answered: (connection, packet)
        self.completed = {}  # id of a finished QoS 2 publication: the connection it ended in
        self.resumed = False  # the client may have sent something in an earlier connection
        self.last_pid = 0

    def find(self, pid):
        """The client's publication in flight under that id, or None."""
        for one in self.incoming:
            if one.message.pid == pid:
                return one
        return None

    def next_pid(self):
        """An id that no outgoing message has."""
        used = [o.message.pid for o in self.outgoing]
        while True:
            self.last_pid = self.last_pid % 65535 + 1
            if self.last_pid not in used:
                return self.last_pid


class Connection:
    """One connection of one client."""

    def __init__(self, broker):
        self.broker = broker
        self.level = broker.level or LEVELS[4]
        self.session = None
        self.connect = None
        self.open = True  # the broker has not closed it
        self.disconnected = False  # DISCONNECT came
        self.closed_by_client = False
        self.out = bytearray()
        self.sent = self.read = 0  # bytes given to the stream, bytes the client has read
        self._in = bytearray()
        self._said = bytearray()  # the beginning of a packet to the client that is not whole yet
        self._marks = []  # (offset in what is sent, function): called once the client has read it
        self._acks = []  # (type, pid) that the client owes, in order, with the offset of its cause
        self._releases = []  # ids whose PUBREC was sent: PUBRELs in this order
        self._carried = []  # those of earlier connections: read, but perhaps not looked at
        self._spare = []  # ids of a second or unprovoked PUBREC: PUBREL may come
        self._heard = time.ticks_ms()
        self.received = []  # Packet, all of them

    # what the stream calls

    def feed(self, data):
        """Bytes from the client."""
        try:
            self._feed(data)
        except ProtocolError as e:
            self.broker.errors.append(str(e))
            self.open = False
            raise

    def take(self, n):
        """At most n bytes for the client; it has read them."""
        part = bytes(self.out[:n])
        self.out = self.out[n:]
        self.read += len(part)
        while self._marks and self._marks[0][0] <= self.read:
            self._marks.pop(0)[1]()
        return part

    def gone(self, by_client=True):
        """The connection ended; the will is published unless DISCONNECT came."""
        self.closed_by_client = self.closed_by_client or by_client
        if self in self.broker.connections:
            self.broker.connections.remove(self)
            self.broker._left(self)

    # receiving

    def _feed(self, data):
        if self.disconnected and data:
            fail("MQTT-3.14.4-2", "%d bytes after DISCONNECT" % len(data))
        self._in.extend(data)
        while self.open:
            head = decode_length(self._in, 1) if len(self._in) > 1 else None
            if head is None or head[1] + head[0] > len(self._in):
                return
            op = self._in[0]
            body = bytes(self._in[head[1] : head[1] + head[0]])
            self._in = self._in[head[1] + head[0] :]
            self._timing()
            self._packet(op, body)
            if self.disconnected and self._in:
                fail("MQTT-3.14.4-2", "%d bytes after DISCONNECT" % len(self._in))

    def _timing(self):
        now = time.ticks_ms()
        silent = time.ticks_diff(now, self._heard)
        self._heard = now
        keepalive = self.connect.keepalive if self.connect else 0
        if keepalive and silent > keepalive * 1000 + self.broker.patience:
            fail("MQTT-3.1.2-23", "silent for %d ms, keep alive %d s" % (silent, keepalive))

    def _packet(self, op, body):
        if self.connect is None:
            if op >> 4 != CONNECT:
                fail("MQTT-3.1.0-1", "the first packet has type %d" % (op >> 4))
            self._on_connect(parse_connect(op, body))
            return
        if op >> 4 == CONNECT:
            fail("MQTT-3.1.0-2", "a second CONNECT")
        p = parse(self.level, op, body)
        self.received.append(p)
        self.broker.packets.append(p)
        _HANDLERS[p.type](self, p)

    def _on_connect(self, p):
        self.broker.packets.append(p)
        self.received.append(p)
        if self.broker.level and p.level is not self.broker.level:
            fail("MQTT-3.1.2-2", "protocol version %d" % p.level.level)
        self.connect = p
        self.level = p.level
        refusal = self.broker.refuse
        if refusal:
            self.answer(CONNECT, bytes((0x20, 2, 0, refusal)))
            self.open = False
            return
        present = self.broker._enter(self, p)
        self.answer(CONNECT, bytes((0x20, 2, 1 if present and p.level.level == 4 else 0, 0)))
        self._resume(present)

    def _resume(self, present):
        for one in self.session.incoming:
            one.resent = False
        self._releases = [
            one.message.pid for one in self.session.incoming if one.seen or one.released
        ]
        self._carried = self._releases[:]
        if not self.open or not present:
            return
        for o in self.session.outgoing:
            if o.state == PUBLISH:
                self._send_publish(o.message, True)
            else:
                self.send(self._short(0x6A if PUBREL in self.level.dup else 0x62, o.message.pid))
        while self.session.queue:
            self.deliver(self.session.queue.pop(0))

    def _on_publish(self, p):
        message = Message(
            p.topic, p.payload, p.qos, p.retain, p.dup, p.pid, self.session.client_id
        )
        self.broker.publishes.append(message)
        if p.topic in self.broker.forbidden:
            self.open = False
            return
        if not p.qos:
            self.broker._received(message)
            return
        known = self.session.find(p.pid)
        if known and not (p.dup or known.resent or self.broker.resume_required):
            self._forget(known)  # a client without a store forgot it with the connection
            known = None
        if known:
            self._again(known, message)
        else:
            known = self._first(message)
        self._acknowledge(known, message)

    def _first(self, message):
        # An id that is not in flight: a new publication, or one whose first sending never arrived.
        if message.pid in self.session.requests:
            fail("MQTT-2.3.1-2", "packet identifier %d is in use" % message.pid)
        if message.dup and not self.session.resumed:
            fail("MQTT-3.3.1-1", "DUP on a first delivery: %r" % message)
        if not message.dup:
            self._all_resent(message, None, "MQTT-4.4.0-1")
        self.session.completed.pop(message.pid, None)
        known = Inflight(message)
        self.session.incoming.insert(self._place(message), known)
        self.broker._received(message)
        return known

    def _place(self, message):
        # What is re-sent though its acknowledgement had been read (the client closed
        # before it came to that one) is older than all that is still to be re-sent.
        incoming = self.session.incoming
        for i in range(len(incoming)):
            if message.dup and incoming[i].outstanding:
                return i
        return len(incoming)

    def _all_resent(self, message, until, statement):
        # What was not acknowledged comes first, in its order, else the order is lost.
        for one in self.session.incoming if self.broker.resume_required else ():
            if one is until:
                return
            if one.outstanding:
                fail(statement, "%r sent before %r was re-sent" % (message, one.message))

    def _again(self, known, message):
        if not known.message.same(message):
            fail("MQTT-2.3.1-2", "%r re-uses the id of %r" % (message, known.message))
        if known.resent:
            fail("MQTT-4.4.0-1", "re-sent within the connection, or id in use: %r" % message)
        if not message.dup:
            fail("MQTT-3.3.1-1", "re-delivery without DUP: %r" % message)
        if known.released:
            fail("MQTT-4.3.3-1", "PUBLISH re-sent after its PUBREL: %r" % message)
        if known.seen:
            self.broker.resent_after_ack.append(message)
        self._all_resent(message, known, "MQTT-4.6.0-1")
        known.resent = True
        if message.pid in self._releases:
            self._releases.remove(message.pid)
            self._carried.remove(message.pid)
        if message.qos == 1:
            self.broker._received(message)

    def _acknowledge(self, known, message):
        def seen():
            known.seen = True
            if message.qos == 1:
                self._forget(known)

        self.answer(PUBLISH, self._short(0x40 if message.qos == 1 else 0x50, message.pid), seen)

    def _forget(self, known):
        if known in self.session.incoming:
            self.session.incoming.remove(known)

    def _on_pubrel(self, p):
        known = self.session.find(p.pid)
        if p.pid in self._releases:
            carried = p.pid in self._carried
            first = [r for r in self._releases if (r in self._carried) == carried][0]
            if first != p.pid and self.broker.resume_required:
                fail("MQTT-4.6.0-4", "PUBREL %d before %d" % (p.pid, first))
            self._releases.remove(p.pid)
        elif p.pid in self._spare:
            self._spare.remove(p.pid)
        elif self.session.completed.get(p.pid, self) is not self:
            pass  # PUBCOMP was read, but the device lost its power before it had written that down
        else:
            fail("MQTT-4.3.3-1", "PUBREL %d without PUBREC" % p.pid)
        if known:
            self._check_release(known, p)
            known.released = known.resent = True

        def seen():
            self._forget(known)
            self.session.completed[p.pid] = self

        self.answer(PUBREL, self._short(0x70, p.pid), seen)

    def _check_release(self, known, p):
        if known.resent and not known.seen and not self.broker.unread_acks:
            fail("MQTT-4.3.3-1", "PUBREL %d before its PUBREC was read" % p.pid)
        if PUBREL in self.level.dup:
            first = not known.released and not self.session.resumed
            if p.dup if first else known.released and not known.resent and not p.dup:
                fail("MQTT 3.1, 2.1", "PUBREL %d with DUP %d" % (p.pid, p.dup))

    def owed(self):
        """(type, id) of the acknowledgements that the client has not sent yet."""
        return [(e[0], e[1]) for e in self._acks]

    def _on_ack(self, p):
        # In the order of what is acknowledged [MQTT-4.6.0-2, -3], with its id [MQTT-2.3.1-6].
        order = {PUBACK: "MQTT-4.6.0-2", PUBREC: "MQTT-4.6.0-3", PUBCOMP: "MQTT-4.3.3-2"}[p.type]
        owed = [e for e in self._acks if e[0] == p.type]
        if p.pid not in [e[1] for e in owed]:
            fail("MQTT-2.3.1-6", "%s %d acknowledges nothing" % (p.name, p.pid))
        if owed[0][1] != p.pid:
            fail(order, "%s %d before %d" % (p.name, p.pid, owed[0][1]))
        if owed[0][2] > self.read and not self.broker.unread_acks:
            fail(order, "%s %d before its cause was read" % (p.name, p.pid))
        self._acks.remove(owed[0])
        self._advance(p)

    def _advance(self, p):
        for o in self.session.outgoing:
            if o.message.pid == p.pid and (o.state == PUBREL) == (p.type == PUBCOMP):
                break
        else:
            return  # what was sent by send() only
        if p.type == PUBREC:
            o.state = PUBREL
            self.answer(PUBREC, self._short(0x62, p.pid))
        else:
            self.session.outgoing.remove(o)
            self.broker.acknowledged.append(o.message)

    def _on_subscribe(self, p):
        self._new_request(p)
        codes = bytearray()
        for topic, qos in p.filters:
            refused = topic in self.broker.refused_filters
            if not refused:
                self.session.subscriptions[topic] = qos
            codes.append(0x80 if refused else qos)
        answer = packet(0x90, number(self.level, p.pid) + codes)
        self.answer(SUBSCRIBE, answer, lambda: self.session.requests.pop(p.pid, None))
        for topic, qos in p.filters:
            for m in self.broker.retained.values():
                if matches(topic, m.topic) and topic not in self.broker.refused_filters:
                    self.deliver(Message(m.topic, m.payload, min(m.qos, qos), True))

    def _on_unsubscribe(self, p):
        self._new_request(p)
        for topic in p.filters:
            self.session.subscriptions.pop(topic, None)
        answer = self._short(0xB0, p.pid)
        self.answer(UNSUBSCRIBE, answer, lambda: self.session.requests.pop(p.pid, None))

    def _new_request(self, p):
        before = self.session.requests.get(p.pid)
        again = before and before[0] is not self and before[1].body == p.body
        if before and not again or self.session.find(p.pid):
            fail("MQTT-2.3.1-2", "%s with packet identifier %d in use" % (p.name, p.pid))
        if p.dup and not again and not self.session.resumed:
            fail("MQTT 3.1, 2.1", "%s %d with DUP: it was not sent before" % (p.name, p.pid))
        self.session.requests[p.pid] = (self, p)

    def _on_pingreq(self, p):
        self.answer(PINGREQ, b"\xd0\x00")

    def _on_disconnect(self, p):
        self.disconnected = True

    # sending

    def _short(self, op, pid):
        return bytes((op, 2)) + number(self.level, pid)

    def answer(self, kind, data, seen=None):
        """Answer a packet of that kind, or do what `broker.when` says instead.

        seen: called once the client has read the proper answer.
        """
        action = self.broker._action(kind)
        if action is DROP:
            return
        if action is HOLD:
            self.broker.held.append((self, data, seen))
            return
        if action is CLOSE:
            self.open = False
            return
        more = b""
        if action is not None and action is not ANSWER_CLOSE:
            proper, data = data, action if isinstance(action, bytes) else action(data)
            if data.startswith(proper):
                data, more = proper, data[len(proper) :]  # the client may read it by itself
            else:
                seen = None
        self.send(data, seen)
        if more:
            self.send(more)
        if action is ANSWER_CLOSE:
            self.open = False

    def send(self, data, seen=None):
        """Any bytes; what they oblige the client to (acknowledgements) is taken down."""
        data = bytes(data)
        self._oblige(data)
        self.out.extend(data)
        self.sent += len(data)
        if seen:
            self._marks.append((self.sent, seen))

    def _oblige(self, data):
        # Look at each packet once it is whole; what is malformed obliges to nothing.
        self._said.extend(data)
        start = self.sent + len(data) - len(self._said)
        i = 0
        while i + 2 <= len(self._said):
            try:
                head = decode_length(self._said, i + 1)
            except ProtocolError:
                i = len(self._said)
                break
            if head is None or head[1] + head[0] > len(self._said):
                break
            end = head[1] + head[0]
            self._owe(self._said[i], self._said[head[1] : end], start + end)
            i = end
        self._said = self._said[i:]

    def _owe(self, op, body, offset):
        kind, qos = op >> 4, op >> 1 & 3
        if kind == PUBLISH and qos in (1, 2) and len(body) > 3:
            body = body[2 + (body[0] << 8 | body[1]) :]
            if len(body) > 1:
                self._acks.append((PUBACK if qos == 1 else PUBREC, self._pid(body), offset))
        elif kind == PUBREL and len(body) == 2:
            self._acks.append((PUBCOMP, self._pid(body), offset))
        elif kind == PUBREC and len(body) == 2:
            pid = self._pid(body)
            known = self.session.find(pid)
            new = known and not known.released and pid not in self._releases
            (self._releases if new else self._spare).append(pid)

    def _pid(self, body):
        return body[1] << 8 | body[0] if self.level.little else body[0] << 8 | body[1]

    def deliver(self, message):
        """PUBLISH to the client; at QoS 1 and 2 under a new id, kept until acknowledged."""
        m = Message(message.topic, message.payload, message.qos, message.retain)
        if m.qos:
            m.pid = self.session.next_pid()
            self.session.outgoing.append(Outgoing(m))
        self._send_publish(m, False)
        return m.pid

    def _send_publish(self, m, dup):
        self.send(publish(self.level, m.topic, m.payload, m.qos, m.retain, dup, m.pid))


def publish(level, topic, payload, qos=0, retain=False, dup=False, pid=0):
    """The bytes of a PUBLISH to a client."""
    level = LEVELS[level] if isinstance(level, int) else level
    op = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return packet(op, text(topic) + (number(level, pid) if qos else b"") + bytes(payload))


_HANDLERS = {
    PUBLISH: Connection._on_publish,
    PUBACK: Connection._on_ack,
    PUBREC: Connection._on_ack,
    PUBCOMP: Connection._on_ack,
    PUBREL: Connection._on_pubrel,
    SUBSCRIBE: Connection._on_subscribe,
    UNSUBSCRIBE: Connection._on_unsubscribe,
    PINGREQ: Connection._on_pingreq,
    DISCONNECT: Connection._on_disconnect,
}


class StrictBroker:
    """The broker.  level: 4, 3 or 2 for one version only, None for all three."""

    def __init__(self, level=None):
        self.level = LEVELS[level] if level else None
        self.errors = []  # texts of ProtocolError
        self.sessions = {}
        self.connections = []
        self.retained = {}
        self.packets = []  # every Packet of every client
        self.publishes = []  # every PUBLISH received, as Message
        self.messages = []  # application messages: QoS 2 once, QoS 1 as often as they came
        self.acknowledged = []  # messages to clients that were acknowledged to the end
        self.resent_after_ack = []  # PUBLISH re-sent though its acknowledgement had been read
        self.refuse = 0  # CONNACK return code
        self.refused_filters = []
        self.forbidden = []  # topics: a PUBLISH to one of them ends the connection
        self.held = []  # answers kept back by HOLD
        self.patience = 0  # ms beyond the keep-alive, for a clock that runs on while nobody does
        self.resume_required = True  # unacknowledged publications must be re-sent, in order
        self.unread_acks = False  # what the client has read is unknown (real sockets)
        self.session_present = None  # True or False: what CONNACK says, instead of the truth
        self._script = []
        self._anonymous = 0
        _made.append(self)

    # what tests call

    def accept(self):
        """A new connection."""
        conn = Connection(self)
        self.connections.append(conn)
        return conn

    def when(self, kind, action, nth=1):
        """Misbehave: action for the answer to the nth packet of that kind from now on, 0: to all.

        action: DROP, HOLD, CLOSE, ANSWER_CLOSE, bytes to send instead, or f(answer) -> bytes.
        """
        self._script.append([kind, nth, action])

    def behave(self, kind=None):
        """Take back what when() said of packets of that kind, None: of all."""
        self._script[:] = [one for one in self._script if kind not in (None, one[0])]

    def release(self):
        """Send what HOLD kept back."""
        held, self.held = self.held, []
        for conn, data, seen in held:
            conn.send(data, seen)

    def publish(self, topic, payload, qos=0, retain=False):
        """Publish to every session that subscribed."""
        self._route(Message(topic, payload, qos, retain))

    def lose_sessions(self):
        """Forget every session, as a broker without persistence at a restart."""
        for conn in self.connections[:]:
            conn.open = False
            conn.gone(False)
        self.sessions.clear()

    def expect(self, statement):
        """Take an error that the test provoked; AssertionError if it is not there."""
        for e in self.errors:
            if statement in e:
                self.errors.remove(e)
                return e
        raise AssertionError("no error %s in %r" % (statement, self.errors))

    def check(self):
        """Raise ProtocolError if anything was wrong."""
        if self.errors:
            raise ProtocolError("; ".join(self.errors))
        if self.closing():
            fail("MQTT-3.14.4-1", "not closed after DISCONNECT")

    def closing(self):
        """Connections that sent DISCONNECT and were not closed by the client."""
        return [
            c for c in self.connections if c.open and c.disconnected and not c.closed_by_client
        ]

    def count(self, kind):
        """How many packets of that kind clients have sent."""
        return len([p for p in self.packets if p.type == kind])

    def payloads(self):
        """Payloads of the application messages received."""
        return [m.payload for m in self.messages]

    # what connections call

    def _action(self, kind):
        for entry in self._script:
            if entry[0] == kind:
                if entry[1] == 0:
                    return entry[2]
                entry[1] -= 1
                if entry[1] == 0:
                    self._script.remove(entry)
                    return entry[2]
        return None

    def _enter(self, conn, p):
        # Take up or begin the session; True if there was one.
        for other in self.connections[:]:
            if other is not conn and other.session and other.session.client_id == p.client_id:
                other.open = False  # taken over [MQTT-3.1.4-2]
                other.gone(False)
        client_id = p.client_id
        if not client_id:
            self._anonymous += 1
            client_id = b"anonymous-%d" % self._anonymous
        if p.clean:
            self.sessions.pop(client_id, None)
        present = client_id in self.sessions
        session = self.sessions.get(client_id) or Session(client_id)
        session.resumed = present
        self.sessions[client_id] = session
        conn.session = session
        return present if self.session_present is None else self.session_present

    def _left(self, conn):
        p = conn.connect
        if not p or not conn.session:
            return
        if p.will and not conn.disconnected:
            self._received(
                Message(
                    p.will_topic, p.will_message, p.will_qos, p.will_retain,
                    client_id=p.client_id, will=True,
                )
            )  # fmt: skip
        if p.clean and self.sessions.get(conn.session.client_id) is conn.session:
            del self.sessions[conn.session.client_id]

    def _received(self, message):
        self.messages.append(message)
        self._route(message)

    def _route(self, message):
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        for session in list(self.sessions.values()):
            granted = [q for f, q in session.subscriptions.items() if matches(f, message.topic)]
            if granted:
                qos = min(message.qos, max(granted))
                self._to(session, Message(message.topic, message.payload, qos, False))

    def _to(self, session, message):
        for conn in self.connections:
            if conn.session is session and conn.open:
                conn.deliver(message)
                return
        if message.qos:
            session.queue.append(message)
