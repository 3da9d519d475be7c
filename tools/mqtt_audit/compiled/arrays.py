"""The arrays that the compiled loops work on, and how they grow.

Knows: sizes, which array refers into which. Must not know: what the rows mean, files, tables.

Memory: some hundred bytes per connection, what is in flight, and at most ARENA_MAX for what is
unfinished.
"""

import numpy as np

from ..flows import table
from .arena import gather
from .layout import (
    CONN,
    FLOW,
    HELD,
    N_ARENA,
    N_CONNS,
    N_FLOW_FREE,
    N_HELD_FREE,
    N_TIGHT,
    PACKET,
    PAIR,
    PROBLEM,
    REMEMBERED,
    SLACK,
    STREAM,
    TAKEN,
    VIOLATION,
    Talk,
    Wire,
)  # fmt: skip

ROWS = 1 << 17  #: packets that are handed on at once
TEXT, BODIES = 16 << 20, 8 << 20
ARENA, ARENA_MAX = 16 << 20, 256 << 20
HELD_MAX = 1 << 21
LISTED = 10_000  #: problems of one file that get a row each
_NOWHERE = np.zeros(0, np.uint8)


def _grown(rows, size):
    more = np.zeros(size, rows.dtype)
    more[: len(rows)] = rows
    return more


class Arrays:
    """`wire` is what TCP's loop takes, `talk` what reading packets takes; `n` is of both."""

    def __init__(self):
        self.n = np.zeros(32, np.int64)
        self.n[[N_HELD_FREE, N_FLOW_FREE]] = -1
        both = dict(
            conns=np.zeros(1024, CONN), streams=np.zeros(2048, STREAM),
            arena=np.zeros(ARENA, np.uint8), packets=np.zeros(ROWS, PACKET),
            problems=np.zeros(LISTED, PROBLEM), n=self.n,
        )  # fmt: skip
        self.wire = Wire(pairs=np.zeros(0, PAIR), held=np.zeros(0, HELD),
                         taken=np.zeros((2048, REMEMBERED), TAKEN), **both)  # fmt: skip
        self.talk = Talk(
            flows=np.zeros(0, FLOW), slots=np.zeros(0, np.int64),
            violations=np.zeros(ROWS, VIOLATION), done=np.zeros(ROWS, FLOW),
            text=np.zeros(TEXT, np.uint8), bodies=np.zeros(BODIES, np.uint8),
            done_text=np.zeros(TEXT, np.uint8), **both,
        )  # fmt: skip
        self.more_held(1024)
        self.more_flows(4096)

    def _replace(self, **both):
        self.wire = self.wire._replace(**both)
        self.talk = self.talk._replace(**both)

    @property
    def conns(self):
        """The connections so far."""
        return self.wire.conns[: self.n[N_CONNS]]

    @property
    def ways(self):
        """Both streams of each connection: [connection, 0 client or 1 broker]."""
        return self.wire.streams[: 2 * self.n[N_CONNS]].reshape(-1, 2)

    def more_pairs(self, servers, guessed):
        """New pairs of endpoints; servers: for each, which end is the broker (1 or 2); guessed:
        whether nobody named its port."""
        old = len(self.wire.pairs)
        pairs = _grown(self.wire.pairs, old + len(servers))
        pairs["cur"][old:] = -1
        pairs["server"][old:], pairs["guessed"][old:] = servers, guessed
        self.wire = self.wire._replace(pairs=pairs)

    def more_conns(self):
        """Twice as many connections."""
        self._replace(conns=_grown(self.wire.conns, 2 * len(self.wire.conns)),
                      streams=_grown(self.wire.streams, 2 * len(self.wire.streams)))  # fmt: skip
        taken = np.zeros((len(self.wire.streams), REMEMBERED), TAKEN)
        taken[: len(self.wire.taken)] = self.wire.taken
        self.wire = self.wire._replace(taken=taken)

    def more_held(self, size):
        """Room for `size` segments that came before their turn."""
        old = len(self.wire.held)
        held = _grown(self.wire.held, size)
        held["stream"][old:] = -1
        held["next"][old:] = np.arange(old + 1, size + 1)
        held["next"][-1] = self.n[N_HELD_FREE]
        self.n[N_HELD_FREE] = old
        self.wire = self.wire._replace(held=held)

    def more_flows(self, size):
        """Room for `size` open exchanges."""
        old = len(self.talk.flows)
        self.talk = self.talk._replace(flows=_grown(self.talk.flows, size),
                                       slots=np.full(4 * size, -1, np.int64))  # fmt: skip
        table.rehash(self.talk, old)

    def _gather(self, new):
        return gather(self.wire, self.talk.flows, 2 * int(self.n[N_CONNS]), new)

    def crowded(self):
        """Whether what is in the arena leaves no room for another packet."""
        return self._gather(_NOWHERE) + SLACK > ARENA_MAX

    def more_arena(self):
        """A new arena with what is still referred to, and room."""
        used = self._gather(_NOWHERE)
        self.n[N_TIGHT] = used + SLACK > ARENA_MAX
        new = np.zeros(max(ARENA, used, min(ARENA_MAX, 2 * used + 2 * SLACK)), np.uint8)
        self.n[N_ARENA] = self._gather(new)
        self._replace(arena=new)
