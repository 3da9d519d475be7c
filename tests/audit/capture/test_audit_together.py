"""Captures that hold the same connections at the same time are read as one.

No packet is lost or counted twice, whatever each of them lacks, and the clocks may be apart.
Knows: audit_kit, real traffic through its relay. Must not know: how captures are put together.
"""

import gzip
import io
import json
import random

import audit_kit as kit
import damages
import pyarrow.parquet as pq
import pytest
from networks import Network
from real_traffic import captured
from web_frames import AGREED, ASKED, frame

COUNTS = ("client_segments", "client_resent", "broker_segments", "broker_resent", "client_bytes",
          "broker_bytes", "client_dup", "broker_dup", "client_gaps", "broker_gaps")  # fmt: skip


def made(step=10**8, messages=60, again=False):
    """Frames of a client that publishes; again: with some segments that TCP sends again."""
    talk = kit.Talk(step=step).open().client(kit.connect()).broker(kit.connack())
    for k in range(1, messages + 1):
        at = talk.seq[0]
        talk.client(kit.publish("a", b"%d" % k, 1, k))
        if again and k % 10 == 0:
            talk.client(kit.publish("a", b"%d" % k, 1, k), seq=at)
        talk.broker(kit.ack(4, k)).segment(0, flags=kit.ACK)
    return talk.client(kit.DISCONNECT).close().wrapped()


def said(found):
    """What must not depend on how many captures there are."""
    packets = [{k: v for k, v in p.items() if k not in ("file", "frame", "connection", "time")}
               for p in sorted(found["packets"], key=lambda p: p["time"])]  # fmt: skip
    connections = [{k: c[k] for k in ("client", "protocol", "client_id", "ended", "why", *COUNTS)}
                   for c in found["connections"]]  # fmt: skip
    return packets, connections, found["violations"], sorted(
        (f["packet_id"], f["outcome"], f["sent"]) for f in found["flows"])  # fmt: skip


def shares(frames, kind, choice):
    """Frames dealt out to two captures; each frame is in one of them at least."""
    if kind == "turns":
        return frames[::2], frames[1::2]
    if kind == "sides":
        return [[f for f in frames if (f[1][26:30] == b"\x0a\0\0\2") == way] for way in (1, 0)]
    if kind == "copy":
        return frames, frames
    both = [choice.choice(("a", "b", "ab", "ab")) for _ in frames]
    return [[f for f, b in zip(frames, both) if one in b] for one in "ab"]


@pytest.mark.parametrize("kind", ["turns", "sides", "copy", "losses"])
@pytest.mark.parametrize("buckets", [1, 3])
def test_two_captures_say_what_one_says(kind, buckets, tmp_path):
    again = kind in ("sides", "copy")  # else one may have the first, the other one the second
    frames = made(again=again)
    whole = said(kit.read([kit.pcap(tmp_path / "whole.pcap", frames)], tmp_path))
    assert whole[1][0]["client_resent"] == 6 * again and len(whole[0]) == 123
    for seed in range(4 if kind == "losses" else 1):
        parts = shares(frames, kind, random.Random(seed))
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        found = kit.read(paths, tmp_path, buckets=buckets)
        assert said(found) == whole
        for p in found["packets"]:
            frame = parts[paths.index(tmp_path / p["file"].rpartition("/")[2])][p["frame"] - 1]
            assert frame[0] // 1000 == round(p["time"].timestamp() * 10**6)


def test_each_connection_of_several_captures_has_its_own_number(tmp_path):
    """Also if their segments are in different buckets: the tables are joined by it."""
    talks = [kit.Talk(("10.0.0.2", 4000 + k), step=10**7).open().client(kit.connect(f"d{k}"))
             .broker(kit.connack()).client(kit.DISCONNECT).close() for k in range(6)]  # fmt: skip
    frames = sorted(f for talk in talks for f in talk.wrapped())
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part)
             for k, part in enumerate(shares(frames, "sides", None))]  # fmt: skip
    found = kit.read(paths, tmp_path, buckets=3)
    own = {c["connection"]: c["client_id"] for c in found["connections"]}
    assert len(own) == 6
    said = {(p["connection"], p["client_id"]) for p in found["packets"] if p["client_id"]}
    assert said == set(own.items())


def test_what_one_capture_cut_off_the_other_one_has(tmp_path):
    frames = made()
    whole = said(kit.read([kit.pcap(tmp_path / "whole.pcap", frames)], tmp_path))
    paths = [kit.pcap(tmp_path / "1.pcap", frames, snap=60), kit.pcap(tmp_path / "2.pcap", frames)]
    assert said(kit.read(paths, tmp_path))[0] == whole[0]


@pytest.mark.parametrize("ahead", [7, -7, 0.3, 3600, -90])
def test_one_file_for_each_direction_with_clocks_that_are_apart(ahead, tmp_path):
    """They have no frame in common, and may not even overlap: TCP's acknowledgements show how far
    the clocks are apart."""
    frames = made(step=10**7, again=True)
    whole = said(kit.read([kit.pcap(tmp_path / "whole.pcap", frames)], tmp_path))
    one, two = shares(frames, "sides", None)
    two = [(t + int(ahead * 10**9), f) for t, f in two]
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate((one, two))]
    assert said(kit.read(paths, tmp_path)) == whole


@pytest.mark.parametrize("files", [2, 3, 4])
@pytest.mark.parametrize("run", [1, 5, 20])
@pytest.mark.parametrize("stamps", [True, False])
def test_what_is_sent_again_in_another_file_shows_no_other_clock(files, run, stamps, tmp_path):
    """A capture dealt out in turns: all that its files have in common was sent twice."""
    talks = []
    for number in range(3):
        talk = kit.Talk(("10.0.0.5", 4000 + number), step=10**7).open()
        talk.stamps = (lambda now: now // 10**6) if stamps else None
        talk.client(kit.connect(f"d{number}")).broker(kit.connack())
        for k in range(1, 60):
            for way, raw in ((0, kit.publish("a", b"%d" % k, 1, k)), (1, kit.ack(4, k))):
                at = talk.seq[way]
                talk.segment(way, raw)
                if (k + way) % 4 == 0:
                    talk.wait(0.3).segment(way, raw, seq=at)
                talk.segment(1 - way, flags=kit.ACK)
        talks.append(talk.client(kit.DISCONNECT).close())
    frames = sorted((f for t in talks for f in t.wrapped()), key=lambda f: f[0])
    parts = [[f for k, f in enumerate(frames) if k // run % files == n] for n in range(files)]
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
    found = kit.read(paths, tmp_path)
    assert len(found["packets"]) == 3 * (3 + 2 * 59) and found["violations"] == []
    for p in found["packets"]:
        frame = parts[paths.index(tmp_path / p["file"].rpartition("/")[2])][p["frame"] - 1]
        assert frame[0] // 1000 == round(p["time"].timestamp() * 10**6)

@pytest.mark.parametrize("ahead", [2.5, -1.5, 3600, -86_400])
def test_clocks_that_are_apart(ahead, tmp_path):
    """The later one's times are put right; nobody is accused of a silence between the two. By an
    hour or a day, as time zones are, they do not overlap."""
    from mqtt_audit import run

    frames = made()
    one, two = shares(frames, "losses", random.Random(5))
    other = [(t + int(ahead * 10**9), f) for t, f in two]
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate((one, other))]
    run.build(None, paths, tmp_path / "out")
    problems = pq.read_table(tmp_path / "out" / "problems").to_pylist()
    clock = [(p["file"], p["what"]) for p in problems if p["problem"] == "clock"]
    assert [file for file, _ in clock] == [str(paths[ahead > 0])]
    assert f"{abs(ahead):.3f} s ahead of that of {paths[ahead < 0]}" in clock[0][1]
    assert {p["problem"] for p in problems} == {"together", "clock"}
    assert pq.read_table(tmp_path / "out" / "violations").num_rows == 0
    times = sorted(p["time"] for p in pq.read_table(tmp_path / "out" / "packets").to_pylist())
    assert (times[-1] - times[0]).total_seconds() < 20


def test_the_same_endpoints_hours_later_are_other_connections(tmp_path):
    """A client that always takes the same port and the same first number; the broker does not."""
    paths = []
    for k in range(2):
        talk = kit.Talk(isn=(6509, 5000 + k), start=kit.START + k * 3600 * 10**9).open()
        talk.client(kit.connect("d")).broker(kit.connack()).client(kit.DISCONNECT).close()
        paths.append(kit.pcap(tmp_path / f"{k}.pcap", talk.wrapped()))
    found = kit.read(paths, tmp_path)
    assert len(found["connections"]) == 2 and found["problems"] == []
    assert len({p["time"].hour for p in found["packets"]}) == 2


def test_three_captures_in_a_chain_and_one_beside(tmp_path):
    """The first and the third do not overlap; the fourth has a connection of its own."""
    frames = made()
    third = len(frames) // 3
    beside = kit.Talk(("10.0.0.9", 9)).open().client(kit.connect("x")).broker(kit.connack())
    parts = [frames[:third], frames[third // 2 : 2 * third], frames[2 * third - 20 :],
             beside.close().wrapped()]  # fmt: skip
    whole = kit.read([kit.pcap(tmp_path / "whole.pcap", frames)], tmp_path)
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
    found = kit.read(paths, tmp_path, buckets=2)
    assert len(found["packets"]) == len(whole["packets"]) + 2 and found["violations"] == []
    assert len(found["connections"]) == 2 and found["problems"] == []
    assert {p["file"] for p in found["packets"]} == {str(p) for p in paths}


def test_a_port_that_is_used_again(tmp_path):
    """The second connection's numbers begin where they like; both are dealt out to two files."""
    frames = []
    for k in range(3):
        talk = kit.Talk(isn=(9000 - 3000 * k, k * 10**9), start=kit.START + k * 10**9).open()
        talk.client(kit.connect("d")).broker(kit.connack()).client(kit.publish("t", b"%d" % k))
        frames += talk.client(kit.DISCONNECT).close().wrapped()
    for kind in ("turns", "copy", "sides"):
        parts = shares(frames, kind, None)
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        found = kit.read(paths, tmp_path)
        assert len(found["packets"]) == 12 and len(found["connections"]) == 3, kind
        assert found["violations"] == [] and not any(
            c["client_resent"] + c["broker_resent"] for c in found["connections"])  # fmt: skip


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_real_traffic_in_two_captures(broker, tmp_path):
    """Tables as of one capture; with damage in both, nobody is accused."""
    frames = captured(broker)
    ports = (broker.port,)
    whole = kit.read([kit.pcap(tmp_path / "whole.pcap", frames)], tmp_path, ports)
    choice = random.Random(7)
    for kind in ("turns", "copy", "losses"):
        parts = shares(frames, kind, choice)
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        found = kit.read(paths, tmp_path, ports)
        assert len(found["packets"]) == len(whole["packets"]), kind
        assert found["violations"] == []
    for number in range(12):
        parts = [choice.choice(damages.FRAMES)(part, choice) or part[:3]
                 for part in shares(frames, "losses", choice)]  # fmt: skip
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        told = [(v["file"][-6:], v["frame"], v["statement"], v["what"])
                for v in kit.read(paths, tmp_path, ports)["violations"]]  # fmt: skip
        assert told == [], number


def test_a_packed_copy_counts_once(tmp_path):
    from mqtt_audit import run

    one = kit.pcap(tmp_path / "1.pcap", made())
    with gzip.open(tmp_path / "2.pcap.gz", "wb") as out:
        out.write(one.read_bytes())
    run.build(None, [one], tmp_path / "alone")
    run.build(None, [one, tmp_path / "2.pcap.gz"], tmp_path / "out")
    for name in ("packets", "flows", "findings", "violations"):
        rows = pq.read_table(tmp_path / "alone" / name).num_rows
        assert pq.read_table(tmp_path / "out" / name).num_rows == rows


def test_lines_tell_of_two_captures_what_they_tell_of_one(tmp_path):
    from mqtt_audit import sources
    from mqtt_audit.report.lines import EVENTS, JsonLines

    def told(paths):
        out = io.StringIO()
        sources.lines(list(map(str, paths)), JsonLines(out, set(EVENTS.values())), (1883,))
        rows = [json.loads(line) for line in out.getvalue().splitlines()]
        kept = [{k: v for k, v in r.items() if k not in ("file", "frame", "connection", "first",
                 "client_peak_frame", "broker_peak_frame",
                 "client_flood_frame", "broker_flood_frame")}
                for r in rows if r["event"] != "problem"]  # fmt: skip
        return kept, [r for r in rows if r["event"] == "problem"]

    frames = made()
    whole, _ = told([kit.pcap(tmp_path / "whole.pcap", frames)])
    for kind in ("turns", "losses", "copy"):
        parts = shares(frames, kind, random.Random(2))
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        found, problems = told(paths)
        assert found == whole, kind
        assert [p["problem"] for p in problems] == ["together"]
    blind = [(0, frame) for _, frame in frames]
    one, two = shares(blind, "turns", None)
    paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate((one, two))]
    problems = {p["problem"] for p in told(paths)[1]}
    assert "together" in problems and "shared" not in problems


@pytest.mark.parametrize("kind, packed", [
    ("pcap", "-z-"), ("pcapng", "z-z"), ("pcapng", "-zz-"), ("pcap", "--z-z")])  # fmt: skip
def test_lines_read_captures_in_order_of_time_whichever_are_packed(kind, packed, tmp_path):
    """One capture after the other, of the same connection; the first two of five are from two
    places and read as one."""
    from mqtt_audit import sources

    def told(paths):
        rows = {"packets": [], "connections": [], "problems": []}
        sources.lines(list(map(str, paths)), lambda table, found: rows.get(table, []).extend(
            found.to_pylist()), (1883,))  # fmt: skip
        return rows

    def written(path, part):
        if kind == "pcap":
            return kit.pcap(path, part)
        blocks = [kit.enhanced("<", 0, t // 1000, f) for t, f in part]
        path.write_bytes(b"".join([kit.section(), kit.interface(), *blocks]))
        return path

    frames = made()
    size = -(-len(frames) // len(packed))
    parts = [frames[k : k + size] for k in range(0, len(frames), size)]
    if len(packed) == 5:
        both = parts[0] + parts[1]
        parts[:2] = both[::2], both[1::2]
    paths = [written(tmp_path / f"{k}.{kind}", part) for k, part in enumerate(parts)]
    for path, z in zip(paths, packed):
        if z == "z":
            path.write_bytes(gzip.compress(path.read_bytes()))
    whole = told([kit.pcap(tmp_path / "whole.pcap", frames)])
    assert len(whole["packets"]) == 123
    found = told(random.Random(1).sample(paths, len(paths)))
    assert [p["time"] for p in found["packets"]] == [p["time"] for p in whole["packets"]]
    assert len(found["connections"]) == 1
    said = {p["problem"] for p in found["problems"]}
    assert said == ({"together"} if len(packed) == 5 else set())


@pytest.mark.parametrize("web, merged", [(True, False), (False, False), (False, True)])
def test_clocks_of_both_directions_that_are_some_milliseconds_apart(web, merged, tmp_path):
    """SYN with ACK is before SYN in the capture, as two files and as one made of both."""
    talk = kit.Talk(broker=("10.0.0.1", 9001), step=10**6).open()
    if web:
        talk.client(ASKED).broker(AGREED)
    said = [(0, kit.connect("d")), (1, kit.connack())]
    for k in range(1, 40):
        said += [(0, kit.publish("a", b"%d" % k, 1, k)), (1, kit.ack(4, k))]
    for way, raw in [*said, (0, kit.DISCONNECT)]:
        mask = None if way else b"\1\2\3\4"
        talk.wait(0.02).segment(way, frame(raw, 2, True, mask) if web else raw)
    frames = talk.close().wrapped()
    for behind in (2, 5, 9):
        one, two = shares(frames, "sides", None)
        two = [(t - behind * 10**6, f) for t, f in two]
        both = [sorted(one + two, key=lambda f: f[0])] if merged else [one, two]
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(both)]
        found = kit.read(paths, tmp_path)
        (conn,) = found["connections"]
        assert (conn["client_packets"], conn["broker_packets"], conn["client_id"]) == (41, 40, "d")
        assert merged or conn["ended"] == "FIN by client"
        assert found["violations"] == []


@pytest.mark.parametrize(("loss", "late", "marks"), [
    (0.03, 0, {}), (0, 0.1, {}), (0.1, 0.3, {}), (0.03, 0.03, {"idents": False}),
    (0.03, 0.03, {"stamps": False}), (0.1, 0.3, {"stamps": False})])  # fmt: skip
def test_both_ends_of_a_network_that_loses_and_reorders(loss, late, marks, tmp_path):
    """What one end sent again is no copy that the other end has late, nor the other way round."""
    network = Network(7, loss, late, **marks)
    paths = [kit.pcap(tmp_path / f"{k}.pcap", frames) for k, frames in enumerate(network.ends)]
    found = kit.read(paths, tmp_path)
    (row,) = found["connections"]
    assert [row["client_resent"], row["broker_resent"]] == network.resent
    assert row["longest_silence_s"] > 2 and found["violations"] == found["problems"] == []
    assert [flow["latency_ms"] > 0 for flow in found["flows"]] == [True] * 200
