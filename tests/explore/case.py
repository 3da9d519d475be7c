"""A case: what there is, and how much may happen.

Knows: names and numbers. Must not know: what is done with them.
"""

ALL = "all"


class Case:
    """What is explored to the end.

    out: QoS of each message that the application publishes, in order; inbound: of each that others
    publish; store: "flash", "ram"; window: of the client.
    crashes: power cuts, at any flash operation too; cuts: lost links; amnesia: sessions that the
    broker loses; short: writes that the network takes in part; parts: packets that arrive in two
    pieces; ticks: calls of the timer; jumps: times that the clock moves on by half a keep-alive;
    throws: exceptions of the callback.
    torn: the bytes of a program at which it is torn: "ends" (before it, after it), "middle" (also
    in the middle), "words" (at each word of four bytes).
    free: the broker answers in any order; burst: packets that arrive together, at most.
    grant: the most QoS that the broker grants; faults: see broker.py; blocks, block: of the flash.
    """

    FROZEN = True

    def __init__(self, name, out=(), inbound=(), store="flash", window=1, crashes=0, cuts=0,
                 amnesia=0, short=0, parts=0, ticks=0, jumps=0, throws=0, torn="ends", free=False,
                 burst=1, grant=2, faults=(), blocks=4, block=256, page=1, once=False, inbox=False,
                 keepalive=0, policy=0, hold=False, options=None, waits=False, topics=(b"t",)):
        self.name = name
        self.out = tuple(out)
        self.inbound = tuple(inbound)
        self.store = store
        self.window = window
        self.crashes = crashes
        self.cuts = cuts
        self.amnesia = amnesia
        self.short = short
        self.parts = parts
        self.ticks = ticks
        self.jumps = jumps
        self.throws = throws
        self.torn = torn
        self.free = free
        self.burst = burst
        self.grant = grant
        self.faults = frozenset(faults)
        self.blocks = blocks
        self.block = block
        self.page = page
        self.once = once
        self.inbox = inbox
        self.keepalive = keepalive
        self.policy = policy
        self.hold = hold
        self.options = options or {}
        self.waits = waits
        self.topics = topics
        self.volatile = store == "ram"
        self.may_drop = bool(policy)
        self.ordered_in = not (inbox and free)
