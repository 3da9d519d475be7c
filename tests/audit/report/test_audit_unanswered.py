"""Of messages whose answers a capture cannot have, no table says that there were none.

Knows: audit_kit, the tables. Must not know: how a missing direction is found.
"""

import audit_kit as kit
import pyarrow.parquet as pq
import pytest

MESSAGES = 4


def _talk(number=0):
    """Messages of both sides, each acknowledged; one of them of QoS 2."""
    made = kit.Talk(("10.0.0.2", 40_000 + number), start=kit.START + number * 10**9).open()
    made.client(kit.connect(f"d{number}")).broker(kit.connack())
    for k in range(MESSAGES):
        for way in (0, 1):
            made.segment(way, kit.publish("a", bytes([k, way]), 1, 1 + k % 3))
            made.segment(1 - way, kit.ack(4, 1 + k % 3))
    made.client(kit.publish("b", b"x", 2, 9)).broker(kit.ack(5, 9)).client(kit.ack(6, 9))
    return made.broker(kit.ack(7, 9)).client(kit.DISCONNECT).close().wrapped()


def _of(side, frames):
    return [(t, f) for t, f in frames if (f[26:30] == b"\x0a\0\0\1") == (side == "broker")]


def _built(frames, tmp_path):
    """{table: rows}."""
    from mqtt_audit import run

    run.build(None, [kit.pcap(tmp_path / "t.pcap", frames)], tmp_path / "out")
    return {name: pq.read_table(tmp_path / "out" / name).to_pylist()
            for name in ("flows", "latencies", "brokers", "devices")}  # fmt: skip


def _counts(row, side):
    return [row[f"{side}_{n}"] for n in ("acknowledged", "unacknowledged", "reused", "unseen")]


@pytest.mark.parametrize("side,counts", [
    ("client", {"client": [None, None, None, 5], "broker": [None, None, None, 0]}),
    ("broker", {"client": [None, None, None, 0], "broker": [None, None, None, 4]})])  # fmt: skip
def test_where_the_answering_side_is_missing_nothing_is_counted(side, counts, tmp_path):
    found = _built(_of(side, _talk()), tmp_path)
    mine = [f for f in found["flows"] if f["sender"] == side]
    assert [f["outcome"] for f in mine] == ["unseen"] * counts[side][3]
    assert {f["latency_ms"] for f in mine} == {None}
    for name in ("brokers", "devices"):
        (row,) = found[name]
        assert {way: _counts(row, way) for way in counts} == counts
    page = (tmp_path / "out" / "report.html").read_text()
    assert ("answers not in the capture" in page) == (side == "client")


def test_a_broker_with_connections_of_both_kinds(tmp_path):
    frames = sorted([*_of("client", _talk()), *_talk(1)])
    found = _built(frames, tmp_path)
    (row,) = found["brokers"]
    assert _counts(row, "client") == [5, 0, 0, 5] and _counts(row, "broker") == [4, 0, 0, 0]
    assert {f["outcome"] for f in found["flows"] if f["client_id"] == "d1"} == {"acknowledged"}


def test_with_both_directions_there_is_no_such_column_in_the_report(tmp_path):
    (row,) = _built(_talk(), tmp_path)["brokers"]
    assert _counts(row, "client") == [5, 0, 0, 0]
    assert "answers not in the capture" not in (tmp_path / "out" / "report.html").read_text()


def test_a_message_goes_on_where_both_directions_are_there(tmp_path):
    """It is one message, sent again with DUP, and acknowledged in the end."""
    first = kit.Talk(("10.0.0.2", 40_000)).open().client(kit.connect("d", flags=0))
    first.broker(kit.connack()).client(kit.publish("a", b"x", 1, 5)).broker(kit.ack(4, 5))
    again = kit.Talk(("10.0.0.2", 40_001), start=kit.START + 10**9).open()
    again.client(kit.connect("d", flags=0)).broker(kit.connack(present=1))
    again.client(kit.publish("a", b"x", 1, 5, dup=True)).broker(kit.ack(4, 5))
    frames = _of("client", first.segment(0, flags=kit.ACK).close().wrapped())
    (flow,) = _built([*frames, *again.close().wrapped()], tmp_path)["flows"]
    assert (flow["outcome"], flow["connections"], flow["sent"]) == ("acknowledged", 2, 2)
