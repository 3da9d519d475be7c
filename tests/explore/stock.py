"""What leaves the store, and whether it may.

Knows: the policies of a store, the age of a message, what confirm() and discard() promise.
Must not know: the link, the broker, the client's code.

A message leaves the store when its last acknowledgement was read; with hold= when confirm() has
covered it, too. Whatever else leaves it must be allowed by the case, the right one, and counted.
"""

QUEUED, RELEASED, HELD = 0, 1, 2  # as in the store
NO, PERHAPS, YES = 0, 1, 2
LATEST = 2


class Broken(BaseException):
    """A promise is broken, or a rule. No Exception: a timer's callback of the library lets none
    of those out."""


class Stock:
    """Watches the store of one world. sent: the messages of its oracle."""

    def __init__(self, world, case, sent):
        self.world = world
        self.case = case
        self.sent = sent
        self.dropped = 0  # since the boot

    def look(self, live, crashed=False):
        """An action has ended, or the power. live: {number: state} of what is in the store."""
        for message in self.sent:
            if message.number in live:
                if message.covered == YES and message.ended and not message.ends:
                    raise Broken("message %d was confirmed and is still held" % message.number)
                if message.again and not self.case.volatile:
                    self._stays(message, live[message.number])
                message.state = live[message.number]
            elif message.qos and not message.gone and (
                    message.state is not None or message.accepted == YES):
                # confirm() ends what was asked for, too.
                done = message.ended or message.again and self.world.doing != "discard"
                if not done or self.case.hold and not message.covered:
                    self._leaves(message, live)
                    message.gone = True
                    self.dropped += 1
                else:
                    message.ended = True
        if crashed:
            self.dropped = 0
        elif self.world.board.store.dropped != self.dropped:
            raise Broken("%d messages were given up, the store counts %d"
                         % (self.dropped, self.world.board.store.dropped))

    def _stays(self, message, state):
        # What was asked for again is so in RAM only: a reboot finds it held, as before.
        if state not in (HELD, RELEASED):
            raise Broken("message %d was asked for again, and flash does not hold it"
                         % message.number)

    def _leaves(self, message, live):
        case = self.case
        if self.world.doing == "discard":
            self._discarded(message, live)
        elif case.max_age and self.world.clock.now - message.since > case.max_age:
            pass
        elif not (self._replaced(message) or self._pushed_out(message, live)):
            raise Broken("message %d is no longer in the store, and nothing allows that"
                         % message.number)

    def _discarded(self, message, live):
        older = [n for n in live if n < message.number and self._waits(n, live[n])]
        if older or not self._waits(message.number, message.state):
            raise Broken("discard() gives up message %d, which is not the oldest that waits"
                         % message.number)

    def _waits(self, number, state):
        # What was asked for again waits, too: flash, which says that it is held, knows nothing
        # of that.
        return state != RELEASED and (state != HELD or self.sent[number].again)

    def given_up(self, pid, topic, before, after):
        """discard() has returned these; before, after: numbers of what waited in the store."""
        numbers = [n for n in before if n not in after]
        if len(numbers) != 1:
            raise Broken("discard() tells of one message, and %d have gone" % len(numbers))
        message = self.sent[numbers[0]]
        if topic != self.case.messages[message.number][0] or message.written and (
                pid != message.pid):
            raise Broken("discard() gives up message %d, and tells of identifier %d, topic %r"
                         % (message.number, pid, topic))
        if message.ended:  # flash forgot it at confirm(), and it was on its way once more
            self.dropped += 1
        if message.number in self.world.board.view()[0]:
            raise Broken("discard() gives up message %d, and it is still in flash"
                         % message.number)

    def _replaced(self, message):
        # By a newer one of its topic, before it was sent.
        if self.case.policy != LATEST or message.tried:
            return False
        topics = len(self.case.topics)
        return any(m.number > message.number and m.accepted != NO
                   and (m.number - message.number) % topics == 0 for m in self.sent)

    def _pushed_out(self, message, live):
        # It was the oldest, and there was no room.
        if not self.case.policy or [n for n in live if n < message.number]:
            return False
        newest = max(m.number for m in self.sent if m.accepted != NO)
        return newest - message.number >= self.case.room > 0

    def refused(self, number):
        """publish() has said that the store is full."""
        store = self.world.board.store
        full = 0 < self.case.room <= store.seq - store.low
        if self.case.tight:
            full = self._fills(number) if self.case.volatile else store.live > 0
        if self.case.policy or not full:
            raise Broken("message %d is refused, and there is room" % number)

    def _fills(self, number):
        # In RAM messages move together: what is free is free in one piece.
        bodies = [self.case.messages[n][:2] for n in [number, *self.world.board.in_store()]]
        return sum(4 + len(topic) + len(payload) for topic, payload in bodies) > self.case.size

    # What the application asks for

    def confirmable(self):
        """The messages up to which the broker has all, the newest first, without those that
        confirm() has covered."""
        found = []
        for message in self.sent:
            if message.accepted != NO and message.qos:
                if not message.count:
                    break
                if not message.covered:
                    found.insert(0, message.number)
        return found

    def covers(self, number, how):
        """confirm() up to that message has begun (PERHAPS), or has returned (YES)."""
        for message in self.sent[: number + 1]:
            message.covered = max(message.covered, how)

    def held(self, live):
        """The messages that republish() would send again."""
        return [n for n in live if live[n] == HELD and not self.sent[n].covered]

    def asked(self, numbers):
        """republish() of these has begun: they go out as new deliveries."""
        for number in numbers:
            message = self.sent[number]
            message.again = True
            message.ended = message.tried = message.before = message.whole = False
            message.marked = False

    def crashed(self, live):
        """The power is gone: that a message was asked for again is forgotten."""
        for message in self.sent:
            if message.again and live.get(message.number) == HELD:
                message.again = False
                message.ended = True
        self.look(live, True)

    def booted(self):
        """The age of what a mount finds begins anew."""
        if self.case.max_age:
            for message in self.sent:
                message.since = self.world.clock.now

    def goes_out(self, message):
        """A PUBLISH of it is written."""
        if self.case.max_age and self.world.clock.now - message.since > self.case.max_age:
            raise Broken("message %d goes out, and is too old" % message.number)
