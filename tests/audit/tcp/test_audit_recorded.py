"""The payload of a PUBLISH whose beginning the capture lacks is a recording of packets: these are
found by their look. What they say is held against nobody, also when real packets follow.

Knows: audit_kit. Must not know: when what was found is believed.
"""

import random

import audit_kit as kit
import mqtt5 as five
import pytest
from web_frames import frame

FILL = b"".join(kit.publish(f"in/{k}", b"abc") for k in range(12))
MSS = 1436

#: What the recording ends with: {name: (side that sends it, packets)}.
ENDS = {
    "messages of the client": (0, [kit.publish("q", b"in", 1, k) for k in range(1, 40)]),
    "messages of the broker": (1, [kit.publish("q", b"in", 2, k) for k in range(1, 40)]),
    "PUBACK": (1, [kit.ack(4, k) for k in range(1, 40)]),
    "PUBREC": (1, [kit.ack(5, k) for k in range(1, 40)]),
    "PUBCOMP": (1, [kit.ack(7, k) for k in range(1, 40)]),
    "PUBREL of the client": (0, [kit.ack(6, k) for k in range(1, 40)]),
    "PUBREL of the broker": (1, [kit.ack(6, k) for k in range(1, 40)]),
    "SUBACK": (1, [kit.suback(k, 1) for k in range(100, 120)]),
    "DISCONNECT": (0, [kit.packet(0xE0)]),
    "CONNECT": (0, [kit.connect("another", keep_alive=1)]),
}


def _pieces(made, way, raw):
    for at in range(0, len(raw), MSS):
        made.segment(way, raw[at : at + MSS])


@pytest.mark.parametrize("before", [1, 30], ids=["nothing is asked", "messages are in flight"])
@pytest.mark.parametrize("begins", [True, False], ids=["capture begins there", "frame lost"])
@pytest.mark.parametrize("side,packets", ENDS.values(), ids=ENDS)
def test_what_a_recording_says_is_held_against_nobody(side, packets, begins, before, tmp_path):
    made = kit.Talk().open().client(kit.connect(keep_alive=600)).broker(kit.connack())
    for ident in range(1, before):  # these are answered behind the recording
        made.client(kit.publish("flight", b"m", 1, ident))
    asked = range(100, 120)
    for ident in asked:
        made.client(kit.subscribe(ident, ("x/#", 1)))
    at = len(made.frames)
    _pieces(made, side, kit.publish("recording", b"x" * 1500 + FILL + b"".join(packets)))
    for k in range(12):
        made.segment(side, kit.publish("real/0", b"%d" % k))
    for ident in range(1, before):
        made.broker(kit.ack(4, ident))
    for ident in asked:
        made.broker(kit.suback(ident, 1))
    for ident in range(1, 40):
        made.client(kit.publish("real/1", b"one", 1, ident)).broker(kit.ack(4, ident))
        made.broker(kit.publish("real/2", b"two", 1, ident)).client(kit.ack(4, ident))
    made.client(kit.packet(0xE0)).close()
    frames = made.wrapped()
    found = kit.read([kit.pcap(tmp_path / "t.pcap",
                               frames[at + 1 :] if begins else frames[:at] + frames[at + 1 :])],
                     tmp_path)  # fmt: skip
    assert found["violations"] == []
    topics = [p["topic"] for p in found["packets"]]
    assert topics.count("real/1") == topics.count("real/2") == 39
    assert "in/11" in topics, "else nothing was found that is none"


def test_messages_of_a_recording_do_not_count_for_the_receive_maximum(tmp_path):
    fill = b"".join(five.publish(f"in/{k}", payload=b"abc") for k in range(12))
    packets = b"".join(five.publish("q", qos=1, ident=k) for k in range(1, 40))
    limit = five.prop(0x21, five.number(2, 2))
    made = kit.Talk().open().client(five.connect(keep_alive=600)).broker(five.connack(limit))
    at = len(made.frames)
    _pieces(made, 0, five.publish("recording", payload=b"x" * 1500 + fill + packets))
    for ident in range(100, 130):
        made.client(five.publish("real", qos=1, ident=ident)).broker(five.ack(4, ident))
    del made.frames[at]
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert found["violations"] == []
    topics = [p["topic"] for p in found["packets"]]
    assert topics.count("real") == 30 and topics.count("q") > 2


def test_frames_of_a_websocket_are_no_packets_of_the_broker(tmp_path):
    """Unmasked they begin as SUBSCRIBE does, each in a segment of its own. A recording before them
    was found."""
    made = kit.Talk(("10.0.0.2", 40_000), ("10.0.0.1", 1883))
    _pieces(made, 1, frame(kit.publish("recording", b"x" * 1500 + 2 * FILL)))
    del made.frames[0]
    for ident in range(1, 60):
        made.broker(frame(kit.ack(4, ident)))
        made.broker(frame(kit.publish("a/b", b"abc" * ident, 1, ident)))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert found["violations"] == []
    assert "SUBSCRIBE" not in {p["type"] for p in found["packets"]}


@pytest.mark.parametrize("side", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("unit", [b"\xe0\0", b"\0\xe0", b"\xc0\0", b"\xd0\0", b"\x40\2\0\1"])
def test_a_payload_that_repeats_itself_in_segments_of_any_size_accuses_nobody(
        unit, side, tmp_path):  # fmt: skip
    choice, raw = random.Random(unit), kit.publish("samples", unit * 15_000)
    made, at = kit.Talk(("10.0.0.2", 40_000), ("10.0.0.1", 1883)), 0
    while at < len(raw):
        piece = choice.randrange(1, 200)
        made.segment(side, raw[at : at + piece])
        at += piece
    del made.frames[0]
    for ident in range(1, 31):
        made.client(kit.publish("real/1", b"one", 1, ident)).broker(kit.ack(4, ident))
        made.broker(kit.publish("real/2", b"two", 1, ident)).client(kit.ack(4, ident))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert found["violations"] == []
    (row,) = found["connections"]
    assert row["broker"] == "10.0.0.1:1883", "the port that is named"
    assert len([p for p in found["packets"] if p["topic"] in ("real/1", "real/2")]) > 50


def _grey(_choice):
    return b"\x80" * 3000


def _samples(choice):
    """Of 16 bits, between 128 and 254."""
    return b"".join(b"\0" + bytes([choice.randrange(128, 256, 2)]) for _ in range(3000))


PAYLOADS = {"grey": _grey, "text": lambda _: b"\x81" * 3000, "binary": lambda _: b"\x82" * 3000,
            "equal samples": lambda _: b"\0\xc8" * 3000, "samples": _samples}  # fmt: skip


@pytest.mark.parametrize("piece", [97, 100, 1436, 1448])
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_of_headers_of_masked_frames_is_no_websocket(payload, piece, tmp_path):
    """A grey picture for instance: opcode 0, length 0, four bytes of mask."""
    raw = kit.publish("picture", payload(random.Random(piece)) * 12)
    made = kit.Talk(("10.0.0.2", 40_000), ("10.0.0.1", 1883))
    for at in range(0, len(raw), piece):
        made.client(raw[at : at + piece])
    del made.frames[0]
    for ident in range(1, 31):
        made.client(kit.publish("real/1", b"one", 1, ident)).broker(kit.ack(4, ident))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert found["violations"] == []
    assert "WebSocket" not in {p["problem"] for p in found["problems"]}
    assert len([p for p in found["packets"] if p["topic"] == "real/1"]) > 25


def test_a_connect_in_a_payload_names_no_connection(tmp_path):
    raw = kit.publish("recording", b"x" * 1500 + FILL + kit.connect("another") + FILL)
    made = kit.Talk(("10.0.0.2", 40_000), ("10.0.0.1", 1883))
    _pieces(made, 0, raw)
    del made.frames[0]
    for k in range(12):
        made.client(kit.publish("real", b"%d" % k))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert "CONNECT" in {p["type"] for p in found["packets"]}, "else nothing was found"
    (row,) = found["connections"]
    assert row["client_id"] is None and row["protocol"] is None


def test_connects_in_a_payload_of_the_broker_make_no_client_of_it(tmp_path):
    made = kit.Talk(("10.0.0.2", 40_000), ("10.0.0.1", 1883))
    raw = kit.publish("recording", (kit.connect("another") + kit.connack()) * 300)
    _pieces(made, 1, raw)
    del made.frames[0]
    for ident in range(1, 31):
        made.client(kit.publish("real", b"one", 1, ident)).broker(kit.ack(4, ident))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert {c["broker"] for c in found["connections"]} == {"10.0.0.1:1883"}
    assert len([p for p in found["packets"] if p["topic"] == "real"]) == 30
    assert found["violations"] == []


@pytest.mark.parametrize("data", [b"", kit.connack()], ids=["", "CONNACK in its SYN"])
def test_a_connect_in_a_syn_that_the_capture_lacks_is_not_missed(data, tmp_path):
    """TCP Fast Open (RFC 7413)."""
    made = kit.Talk()
    made.segment(0, kit.connect(), flags=kit.SYN)
    made.segment(1, data, flags=kit.SYN | kit.ACK)
    made.segment(0, flags=kit.ACK)
    if not data:
        made.broker(kit.connack())
    for ident in range(1, 5):
        made.client(kit.publish("real", b"one", 1, ident)).broker(kit.ack(4, ident))
    made.close()
    for gone in (0, 1):
        found = kit.read([kit.pcap(tmp_path / f"{gone}.pcap", made.wrapped()[gone:])],
                         tmp_path / str(gone))  # fmt: skip
        assert found["violations"] == []
        assert len([p for p in found["packets"] if p["topic"] == "real"]) == 4
