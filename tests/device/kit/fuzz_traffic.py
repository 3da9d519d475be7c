"""What a broker may send, how it is spoiled, and what it then means: for the fuzzer.

Knows: the bytes of MQTT 3.1.1, 3.1 and the MQIpdp draft, what a client must make of them.
Must not know: the client's code; streams (fuzz.py).

Packet identifiers are "raw" here: the two bytes on the wire, most significant first, whatever
their order means to the protocol version.
"""

from strict_wire import ProtocolError, check_topic, decode_length, packet, text

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, PINGRESP = 3, 4, 5, 6, 7, 9, 11, 13

OPEN, PART, BAD = "open", "part", "bad"

TOPICS = (b"t", b"a/topic", b"\xc3\xa4/\xe2\x82\xac", b"fleet/hall/one/telemetry")
EDGES = (0, 1, 2, 3, 4, 0x7F, 0x80, 0xFF, 0x23, 0x2B, 0x30, 0x32, 0x34, 0x36, 0x3F)
PIDS = (1, 2, 3, 0x0100, 0x7FFF, 0xFFFF)


def short(op, pid):
    """PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK."""
    return bytes((op, 2, pid >> 8, pid & 255))


def publish(op, topic, pid, payload):
    """PUBLISH; op: its first byte."""
    return packet(op, text(topic) + (bytes((pid >> 8, pid & 255)) if op & 6 else b"") + payload)


class Flight:
    """A PUBLISH of the client: body as the store has it, awaits: the next acknowledgement."""

    def __init__(self, raw, qos, body):
        self.raw = raw
        self.qos = qos
        self.body = body
        self.awaits = PUBACK if qos == 1 else PUBREC


class Session:
    """What both ends know: a reference for the client's state.

    stored: the client has a store. fly: {sequence number: Flight}. inbox: raw identifiers of
    incoming QoS 2 messages that were delivered. asked: (packet type, raw identifier, codes)
    of the SUBSCRIBE or UNSUBSCRIBE that the client waits for, or None.
    """

    def __init__(self, level, stored, views, buffer_size, max_message):
        self.level = level
        self.stored = stored
        self.views = views
        self.buffer_size = buffer_size
        self.max_message = max_message
        self.fly = {}
        self.inbox = []
        self.asked = None
        self.begin()

    def begin(self):
        """Nothing was read yet."""
        self.delivered = []  # (topic, payload)
        self.replies = []  # (first byte, raw identifier)
        self.acks = []  # (packet type, raw identifier)
        self.doubt = False  # the client may close, or deliver less
        self.touched = self.inbox[:]  # incoming QoS 2 messages that it may still hold
        self.over = {}  # flights that were acknowledged
        self.why = ""

    def look_again(self, states):
        """The client may have closed before it came to all acknowledgements: the flights are
        those that it has, {number in the store: whether PUBREC has come}."""
        every = self.over
        every.update(self.fly)
        for seq in self.fly:
            assert seq in states, "a message that nobody acknowledged is gone"
        self.fly.clear()
        for seq in states:
            one = self.fly[seq] = every[seq]
            if one.qos == 2:
                one.awaits = PUBCOMP if states[seq] else PUBREC

    def renew(self):
        """The broker has no session."""
        del self.inbox[:]
        for one in self.fly.values():
            one.awaits = PUBACK if one.qos == 1 else PUBREC

    def read(self, data):
        """What a client makes of these bytes, in this order: OPEN, PART or BAD."""
        at = 0
        while at < len(data):
            rest = len(data) - at
            if rest < 2:
                return PART
            if data[at] < 16:
                return self._bad("type 0")
            try:
                head = decode_length(data, at + 1)
            except ProtocolError:
                return self._bad("Remaining Length")
            if head is None:
                return PART
            n, body = head
            large = body - at + n > self.buffer_size
            if large and data[at] >> 4 != PUBLISH:
                return self._bad("too large")
            if body + n > len(data):
                self.doubt = self.doubt or large  # its head may be wrong already
                return PART
            if not self._packet(data[at], bytes(data[body : body + n]), large):
                return BAD
            at = body + n
        return OPEN

    def leaves_open(self, data):
        """Whether the size of a packet that is no PUBLISH is such that it fits into the buffer
        only if it is read at once: whether it is refused is left open. There are rungs for half
        as much again as buffer_size."""
        at = 0
        while len(data) - at > 1:
            try:
                head = decode_length(data, at + 1)
            except ProtocolError:
                return False
            if head is None:
                return False
            n = head[1] - at + head[0]
            if data[at] >> 4 != PUBLISH and 0 < n - self.buffer_size <= self.buffer_size // 2:
                return True
            at += n
        return False

    def _bad(self, why):
        self.why = why
        return BAD

    def _packet(self, op, body, large):
        kind = op >> 4
        if kind == PUBLISH:
            why = self._publish(op, body, large)
        elif self.level.level == 4 and op & 15 != (2 if kind == PUBREL else 0):
            why = "flags"
        elif kind == PINGRESP:
            why = "PINGRESP" if body else ""
        elif PUBACK <= kind <= PUBCOMP:
            why = self._ack(kind, body)
        elif kind in (SUBACK, UNSUBACK):
            why = self._suback(kind, body)
        else:
            why = "packet type"
        self.why = why
        return not why

    def _publish(self, op, body, large):
        qos = op >> 1 & 3
        if qos == 3 or len(body) < 2:
            return "QoS 3, or no topic"
        end = 2 + (body[0] << 8 | body[1])
        topic = body[2:end]
        payload = body[end + 2 :] if qos else body[end:]
        if end + (2 if qos else 0) > len(body):
            return "topic too long"
        raw = body[end] << 8 | body[end + 1] if qos else 0
        if qos and not raw:
            return "identifier 0"
        known = qos == 2 and raw in self.inbox
        if not _good_topic(self.level, topic):
            if not known:
                return "topic"
            self.doubt = True  # it is not looked at again, or it is
        if not known and (self.views or not large or len(payload) <= self.max_message):
            self.delivered.append((topic, payload))
        if qos == 2 and not known:
            self.inbox.append(raw)
            self.touched.append(raw)
        if qos:
            self.replies.append((0x40 if qos == 1 else 0x50, raw))
        return ""

    def _ack(self, kind, body):
        if len(body) != 2:
            return "length of an acknowledgement"
        raw = body[0] << 8 | body[1]
        if not raw:
            return "identifier 0"
        if kind == PUBREL:
            if raw in self.inbox:
                self.inbox.remove(raw)
            self.replies.append((0x70, raw))
            return ""
        self.acks.append((kind, raw))
        why = self._outgoing(kind, raw) if self.stored else ""
        if kind == PUBREC and not why:
            self.replies.append((0x62, raw))
        return why

    def _outgoing(self, kind, raw):
        found = [seq for seq, one in self.fly.items() if one.raw == raw]
        if not found:
            return ""
        one = self.fly[found[0]]
        if kind == PUBREC and one.qos == 2:
            one.awaits = PUBCOMP
        elif kind != one.awaits:
            return "acknowledgement of another QoS"
        else:
            self.over[found[0]] = self.fly.pop(found[0])
        return ""

    def _suback(self, kind, body):
        if len(body) < 3 if kind == SUBACK else len(body) != 2:
            return "length of SUBACK or UNSUBACK"
        raw = body[0] << 8 | body[1]
        if not raw:
            return "identifier 0"
        if self.asked is None or self.asked[1] != raw:
            return ""
        if kind == SUBACK:
            if self.asked[0] != SUBACK:
                self.doubt = True  # the other kind of answer
            elif len(body) - 2 != self.asked[2]:
                return "number of codes"
            elif self.level.level == 4 and [c for c in body[2:] if c not in (0, 1, 2, 128)]:
                return "code"
            elif [c for c in body[2:] if c & 3 == 3]:
                return "code"
        if kind == self.asked[0]:
            self.asked = None
        return ""


def _good_topic(level, topic):
    if not topic or b"#" in topic or b"+" in topic:
        return False
    try:
        check_topic(level, topic)
    except ProtocolError:
        # The limits of the older versions are those of a sender.
        return len(topic) > 32767
    return True


class Traffic:
    """Makes traffic for a session, and spoils it."""

    def __init__(self, random, session):
        self._random = random
        self._session = session
        self.mutations = 0  # of the last stream
        self.plain = False  # True: nothing is spoiled, the stream ends behind `cut` bytes
        self.cut = None

    def answers(self):
        """What a good broker answers to all that is in flight, as packets."""
        out = []
        for _, one in sorted(self._session.fly.items()):
            if one.awaits == PUBACK:
                out.append(short(0x40, one.raw))
            else:
                if one.awaits == PUBREC:
                    out.append(short(0x50, one.raw))
                out.append(short(0x70, one.raw))
        return out

    def some(self, large):
        """A packet of any kind that a broker may send at any time; large: or a long one."""
        below = self._random.below
        kind = below(8)
        if kind < 4:
            return self.message(below(3), large)
        if kind == 4:
            inbox = self._session.inbox
            return short(0x62, inbox[below(len(inbox))] if inbox else PIDS[below(len(PIDS))])
        if kind == 5:
            return b"\xd0\x00"
        if kind == 6:
            return short(0x40 + 16 * below(2), PIDS[below(len(PIDS))])
        return short(0x70, PIDS[below(len(PIDS))])

    def message(self, qos, large):
        """A PUBLISH, sometimes with DUP or retain."""
        below = self._random.below
        n = 60 + below(400) if large and below(2) else below(40)
        fill = b"\x00\x30\xff@"[below(4)]
        op = 0x30 | qos << 1 | below(2) | (8 if qos and not below(4) else 0)
        pid = PIDS[below(len(PIDS))]
        return publish(op, TOPICS[below(len(TOPICS))], pid, bytes([fill]) * n)

    def stream(self, packets, rate):
        """Packets in a row, spoiled; rate: mutations at most."""
        if self.plain:
            self.mutations = 0
            return bytearray(b"".join(packets))[: self.cut]
        while True:
            data = self._stream(packets, rate)
            if not self._session.leaves_open(data):
                return data

    def _stream(self, packets, rate):
        self.mutations = self._random.below(rate + 1)
        packets = packets[:]
        late = 0
        for _ in range(self.mutations):
            if self._random.below(4):
                late += 1
            else:
                self._shuffle(packets)
        data = bytearray(b"".join(packets))
        for _ in range(late):
            data = self._spoil(data, packets)
        return data

    def _shuffle(self, packets):
        # Whole packets: left out, doubled, exchanged, made up.
        below = self._random.below
        what = below(4)
        i = below(len(packets)) if packets else 0
        if what == 0 and packets:
            del packets[i]
        elif what == 1 and packets:
            packets.insert(below(len(packets)), packets[i])
        elif what == 2 and packets:
            j = below(len(packets))
            packets[i], packets[j] = packets[j], packets[i]
        else:
            n = below(6)
            body = bytes([self._byte() for _ in range(n)])
            packets.insert(i, bytes((below(256), n)) + body)

    def _byte(self):
        below = self._random.below
        return EDGES[below(len(EDGES))] if below(2) else below(256)

    def _spoil(self, data, packets):
        # Bytes: changed, taken out, put in, cut off, moved; lengths most of all.
        if not data:
            return data
        below = self._random.below
        i = below(len(data))
        what = below(8)
        if what < 2:
            data[i] = self._byte()
        elif what == 2:
            data[i] ^= 1 << below(8)
        elif what == 3:
            i = 0
            for one in packets[: below(len(packets)) if packets else 0]:
                i += len(one)
            if i + 1 < len(data):
                data[i + 1] = self._byte()
        elif what == 4:
            data = data[:i] + data[i + 1 + below(4) :]
        elif what == 5:
            data = data[:i] + bytes([self._byte() for _ in range(1 + below(3))]) + data[i:]
        elif what == 6:
            data = data[:i]
        else:
            j = below(len(data))
            data = data[:i] + data[j : j + below(20)] + data[i:]
        return data
