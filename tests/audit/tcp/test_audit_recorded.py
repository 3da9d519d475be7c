"""The payload of a PUBLISH whose beginning the capture lacks is a recording of packets: these are
found by their look. What they say is held against nobody, also when real packets follow.

Knows: audit_kit. Must not know: when what was found is believed.
"""

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
