"""TCP is put together rightly, in whatever order segments come; the oracle is what was sent."""

import random

import audit_kit as kit
import pytest

TOPICS = ["a", "fleet/g/dev1/telemetry", "x/" * 40 + "end"]


def messages(choice, n=40):
    """Random packets of a client: [(bytes, type, topic, id, payload length)]."""
    out = []
    for k in range(n):
        kind = choice.choice(["publish", "publish", "ack", "ping"])
        if kind == "publish":
            qos, topic = choice.randrange(3), choice.choice(TOPICS)
            size = choice.choice([0, 5, 100, 2000, 40_000])
            ident = k + 1 if qos else None
            raw = kit.publish(topic, bytes(choice.randrange(256) for _ in range(size)), qos, ident)
            out.append((raw, "PUBLISH", topic, ident, size))
        elif kind == "ack":
            out.append((kit.ack(4, k + 1), "PUBACK", None, k + 1, None))
        else:
            out.append((kit.PINGREQ, "PINGREQ", None, None, None))
    return out


def cut(choice, data, biggest=1400):
    """(offset, bytes) of segments."""
    out, at = [], 0
    while at < len(data):
        n = choice.choice([1, 2, 7, 100, biggest, biggest])
        out.append((at, data[at : at + n]))
        at += n
    return out


def disturbed(choice, segments, data):
    """The segments with retransmissions, overlaps and out of order; every byte is there."""
    out = list(segments)
    for _ in range(len(segments) // 4):
        at = choice.randrange(len(data))
        out.insert(choice.randrange(len(out) + 1), (at, data[at : at + choice.randrange(1, 3000)]))
    for _ in range(len(out) // 2):
        k = choice.randrange(len(out) - 1)
        far = min(len(out) - 1, k + choice.randrange(1, 8))
        out[k], out[far] = out[far], out[k]
    return out


def rows(found):
    """What the oracle knows of the packets, in the order of the stream."""
    return [(r["type"], r["topic"], r["packet_id"], r["payload_length"])
            for r in found["packets"] if r["type"] not in ("CONNECT", "CONNACK")]  # fmt: skip


def sent(made):
    """The same of what was sent."""
    return [m[1:] for m in made]


def begun(choice, isn=None):
    isn = choice.randrange(1 << 32) if isn is None else isn
    return kit.Talk(isn=(isn, 77)).open().client(kit.connect()).broker(kit.connack())


@pytest.mark.parametrize("seed", range(16))
def test_disorder_overlap_and_retransmission(seed, tmp_path):
    choice = random.Random(seed)
    made = messages(choice)
    data = b"".join(m[0] for m in made)
    # Every second stream wraps its sequence numbers.
    talk = begun(choice, (1 << 32) - len(data) // 2 if seed % 2 else None)
    base = talk.seq[0]
    for at, raw in disturbed(choice, cut(choice, data), data):
        talk.segment(0, raw, seq=base + at)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    assert rows(found) == sent(made)
    assert found["problems"] == [] and len(found["connections"]) == 1
    assert found["connections"][0]["client_bytes"] == len(data) + len(kit.connect())


@pytest.mark.parametrize("seed", range(16))
def test_after_a_loss_the_next_packets_are_found_and_none_is_invented(seed, tmp_path):
    choice = random.Random(1000 + seed)
    made = messages(choice, 60)
    data = b"".join(m[0] for m in made)
    talk = begun(choice)
    base = talk.seq[0]
    segments = cut(choice, data)
    lost = choice.randrange(len(segments) // 4, len(segments) // 2)
    for k, (at, raw) in enumerate(segments):
        if k != lost:
            talk.segment(0, raw, seq=base + at)
        talk.seq[0] = base + at + len(raw)
        if k > lost:
            talk.wait(0.2).segment(1, flags=kit.ACK)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    got, oracle = rows(found), sent(made)
    # Found: what ends before the loss, and all from some packet on; nothing that was not sent.
    before = sum(end <= segments[lost][0] for end in ends(made))
    assert got[:before] == oracle[:before]
    assert len(got) - before >= 10
    tail = [r for r in got[before:]]
    if tail[0] not in oracle[before : before + 2]:
        tail = tail[1:]  # the packet in which the loss lies, its topic unknown
    assert oracle[len(oracle) - len(tail) + 1 :] == tail[1:]
    assert {p["problem"] for p in found["problems"]} >= {"loss"}
    assert sum(p["count"] for p in found["problems"] if p["problem"] == "loss") == \
        len(segments[lost][1])  # fmt: skip


def ends(made):
    """Place behind each packet."""
    at = 0
    for m in made:
        at += len(m[0])
        yield at


@pytest.mark.parametrize("seed", range(10))
def test_connection_that_began_before_the_capture(seed, tmp_path):
    choice = random.Random(2000 + seed)
    made = messages(choice, 60)
    data = b"".join(m[0] for m in made)
    talk = begun(choice)
    base = talk.seq[0]
    segments = cut(choice, data)
    first = len(segments) // 3
    talk.frames.clear()
    for at, raw in segments[first:]:
        talk.segment(0, raw, seq=base + at)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    got, oracle = rows(found), sent(made)
    assert len(got) >= 5 and got == oracle[len(oracle) - len(got) :]
    assert [p["problem"] for p in found["problems"]][:1] == ["began before"]
    assert not found["connections"][0]["begun"]


def test_several_packets_in_a_segment_and_one_over_many(tmp_path):
    talk = kit.Talk().open()
    talk.client(kit.connect() + kit.publish("a") + kit.PINGREQ + kit.publish("b", bytes(500)))
    for byte in kit.publish("c", b"0123456789", 1, 9):
        talk.client(bytes([byte]))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    got = [(r["frame"], r["type"], r["topic"]) for r in found["packets"]]
    assert got == [(4, "CONNECT", None), (4, "PUBLISH", "a"), (4, "PINGREQ", None),
                   (4, "PUBLISH", "b"), (21, "PUBLISH", "c")]  # fmt: skip


def test_ports_used_again_are_two_connections(tmp_path):
    talk = kit.Talk().open().client(kit.connect("one")).broker(kit.connack()).close()
    again = kit.Talk(isn=(9_000_000, 70), start=talk.now).open().client(kit.connect("two"))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped() + again.wrapped())], tmp_path)
    assert [(c["client_id"], c["ended"], c["begun"]) for c in found["connections"]] == [
        ("one", "FIN by client", True), ("two", "open", True)]  # fmt: skip


def test_a_repeated_syn_is_no_new_connection(tmp_path):
    talk = kit.Talk().segment(0, flags=kit.SYN).segment(0, flags=kit.SYN, seq=1000)
    talk.segment(1, flags=kit.SYN | kit.ACK).client(kit.connect()).segment(1, flags=kit.RST)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", talk.wrapped())], tmp_path)
    assert [(c["client_id"], c["ended"]) for c in found["connections"]] == [
        ("dev1", "RST by broker")]  # fmt: skip


@pytest.mark.parametrize("buckets", [1, 5])
def test_connections_over_several_files(buckets, tmp_path):
    """Cut anywhere, within a packet too, the files give what one file gives."""
    choice = random.Random(5)
    frames, oracle = [], {}
    for k in range(12):
        made = messages(choice, 20)
        talk = kit.Talk(("10.0.0.2", 41_000 + k), start=kit.START + k * 1000)
        talk.open().client(kit.connect(f"dev{k}")).broker(kit.connack())
        for _, raw in cut(choice, b"".join(m[0] for m in made)):
            talk.client(raw)
        frames += talk.close().wrapped()
        oracle[f"dev{k}"] = sent(made)
    frames.sort(key=lambda f: f[0])
    parts = [kit.pcap(tmp_path / f"{at}.pcap", frames[at : at + 111])
             for at in range(0, len(frames), 111)]  # fmt: skip
    choice.shuffle(parts)  # the order of the arguments does not matter
    found = kit.read(parts, tmp_path, buckets=buckets)
    found["packets"].sort(key=lambda r: r["time"])
    who = {c["connection"]: c["client_id"] for c in found["connections"]}
    got = {}
    for r in found["packets"]:
        if r["type"] not in ("CONNECT", "CONNACK", "DISCONNECT"):
            row = (r["type"], r["topic"], r["packet_id"], r["payload_length"])
            got.setdefault(who[r["connection"]], []).append(row)
    assert got == oracle and len(found["connections"]) == 12
    assert {p["problem"] for p in found["problems"]} == set()


FIRSTS = {
    "PUBLISH": (0, kit.publish("a/topic", b"payload of it", 1, 5)),
    "CONNACK": (1, kit.packet(0x20, b"\0\0\x2f" + b"\x12\0\x2c" + b"i" * 44)),
    "SUBSCRIBE": (0, kit.subscribe(3, ("some/filter/#", 1))),
}


@pytest.mark.parametrize("name", FIRSTS)
def test_a_first_packet_over_two_segments_is_read_without_its_syn(name, tmp_path):
    """Wherever it is cut; nothing of the connection came before it."""
    sender, raw = FIRSTS[name]
    for at in range(1, len(raw)):
        made = kit.Talk().segment(sender, raw[:at]).segment(sender, raw[at:])
        made.segment(sender, kit.publish("b", b"1")).segment(1 - sender, kit.publish("c", b"1"))
        found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
        assert [p["type"] for p in found["packets"]] == [name, "PUBLISH", "PUBLISH"], at
        assert found["violations"] == []
