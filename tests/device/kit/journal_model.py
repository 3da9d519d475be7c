"""What a journal promises, as a model that a real one is compared with after every cut.

Knows: the Store interface.  Must not know: records, segments, flash.

A model says what the store must hold; `outcomes(op)` lists what it may hold if the power goes
during op: as before, or as after, never anything between.
"""

from umqtt_min.store import AGAIN, HELD, QUEUED, RELEASED, StoreFull

RAISE, DROP_OLDEST = 0, 1


class Model:
    """The state of a store. Messages: [flags, pid, body, state]."""

    def __init__(self, hold=False, policy=RAISE):
        self.hold = hold
        self.policy = policy
        self.live = {}
        self.seq = 1
        self.sent = self.confirmed = self.last_pid = 0
        self.key = b""
        self.inbound = ()

    def copy(self):
        """A model in the same state."""
        other = Model(self.hold, self.policy)
        other.live = {seq: list(message) for seq, message in self.live.items()}
        other.seq = self.seq
        other.sent = self.sent
        other.confirmed = self.confirmed
        other.last_pid = self.last_pid
        other.key = self.key
        other.inbound = self.inbound
        return other

    def low(self):
        """The smallest live number."""
        return min(self.live) if self.live else self.seq

    def apply(self, op):
        """Change the state as a store does for op, a tuple of a method's name and arguments."""
        getattr(self, "_" + op[0])(*op[1:])

    def _put(self, pid, flags, topic, payload):
        body = bytes((len(topic) >> 8, len(topic) & 255)) + topic + bytes((pid >> 8, pid & 255))
        self.live[self.seq] = [flags, pid, body + payload, QUEUED]
        self.seq += 1
        self.last_pid = pid

    def _drop(self):
        del self.live[self.low()]

    def _mark(self, seq):
        self.sent = max(self.sent, seq)

    def _rec(self, seq):
        if seq in self.live:
            self.live[seq][3] = RELEASED

    def _done(self, seq):
        if seq not in self.live:
            return
        if self.hold and seq > self.confirmed:
            self.live[seq][3] = HELD
        else:
            del self.live[seq]

    def _confirm(self, seq):
        self.confirmed = max(self.confirmed, min(seq, self.seq - 1))
        for seq in list(self.live):
            if seq <= self.confirmed and self.live[seq][3] in (HELD, AGAIN):
                del self.live[seq]

    def _session(self, key):
        self.key = key
        self.sent = 0
        self.inbound = ()
        for message in self.live.values():
            if message[3] != HELD:
                message[3] = QUEUED

    def _in_add(self, pid):
        if pid not in self.inbound:
            self.inbound = self.inbound + (pid,)

    def _in_del(self, pid):
        self.inbound = tuple([p for p in self.inbound if p != pid])

    def outcomes(self, op):
        """The snapshots that a cut during op may leave, each with its model."""
        models = [self.copy()]
        after = self.copy()
        after.apply(op)
        models.append(after)
        if op[0] == "put" and self.policy == DROP_OLDEST:
            before = self.copy()
            while before.live and len(models) < 80:  # as many of the smallest as the longest takes
                before = before.copy()
                before._drop()
                after = before.copy()
                after.apply(op)
                models += [before, after]
        return [(model.snapshot(), model) for model in models]

    def snapshot(self):
        """All that a store shows, as one value."""
        messages = tuple([(seq,) + tuple(self.live[seq]) for seq in sorted(self.live)])
        return (self.seq, self.sent, self.confirmed, self.last_pid, self.key,
                tuple(sorted(self.inbound)), messages)


def snapshot(store, pids):
    """All that an open store shows, as Model.snapshot() has it; pids: incoming ones to ask for.
    Checks on the way that its counts and next() agree with what it holds."""
    messages = []
    due = []
    for seq in range(store.low, store.seq):
        n = store.find(seq)
        if n:
            flags, pid, state = store.flags, store.pid, store.state
            buf = bytearray(n)
            store.read(0, buf, n)
            messages.append((seq, flags, pid, bytes(buf), state))
            if state != HELD:
                due.append(seq)
    held = len([m for m in messages if m[4] == HELD])
    assert (store.live, store.held) == (len(messages), held), (
        "counts: %d live, %d held; found %s" % (store.live, store.held, messages))
    assert store.low == (messages[0][0] if messages else store.seq), "low is %d" % store.low
    assert walk(store) == due, "next() does not go over what is due"
    inbound = tuple([pid for pid in pids if store.in_has(pid)])
    return (store.seq, store.sent, store.confirmed, store.last_pid, store.key, inbound,
            tuple(messages))


def walk(store):
    """The numbers that next() gives, from 0."""
    out = []
    seq = store.next(0)
    while seq:
        out.append(seq)
        seq = store.next(seq)
    return out


PIDS = tuple(range(1, 9))  # of incoming messages


class Scenario:
    """Random operations that make sense for the state of a model."""

    def __init__(self, random, longest=300):
        self.random = random
        self.longest = longest
        self._pid = 0

    def op(self, model):
        """The next operation."""
        r = self.random.below(100)
        if r < 42 or not model.live and r < 70:
            return self._put()
        if r < 80 and model.live:
            return ("done", self._some(model))
        if r < 85 and model.live:
            return ("rec", self._some(model))
        if r < 89 and model.hold:
            return ("confirm", model.low() + self.random.below(6))
        if r < 93:
            return ("mark", model.seq + self.random.below(4))
        if r < 96:
            return ("in_add", 1 + self.random.below(len(PIDS)))
        if r < 99:
            return ("in_del", 1 + self.random.below(len(PIDS)))
        return ("session", bytes((107, self.random.below(256))))

    def _some(self, model):
        """A live number, mostly among the oldest."""
        numbers = sorted(model.live)
        if self.random.below(3):
            return numbers[0]
        return numbers[self.random.below(len(numbers))]

    def _put(self):
        self._pid = self._pid % 65535 + 1
        size = self.random.below(40)
        if not self.random.below(6):
            size = self.random.below(self.longest)
        fill = (0, 255, 0x21, 0x44)[self.random.below(4)]
        payload = bytes([fill if i % 3 else i & 255 for i in range(size)])
        topic = b"t/" + b"x" * self.random.below(8)
        return ("put", self._pid, 2 + 2 * self.random.below(2) + self.random.below(2),
                topic, payload)


def perform(store, op):
    """Do it to a store; False if the store was full and refused."""
    try:
        getattr(store, op[0])(*op[1:])
    except StoreFull:
        return False
    return True
