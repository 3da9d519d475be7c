"""Of messages whose answers a capture cannot have, no table says that there were none.

Knows: audit_kit, the tables. Must not know: how a missing direction is found.
"""

import audit_kit as kit
import pyarrow.parquet as pq
import pytest
from web_frames import AGREED, ASKED, frame

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


def _asked(side, *steps, web=False):
    """Frames of a connection. steps: ("message", id, answers), after which `side` has sent it and
    the other one so many answers; ("gap", ...): the same, of which the capture lacks the last
    answer; ("cut", ...): of that it has only the headers."""
    way = 0 if side == "client" else 1
    made = kit.Talk().open()
    mask = None if not web else b"abcd"

    def say(sender, raw):
        made.segment(sender, frame(raw, mask=None if sender else mask) if web else raw)

    if web:
        made.client(ASKED).broker(AGREED)
    say(0, kit.connect("d"))
    say(1, kit.connack())
    for kind, ident, qos, answers in steps:
        talk = [(way, kit.publish("a", bytes([ident]), qos, ident))]
        if qos == 1:
            talk += [(1 - way, kit.ack(4, ident))]
        if qos == 2:
            talk += [(1 - way, kit.ack(5, ident)), (way, kit.ack(6, ident)),
                     (1 - way, kit.ack(7, ident))]  # fmt: skip
        for sender, raw in talk[: 2 * answers if answers else 1]:
            say(sender, raw)
        if kind == "gap":
            made.frames.pop()
        elif kind == "cut":
            time, raw = made.frames.pop()
            made.frames.append((time, raw, 40))
    return made


def _outcomes(frames, tmp_path):
    found = _built(frames, tmp_path)
    (row,) = found["devices"]
    return found, {f["packet_id"]: f["outcome"] for f in found["flows"]}, row


def _wrapped(made):
    return [(ns, kit.ethernet(raw), *(14 + n for n in kept)) for ns, raw, *kept in made.frames]


@pytest.mark.parametrize("web", [False, True])
@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("kind, qos, answers", [
    ("gap", 1, 1), ("gap", 2, 1), ("gap", 2, 2), ("cut", 1, 1)])  # fmt: skip
def test_an_answer_that_may_be_in_a_gap_is_not_said_to_be_missing(
        kind, qos, answers, side, web, tmp_path):  # fmt: skip
    """What was sent before may be answered there as well; what was sent behind it cannot be."""
    steps = [("message", 1, 1, 1), ("message", 2, 1, 0), (kind, 3, qos, answers),
             ("message", 4, 1, 0), ("message", 5, 1, 1), ("message", 6, 1, 0),
             ("message", 7, 1, 1)]  # fmt: skip
    made = _asked(side, *steps, web=web).client(
        frame(kit.DISCONNECT, mask=b"abcd") if web else kit.DISCONNECT)  # fmt: skip
    _, found, row = _outcomes(_wrapped(made.close()), tmp_path)
    if web:  # nobody knows where the next frame begins
        assert found[1] == "acknowledged" and {found[2], found[3]} == {"unseen"}
        assert "open" not in found.values() and row[f"{side}_unacknowledged"] == 0
        return
    assert found == {1: "acknowledged", 2: "unseen", 3: "unseen", 4: "open", 5: "acknowledged",
                     6: "open", 7: "acknowledged"}  # fmt: skip
    assert _counts(row, side) == [3, 2, 0, 2]


@pytest.mark.parametrize("side", ["client", "broker"])
def test_what_is_not_answered_behind_a_gap_is_open(side, tmp_path):
    """PUBREC is missing, and PUBREL was sent: PUBCOMP cannot be in that gap."""
    made = _asked(side, ("gap", 1, 2, 1))
    way = 0 if side == "client" else 1
    made.segment(way, kit.ack(6, 1)).segment(way, kit.publish("a", b"x", 1, 2))
    made.segment(1 - way, kit.ack(4, 2)).client(kit.DISCONNECT)
    _, found, row = _outcomes(_wrapped(made.close()), tmp_path)
    assert found == {1: "open", 2: "acknowledged"} and _counts(row, side) == [1, 1, 0, 0]


def test_an_answer_may_be_missing_at_the_end(tmp_path):
    """Acknowledgements of TCP show that there were bytes, and that they are of no later answer."""
    made = _asked("client", ("message", 1, 1, 1), ("gap", 2, 1, 1), ("message", 3, 1, 0))
    _, found, row = _outcomes(_wrapped(made), tmp_path)
    assert found == {1: "acknowledged", 2: "unseen", 3: "open"}
    assert _counts(row, "client") == [1, 1, 0, 1]


def test_a_missing_fin_is_no_answer(tmp_path):
    made = _asked("client", ("message", 1, 1, 1), ("message", 2, 1, 0)).client(kit.DISCONNECT)
    made.close()
    del made.frames[-2]
    _, found, row = _outcomes(_wrapped(made), tmp_path)
    assert found == {1: "acknowledged", 2: "open"} and _counts(row, "client") == [1, 1, 0, 0]
