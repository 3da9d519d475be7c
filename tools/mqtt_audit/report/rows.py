"""Rows of the compiled loops handed on as tables.

Knows: which rows go to which table, what CONNECT and SUBSCRIBE say about packets that follow. Must
not know: TCP, Parquet.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compiled.layout import (
    ANOTHER,
    CONNACK,
    CONNECT,
    DISCONNECT,
    END_REUSED,
    FOUND,
    HELLO_NONE,
    HELLO_WHOLE,
    LATE_FAR,
    LINGER,
    N_BODIES,
    N_DONE,
    N_DONE_TEXT,
    N_HELLOS,
    N_PACKETS,
    N_PROBLEMS,
    N_READ,
    N_TEXT,
    N_VIOLATIONS,
    P_FIVE,
    P_LENGTH,
    PROBLEM,
    PUBLISH,
    SECOND,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    VAGUE,
    VIOLATION,
)  # fmt: skip
from ..mqtt import bodies
from ..mqtt.checks import OF_CLIENTS, OF_SERVERS
from ..rules import clock, evidence
from ..rules.agreed import Agreed
from ..rules.ending import in_step
from ..rules.order import ORDER
from ..tls import hello
from . import columns, messages
from .tallies import Tallies

_EMPTIED = [N_READ, N_TEXT, N_BODIES, N_VIOLATIONS, N_DONE, N_DONE_TEXT, N_PROBLEMS]

KNOWN = 1 << 14  #: different properties of PUBLISH that are remembered
SUBSCRIBED = "Subscription Identifier"


class Rows:
    """sink(table, pyarrow.Table) takes what is ready. span, steps: as Decoder's. The caller sets
    `files` (name of each by its number) and `pairs` ((address, port) of both ends of each pair
    of endpoints)."""

    def __init__(self, arrays, sink, span, steps=()):
        self.arrays, self.sink, self.steps = arrays, sink, steps
        self.files, self.pairs, self.gateways = {}, [], clock.Gateways()
        self.at = 0  #: where in its capture the bytes lie that are read now
        self.tallies = Tallies(span)
        self.addresses = None  #: a dict: gets (client, broker) of each connection by its id
        self.repeats = 0  #: messages that joining.sent_again() has to look at
        self._clients = []  # client id of each connection, or None
        self._ends = []  # (client, broker) of each connection, each as host:port
        self._shown = {}
        self._protocols = {}
        self._unknown = {}  # protocol level of CONNECT that no version has, or None
        self._reasons = {}  # of DISCONNECT
        self._overdue = set()  # (connection, CONNECT or CONNACK that came long after it was acked)
        self._hellos = {}  # of TLS: what hello.read() says of both sides
        self._asked = {}  # (connection, id): numbers of filters of SUBSCRIBE, of UNSUBSCRIBE
        self._agreed = Agreed()
        self._properties = {}  # bytes of properties of PUBLISH: (values, broken, SUBSCRIBED)
        self._found = []  # violations found in Python: tuples
        self._late = np.zeros(0, VIOLATION), np.zeros(0, PROBLEM)
        self._told = np.zeros(0, bool)  # which connections were handed on already

    def _show(self, end):
        if end not in self._shown:
            self._shown[end] = columns.endpoint(*end)
        return self._shown[end]

    def _name(self):
        """Name the connections that are new."""
        conns = self.arrays.conns[len(self._ends) :]
        self._clients += [None] * len(conns)
        for ident, pair, server in zip(*(conns[n].tolist() for n in ("id", "pair", "server"))):
            ends = self.pairs[pair]
            shown = self._show(ends[2 - server]), self._show(ends[server - 1])
            self._ends.append(shown)
            if self.addresses is not None:
                self.addresses[ident] = shown

    def _whose(self, conn, none=None):
        """Columns of an array of connections: connection, client_id, broker. Where `none` is
        true there is no connection."""
        used, place = np.unique(conn, return_inverse=True)
        return {
            "connection": columns.numbers(self.arrays.conns["id"][conn], pa.int64(), none),
            "client_id": columns.chosen(place, [self._clients[k] for k in used], none),
            "broker": columns.chosen(place, [self._ends[k][1] for k in used], none),
        }

    # The rare packets.

    def _read_bodies(self, rows):
        """Take the rare packets apart; returns {row: values}."""
        heap, found = self.arrays.talk.bodies, {}
        some = np.flatnonzero(rows["body"] >= 0)
        fields = (rows[n][some].tolist() for n in ("conn", "kind", "body", "body_len"))
        for k, conn, kind, at, size in zip(some.tolist(), *fields):
            raw = heap[at : at + size].tobytes()
            if kind == PUBLISH:
                found[k] = self._publish(raw, rows, k)
                continue
            row = rows[k]
            out = bodies.read(kind, raw, int(row["level"]))
            if row["damaged"] or len(raw) < row["length"]:
                out.broken, out.unknown = [], None
            elif row["level"] == 5:
                out.broken += bodies.of_other_side(kind, row["from_server"], out.values)
                out.broken += self._agreed.packet(conn, kind, row["from_server"], out.values)
            found[k] = out.values
            if kind in (OF_CLIENTS if row["from_server"] else OF_SERVERS):
                continue  # a violation by its type alone
            self._note(conn, kind, int(row["id"]), out, row)
            for code, value in out.broken:
                self._violate(code, row, value)
        return found

    def _publish(self, raw, rows, k):
        """The values of a PUBLISH's properties. Most have the bytes of many others."""
        known = self._properties.get(raw)
        if known is None:
            out = bodies.read(PUBLISH, raw, 5)
            subscribed = any(p["name"] == SUBSCRIBED for p in out.values.get("properties", ()))
            if len(self._properties) >= KNOWN:
                self._properties.clear()
            known = self._properties[raw] = out.values, out.broken, subscribed
        values, broken, subscribed = known
        if (broken or subscribed) and not rows[k]["damaged"]:
            for code, value in broken:
                self._violate(code, rows[k], value)
            if subscribed and not rows[k]["from_server"]:
                self._violate(99, rows[k])
        return values

    def _violate(self, code, row, value=0):
        if row["found"] & FOUND or row["found"] and code in ORDER:
            return
        level = 0 if row["tears"] else row["level"]  # as compiled.arena.violation() has it
        self._found.append((row["time"], row["conn"], row["frame"], value, code, row["kind"],
                            row["from_server"], level))  # fmt: skip

    def _named(self, conn, out, found, opened):
        """A CONNECT. One that was found by its look, and opened nothing, is of a payload."""
        if found and not opened:
            return
        self._unknown[conn] = None if found else out.unknown
        if "client_id" in out.values and self._clients[conn] is None:
            self._clients[conn] = out.values["client_id"]
            self._protocols[conn] = out.values["protocol"]

    def _note(self, conn, kind, ident, out, row):
        """What a packet says about its connection or the one that it answers."""
        c = self.arrays.conns[conn]
        if row["late"] == LATE_FAR:
            self._overdue.add((conn, kind))
        if kind == CONNECT:
            self._named(conn, out, row["found"] & FOUND, c["connects"])
        elif kind == CONNACK and self._unknown.get(conn) is not None:
            if out.values.get("return_code") == 0:
                self._violate(52, row, self._unknown[conn])
        elif kind == CONNACK and c["level"] in (4, 5):
            accepted = out.values.get("return_code") == 0
            if accepted and c["clean"] and out.values["session_present"]:
                self._violate(16, row)
            nameless = self._clients[conn] == "" and not c["clean"] and c["connects"] == 1
            if accepted and nameless and c["level"] == 4:
                self._violate(126, row)
        elif kind == DISCONNECT and "reason_code" in out.values:
            self._reasons[conn] = out.values["reason_code"]
        elif kind in (SUBSCRIBE, UNSUBSCRIBE):
            asked = self._asked.setdefault((conn, kind, ident), [])
            asked.append(len(out.values.get("filters", ())))
        elif c["begun"] and (kind == SUBACK or kind == UNSUBACK and row["level"] == 5):
            self._answered(conn, ident, out, row)

    def _answered(self, conn, ident, out, row):
        """A SUBACK has as many codes as one of the SUBSCRIBE with its identifier has filters; the
        same of UNSUBACK in MQTT 5."""
        subscribed = row["kind"] == SUBACK
        asked = self._asked.get((conn, row["kind"] - 1, ident), [])
        n = len(out.values.get("qos_list" if subscribed else "reason_codes", ()))
        unsure = self.arrays.ways[conn]["gaps"].any() or row["missing"]
        if n in asked:
            asked.remove(n)
        elif asked:
            asked.pop(0)
            if not unsure:
                self._violate(43 if subscribed else 103, row)

    def _read_hellos(self):
        """Read the first messages of TLS that are whole now."""
        n, ways = self.arrays.n, self.arrays.ways
        if not n[N_HELLOS]:
            return
        for conn, way in np.argwhere(ways["hello"] == HELLO_WHOLE).tolist():
            s = ways[conn, way]
            raw = self.arrays.wire.arena[s["buf"] : s["buf"] + s["buf_len"]].tobytes()
            self._hellos.setdefault(conn, {}).update(hello.read(raw))
            s["hello"], s["buf_cap"], s["buf_len"] = HELLO_NONE, 0, 0
        n[N_HELLOS] = 0

    def _malformed(self, wrong):
        """The problems without those that are no fault of the capture: a Remaining Length that no
        packet may have, of a side that is whole, is a violation."""
        fault = wrong["kind"] == P_FIVE
        for k in np.flatnonzero(fault).tolist():
            row, c = wrong[k], self.arrays.conns[wrong["conn"][k]]
            if c["dubious"] or 0 < c["spoilt"] <= row["frame"]:
                wrong["kind"][k], fault[k] = P_LENGTH, False
                continue
            self._found.append((row["time"], row["conn"], row["frame"], 0, 109, row["count"],
                                row["from_server"], c["level"]))  # fmt: skip
        return wrong[~fault]

    # Handing on.

    def late(self, violations, problems):
        """Rows of layout that are handed on next time beside those of the loops."""
        self._late = tuple(map(np.concatenate, zip(self._late, (violations, problems))))

    def _violations(self):
        st, n = self.arrays.talk, self.arrays.n
        found = np.array(self._found, VIOLATION)
        rows = np.concatenate([st.violations[: n[N_VIOLATIONS]], found, self._late[0]])
        self._found = []
        conns = self.arrays.conns
        told = clock.believed(rows, conns, self.steps, self.gateways)
        return rows[told & evidence.judged(conns, self.arrays.ways, self.arrays.wire.pairs)[
            rows["conn"]]]

    def _emit_flows(self):
        """Exchanges; apart from the rest those that may belong to one of another connection."""
        st, n, conns = self.arrays.talk, self.arrays.n, self.arrays.conns
        rows, text = st.done[: n[N_DONE]], st.done_text[: n[N_DONE_TEXT]].copy()
        messages.unanswered(rows, conns, self.arrays.ways)
        alone = messages.alone(rows, conns)
        allowed = conns["keep_alive"][rows["conn"]].astype(np.int64) * SECOND
        known = clock.timed(rows["first"], rows["done"], allowed, self.steps, conns[rows["conn"]],
                            self.gateways)  # fmt: skip
        known &= (rows["vague"] & (VAGUE | ANOTHER)) == 0
        known &= (rows["outcome"] != 1) | (rows["done"] >= rows["first"])
        known &= in_step(conns, self.arrays.ways)[rows["conn"]]
        made = messages.flows(rows, text, self._whose(rows["conn"]), conns, known)
        if not alone.all():
            apart = pa.array(~alone)
            found = messages.pieces(
                made.filter(apart), rows[~alone], conns, self.arrays.ways, self.files)
            again = pc.and_(found["goes_on"], found["dup_first"])
            again = pc.or_(pc.or_(found["repeats"], found["resends"]), again)
            self.repeats += pc.sum(again).as_py()
            self.sink("_pieces", found)
            made, rows, known = made.filter(pa.array(alone)), rows[alone], known[alone]
        self.sink("flows", made.select(columns.FLOWS.names))
        self.tallies.flows(rows, known)

    def emit(self):
        """Hand on all rows that are ready."""
        st, n = self.arrays.talk, self.arrays.n
        self._name()
        self._read_hellos()
        done = n[N_READ]
        rows = st.packets[:done]
        values = self._read_bodies(rows)
        if len(rows):
            self.tallies.packets(rows)
            ids = self.arrays.conns["id"][rows["conn"]]
            self.sink("packets", columns.packets(
                rows, st.text[: n[N_TEXT]].copy(), ids, self.files, values))  # fmt: skip
        seen = st.problems[: n[N_PROBLEMS]]
        seen["off"][seen["off"] >= 0] += self.at
        wrong = np.concatenate([seen, self._late[1]])
        wrong = self._malformed(wrong)
        broken = self._violations()
        if len(broken):
            made = columns.violations(broken, self._whose(broken["conn"]), self.files,
                                      self.arrays.conns["keep_alive"][broken["conn"]])
            self.sink("violations", made)
        if n[N_DONE]:
            self._emit_flows()
        if len(wrong):
            none = wrong["conn"] < 0
            whose = self._whose(np.where(none, 0, wrong["conn"]), none) if len(self._ends) else {}
            self.sink("problems", columns.problems(wrong, self.files, whose))
        left = int(n[N_PACKETS] - done)
        st.packets[:left] = st.packets[done : done + left].copy()
        n[N_PACKETS] = left
        n[_EMPTIED] = 0
        self._late = tuple(rows[:0] for rows in self._late)

    def ended(self, now):
        """Hand on the connections that have ended, before the capture is over, as soon as nothing
        more counts for them. now: the time of its latest frame, in ns. Those with a hole wait, as
        it may be filled."""
        conns, ways = (rows[: len(self._ends)] for rows in (self.arrays.conns, self.arrays.ways))
        past = (conns["settled"] > 0) | (conns["end"] == END_REUSED)
        past |= (conns["end"] > 0) & (now - conns["last"] > LINGER)
        # What a broker sent may still wait for a CONNECT that never comes.
        unread = slice(self.arrays.n[N_READ], self.arrays.n[N_PACKETS])
        past[self.arrays.wire.packets["conn"][unread]] = False
        self._connections(past & (ways["head"] < 0).all(axis=1))

    def _timed(self, rows):
        """Of these connections: whether it is known how long they lasted, how long it was to their
        CONNECT, and from there to CONNACK."""
        conns, out = self.arrays.conns[rows], []
        same = in_step(conns, self.arrays.ways[rows])
        for begin, end, *kinds in (("first", "last"), ("first", "asked_at", CONNECT),
                                   ("asked_at", "acked_at", CONNECT, CONNACK)):  # fmt: skip
            overdue = np.array([any((c, k) in self._overdue for k in kinds) for c in rows], bool)
            out.append(clock.known(conns, begin, end, self.steps, self.gateways) & ~overdue & same)
        return out

    def _connections(self, which):
        known = np.zeros(len(which), bool)
        known[: len(self._told)] = self._told
        self._told = known | which
        rows = np.flatnonzero(which & ~known)
        if len(rows):
            names, reasons, hellos = (
                {k: known[c] for k, c in enumerate(rows.tolist()) if c in known}
                for known in (self._protocols, self._reasons, self._hellos))  # fmt: skip
            self.sink("connections", columns.connections(
                self.arrays.conns[rows], self.arrays.ways[rows], [self._ends[k] for k in rows],
                [self._clients[k] for k in rows], names, reasons, hellos, self.files,
                self._timed(rows.tolist())))  # fmt: skip

    def close(self):
        """Hand on what is known when all packets are: connections and the sums of the rest."""
        self.sink("timeline", self.tallies.timeline())
        self._connections(np.ones(len(self._ends), bool))
        if self._ends:
            brokers = [broker for _, broker in self._ends]
            self.sink("latencies", self.tallies.latencies(self._clients, brokers))
