"""A store's life: random operations with reboots between them, each checked with a model.

Knows: the Store interface, the model of a journal.  Must not know: the medium, records.
Used by test_store_least.py (flash) and test_store_full.py (littlefs).
"""

import journal_model as jm
from nor import Random
from umqtt_min.store import DROP_OLDEST, LATEST, RAISE, StoreFull

POLICIES = (RAISE, DROP_OLDEST, LATEST)


class Life:
    """Random operations on a store, each checked with a model; mostly offline. inbound: each
    mount has the next of these, the first one is the largest."""

    def __init__(self, seed, make, policy, cut=None, inbound=(8,)):
        self.random = Random(seed)
        self._make = make
        self._cut = cut
        self.policy = policy
        self.where = "seed %d, policy %d" % (seed, policy)
        self.model = jm.Model()
        self._inbound = inbound
        self._mounts = 0
        self.store = self._next()
        self.store.open()
        self.most = self._largest()
        self.size = (20, 400, self.most, self._below(self.most))[self._below(4)]
        self.equal = not self._below(4)  # all messages as long as that, not at most
        self.acks = (0, 2, 20, 50, 70)[self._below(5)]  # percent
        self.boots = (1, 5, 30)[self._below(3)]
        self.dropped = self.refused = self.rebooted = 0

    def _next(self):
        self._mounts += 1
        return self._make(policy=self.policy,
                          inbound=self._inbound[(self._mounts - 1) % len(self._inbound)])

    def _below(self, n):
        return self.random.below(n) if n > 0 else 0

    def _largest(self):
        """Bytes of the longest payload with a topic of three."""
        try:
            self.store.put(1, 2, b"t/0", bytes(70000))
        except ValueError as e:
            return int(str(e).split("at most ")[1].split()[0]) - 3
        raise AssertionError("70000 bytes were taken")

    def run(self, steps):
        """So many operations, then all is acknowledged."""
        for _ in range(steps):
            if self._below(100) < self.boots:
                self.reboot()
            elif self._below(100) < self.acks and self.model.live:
                self.do(self._progress())
            elif self._below(50):
                self.put()
            else:
                self.do(self._incoming())
        self.reboot()
        for seq in sorted(self.model.live):
            self.do(("mark", seq))
            self.do(("done", seq))
        self.put()
        assert self.store.live == 1, self.where

    def _progress(self):
        r = self._below(20)
        if r < 3:
            return ("mark", self.model.seq + self._below(4))
        live = sorted(self.model.live)
        seq = live[self._below(len(live)) if self._below(3) else 0]
        return ("rec" if r < 6 else "done", seq)

    def _incoming(self):
        r = self._below(5)
        if not r:
            return ("session", bytes((self._below(256),)) * (2, 8, 32)[self._below(3)])
        return ("in_add" if r < 3 else "in_del", 1 + self._below(8))

    def do(self, op):
        """What is no message is never refused."""
        try:
            getattr(self.store, op[0])(*op[1:])
        except OSError as e:
            raise AssertionError("%s: %s: %r" % (self.where, op, e))
        self.model.apply(op)

    def put(self):
        """A message, taken unless the policy is to refuse, and something is there."""
        store = self.store
        size = self.size if self.equal else self._below(self.size + 1)
        payload = bytes((store.seq & 255,)) * min(size, self.most)
        before = store.dropped
        op = ("put", store.seq % 65535 + 1, 2, b"t/%d" % self._below(5), payload)
        try:
            store.put(*op[1:])
        except StoreFull:
            assert self.policy == RAISE and store.live, "%s: %d bytes are refused" % (
                self.where, len(payload))
            self.refused += 1
            return
        self._gone(store.dropped - before)
        self.model.apply(op)

    def _gone(self, n):
        # What gave way is counted: of the oldest, or, with LATEST, any.
        self.dropped += n
        live = sorted(self.model.live)
        for seq in live[:n] if self.policy == DROP_OLDEST else live:
            if not self.store.find(seq):
                del self.model.live[seq]
                n -= 1
        assert not n, "%s: %d more are counted as dropped than are gone" % (self.where, n)

    def reboot(self):
        """After some mounts that were cut: what is there is what was there."""
        boot = self.store.boot
        self.store.close()
        for _ in range((0, 0, 1, 1, 3, 8)[self._below(6)] if self._cut else 0):
            self._cut(self, self._next())
        self.store = self._next()
        try:
            self.store.open()
        except OSError as e:
            raise AssertionError("%s: mount %d: %r" % (self.where, self.rebooted, e))
        self.rebooted += 1
        assert self.store.boot > boot, "%s: boot number %d again" % (self.where, self.store.boot)
        assert jm.snapshot(self.store, jm.PIDS) == self.model.snapshot(), self.where


def show(lives):
    """That something was tried, and how much."""
    sums = [sum([getattr(one, name) for one in lives]) for name in
            ("rebooted", "dropped", "refused")]
    print("%d reboots, %d dropped, %d refused" % tuple(sums))
    assert min(sums) > 0, "neither reboots nor full stores: %s" % sums
