"""Frames that are missing from a capture: what is there keeps its frame, its file and its time.

Knows: audit_kit. Must not know: when the audit gives up a hole.

The oracle is the capture with all frames: a packet in a segment of its own is that frame's.
"""

import random

import audit_kit as kit
import pytest

ACK_AFTER = 0.005


def conversation(messages, qos, ident, start=kit.START, client=kit.CLIENT):
    """A talk of messages with their answers, each packet a frame; ident(k): the packet id."""
    made = kit.Talk(client, start=start, step=0).open().client(kit.connect())
    made.broker(kit.connack())
    for k in range(1, messages + 1):
        made.wait(0.01).client(kit.publish(f"t/{k}", b"x", qos, ident(k)))
        made.wait(ACK_AFTER).broker(kit.ack(4 if qos == 1 else 5, ident(k)))
        if qos == 2:
            made.client(kit.ack(6, ident(k))).wait(ACK_AFTER).broker(kit.ack(7, ident(k)))
    return made.wait(30).client(kit.PINGREQ).broker(kit.PINGRESP).wait(0.2).client(kit.DISCONNECT)


def key(row):
    return row["sender"], row["type"], row["packet_id"], row["topic"]


def written(frames, folder, sizes=()):
    """The frames in files of so many each (the rest in the last): their paths."""
    paths, at = [], 0
    for k, size in enumerate((*sizes, len(frames))):
        paths.append(kit.pcap(folder / f"{k}.pcap", frames[at : at + size]))
        at += size
    return paths


def place(row):
    """Place in the capture of a packet: (file, frame, us)."""
    us = row["time"].timestamp() * 1e6
    return row["file"].rpartition("/")[2], row["frame"], round(us)


def expected(frames, sizes=()):
    """(file, frame, us) of every frame of written()."""
    out, bounds = [], [*sizes, len(frames)]
    file, number = 0, 0
    for ns, _ in frames:
        if number == bounds[file]:
            file, number = file + 1, 0
        number += 1
        out.append((f"{file}.pcap", number, ns // 1000))
    return out


#: Place of the frame of PUBLISH k in conversation(), from 0.
def frame_of(k, qos):
    return 5 + (k - 1) * 2 * qos


@pytest.mark.parametrize("sizes", [(), (30, 72)], ids=["one file", "three files"])
@pytest.mark.parametrize("ident", [lambda k: k, lambda k: 1], ids=["ids", "one id"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_missing_frame_costs_no_other_message(qos, ident, sizes, tmp_path):
    """Not its time, not its latency, not an accusation."""
    made = conversation(100, qos, ident)
    frames = made.wrapped()
    del frames[frame_of(50, qos)]
    found = kit.read(written(frames, tmp_path, sizes), tmp_path)
    got = [place(r) for r in found["packets"]]
    places = [p for p, (_, raw) in zip(expected(frames, sizes), frames) if len(raw) > 54
              and raw[46] >> 4 == 5 and int.from_bytes(raw[16:18], "big") > 40]  # fmt: skip
    assert got == places and len(got) == 2 + 200 * qos - 1 + 3
    flows = [f for f in found["flows"] if f["topic"]]
    assert {f["outcome"] for f in flows} == {"acknowledged"}
    assert [f["topic"] for f in flows] == [f"t/{k}" for k in range(1, 101) if k != 50]
    assert {f["latency_ms"] for f in flows} == {ACK_AFTER * 1000 * qos}
    assert [v for v in found["violations"] if not v["keep_alive"]] == []
    shown = [p for p in found["problems"] if p["problem"] == "loss"]
    behind = expected(frames, sizes)[frame_of(51, qos) - 1 if qos == 1 else frame_of(50, 2) + 1]
    assert [place(p) for p in shown] == [behind]


@pytest.mark.parametrize("seed", range(6))
def test_frames_missing_at_random(seed, tmp_path):
    """Several connections at once, 3 % of the frames gone on both sides, files cut anywhere."""
    choice = random.Random(seed)
    talks = [conversation(60, 1 + k % 2, lambda n: n % 29 + 1, kit.START + k * 1_700_000,
                          ("10.0.0.2", 40_000 + k)) for k in range(4)]  # fmt: skip
    frames = sorted((f for t in talks for f in t.wrapped()), key=lambda f: f[0])
    whole = kit.read(written(frames, tmp_path), tmp_path)
    true = {}
    for r in whole["packets"]:
        true.setdefault((r["connection"] & 0xFFFFFFFF, *key(r)), []).append(r["time"])
    assert max(map(len, true.values())) > 1  # ids used again
    kept = [f for k, f in enumerate(frames) if k < 20 or choice.random() > 0.03]
    found = kit.read(written(kept, tmp_path, (150, 200)), tmp_path)
    there = {p: 0 for p in expected(kept, (150, 200))}
    for r in found["packets"]:
        assert r["time"] in true[(r["connection"] & 0xFFFFFFFF, *key(r))]
        there[place(r)] += 1
    assert set(there.values()) == {0, 1} and sum(there.values()) > 0.9 * len(whole["packets"])
    took = {f["latency_ms"] for f in found["flows"] if f["latency_ms"] is not None}
    assert took == {ACK_AFTER * 1000, 2 * ACK_AFTER * 1000}
    assert not {v["statement"] for v in found["violations"]} - {"MQTT-3.12.4-1"}


def test_a_hole_that_is_filled_late_is_over_at_the_frame_that_fills_it(tmp_path):
    """The receiver could not read on before; what the other side said meanwhile came first."""
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    first, second = kit.publish("a", b"1", 1, 1), kit.publish("a", b"2", 1, 2)
    at = made.seq[0]
    made.seq[0] += len(first)
    made.client(second)  # frame 6
    made.seq[0] = at
    made.broker(kit.publish("b")).client(first)  # 7, 8
    made.seq[0] += len(second)
    made.broker(kit.ack(4, 1)).broker(kit.ack(4, 2))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    got = [(r["frame"], r["topic"], r["packet_id"]) for r in found["packets"][2:]]
    assert got == [(7, "b", None), (8, "a", 1), (8, "a", 2), (9, None, 1), (10, None, 2)]
    assert [f["latency_ms"] for f in found["flows"]] == [1, 2]
    assert found["problems"] == found["violations"] == []


def test_bytes_that_are_sent_again_behind_a_hole_keep_their_first_frame(tmp_path):
    """Also if one segment has all of them again, as TCP puts small ones together."""
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    made.seq[0] += 9  # never captured
    sent = [kit.publish(f"t/{k}", b"x", 1, k) for k in range(1, 6)]
    begin = made.seq[0]
    for raw in sent:
        made.client(raw)  # frames 6 to 10
    made.segment(0, b"".join(sent[:4]), seq=begin)
    made.segment(0, b"".join(sent[1:5]) + kit.publish("new"), seq=begin + len(sent[0]))
    made.seq[0] += len(kit.publish("new"))
    made.wait(2).broker(kit.ack(4, 1))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    got = [(r["frame"], r["topic"]) for r in found["packets"][2:] if r["type"] == "PUBLISH"]
    assert got == [*((5 + k, f"t/{k}") for k in range(1, 6)), (12, "new")]


def test_a_packet_that_begins_right_behind_what_is_missing_is_not_said_to_be_found_later(tmp_path):
    """Behind a hole, and where the capture begins: no byte is skipped."""
    made = kit.Talk().open().client(kit.connect("dev", 0)).broker(kit.connack())
    made.seq[0] += 9
    frames = made.client(kit.publish("t", b"x" * 40, 1, 3)).broker(kit.ack(4, 3)).wrapped()
    said = {}
    for begin in (0, 4):
        found = kit.read([kit.pcap(tmp_path / "t.pcap", frames[begin:])], tmp_path)
        said |= {p["problem"]: p["what"] for p in found["problems"] if not p["count"]}
    assert said == {
        "resynchronised": "the next packet was found at once, no byte was skipped",
        "began before": "began before the capture; the first bytes there begin a packet"}


def test_what_is_open_at_the_end_names_its_own_file_and_frame(tmp_path):
    """Packets behind a hole that is never filled, half a packet, a silence, a PINGREQ without an
    answer; the file read last has nothing to do with them."""
    hole = kit.Talk().open().client(kit.connect("hole", 0)).broker(kit.connack())
    hole.seq[0] += 9
    hole.client(kit.publish("t", b"x", 1, 3))  # frame 6
    half = kit.Talk(("10.0.0.3", 3), start=hole.now).open().client(kit.connect("half", 0))
    half.broker(kit.connack()).client(kit.publish("long", bytes(50))[:20])  # frame 6 + 6
    idle = kit.Talk(("10.0.0.4", 4), start=half.now).open().client(kit.connect("idle", 5))
    idle.broker(kit.connack()).client(kit.PINGREQ).broker(b"", flags=kit.ACK).wait(60)
    idle.client(b"", flags=kit.ACK).broker(b"", flags=kit.ACK)
    other = kit.Talk(("10.0.0.5", 5), start=idle.now).open().client(kit.connect("other"))
    other.broker(kit.connack()).client(kit.DISCONNECT).close()
    frames = hole.wrapped() + half.wrapped() + idle.wrapped()
    found = kit.read(written(frames + other.wrapped(), tmp_path, (len(frames),)), tmp_path)
    at = expected(frames)
    assert [place(r) for r in found["packets"] if r["topic"] == "t"] == [at[5]]
    problems = {p["problem"]: place(p) for p in found["problems"]}
    assert problems == {"loss": at[5], "resynchronised": at[5], "unfinished": at[11]}
    silent = {(v["statement"], place(v)[:2]) for v in found["violations"]}
    assert silent == {(s, at[17][:2]) for s in ("MQTT-3.1.2-23", "MQTT-3.1.2-24", "MQTT-3.12.4-1")}
    files = {r["file"][-6:] for r in found["packets"] if r["connection"] >> 32 == 0}
    assert files == {"0.pcap"}


def test_when_too_much_waits_for_a_hole_all_is_read(tmp_path, monkeypatch):
    """Out of its order, but each packet once, with its own frame and time."""
    from mqtt_audit.flows import ordering

    monkeypatch.setattr(ordering, "ROWS", 8)
    frames = conversation(30, 1, lambda k: k).wrapped()
    del frames[frame_of(5, 1)]
    sizes = (20, 6, 6)  # what waits is looked at at the end of each file
    found = kit.read(written(frames, tmp_path, sizes), tmp_path)
    got = [place(r) for r in found["packets"]]
    assert len(got) == 2 + 59 + 3 and set(got) <= set(expected(frames, sizes))
    assert len(set(got)) == len(got)
    assert {f["latency_ms"] for f in found["flows"] if f["topic"]} == {ACK_AFTER * 1000}


@pytest.mark.parametrize("size", [4, 7])
def test_what_waits_at_the_end_of_a_file_is_kept(size, tmp_path):
    """Every kind of packet, some with a body that is read only in the next file."""
    made = kit.Talk().open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("lost")).client(kit.subscribe(1, ("a/#", 1), ("b", 2)))
    made.broker(kit.suback(1, 1, 2)).broker(kit.publish("a/b", bytes(300), 1, 5))
    made.client(kit.ack(4, 5)).broker(kit.publish("b", b"y" * 90, 2, 6)).client(kit.ack(5, 6))
    made.broker(kit.ack(6, 6)).client(kit.ack(7, 6)).wait(2).client(kit.PINGREQ)
    frames = made.broker(kit.PINGRESP).client(kit.DISCONNECT).close().wrapped()
    del frames[5]
    alone = kit.read(written(frames, tmp_path), tmp_path)
    assert alone["violations"] == [] and len(alone["packets"]) == 13
    assert [f["latency_ms"] for f in alone["flows"]] == [1, 3]
    sizes = [size] * (len(frames) // size)
    parts = kit.read(written(frames, tmp_path, sizes), tmp_path)
    for tables, cut in ((alone, ()), (parts, sizes)):
        for row in tables["packets"]:
            assert place(row) in expected(frames, cut)
            del row["file"], row["frame"]
    assert parts["packets"] == alone["packets"] and parts["flows"] == alone["flows"]


@pytest.mark.parametrize("lacks, lost", [("last", 2), ("last and FIN", 3), ("FIN", 0)])
def test_bytes_that_are_missing_at_the_end_are_a_loss(lacks, lost, tmp_path):
    """FIN of the client, or the broker's acknowledgement, is all that shows its DISCONNECT."""
    made = conversation(3, 1, lambda k: k).segment(1, flags=kit.ACK)
    end = len(made.frames) - 2
    frames = made.close().wrapped()
    found = kit.read(written(frames, tmp_path), tmp_path)
    assert found["problems"] == [] and len(found["packets"]) == 11
    for place in {"last": [end], "FIN": [end + 2], "last and FIN": [end + 2, end]}[lacks]:
        del frames[place]
    found = kit.read(written(frames, tmp_path), tmp_path)
    assert [(p["problem"], p["count"]) for p in found["problems"]] == [("loss", lost)][: lost > 0]
    assert found["violations"] == [] and len(found["packets"]) == 11 - (lost > 0)
