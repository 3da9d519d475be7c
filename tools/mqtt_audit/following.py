"""An audit of captures that are read once, from beginning to end: rows are handed on as soon as
they are known.

Knows: which loop gets what of the frames that have come. Must not know: files of tables, what is
made of rows.
"""

import logging

import numpy as np
import pyarrow as pa

from .capture.incoming import Incoming
from .capture.unpacking import TOLD
from .compiled.layout import SYN
from .decoder import Decoder
from .flows import joining
from .report import columns, sides
from .report.lines import ENDS
from .rules import clock as clocks
from .rules.findings import findings
from .tcp.headers import Endpoints
from .tcp.stamps import LEAST, STAMPED, over
from .together.groups import overlap
from .worker import EMPTY, SEAM, pairs

log = logging.getLogger("umqtt.audit")

BEGUN = (1, 2, 5, 6)  #: KEY.server of those of which one end is known to be a broker
#: Said of a capture that is read once only; {} is another one.
SHARED = ("has connections of {} at the same time: packets may be missing; audit both as files "
          "that are not packed: those are read as one")  # fmt: skip
#: Of the rows that are kept up to the end.
_SCHEMAS = {**columns.TABLES, "_pieces": columns.PIECES}
ADDRESSED, NOBODY = ("packets", "flows", "_pieces", "violations", "problems"), (None, None)
OPENINGS = 1 << 16  #: connections to no known broker whose first segments are remembered


class Following:
    """sink(table, pyarrow.Table) takes what is ready; ports: of brokers, beside those found by
    their CONNECT. Connections are handed on when they end. What is told of them before has two
    columns more than its table, ENDS."""

    def __init__(self, sink, ports=(1883,)):
        self._out, self.packets = sink, 0
        self._judged = {"connections": [], "latencies": [], "_pieces": []}
        self._decoder = Decoder(self._told, ports, set(), [(0, 0)])
        self._addresses = self._decoder.rows.addresses = {}
        self._steps = [clocks.NONE]  # of the captures before
        self._lasts = {}  # of each of them, by its number, what _before() returns
        self._between = clocks.NONE  # of the time between them and this one
        self._captured = {}  # the first capture that has a pair of endpoints
        self._ends = Endpoints()
        self._seen = {}  # endpoints of a pair: (capture that has them, its last time)
        self._number = 0
        self._last = None  # connections that end with the captures, which may be doubted

    def capture(self, name, pieces, at_once=False):
        """One capture, called `name`; pieces: its bytes, as an iterable; at_once: see Incoming.
        Raises NotACapture."""
        incoming = Incoming(name, at_once)
        self._number += 1
        self._ends, self._noted = Endpoints(), 0
        self._pairs, self._openings = np.zeros(0, np.int64), {}
        for raw in pieces:
            for piece in incoming.take(raw):
                self._frames(name, incoming.at, *piece)
            self._ready()
        for piece in incoming.end():
            self._frames(name, incoming.at, *piece)
        self._ready()
        clock = self._ends.pauses
        self._steps = [self._steps_up_to_now()]
        if (self._between[:, 2] > 0).any():
            told = SEAM.format(self._before()[1])
            log.warning("%s: %s", name, told)
            self._sink("problems", columns.files([(name, "clock", told)]))
        if clock.first is not None:
            self._lasts[self._number] = clock.last, name, self._ends.stamped
        self._tell("problems", columns.stepped(name, self._own_steps()))
        if self._ends.pauses.first is None:
            self._sink("problems", columns.files([(name, "empty", EMPTY)]))
        self._tell_shared(name)
        if incoming.wrong:
            self._sink("problems", columns.files([(name, "gzip", TOLD.format(incoming.wrong))]))
        wrong = np.concatenate([incoming.problems, self._ends.problems])
        if len(wrong):
            self._sink("problems", columns.problems(wrong, {0: name}))
        unread = columns.unread(name, self._ends.unread)
        for what in unread["what"].to_pylist():
            log.warning("%s: %s", name, what)
        self._tell("problems", unread)

    def _tell_shared(self, name):
        """Say it if an earlier capture has connections of this one at the same time."""
        told, clock = False, self._ends.pauses
        for key in self._ends.keys[self._pairs >= 0]:
            ends = key.tobytes()[: key.dtype.fields["hash"][1]]
            other, until = self._seen.get(ends, (name, 0))
            if other != name and not told and overlap(clock.first, clock.last, until):
                what = SHARED.format(other)
                log.warning("%s: %s", name, what)
                self._sink("problems", columns.files([(name, "shared", what)]))
                told = True
            if clock.last >= until:
                self._seen[ends] = name, clock.last

    def _own_steps(self):
        """The steps of the clock of this capture, as far as it was read."""
        return clocks.steps_of(self._ends.pauses.doubted, self._number)

    def _steps_up_to_now(self):
        """Those of all captures, and of the time between this one and those of its gateway."""
        self._between = self._over(self._ends.pauses.first, self._ends.stamped)
        return np.concatenate([*self._steps, self._between, self._own_steps()])

    def _over(self, first, stamps):
        """The steps between the captures before and one that begins at `first`, and has these rows
        of stamps.STAMPED."""
        before = self._before()
        if before is None or first is None or first - before[0] <= LEAST:
            return clocks.NONE
        said = over(before[2], stamps)
        return clocks.of_file(clocks.between(before[0], first, said), self._number)

    def _before(self):
        """(when it ends in ns, its name, its rows of stamps.STAMPED) of the capture of this one's
        gateway that ends last; None if there is none."""
        gateways = self._decoder.rows.gateways
        own = gateways.of(self._number)
        return max((told for number, told in self._lasts.items() if gateways.of(number) == own),
                   key=lambda told: told[0], default=None)  # fmt: skip

    def _note_pairs(self, keys):
        """This capture has these pairs of endpoints: it is of the gateway of others that do."""
        for pair in pairs(keys).tolist():
            other = self._captured.setdefault(pair, self._number)
            if other != self._number:
                self._decoder.rows.gateways.join(other, self._number)

    def weave(self, woven, steps, first, last):
        """Several captures that are read as one (together/weave.py). steps: of their clocks, as
        rules/clock.py has them; first, last: of their times, in ns."""
        self._number += 1
        self._note_pairs(woven.keys)
        self._steps.append(self._over(first, np.zeros(0, STAMPED)))
        self._lasts[self._number] = last, "", np.zeros(0, STAMPED)
        decoder, keys = self._decoder, woven.keys
        decoder.rows.at = 0
        self._steps.append(clocks.of_file(steps, self._number))
        decoder.rows.steps = np.concatenate(self._steps)
        for k in np.flatnonzero(np.isin(keys["server"], BEGUN)).tolist():
            decoder.servers.add(_server(keys[k]))
        decoder.weave(self._number, woven, np.ones(len(keys), bool), decoder.rows.ended)

    def finish(self):
        """There are no more captures."""
        self._last = []
        self._decoder.finish()
        connections, latencies, pieces = (
            pa.concat_tables([_SCHEMAS[name].empty_table(), *made])
            for name, made in self._judged.items())  # fmt: skip
        brokers = sides.unheard(connections)
        for rows in self._last:
            self._sink("connections", sides.doubted(rows, brokers) or rows)
        if self._decoder.rows.repeats:
            self._tell("violations", joining.sent_again(pieces, connections))
        self._tell("findings", findings(connections, latencies, np.concatenate(self._steps)))
        self._tell("problems", sides.one_way(connections))

    def _sink(self, table, rows):
        """Hand rows on, with the addresses of both ends: without a CONNECT nothing else says whose
        they are."""
        self.packets += rows.num_rows if table == "packets" else 0
        if table in ADDRESSED:
            ids = rows["connection"].to_pylist()
            for at, name in enumerate(ENDS):
                if name not in rows.column_names:
                    found = [self._addresses.get(k, NOBODY)[at] for k in ids]
                    rows = rows.append_column(name, pa.array(found, pa.string()))
        self._out(table, rows)

    def _tell(self, table, rows):
        if rows.num_rows:
            self._sink(table, rows)

    def _told(self, table, rows):
        if table == "connections" and self._last is not None:
            self._last.append(rows)
        else:
            self._sink(table, rows)
        if table in self._judged:
            self._judged[table].append(rows.cast(_SCHEMAS[table]))

    def _ready(self):
        self._decoder.drain()
        self._decoder.rows.ended(self._ends.pauses.last)

    def _frames(self, name, at, data, first, frames):
        self._ends.at = self._decoder.rows.at = at
        data = self._ends.with_waiting(data)
        segments = self._ends.segments(data, first, frames)
        self._note_pairs(self._ends.keys[self._noted :])
        self._noted = len(self._ends.keys)
        self._decoder.rows.steps = self._steps_up_to_now()
        self._decoder.turn_to(self._number, name, data)
        self._decoder.take(self._with_openings(segments), self._pairs)
        self._decoder.drain()
        self._decoder.forget()

    def _with_openings(self, segments):
        """The segments, behind the SYN of connections that show only now that they are MQTT."""
        keys, old = self._ends.keys, len(self._pairs)
        pairs = np.full(len(keys), -1, np.int64)
        pairs[:old] = self._pairs
        servers = self._decoder.servers
        known = len(servers)
        for k in np.flatnonzero((pairs < 0) & np.isin(keys["server"], BEGUN)).tolist():
            servers.add(_server(keys[k]))
        asked = (pairs < 0) & (
            (keys["server"] > 0) | (np.arange(len(keys)) >= old) | (len(servers) > known))
        found = self._decoder.pair_of(keys, asked)
        pairs[asked] = found[asked]
        self._pairs = pairs
        for row in segments[(pairs[segments["key"]] < 0) & (segments["flags"] & SYN > 0)]:
            self._openings.setdefault(int(row["key"]), []).append(row)
        while len(self._openings) > OPENINGS:
            del self._openings[next(iter(self._openings))]
        shown = [k for k in np.flatnonzero(asked & (pairs >= 0)).tolist() if k in self._openings]
        rows = [row for k in shown for row in self._openings.pop(k)[-4:]]
        return np.concatenate([np.array(rows, segments.dtype), segments]) if rows else segments


def _server(key):
    """The broker's endpoint of a row of layout.KEY, as Decoder has it."""
    side = "ab"[(int(key["server"]) - 1) % 2]
    words = np.array([key[f"{side}{k}"] for k in range(4)], np.uint32)
    return words.tobytes(), int(key[f"{side}p"])
