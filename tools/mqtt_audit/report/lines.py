"""Rows of the tables as lines: JSON for programs, words for people.

Knows: names and types of columns. Must not know: how rows came about.
"""

import json
import re
from collections import Counter
from datetime import timezone
from pathlib import Path

from ..compiled.layout import KINDS, P_HTTP, P_NOT_MQTT, P_SHORT, P_WEB
from ..rules.why import REFUSED

#: Table: what a row of it is called as an event.
EVENTS = {"packets": "packet", "connections": "connection", "flows": "message",
          "_pieces": "message", "violations": "violation", "problems": "problem",
          "findings": "finding"}  # fmt: skip
ENDS = ("client", "broker")  #: columns of addresses that lines have beside those of the table
TOLD = ("packet", "connection", "violation", "problem", "finding")  #: without other wishes
#: Protocols of connections that are not MQTT, as the table has them.
FOREIGN = {KINDS[kind][0] for kind in (P_HTTP, P_NOT_MQTT, P_WEB)}
SORTED = 100_000  #: connections that are sorted by time for this
#: What is said if there is no packet; with frames that were cut, if there are such.
NOTHING = "no MQTT was found, so nothing was judged"
CUT = ("no MQTT was found in what the capture has, so nothing was judged: it kept only the "
       "beginning of {}; capture whole frames (tcpdump -s 0)")  # fmt: skip
SHOWN = 40  #: lines of connections, and of rules, after an audit; the tables have all


def _plain(value):
    """A value as JSON has it; a time in UTC, to the microsecond."""
    return value.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _on_a_line(text):
    """JSON without characters that some programs take for the end of a line (U+2028), or that turn
    text round on a terminal (U+202E): those as \\uHHHH, which is the same to JSON."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


class JsonLines:
    """Writes an object a line to the stream `out`: the columns of the row that are not null, and
    `event`, which says what it is. kinds: the events wanted."""

    def __init__(self, out, kinds):
        self._out, self._kinds = out, frozenset(kinds)

    def __call__(self, table, rows):
        event = EVENTS.get(table)
        if event not in self._kinds:
            return
        from .columns import TABLES

        names = TABLES.get("flows" if table == "_pieces" else table).names
        names += [n for n in ENDS if n in rows.column_names and n not in names]
        lines = []
        for row in rows.select(names).to_pylist():
            said = {k: v for k, v in row.items() if v is not None}
            lines.append(_on_a_line(json.dumps({"event": event, **said}, default=_plain,
                                               ensure_ascii=False)))  # fmt: skip
        self._out.write("".join(line + "\n" for line in lines))
        self._out.flush()

    def close(self):
        """Nothing is left: everything was told as an event."""


def clean(value):
    """A text from the wire without what would steer a terminal: that as \\xHH, \\uHHHH or
    \\UHHHHHHHH."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(ord(c)) for c in text)


def _escaped(code):
    return f"\\x{code:02x}" if code < 1 << 8 else (
        f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}")  # fmt: skip


def _joined(*parts):
    return " ".join(clean(p) for p in parts if p not in (None, "", False))


def _packet(row):
    kind = row["type"]
    more = ()
    if kind == "PUBLISH":
        more = (row["topic"], f"QoS {row['qos']}", row["qos"] and f"packet id {row['packet_id']}",
                row["dup"] and "DUP", row["retain"] and "RETAIN",
                _counted(row["payload_length"] or 0, "byte"))  # fmt: skip
    elif kind == "CONNECT":
        more = (row["client_id"] or "(no client id)", row["protocol"],
                row["keep_alive"] is not None and f"keep alive {row['keep_alive']} s",
                row["clean_session"] and "clean session", row["will"] and "will")  # fmt: skip
    elif kind == "CONNACK":
        more = (f"code {row['return_code']}", row["session_present"] and "session present")
    else:
        filters = row["filters"] or ()
        more = (row["packet_id"] and f"packet id {row['packet_id']}", *filters,
                row["reason_code"] and f"reason {row['reason_code']}")  # fmt: skip
    return _joined(">" if row["sender"] == "client" else "<", kind, *more)


def _spoken(row):
    """The protocol, with what the hello of TLS tells."""
    if row["protocol"] in FOREIGN:
        return [row["protocol"]]
    if row["protocol"] != "TLS":
        return [row["protocol"] and f"MQTT {row['protocol']}"]
    return [f"TLS {row['tls_version'] or ''}".strip(),
            row["tls_server_name"] and f"server name {row['tls_server_name']}",
            row["tls_ja3"] and f"JA3 {row['tls_ja3']}",
            row["tls_ja4"] and f"JA4 {row['tls_ja4']}"]  # fmt: skip


def connection(row):
    """One line on a connection: who, version, keep alive, duration, messages each way, why it
    ended. row: of the table `connections`."""
    def messages(side):
        return sum(row[f"{side}_publish_{qos}"] or 0 for qos in (0, 1, 2))

    seconds = (row["last"] - row["first"]).total_seconds()
    return _joined(
        row["client_id"] or "(no client id)", f"{row['client']} to {row['broker']}",
        *_spoken(row), row["websocket"] and "over WebSocket",
        row["keep_alive"] is not None and f"keep alive {row['keep_alive']} s",
        f"{seconds:.3f} s",
        f"{_counted(messages('client'), 'message')} sent, {messages('broker'):,} received;",
        row["why"],
    )  # fmt: skip


def finding(row):
    """One line on a finding: what, who, and the first frames that show it."""
    at = ", ".join(f"{Path(e['file']).name} frame {e['frame']}" for e in row["evidence"][:3])
    return f"FINDING {_joined(row['finding'])}: {_joined(row['who'], row['what'])} [{clean(at)}]"


def _counted(n, what):
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def cut_frames(problems):
    """Of how many frames captures kept only the beginning, by rows of `problems`. The rows on
    single connections count bytes."""
    import pyarrow.compute as pc

    mine = pc.and_(pc.equal(problems["problem"], KINDS[P_SHORT][0]),
                   pc.is_null(problems["connection"]))  # fmt: skip
    return pc.sum(problems["count"].filter(mine)).as_py() or 0


def nothing(cut):
    """What is said of captures without a packet, with `cut` frames as cut_frames() counts them."""
    return CUT.format(_counted(cut, "frame")) if cut else NOTHING


def pair(row):
    """The hosts of a connection: the client without its port, and the broker."""
    return re.sub(r":\d+$", "", row["client"]), row["broker"]


def refusals(ends, n):
    """One line on so many TCP connections that the broker refused; ends: as pair() has them."""
    return f"{clean(ends[0])} to {clean(ends[1])}: {_counted(n, 'TCP connection')} refused"


def rule(row):
    """The id of a broken rule with its protocol: the same id has another meaning in another one.
    That of a section names its document."""
    ident, protocol = row["statement"], row["protocol"]
    return f"{ident} (MQTT {protocol})" if protocol and ident.startswith("MQTT-") else ident


def _broken(root):
    """Lines on violations: one for each rule and side, with the first place, then how many."""
    import pyarrow.dataset as ds

    by = ["protocol", "statement", "sender"]
    rows = ds.dataset(Path(root, "violations")).to_table(
        columns=[*by, "time", "what", "file", "frame"])  # fmt: skip
    # Workers write a file each, in no order.
    rows = rows.sort_by([(name, "ascending") for name in ("time", "file", "frame", "what")])
    kinds = rows.group_by(by, use_threads=False).aggregate(
        [([], "count_all"), *((n, "first") for n in ("what", "file", "frame"))])  # fmt: skip
    order = [("count_all", "descending"), *((name, "ascending") for name in by)]
    for row in kinds.sort_by(order).slice(0, SHOWN).to_pylist():
        at = f"{Path(row['file_first']).name} frame {row['frame_first']}"
        yield (f"VIOLATION {rule(row)} by the {row['sender']}, "
               f"{_counted(row['count_all'], 'time')}, first: {clean(row['what_first'])} "
               f"[{clean(at)}]")  # fmt: skip
    more = kinds.num_rows - SHOWN
    if more > 0:
        yield f"... and {_counted(more, 'rule')} more: the table violations has all"
    said = _counted(rows.num_rows, "violation")
    if not rows.num_rows and not ds.dataset(Path(root, "packets")).count_rows():
        problems = ds.dataset(Path(root, "problems")).to_table(
            columns=["problem", "connection", "count"])  # fmt: skip
        said = f"{said}: {nothing(cut_frames(problems))}"
    yield said


def told(root, out):
    """Write lines on an audit in the folder `root`: its findings, its violations, then its
    connections; those that were refused are counted for each pair of hosts."""
    import pyarrow.dataset as ds

    for row in ds.dataset(Path(root, "findings")).to_table().to_pylist():
        out.write(finding(row) + "\n")
    for line in _broken(root):
        out.write(line + "\n")
    wrong = ds.dataset(Path(root, "problems")).count_rows()
    if wrong:
        out.write(f"{_counted(wrong, 'problem')} of the capture, in the report\n")
    rows, no = ds.dataset(Path(root, "connections")), ds.field("why") == REFUSED
    made = rows.filter(~no)
    more = made.count_rows() - SHOWN
    for row in (made.sort_by("first") if more < SORTED else made).head(SHOWN).to_pylist():
        out.write(connection(row) + "\n")
    if more > 0:
        out.write(f"... and {_counted(more, 'connection')} more\n")
    refused = Counter(map(pair, rows.to_table(
        columns=["client", "broker"], filter=no).to_pylist()))  # fmt: skip
    for ends, n in refused.most_common(SHOWN):
        out.write(refusals(ends, n) + "\n")


def _round(n):
    """Whether a number is 1, 10, 100 and so on."""
    return str(n).strip("0") == "1"


class TextLines:
    """Writes a line for each packet, connection that has ended, violation and problem. Connections
    that are refused have a line when there are 1, 10, 100 and so on of a pair of hosts."""

    def __init__(self, out, kinds):
        self._out, self._kinds, self._who = out, frozenset(kinds) - {"message"}, {}
        self._refused, self._violations, self._packets, self._cut = Counter(), 0, 0, 0

    def __call__(self, table, rows):
        event = EVENTS.get(table)
        self._violations += rows.num_rows if event == "violation" else 0
        self._packets += rows.num_rows if event == "packet" else 0
        self._cut += cut_frames(rows) if event == "problem" else 0
        if event not in self._kinds:
            return
        for row in rows.to_pylist():
            line = self._line(event, row)
            if line:
                self._out.write(line + "\n")
        self._out.flush()

    def close(self):
        """Write what is known at the end: how many connections were refused, how many violations
        there are."""
        for ends, n in self._refused.items() if "connection" in self._kinds else ():
            if not _round(n):
                self._out.write(refusals(ends, n) + "\n")
        said = _counted(self._violations, "violation")
        if not (self._violations or self._packets):
            said = f"{said}: {nothing(self._cut)}"
        self._out.write(said + "\n")
        self._out.flush()

    def _line(self, event, row):
        time = row.get("time") or row.get("last")
        at = time.strftime("%H:%M:%S.%f") if time else "-"
        if event == "packet":
            if row["client_id"]:
                self._who[row["connection"]] = row["client_id"]
            who = self._who.get(row["connection"]) or row["client"]
            return f"{at} {clean(who)} {_packet(row)}"
        if event == "connection":
            self._who.pop(row["connection"], None)
            if row["why"] == REFUSED:
                ends = pair(row)
                self._refused[ends] += 1
                n = self._refused[ends]
                return f"{at} {refusals(ends, n)}" if _round(n) else None
            return f"{at} connection: {connection(row)}"
        if event == "finding":
            return f"{at} {finding(row)}"
        if event == "violation":
            said = "VIOLATION", row["client_id"] or row.get("client"), row["sender"], rule(row)
        else:
            said = "problem:", row["client_id"] or row.get("client"), row["problem"]
        return f"{at} {_joined(*said)}: {clean(row['what'])}"
