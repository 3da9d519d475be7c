"""A case: what there is, and how much may happen.

Knows: names and numbers. Must not know: what is done with them.
"""

FIRST_OUT, FIRST_IN = 65, 97  # the first byte of a payload: this, and the message's number
TOPICS_IN = (b"in/1", b"in/2")
FILTER = b"in/#"


def message(number, qos, topic, retain, first, sizes):
    """(topic, payload, RETAIN) of a message. The first byte of the payload tells which message it
    is, and no byte is as the one before it."""
    size = sizes[number % len(sizes)] - 2 - len(topic) - (2 if qos else 0)
    return topic, bytes((first + number + 3 * i) & 255 for i in range(max(size, 1))), retain


class Case:
    """What is explored to the end.

    out: QoS of each message that the application publishes, in order; inbound: of each that
    others publish; store: "flash", "ram", "files" of a host, "small files" of a littlefs; window:
    of the client; room: messages that the store takes, 0: as many as there are.
    crashes: power cuts, at any flash operation too; cuts: lost links; amnesia: sessions that the
    broker loses; short: writes that the network takes in part; parts: packets that arrive in two
    pieces; ticks: calls of the timer; jumps: times that the clock moves on, by half a keep-alive
    or by `jump` ms; throws: exceptions of the callback; grants: subscriptions for which the broker
    grants less than was asked for; confirms: calls of confirm() for what the broker has; asks: of
    republish() for all that is held; discards: of discard(); rounds: how often 65534 identifiers
    pass, given to subscriptions, while a message is on its way, or held. inside: the timer may
    fire inside of the callback, too. replies: messages that the callback publishes; leaves:
    calls of disconnect(); renews: of connect(True); beyond: so many more than there are may be
    confirmed with the newest message; wait_msg: the application calls that; sleeps: it does
    not look when the clock has moved on, its timer does. fails: blocks of the flash that wear
    out, where one is programmed or erased. ids: identifiers of incoming messages that flash
    remembers, 0: as many as there may be; inbox_room: messages that the inbox takes, 0: as
    many as there are. alone: it is looked at
    whether what two connections were in vain for goes alone on the next one.
    torn: the bytes of a program at which it is torn: "ends" (before it, after it), "middle" (also
    in the middle), "words" (at each word of four bytes).
    free: the broker answers in any order; burst: packets that arrive together, at most.
    max_age: ms that the store keeps a message, 0: for ever.
    boots: how often the power comes and goes, before anything else happens, at each boot.
    size: bytes of messages that a store in RAM takes; tight: the store is so small that publish()
    is refused, and may be refused only then.
    topics: of the messages, in turn; what goes to the first of them is retained. sizes: bytes
    behind the fixed header of each PUBLISH, out and in, in turn, 0: as few as there can be. Two
    that are longer than the client's buffer must not be of one size: see Oracle.tries().
    faults: see broker.py; blocks, block, page, once: of the flash.
    """

    FROZEN = True

    def __init__(self, name, out=(), inbound=(), store="flash", window=1, room=0, crashes=0,
                 cuts=0, amnesia=0, short=0, parts=0, ticks=0, jumps=0, jump=0, throws=0, grants=0,
                 confirms=0, asks=0, discards=0, rounds=0, fails=0, torn="ends", free=False,
                 burst=1, max_age=0, faults=(), blocks=4, block=256, page=1, once=False,
                 inbox=False, keepalive=0, policy=0, hold=False, waits=False, boots=1, size=512,
                 tight=False, topics=(b"t/1", b"t/2"), sizes=(0,), inside=False, ids=0,
                 inbox_room=0, alone=False, replies=0, leaves=0, renews=0, beyond=0,
                 wait_msg=False, sleeps=False):
        self.name = name
        self.out = tuple(out)
        self.inbound = tuple(inbound)
        self.store = store
        self.window = window
        self.room = room
        self.crashes = crashes
        self.cuts = cuts
        self.amnesia = amnesia
        self.short = short
        self.parts = parts
        self.ticks = ticks
        self.jumps = jumps
        self.jump = jump or keepalive * 500 + 1
        self.throws = throws
        self.grants = grants
        self.confirms = confirms
        self.asks = asks
        self.discards = discards
        self.rounds = rounds
        self.inside = inside
        self.fails = fails
        self.ids = ids
        self.alone = alone
        self.replies = replies
        self.leaves = leaves
        self.renews = renews
        self.beyond = beyond
        self.wait_msg = wait_msg
        self.sleeps = sleeps
        self.inbox_room = inbox_room
        self.torn = torn
        self.free = free
        self.burst = burst
        self.max_age = max_age
        self.faults = frozenset(faults)
        self.blocks = blocks
        self.block = block
        self.page = page
        self.once = once
        self.inbox = inbox
        self.keepalive = keepalive
        self.policy = policy
        self.hold = hold
        self.waits = waits
        self.boots = boots
        self.size = size
        self.tight = tight
        self.topics = topics
        self.messages = tuple(
            message(i, qos, topics[i % len(topics)], not i % len(topics), FIRST_OUT, sizes)
            for i, qos in enumerate(self.out))
        self.others = tuple(message(i, qos, TOPICS_IN[i % 2], False, FIRST_IN, sizes)
                            for i, qos in enumerate(self.inbound))
        self.volatile = store == "ram"
        self.watched = bool(policy or max_age or discards or hold or room or tight)  # see stock.py
        self.ordered_in = not (inbox and free)
