"""The tables of the audit as Arrow: their columns, and rows of the layouts turned into them.

Knows: names and types of columns. Must not know: Spark, how rows came about.
"""

import ipaddress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compiled.layout import (
    AUTH,
    BEGUN,
    END_OPEN,
    HAS_FLAGS,
    HAS_KEEP_ALIVE,
    KINDS,
    P_BEFORE,
    P_CLOCK,
    P_FAR,
    P_LATE,
    P_MQTT5,
    P_RESYNC,
    PROBLEM,
    PUBLISH,
    RESERVED,
    TYPES,
)  # fmt: skip
from ..mqtt.properties import PROPERTIES
from ..rules.ending import lacking, longest, unseen
from ..rules.findings import FINDINGS
from ..rules.statements import BESIDE, FIELDS, IN_PROPERTY, KEEP_ALIVE, RULES, statement
from ..rules.why import ANSWERS, closed, half, never_answered, refused, sure, why
from .places import numbers, places, woven

TIME = pa.timestamp("us", tz="UTC")
WAYS = ("client", "broker")
#: By the outcome of an exchange in layout.FLOW; the last one only messages.unanswered() gives.
OUTCOMES = ("open", "acknowledged", "id reused", "not seen from its beginning", "unseen")
#: Names of the protocol levels.
PROTOCOLS = {2: "MQIpdp", 3: "3.1", 4: "3.1.1", 5: "5"}
ETHER_TYPES = 5  #: of frames that are not read, that are named
#: Those of frames that have frames or datagrams inside: TRILL, Ethernet bridging, E-Tag, MPLS,
#: MACsec, provider bridges, VN-Tag, NSH, and tags of VLANs from before 802.1ad.
CARRIERS = {0x22F3, 0x6558, 0x893F, 0x8847, 0x8848, 0x88E5, 0x88E7, 0x8926, 0x894F, 0x9200, 0x9300}
ENDS = ("open", "FIN by client", "FIN by broker", "RST by client", "RST by broker", "port reused")


#: A property of MQTT 5; `key` is of a user property only.
PROPERTY = pa.struct([("name", pa.string()), ("key", pa.string()), ("value", pa.string())])


def _schema(text, **more):
    kinds = {"i8": pa.int64(), "i4": pa.int32(), "u1": pa.uint8(), "s": pa.string(),
             "b": pa.bool_(), "t": TIME, "f": pa.float64(), "ls": pa.list_(pa.string()),
             "lu": pa.list_(pa.int16()), "i2": pa.int16(), "d": pa.string(),
             "lp": pa.list_(PROPERTY)}  # fmt: skip
    return pa.schema([(n, kinds[k]) for n, k in (item.split(":") for item in text.split())])


#: CONNECT, CONNACK, SUBSCRIBE, SUBACK, UNSUBSCRIBE, and what only MQTT 5 has.
BODY = _schema(
    "client_id:s protocol:s protocol_level:i2 clean_session:b keep_alive:i4 will:b will_topic:s "
    "will_qos:i2 will_retain:b will_length:i4 user_name:b password:b session_present:b "
    "return_code:i2 filters:ls qos_list:lu options:lu reason_code:i2 reason_codes:lu "
    "properties:lp will_properties:lp"
)
PACKETS = pa.unify_schemas([_schema(
    "file:s frame:i8 time:t connection:i8 sender:s type:s length:i8 flags:i2 dup:b qos:i2 "
    "retain:b packet_id:i4 topic:s payload_length:i8 damaged:b"
), BODY])  # fmt: skip
CONNECTIONS = _schema(
    "connection:i8 file:s frame:i8 client:s broker:s first:t last:t closed:t begun:b "
    "protocol:s client_id:s "
    "clean_session:b keep_alive:i4 session_present:b return_code:i2 ended:s disconnect:b why:s "
    "unseen:s websocket:b tls_version:s tls_server_name:s tls_ja3:s tls_ja4:s "
    "handshake_ms:f connack_ms:f pings:i4 longest_silence_s:f "
    "client_packets:i8 client_bytes:i8 client_publish_0:i8 client_publish_1:i8 "
    "client_publish_2:i8 client_dup:i8 client_payload:i8 client_segments:i8 client_resent:i8 "
    "client_disordered:i8 client_lost:i8 client_gaps:i8 "
    "client_peak:i8 client_peak_frame:i8 "
    "client_flood:i8 client_flood_s:f client_flood_frame:i8 "
    "broker_packets:i8 broker_bytes:i8 broker_publish_0:i8 broker_publish_1:i8 "
    "broker_publish_2:i8 broker_dup:i8 broker_payload:i8 broker_segments:i8 broker_resent:i8 "
    "broker_disordered:i8 broker_lost:i8 broker_gaps:i8 "
    "broker_peak:i8 broker_peak_frame:i8 "
    "broker_flood:i8 broker_flood_s:f broker_flood_frame:i8"
)
FLOWS = _schema(
    "connection:i8 client_id:s broker:s sender:s packet_id:i4 qos:i2 topic:s length:i8 "
    "first:t last:t received:t released:t done:t latency_ms:f sent:i4 with_dup:i4 without_dup:i4 "
    "outcome:s connections:i4"
)
#: What joining the exchanges of several connections needs beside them.
MADE = pa.unify_schemas([FLOWS, _schema("digest:i8 dup_first:b headless:b clean:b resumed:b")])
PIECES = pa.unify_schemas([MADE, _schema(
    "file:s frame:i8 level:i2 repeats:b resends:b unanswered:b alone:b closed:b "
    "goes_on:b left:b begins:b unsure:b")])  # fmt: skip
VIOLATIONS = _schema(
    "time:t connection:i8 client_id:s broker:s file:s frame:i8 sender:s type:s protocol:s "
    "statement:s keep_alive:b what:s"
)
PROBLEMS = _schema(
    "file:s frame:i8 offset:i8 time:t connection:i8 client_id:s sender:s problem:s what:s "
    "count:i8"
)
#: How many messages of a client took how long; what the summaries and the report are made from.
LATENCIES = _schema(
    "client_id:s broker:s sender:s qos:i2 outcome:s latency_ms:f messages:i8 retransmissions:i8 "
    "longest_ms:f"
)
#: How many packets there were, 200 rows of time for each kind of packet that there is.
TIMELINE = _schema("time:t sender:s type:s packets:i8")
MARK = "audit.json"  #: a folder with this file is an earlier audit and may be replaced
TABLES = {"packets": PACKETS, "connections": CONNECTIONS, "flows": FLOWS, "latencies": LATENCIES,
          "timeline": TIMELINE, "violations": VIOLATIONS, "problems": PROBLEMS,
          "findings": FINDINGS}  # fmt: skip


NO_COUNT = (P_MQTT5, P_LATE, P_FAR)  #: problems whose `count` is another number, of what they say
#: What a problem says of which the count is 0, if that is something else.
_NONE = {
    P_RESYNC: "the next packet was found at once, no byte was skipped",
    P_BEFORE: "began before the capture; the first bytes there begin a packet",
    P_LATE: "bytes come behind TCP's acknowledgement of them, by less than a millisecond, so "
            "frames are out of order: nothing of this connection is judged that depends on the "
            "order of both sides",
}
#: What a count of 1 makes of the words of a problem.
_ONE = (
    ("{} bytes of the stream are not in the capture, or come",
     "{} byte of the stream is not in the capture, or comes"),
    ("{} bytes are", "{} byte is"), ("{} pairs of ports have", "the two ports of this frame have"),
    ("{} bytes were", "{} byte was"), ("{} bytes", "{} byte"),
    ("beginning of {} frames", "beginning of {} frame"),
    ("reason: they are", "reason: it is"), ("which are right", "which is right"),
    ("the first have", "the first has"), ("the first are", "the first is"),
    ("{} problems more of this file are", "{} problem more of this file is"),
)  # fmt: skip


def words(codes, names):
    """Numbers as words."""
    indices = pa.array(np.ascontiguousarray(codes), pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


def types(rows):
    """The types of packets, in rows with their protocol levels. Before MQTT 5 there is no AUTH:
    its number is reserved."""
    known = (rows["level"] > 0) & (rows["level"] < 5)
    return np.where((rows["kind"] == AUTH) & known, RESERVED, rows["kind"])


def chosen(place, names, missing=None):
    """names[k] for every k of `place`; a name may be None."""
    none = np.array([name is None for name in names], bool)[place]
    none = none if missing is None else none | missing
    words_ = pa.array([name or "" for name in names], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32), mask=none), words_)


def times(ns, missing=None):
    """ns since 1970 as timestamps in us."""
    us = np.ascontiguousarray(ns) // 1000
    return pa.array(us, mask=missing).cast(pa.timestamp("us")).cast(TIME)


def heap(ends, data, missing):
    """Text that lies one behind the other; `ends` are the places where each ends."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    bits = pa.array(missing)
    valid = pc.invert(bits).buffers()[1]
    return pa.StringArray.from_buffers(
        len(ends), pa.py_buffer(offsets), pa.py_buffer(data), valid, int(missing.sum())
    )


def build(schema, columns):
    """A table of a schema; a column that is missing is null."""
    n = len(next(iter(columns.values())))
    found = [columns.get(f.name, None) for f in schema]
    return pa.table([pa.nulls(n, f.type) if c is None else c for f, c in zip(schema, found)],
                    names=schema.names)  # fmt: skip


def _bodies(bodies, n):
    """Columns of BODY; bodies: {row: values}. Rows may have the same values, as one object."""
    columns = {}
    if not bodies:
        return columns
    rows = np.array(sorted(bodies))
    place, rows_at = np.full(n, -1, np.int64), np.zeros(len(rows), np.int64)
    number, different = {}, []
    for k, values in enumerate(map(bodies.get, rows.tolist())):
        if id(values) not in number:
            number[id(values)] = len(different)
            different.append(values)
        rows_at[k] = number[id(values)]
    place[rows] = rows_at
    indices = pa.array(place, mask=place < 0)
    for item in BODY:
        values = [one.get(item.name) for one in different]
        if any(v is not None for v in values):
            columns[item.name] = pa.array(values, item.type).take(indices)
    return columns


def packets(rows, text, ids, files, bodies):
    """The table of packets. ids: their connections; files: as places() has it; bodies: {row:
    values of bodies.Body}."""
    n = len(rows)
    kind, flags = rows["kind"], rows["flags"]
    other = kind != PUBLISH
    return build(PACKETS, {
        **places(rows["frame"], files),
        "time": times(rows["time"]),
        "connection": numbers(ids, pa.int64()),
        "sender": words(rows["from_server"], WAYS),
        "type": words(types(rows), TYPES),
        "length": numbers(rows["length"], pa.int64()),
        "flags": numbers(flags.astype(np.int16), pa.int16()),
        "dup": pa.array(flags & 8 > 0, mask=other),
        "qos": numbers((flags >> 1 & 3).astype(np.int16), pa.int16(), other),
        "retain": pa.array(flags & 1 > 0, mask=other),
        "packet_id": numbers(rows["id"], pa.int32(), rows["id"] < 0),
        "topic": heap(rows["text_end"], text, rows["topic"] == 0),
        "payload_length": numbers(rows["payload"], pa.int64(), rows["payload"] < 0),
        "damaged": pa.array(rows["damaged"] > 0),
        **_bodies(bodies, n),
    })  # fmt: skip


def _property(ident):
    """A property by its number, as the specification writes it, and its name."""
    return " ".join([f"0x{ident:02X}", *PROPERTIES.get(ident, ())[:1]])


def _broken(code, value, limit):
    """What a violation says. limit: one and a half times the keep alive, in seconds."""
    of_property = value & (1 << BESIDE) - 1
    field = (f"property {_property(of_property)}" if value >= IN_PROPERTY else
             FIELDS[min(value, len(FIELDS) - 1)] if value >= 0 else "")  # fmt: skip
    return RULES[code][2].format(
        value, seconds=value / 1000, limit=limit, property=_property(of_property),
        rest=value >> BESIDE, field=field)  # fmt: skip


def violations(rows, whose, files, keep_alive):
    """The table of violations, without those of rules that the protocol version does not have.
    keep_alive: of the connection of each, in seconds."""
    said = [statement(*one) for one in zip(*(
        rows[n].tolist() for n in ("code", "level", "kind", "from_server")))]  # fmt: skip
    kept = np.array([s is not None for s in said], bool)
    rows, limit = rows[kept], keep_alive[kept] * 1.5
    what = list(map(_broken, rows["code"].tolist(), rows["value"].tolist(), limit.tolist()))
    return build(VIOLATIONS, {
        **{name: column.filter(pa.array(kept)) for name, column in whose.items()},
        "time": times(rows["time"]),
        **places(rows["frame"], files),
        "sender": words(rows["from_server"], WAYS),
        "type": chosen(np.minimum(types(rows), len(TYPES)), [*TYPES, None]),
        "protocol": pa.array([PROTOCOLS.get(k) for k in rows["level"].tolist()], pa.string()),
        "statement": pa.array([s for s in said if s], pa.string()),
        "keep_alive": pa.array(np.isin(rows["code"], KEEP_ALIVE)),
        "what": pa.array(what, pa.string()),
    })  # fmt: skip


def _what(kind, count):
    """What a row of problems says."""
    text = KINDS[kind][1] if count else _NONE.get(kind, KINDS[kind][1])
    for many, one in _ONE if count == 1 else ():
        text = text.replace(many, one)
    return text.format(count)


def problems(rows, files, whose=None):
    """The table of problems, as files() has it: both may end in one Parquet file. The first pass
    has one file, which is number 0."""
    side = np.where(rows["conn"] < 0, 0, rows["from_server"])
    sender = pa.array(side, pa.int8(), mask=rows["conn"] < 0)
    columns = {**(whose or {}), "sender": pa.DictionaryArray.from_arrays(sender, list(WAYS))}
    return build(PROBLEMS, {
        **places(rows["frame"], files),
        "offset": numbers(rows["off"], pa.int64(),
                          (rows["off"] < 0) | woven(rows["frame"], files)),
        "time": times(rows["time"], rows["time"] == 0),
        "problem": pa.array([KINDS[k][0] for k in rows["kind"]], pa.string()),
        "what": pa.array([_what(k, c)
                          for k, c in zip(rows["kind"], rows["count"])], pa.string()),
        "count": numbers(np.where(np.isin(rows["kind"], NO_COUNT), 1, rows["count"]), pa.int64()),
        **columns,
    }).cast(PROBLEMS)  # fmt: skip


def files(found):
    """The table of problems with whole files: [(file, problem, what)]."""
    names = ("file", "problem", "what")
    return build(PROBLEMS, {n: pa.array(c, pa.string()) for n, c in zip(names, zip(*found))})


def stepped(name, steps):
    """The table of problems with a capture whose clock was wrong. steps: as rules/clock.py has
    them."""
    wrong = steps[steps[:, 2] > 0]
    rows = np.zeros(min(1, len(wrong)), PROBLEM)
    rows["kind"], rows["conn"], rows["off"], rows["count"] = P_CLOCK, -1, -1, len(wrong)
    rows["time"] = wrong[:1, 0]
    return problems(rows, {0: name})


def unread(name, counts):
    """The table of problems with a capture that has frames which are not read though MQTT may be
    in them: of CARRIERS, or all, if no frame has an EtherType that is read. counts: as
    Endpoints.unread has them."""
    some = counts.get(0, 0) > 0
    counts = {kind: n for kind, n in counts.items() if kind in CARRIERS or not some}
    frames = sum(counts.values())
    if not frames:
        return PROBLEMS.empty_table()
    most = sorted(counts, key=counts.get, reverse=True)[:ETHER_TYPES]
    said = ", ".join(f"0x{kind:04X} ({counts[kind]:,})" for kind in most)
    more = ", ..." if len(counts) > len(most) else ""
    which = "frames are not read that may have others inside" if some else (
        "none of the frames can be read")  # fmt: skip
    what = f"{which}: EtherType {said}{more}"
    return build(PROBLEMS, {"count": numbers([frames], pa.int64()), **{
        n: pa.array([text], pa.string())
        for n, text in (("file", name), ("problem", "EtherType"), ("what", what))}})  # fmt: skip


def endpoint(address, port):
    """host:port of 16 bytes of address (four words as this machine keeps them) and a port."""
    words_ = np.frombuffer(address, np.uint32)
    raw = words_.astype(">u4").tobytes()
    if not words_[0] and not words_[1] and words_[2] == 0xFFFF:
        return f"{ipaddress.IPv4Address(raw[12:])}:{port}"
    return f"[{ipaddress.IPv6Address(raw)}]:{port}"


def _protocol(conn, level, opaque, known):
    if opaque and not (conn in known and opaque in ANSWERS):
        return KINDS[opaque][0]
    return known.get(conn) or PROTOCOLS.get(level)


_COUNTS = {"packets": "packets", "bytes": "bytes", "publish_0": "publish0",
           "publish_1": "publish1", "publish_2": "publish2", "dup": "dups", "payload": "payload",
           "segments": "segments", "resent": "resent", "disordered": "disordered",
           "gaps": "gaps", "peak": "peak", "flood": "flood_n"}  # fmt: skip


def _peaks(conns, ways, files):
    """The frames in which the seconds with the most messages, and floods, begin, if in the
    connection's own file; and how long floods last."""
    own = places(conns["id"], files)["file"].cast(pa.string())
    for way, side in enumerate(WAYS):
        for what in ("peak", "flood"):
            there = places(ways[f"{what}_frame"][:, way], files)
            here = pc.equal(there["file"].cast(pa.string()), own)
            yield f"{side}_{what}_frame", pc.if_else(here, there["frame"], None)
        yield f"{side}_flood_s", numbers(ways["flood"][:, way] / 1e9, pa.float64())


def _hellos(hellos, n):
    """Columns of what TLS tells; the version is the one that the broker chose or, if its hello is
    not in the capture, the highest that the client offers."""
    found = [hellos.get(k, {}) for k in range(n)]
    said = {name: [one.get(name) for one in found] for name in ("server_name", "ja3", "ja4")}
    said["version"] = [one.get("version") or one.get("offered") for one in found]
    return {f"tls_{name}": pa.array(values, pa.string()) for name, values in said.items()}


def connections(conns, ways, ends, clients, protocols, reasons, hellos, files, timed):
    """The table of connections. ways: both streams of each; ends: (client, broker) of each;
    protocols: {index: name}; reasons: {index: reason code of DISCONNECT}; hellos: {index: what
    hello.read() says}; files: as places(); timed: as Rows has it."""
    unknown, unanswered = conns["connects"] == 0, conns["acked"] == 0
    old = np.isin(conns["level"], (2, 3))  # whose CONNACK does not say so
    untold = (conns["fields"] < HAS_KEEP_ALIVE) & (conns["imposed"] == 0)
    counts = {
        f"{side}_{name}": numbers(ways[item][:, way], pa.int64())
        for way, side in enumerate(WAYS)
        for name, item in _COUNTS.items()
    }
    said = [_protocol(k, *row, protocols)
            for k, row in enumerate(zip(conns["level"].tolist(), conns["opaque"].tolist()))]
    lost = ways["lost"] + lacking(conns, ways)
    counts |= {f"{side}_lost": numbers(lost[:, way], pa.int64()) for way, side in enumerate(WAYS)}
    silence, known = longest(conns, ways)
    whole, shook, answered = timed
    known &= whole
    halves = half(ways)
    conns = conns.copy()
    conns["end"] = closed(conns, ways)
    nobody_knows = (conns["end"] == END_OPEN) & np.array([h is not None for h in halves], bool)
    return build(CONNECTIONS, {
        "connection": numbers(conns["id"], pa.int64()),
        **places(conns["id"], files),
        **dict(_peaks(conns, ways, files)),
        "handshake_ms": numbers((conns["asked_at"] - conns["first"]) / 1e6, pa.float64(),
                                unknown | (conns["begun"] < BEGUN) | ~shook
                                | (conns["asked_at"] < conns["first"])),
        "connack_ms": numbers((conns["acked_at"] - conns["asked_at"]) / 1e6, pa.float64(),
                              unknown | unanswered | ~answered
                              | (conns["acked_at"] < conns["asked_at"])),
        "client": pa.array([client for client, _ in ends], pa.string()),
        "broker": pa.array([broker for _, broker in ends], pa.string()),
        "first": times(conns["first"]),
        "last": times(conns["last"]),
        "closed": times(conns["closed"], conns["closed"] == 0),
        "begun": pa.array(conns["begun"] > 0),
        "protocol": pa.array(said, pa.string()),
        "client_id": pa.array(clients, pa.string()),
        "clean_session": pa.array(conns["clean"] > 0, mask=conns["fields"] < HAS_FLAGS),
        "keep_alive": numbers(conns["keep_alive"], pa.int32(), unknown | untold),
        "session_present": pa.array(conns["present"] > 0, mask=unanswered | old),
        "return_code": numbers(conns["code"].astype(np.int16), pa.int16(), unanswered),
        "ended": chosen(conns["end"], ENDS, nobody_knows),
        "disconnect": pa.array(conns["disconnected"] > 0),
        "websocket": pa.array((conns["web"] > 0) & (conns["opaque"] == 0)),
        "why": pa.array([why(c, reasons.get(k), *more) for k, (c, *more) in enumerate(
            zip(conns, refused(conns, ways), never_answered(conns, ways), known, halves,
                sure(conns, ways)))], pa.string()),
        "unseen": chosen(unseen(ways), [None, *WAYS]),
        "pings": numbers(conns["pings"], pa.int32()),
        "longest_silence_s": numbers(silence / 1e9, pa.float64(), ~known),
        **_hellos(hellos, len(conns)),
        **counts,
    })  # fmt: skip
