"""What only looks like MQTT, on a port that nobody named: a server that sends back what it gets.
It is accused of nothing, and a real broker there is found as before.

Knows: audit_kit, audit_traffic, damages. Must not know: what is taken for evidence.
"""

import random

import audit_kit as kit
import audit_traffic as traffic
import damages
import mqtt5
import pytest

PORT = 17_501
ODD = ("10.0.0.1", PORT)
SAID = [kit.connect("dev1"), kit.subscribe(1, ("a/#", 1)), *(
    kit.publish("a/b", b"x" * k, 1, k) for k in range(2, 6)), kit.PINGREQ, kit.ack(4, 7),
    *(kit.publish("a/b", b"y" * k, 1, 3) for k in range(2, 6)), kit.PINGREQ,
    kit.DISCONNECT]  # fmt: skip


def read(frames, tmp_path, **more):
    return kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path, **more)


def as_lines(tmp_path, table):
    from mqtt_audit import sources

    told = []
    sources.lines([str(tmp_path / "t.pcap")], lambda name, rows: told.extend(
        rows.to_pylist() if name == table else []), (1883,))  # fmt: skip
    return told


def echo(said, begun=True, cut=None):
    """Each answered by itself, in pieces of `cut` bytes."""
    made = kit.Talk(broker=ODD)
    made = made.open() if begun else made
    for raw in said:
        made.client(raw)
        for at in range(0, len(raw), cut or len(raw)):
            made.broker(raw[at : at + (cut or len(raw))])
    return made.close()


@pytest.mark.parametrize("cut", [None, 1, 3])
@pytest.mark.parametrize("said", [SAID, [mqtt5.connect(), *SAID[1:]]], ids=["3.1.1", "5"])
def test_a_server_that_sends_back_what_it_gets_is_no_broker(said, cut, tmp_path):
    made = echo(said, cut=cut)
    found = read(made.wrapped(), tmp_path)
    assert found["violations"] == [] and as_lines(tmp_path, "violations") == []
    assert [p["sender"] for p in found["packets"]] == ["client"]
    [row] = found["connections"]
    assert row["why"] == "the server sends back what a client sends"
    assert {(p["problem"], p["sender"]) for p in found["problems"]} == {("not MQTT", "broker")}
    [told] = kit.findings(made.wrapped(), tmp_path)
    assert (told["finding"], told["broker"]) == ("no broker", f"10.0.0.1:{PORT}")


def test_all_at_once_before_the_answer(tmp_path):
    """What the client had sent until then is not held against it either."""
    made = kit.Talk(broker=ODD).open()
    for raw in SAID:
        made.client(raw)
    found = read(made.broker(b"".join(SAID)).close().wrapped(), tmp_path)
    assert found["violations"] == []


def test_who_begins_with_something_else_than_connect_speaks_no_mqtt(tmp_path):
    """The SYN is there; the server sends it back, or acknowledges it, or says nothing."""
    for answer in (lambda raw: raw, lambda raw: kit.ack(4, 1), lambda raw: b""):
        made = kit.Talk(broker=ODD).open()
        for raw in SAID[2:]:
            made.client(raw)
            if answer(raw):
                made.broker(answer(raw))
        found = read(made.close().wrapped(), tmp_path)
        assert found["connections"] == found["packets"] == []


@pytest.mark.parametrize("first", range(1, len(SAID)))
def test_who_sends_back_a_part_of_it_is_accused_of_nothing(first, tmp_path):
    made = kit.Talk(broker=ODD).open()
    for raw in SAID:
        made.client(raw)
    for raw in SAID[first:]:
        made.broker(raw)
    found = read(made.close().wrapped(), tmp_path)
    assert found["violations"] == []


@pytest.mark.parametrize("side", ["client", "broker"])
def test_one_direction_of_it(side, tmp_path):
    """Of the client's nothing tells it from MQTT; it is right."""
    frames = [f for f in echo(SAID[:6]).wrapped() if (f[1][26:30] == b"\x0a\0\0\1") == (
        side == "broker")]  # fmt: skip
    found = read(frames, tmp_path)
    assert found["violations"] == []


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_capture_of_it(seed, tmp_path):
    choice = random.Random(seed)
    said = [raw for way, raw in traffic.spoken(choice) if way == 0]
    frames = echo(said, choice.random() < 0.7, choice.choice((None, None, 3, 500))).wrapped()
    frames = choice.choice(damages.FRAMES + traffic.DAMAGE)(frames, choice) or frames
    assert told(read(frames, tmp_path)) == []


def told(found):
    return [(v["sender"], v["statement"], v["what"], v["frame"]) for v in found["violations"]]


# Real brokers there.


@pytest.mark.parametrize("side", ["both", "client", "broker"])
def test_a_broker_is_found_also_if_the_capture_has_one_side(side, tmp_path):
    made = kit.Talk(broker=ODD).open().client(kit.connect()).broker(kit.connack())
    made.client(kit.publish("a", b"x", 1, 1)).broker(kit.ack(4, 1)).client(kit.PINGREQ)
    frames = made.broker(kit.PINGRESP).client(kit.DISCONNECT).close().wrapped()
    frames = [f for f in frames if side == "both" or (
        f[1][26:30] == b"\x0a\0\0\1") == (side == "broker")]  # fmt: skip
    found = read(frames, tmp_path)
    if side == "broker":  # too few packets of its side
        assert found["connections"] == []
        return
    [row] = found["connections"]
    assert (row["client_id"], row["broker"]) == ("dev1", f"10.0.0.1:{PORT}")
    assert row["unseen"] == (None if side == "both" else "broker") and told(found) == []


WRONG = {
    "PUBLISH before CONNACK": (kit.publish("a") + kit.connack(), "MQTT-3.2.0-1"),
    "SUBSCRIBE": (kit.connack() + kit.subscribe(1, ("a", 0)), "MQTT 3.1.1, 2.2.1"),
    "PINGREQ behind SUBACK": (kit.connack() + kit.suback(1, 0) + kit.PINGREQ,
                              "MQTT 3.1.1, 2.2.1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_broker_there_does_wrong_is_told(name, tmp_path):
    raw, statement = WRONG[name]
    made = kit.Talk(broker=ODD).open().client(kit.connect() + kit.subscribe(1, ("a", 0)))
    found = read(made.broker(raw).close().wrapped(), tmp_path)
    assert statement in [v["statement"] for v in found["violations"] if v["sender"] == "broker"]


def test_who_begins_with_something_else_at_a_known_broker_breaks_a_rule(tmp_path):
    one = kit.Talk(broker=ODD).open().client(kit.connect()).broker(kit.connack()).close()
    two = kit.Talk(("10.0.0.3", 40_001), ODD, start=one.now).open()
    two.client(kit.publish("a")).segment(1, flags=kit.FIN | kit.ACK)
    found = read(one.wrapped() + two.wrapped(), tmp_path)
    assert [s for _, s, *_ in told(found)] == ["MQTT-3.1.0-1"]


def test_the_end_with_the_higher_port_may_be_the_broker(tmp_path):
    """Both send PUBLISH, and only later what shows who is the client."""
    for begun in (True, False):
        made = kit.Talk(("10.0.0.2", 1_024), ("10.0.0.1", 50_000))
        if begun:
            made = made.open()
            made.seq = [made.seq[0] + 20, made.seq[1] + 4]  # CONNECT and CONNACK are missing
        for k in range(1, 5):
            made.client(kit.publish("a/b", b"x", 1, k)).broker(kit.ack(4, k))
            made.broker(kit.publish("a/c", b"z", 1, k)).client(kit.ack(4, k))
        for _ in range(12):
            made.client(kit.PINGREQ).broker(kit.PINGRESP)
        found = read(made.close().wrapped(), tmp_path)
        assert told(found) == []
        assert len(found["connections"]) == 1


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_capture_of_a_broker_there(seed, tmp_path):
    choice = random.Random(seed)
    frames = traffic.sound(choice, PORT)
    frames = choice.choice(damages.FRAMES + traffic.DAMAGE)(frames, choice) or frames
    assert told(read(frames, tmp_path)) == []
