"""A capture that has one direction of connections says so, and claims nothing of the other one.

Knows: audit_kit, the tables. Must not know: how a missing direction is found.
"""

import ipaddress

import audit_kit as kit
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

SIDES = {"client": kit.CLIENT, "broker": kit.BROKER}
ONE = ("of 1 connection with 10.0.0.1:1883 the capture has only what the {} sent: "
       "the {}'s is missing")  # fmt: skip


def _talk(end, number=0):
    made = kit.Talk(("10.0.0.2", 40_000 + number), start=kit.START + number * 10**6).open()
    made.client(kit.connect(f"d{number}")).broker(kit.connack())
    made.client(kit.publish("a", b"x", 1, 5)).broker(kit.ack(4, 5)).segment(0, flags=kit.ACK)
    made.wait(10)
    return made.close() if end == "FIN" else made.segment(0, flags=kit.RST | kit.ACK)


def _of(side, frames):
    """The frames that a side sent."""
    address = ipaddress.ip_address(SIDES[side][0]).packed
    return [(t, f) for t, f in frames if f[26:30] == address]


def _rows(connections):
    """The rows of problems on these connections: (problem, what, frame, count)."""
    from mqtt_audit.report import columns, sides

    found = sides.one_way(pa.Table.from_pylist(connections, columns.CONNECTIONS))
    return [(r["problem"], r["what"], r["frame"], r["count"]) for r in found.to_pylist()]


@pytest.mark.parametrize("begin", [0, 4], ids=["from SYN", "later"])
@pytest.mark.parametrize("side,end,why,ended", [
    ("client", "RST", "reset by the client", "RST by client"),
    ("client", "FIN", "FIN by the client; the capture lacks the broker's side", None),
    ("broker", "FIN", "FIN by the broker; the capture lacks the client's side", None),
    ("broker", "RST", "open at the end of the capture", "open")])  # fmt: skip
def test_one_direction_of_a_connection_is_told_as_such(side, end, why, ended, begin, tmp_path):
    other = "broker" if side == "client" else "client"
    frames = _of(side, _talk(end).wrapped()[begin:])
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    (one,) = found["connections"]
    assert (one["unseen"], one["why"], one["ended"]) == (other, why, ended)
    assert _rows([one]) == [("one direction", ONE.format(side, other), 1, 1)]
    assert not found["violations"]


def _lone(flags, way=0):
    return kit.Talk().segment(way, flags=flags)


@pytest.mark.parametrize("made", [
    _talk("FIN"), _talk("RST"), _lone(kit.SYN), _lone(kit.SYN).segment(1, flags=kit.RST | kit.ACK),
    kit.Talk().client(b"").client(b""), kit.Talk().open()],
    ids=["FIN", "RST", "never answered", "refused", "nothing new acknowledged", "opened"])
def test_no_direction_is_missing_where_nothing_of_it_is_acknowledged(made, tmp_path):
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [c["unseen"] for c in found["connections"]] == [None]
    assert _rows(found["connections"]) == []


@pytest.mark.parametrize("last", [(), (kit.DISCONNECT,)], ids=["without", "with"])
@pytest.mark.parametrize("end", ["FIN", "RST"])
def test_what_the_capture_lacks_is_not_said_to_have_been_missing(end, last, tmp_path):
    """CONNACK, or DISCONNECT, of which the frame was lost, and of which it was not."""
    def why(answer, lost):
        made = kit.Talk().open().client(kit.connect())
        made = made.broker(kit.connack()).segment(0, flags=kit.ACK) if answer else made
        for raw in last:
            made.client(raw)
        made = made.close() if end == "FIN" else made.segment(0, flags=kit.RST | kit.ACK)
        frames = [f for k, f in enumerate(made.wrapped()) if k != lost]
        found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
        return found["connections"][0]["why"]

    plain = f"{'closed' if end == 'FIN' else 'reset'} by the client"
    disconnects = "client sent DISCONNECT"
    assert why(True, 4) == (disconnects if last else plain)  # CONNACK
    assert why(True, 6 if last else None) == (plain if last else f"{plain} without DISCONNECT")
    assert why(False, None) == (disconnects if last else f"{plain} before CONNACK")


def test_one_row_counts_the_connections_of_a_broker(tmp_path):
    """With --out and with --json."""
    from mqtt_audit import run, sources

    talks = [f for k in range(6) for f in _talk("FIN", k).wrapped()]
    path = kit.pcap(tmp_path / "t.pcap", sorted(_of("broker", talks)))
    run.build(None, [path], tmp_path / "out")
    told = []
    sources.lines([str(path)], lambda table, rows: told.extend(
        rows.to_pylist() if table == "problems" else ()), (1883,))  # fmt: skip
    for rows in (pq.read_table(tmp_path / "out" / "problems").to_pylist(), told):
        assert [(r["frame"], r["count"], r["what"]) for r in rows] == [
            (1, 6, ONE.format("broker", "client").replace("1 connection", "6 connections"))]
    assert pq.read_table(tmp_path / "out" / "findings").num_rows == 0


UNANSWERED = "TCP connection never answered by the broker"
UNKNOWN = "SYN by the client; the capture lacks the broker's side"


@pytest.mark.parametrize("lacks,sees,why", [
    (["client"], [], UNKNOWN), (["client"], ["broker"], UNANSWERED), ([], [], UNANSWERED),
    ([], ["client"], UNANSWERED)],
    ids=["one direction", "one direction of one of two", "nothing else", "both directions"]
)  # fmt: skip
def test_nobody_knows_what_answered_a_syn_where_the_broker_s_side_is_missing(
        lacks, sees, why, tmp_path):  # fmt: skip
    """With --out and with --json; a second broker, of which both directions are there, is told as
    before. lacks: connections of one direction; sees: of both."""
    from mqtt_audit import run, sources

    frames = []
    for k in range(4):
        broker = kit.BROKER if k else ("10.0.0.9", 1883)
        made = kit.Talk(("10.0.0.2", 50_000 + k), broker, start=kit.START + k * 10**8)
        frames += made.segment(0, flags=kit.SYN).wrapped()
    for k, side in enumerate(lacks):
        frames += _of(side, _talk("FIN", k).wrapped())
    for k, _ in enumerate(sees):
        frames += _talk("FIN", 5 + k).wrapped()
    other = kit.Talk(("10.0.0.3", 40_009), ("10.0.0.9", 1883)).open()
    frames += other.client(kit.connect("other")).broker(kit.connack()).wrapped()
    path, told = kit.pcap(tmp_path / "t.pcap", sorted(frames)), []
    run.build(None, [path], tmp_path / "out")
    sources.lines([str(path)], lambda table, rows: told.extend(
        rows.to_pylist() if table == "connections" else ()), (1883,))  # fmt: skip
    for rows in (pq.read_table(tmp_path / "out" / "connections").to_pylist(), told):
        lone = sorted((r["client"][-1], r["why"]) for r in rows if ":5000" in r["client"])
        assert lone == [("0", UNANSWERED), *((str(k), why) for k in (1, 2, 3))]
        assert len(rows) == 5 + len(lacks) + len(sees)
