"""Exchanges, violations by statement, keep alive: what each kind of talk gives.

Knows: audit_kit, the statements of MQTT 3.1.1. Must not know: how they are found.
"""

import re
from pathlib import Path

import audit_kit as kit
import mqtt5
import pytest
from mqtt_audit import rules, sources
from mqtt_audit.rules.statements import RULES, statement


def talk(**more):
    """An open MQTT connection."""
    return kit.Talk().open().client(kit.connect(**more)).broker(kit.connack())


def found(made, tmp_path, **more):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path, **more)


def broken(tables):
    return [(v["statement"], v["sender"]) for v in tables["violations"]]


PUB1 = kit.publish("a/b", b"1", 1, 7)
PUB1_DUP = kit.publish("a/b", b"1", 1, 7, dup=True)
PUB2 = kit.publish("a/b", b"2", 2, 8)
STRAY = b"\x30\x07\x00\x03a\xffb21"


def test_a_sound_talk_breaks_nothing(tmp_path):
    made = talk(flags=0xC6, rest=kit.string("w") + kit.string("gone") + kit.string("user")
                + kit.string("a secret"))  # fmt: skip
    made.client(kit.subscribe(1, ("a/#", 2), ("+/b", 0))).broker(kit.suback(1, 2, 0))
    made.client(PUB1).broker(kit.ack(4, 7)).client(PUB2).broker(kit.ack(5, 8))
    made.client(kit.ack(6, 8)).broker(kit.ack(7, 8)).client(kit.PINGREQ).broker(kit.PINGRESP)
    made.client(kit.packet(0xA2, b"\0\x02" + kit.string("a/#"))).broker(kit.ack(11, 2))
    tables = found(made.client(kit.DISCONNECT).close(), tmp_path)
    assert broken(tables) == [] and tables["problems"] == []
    first = tables["packets"][0]
    assert (first["client_id"], first["will_topic"], first["will_length"]) == ("dev1", "w", 4)
    assert first["user_name"] and first["password"] and "secret" not in str(tables)
    assert [f["latency_ms"] for f in tables["flows"]] == [1.0, 3.0]
    assert {f["outcome"] for f in tables["flows"]} == {"acknowledged"}
    asked = [r for r in tables["packets"] if r["filters"]]
    assert asked[0]["filters"] == ["a/#", "+/b"] and asked[0]["qos_list"] == [2, 0]


#: What the client (c) or the broker (b) sends after CONNECT and CONNACK, and what is said of it.
CASES = [
    ("3.1.0-2", [("c", kit.connect())], "client"),
    ("2.2.2-1", [("c", b"\xc1\x00")], "client"),
    ("3.6.1-1", [("c", PUB2), ("b", kit.ack(5, 8)), ("c", b"\x60\x02\x00\x08")], "client"),
    ("3.8.1-1", [("c", b"\x80" + kit.subscribe(1, ("a", 0))[1:])], "client"),
    ("3.10.1-1", [("c", kit.packet(0xA0, b"\0\x01" + kit.string("a")))], "client"),
    ("3.8.3-3", [("c", kit.packet(0x82, b"\0\x01"))], "client"),
    ("3-8.3-4", [("c", kit.subscribe(1, ("a", 3)))], "client"),
    ("3.10.3-2", [("c", kit.packet(0xA2, b"\0\x01"))], "client"),
    ("3.9.3-2", [("c", kit.subscribe(1, ("a", 1))), ("b", kit.suback(1, 3))], "broker"),
    ("3.8.4-5", [("c", kit.subscribe(1, ("a", 1))), ("b", kit.suback(1, 0, 0))], "broker"),
    ("2.3.1-7", [("b", kit.suback(5, 0))], "broker"),
    ("3.3.1-2", [("c", b"\x38\x04\x00\x01a1")], "client"),
    ("3.3.1-4", [("c", b"\x36\x06\x00\x01a\x00\x011")], "client"),
    ("3.3.2-1", [("c", b"\x30\x03\x00\x09a")], "client"),
    ("3.3.2-2", [("c", kit.publish("a/#"))], "client"),
    ("4.7.3-1", [("c", kit.publish(""))], "client"),
    ("4.7.3-2", [("c", kit.publish("a\0b"))], "client"),
    ("1.5.3-1", [("c", STRAY)], "client"),
    ("4.7.1-2", [("c", kit.subscribe(1, ("a/#/b", 0)))], "client"),
    ("4.7.1-3", [("c", kit.subscribe(1, ("a+", 0)))], "client"),
    ("2.3.1-1", [("c", kit.publish("a", b"", 1, 0))], "client"),
    ("2.3.1-2", [("c", PUB1), ("c", kit.publish("a/b", b"other", 1, 7))], "client"),
    ("2.3.1-4", [("b", PUB1), ("b", kit.publish("a/b", b"other", 1, 7))], "broker"),
    ("2.3.1-6", [("b", kit.ack(4, 9))], "broker"),
    ("3.3.1-3", [("b", PUB1_DUP)], "broker"),
    ("3.3.1-1", [("c", PUB1), ("c", PUB1)], "client"),
    ("4.3.2-2", [("c", PUB1), ("b", kit.ack(5, 7))], "broker"),
    ("4.3.3-2", [("c", PUB2), ("b", kit.ack(4, 8))], "broker"),
    ("4.3.3-1", [("c", PUB2), ("b", kit.ack(5, 8)), ("c", kit.ack(6, 8)),
                 ("c", kit.publish("a/b", b"2", 2, 8, dup=True))], "client"),
    ("3.14.4-2", [("c", kit.DISCONNECT), ("c", kit.PINGREQ)], "client"),
]  # fmt: skip


@pytest.mark.parametrize("statement,packets,sender", CASES, ids=[c[0] for c in CASES])
def test_a_violation_is_named(statement, packets, sender, tmp_path):
    made = talk()
    for who, raw in packets:
        made.segment("cb".index(who), raw)
    assert broken(found(made, tmp_path)) == [(f"MQTT-{statement}", sender)]


@pytest.mark.parametrize("level,name", [(4, "MQTT"), (3, "MQIsdp")])
def test_the_broker_answers_connect_once(level, name, tmp_path):
    """Two CONNECT, of which one may be missing, may have two answers."""
    made = kit.Talk().open().client(kit.connect(level=level, name=name)).broker(kit.connack())
    tables = found(made.broker(kit.connack()).client(kit.PINGREQ), tmp_path)
    document = "MQTT 3.1.1" if level == 4 else "MQTT 3.1"
    assert broken(tables) == [(f"{document}, 3.2", "broker")]
    lacks = kit.Talk().open().client(kit.connect(level=level, name=name))
    lacks.broker(kit.connack()).client(kit.connect(level=level, name=name)).broker(kit.connack())
    assert [sender for _, sender in broken(found(lacks, tmp_path))] == ["client"]
    del lacks.frames[5]
    assert broken(found(lacks.client(kit.PINGREQ), tmp_path)) == []


#: CONNECT and CONNACK.
OPENINGS = [
    ("3.1.0-1", [("c", kit.PINGREQ)], "client"),
    ("3.2.0-1", [("c", kit.connect()), ("b", kit.PINGRESP)], "broker"),
    ("3.1.2-1", [("c", kit.connect(name="MQTX"))], "client"),
    ("3.1.2-2", [("c", kit.connect(level=9)), ("b", kit.connack())], "broker"),
    ("3.1.2-3", [("c", kit.connect(flags=3))], "client"),
    ("3.1.2-13", [("c", kit.connect(flags=0x0A))], "client"),
    ("3.1.2-15", [("c", kit.connect(flags=0x22))], "client"),
    ("3.1.2-14", [("c", kit.connect(flags=0x1E, rest=kit.string("w") * 2))], "client"),
    ("3.1.2-22", [("c", kit.connect(flags=0x42, rest=kit.string("p")))], "client"),
    ("3.1.3-1", [("c", kit.connect(flags=0x82))], "client"),
    ("3.1.3-7", [("c", kit.connect("", flags=0))], "client"),
    ("3.2.2-1", [("c", kit.connect()), ("b", kit.connack(0, 1))], "broker"),
    ("3.2.2-4", [("c", kit.connect(flags=0)), ("b", kit.connack(5, 1))], "broker"),
    ("3.2.2-5", [("c", kit.connect()), ("b", kit.connack(5)), ("b", kit.PINGRESP)], "broker"),
    ("3.2.2-6", [("c", kit.connect()), ("b", kit.connack(9))], "broker"),
]


@pytest.mark.parametrize("statement,packets,sender", OPENINGS, ids=[c[0] for c in OPENINGS])
def test_a_violation_at_the_beginning(statement, packets, sender, tmp_path):
    made = kit.Talk().open()
    for who, raw in packets:
        made.segment("cb".index(who), raw)
    assert broken(found(made, tmp_path)) == [(f"MQTT-{statement}", sender)]


def both_ways(made, tmp_path):
    """The violations that tables and lines of JSON have, which are the same."""
    lines = []
    tables = broken(found(made, tmp_path))
    sources.lines([str(tmp_path / "t.pcap")], lambda table, rows: lines.extend(
        rows.to_pylist() if table == "violations" else ()), (1883,))  # fmt: skip
    assert sorted((v["statement"], v["sender"]) for v in lines) == sorted(tables)
    return tables


def opened(level=4, flags=2, present=0):
    made = kit.Talk().open()
    if level == 5:
        return made.client(mqtt5.connect(flags=flags)).broker(mqtt5.connack(present=present))
    name = "MQTT" if level == 4 else "MQIsdp"
    made.client(kit.connect(flags=flags, level=level, name=name))
    return made.broker(kit.connack(0, present))


def _dup_behind_a_hole():
    made = opened()
    made.seq[1] += 20
    return made.broker(PUB1_DUP)


def _dup_of_a_session_from_before():
    made = opened()
    made.frames = made.frames[3:]
    return made.broker(PUB1_DUP)


#: PUBLISH with DUP 1 of the server, and whether it can be no retransmission.
DUPS = {
    "clean session": (lambda: opened().broker(PUB1_DUP), True),
    "QoS 2": (lambda: opened().broker(kit.publish("a", b"2", 2, 8, dup=True)), True),
    "session present 0": (lambda: opened(flags=0).broker(PUB1_DUP), True),
    "MQTT 5": (lambda: opened(5).broker(mqtt5.publish("a", qos=1, ident=7, dup=True)), True),
    "session present": (lambda: opened(flags=0, present=1).broker(PUB1_DUP), False),
    "MQTT 3.1": (lambda: opened(3).broker(PUB1_DUP), False),
    "after another one": (
        lambda: opened().broker(PUB1).client(kit.ack(4, 7)).broker(PUB1_DUP), False),
    "behind a hole": (_dup_behind_a_hole, False),
    "began before": (_dup_of_a_session_from_before, False),
    "the client's": (lambda: opened().client(PUB1_DUP), False),
}  # fmt: skip


@pytest.mark.parametrize("name", DUPS)
def test_a_new_session_has_nothing_to_send_again(name, tmp_path):
    make, told = DUPS[name]
    wanted = [("MQTT-3.3.1-3", "broker")] if told else []
    assert both_ways(make().client(kit.PINGREQ).broker(kit.PINGRESP).close(), tmp_path) == wanted


@pytest.mark.parametrize("name,level,wanted", [
    ("MQTT", 3, "MQTT 3.1, 3.1"), ("MQIsdp", 4, "MQTT 3.1.1, 3.1.2.2"), ("MQTT", 4, None),
    ("MQIsdp", 5, "MQTT 5, 3.1.2.2"), ("MQIsdp", 3, None), ("MQIsdp", 131, None),
    ("MQTT", 132, None)])  # fmt: skip
def test_name_and_level_are_those_of_one_version(name, level, wanted, tmp_path):
    """The client is to write both; a server may take them by what else it knows [MQTT-3.1.2-1]."""
    more = b"\0" if level == 5 else b""
    body = kit.string(name) + bytes([level, 2, 0, 60]) + more + kit.string("dev1")
    answer = kit.packet(0x20, b"\0\0" + more)
    made = kit.Talk().open().client(kit.packet(0x10, body)).broker(answer)
    made.client(kit.DISCONNECT).close()
    assert both_ways(made, tmp_path) == ([(wanted, "client")] if wanted else [])


@pytest.mark.parametrize("raw,what", [
    (kit.packet(0x00), "packet type 0 is reserved"),
    (kit.packet(0xF0), "packet type 15 is reserved"),
    (kit.PINGRESP, "a packet type that only the other side sends")])  # fmt: skip
def test_a_wrong_packet_type_is_told_as_what_it_is(raw, what, tmp_path):
    (one,) = found(talk().client(raw), tmp_path)["violations"]
    assert (one["statement"], one["what"]) == ("MQTT 3.1.1, 2.2.1", what)


@pytest.mark.parametrize("pings", [1, 4])
@pytest.mark.parametrize("name, level, statement", [
    ("MQTT", 4, "MQTT-3.1.4-4"), ("MQIsdp", 3, "MQTT 3.1, 3.2")])  # fmt: skip
def test_one_silence_of_a_server_that_never_answers_has_one_row(name, level, statement, pings,
                                                                tmp_path):  # fmt: skip
    """The client waits for CONNACK; that the server does not close, nor answer PINGREQ, is the
    same fault."""
    made = kit.Talk().open().client(kit.connect(keep_alive=5, name=name, level=level))
    made.segment(1, flags=kit.ACK)
    for _ in range(pings):
        made.wait(60 if pings == 1 else 4.5).segment(1, flags=kit.ACK)
        made.client(kit.PINGREQ).segment(1, flags=kit.ACK)
    made.wait(2).segment(0, flags=kit.FIN | kit.ACK).segment(1, flags=kit.FIN | kit.ACK)
    assert both_ways(made, tmp_path) == [(statement, "broker")]


def test_31_and_the_draft_have_their_own_rules(tmp_path):
    """DUP on SUBSCRIBE and PUBREL is right in 3.1; ids are little-endian in the draft."""
    made = kit.Talk().open().client(kit.connect("d" * 24, name="MQIsdp", level=3))
    made.broker(kit.connack()).client(b"\x8a" + kit.subscribe(1, ("a", 0))[1:])
    draft = kit.Talk(("10.0.0.3", 1)).open().client(kit.connect(name="MQIpdp", level=2))
    draft.broker(kit.connack()).client(kit.publish("a", b"", 1, 0x0700))
    draft.broker(b"\x40\x02\x07\x00")
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped() + draft.wrapped())
    tables = kit.read([path], tmp_path)
    assert broken(tables) == [("MQTT 3.1, 3.1", "client")]  # the client id is too long
    assert [r["packet_id"] for r in tables["packets"] if r["packet_id"]] == [1, 7, 7]
    assert [c["protocol"] for c in tables["connections"]] == ["3.1", "MQIpdp"]


def test_keep_alive(tmp_path):
    made = talk(keep_alive=10)
    made.wait(9).client(kit.PINGREQ).broker(kit.PINGRESP)
    made.wait(12).client(kit.PINGREQ).broker(kit.PINGRESP)
    made.wait(26).client(kit.PINGREQ).broker(b"")
    tables = found(made.wait(11).broker(b"").client(kit.DISCONNECT).close(), tmp_path)
    client, broker = ("MQTT-3.1.2-23", "client"), ("MQTT-3.1.2-24", "broker")
    assert broken(tables) == [client, client, broker, client, ("MQTT-3.12.4-1", "broker")]
    assert [v["keep_alive"] for v in tables["violations"]] == [True] * 4 + [False]
    assert tables["connections"][0]["pings"] == 3
    assert tables["connections"][0]["longest_silence_s"] == pytest.approx(26, abs=0.01)


def test_silence_up_to_the_end_and_a_ping_that_nobody_answered(tmp_path):
    """Up to the last that TCP says of the connection."""
    made = talk(keep_alive=5).client(kit.PINGREQ).segment(1, flags=kit.ACK).wait(30)
    made.segment(0, flags=kit.ACK).segment(1, flags=kit.ACK)
    assert sorted(broken(found(made, tmp_path))) == [
        ("MQTT-3.1.2-23", "client"), ("MQTT-3.1.2-24", "broker"), ("MQTT-3.12.4-1", "broker")
    ]  # fmt: skip


@pytest.mark.parametrize("after,silent,said", [
    ([(0, kit.RST | kit.ACK)], 4.3, "c"),
    ([(0, kit.RST)], 4.3, ""),
    ([(1, kit.ACK), (0, kit.RST | kit.ACK)], 12.3, "b"),
    ([(0, kit.FIN | kit.ACK), (1, kit.FIN | kit.ACK)], 12.3, "cb"),
    ([(1, kit.FIN | kit.ACK), (0, kit.FIN | kit.ACK)], 12.3, "cb"),
    ([(1, kit.FIN | kit.ACK), (0, kit.FIN | kit.ACK)], 11.3, "c"),
    ([(1, kit.RST)], 12.3, "b"),
    ([(1, kit.FIN | kit.ACK), None, (0, kit.FIN | kit.ACK)], 1.7, "c"),
    ([(1, kit.FIN | kit.ACK), (0, kit.RST | kit.ACK)], 1.7, ""),
    ([(1, kit.FIN | kit.ACK), (0, kit.RST)], 1.7, ""),
    ([(0, kit.FIN | kit.ACK), None, (1, kit.RST)], 0.9, ""),
], ids="rst rst-answers rst-of-both fin broker-fin fin-sent-again broker-rst broker-in-time "
       "answered-by-rst answered-by-bare-rst client-in-time".split())  # fmt: skip
def test_silence_up_to_the_close_counts(after, silent, said, tmp_path):
    """Up to the first FIN or RST: the broker has to close, the other side may take its time. Who
    shows no sign of life may be out of reach; a broker's FIN may have been lost at first. A RST
    that may answer a segment of the broker is of a client that was gone before."""
    made = talk(keep_alive=1).wait(silent)
    for step in after:
        made = made.segment(step[0], flags=step[1]) if step else made.wait(30)
    tables = found(made, tmp_path)
    sides = {"c": ("MQTT-3.1.2-23", "client"), "b": ("MQTT-3.1.2-24", "broker")}
    assert broken(tables) == [sides[one] for one in said]
    assert tables["connections"][0]["longest_silence_s"] == pytest.approx(silent, abs=0.01)


def test_a_client_in_the_middle_of_a_packet_is_not_silent(tmp_path):
    made = talk(keep_alive=1)
    for k in range(4):
        made.wait(1).client(kit.publish("a", bytes(90))[20 * k : 20 * k + 20])
    assert broken(found(made.segment(0, flags=kit.RST), tmp_path)) == []


@pytest.mark.parametrize("longer,said", [(7, 0), (9, 1), (18, 2)])
def test_what_is_still_open_is_followed_to_its_last_segment(longer, said, tmp_path):
    """Not to the end of the file; and one and a half times the keep alive must be over."""
    idle = talk(keep_alive=5).wait(longer).segment(0, flags=kit.ACK).segment(1, flags=kit.ACK)
    other = kit.Talk(("10.0.0.9", 9), start=idle.now).wait(60).open()
    path = kit.pcap(tmp_path / "t.pcap", idle.wrapped() + other.wrapped())
    assert len(broken(kit.read([path], tmp_path))) == said


def test_retransmissions_and_what_is_never_acknowledged(tmp_path):
    made = talk().client(PUB1).client(PUB1_DUP).client(PUB1_DUP).broker(kit.ack(4, 7))
    made.client(kit.publish("a/c", b"", 1, 9)).client(kit.publish("a/d", b"", 2, 10))
    made.broker(kit.ack(5, 10))
    flows = sorted(found(made, tmp_path)["flows"], key=lambda f: f["packet_id"])
    assert [(f["outcome"], f["sent"], f["with_dup"], f["without_dup"]) for f in flows] == [
        ("acknowledged", 3, 2, 0), ("open", 1, 0, 0), ("open", 1, 0, 0)]  # fmt: skip
    assert flows[2]["received"] and not flows[2]["done"]
    assert [f["topic"] for f in flows] == ["a/b", "a/c", "a/d"]


def test_an_id_used_again_in_flight(tmp_path):
    made = talk().client(PUB1).client(kit.publish("a/b", b"other", 1, 7)).broker(kit.ack(4, 7))
    flows = found(made, tmp_path)["flows"]
    assert sorted(f["outcome"] for f in flows) == ["acknowledged", "id reused"]


def test_an_answer_that_the_capture_has_first(tmp_path):
    """The acknowledgement was captured before the message: no violation, no open exchange."""
    made = talk()
    at = made.seq[0]
    made.seq[0] += len(PUB1)
    made.broker(kit.ack(4, 7)).segment(0, PUB1, seq=at)
    tables = found(made, tmp_path)
    assert broken(tables) == [] and tables["flows"][0]["outcome"] == "acknowledged"


def test_a_second_connect_does_not_rename_its_connection(tmp_path):
    made = kit.Talk().open().client(kit.connect("first")).broker(kit.connack())
    made.client(kit.connect("second")).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [(v["statement"], v["client_id"]) for v in found["violations"]] == [
        ("MQTT-3.1.0-2", "first")]  # fmt: skip
    assert [c["client_id"] for c in found["connections"]] == ["first"]


def _listed(page, begin, end):
    """First cells of the tables between two headings."""
    part = page.partition(f"{begin}\n")[2].partition(f"\n{end}")[0]
    return " ".join(line.split("|")[1] for line in part.splitlines() if line.startswith("| "))


def test_the_page_of_statements_lists_those_of_311_and_31():
    page = (Path(rules.__file__).parents[1] / "STATEMENTS.md").read_text()
    said = [{statement(code, level, kind, way) for code in RULES for kind in range(1, 16)
             for way in (0, 1)} - {None} for level in (4, 3)]  # fmt: skip
    listed = re.findall(r"\d+[.-]\d+\.\d+-\d+",
                        _listed(page, "### Checked in 3.1.1", "### Not checked"))  # fmt: skip
    assert len(set(listed)) == len(listed)
    assert {f"MQTT-{s}" for s in listed} == {s for s in said[0] if s.startswith("MQTT-")}
    unnumbered = page.partition("Rules without a number name")[2].partition("\n\n")[0]
    assert set(re.findall(r"\d+(?:\.\d+)+", unnumbered)) == {
        s.rpartition(" ")[2] for s in said[0] if s.startswith("MQTT 3.1.1,")}  # fmt: skip
    sections = _listed(page, "## MQTT 3.1", "nothing behind it").replace(",", " ").split()
    assert {f"MQTT 3.1, {s}" for s in sections if s != "section"} == said[1]
