"""Segments in, tables out: drives the compiled loops of the second pass and empties their tables.

Knows: which array is full and what to do then, what is only seen at the end of a capture. Must
not know: Spark, file names of tables.

Memory: some hundred bytes per connection, what is in flight, and at most ARENA_MAX for what is
unfinished; the rest goes to `sink` as it comes.
"""

import numpy as np
import pyarrow as pa

from . import bodies, columns, exchanges, mqtt, streams
from .arena import compact, live
from .layout import (
    CONN,
    CONNACK,
    CONNECT,
    DISCONNECT,
    END_OPEN,
    FLOW,
    FRESH,
    HELD,
    KEY,
    N_ARENA,
    N_BODIES,
    N_CONNS,
    N_DONE,
    N_DONE_TEXT,
    N_FILE,
    N_FLOW_FREE,
    N_FLOWS,
    N_HELD_FREE,
    N_PACKETS,
    N_PROBLEMS,
    N_READ,
    N_TEXT,
    N_TIGHT,
    N_UNLISTED,
    N_VIOLATIONS,
    N_WANT,
    P_MORE,
    P_NO_STEP,
    P_UNFINISHED,
    PACKET,
    PAIR,
    PINGREQ,
    PROBLEM,
    SEARCHING,
    SLACK,
    STREAM,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    VIOLATION,
    WANT_CONNS,
    WANT_DRAIN,
    WANT_FLOWS,
    WANT_HELD,
    Talk,
    Wire,
)  # fmt: skip
from .mqtt import GRACE, SECOND

ROWS = 1 << 17  #: packets that are handed on at once
TEXT, BODIES = 16 << 20, 8 << 20
ARENA, ARENA_MAX = 16 << 20, 256 << 20
HELD_MAX = 1 << 21
LISTED = 10_000  #: problems of one file that get a row each

_ENDPOINT = np.dtype({"names": ["a", "b"], "formats": ["V16", "V16"], "offsets": [0, 16],
                      "itemsize": KEY.itemsize})  # fmt: skip


def _grown(rows, size):
    more = np.zeros(size, rows.dtype)
    more[: len(rows)] = rows
    return more


class Decoder:
    """sink(table, pyarrow.Table) takes what is ready. ports: of brokers; servers: further
    brokers as (16 bytes of address, port); end: ns at which the whole capture ends."""

    def __init__(self, sink, ports, servers, end):
        self.sink, self.ports, self.servers, self.end = sink, set(ports), servers, end
        n = np.zeros(32, np.int64)
        n[[N_HELD_FREE, N_FLOW_FREE]] = -1
        both = dict(
            conns=np.zeros(1024, CONN), streams=np.zeros(2048, STREAM),
            arena=np.zeros(ARENA, np.uint8), packets=np.zeros(ROWS, PACKET),
            problems=np.zeros(LISTED, PROBLEM), n=n,
        )  # fmt: skip
        self.wire = Wire(pairs=np.zeros(0, PAIR), held=np.zeros(0, HELD), **both)
        self.st = Talk(
            flows=np.zeros(0, FLOW), slots=np.zeros(0, np.int64),
            violations=np.zeros(ROWS, VIOLATION), done=np.zeros(ROWS, FLOW),
            text=np.zeros(TEXT, np.uint8), bodies=np.zeros(BODIES, np.uint8),
            done_text=np.zeros(TEXT, np.uint8), **both,
        )  # fmt: skip
        self._data = np.zeros(0, np.uint8)
        self._more_held(1024)
        self._more_flows(4096)
        self._pairs = {}
        self._names = []  # (client, server) addresses of a pair, as the two ends a and b
        self._clients = []  # client id of each connection, or None
        self._protocols = {}
        self._asked = {}  # (connection, id): (packet type, number of filters)
        self._late = []  # violations found in Python: tuples
        self._file = ""

    # The arrays.

    def _replace(self, **both):
        self.wire = self.wire._replace(**both)
        self.st = self.st._replace(**both)

    def _more_held(self, size):
        old = len(self.wire.held)
        held = _grown(self.wire.held, size)
        held["stream"][old:] = -1
        held["next"][old:] = np.arange(old + 1, size + 1)
        held["next"][-1] = self.st.n[N_HELD_FREE]
        self.st.n[N_HELD_FREE] = old
        self.wire = self.wire._replace(held=held)

    def _more_flows(self, size):
        old = len(self.st.flows)
        self.st = self.st._replace(flows=_grown(self.st.flows, size),
                                   slots=np.full(4 * size, -1, np.int64))  # fmt: skip
        exchanges.rehash(self.st, old)

    def _used(self):
        return live(self.wire, self.st.flows, 2 * int(self.st.n[N_CONNS]))

    def _more_arena(self):
        n, used = self.st.n, self._used()
        n[N_TIGHT] = used + SLACK > ARENA_MAX
        new = np.zeros(max(ARENA, used, min(ARENA_MAX, 2 * used + 2 * SLACK)), np.uint8)
        n[N_ARENA] = compact(self.wire, self.st.flows, 2 * int(n[N_CONNS]), new)
        self._replace(arena=new)

    def _relieve(self):
        """Give up all holes, so that nothing is held."""
        self.st.n[N_TIGHT] = 1
        self._close_all()
        self.drain()
        self.st.n[N_TIGHT] = 0

    def _close_all(self):
        at = 0
        while at < self.st.n[N_CONNS]:
            at = streams.close(self.wire, at)
            if at < self.st.n[N_CONNS]:
                self._make_room()

    def _make_room(self):
        """For TCP's loop, which stopped."""
        want, tight = self.st.n[N_WANT], self.st.n[N_TIGHT]
        if want == WANT_DRAIN:
            self.drain()
        elif want == WANT_CONNS:
            size = 2 * len(self.st.conns)
            self._replace(conns=_grown(self.st.conns, size),
                          streams=_grown(self.st.streams, 2 * size))  # fmt: skip
        elif want == WANT_HELD and (tight or len(self.wire.held) < HELD_MAX):
            self._more_held(2 * len(self.wire.held))
        elif want == WANT_HELD or self._used() + SLACK > ARENA_MAX:
            self._relieve()
            self._more_arena()
        else:
            self._more_arena()

    def _read(self):
        """Read the packets that were cut out."""
        while not mqtt.read(self.st, self._data):
            want = self.st.n[N_WANT]
            if want == WANT_DRAIN:
                self._emit()
            elif want == WANT_FLOWS:
                self._more_flows(2 * len(self.st.flows))
            else:
                self._more_arena()

    def _sweep(self, everything):
        while not exchanges.sweep(self.st, everything):
            self._emit()

    def warm(self, segments):
        """Have every compiled loop compiled, on nothing."""
        streams.run(self.wire, self._data, segments, np.zeros(0, np.int64), 0)
        self._more_arena()
        self._sweep(True)
        self.finish()
        streams.close(self.wire, 0)

    # The input.

    def _pair_of(self, keys, mine):
        """For each key of a file the pair, or -1 if it is another's or no MQTT."""
        ends = keys.view(_ENDPOINT)
        found = np.full(len(keys), -1, np.int64)
        new = []
        for k in np.flatnonzero(mine):
            a, b = (ends["a"][k].tobytes(), int(keys["ap"][k])), (
                ends["b"][k].tobytes(), int(keys["bp"][k]))  # fmt: skip
            pair = self._pairs.get((a, b))
            if pair is None:
                server = int(keys["server"][k]) or self._server(a, b)
                if not server:
                    continue
                pair = self._pairs[a, b] = len(self._names)
                self._names.append((a, b))
                new.append(server)
            found[k] = pair
        if new:
            old = len(self.wire.pairs)
            pairs = _grown(self.wire.pairs, old + len(new))
            pairs["cur"][old:] = -1
            pairs["server"][old:] = new
            self.wire = self.wire._replace(pairs=pairs)
        return found

    def _server(self, a, b):
        """Which of two endpoints is the broker: 1, 2, or 0 if neither is."""
        for known in (lambda e: e in self.servers, lambda e: e[1] in self.ports):
            if known(b):
                return 2
            if known(a):
                return 1
        return 0

    def add(self, number, name, data, keys, mine, parts):
        """A file: its number in the order of the capture, its name, its bytes, its keys, which of
        them are this decoder's, and its segments as an iterable of arrays."""
        self._file, self._data = name, data
        self.st.n[N_FILE] = number
        pair_of = self._pair_of(keys, mine)
        for segments in parts:
            at = 0
            while at < len(segments):
                at = streams.run(self.wire, data, segments, pair_of, at)
                if at < len(segments):
                    self._make_room()
        self.drain()

    # The output.

    def _addresses(self):
        n = self.st.n[N_CONNS]
        conns = self.st.conns[:n]
        return conns, conns["id"].copy()

    def _client_column(self):
        n = int(self.st.n[N_CONNS])
        self._clients += [None] * (n - len(self._clients))
        return pa.array(self._clients, pa.string())

    def _broker_column(self):
        """host:port of the broker of each connection."""
        conns = self.st.conns[: self.st.n[N_CONNS]]
        text = {}
        out = []
        for pair, server in zip(conns["pair"].tolist(), conns["server"].tolist()):
            end = self._names[pair][server - 1]
            if end not in text:
                text[end] = columns.endpoint(*end)
            out.append(text[end])
        return pa.array(out, pa.string())

    def _read_bodies(self, rows):
        """Take the rare packets apart; returns {row: values}."""
        st, found = self.st, {}
        self._client_column()
        for k in np.flatnonzero(rows["body"] >= 0).tolist():
            row = rows[k]
            conn, kind, at = int(row["conn"]), int(row["kind"]), int(row["body"])
            raw = st.bodies[at : at + int(row["body_len"])].tobytes()
            out = bodies.read(kind, raw, int(row["level"]))
            if row["damaged"] or len(raw) < row["length"]:
                out.broken = []
            found[k] = out.values
            self._note(conn, kind, int(row["id"]), out, row)
            for code, value in out.broken:
                self._violate(code, row, value)
        return found

    def _violate(self, code, row, value=0):
        self._late.append((row["time"], row["conn"], row["frame"], value, code, row["kind"],
                           row["from_server"], row["level"]))  # fmt: skip

    def _note(self, conn, kind, ident, out, row):
        """What a packet says about its connection or the one that it answers."""
        c = self.st.conns[conn]
        if kind == CONNECT and "client_id" in out.values:
            self._clients[conn] = out.values["client_id"]
            self._protocols[conn] = out.values["protocol"]
        elif kind == CONNACK and c["level"] == 4:
            if c["clean"] and out.values.get("session_present") and not out.values["return_code"]:
                self._violate(16, row)
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            self._asked[conn, ident] = kind, len(out.values.get("filters", ()))
        elif kind in (SUBACK, UNSUBACK) and c["begun"]:
            self._answered(conn, kind, ident, out, row)

    def _answered(self, conn, kind, ident, out, row):
        asked, n = self._asked.pop((conn, ident), (None, 0))
        pair = self.st.streams[2 * conn : 2 * conn + 2]
        if pair["gaps"].any() or row["level"] == 5:
            return
        if asked != kind - 1:
            acked = pair["acked"][0] - pair["next"][0]
            if not acked and pair["head"][0] < 0:
                self._violate(51, row, ident)
        elif kind == SUBACK and len(out.values.get("qos_list", ())) != n:
            self._violate(43, row)

    def drain(self):
        """Read the packets that were cut out, and hand on all rows."""
        self._read()
        if self.st.n[N_FLOWS] > len(self.st.flows) // 2:
            self._sweep(False)
        self._emit()

    def _emit(self):
        """Hand on all rows that are ready."""
        st, n = self.st, self.st.n
        done = n[N_READ]
        rows = st.packets[:done]
        found = self._read_bodies(rows)
        conns, ids = self._addresses()
        clients = self._client_column()
        if len(rows):
            self.sink("packets", columns.packets(
                rows, st.text[: n[N_TEXT]].copy(), ids, self._file, found))  # fmt: skip
        broken = st.violations[: n[N_VIOLATIONS]]
        if self._late:
            broken = np.concatenate([broken, np.array(self._late, VIOLATION)])
            self._late = []
        if len(broken) or n[N_DONE]:
            brokers = self._broker_column()
        if len(broken):
            made = columns.violations(broken, ids, self._file, clients, brokers)
            self.sink("violations", made)
        if n[N_DONE]:
            self.sink("flows", columns.flows(
                st.done[: n[N_DONE]], st.done_text[: n[N_DONE_TEXT]].copy(), ids, clients,
                brokers, conns))  # fmt: skip
        if n[N_PROBLEMS]:
            made = columns.problems(st.problems[: n[N_PROBLEMS]], self._file, ids, clients)
            self.sink("problems", made)
        left = int(n[N_PACKETS] - done)
        st.packets[:left] = st.packets[done : done + left].copy()
        n[N_PACKETS] = left
        n[[N_READ, N_TEXT, N_BODIES, N_VIOLATIONS, N_DONE, N_DONE_TEXT, N_PROBLEMS]] = 0

    def finish(self):
        """The capture is over."""
        self._close_all()
        self.drain()
        self._sweep(True)
        self._last_words()
        self.drain()
        conns, ids = self._addresses()
        if len(conns):
            ways = self.st.streams[: 2 * len(conns)].reshape(-1, 2)
            ends = [self._names[p] for p in conns["pair"].tolist()]
            ends = [(b, a) if s == 1 else (a, b) for (a, b), s in zip(ends, conns["server"])]
            self.sink("connections", columns.connections(
                conns, ways, ends, self._client_column(), self._protocols))  # fmt: skip

    def _last_words(self):
        """Silence up to the end, pings without an answer, bytes that nothing was found in."""
        st = self.st
        conns = st.conns[: st.n[N_CONNS]]
        ways = st.streams[: 2 * len(conns)].reshape(-1, 2)
        still = conns["end"] == END_OPEN
        end = np.where(still, max(self.end, 0), conns["last"])
        lively = (conns["connected"] > 0) & (conns["disconnected"] == 0) & (conns["end"] != 1)
        lively &= (conns["end"] != 3) & (ways["gaps"][:, 0] == 0) & (conns["level"] != 5)
        lively &= (conns["keep_alive"] > 0) & (conns["opaque"] == 0) & (conns["code"] == 0)
        allowed = conns["keep_alive"].astype(np.int64) * SECOND
        silent = end - conns["last_client"]
        conns["longest"] = np.where(lively, np.maximum(conns["longest"], silent), conns["longest"])
        for code, sender, found in (
            (10, 0, lively & (silent > allowed + GRACE)),
            (11, 1, lively & (silent > allowed * 3 // 2 + GRACE)),
        ):
            for k in np.flatnonzero(found).tolist():
                self._end_row(code, k, sender, DISCONNECT, end[k], silent[k])
        waited = end - conns["ping_at"]
        unanswered = lively & (conns["ping_at"] > 0) & (waited > allowed + GRACE)
        for k in np.flatnonzero(unanswered).tolist():
            self._end_row(47, k, 1, PINGREQ, end[k], waited[k])
        lost = (ways["skipped"] > 0) & (ways["sync"] == SEARCHING)
        cut = (ways["stage"] != FRESH) & still[:, None]
        for k, way in zip(*np.nonzero((lost | cut) & (conns["opaque"] == 0)[:, None])):
            self._stream_row(k, way, ways[k, way], lost[k, way], conns["last"][k])
        if st.n[N_UNLISTED]:
            self._problem(P_MORE, -1, 0, 0, st.n[N_UNLISTED])

    def _end_row(self, code, conn, sender, kind, time, waited):
        level = self.st.conns[conn]["level"]
        self._late.append((time, conn, 0, waited // 1_000_000, code, kind, sender, level))

    def _stream_row(self, conn, way, s, lost, time):
        if lost:
            self._problem(P_NO_STEP, conn, way, time, s["skipped"])
        else:
            self._problem(P_UNFINISHED, conn, way, time, s["got"])

    def _problem(self, kind, conn, way, time, count):
        if self.st.n[N_PROBLEMS] >= len(self.st.problems):
            self.drain()
        row = self.st.problems[self.st.n[N_PROBLEMS]]
        row["kind"], row["conn"], row["from_server"], row["time"] = kind, conn, way, time
        row["count"], row["frame"], row["off"] = count, 0, -1
        self.st.n[N_PROBLEMS] += 1
