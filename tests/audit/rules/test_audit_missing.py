"""What only the capture lacks is held against nobody; what breaks a rule elsewhere is told.

Knows: audit_kit, the statements of MQTT 3.1.1. Must not know: how holes are found.
"""

import itertools
import random

import audit_kit as kit
import pyarrow.parquet as pq
import pytest
from mqtt_audit import worker
from mqtt_audit.rules import clock

STEP = 1_000_000_000
VERSIONS = {4: "MQTT", 3: "MQIsdp", 2: "MQIpdp"}


def clean(made, level=4, bare=False, rounds=1):
    """Every kind of packet, no rule broken, each packet and (if not bare) each acknowledgement of
    TCP a frame; in each round the same ids and messages."""

    def say(way, raw):
        made.segment(way, raw)
        if not bare:
            made.segment(1 - way, flags=kit.ACK)

    made.open()
    say(0, kit.connect("dev", 6, name=VERSIONS[level], level=level))
    say(1, kit.connack())
    for _ in range(rounds):
        for way in (0, 1):
            say(way, kit.publish("a", b"x", 1, 258))
            say(1 - way, kit.ack(4, 258))
            say(way, kit.publish("a", b"x", 2, 258))
            say(1 - way, kit.ack(5, 258))
            say(way, kit.ack(6, 258))
            say(1 - way, kit.ack(7, 258))
        say(0, kit.subscribe(258, ("a/#", 1), ("b", 0)))
        say(1, kit.suback(258, 1, 0))
        say(0, kit.packet(0xA2, b"\1\2" + kit.string("a/#")))
        say(1, kit.ack(11, 258))
        say(0, kit.PINGREQ)
        say(1, kit.PINGRESP)
    say(0, kit.DISCONNECT)
    return made.close()


def losses(n, choice):
    """Sets of places of frames, out of n: each, pairs, some at random, all up to one."""
    pairs = list(itertools.combinations(range(n), 2))
    some = choice.sample(pairs, min(len(pairs), 150))
    many = [choice.sample(range(n), choice.randrange(3, 9)) for _ in range(100)]
    return [(), *((k,) for k in range(n)), *some, *many, *(range(k) for k in range(n))]


def without(lost, number, start, step, *more):
    """Frames of clean() on its own connection, but for those that are lost."""
    client = f"10.1.{number >> 8}.{number & 255}", 20_000 + number
    made = kit.Talk(client, start=start, step=step)
    frames = clean(made, *more).wrapped()
    return [f for k, f in enumerate(frames) if k not in lost], made.now


@pytest.mark.parametrize("level,bare,rounds", [
    (4, False, 1), (4, False, 2), (4, True, 2), (3, False, 1), (2, True, 1)])  # fmt: skip
def test_frames_that_the_capture_lacks_accuse_nobody(level, bare, rounds, tmp_path):
    """One connection per set of lost frames, all in one capture and once more in three files; at
    its end are connections of which it has the beginning only."""
    n, frames, start = len(clean(kit.Talk(), level, bare, rounds).frames), [], kit.START
    step = STEP // 2 if bare else STEP
    sets = losses(n, random.Random(level))
    for k, lost in enumerate(sets):
        made, start = without(lost, k, start, step, level, bare, rounds)
        frames += made
    for k in range(1, n):
        number = len(sets) + k
        frames += without(range(k, n), number, start - k * step, step, level, bare, rounds)[0]
    frames.sort(key=lambda f: f[0])
    third = len(frames) // 3
    for bounds in ((0, len(frames)), (0, third, 2 * third, len(frames))):
        paths = [kit.pcap(tmp_path / f"{at}.pcap", frames[at:end])
                 for at, end in itertools.pairwise(bounds)]  # fmt: skip
        found = kit.read(paths, tmp_path)
        assert len(found["connections"]) == len(sets) + n - 1
        assert [(v["statement"], v["what"]) for v in found["violations"]] == []


OTHERS = {
    "no TCP": lambda: [(kit.START, b"\xff" * 12 + b"\x08\x06" + bytes(46))],
    "HTTP": lambda: kit.Talk(("10.0.0.2", 4000), ("10.0.0.9", 80)).open().client(
        b"GET / HTTP/1.1\r\n\r\n").wrapped(),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("answers", [(6, 7), (4,)], ids=["PUBREL", "PUBACK"])
def test_an_exchange_without_its_publish_is_of_its_own_file(other, answers, tmp_path):
    """A client resumes with PUBREL, or the capture has the answer to a PUBLISH only; the first of
    two files has nothing of it."""
    made = kit.Talk(start=kit.START + STEP).open()
    made.client(kit.connect("dev", flags=0)).broker(kit.connack(0, 1))
    at = len(made.frames) + 1
    if answers == (4,):
        lost(made, 0, PUB)
    for kind in answers:
        made.segment(0 if kind == 6 else 1, kit.ack(kind, 7))
    paths = [kit.pcap(tmp_path / "1.pcap", OTHERS[other]()),
             kit.pcap(tmp_path / "2.pcap", made.close().wrapped())]  # fmt: skip
    found = kit.read(paths, tmp_path, buckets=2)
    flows = [(f["packet_id"], f["file"], f["frame"]) for f in found["flows"]]
    assert flows == [(7, str(paths[1]), at)] and found["violations"] == []
    assert {p["file"] for p in found["packets"]} == {str(paths[1])}


def broken(made, tmp_path):
    tables = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    return [(v["statement"], v["sender"], v["frame"]) for v in tables["violations"]], tables


def lost(made, way, raw):
    """The bytes were sent, the capture lacks their frame."""
    made.seq[way] += len(raw)
    return made


PUB = kit.publish("a", b"x", 1, 7)


def _joined(frames, tmp_path):
    """Of each message of frames: (its connections, whether its latency is null, its outcome)."""
    kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    out = tmp_path / "tables"
    worker.join(0, 1, str(out), clock.NONE)
    (made,) = (out / "flows").glob("part-joined-*")
    rows = sorted(pq.read_table(made).to_pylist(), key=lambda r: r["first"])
    return [(r["connections"], r["latency_ms"] is None, r["outcome"]) for r in rows]


APART = [(1, True, "unseen"), (1, True, "acknowledged")]


@pytest.mark.parametrize("between,answered", [(True, False), (False, True), (False, False)])
def test_what_lacks_its_end_was_over_before_its_identifier_came_again(between, answered, tmp_path):
    """PUBCOMP is missing, and on a later connection PUBLISH and PUBREC of another message are: of
    both together nobody knows that they are two, nor how long they took, unless a whole one with
    the same identifier lies between, or there is that PUBREC."""
    frames, now = [], kit.START
    for port in range(3):
        made = kit.Talk(("10.0.0.2", 40_000 + port), start=now).open()
        clean = port == 1
        made.client(kit.connect("dev", 0, flags=2 * clean)).broker(kit.connack(0, not clean))
        if port == 0:
            made.client(kit.publish("a", b"one", 2, 7)).broker(kit.ack(5, 7))
            lost(made.client(kit.ack(6, 7)), 1, kit.ack(7, 7))
        elif port == 1 and between:
            made.client(kit.publish("a", b"two", 1, 7)).broker(kit.ack(4, 7))
        elif port == 2:
            lost(made, 0, kit.publish("a", b"three", 2, 7))
            if answered:
                made.broker(kit.ack(5, 7))
            else:
                lost(made, 1, kit.ack(5, 7))
            made.client(kit.ack(6, 7)).broker(kit.ack(7, 7))
        frames += made.client(kit.PINGREQ).broker(kit.PINGRESP).close().wrapped()
        now = made.now + 20 * 10**9
    assert _joined(frames, tmp_path) == (
        APART if between or answered else [(2, True, "acknowledged")])  # fmt: skip


@pytest.mark.parametrize("way", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("level,flags,present,again,goes_on", [
    (4, 0, 1, "PUBREL", True), (5, 0, 1, "PUBREL", True), (3, 0, 0, "PUBREL", True),
    (4, 0, 0, "PUBREL", False), (5, 0, 0, "PUBREL", False), (4, 2, 0, "PUBREL", False),
    (5, 2, 0, "PUBREL", False), (3, 2, 0, "PUBREL", False), (4, 0, 1, "PUBLISH", True),
    (4, 0, 0, "PUBLISH", False), (4, 0, 0, "DUP", True)])  # fmt: skip
def test_a_message_ends_where_a_session_begins(way, level, flags, present, again, goes_on,
                                               tmp_path):  # fmt: skip
    """Its end is missing, or the broker has lost it: what comes then is another message, unless
    DUP says that it is the same."""
    frames, now, tail = [], kit.START, b"\0" if level == 5 else b""
    for port in range(2):
        made = kit.Talk(("10.0.0.2", 40_000 + port), start=now).open()
        body = kit.connect("dev", 0, flags=flags if port else 0, level=level)
        if level == 5:
            body = kit.packet(0x10, body[2:12] + b"\0" + body[12:])
        made.client(body).broker(kit.packet(0x20, bytes([present if port else 1, 0]) + tail))
        topic = kit.string("a") + b"\0\7" + tail + b"x"
        if port == 0 or again != "PUBREL":
            head = 0x3C if port and again == "DUP" else 0x34
            made.segment(way, kit.packet(head, topic)).segment(1 - way, kit.ack(5, 7))
        made.segment(way, kit.ack(6, 7)) if port or again == "PUBREL" else None
        if port:
            made.segment(1 - way, kit.ack(7, 7))
        frames += made.close().wrapped()
        now = made.now + 10**9
    found = _joined(frames, tmp_path)
    whole = [(2, False, "acknowledged")]
    alone = [(1, True, "open"), (1, again == "PUBREL", "acknowledged")]
    assert found == (whole if goes_on else alone)


@pytest.mark.parametrize("way", [0, 1], ids=["client", "broker"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("gone", ["none", "answer", "answer and PUBLISH", "others"])
def test_an_answer_that_may_be_of_another_message_has_no_latency(way, qos, gone, tmp_path):
    """Two messages of one identifier, five seconds apart. Without the answer to the first and the
    second PUBLISH they look like one. Of what is missing just before a PUBLISH and its answer
    nobody knows either whether it was between the two."""
    made = kit.Talk().open().client(kit.connect("dev", 60)).broker(kit.connack())

    def say(side, raw, there=True):
        made.segment(side, raw) if there else lost(made, side, raw)

    for second in (False, True):
        both = gone == "answer and PUBLISH"
        say(way, kit.publish("a", b"two" if second else b"one", qos, 7), not (both and second))
        if qos == 2:
            say(1 - way, kit.ack(5, 7), not (both and second))
            say(way, kit.ack(6, 7))
        say(1 - way, kit.ack(4 if qos == 1 else 7, 7), second or "answer" not in gone)
        for side in (0, 1):
            say(side, kit.publish("b"), gone != "others")
        made.wait(5)
    made.client(kit.PINGREQ).broker(kit.PINGRESP).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    took = [flow["latency_ms"] for flow in found["flows"] if flow["outcome"] == "acknowledged"]
    one = qos * 2.0 - 1
    assert took == {"none": [one, one], "answer": [one], "others": [one, None]}.get(
        gone, [None]), found["flows"]  # fmt: skip


def test_first_packets_are_judged_in_whole_streams(tmp_path):
    """Also if a hole comes later, and in the first packet itself behind its beginning."""
    made = kit.Talk().open().client(PUB).client(kit.connect()).broker(kit.ack(4, 7))
    lost(made, 0, PUB).client(kit.PINGREQ)
    lost(made, 1, kit.PINGRESP).broker(kit.PINGRESP)
    assert broken(made, tmp_path)[0] == [("MQTT-3.1.0-1", "client", 4),
                                         ("MQTT-3.2.0-1", "broker", 6)]  # fmt: skip
    long = kit.publish("long", bytes(100))
    made = kit.Talk().open().client(long[:50])
    lost(made, 0, long[50:60]).client(long[60:]).wait(2).client(kit.PINGREQ)
    assert broken(made, tmp_path)[0] == [("MQTT-3.1.0-1", "client", 5)]


def test_no_connack_is_told_although_connect_is_missing_and_the_other_way_round(tmp_path):
    made = lost(kit.Talk().open(), 0, kit.connect()).broker(kit.PINGRESP).client(PUB)
    assert broken(made, tmp_path)[0] == [("MQTT-3.2.0-1", "broker", 4)]
    made = lost(kit.Talk().open().client(PUB), 1, kit.connack()).broker(kit.PINGRESP)
    assert broken(made, tmp_path)[0] == [("MQTT-3.1.0-1", "client", 4)]


def test_syn_of_the_broker_alone_is_a_beginning(tmp_path):
    """Of both streams, but the SYN that is missing may have had data; else nobody knows where
    the broker's begins."""
    made = kit.Talk().open().client(PUB).broker(kit.PINGRESP)
    both = [("MQTT-3.1.0-1", "client"), ("MQTT-3.2.0-1", "broker")]
    for gone, told in ((0, both[1:]), (1, both[:1])):
        other = kit.Talk()
        other.frames = [f for k, f in enumerate(made.frames) if k != gone]
        assert [v[:2] for v in broken(other, tmp_path)[0]] == told


def silent(keep_alive=5, **more):
    made = kit.Talk().open().client(kit.connect(keep_alive=keep_alive, **more))
    made.segment(1, flags=kit.ACK).wait(4).client(PUB).segment(1, flags=kit.ACK)
    return made.wait(4).client(kit.PINGREQ).segment(1, flags=kit.ACK)


def test_a_broker_that_never_answers_connect(tmp_path):
    """For as long as the keep alive, and with every byte of its side there; it may close."""
    told = [("MQTT-3.1.4-4", "broker", 4)]
    assert broken(silent().close(), tmp_path)[0] == told
    assert broken(silent(60).wait(1).segment(0, flags=kit.FIN | kit.ACK), tmp_path)[0] == []
    assert broken(silent().segment(1, flags=kit.FIN | kit.ACK), tmp_path)[0] == []
    assert broken(silent().segment(1, flags=kit.RST), tmp_path)[0] == []
    answered = silent()
    lost(answered, 1, kit.connack()).segment(0, flags=kit.ACK)
    assert broken(answered, tmp_path)[0] == []
    no_beginning = silent()
    del no_beginning.frames[1]
    assert broken(no_beginning, tmp_path)[0] == []


def test_a_ping_is_unanswered_only_if_the_brokers_side_is_whole(tmp_path):
    for gone, told in ((False, ["MQTT-3.12.4-1"]), (True, [])):
        made = kit.Talk().open().client(kit.connect(keep_alive=5)).broker(kit.connack())
        made.client(kit.PINGREQ)
        made = lost(made, 1, kit.PINGRESP) if gone else made
        for k in range(3):
            made.wait(3).client(kit.publish("a", b"%d" % k)).segment(1, flags=kit.ACK)
        assert [v[0] for v in broken(made.close(), tmp_path)[0]] == told


@pytest.mark.parametrize("shown", ["ack", "own", "fin"])
def test_a_client_is_not_silent_if_its_last_packet_is_missing(shown, tmp_path):
    """As the broker's acknowledgement, the client's own next number, or that of its FIN say."""
    made = kit.Talk().open().client(kit.connect(keep_alive=5)).broker(kit.connack()).wait(4)
    lost(made, 0, kit.PINGREQ)
    if shown != "fin":
        made.segment(1 if shown == "ack" else 0, flags=kit.ACK)
    made.wait(4)
    made = made.close() if shown == "fin" else made.segment(1, flags=kit.RST)
    assert broken(made, tmp_path)[0] == []


def test_the_same_message_again_is_another_one_if_its_acknowledgement_may_be_missing(tmp_path):
    for gone, told in ((False, ["MQTT-3.3.1-1"]), (True, [])):
        made = kit.Talk().open().client(kit.connect()).broker(kit.connack()).client(PUB)
        made = lost(made, 1, kit.ack(4, 7)) if gone else made
        said, tables = broken(made.client(PUB).broker(kit.ack(4, 7)), tmp_path)
        assert [v[0] for v in said] == told
        assert sum(f["sent"] for f in tables["flows"]) == 2
        assert sum(f["without_dup"] for f in tables["flows"]) == len(told)


def test_an_id_in_flight_on_a_connection_that_began_before(tmp_path):
    """What was acknowledged before the broker's first byte is missing; nothing else is. Behind
    the first messages an answer to one from before the capture is no reason any more."""
    for gone, others, told in ((False, 60, ["MQTT-2.3.1-2"]), (False, 5, []), (True, 60, [])):
        made = kit.Talk().client(PUB)
        made = lost(made, 1, kit.ack(4, 7)) if gone else made
        for _ in range(others):
            made.client(kit.publish("a", b"other", 1, 8)).broker(kit.ack(4, 8))
        said, tables = broken(made.client(kit.publish("a", b"new", 1, 7)), tmp_path)
        assert [v[0] for v in said] == told
        missing = [(p["sender"], p["count"]) for p in tables["problems"] if p["problem"] == "loss"]
        assert missing == ([("broker", 4)] if gone else [])


def test_a_port_used_again_whose_syn_is_missing(tmp_path):
    """The broker's SYN opens the new connection: no second CONNECT, nothing after DISCONNECT."""
    one = kit.Talk().open().client(kit.connect("one")).broker(kit.connack())
    one.client(kit.DISCONNECT).close()
    two = kit.Talk(isn=(9000, 70_000), start=one.now).open().client(kit.connect("two"))
    two.broker(kit.connack()).client(kit.DISCONNECT)
    one.frames += two.frames[1:]
    said, tables = broken(one, tmp_path)
    assert said == [] and [c["client_id"] for c in tables["connections"]] == ["one", "two"]


@pytest.mark.parametrize("end", ["DISCONNECT", "FIN", "RST", "FIN and DISCONNECT"])
@pytest.mark.parametrize("back", [5, 400])
def test_a_port_used_again_with_numbers_below_the_old_ones(end, back, tmp_path):
    """Neither SYN is there: CONNECT begins the new connection, unless it is the old one's once
    more. Without it the bytes that nobody reads are told."""
    one = kit.Talk(isn=(10_000, 50_000)).open().client(kit.connect("one")).broker(kit.connack())
    one.broker(kit.publish("t", b"z" * 500))  # so that both sides' lie behind its SYN
    for k in range(1, 30):
        one.client(kit.publish("a", b"x" * 20, 1, k)).broker(kit.ack(4, k))
    if "DISCONNECT" in end:
        one.client(kit.DISCONNECT)
    if "FIN" in end:
        one.close()
    if end == "RST":
        one.segment(1, flags=kit.RST)
    one.frames.append((one.now, one.frames[3][1]))  # CONNECT once more
    two = kit.Talk(isn=tuple(n - back for n in one.seq), start=one.now + 20 * 10**9).open()
    two.client(kit.connect("two")).broker(kit.connack())
    two.client(kit.publish("b", b"y", 1, 1)).broker(kit.ack(4, 1)).client(kit.DISCONNECT).close()
    said, tables = broken(_and(one, two.frames[3:]), tmp_path)
    assert said == [] and [c["client_id"] for c in tables["connections"]] == ["one", "two"]
    assert tables["connections"][1]["client_packets"] == 3
    if end != "DISCONNECT" and back == 400:
        said, tables = broken(_and(one, two.frames[4:]), tmp_path)
        past = [p["count"] for p in tables["problems"] if p["problem"] == "after the end"]
        assert said == [] and len(past) == 2 and len(tables["connections"]) == 1


def _and(made, frames):
    both = kit.Talk()
    both.frames = made.frames + frames
    return both
