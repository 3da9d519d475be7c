"""One direction of a connection is later in the capture than it was: what is told of its times is
true, or nothing.

Knows: audit_kit. Must not know: how the audit measures the delay.
"""

import re

import audit_kit as kit
import pytest

TRIP = 0.004  #: seconds from a question to its answer


def talk(gap):
    """Messages of both sides, each acknowledged by TCP at once and by MQTT soon after."""
    made = kit.Talk(step=10**6).open().client(kit.connect(keep_alive=10))
    made.segment(1, flags=kit.ACK).wait(TRIP).broker(kit.connack()).segment(0, flags=kit.ACK)
    for ident in range(1, 31):
        made.wait(gap).client(kit.publish("a", b"%d" % ident, 1, ident))
        made.segment(1, flags=kit.ACK).wait(TRIP).broker(kit.ack(4, ident))
        made.segment(0, flags=kit.ACK).broker(kit.publish("b", b"%d" % ident, 1, ident))
        made.segment(0, flags=kit.ACK).wait(TRIP).client(kit.ack(4, ident))
        made.segment(1, flags=kit.ACK)
    return made.close()


def shifted(made, side, seconds):
    """The frames of a side come so much later."""
    mine = b"\x0a\0\0\2" if side == "client" else b"\x0a\0\0\1"
    late = [(t + int(seconds * 1e9) * (f[26:30] == mine), f) for t, f in made.wrapped()]
    return sorted(late, key=lambda row: row[0])


def read(frames, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)


@pytest.mark.parametrize("side", ["client", "broker"])
@pytest.mark.parametrize("gap", [0.002, 0.03, 0.5])
@pytest.mark.parametrize("seconds", [0.1, 0.15, 0.2, 0.4, 1.5])
def test_the_delay_is_told_as_it_was_measured(seconds, gap, side, tmp_path):
    found = read(shifted(talk(gap), side, seconds), tmp_path)
    said = [p["what"] for p in found["problems"] if p["problem"] == "order"]
    assert said
    for what in said:
        told = int(re.search(r"come (\d+) ms or more behind", what)[1])
        assert seconds * 500 <= told <= seconds * 1000
        assert ("nothing of this connection is judged that depends on time" in what) == (
            told > 250)  # fmt: skip
    assert max(p["count"] for p in found["problems"] if p["problem"] == "order") == 1
    assert [f["latency_ms"] for f in found["flows"]] == [None] * 60
    [row] = found["connections"]
    assert [row[n] for n in ("handshake_ms", "connack_ms", "longest_silence_s")] == [None] * 3
    assert found["violations"] == []


def test_frames_that_changed_places_cost_no_latency(tmp_path):
    """Some of them, with the times that they have there: microseconds are no delay."""
    made = talk(0.03)
    frames = [(t // 10**9 * 10**9 + t % 10**9, f) for t, f in made.wrapped()]
    for k in range(8, 60, 9):  # a PUBLISH behind TCP's acknowledgement of it
        (t, a), (_, b) = frames[k], frames[k + 1]
        frames[k], frames[k + 1] = (t, b), (t + 20_000, a)
    found = read(frames, tmp_path)
    [what] = {p["what"] for p in found["problems"] if p["problem"] == "order"}
    assert "by less than a millisecond" in what
    assert None not in [f["latency_ms"] for f in found["flows"]]
    [row] = found["connections"]
    assert None not in [row[n] for n in ("handshake_ms", "connack_ms", "longest_silence_s")]


def test_without_the_clients_syn_nobody_knows_how_long_it_was_to_connect(tmp_path):
    frames = talk(0.03).wrapped()
    for lost, known in ((0, True), (1, False), (2, False)):
        [row] = read(frames[lost:], tmp_path)["connections"]
        assert (row["handshake_ms"] is not None) == known, lost
        assert row["connack_ms"] is not None and row["longest_silence_s"] is not None


@pytest.mark.parametrize("keep_alive, begins", [(10, True), (0, False)])
def test_a_silence_that_was_not_measured_is_not_told(keep_alive, begins, tmp_path):
    """The capture lacks CONNECT, or that asks for no keep alive."""
    made = kit.Talk(step=10**6).open().client(kit.connect(keep_alive=keep_alive))
    made.broker(kit.connack())
    for ident in (1, 2, 3):
        made.wait(2).client(kit.publish("a", b"x", 1, ident)).broker(kit.ack(4, ident))
    frames = made.close().wrapped()
    [row] = read(frames[5:] if begins else frames, tmp_path)["connections"]
    assert row["client_packets"] >= 3 and row["longest_silence_s"] is None


@pytest.mark.parametrize("tells", ["nothing", "stamps"])
@pytest.mark.parametrize("times", ["as sent", "as captured"])
@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("port", [1883, 23_500])
def test_a_handshake_in_any_order_is_of_one_connection(port, order, times, tells, tmp_path):
    made = kit.Talk(broker=("10.0.0.1", port), step=10**7)
    made.stamps = (lambda now: now // 10**6) if tells == "stamps" else None
    made.open().client(kit.connect("d")).broker(kit.connack())
    made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1)).client(kit.DISCONNECT).close()
    frames = made.wrapped()
    first = [frames[k] for k in order]
    if times == "as captured":
        first = [(frames[k][0], raw) for k, (_, raw) in enumerate(first)]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", first + frames[3:])], tmp_path)
    (conn,) = found["connections"]
    assert (conn["client_packets"], conn["broker_packets"]) == (3, 2)
    assert conn["ended"] == "FIN by client" and found["violations"] == []
    assert "doubled" not in {p["problem"] for p in found["problems"]}
    assert conn["begun"] and (times == "as captured" or conn["handshake_ms"] in (None, 30.0))
