"""A client port that is used again, when one direction has come to have another VLAN tag, as
after a failover of its path: the second connection is one, with both directions.

Knows: audit_kit. Must not know: how directions are joined.
"""

import audit_kit as kit
import pytest


def _talk(number, tags):
    """A connection as frames; tags: the ids of VLANs of the client's frames and of the broker's,
    0: without."""
    made = kit.Talk(isn=(1000 + number * 900_000_000, 5000 + number * 1_700_000_000),
                    start=kit.START + number * 10**10).open()  # fmt: skip
    made.client(kit.connect("d")).broker(kit.connack())
    for k in range(3):
        made.client(kit.publish("a", bytes([k, number]), 1, 1 + k)).broker(kit.ack(4, 1 + k))
        made.wait(0.1)
    frames = []
    for t, packet in made.client(kit.DISCONNECT).close().frames:
        tag = tags[packet[12:16] == b"\x0a\0\0\1"]
        frames.append((t, kit.ethernet(packet, [(0x8100, tag)] if tag else [])))
    return frames


@pytest.mark.parametrize("first", [(10, 10), (0, 0), (10, 11), (10, 0), (0, 11)])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("later", [12, 0])
def test_the_second_connection_has_both_directions(first, side, later, tmp_path):
    second = tuple(later if k == side else tag for k, tag in enumerate(first))
    frames = _talk(0, first) + _talk(1, second)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [c["unseen"] for c in found["connections"]] == [None] * 2
    assert len(found["packets"]) == 18 and found["problems"] == []
    assert {f["outcome"] for f in found["flows"]} == {"acknowledged"} and len(found["flows"]) == 6
    assert found["violations"] == []


@pytest.mark.parametrize("tags", [((10, 10), (12, 12)), ((0, 0), (12, 12))])
def test_two_vlans_with_the_same_endpoints_have_a_connection_each(tags, tmp_path):
    """At the same time."""
    frames = sorted(_talk(0, tags[0]) + [(t - 10**10 + 10**5, f) for t, f in _talk(1, tags[1])])
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert len(found["connections"]) == 2 and len(found["packets"]) == 18
    assert found["problems"] == [] and found["violations"] == []
