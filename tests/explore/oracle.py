"""What must hold at every state, and at the end.

Knows: the promises of lib/umqtt_min/GUARANTEES.md and the rules of MQTT 3.1.1, sections 2.3 and 4.
Must not know: the client's code, the link, what is explored.

It hears everything: what the application does and is given, what the client writes and reads, what
the broker takes. `view` is what a board would find in flash if the power went at that instant.
"""

from broker import (
    CONNACK,
    CONNECT,
    DISCONNECT,
    DUP,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RETAIN,
    SUBACK,
    SUBSCRIBE,
    body,
    fixed_header,
    packet,
    parse_publish,
)
from case import FILTER, FIRST_IN, FIRST_OUT
from stock import HELD, NO, PERHAPS, QUEUED, RELEASED, YES, Broken, Stock

WHAT = ("topic", "payload", "RETAIN")
HOPELESS = 20  # connections in a row: then the client may ask for a new session
LENGTHS = {PUBACK: 2, PUBREC: 2, PUBREL & 0xF0: 2, PUBCOMP: 2, PINGREQ: 0, DISCONNECT: 0}

__all__ = ["NO", "PERHAPS", "YES", "Broken", "Oracle"]


class Sent:
    """A message that the application publishes."""

    def __init__(self, number, qos):
        self.number = number
        self.qos = qos
        self.accepted = NO
        self.pid = 0
        self.written = False  # in this session, as the client knows it
        self.tried = False  # a write of it was begun in this session
        self.before = False  # on an earlier connection
        self.whole = False  # all of it was written in this session
        self.marked = False  # flash may say so since the power went, whether it is true or not
        self.released = False  # its PUBREL was written in this session
        self.ended = False  # the client has read the last acknowledgement
        self.ends = False  # in the action at hand
        self.here = False  # under way on this connection
        self.begun = False  # a write of it was begun on this connection
        self.forgotten = False  # the broker lost its session since
        self.count = 0  # how often the broker has taken it as a new message
        self.again = False  # the application wants it sent once more
        self.covered = NO  # by confirm()
        self.state = None  # in the store, where it was seen there
        self.gone = False  # given up by the store, as it may
        self.vainly = 0  # connections in a row that have ended without its acknowledgement
        self.since = None  # since when the store has it, where that counts


class Received:
    """A message that others publish."""

    def __init__(self, number):
        self.number = number
        self.qos = -1  # as the broker sent it; -1: not yet
        self.count = 0  # how often the application was given it
        self.repeats = False  # once more is allowed: the power went before its id was durable
        self.forgotten = False  # the broker lost it
        self.fresh = False  # given in the action at hand
        self.spare = False  # its identifier is in RAM only: in flash there was no room


class Oracle:
    """The judge of one world."""

    def __init__(self, world, case):
        self.world = world
        self.sent = [Sent(i, qos) for i, qos in enumerate(case.out)]
        self.received = [Received(i) for i in range(len(case.inbound))]
        self.pids = {}  # packet identifier of the broker: number of the message read last
        self.loose = bool(case.faults)  # the broker breaks rules: at least once is what is left
        self.hole = False  # the client could not hear that the session was lost
        self.unheard = False  # the broker's session is new, and the client has not heard of it
        self.firsts = [-1, -1, -1]  # by QoS: the newest message that the broker has taken
        self.last = [-1, -1, -1]  # by QoS: the last PUBLISH on this connection
        self.given = [-1, -1, -1]
        self.stock = Stock(world, case, self.sent)
        self.spoke = self.heard = None  # the last byte of the client, of the broker
        self.clean = False  # this connection asks for a new session
        self.began = False  # its CONNACK was read
        self.mark = -1  # up to this number of the store messages may have gone out, says flash
        self.renewing = False  # and has said that the session is new; flash may not say it yet
        self.vain = 0  # connections in a row that have ended at a PUBREL, where a broker does that
        self.owed = False  # this one will, if nothing comes
        self.left = False  # the application has ended this connection
        self.boot = 0  # number of the latest one
        self.epoch = None
        self.due = {PUBACK: [], PUBREC: [], PUBREL: []}  # identifiers, in the order of the answers
        self.asked = 0  # identifier of the last SUBSCRIBE, until its SUBACK
        self.out = bytearray()  # written, not yet a whole packet
        self.into = bytearray()

    # The application

    def accepted(self, number, how):
        """publish() has returned, or was cut (PERHAPS)."""
        self.sent[number].accepted = how
        if how == PERHAPS and self.world.case.max_age:
            self.sent[number].since = self.world.clock.now

    def numbered(self, number):
        """The store is about to give it a number, which names a reading for ever."""
        seqs = self.world.seqs
        for other in self.sent[:number]:
            if other.qos and other.accepted == YES and seqs[other.number] >= seqs[number]:
                raise Broken("message %d gets the number of message %d" % (number, other.number))

    def booted(self, store):
        """A mount has ended: epoch, boot and sequence number name a reading for ever."""
        if self.world.case.volatile:
            return
        if store.boot <= self.boot:
            raise Broken("a boot has the number %d, and there was a number %d"
                         % (store.boot, self.boot))
        if self.epoch not in (None, store.epoch):
            raise Broken("a boot begins a new epoch")
        self.boot = store.boot
        self.epoch = store.epoch

    def subscribed(self):
        """subscribe() has returned."""
        if self.asked:
            raise Broken("subscribe() has not waited for its SUBACK")

    def waited(self, number):
        """publish(wait=True) has returned."""
        if self.sent[number].qos and not self.sent[number].ended:
            raise Broken("publish() has not waited for the end of message %d" % number)

    def got(self, topic, payload):
        """The callback is called."""
        message = self._given(topic, payload)
        message.count = min(message.count + 1, 3)
        message.fresh = True
        message.spare = len(self.world.board.view()[1]) == self.world.case.ids
        if not message.qos and message.count > 1:
            raise Broken("QoS 0 message %d is given to the application twice" % message.number)
        if message.qos == 2 and message.count > 1 and not (message.repeats or self.tolerant()):
            raise Broken("QoS 2 message %d is given to the application twice" % message.number)
        if message.count == 1 and message.qos >= 0 and self.world.case.ordered_in:
            if message.number < self.given[message.qos] and not self.tolerant():
                raise Broken("message %d comes out of order" % message.number)
            self.given[message.qos] = max(self.given[message.qos], message.number)

    def _given(self, topic, payload):
        number = payload[0] - FIRST_IN if payload else -1
        if not 0 <= number < len(self.received) or self.received[number].qos < 0:
            raise Broken("the application is given what nobody has sent: %r" % payload)
        for name, here, there in zip(WHAT, (topic, payload), self.world.case.others[number]):
            if here != there:
                raise Broken("the application is given message %d with %s %r; it was sent with %r"
                             % (number, name, here, there))
        return self.received[number]

    def on_its_way(self):
        """The messages whose last acknowledgement may still come on this connection."""
        return [m for m in self.sent if m.here and m.written and not m.ended]

    def threw(self, payload):
        """The callback has raised: the message comes again."""
        message = self.received[payload[0] - FIRST_IN]
        message.repeats = True
        message.count -= message.count == 1

    def tolerant(self):
        """Whether duplicates and losses of QoS 2 are the broker's or the protocol's fault."""
        return self.loose or self.hole

    # The device

    def action(self):
        """Something new begins."""
        self._renewed()
        for message in self.received:
            message.fresh = False
        for message in self.sent:
            message.ends = False

    def connection(self):
        """A connection begins."""
        self.out.clear()
        self.into.clear()
        self.last = [-1, -1, -1]
        self.spoke = self.heard = self._now()
        if self.began:
            self.vain = self.vain + 1 if self.owed else 0
        self.began = self.owed = False
        self._renewed()
        if self.world.case.alone and not self.left:
            self._in_vain()
        self.left = False
        self.asked = 0
        for pids in self.due.values():
            pids.clear()
        for message in self.sent:
            message.here = message.begun = False
            message.before = message.tried

    def _in_vain(self):
        # How many connections were in vain for the oldest message.
        oldest = self._oldest()
        for message in self.sent:
            if message is not oldest:
                message.vainly = 0
            elif message.begun:
                message.vainly += 1

    def _oldest(self):
        # The oldest message that the broker has not taken, None if there is none.
        live = self.world.board.view()[0]
        waits = [m for m in self.sent if live.get(m.number) == QUEUED]
        return waits[0] if waits else None

    def stuck(self, told):
        """What stuck() has returned."""
        oldest = self._oldest()
        vain = 0
        if oldest:
            ended = self.world.board.client.sock is None and not self.left
            vain = oldest.vainly + (oldest.begun and ended)
        if told != vain:
            raise Broken("stuck() tells of %d connections, it were %d" % (told, vain))

    def _now(self):
        # None where no case asks for it: each instant makes states.
        return self.world.clock.now if self.world.case.jumps else None

    def rests(self, waits):
        """The client has looked at a connection, and keeps it: it must not be silent for half a
        keep-alive, nor take a broker that is silent for a whole one for alive. waits: something
        is there that only the application may read."""
        now = self.world.clock.now
        half = self.world.case.keepalive * 500
        if now - self.spoke > half:
            raise Broken("nothing was sent for half a keep-alive [MQTT-3.1.2-23]")
        if now - self.heard > 2 * half and not waits:
            raise Broken("a dead link is not given up")

    def gives_up(self, waits):
        """The client has ended a connection that the network still carries. waits: see rests()."""
        if waits:
            raise Broken("a link is given up, and something is there to be read")
        if self.world.clock.now - self.heard < self.world.case.keepalive * 500:
            raise Broken("a link is given up that was heard of in the last half keep-alive")

    def crashed(self, live, connecting, sending):
        """The power is gone; live: numbers of messages in flash. connecting: in connect();
        sending: in a call that may have been about to send a message."""
        if connecting:
            self.hole |= self.unheard
        if self.world.case.watched:
            self.stock.crashed(live)
        self._marks(live, sending and self.began)
        self.began = self.owed = self.renewing = False
        for message in self.sent:
            if not message.qos:
                continue
            if message.number in live:
                if message.ended and not message.ends and live[message.number] != HELD:
                    raise Broken("message %d was acknowledged and is in flash again"
                                 % message.number)
                message.ended &= live[message.number] == HELD
            elif message.accepted == YES and not (message.ended or message.gone):
                raise Broken("message %d was accepted and is not in flash" % message.number)
        for message in self.received:
            message.repeats |= message.fresh
            message.spare = False

    def _marks(self, live, sending):
        # Which messages flash says "may have been sent" of.
        self._noted([m for m in self.sent if m.tried and m.qos])
        if sending:
            self._noted([m for m in self.sent if m.number in live and not m.tried][:1])
        for message in self.sent:
            if message.qos and message.accepted != NO:
                message.marked = self.world.seqs[message.number] <= self.mark

    def _noted(self, messages):
        # Before one of these went out flash noted a whole window from it on: not each of them is
        # to wear it.
        for message in messages:
            self.mark = max(self.mark,
                            self.world.seqs[message.number] + self.world.case.window - 1)

    def _renewed(self):
        # The client has gone on from the CONNACK of a new session: flash knows of it.
        if self.renewing:
            self.renewing = False
            self.mark = -1
            for message in self.sent:
                message.marked = False

    # The broker

    def broker_got(self, payload, qos, again, pid):
        """It has a PUBLISH; again: one that it knows already."""
        message = self.sent[payload[0] - FIRST_OUT]
        if again:
            return
        if message.count == 0 and qos:
            if message.number < self.firsts[qos] and not self.loose:
                raise Broken("message %d is delivered behind message %d"
                             % (message.number, self.firsts[qos]))
            self.firsts[qos] = message.number
        message.count = min(message.count + 1, 3)
        if not qos and message.count > 1:
            raise Broken("QoS 0 message %d is delivered twice" % message.number)
        if qos == 2 and message.count > 1 and not (
                message.forgotten or message.again or self.loose):
            raise Broken("QoS 2 message %d is delivered twice" % message.number)

    def broker_forgot(self):
        """It has lost the session."""
        self.unheard = True
        for message in self.sent:
            message.forgotten |= message.accepted != NO
        for message in self.received:
            message.forgotten |= message.qos >= 0

    def broker_sent(self, number, qos):
        """It has sent a message."""
        self.received[number].qos = qos

    def resumed(self):
        """It has said Session Present 1 to a client that never heard of the 0 before."""
        self.hole |= self.unheard

    # What the client reads

    def read(self, data):
        """Bytes were read."""
        self.heard = self._now()
        for whole in _packets(self.into, data):
            self._read(whole)

    def _read(self, data):
        kind = data[0] & 0xF0
        self.owed &= kind not in (PUBACK, PUBREC, PUBCOMP)
        if kind == CONNACK:
            self._connack(data)
        elif kind == PUBLISH:
            op, _, pid, payload = parse_publish(data)
            if op & 6:
                self.pids[pid] = payload[0] - FIRST_IN
                self.due[PUBACK if op & 6 == 2 else PUBREC].append(pid)
        elif kind == PUBREC:
            self.due[PUBREL].append(data[2] << 8 | data[3])
        elif kind == SUBACK:
            if self.asked == data[2] << 8 | data[3]:
                self.asked = 0
        elif kind == PUBACK or kind == PUBCOMP:
            pid = data[2] << 8 | data[3]
            for message in self.sent:
                if message.pid == pid and message.written and message.here:
                    if message.qos == (1 if kind == PUBACK else 2):
                        message.ended = message.ends = True
                        message.here = False
                        message.again = False

    def _connack(self, data):
        self.began = not self.clean or self.world.doing == "renew"
        if self.clean:
            self.vain = 0
        if not data[2] & 1:
            self.unheard = False
            self.renewing = True
            self._noted([m for m in self.sent if m.tried and m.qos])
            for message in self.sent:
                message.written = message.released = message.whole = False
                message.tried = message.before = False

    # What the client writes

    def tries(self, data):
        """Bytes are given to the stream, which may take none of them."""
        if not self.out and data[0] == PUBREL:
            self.owed = "pubrel-close" in self.world.case.faults
        if self.out or data[0] & 0xF0 != PUBLISH:
            return  # the rest of a packet, or no message
        self._renewed()
        for message in self._meant(data):
            message.tried = message.begun = True

    def _meant(self, data):
        # The message that is in a packet, of which these are the first bytes. Of a long one they
        # are no more than its length.
        if packet(data) == len(data):
            return [self._sent(data)]
        size = fixed_header(data)[0]
        return [m for m in self.sent if m.accepted != NO and self._size(m) == size]

    def _size(self, message):
        topic, payload, _ = self.world.case.messages[message.number]
        return 2 + len(topic) + (2 if message.qos else 0) + len(payload)

    def _sent(self, data):
        # The message that a PUBLISH carries.
        rest = body(data)
        if len(rest) < 2 or len(rest) < 2 + (rest[0] << 8 | rest[1]) + (2 if data[0] & 6 else 0):
            raise Broken("a PUBLISH ends before its topic or identifier does: %r" % data)
        payload = parse_publish(data)[3]
        number = payload[0] - FIRST_OUT if payload else -1
        if not 0 <= number < len(self.sent) or self.sent[number].accepted == NO:
            raise Broken("a message goes out that nobody has published: %r" % payload)
        return self.sent[number]

    def wrote(self, data):
        """Bytes were written."""
        self.spoke = self._now()
        for whole in _packets(self.out, data):
            self._wrote(whole)

    def _wrote(self, data):
        kind = data[0] & 0xF0
        n, head = fixed_header(data)
        if head > 2 and n < 1 << 7 * (head - 2):
            raise Broken("Remaining Length %d takes %d bytes [MQTT-2.2.3]" % (n, head - 1))
        if n != LENGTHS.get(kind, n):
            raise Broken("packet type %d with %d bytes [MQTT-2.2.3]" % (kind >> 4, n))
        if kind == PUBLISH:
            self._publish(data)
        elif kind == PUBREL & 0xF0:
            self._ordered(PUBREL, data[2] << 8 | data[3])
            self._pubrel(data[0], data[2] << 8 | data[3])
        elif kind in (PUBACK, PUBREC, PUBCOMP):
            self._ordered(kind, data[2] << 8 | data[3])
            self._answer(kind, data[2] << 8 | data[3])
        elif kind == SUBSCRIBE & 0xF0:
            pid = data[2] << 8 | data[3]
            if pid in [m.pid for m in self.sent if m.written and not m.ended]:
                raise Broken("SUBSCRIBE with an identifier in flight [MQTT-2.3.1-2]")
            self.asked = pid
            if data[4:] != len(FILTER).to_bytes(2, "big") + FILTER + b"\x02":
                raise Broken("SUBSCRIBE asks for something else: %r" % data[4:])
        elif kind == CONNECT:
            self._connect(data)
        elif data[0] == PINGREQ:
            self._ping()
        elif data[0] == DISCONNECT:
            self.left = True
        else:
            raise Broken("packet type %d from the client" % (kind >> 4))

    def _connect(self, data):
        # A client with a store takes up its session, but for a broker that ends connection after
        # connection at a PUBREL: there a new session is the way out.
        alive = self.world.case.keepalive.to_bytes(2, "big")
        self.clean = data[9:10] == b"\x02"
        if data[2:] != b"\x00\x04MQTT\x04" + data[9:10] + alive + b"\x00\x01c":
            raise Broken("CONNECT is another one: %r" % data[2:])
        if self.world.doing == "renew" and self.clean:
            return
        if data[9] and not (self.clean and self.vain >= HOPELESS):
            raise Broken("CONNECT with the flags %d gives up the session" % data[9])

    def _ordered(self, kind, pid):
        # Answers have the order of what they answer to.
        pids = self.due.get(kind, ())
        if pid in pids and pids.pop(0) != pid:
            raise Broken("packet type %d for identifier %d comes before that for an earlier one"
                         " [MQTT-4.6.0]" % (kind >> 4, pid))

    def _ping(self):
        # Without a keep-alive it asks one thing: whether the link carries, behind a connection
        # that has ended at a PUBREL.
        case = self.world.case
        if "pubrel-close" in case.faults and not (case.keepalive or self.vain):
            raise Broken("PINGREQ, and the connection before has not ended at a PUBREL")

    def _publish(self, data):
        op, topic, pid, payload = parse_publish(data)
        qos = op >> 1 & 3
        message = self._sent(data)
        if qos != message.qos:
            raise Broken("message %d goes out with QoS %d" % (message.number, qos))
        self._content(message, (topic, payload, bool(op & RETAIN)))
        if not qos:
            if op & DUP:
                raise Broken("DUP at QoS 0 [MQTT-3.3.1-2]")
            return
        self._rules(message, op, pid)
        self.stock.goes_out(message)
        state = self.world.board.view()[0].get(message.number)
        if state is None:
            raise Broken("message %d goes out and is not durable" % message.number)
        if state == RELEASED and not self.world.case.volatile:
            raise Broken("PUBLISH of message %d, whose PUBREC is durable" % message.number)
        message.pid = pid
        message.written = message.whole = message.here = True
        self.last[qos] = message.number
        if len([m for m in self.sent if m.here]) > self.world.case.window:
            raise Broken("more messages in flight than the window has")

    def _content(self, message, found):
        for name, here, there in zip(WHAT, found, self.world.case.messages[message.number]):
            if here != there:
                raise Broken("message %d goes out with %s %r; it was published with %r"
                             % (message.number, name, here, there))

    def _rules(self, message, op, pid):
        again = message.again
        if not pid:
            raise Broken("identifier 0 [MQTT-2.3.1-1]")
        if message.written and message.pid != pid:
            raise Broken("message %d has another identifier now" % message.number)
        if message.here:
            raise Broken("message %d is sent twice on one connection" % message.number)
        if message.released and not again:
            raise Broken("PUBLISH of message %d behind its PUBREL [MQTT-4.3.3-1]" % message.number)
        if message.ended and not again:
            raise Broken("message %d is sent again, and was acknowledged" % message.number)
        for other in self.sent:
            if other is not message and other.pid == pid and other.written and not other.ended:
                raise Broken("identifier %d is in use [MQTT-2.3.1-2]" % pid)
        if [m for m in self.sent if m.vainly > 1 and m is not message and not m.ended]:
            raise Broken("message %d goes out beside one that must go alone" % message.number)
        if message.number < self.last[message.qos] and not again:
            raise Broken("message %d goes out behind a newer one [MQTT-4.6.0-1]" % message.number)
        if message.whole and not op & DUP:
            raise Broken("message %d is sent again without DUP [MQTT-3.3.1-1]" % message.number)
        if op & DUP and not (message.before or message.marked):
            raise Broken("DUP, and message %d was never sent [MQTT-3.3.1-2]" % message.number)

    def _pubrel(self, op, pid):
        if op != PUBREL:
            raise Broken("flags of PUBREL [MQTT-3.6.1-1]")
        found = False
        for message in self.sent:
            if message.pid == pid and message.qos == 2 and (message.written or self.hole):
                found = True
                message.released = True
                message.here = True
                state = self.world.board.view()[0].get(message.number)
                if state in (QUEUED, HELD) and not self.world.case.volatile:
                    raise Broken("PUBREL before the PUBREC of message %d is durable"
                                 % message.number)
        if not found and not self.unheard:
            raise Broken("PUBREL of what was not sent in this session")

    def _answer(self, kind, pid):
        number = self.pids.get(pid)
        if number is None:
            return
        message = self.received[number]
        live, ids, inbox = self.world.board.view()
        if kind == PUBACK and not message.count:
            raise Broken("PUBACK before the application has message %d" % number)
        if kind == PUBREC and not self.hole:
            if not message.count and number not in inbox:
                raise Broken("PUBREC before the application has message %d" % number)
            if pid not in ids and number not in inbox and not message.spare:
                raise Broken("PUBREC before the identifier of message %d is durable" % number)
        if kind == PUBCOMP and (pid in ids or inbox.get(number) == QUEUED):
            raise Broken("PUBCOMP before the release of message %d is durable" % number)

    # The end

    def drained(self, live, numbers):
        """The world was kind for long: all must be where it belongs. live: how many messages the
        store still wants to send; numbers: which ones."""
        if live:
            raise Broken("never delivered, in a kind world: message %s"
                         % (", ".join(map(str, numbers)) or "?"))
        if self.world.broker.out:
            raise Broken("the exchange of a message with the application never ends")
        for message in self.sent:
            self._drained(message)
        for message in self.received:
            if message.qos > 0 and not message.count and not (
                    message.forgotten or self.tolerant()):
                raise Broken("message %d never comes to the application" % message.number)
            if message.qos < 0:
                raise Broken("message %d is never sent by the broker" % message.number)

    def _drained(self, message):
        if message.qos and message.accepted == YES and not (message.count or message.gone):
            raise Broken("message %d was accepted and is lost" % message.number)
        if message.again and not (message.covered or message.gone):
            raise Broken("message %d was asked for again and is not sent" % message.number)


def _packets(buf, data):
    # More bytes of a direction; the packets that are whole now are taken off.
    buf += data
    while n := packet(buf):
        whole = bytes(buf[:n])
        del buf[:n]
        yield whole
