"""The simplest store there is: a list in RAM, with a "disk" that outlives a reboot.

Knows: the interface between client and store (umqtt_min/store/contract.py), nothing of flash.
Must not know: packets, the client.  It is what the real stores are compared with, and it lets the
client be tested apart from them.

    disk = Disk()
    store = ModelStore(disk)      # power on
    store = ModelStore(disk)      # and again: what was durable is there
"""

from umqtt_min.store import StoreFull

QUEUED, RELEASED, HELD, AGAIN = 0, 1, 2, 3


class Disk:
    """What is durable."""

    def __init__(self, limit=0):
        self.limit = limit  # most records, 0: none
        self.records = {}  # seq: [body, pid, flags, state, acknowledged]
        self.seq = 1
        self.boot = 0
        self.key = b""
        self.last_pid = 0
        self.sent = 0
        self.inbox = []
        self.on_program = None  # called before each durable change: a power cut may come there


class ModelStore:
    """A store on a Disk."""

    policy = max_age = 0
    user = begun = None

    def __init__(self, disk, hold=False):
        self.disk = disk
        self.hold = hold
        self.epoch = b"modeldsk"
        self.dropped = self.skipped = self.programs = self.programmed = self.erases = 0
        self.pid = self.flags = self.state = 0
        self._again = []
        self._found = None
        self._opened = False

    def open(self):
        if not self._opened:
            self._opened = True
            self.disk.boot += 1

    def close(self):
        self._opened = False

    @property
    def boot(self):
        return self.disk.boot

    @property
    def seq(self):
        return self.disk.seq

    @property
    def key(self):
        return self.disk.key

    @property
    def last_pid(self):
        return self.disk.last_pid

    @property
    def sent(self):
        return self.disk.sent

    @property
    def live(self):
        return len(self.disk.records)

    @property
    def held(self):
        return len([r for r in self.disk.records.values() if r[3] == HELD])

    @property
    def low(self):
        return min(self.disk.records) if self.disk.records else self.disk.seq

    def free(self):
        return 1 << 20

    def _program(self):
        self.programs += 1
        if self.disk.on_program:
            self.disk.on_program()

    def session(self, key):
        self._program()
        self.disk.key = bytes(key)
        self.disk.sent = 0
        self.disk.inbox = []
        for record in self.disk.records.values():
            if record[3] != HELD:
                record[3] = QUEUED

    def put(self, pid, flags, topic, payload):
        if self.disk.limit and self.live >= self.disk.limit:
            raise StoreFull()
        self._program()
        n = len(topic)
        body = bytes((n >> 8, n & 255)) + bytes(topic) + bytes((pid >> 8, pid & 255))
        seq = self.disk.seq
        self.disk.records[seq] = [body + bytes(payload), pid, flags, QUEUED, False]
        self.disk.seq += 1
        self.disk.last_pid = pid
        return seq

    def next(self, seq):
        for s in sorted(self.disk.records):
            if s > seq and (self.disk.records[s][3] != HELD or s in self._again):
                return s
        return 0

    def find(self, seq):
        record = self._found = self.disk.records.get(seq)
        if not record:
            return 0
        self.pid, self.flags = record[1], record[2]
        self.state = AGAIN if seq in self._again else record[3]
        return len(record[0])

    def read(self, pos, buf, n):
        buf[:n] = self._found[0][pos : pos + n]

    def mark(self, seq):
        self._program()
        self.disk.sent = max(self.disk.sent, seq)

    def rec(self, seq):
        self._program()
        self.disk.records[seq][3] = RELEASED

    def done(self, seq):
        self._program()
        record = self.disk.records[seq]
        if self.hold and not record[4]:
            record[3] = HELD
        else:
            del self.disk.records[seq]

    def confirm(self, seq):
        self._program()
        gone = [s for s, r in self.disk.records.items() if s <= seq and r[3] == HELD]
        for s in gone:
            del self.disk.records[s]
        for s, r in self.disk.records.items():
            if s <= seq:
                r[4] = True
        return len(gone)

    def again(self, first, last):
        found = [s for s, r in self.disk.records.items() if first <= s <= last and r[3] == HELD]
        self._again += [s for s in found if s not in self._again]
        return len(found)

    def sending(self, seq):
        self._again.remove(seq)
        self.disk.records[seq][3] = QUEUED

    def in_add(self, pid):
        self._program()
        if pid not in self.disk.inbox:
            self.disk.inbox.append(pid)

    def in_del(self, pid):
        self._program()
        if pid in self.disk.inbox:
            self.disk.inbox.remove(pid)

    def in_has(self, pid):
        return pid in self.disk.inbox
