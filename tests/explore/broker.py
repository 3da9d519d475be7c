"""A broker that is correct, and free in all that MQTT 3.1.1 leaves free; by a switch it has the
faults of real ones.

Knows: sections 3 and 4 of MQTT 3.1.1, from the broker's side. Must not know: the client's code,
the link, when something arrives.

It does nothing by itself. `process()` takes one packet of the client; `answers` are the packets
that it owes for that, which the link may take in any order where the case says so; `push()` is the
next packet that it sends of its own: a message, or what it sends again after a connection.

Faults of real brokers, by name in `Case.faults`:
    pubrel-close  it closes the connection at a PUBREL whose message it has completed
    present-lie   it says Session Present 1 and has forgotten the identifiers of incoming messages
    renumber      it sends again under new identifiers, without DUP
    again         it sends all that is not acknowledged once more when a new message comes
    stutter       it acknowledges each packet twice
"""

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC = 0x10, 0x20, 0x30, 0x40, 0x50
PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP = 0x62, 0x70, 0x82, 0x90, 0xC0, 0xD0
DISCONNECT = 0xE0
DUP, RETAIN = 8, 1

QUEUED, SENT, RELEASED = 0, 1, 2


def fixed_header(data, at=0):
    """(Remaining Length, bytes of the fixed header) of the packet that begins there; (0, 0) if its
    fixed header is not whole."""
    n = shift = 0
    i = at + 1
    while i < len(data):
        n |= (data[i] & 127) << shift
        shift += 7
        i += 1
        if data[i - 1] < 128:
            return n, i - at
    return 0, 0


def packet(data, at=0):
    """Length of the packet that begins there, 0 if it is not whole."""
    n, head = fixed_header(data, at)
    return head + n if head and at + head + n <= len(data) else 0


def body(data):
    """What follows the fixed header of a packet."""
    return data[fixed_header(data)[1] :]


def publish(topic, payload, qos, pid, dup=False):
    """A PUBLISH, shorter than 16384 bytes."""
    head = bytes((len(topic) >> 8, len(topic) & 255)) + topic
    if qos:
        head += pid.to_bytes(2, "big")
    op = PUBLISH | qos << 1 | (DUP if dup else 0)
    n = len(head) + len(payload)
    size = bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7))
    return bytes((op,)) + size + head + payload


def parse_publish(data):
    """(first byte, topic, packet identifier or 0, payload)."""
    rest = body(data)
    n = rest[0] << 8 | rest[1]
    at = 2 + n
    pid = 0
    if data[0] & 6:
        pid = rest[at] << 8 | rest[at + 1]
        at += 2
    return data[0], rest[2 : 2 + n], pid, rest[at:]


def ack(kind, pid):
    """A packet of four bytes."""
    return bytes((kind, 2)) + pid.to_bytes(2, "big")


class Outgoing:
    """A message on its way to the client."""

    def __init__(self, number, qos, pid):
        self.number = number
        self.qos = qos
        self.pid = pid
        self.state = QUEUED
        self.here = False  # sent on this connection


class Broker:
    """The broker's side of one client. case: a Case; plan: QoS of each message that is published
    by others, in order; told: an object that hears `broker_got(payload, qos, again)`,
    `broker_forgot()` and `broker_sent(number)`."""

    def __init__(self, case, told):
        self.case = case
        self.told = told
        self.plan = list(case.inbound)
        self.session = False
        self.clean = False  # it ends with its connection
        self.subscribed = -1  # QoS granted; -1: no subscription
        self.taken = []  # identifiers of QoS 2 messages that are not released
        self.out = []
        self.online = False
        self.answers = []
        self.closing = False  # it ends the connection

    # The connection

    def gone(self):
        """The connection has ended."""
        self.online = self.closing = False
        self.answers = []
        for message in self.out:
            message.here = False
        if self.clean:
            self.forget()

    def forget(self):
        """It loses the session."""
        self.session = self.clean = False
        self.subscribed = -1
        self.taken = []
        self.out = []
        self.told.broker_forgot()

    def process(self, data, forget=False, most=2):
        """A packet of the client. forget: the session is lost before this CONNECT; most: the QoS
        that it grants to this SUBSCRIBE."""
        kind = data[0] & 0xF0
        if kind == CONNECT:
            self._connect(data, forget)
        elif kind == PUBLISH:
            self._publish(data)
        elif kind == DISCONNECT:
            self.gone()
        elif kind == SUBSCRIBE & 0xF0:
            self._subscribe(data, most)
        elif kind == PINGREQ:
            self.answers.append(b"\xd0\x00")
        else:
            self._acknowledged(data[0], data[2] << 8 | data[3])

    def _connect(self, data, forget):
        self.gone()
        clean = bool(body(data)[7] & 2)
        if forget or clean:
            self.forget()
        present = self.session
        if present and "present-lie" in self.case.faults:
            self.taken = []
        self.session = self.online = True
        self.clean = clean  # [MQTT-3.1.2-6]
        self.answers.append(bytes((CONNACK, 2, 1 if present else 0, 0)))

    def _subscribe(self, data, most):
        rest = body(data)
        self.subscribed = min(rest[-1], most)
        self.answers.append(bytes((SUBACK, 3, rest[0], rest[1], self.subscribed)))

    # Messages of the client

    def _publish(self, data):
        op, _, pid, payload = parse_publish(data)
        qos = op >> 1 & 3
        if qos == 2:
            again = pid in self.taken
            if not again:
                self.taken.append(pid)
            self.told.broker_got(payload, qos, again, pid)
            self._answer(PUBREC, pid)
        else:
            self.told.broker_got(payload, qos, False, pid)
            if qos:
                self._answer(PUBACK, pid)

    def _answer(self, kind, pid):
        self.answers += [ack(kind, pid)] * (2 if "stutter" in self.case.faults else 1)

    def _acknowledged(self, op, pid):
        if op == PUBREL:
            if pid not in self.taken and "pubrel-close" in self.case.faults:
                self.closing = True
                return
            if pid in self.taken:
                self.taken.remove(pid)
            self._answer(PUBCOMP, pid)
            return
        for message in self.out:
            if message.pid == pid and message.here:
                self._progress(message, op)
                return
        if op == PUBREC:
            self.answers.append(ack(PUBREL, pid))

    def _progress(self, message, op):
        if op == PUBREC and message.qos == 2:
            message.state = RELEASED
            self.answers.append(ack(PUBREL, message.pid))
        elif op == PUBACK and message.qos == 1 or op == PUBCOMP and message.state == RELEASED:
            self.out.remove(message)

    # Messages to the client

    def more(self):
        """Whether push() has something."""
        if not self.online or self.answers and self.answers[0][0] == CONNACK:
            return False
        return bool(self.subscribed >= 0 and self.plan or [m for m in self.out if not m.here])

    def push(self):
        """The next packet that it sends of its own."""
        for message in self.out:
            if not message.here:
                return self._send(message)
        number = len(self.case.inbound) - len(self.plan)
        qos = min(self.plan.pop(0), self.subscribed)
        message = Outgoing(number, qos, self._free())
        if qos:
            self.out.append(message)
        if "again" in self.case.faults:
            for other in self.out:
                other.here = other.state == RELEASED
        return self._send(message)

    def _free(self):
        # The lowest that is free, so that one is used again as soon as it may be.
        pid = 1
        while pid in [m.pid for m in self.out]:
            pid += 1
        return pid

    def _send(self, message):
        message.here = True
        if message.state == RELEASED:
            return ack(PUBREL, message.pid)
        again = message.state == SENT
        if again and "renumber" in self.case.faults:
            message.pid = self._free()
            again = False
        message.state = SENT
        self.told.broker_sent(message.number, message.qos)
        topic, payload, _ = self.case.others[message.number]
        return publish(topic, payload, message.qos, message.pid, again)
