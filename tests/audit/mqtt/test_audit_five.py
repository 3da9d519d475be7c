"""MQTT 5: every packet type and property, topic aliases, limits, its own statements.

Knows: audit_kit, the statements of MQTT 5. Must not know: how they are found.
"""

import re
from pathlib import Path

import audit_kit as kit
import pytest
from mqtt5 import (
    ack,
    alias,
    answer,
    connack,
    connect,
    five,
    number,
    prop,
    props,
    publish,
    subscribe,
)
from mqtt_audit import rules
from mqtt_audit.rules.statements import RULES, statement


def talk(sent=(), received=()):
    """An open connection; properties of CONNECT and of CONNACK."""
    return kit.Talk().open().client(connect(*sent)).broker(connack(*received))


def said(made, packets):
    for who, raw in packets:
        made.segment("cb".index(who), raw)
    return made


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


USER = prop(0x26, kit.string("k") + kit.string("v"))
TEXTS = {0x03: "text/plain", 0x08: "answers", 0x12: "given", 0x15: "SCRAM", 0x1A: "info",
         0x1C: "other:1883", 0x1F: "why"}  # fmt: skip


def text(ident):
    return prop(ident, kit.string(TEXTS[ident]))


def test_every_property_of_every_packet_is_read(tmp_path):
    made = kit.Talk().open()
    will = props(prop(1, b"\1"), prop(2, number(4, 9)), text(3), text(8),
                 prop(9, kit.string("id")), prop(0x18, number(4, 7)), USER)  # fmt: skip
    made.client(connect(
        prop(0x11, number(4, 10)), text(0x15), prop(0x16, kit.string("a secret")),
        prop(0x17, b"\1"), prop(0x19, b"\1"), prop(0x21, number(2, 20)), prop(0x22, number(2, 5)),
        prop(0x27, number(4, 70_000)), USER, USER,
        flags=0xC6, rest=will + kit.string("w") + kit.string("gone") + kit.string("user")
        + kit.string("a secret")))  # fmt: skip
    made.broker(five(0xF0, b"\x18", props(text(0x15), prop(0x16, kit.string("a secret")))))
    made.client(five(0xF0, b"\x18", props(text(0x15), text(0x1F))))
    made.broker(connack(
        prop(0x11, number(4, 3)), text(0x12), prop(0x13, number(2, 30)), text(0x15), text(0x1A),
        text(0x1C), text(0x1F), prop(0x21, number(2, 9)), prop(0x22, number(2, 4)),
        prop(0x24, b"\1"), prop(0x25, b"\0"), prop(0x27, number(4, 900)), prop(0x28, b"\1"),
        prop(0x29, b"\1"), prop(0x2A, b"\0"), USER))  # fmt: skip
    made.client(subscribe(1, ("a/#", 0x2D), ("b", 2), items=(prop(0x0B, b"\x80\x01"), USER)))
    made.broker(answer(9, 1, 1, 0x87))
    made.client(publish("a", prop(1, b"\0"), prop(2, number(4, 1)), text(3), text(8),
                        prop(9, kit.string(b"\xff\0")), USER, qos=1, ident=2))  # fmt: skip
    made.broker(ack(4, 2, 0x10, text(0x1F), USER))
    made.broker(publish("a", prop(0x0B, b"\1"), prop(0x0B, b"\2"), qos=2, ident=3))
    made.client(ack(5, 3, 0, USER)).broker(ack(6, 3, 0)).client(ack(7, 3))
    made.client(five(0xA2, b"\0\4", props(USER), kit.string("a/#"))).broker(answer(11, 4, 0x11))
    made.client(five(0xE0, b"\x04", props(prop(0x11, number(4, 0)), text(0x1F)))).close()
    found = read(made, tmp_path)
    assert found["violations"] == [] and found["problems"] == [] and "secret" not in str(found)
    rows = found["packets"]
    assert [r["type"] for r in rows] == [
        "CONNECT", "AUTH", "AUTH", "CONNACK", "SUBSCRIBE", "SUBACK", "PUBLISH", "PUBACK",
        "PUBLISH", "PUBREC", "PUBREL", "PUBCOMP", "UNSUBSCRIBE", "UNSUBACK",
        "DISCONNECT"]  # fmt: skip

    def of(k, which="properties"):
        return [(p["name"], p["key"] or p["value"]) for p in rows[k][which] or ()]

    assert of(0) == [
        ("Session Expiry Interval", "10"), ("Authentication Method", "SCRAM"),
        ("Authentication Data", None), ("Request Problem Information", "1"),
        ("Request Response Information", "1"), ("Receive Maximum", "20"),
        ("Topic Alias Maximum", "5"), ("Maximum Packet Size", "70000"), ("User Property", "k"),
        ("User Property", "k")]  # fmt: skip
    assert of(0, "will_properties") == [
        ("Payload Format Indicator", "1"), ("Message Expiry Interval", "9"),
        ("Content Type", "text/plain"), ("Response Topic", "answers"),
        ("Correlation Data", b"id".hex()), ("Will Delay Interval", "7"), ("User Property", "k")]
    assert rows[0]["will_topic"] == "w" and rows[0]["will_length"] == 4
    assert len(of(3)) == 16 and ("Assigned Client Identifier", "given") in of(3)
    assert of(4) == [("Subscription Identifier", "128"), ("User Property", "k")]
    assert rows[4]["filters"] == ["a/#", "b"] and rows[4]["qos_list"] == [1, 2]
    assert rows[4]["options"] == [0x2D, 2] and rows[5]["reason_codes"] == [1, 0x87]
    assert ("Correlation Data", "ff00") in of(6) and rows[6]["payload_length"] == 1
    assert [rows[k]["reason_code"] for k in (1, 3, 7, 9, 10, 11, 14)] == [24, 0, 16, 0, 0, None, 4]
    assert [v for _, v in of(8)] == ["1", "2"] and rows[13]["reason_codes"] == [17]
    assert of(14) == [("Session Expiry Interval", "0"), ("Reason String", "why")]
    assert [f["outcome"] for f in found["flows"]] == ["acknowledged"] * 2
    assert found["connections"][0]["keep_alive"] == 30  # the server's


def test_topic_aliases_are_resolved_in_packets_and_messages(tmp_path):
    """Per connection and side, also if one gets another topic."""
    made = talk([prop(0x22, number(2, 5))], [prop(0x22, number(2, 5))])
    made.client(publish("long/topic", alias(1))).broker(publish("from/broker", alias(1)))
    made.client(publish("", alias(1), qos=1, ident=1)).broker(ack(4, 1))
    made.broker(publish("", alias(1))).client(publish("other", alias(1)))
    made.client(publish("", alias(1))).close()
    again = kit.Talk(("10.0.0.2", 40_001), start=made.now).open()
    again.client(connect()).broker(connack(prop(0x22, number(2, 5)))).client(publish("", alias(1)))
    path = kit.pcap(tmp_path / "t.pcap", made.wrapped() + again.wrapped())
    found = kit.read([path], tmp_path)
    topics = [r["topic"] for r in found["packets"] if r["type"] == "PUBLISH"]
    assert topics == ["long/topic", "from/broker", "long/topic", "from/broker", "other", "other",
                      ""]  # fmt: skip
    assert [f["topic"] for f in found["flows"]] == ["long/topic"]
    assert found["problems"] == []  # the capture is whole: nobody sent the topic
    assert "topic alias 1, which has no topic" in [v["what"] for v in found["violations"]]
    assert [v["statement"] for v in found["violations"]] == ["MQTT 5, 3.3.4"]
    late = kit.pcap(tmp_path / "late.pcap", again.wrapped()[:3] + again.wrapped()[5:])
    assert kit.read([late], tmp_path)["violations"] == []


Q1 = [("c", publish("a", qos=1, ident=k)) for k in (1, 2, 3)]
B1 = [("b", publish("a", qos=1, ident=k)) for k in (1, 2, 3)]
#: Properties of CONNECT, of CONNACK, packets, statement, sender.
WRONG = {
    "Receive Maximum of the server": ([], [prop(0x21, number(2, 2))], Q1, "3.3.4-7", "client"),
    "Receive Maximum of the client": ([prop(0x21, number(2, 2))], [], B1, "3.3.4-9", "broker"),
    "size for the client": ([prop(0x27, number(4, 20))], [],
                            [("b", publish("a", payload=bytes(50)))], "3.1.2-24", "broker"),
    "size for the server": ([], [prop(0x27, number(4, 20))],
                            [("c", publish("a", payload=bytes(50)))], "3.2.2-15", "client"),
    "alias 0": ([], [prop(0x22, number(2, 5))], [("c", publish("a", alias(0)))], "3.3.2-8",
                "client"),
    "alias above the maximum": ([], [prop(0x22, number(2, 5))], [("c", publish("a", alias(6)))],
                                "3.3.2-9", "client"),
    "alias that the client does not take": ([], [], [("b", publish("a", alias(1)))], "3.3.2-11",
                                            "broker"),
    "Maximum QoS": ([], [prop(0x24, b"\0")], Q1[:1], "3.2.2-11", "client"),
    "RETAIN": ([], [prop(0x25, b"\0")], [("c", publish("a", retain=True))], "3.2.2-14", "client"),
    "a reason code of PUBACK": ([], [], [*Q1[:1], ("b", ack(4, 1, 0x92))], "3.4.2-1", "broker"),
    "a reason code of DISCONNECT": ([], [], [("c", five(0xE0, b"\x11"))], "3.14.2-1", "client"),
    "a reason code of SUBACK": ([], [], [("c", subscribe(1, ("a", 0))), ("b", answer(9, 1, 3))],
                                "3.9.3-2", "broker"),
    "number of reason codes": ([], [], [("c", subscribe(1, ("a", 0))), ("b", answer(9, 1, 0, 0))],
                               "3.8.4-6", "broker"),
    "reserved options": ([], [], [("c", subscribe(1, ("a", 0x40)))], "3.8.3-5", "client"),
    "Retain Handling 3": ([], [], [("c", subscribe(1, ("a", 0x30)))], " 5, 3.8.3.1", "client"),
    "SUBACK of nothing": ([], [], [("b", answer(9, 9, 0))], "2.2.1-6", "broker"),
    "UNSUBACK of nothing": ([], [], [("b", answer(11, 9, 0))], "2.2.1-6", "broker"),
    "packet identifier 0": ([], [], [("c", publish("a", qos=1, ident=0))], "2.2.1-3", "client"),
    "packet identifier 0 of the server": ([], [], [("b", publish("a", qos=1, ident=0))],
                                          "2.2.1-4", "broker"),
    "PUBREL before PUBREC": ([], [], [("c", publish("a", qos=2, ident=1)), ("c", ack(6, 1))],
                             "4.3.3-4", "client"),
    "PUBLISH after PUBREL": (
        [], [], [("c", publish("a", qos=2, ident=1)), ("b", ack(5, 1)), ("c", ack(6, 1)),
                 ("c", publish("a", qos=2, ident=1, dup=True))], "4.3.3-6", "client"),
    "PUBACK of nothing": ([], [], [("b", ack(4, 9))], "2.2.1-5", "broker"),
    "an identifier in flight": ([], [], [*Q1[:1], ("c", publish("b", qos=1, ident=1))],
                                "2.2.1-3", "client"),
    "after DISCONNECT": ([], [], [("c", kit.DISCONNECT), ("c", kit.PINGREQ)], "3.14.4-1",
                         "client"),
    "no topic": ([], [], [("c", publish(""))], "4.7.3-1", "client"),
    "no filter": ([], [], [("c", subscribe(1, ("", 0)))], "4.7.3-1", "client"),
    "a property of another packet": ([], [], [("c", publish("a", text(0x1F)))], " 5, 2.2.2.2",
                                     "client"),
    "a property twice": ([], [], [("c", publish("a", text(3), text(3)))], " 5, 3.3.2.3",
                         "client"),
    "a property twice in PUBACK": ([], [], [*Q1[:1], ("b", ack(4, 1, 0, text(0x1F), text(0x1F)))],
                                   " 5, 3.4.2.2", "broker"),
    "flags": ([], [], [("c", b"\xc1\x00")], "2.1.3-1", "client"),
    "a long Remaining Length": ([], [], [("c", b"\xc0\x80\x00")], "1.5.5-1", "client"),
    "a long length of properties": (
        [], [], [("c", five(0x30, kit.string("a"), b"\x80\x00", b"x"))], "1.5.5-1", "client"),
    "a long Subscription Identifier": (
        [], [], [("c", subscribe(1, ("a", 0), items=[prop(0x0B, b"\x81\x00")]))], "1.5.5-1",
        "client"),
    "Response Information": ([], [text(0x1A)], [], "3.1.2-28", "broker"),
    "a reason that is not wanted": (
        [prop(0x17, b"\0")], [], [*Q1[:1], ("b", ack(4, 1, 0, text(0x1F)))], "3.1.2-29",
        "broker"),
    "a second CONNACK": ([], [], [("b", connack())], "3.2.0-2", "broker"),
    "flags of CONNACK": ([], [], [("b", connack(present=2))], "3.2.0-2 3.2.2-1", "broker"),
    "an alias of nothing": ([], [prop(0x22, number(2, 5))], [("c", publish("", alias(2)))],
                            " 5, 3.3.4", "client"),
    "Response Topic": ([], [], [("c", publish("a", prop(8, kit.string("b/+"))))], "3.3.2-14",
                       "client"),
    "Subscription Identifier of a client": ([], [], [("c", publish("a", prop(0x0B, b"\1")))],
                                            "3.3.4-6", "client"),
    "Receive Maximum 0": ([], [prop(0x21, b"\0\0")], [], " 5, 3.2.2.3", "broker"),
    "a flag that is 2": ([prop(0x17, b"\2")], [], [], " 5, 3.1.2.11", "client"),
    "data without a method": ([prop(0x16, kit.string("s"))], [], [], " 5, 3.1.2.11", "client"),
    "No Local": ([], [], [("c", subscribe(1, ("$share/g/a", 4)))], "3.8.3-4", "client"),
    "a share without a name": ([], [], [("c", subscribe(1, ("$share//a", 0)))], "4.8.2-1",
                               "client"),
    "a wildcard in a share": ([], [], [("c", subscribe(1, ("$share/g", 0)))], "4.8.2-2",
                              "client"),
    "a wildcard in the name of a share": (
        [], [], [("c", subscribe(1, ("$share/g+/a", 0)))], "4.8.2-2", "client"),
    "a wildcard in the topic of a share": (
        [], [], [("c", subscribe(1, ("$share/g/a+", 0)))], "4.7.1-2", "client"),
    "codes of UNSUBACK": ([], [], [("c", five(0xA2, b"\0\4\0", kit.string("a"))),
                                   ("b", answer(11, 4, 0, 0))], "3.11.3-1", "broker"),
    "expiry by the server": (
        [], [], [("b", five(0xE0, b"\x8b", props(prop(0x11, number(4, 9)))))], "3.14.2-2",
        "broker"),
    "expiry that comes late": (
        [], [], [("c", five(0xE0, b"\0", props(prop(0x11, number(4, 9)))))], " 5, 3.14.2.2.2",
        "client"),
    "a packet after the server's DISCONNECT": (
        [], [], [("b", five(0xE0, b"\x8b")), ("b", kit.PINGRESP)], "3.14.4-1", "broker"),
    "PUBLISH sent again": ([], [], [*Q1[:1], ("c", publish("a", qos=1, ident=1, dup=True))],
                           "4.4.0-1", "client"),
    "AUTH of the server": ([], [], [("b", five(0xF0, b"\x18", props(text(0x15))))], "4.12.0-6",
                           "broker"),
    "AUTH of the client": ([], [], [("c", five(0xF0, b"\x18", props(text(0x15))))], "4.12.0-7",
                           "client"),
    "a method that nobody named": ([], [text(0x15)], [], "4.12.0-6", "broker"),
    "another method": ([text(0x15)], [prop(0x15, kit.string("PLAIN"))], [], "4.12.0-5", "broker"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_statement_of_mqtt_5_is_named(name, tmp_path):
    sent, received, packets, statement, sender = WRONG[name]
    found = read(said(talk(sent, received), packets), tmp_path)["violations"]
    wanted = [f"MQTT{statement}"] if statement[0] == " " else [
        f"MQTT-{one}" for one in statement.split()]  # fmt: skip
    assert [(v["statement"], v["sender"]) for v in found] == [(one, sender) for one in wanted]


#: Packets instead of those of talk(): statement, sender.
ALONE = {
    "before CONNACK": ([("c", connect(text(0x15))), ("c", publish("a")),
                        ("b", connack(text(0x15)))], "3.1.2-30", "client"),
    "CONNACK without the method": ([("c", connect(text(0x15))), ("b", connack())], "4.12.0-5",
                                   "broker"),
    "a client without an id": ([("c", connect(client_id="")), ("b", connack())], "3.2.2-16",
                               "broker"),
    "DISCONNECT after a refusal": ([("c", connect()), ("b", connack(code=0x87)),
                                    ("b", five(0xE0, b"\x87"))], "3.14.0-1", "broker"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_a_statement_on_how_connections_begin_is_named(name, tmp_path):
    packets, statement, sender = ALONE[name]
    found = read(said(kit.Talk().open(), packets), tmp_path)["violations"]
    assert [(v["statement"], v["sender"]) for v in found] == [(f"MQTT-{statement}", sender)]


def test_a_property_twice_in_connect_and_in_its_will(tmp_path):
    will = props(prop(0x18, number(4, 7)), prop(0x18, number(4, 7)))
    twice = [prop(0x21, number(2, 9))] * 2
    made = kit.Talk().open().client(connect(
        *twice, flags=6, rest=will + kit.string("w") + kit.string("gone"))).broker(connack())
    found = read(made, tmp_path)["violations"]
    assert [v["statement"] for v in found] == ["MQTT 5, 3.1.2.11", "MQTT 5, 3.1.3.2"]


def test_a_property_of_the_will_has_a_wrong_value(tmp_path):
    will = props(prop(0x01, b"\2"))
    made = kit.Talk().open().client(connect(
        flags=6, rest=will + kit.string("w") + kit.string("gone"))).broker(connack())
    found = read(made, tmp_path)["violations"]
    assert [v["statement"] for v in found] == ["MQTT 5, 3.1.3.2"]


@pytest.mark.parametrize("way", [0, 1])
@pytest.mark.parametrize("tail", [b"\x20\1\0", b"\xff\x7f\1\0hello", b"\xff\xff\xff\xff\1"])
def test_properties_that_are_longer_than_their_publish_are_told(tail, way, tmp_path):
    """The last has a length of five bytes."""
    made = talk()
    made.segment(way, five(0x30, kit.string("a"), tail))
    found = read(made.client(kit.PINGREQ).broker(kit.PINGRESP), tmp_path)["violations"]
    assert [(v["statement"], v["sender"]) for v in found] == [
        ("MQTT 5, 1.2", ("client", "broker")[way])]  # fmt: skip


def test_a_property_that_mqtt_5_does_not_have_is_named(tmp_path):
    made = talk().client(publish("a", prop(0x7E, b"\0")))
    found = read(made, tmp_path)["violations"]
    assert [(v["statement"], v["what"]) for v in found] == [
        ("MQTT 5, 2.2.2.2", "property 0x7E is none of this packet")]  # fmt: skip


@pytest.mark.parametrize("number_,last,wanted,items", [
    (0x28, 11, ("a/#", 0), ()), (0x28, 11, ("+/a", 0), ()), (0x29, 12, ("a", 0), (0x0B,)),
    (0x2A, 13, ("$share/g/a", 0), ())])  # fmt: skip
def test_a_subscription_that_the_server_does_not_support(number_, last, wanted, items, tmp_path):
    packet = subscribe(1, wanted, items=[prop(item, b"\1") for item in items])
    for value, told in ((b"\0", [(f"MQTT 5, 3.2.2.3.{last}", "client")]), (b"\1", [])):
        made = talk(received=[prop(number_, value)]).client(packet).broker(answer(9, 1, 0))
        found = read(made, tmp_path)["violations"]
        assert [(v["statement"], v["sender"]) for v in found] == told
    plain = talk(received=[prop(number_, b"\0")]).client(subscribe(1, ("a", 0)))
    assert read(plain.broker(answer(9, 1, 0)), tmp_path)["violations"] == []


WILL = props() + kit.string("w") + kit.string("gone")


@pytest.mark.parametrize("item,flags,wanted", [
    ((0x24, b"\0"), 0x0E, "MQTT-3.2.2-12"), ((0x24, b"\1"), 0x16, "MQTT-3.2.2-12"),
    ((0x25, b"\0"), 0x26, "MQTT-3.2.2-13"), ((0x24, b"\1"), 0x0E, None),
    ((0x24, b"\0"), 0x06, None), ((0x25, b"\1"), 0x26, None),
    ((0x25, b"\0"), 0x06, None)])  # fmt: skip
def test_a_will_that_the_server_does_not_support_is_not_accepted(item, flags, wanted, tmp_path):
    for code in (0, 0x9B):
        made = kit.Talk().open().client(connect(flags=flags, rest=WILL))
        made.broker(connack(prop(*item), code=code))
        found = read(made, tmp_path)["violations"]
        told = [wanted] if wanted and not code else []
        assert [(v["statement"], v["sender"]) for v in found] == [(t, "broker") for t in told]


@pytest.mark.parametrize("before,first", [((), ["MQTT-3.2.0-1"]), ((1,), [])])
@pytest.mark.parametrize("gone", [False, True])
def test_the_server_sends_no_disconnect_before_its_connack(before, first, gone, tmp_path):
    """But the capture may lack the CONNACK."""
    method = text(0x15)
    made = kit.Talk().open().client(connect(method))
    for _ in before:
        made.broker(five(0xF0, b"\x18", props(method))).client(five(0xF0, b"\x18", props(method)))
    if gone:
        made.broker(connack(method))
        made.frames.pop()
    made.broker(five(0xE0, b"\x8b")).close()
    found = [v["statement"] for v in read(made, tmp_path)["violations"]]
    assert sorted(found) == ([] if gone else sorted(["MQTT-3.14.0-1", *first]))


#: How many statements each section of MQTT 5 has (its Appendix B; 2.2.1 begins with 2).
STATEMENTS = {
    "1.5.4": 3, "1.5.5": 1, "2.1.3": 1, "2.2.1": 6, "3.1.0": 2, "3.1.2": 30, "3.1.3": 12,
    "3.1.4": 6, "3.2.0": 2, "3.2.2": 22, "3.3.1": 13, "3.3.2": 20, "3.3.4": 10, "3.4.2": 3,
    "3.5.2": 3, "3.6.1": 1, "3.6.2": 3, "3.7.2": 3, "3.8.1": 1, "3.8.3": 5, "3.8.4": 8,
    "3.9.3": 2, "3.10.1": 1, "3.10.3": 2, "3.10.4": 6, "3.11.3": 2, "3.12.4": 1, "3.14.0": 1,
    "3.14.2": 4, "3.14.4": 3, "3.15.2": 3, "4.3.2": 5, "4.3.3": 13, "4.4.0": 2, "4.6.0": 6,
    "4.7.0": 1, "4.7.1": 2, "4.7.3": 4, "4.8.2": 6, "4.12.0": 7, "6.0.0": 4,
}  # fmt: skip


def test_every_statement_that_can_be_named_exists():
    said = {statement(code, 5, kind, way) for code in RULES for kind in range(1, 16)
            for way in (0, 1)} - {None}  # fmt: skip
    named = [s for s in said if s.startswith("MQTT-")]
    assert len(named) > 50
    for name in named:
        section, number_ = name[5:].rsplit("-", 1)
        assert 1 <= int(number_) <= STATEMENTS[section], name
    assert all(re.fullmatch(r"MQTT 5, \d+(\.\d+)+", s) for s in said - set(named))


def test_the_page_of_statements_lists_those_that_are_named():
    page = (Path(rules.__file__).parents[1] / "STATEMENTS.md").read_text()
    checked = page.partition("## Checked")[2].partition("\n\nStatements that")[0]
    listed = re.findall(r"\d+\.\d+\.\d+-\d+", checked)
    named = {statement(code, 5, kind, way) for code in RULES for kind in range(1, 16)
             for way in (0, 1)} - {None}  # fmt: skip
    assert len(set(listed)) == len(listed)
    assert set(listed) == {s[5:] for s in named if s.startswith("MQTT-")}


def test_what_mqtt_5_allows_and_311_does_not(tmp_path):
    """A refused PUBLISH frees its identifier, the broker sends DISCONNECT, a password alone."""
    made = kit.Talk().open()
    made.client(connect(flags=0x42, rest=kit.string("a secret"), client_id=""))
    made.broker(connack(prop(0x21, number(2, 1)), text(0x12)))
    made.client(publish("a", qos=2, ident=8)).broker(ack(5, 8, 0x87))
    made.client(publish("b", qos=2, ident=8)).broker(ack(5, 8)).client(ack(6, 8)).broker(ack(7, 8))
    made.broker(five(0xE0, b"\x8b")).close()
    refused = kit.Talk(("10.0.0.3", 1), start=made.now).open().client(connect())
    refused.broker(connack(code=0x87)).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped() + refused.wrapped())], tmp_path)
    assert found["violations"] == [] and found["problems"] == []
    assert {c["protocol"] for c in found["connections"]} == {"5"}
    assert found["connections"][1]["return_code"] == 0x87


def test_the_keep_alive_of_the_server_counts(tmp_path):
    for keep_alive, told in ((5, ["MQTT-3.1.2-21", "MQTT-3.1.2-22"]), (60, [])):
        made = kit.Talk().open().client(connect(keep_alive=20))
        made.broker(connack(prop(0x13, number(2, keep_alive))))
        found = read(made.wait(30).client(kit.PINGREQ).broker(kit.PINGRESP), tmp_path)
        assert [v["statement"] for v in found["violations"]] == told
        assert all(v["keep_alive"] for v in found["violations"])


@pytest.mark.parametrize("made,what", [
    (lambda: kit.Talk().open().client(connect(prop(0x21, number(2, 0)))),
     "property 0x21 Receive Maximum has the value 0, which it must not have"),
    (lambda: kit.Talk().open().client(connect(prop(0x17, b"\2"))),
     "property 0x17 Request Problem Information has the value 2, which it must not have"),
    (lambda: kit.Talk().open().client(connect(prop(0x11, number(4, 1)), prop(0x11, number(4, 1)))),
     "property 0x11 Session Expiry Interval twice"),
    (lambda: kit.Talk().open().client(connect(flags=6, rest=props(prop(1, b"\7"))
                                              + kit.string("w") + kit.string("gone"))),
     "property 0x01 Payload Format Indicator of the will has the value 7, which it must not have"),
    (lambda: kit.Talk().open().client(connect(client_id=b"\xff")),
     "text that is not UTF-8: the client id"),
    (lambda: kit.Talk().open().client(connect(flags=0x82, rest=kit.string("u\0"))),
     "U+0000 in a text: the user name"),
    (lambda: talk().client(subscribe(1, (b"\xff", 0))), "text that is not UTF-8: a topic filter"),
    (lambda: talk().client(publish(b"\xff")), "text that is not UTF-8: the topic name"),
    (lambda: talk().client(publish("a", prop(3, kit.string(b"\xff")))),
     "text that is not UTF-8: property 0x03 Content Type"),
], ids=lambda one: one if isinstance(one, str) else "")
def test_a_violation_names_property_and_field(made, what, tmp_path):
    assert what in [v["what"] for v in read(made(), tmp_path)["violations"]]


@pytest.mark.parametrize("silent", ["up to the end", "between packets"])
@pytest.mark.parametrize("own,servers,told", [(5, None, "20"), (60, 5, "21"), (5, 5, "21")])
def test_whose_keep_alive_a_silent_client_does_not_keep(own, servers, told, silent, tmp_path):
    """MQTT-3.1.2-21: the client MUST use the Server Keep Alive instead of its own."""
    made = kit.Talk().open().client(connect(keep_alive=own))
    made.broker(connack(*[prop(0x13, number(2, servers))] if servers else [])).wait(7)
    made = made.client(kit.PINGREQ).broker(kit.PINGRESP) if silent == "between packets" else made
    found = read(made.close(), tmp_path)
    assert [(v["statement"], v["sender"]) for v in found["violations"]] == [
        (f"MQTT-3.1.2-{told}", "client")]  # fmt: skip


@pytest.mark.parametrize("gone", range(1, 12))
def test_frames_that_are_missing_accuse_nobody(gone, tmp_path):
    made = talk([prop(0x21, number(2, 1)), prop(0x22, number(2, 3))],
                [prop(0x21, number(2, 1)), prop(0x22, number(2, 3))])  # fmt: skip
    for k in range(1, 4):
        for way in (0, 1):
            made.segment(way, publish("t" if k == 1 else "", alias(1), qos=1, ident=7))
            made.segment(1 - way, ack(4, 7, 0))
    made.client(five(0xE0, b"\0")).close()
    del made.frames[gone]
    assert read(made, tmp_path)["violations"] == []
