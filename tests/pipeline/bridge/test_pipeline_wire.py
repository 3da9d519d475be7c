"""Framing: whatever the cuts, the same packets; what a broker must not send is an error."""

import numpy as np
import pytest
from pipeline_kit import messages
from umqtt_pipeline import wire

PACKETS = [
    wire.publish_packet("a/b", b"one", 1, False, 7),
    wire.publish_packet("a", b"", 0),
    b"\xd0\x00",
    wire.publish_packet("a/c", b"x" * 200, 2, True, 500, True),
    b"\x40\x02\x00\x09",
    wire.publish_packet("\u00e4/d", b"y" * 20_000, 1, False, 65_535),
]


def found(scan):
    return messages(scan.body)


def test_every_split_gives_the_same_packets():
    data = b"".join(PACKETS)
    whole = wire.scan(data)
    assert whole.consumed == len(data)
    assert found(whole) == [(b"a/b", b"one"), (b"a", b""), (b"a/c", b"x" * 200),
                              ("\u00e4/d".encode(), b"y" * 20_000)]  # fmt: skip
    assert whole.acks == b"\x40\x02\x00\x07\x50\x02\x01\xf4\x40\x02\xff\xff"
    assert whole.others == [(0xD0, b""), (0x40, b"\x00\x09")]
    assert whole.body == b"".join(p for p in PACKETS if p[0] & 0xF0 == wire.PUBLISH)
    for at in [*range(300), len(data) - 2, len(data) - 1]:
        first = wire.scan(data[:at])
        second = wire.scan(data[first.consumed :])
        assert first.body + second.body == whole.body, at
        assert first.acks + second.acks == whole.acks, at
        assert found(first) + found(second) == found(whole), at
        assert first.others + second.others == whole.others, at


def test_frames_finds_what_scan_kept():
    scan = wire.scan(b"".join(PACKETS))
    frames, raw = wire.frames(scan.body), np.frombuffer(scan.body, np.uint8)
    assert frames.packet_ids(raw).tolist() == [7, 0, 500, 65_535]
    assert frames.qos.tolist() == [1, 0, 2, 1]
    assert [scan.body[at] for at in frames.start] == [0x32, 0x30, 0x3D, 0x32]
    assert len(frames) == scan.count == 4 and len(wire.frames(b"")) == 0
    with pytest.raises(wire.ProtocolError, match="half a packet"):
        wire.frames(scan.body[:-1])


@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x80\x80\x80\x80\x01",  # remaining length of five bytes
        b"\x36\x07\x00\x01a\x00\x01bc",  # QoS 3
        b"\x30\x01\x00",  # no room for the topic's length
        b"\x30\x03\x00\x05a",  # topic longer than the packet
        b"\x32\x04\x00\x01a\x00",  # half a packet id
    ],
)
def test_what_a_broker_must_not_send(data):
    with pytest.raises(wire.ProtocolError):
        wire.scan(data)


def test_connect_keeps_the_session():
    packet = wire.connect_packet("id", 30, "user", "word")
    assert packet == b"\x10\x1a\x00\x04MQTT\x04\xc0\x00\x1e\x00\x02id\x00\x04user\x00\x04word"
    assert not wire.connect_packet("id", 30)[9] & 0x02  # clean session


@pytest.mark.parametrize("number", [0, 127, 128, 16_383, 16_384, 2_097_151, 268_435_455])
def test_remaining_length(number):
    raw = wire.varint(number)
    assert wire._long_size(raw, 0, len(raw)) == (number, len(raw))
