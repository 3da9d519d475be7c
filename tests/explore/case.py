"""A case: what there is, and how much may happen.

Knows: names and numbers. Must not know: what is done with them.
"""

ALL = "all"


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
    republish() for all that is held; discards: of discard().
    torn: the bytes of a program at which it is torn: "ends" (before it, after it), "middle" (also
    in the middle), "words" (at each word of four bytes).
    free: the broker answers in any order; burst: packets that arrive together, at most.
    max_age: ms that the store keeps a message, 0: for ever; topics: of the messages, in turn.
    faults: see broker.py; blocks, block, page, once: of the flash.
    """

    FROZEN = True

    def __init__(self, name, out=(), inbound=(), store="flash", window=1, room=0, crashes=0,
                 cuts=0, amnesia=0, short=0, parts=0, ticks=0, jumps=0, jump=0, throws=0, grants=0,
                 confirms=0, asks=0, discards=0, torn="ends", free=False, burst=1, max_age=0,
                 faults=(), blocks=4, block=256, page=1, once=False, inbox=False, keepalive=0,
                 policy=0, hold=False, waits=False, topics=(b"t",)):
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
        self.topics = topics
        self.volatile = store == "ram"
        self.watched = bool(policy or max_age or discards or hold or room)  # see stock.py
        self.ordered_in = not (inbox and free)
