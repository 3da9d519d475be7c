"""Segments in, tables out: drives the compiled loops of the second pass.

Knows: which loop runs when, what a full array asks for. Must not know: Spark, columns, file names
of tables.
"""

import numpy as np

from .compiled.arena import keep
from .compiled.arrays import HELD_MAX, Arrays
from .compiled.layout import (
    KEY,
    N_CONNS,
    N_FILE,
    N_FLOWS,
    N_PROBLEMS,
    N_TIGHT,
    N_UNLISTED,
    N_WANT,
    WANT_CONNS,
    WANT_DRAIN,
    WANT_FLOWS,
    WANT_HELD,
)  # fmt: skip
from .flows import ordering, table
from .mqtt import packets
from .report.rows import Rows
from .rules import ending
from .tcp import streams
from .tcp.openings import TLS_PORT

PROBLEMS_LEFT = 100  #: rows of earlier captures that take of the room for those of the next one
_ENDPOINT = np.dtype({"names": ["a", "b"], "formats": ["V16", "V16"], "offsets": [0, 16],
                      "itemsize": KEY.itemsize})  # fmt: skip


class Decoder:
    """sink(table, pyarrow.Table) takes what is ready. ports: of brokers; servers: further
    brokers as (16 bytes of address, port); span: [(ns at which it begins, ends)] of the captures;
    steps: where its clock is not to be believed (rules/clock.py)."""

    def __init__(self, sink, ports, servers, span, steps=()):
        self.ports, self.servers = set(ports), servers
        self.arrays = Arrays()
        self.rows = Rows(self.arrays, sink, span, steps)
        self._data = np.zeros(0, np.uint8)
        # Pairs of endpoints by the VLANs in which they are, and those of the first.
        self._pairs, self._first, self._ends = {}, {}, []

    # Room.

    def _relieve(self):
        """Give up all holes, so that nothing is held."""
        self.arrays.n[N_TIGHT] = 1
        self._close_all()
        self.drain()
        self.arrays.n[N_TIGHT] = 0

    def _close_all(self):
        at, n = 0, self.arrays.n
        while at < n[N_CONNS]:
            at = streams.close(self.arrays.wire, at)
            if at < n[N_CONNS]:
                self._make_room()

    def _make_room(self):
        """For a loop that stopped because an array was full."""
        arrays = self.arrays
        want, tight = arrays.n[N_WANT], arrays.n[N_TIGHT]
        held, flows = len(arrays.wire.held), len(arrays.talk.flows)
        if want == WANT_DRAIN:
            self.drain()
        elif want == WANT_CONNS:
            arrays.more_conns()
        elif want == WANT_FLOWS:
            arrays.more_flows(2 * flows)
        elif want == WANT_HELD and (tight or held < HELD_MAX):
            arrays.more_held(2 * held)
        elif want == WANT_HELD or arrays.crowded():
            self._relieve()
            arrays.more_arena()
        else:
            arrays.more_arena()

    def _read(self, everything=False):
        """Read the packets that were cut out, without those that have to wait (or all)."""
        arrays = self.arrays
        ordering.arrange(arrays, everything)
        while not packets.read(arrays.talk, self._data):
            want = arrays.n[N_WANT]
            if want == WANT_DRAIN:
                self.rows.emit()
            elif want == WANT_FLOWS:
                self._make_room()
            else:  # never by giving up holes: that would cut out more packets
                arrays.more_arena()

    def _sweep(self, everything):
        while not table.sweep(self.arrays.talk, everything):
            self.rows.emit()

    def warm(self, segments):
        """Have every compiled loop compiled, on nothing."""
        streams.run(self.arrays.wire, self._data, segments, np.zeros(0, np.int64), 0)
        self.arrays.more_arena()
        self._sweep(True)
        self.finish()
        streams.close(self.arrays.wire, 0)
        keep(self.arrays.wire, self._data)

    # The input.

    def pair_of(self, keys, mine):
        """For each key of a file the pair, or -1 if it is another's or no MQTT."""
        ends = keys.view(_ENDPOINT)
        found = np.full(len(keys), -1, np.int64)
        new, guessed = [], []

        def lans_of(k):
            a, b = ((ends[n][k].tobytes(), int(keys[n + "p"][k])) for n in "ab")
            return a, b, int(keys["tags"][k])

        # Of captures that are read as one, one may have the requests, and another the answers.
        shown = {lans_of(k): int(keys["server"][k])
                 for k in np.flatnonzero(mine & (keys["server"] >= 1) & (keys["server"] <= 4))}
        for k in np.flatnonzero(mine):
            a, b, _ = lans = lans_of(k)
            pair = self._pairs.get(lans)
            if pair is None and not keys["apart"][k]:  # the same, with another tag or none
                pair = self._first.get((a, b))
            if pair is None:
                server = self._named(a, b) or shown.get(lans, 0)
                if not server:  # who is the broker is known better elsewhere, maybe
                    server = self._server(a, b) or int(keys["server"][k])
                server = (server - 1) % 2 + 1 if server else 0
                if not server:
                    continue
                pair = len(self._ends)
                self._ends.append((a, b))
                self._first.setdefault((a, b), pair)
                new.append(server)
                guessed.append((a, b)[server - 1][1] not in self.ports)
            found[k] = self._pairs[lans] = pair
        if new:
            self.arrays.more_pairs(new, guessed)
            self.rows.pairs = self._ends
        return found

    def _named(self, a, b):
        """Which of two endpoints has a named port, if only one has: 1, 2, or 0."""
        named = a[1] in self.ports, b[1] in self.ports
        return 0 if named[0] == named[1] else 1 + named[1]

    def _server(self, a, b):
        """Which of two endpoints is the broker: 1, 2, or 0 if neither is."""
        for known in (lambda e: e[1] in self.ports, lambda e: e in self.servers,
                      lambda e: e[1] == TLS_PORT):  # fmt: skip
            if known(b):
                return 2
            if known(a):
                return 1
        return 0

    def add(self, number, name, data, keys, mine, parts):
        """A file: its number in the order of the capture, its name, its bytes, its keys, which of
        them are this decoder's, and its segments as an iterable of arrays."""
        self.turn_to(number, name, data)
        pair_of = self.pair_of(keys, mine)
        for segments in parts:
            self.take(segments, pair_of)
        self._settle()
        n = self.arrays.n
        if n[N_PROBLEMS] > PROBLEMS_LEFT or n[N_UNLISTED]:
            self.rows.emit()
            self.rows.late(self.arrays.talk.violations[:0], ending.unlisted(self.arrays))

    def weave(self, number, woven, mine, then=lambda now: None):
        """Several files that are read as one (together/weave.py); number, mine: as add()'s; then:
        called now and then, with the time in ns up to which they are read."""
        pair_of = self.pair_of(woven.keys, mine)
        now = 0
        for data, segments in woven.bunches(pair_of):
            now = max(now, int(segments["time"].max(initial=0)))
            self.turn_to(number, woven, data)
            self.take(segments, pair_of)
            self.drain()
            self.forget()
            then(now)
        self.rows.late(self.arrays.talk.violations[:0], ending.unlisted(self.arrays))

    def take(self, segments, pair_of):
        """Segments whose bytes lie where turn_to() has said; pair_of: as pair_of() gives it."""
        at = 0
        while at < len(segments):
            at = streams.run(self.arrays.wire, self._data, segments, pair_of, at)
            if at < len(segments):
                self._make_room()

    def forget(self):
        """The bytes of segments that were taken are not there any more for comparison."""
        self.arrays.wire.taken["cap"] = 0

    def turn_to(self, number, name, data):
        """The bytes of another file, or other bytes of the same, after those of packets that wait
        are put aside. name: or a Woven."""
        self.rows.files[number] = name
        self.arrays.n[N_FILE] = number
        while not keep(self.arrays.wire, self._data):
            if self.arrays.crowded():
                self._read(everything=True)
                self.rows.emit()
            else:
                self.arrays.more_arena()
        self._data = data

    # The output.

    def _settle(self):
        """Read the packets that were cut out; their rows may wait, for a hundred small captures
        are handed on as fast as one."""
        self._read()
        if self.arrays.n[N_FLOWS] > len(self.arrays.talk.flows) // 2:
            self._sweep(False)

    def drain(self):
        """Read the packets that were cut out, and hand on all rows."""
        self._settle()
        self.rows.emit()

    def finish(self):
        """The capture is over."""
        self._close_all()
        self._read(everything=True)
        self.drain()
        self._sweep(True)
        self.rows.late(*ending.last_words(self.arrays))
        self.rows.late(self.arrays.talk.violations[:0], ending.unlisted(self.arrays))
        self.rows.emit()
        self.rows.close()
