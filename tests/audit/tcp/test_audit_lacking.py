"""A capture that has each frame twice and lacks one: no packet counts twice, and of one that is
missing it is told, whatever ports and numbers the next connection has.

Knows: audit_kit, lines that have each frame twice. Must not know: how copies are recognised.
"""

import random
from collections import Counter, defaultdict

import audit_kit as kit
import pytest
from mqtt_audit import sources
from test_audit_doubled import Line, told_of, twice

PLAIN, TEN, TWENTY = [], [(0x8100, 10)], [(0x8100, 20)]
#: Seconds from a frame to its copy; VLANs of both, for the client and the broker.
WAYS = {"at once": (5e-6, (PLAIN, PLAIN), (PLAIN, PLAIN)),
        "0.45 s later": (0.45, (PLAIN, PLAIN), (PLAIN, PLAIN)),
        "1.5 s later": (1.5, (PLAIN, PLAIN), (PLAIN, PLAIN)),
        "two VLANs": (5e-6, (TEN, TWENTY), (TEN, TWENTY)),
        "another VLAN 0.02 s later": (0.02, (TEN, TWENTY), (TEN, TWENTY)),
        "another VLAN 0.45 s later": (0.45, (TEN, TWENTY), (TEN, TWENTY)),
        "a VLAN 2 s later": (2, (PLAIN, TWENTY), (PLAIN, TWENTY)),
        "VLANs of each direction 1.5 s later": (
            1.5, (TEN, TWENTY), ([(0x8100, 11)], [(0x8100, 21)])),
        "a VLAN of each direction": (5e-6, (TEN, TWENTY), ([(0x8100, 11)], [(0x8100, 21)])),
        "another VLAN of each direction": (5e-6, (TEN, PLAIN), (PLAIN, TWENTY))}  # fmt: skip


def lives(tells, same, host, times=2):
    """Connections of a host with the same ports, one after the other. same: the client's first
    number is always the same."""
    choice = random.Random(f"{host}")
    made = Line(tells, choice, client=(f"10.1.0.{host}", 33_000),
                start=kit.START + host * 3_000_000)  # fmt: skip
    for life in range(times):
        made.seq = [6509 if same else choice.randrange(1 << 32), choice.randrange(1 << 32)]
        made.open().said(0, kit.connect(f"{host}")).said(1, kit.connack())
        made.said(0, kit.publish("a", b"%d" % life, 1, 2)).said(1, kit.ack(4, 2))
        made.said(0, kit.DISCONNECT).close().wait(0.2)
    return made.frames


def doubled(frames, way, lacks=None):
    """Each frame twice, but for those at the places `lacks`."""
    apart, *tags = WAYS[way]
    made = []
    for time, frame in frames:
        side = tags[frame[22:24] != b"\x07\x5b"]  # by the port that it is sent to
        made += [(time + int(k * apart * 1e9), kit.ethernet(frame, side[k])) for k in range(2)]
    made = sorted(made, key=lambda f: f[0])
    return [frame for at, frame in enumerate(made) if at not in (lacks or ())]


def counted(found):
    """Of each host (packets, kinds of problems, connections)."""
    hosts = {c["connection"]: c["client"].partition(":")[0] for c in found["connections"]}
    packets, said = defaultdict(Counter), defaultdict(set)
    for p in found["packets"]:
        packets[hosts[p["connection"]]][p["type"], p["payload_length"], p["packet_id"]] += 1
    for p in found["problems"]:
        said[hosts.get(p["connection"])].add(p["problem"])
    return packets, said, Counter(hosts.values())


@pytest.mark.parametrize("tells", ["identification", "stamps", "nothing"])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_no_packet_counts_twice_where_the_capture_lacks_a_frame(way, same, tells, tmp_path):
    """Each host lacks another frame of the first half, the first host none."""
    frames = [f for host in range(1, len(lives(tells, same, 1)) + 2)
              for f in doubled(lives(tells, same, host), way, [host - 2])]  # fmt: skip
    found = kit.read([kit.pcap(tmp_path / "t.pcap", sorted(frames))], tmp_path)
    packets, said, connections = counted(found)
    whole = packets["10.1.0.1"]
    assert sum(whole.values()) == 10 and told_of(found) == []
    assert {host: n for host, n in connections.items() if n != 2} == {}
    assert {host: n - whole for host, n in packets.items() if n - whole} == {}
    lost = {host for host, n in packets.items() if whole - n}
    assert {host for host in lost if "loss" not in said[host]} == set()


@pytest.mark.parametrize("tells", ["identification", "stamps", "nothing"])
@pytest.mark.parametrize("lacks", [(0,), (0, 1), (0, 1, 2)])
def test_a_vlan_that_shows_connections_again_is_known_without_the_first_syn(
    lacks, tells, tmp_path
):
    """It comes 2 s later, and the first VLAN lacks the SYN, and what comes behind that. Lines of
    JSON tell it as well, which are made as the capture is read."""
    frames = lives(tells, False, 1, 3)
    made = [(time, kit.ethernet(frame, TEN)) for time, frame in frames]
    made = [frame for at, frame in enumerate(made) if at not in lacks]
    made += [(time + 2 * 10**9, kit.ethernet(frame, TWENTY)) for time, frame in frames]
    path = kit.pcap(tmp_path / "t.pcap", sorted(made))
    found, told = kit.read([path], tmp_path), Counter()
    sources.lines([path], lambda table, rows: told.update({table: rows.num_rows}), (1883,))
    assert (told["packets"], told["connections"]) == (15, 3)
    packets, _, connections = counted(found)
    assert sum(packets["10.1.0.1"].values()) == 15 and told_of(found) == []
    assert connections == {"10.1.0.1": 3}
    assert [p["what"] for p in found["problems"] if "VLAN" in p["what"]] == []


def test_of_bytes_that_only_a_late_copy_has_the_capture_is_not_said_to_lack_them(tmp_path):
    """A hole that is acknowledged is a loss after a second; copies come two seconds later."""
    frames = twice(lives("identification", False, 1, 1), 2)
    del frames[3]  # CONNECT
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    (lost,) = (p for p in found["problems"] if p["problem"] == "loss")
    assert lost["what"].endswith("not in the capture, or come too late to be read")
    assert found["connections"][0]["client_lost"] == lost["count"] == len(kit.connect("1"))
