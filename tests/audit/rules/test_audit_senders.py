"""What a client or a broker must not send: each is told of the one who did it, and only if the
capture shows it for sure.

Knows: audit_kit, the statements of MQTT 3.1.1 and 5. Must not know: how they are found.
"""

import socket
import time

import audit_kit as kit
import mqtt5
import pytest
from devices import Device, as_lines, told
from mqtt5 import ack, five, prop, props
from pipeline_kit import wait_for

PUB2, DUP2 = (kit.publish("a", b"x", 2, 7, dup=dup) for dup in (False, True))
REC, REL, COMP = (kit.ack(kind, 7) for kind in (5, 6, 7))
REL9 = kit.ack(6, 9)


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


def broken(made, tmp_path):
    return [(v["statement"], v["sender"]) for v in read(made, tmp_path)["violations"]]


def talk(level=4, flags=2, present=0, items=(), **more):
    if level == 5:
        made = kit.Talk().open().client(mqtt5.connect(*items, flags=flags, **more))
        return made.broker(mqtt5.connack(present=present))
    made = kit.Talk().open().client(kit.connect(flags=flags, **more))
    return made.broker(kit.connack(present=present))


# PUBREL of nothing.


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("level,wanted", [(4, "MQTT-2.3.1-6"), (5, "MQTT-2.2.1-5")])
def test_a_pubrel_of_a_message_that_was_never_sent(level, wanted, way, tmp_path):
    made = talk(level).segment(way, REL9).segment(1 - way, kit.ack(7, 9))
    assert broken(made, tmp_path) == [(wanted, ("client", "broker")[way])]


NO_FAULT = {
    "a session that goes on": lambda: talk(flags=0, present=1).client(REL9),
    "a session that the broker lost": lambda: talk(flags=0).client(REL9),
    "PUBREL again, in 3.1.1": lambda: talk().client(PUB2).broker(REC).client(REL).broker(
        COMP).client(REL).broker(COMP),
    "its PUBLISH is missing": lambda: _without(5),
    "the beginning is missing": lambda: _without(*range(3)),
}  # fmt: skip


def _without(*gone):
    made = talk().client(PUB2).client(kit.PINGREQ).broker(REC).client(REL).broker(COMP)
    made.frames = [f for k, f in enumerate(made.frames) if k not in gone]
    return made


@pytest.mark.parametrize("name", NO_FAULT)
def test_a_pubrel_may_be_of_what_the_capture_lacks_or_of_a_session_before(name, tmp_path):
    assert broken(NO_FAULT[name](), tmp_path) == []


# PUBLISH after PUBREL, on the next connection.


def _again(device, second, left=REC, lost=b"", present=1, way=0, level=4):
    """A message is released, and sent again on the next connection."""
    made = device.open(0, level=level).segment(way, PUB2)
    made = made.segment(1 - way, left) if left else made
    made.segment(way, REL)
    made.seq[1 - way] += len(lost)
    device.over(made)
    made = device.open(present, level=level).segment(way, second)
    device.over(made.segment(1 - way, REC).segment(way, REL).segment(1 - way, COMP))


@pytest.mark.parametrize("way", [0, 1])
def test_a_publish_after_its_pubrel_on_the_next_connection(way, tmp_path):
    from mqtt_audit import run

    device = Device("resumes", kit.START)
    _again(device, DUP2, way=way)
    frames = [(t, kit.ethernet(f)) for made in device.talks for t, f in made.frames]
    path = kit.pcap(tmp_path / "t.pcap", frames)
    run.build(None, [path], tmp_path / "out")
    found = as_lines(tmp_path / "out")
    assert [v["statement"] for v in found] == ["MQTT-4.3.3-1"]
    assert found[0]["sender"] == ("client", "broker")[way]
    assert found[0]["what"] == "PUBLISH with packet id 7 sent again after its PUBREL"
    import pyarrow.parquet as pq

    assert told(pq.read_table(tmp_path / "out" / "violations").to_pylist()) == told(found)


RESUMED = {
    "PUBREL again": lambda d: _again(d, REL),
    "a new message": lambda d: _again(d, kit.publish("b", b"y", 2, 7)),
    "PUBCOMP is missing": lambda d: _again(d, DUP2, lost=COMP),
    "no session": lambda d: _again(d, DUP2, present=0),
    "3.1": lambda d: _again(d, DUP2, present=0, level=3),
}


@pytest.mark.parametrize("name", RESUMED)
def test_what_may_be_sent_after_a_pubrel_on_the_next_connection(name, tmp_path):
    from mqtt_audit import run

    device = Device("resumes", kit.START)
    RESUMED[name](device)
    frames = [(t, kit.ethernet(f)) for made in device.talks for t, f in made.frames]
    run.build(None, [kit.pcap(tmp_path / "t.pcap", frames)], tmp_path / "out")
    assert [v["statement"] for v in as_lines(tmp_path / "out")] == []


# Remaining Length.

FIVE_BYTES = b"\x30\xff\xff\xff\xff\x01"


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("level,wanted", [(4, "MQTT 3.1.1, 2.2.3"), (5, "MQTT 5, 2.1.4")])
def test_a_remaining_length_of_five_bytes_is_its_senders_fault(level, wanted, way, tmp_path):
    found = read(talk(level).segment(way, FIVE_BYTES), tmp_path)
    assert [(v["statement"], v["sender"], v["type"], v["frame"]) for v in found["violations"]] == [
        (wanted, ("client", "broker")[way], "PUBLISH", 6)]  # fmt: skip
    assert "length" not in {p["problem"] for p in found["problems"]}


def test_behind_missing_bytes_it_is_a_problem_of_the_capture(tmp_path):
    made = talk().client(kit.publish("a", b"x" * 50))
    for _ in range(20):
        made.wait(1).client(kit.PINGREQ).broker(kit.PINGRESP)
    del made.frames[5]
    found = read(made.client(FIVE_BYTES), tmp_path)
    assert found["violations"] == []
    assert {"loss", "length"} <= {p["problem"] for p in found["problems"]}


# Reason codes and properties of one side.

SIDES = {
    "session taken over": ("c", five(0xE0, b"\x8e"), "-3.14.2-1"),
    "shutting down": ("c", five(0xE0, b"\x8b"), "-3.14.2-1"),
    "wildcards": ("c", five(0xE0, b"\xa2"), "-3.14.2-1"),
    "with will": ("b", five(0xE0, b"\4"), "-3.14.2-1"),
    "Server Reference": ("c", five(0xE0, b"\0", props(prop(0x1C, kit.string("other")))),
                         " 5, 3.14.2.2.5"),
    "quota, of the client": ("c", five(0xE0, b"\x97"), None),
    "quota, of the server": ("b", five(0xE0, b"\x97"), None),
    "malformed packet": ("c", five(0xE0, b"\x81"), None),
    "use another server": ("b", five(0xE0, b"\x9c", props(prop(0x1C, kit.string("other")))), None),
    "normal": ("c", five(0xE0, b"\0"), None),
    "normal, of the server": ("b", five(0xE0, b"\0"), None),
    "client with will": ("c", five(0xE0, b"\4"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", SIDES)
def test_a_disconnect_has_the_reason_codes_of_its_side(name, tmp_path):
    who, raw, wanted = SIDES[name]
    made = talk(5).segment("cb".index(who), raw).close()
    sender = ("client", "broker")["cb".index(who)]
    assert broken(made, tmp_path) == ([(f"MQTT{wanted}", sender)] if wanted else [])


@pytest.mark.parametrize("code,way,wanted", [(0, 1, None), (24, 0, None), (24, 1, None),
                                             (25, 0, None), (25, 1, "broker"), (0, 0, "client")])
def test_auth_has_the_reason_codes_of_its_side(code, way, wanted, tmp_path):  # fmt: skip
    method = prop(0x15, kit.string("SCRAM"))
    made = kit.Talk().open().client(mqtt5.connect(method)).broker(mqtt5.connack(method))
    made.segment(way, five(0xF0, bytes([code]), props(method)))
    assert broken(made, tmp_path) == ([("MQTT-3.15.2-1", wanted)] if wanted else [])


def test_auth_without_a_byte_is_reason_code_0_without_a_method(tmp_path):
    """MQTT 5, 3.15.2.1: only the server may send it; and the method must be there."""
    method = prop(0x15, kit.string("SCRAM"))
    for way, more in ((0, [("MQTT-3.15.2-1", "client")]), (1, [])):
        made = kit.Talk().open().client(mqtt5.connect(method)).broker(mqtt5.connack(method))
        told = broken(made.segment(way, b"\xf0\0"), tmp_path)
        assert told == [*more, ("MQTT-4.12.0-5", ("client", "broker")[way])]


def test_a_connack_that_refuses_needs_no_method(tmp_path):
    made = kit.Talk().open().client(mqtt5.connect(prop(0x15, kit.string("SCRAM"))))
    assert broken(made.broker(mqtt5.connack(code=0x8C)), tmp_path) == []


@pytest.mark.parametrize("topic,wanted", [
    ("$share", None), ("$shared/a", None), ("$share/", "4.8.2-1"), ("$share//a", "4.8.2-1"),
    ("$share/x", "4.8.2-2"), ("$share/x/a", None)])  # fmt: skip
def test_what_begins_with_share_and_a_slash_is_a_shared_subscription(topic, wanted, tmp_path):
    made = talk(5).client(mqtt5.subscribe(3, (topic, 0))).broker(mqtt5.answer(9, 3, 0))
    assert broken(made, tmp_path) == ([(f"MQTT-{wanted}", "client")] if wanted else [])


def test_no_local_on_a_filter_that_is_not_shared(tmp_path):
    made = talk(5).client(mqtt5.subscribe(3, ("$share", 4))).broker(mqtt5.answer(9, 3, 0))
    assert broken(made, tmp_path) == []


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("level,wanted", [(4, None), (5, "MQTT-4.4.0-1")])
def test_a_second_pubrec_of_one_publish(level, wanted, way, tmp_path):
    """MQTT 5 forbids it; 3.1.1 says nothing about it."""
    message = mqtt5.publish("a", qos=2, ident=7) if level == 5 else PUB2
    made = talk(level).segment(way, message).segment(1 - way, REC).segment(1 - way, REC)
    made.segment(way, REL).segment(1 - way, COMP)
    assert broken(made, tmp_path) == ([(wanted, ("broker", "client")[way])] if wanted else [])


def test_a_second_pubrec_of_a_publish_that_came_twice_or_may_have(tmp_path):
    first, again = (mqtt5.publish("a", qos=2, ident=7, dup=dup) for dup in (False, True))
    made = talk(5).broker(first).broker(again).client(REC).client(REC)
    made.broker(REL).client(COMP)
    assert broken(made, tmp_path) == [("MQTT-4.4.0-1", "broker")]  # for PUBLISH
    made = talk(5).client(first).broker(REC).client(REL).broker(COMP).client(first).broker(REC)
    for gone in ((7, 8), (7, 8, 9), (8, 9), (9,)):
        frames = [f for k, f in enumerate(made.wrapped()) if k not in gone]
        found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
        assert found["violations"] == [], gone


# Silent clients.


def looked(silent, keep_alive, period):
    """When a broker closes that looks for silent clients every `period` seconds, as mosquitto
    2.0 does by whole seconds: the client was silent from second `silent` of a period on."""
    limit = keep_alive * 3 // 2
    now = period
    while now - int(silent) <= limit:
        now += period
    return now - silent


@pytest.mark.parametrize("keep_alive", [*range(1, 11), 60, 600])
def test_a_broker_that_looks_for_silent_clients_now_and_then_is_not_late(keep_alive, tmp_path):
    """mosquitto looks every 6 s, RabbitMQ and VerneMQ every 3/4 of the keep alive, EMQX every
    half. Two seconds later it is late."""
    waits = [looked(k / 4, keep_alive, 6) for k in range(24)]
    waits += [2.25 * keep_alive, 2 * keep_alive]
    frames, ends = [], []
    for k, wait in enumerate([*waits, max(1.5 * keep_alive + 12, 2.25 * keep_alive + 2)]):
        made = kit.Talk(("10.0.0.2", 2000 + k), start=kit.START + k * 10**7).open()
        made.client(kit.connect(f"dev{k}", keep_alive)).broker(kit.connack())
        made.segment(0, flags=kit.ACK).client(kit.PINGREQ).broker(kit.PINGRESP)
        made.segment(0, flags=kit.ACK).wait(wait)
        made.segment(1, flags=kit.FIN | kit.ACK).segment(0, flags=kit.FIN | kit.ACK)
        frames += made.segment(1, flags=kit.ACK).wrapped()
        ends.append(f"dev{k}")
    path = kit.pcap(tmp_path / "t.pcap", sorted(frames, key=lambda f: f[0]))
    late = [v for v in kit.read([path], tmp_path)["violations"] if v["sender"] == "broker"]
    assert [(v["statement"], v["client_id"]) for v in late] == [("MQTT-3.1.2-24", ends[-1])]


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_a_real_mosquitto_is_not_late(broker, tmp_path):
    """Clients with a keep alive of 1 to 4 s that say nothing more, each from another instant
    on; every one of them is silent for too long."""
    tap = kit.Tap(broker.port)
    ends = []
    for k in range(8):
        ends.append(socket.create_connection(("127.0.0.1", tap.port)))
        ends[-1].sendall(kit.connect(f"dev{k}", 1 + k // 2))
        ends[-1].settimeout(60)
        time.sleep(0.3)
    for end in ends:
        with end:
            assert end.recv(9) == kit.connack() and end.recv(9) == b""
    wait_for(tap.idle, what="the end of all connections")
    tap.stop()
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    found = kit.read([path], tmp_path, ports=(broker.port,))["violations"]
    assert [v for v in found if v["sender"] == "broker"] == []
    assert len([v for v in found if v["sender"] == "client"]) == 8


def test_only_the_server_knows_that_there_are_no_subscribers(tmp_path):
    """MQTT 5, 3.4.2.1: 0x10."""
    for way, wanted in ((0, [("MQTT-3.4.2-1", "client")]), (1, [])):
        made = talk(5).segment(1 - way, mqtt5.publish("a", qos=1, ident=3))
        assert broken(made.segment(way, ack(4, 3, 16)), tmp_path) == wanted


# Texts.


def test_an_empty_response_topic(tmp_path):
    made = talk(5).client(mqtt5.publish("a", prop(8, kit.string(""))))
    assert broken(made, tmp_path) == [("MQTT-4.7.3-1", "client")]


TEXT, DATA = prop(1, b"\1"), prop(1, b"\0")
LONG = "ä".encode() * 3000


@pytest.mark.parametrize("item,payload,wrong", [
    (TEXT, b"\xff\xfe", True), (DATA, b"\xff\xfe", False), (TEXT, "ä\0b".encode(), False),
    (TEXT, "ä".encode()[:1], True), (TEXT, b"", False), (TEXT, LONG, False),
    (TEXT, b"\xff" + LONG, True),
])  # fmt: skip
@pytest.mark.parametrize("pieces", [False, True])
def test_a_payload_is_the_text_that_it_is_said_to_be(item, payload, wrong, pieces, tmp_path):
    raw = mqtt5.publish("a", item, payload=payload)
    made = talk(5)
    for at in range(0, len(raw), 1000 if pieces else len(raw)):
        made.client(raw[at : at + (1000 if pieces else len(raw))])
    wanted = [("MQTT 5, 3.3.2.3.2", "client")] if wrong else []
    assert broken(made.client(kit.PINGREQ), tmp_path) == wanted


def test_a_payload_of_which_bytes_are_missing_is_judged_up_to_them(tmp_path):
    for payload, wanted in ((LONG, []), (b"\xff" + LONG, [("MQTT 5, 3.3.2.3.2", "client")])):
        raw = mqtt5.publish("a", TEXT, payload=payload)
        made = talk(5)
        for at in range(0, len(raw), 1001):
            made.client(raw[at : at + 1001])
        del made.frames[7]
        assert broken(made.client(kit.PINGREQ), tmp_path) == wanted


def test_a_will_is_the_text_that_it_is_said_to_be(tmp_path):
    for payload, wanted in (("ä".encode(), []), (b"\xff", [("MQTT 5, 3.1.3.2.3", "client")])):
        will = props(TEXT) + kit.string("w") + kit.string(payload)
        assert broken(talk(5, flags=6, rest=will), tmp_path) == wanted


# CONNACK.


def test_reserved_bits_of_connack(tmp_path):
    for level, name, wanted in ((4, "MQTT", [("MQTT 3.1.1, 3.2.2.1", "broker")]),
                                (3, "MQIsdp", [])):  # fmt: skip
        made = kit.Talk().open().client(kit.connect(level=level, name=name, flags=0))
        assert broken(made.broker(kit.connack(present=2)), tmp_path) == wanted


def test_a_client_without_an_id_must_not_be_accepted_with_an_old_session(tmp_path):
    client = ("MQTT-3.1.3-7", "client")
    for flags, code, wanted in ((0, 0, [client, ("MQTT-3.1.3-8", "broker")]), (0, 2, [client]),
                                (2, 0, [])):  # fmt: skip
        made = kit.Talk().open().client(kit.connect("", flags=flags)).broker(kit.connack(code))
        assert broken(made, tmp_path) == wanted


def test_a_connack_of_one_byte_is_read(tmp_path):
    made = kit.Talk().open().client(kit.connect()).broker(kit.packet(0x20, b"\1"))
    assert broken(made, tmp_path) == [("MQTT 3.1.1, 2.2.3", "broker")]


# Words.


def test_a_broker_that_closes_too_late_is_told_when_it_closed(tmp_path):
    made = talk(keep_alive=4).client(kit.publish("a")).segment(1, flags=kit.ACK).wait(16.8)
    made.segment(1, flags=kit.FIN | kit.ACK).segment(0, flags=kit.FIN | kit.ACK)
    said = {v["statement"]: v["what"] for v in read(made, tmp_path)["violations"]}
    assert said["MQTT-3.1.2-24"] == ("closed after 16.8 s without a packet, limit 6 s (one and a "
                                     "half times the keep alive)")  # fmt: skip
    made = talk(keep_alive=4).client(kit.publish("a")).segment(1, flags=kit.ACK).wait(16.8)
    made.segment(0, flags=kit.FIN | kit.ACK).segment(1, flags=kit.ACK)
    made.segment(1, flags=kit.RST | kit.ACK)
    said = {v["statement"]: v["what"] for v in read(made, tmp_path)["violations"]}
    assert said["MQTT-3.1.2-24"].endswith("and still connected")


@pytest.mark.parametrize("level", [4, 5])
def test_before_mqtt_5_there_is_no_auth(level, tmp_path):
    found = read(talk(level).client(b"\xf0\0"), tmp_path)
    name = "AUTH" if level == 5 else "RESERVED"
    assert [p["type"] for p in found["packets"]][2:] == [name]
    assert {v["type"] for v in found["violations"]} == {name}
    assert name in {t["type"] for t in found["timeline"]}


# What only the other side sends is that one violation, and says nothing about the connection.

STRAY = {4: [("MQTT 3.1.1, 2.2.1", "client")], 5: [("MQTT 5, 2.1.2", "client")]}
STRAYS = {
    "CONNACK": lambda level, made: made.client(_connack(level)),
    "CONNACK that refuses": lambda level, made: made.client(_connack(level, code=135)),
    "CONNACK with a session": lambda level, made: made.client(_connack(level, present=1)),
    "PINGRESP": lambda level, made: made.client(kit.PINGRESP),
}  # fmt: skip


def _connack(level, code=0, present=0):
    if level == 5:
        return mqtt5.connack(code=code, present=present)
    return kit.connack(min(code, 5), present)


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("name", STRAYS)
def test_what_a_client_must_not_send_is_nothing_of_the_broker(name, level, tmp_path):
    connect = mqtt5.connect() if level == 5 else kit.connect()
    made = STRAYS[name](level, kit.Talk().open().client(connect)).broker(_connack(level))
    publish = mqtt5.publish("a", qos=1, ident=7) if level == 5 else kit.publish("a", b"x", 1, 7)
    made.client(publish)
    made.broker(kit.ack(4, 7)).client(kit.PINGREQ).broker(kit.PINGRESP)
    assert broken(made, tmp_path) == STRAY[level]


def test_a_connect_of_the_broker_changes_no_keep_alive(tmp_path):
    made = talk(keep_alive=60).broker(kit.connect("other", keep_alive=3)).wait(20)
    made.client(kit.PINGREQ).broker(kit.PINGRESP)
    told = read(made, tmp_path)
    assert [(v["statement"], v["sender"]) for v in told["violations"]] == [
        ("MQTT 3.1.1, 2.2.1", "broker")]  # fmt: skip
    assert [c["client_id"] for c in told["connections"]] == ["dev1"]


def test_a_client_does_not_answer_its_own_pingreq(tmp_path):
    made = talk(keep_alive=10).client(kit.PINGREQ + kit.PINGRESP)
    for _ in range(4):
        made.segment(1, flags=kit.ACK).wait(8).client(kit.publish("a", b"x"))
    assert ("MQTT-3.12.4-1", "broker") in broken(made.segment(1, flags=kit.ACK), tmp_path)


def test_a_disconnect_of_a_broker_that_must_not_send_one_is_not_why_it_ended(tmp_path):
    made = talk().broker(kit.DISCONNECT).client(kit.publish("a")).client(kit.DISCONNECT).close()
    told = read(made, tmp_path)
    assert [v["statement"] for v in told["violations"]] == ["MQTT 3.1.1, 2.2.1"]
    assert [c["why"] for c in told["connections"]] == ["client sent DISCONNECT"]
