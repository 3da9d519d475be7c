"""A snap length that cuts CONNECT or CONNACK: what is there of them is read, and what is not there
accuses nobody.

Knows: audit_kit, CONNECT and CONNACK of every version. Must not know: how they are read.
"""

import audit_kit as kit
import mqtt5
import pytest
from mqtt5 import five, number, prop, props

HEADERS = 14 + 20 + 20  #: bytes of a frame before the first one of MQTT
METHOD = prop(0x15, kit.string("SCRAM-SHA-256"))
USER = prop(0x26, kit.string("site") + kit.string("north"))
WILL = kit.string("dev/gone") + kit.string("lost")
LOGIN = kit.string("user") + kit.string("secret")


def auth(code):
    return five(0xF0, bytes([code]), props(METHOD, prop(0x16, kit.string("proof"))))


#: What a client of MQTT 5 asks for: a session of one hour, 2 messages in flight, packets of 500
#: bytes, 5 aliases, Response Information, no Reason String.
ASKED = (prop(0x11, number(4, 3600)), prop(0x21, number(2, 2)), prop(0x27, number(4, 500)),
         prop(0x22, number(2, 5)), prop(0x19, b"\1"), USER)  # fmt: skip
#: What a server says: a keep alive of 60 s, 30 messages in flight, 9 aliases.
OFFERED = (prop(0x13, number(2, 60)), prop(0x21, number(2, 30)), prop(0x22, number(2, 9)),
           prop(0x1A, kit.string("answers/here")), prop(0x12, kit.string("given")))  # fmt: skip


def old(made, name="MQTT", level=4, flags=0xC6):
    """A client of 3.1 or 3.1.1 with a will and a login."""
    made.client(kit.connect("a client", 10, flags, name, level, WILL + LOGIN))
    made.broker(kit.connack())
    return made.client(kit.publish("a", b"x", 1, 7)).broker(kit.ack(4, 7))


def new(made, asked=ASKED, offered=OFFERED, steps=(), client_id=""):
    """A client of MQTT 5, with a keep alive of 10 s; the server gives it 60 s."""
    made.client(mqtt5.connect(*asked, client_id=client_id, keep_alive=10, flags=0xC6,
                              rest=props(prop(0x18, number(4, 5))) + WILL + LOGIN))  # fmt: skip
    for way, raw in steps:
        made.segment(way, raw)
    made.broker(mqtt5.connack(*offered))
    for alias in range(9):
        made.client(mqtt5.publish(f"t/{alias}", mqtt5.alias(alias + 1)))
    for ident in range(1, 29):
        made.client(mqtt5.publish("a", qos=1, ident=ident))
    for ident in range(1, 29):
        made.broker(mqtt5.ack(4, ident, 0))
    made.client(mqtt5.publish("a", payload=bytes(900)))
    for alias in range(5 if asked else 0):
        made.broker(mqtt5.publish(f"t/{alias}", mqtt5.alias(alias + 1)))
    made.segment(0, flags=kit.ACK).wait(50).client(kit.PINGREQ)
    return made.broker(kit.PINGRESP).segment(0, flags=kit.ACK)


STEPS = ((1, auth(24)), (0, auth(24)), (1, auth(24)), (0, auth(24)))
TALKS = {
    "3.1": lambda made: old(made, "MQIsdp", 3),
    "3.1.1": old,
    "a bridge": lambda made: old(made, level=0x84),
    "5": new,
    "5, without properties": lambda made: new(made, (), (*OFFERED[:3], OFFERED[4])),
    "5, AUTH before CONNACK": lambda made: new(
        made, (*ASKED, METHOD), (*OFFERED, METHOD), STEPS),
    "5, AUTH, the method first": lambda made: new(
        made, (METHOD, *ASKED), (METHOD, *OFFERED), STEPS),
}  # fmt: skip
WHICH = {"every frame": lambda _: True, "CONNECT": lambda frame: frame[HEADERS:][:1] == b"\x10",
         "CONNACK": lambda frame: frame[HEADERS:][:1] == b"\x20"}  # fmt: skip


def _cut(talk, which, tmp_path):
    """The tables of a capture with a connection for each number of bytes of MQTT that are kept of
    these frames."""
    talks, most = [], 1
    while len(talks) <= most:
        kept = len(talks)
        made = kit.Talk(("10.0.0.2", 2000 + kept), start=kit.START + kept * 3 * 10**6).open()
        frames = TALKS[talk](made).client(kit.DISCONNECT).close().wrapped()
        concerned = [WHICH[which](frame) for _, frame in frames]
        sizes = [len(f) for (_, f), mine in zip(frames, concerned) if mine]
        most = min(max(sizes) - HEADERS, 300)
        talks.append([(t, f, HEADERS + kept if mine else len(f))
                      for (t, f), mine in zip(frames, concerned)])  # fmt: skip
    path = kit.pcap(tmp_path / "t.pcap", sorted((f for one in talks for f in one),
                                                key=lambda f: f[0]))  # fmt: skip
    return kit.read([path], tmp_path)


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("talk", TALKS)
def test_no_snap_length_accuses_sound_traffic(talk, which, tmp_path):
    found = _cut(talk, which, tmp_path)
    told = [(v["statement"], v["sender"], v["type"], v["what"]) for v in found["violations"]]
    assert sorted(set(told)) == []
    assert len(found["connections"]) > 5


def test_what_is_there_of_a_cut_connect_is_read(tmp_path):
    """Name, level, flags, keep alive, then properties, then the client id."""
    for level, talk in ((4, "3.1.1"), (5, "5, AUTH, the method first")):
        found = _cut(talk, "CONNECT", tmp_path)
        rows = [p for p in found["packets"] if p["type"] == "CONNECT"]
        rows += [{"length": 0}] * 2  # of 0 and 1 bytes there is no packet
        known = {name: sum(p.get(name) is not None for p in rows) for name in (
            "length", "protocol_level", "clean_session", "keep_alive")}  # fmt: skip
        # Of each byte that is kept more there is one connection.
        assert known["protocol_level"] - known["clean_session"] == 1
        assert known["clean_session"] - known["keep_alive"] == 2
        assert known["length"] - known["protocol_level"] == 9
        assert {p["protocol_level"] for p in rows if p.get("protocol_level")} == {level}
        assert {p["keep_alive"] for p in rows if p.get("keep_alive")} == {10}


def test_what_a_cut_connect_lacks_is_not_told_of_its_connection(tmp_path):
    """A keep alive that is not there is none of 0 s; that of a CONNACK is known."""
    from mqtt_audit.report.lines import connection

    connack = mqtt5.connack(OFFERED[0])  # 60 s
    for answer, kept, known in ((kit.connack(), 9, (None, None)), (kit.connack(), 10, (None, 1)),
                                (kit.connack(), 12, (10, 1)), (connack, 9, (60, None))):
        level = 4 if answer == kit.connack() else 5
        made = kit.Talk().open().client(kit.connect("a", 10, level=level)).broker(answer)
        frames = [(t, f, HEADERS + kept if k == 3 else len(f))
                  for k, (t, f) in enumerate(made.wrapped())]  # fmt: skip
        found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)["connections"][0]
        assert (found["keep_alive"], found["clean_session"]) == known, kept
        assert ("keep alive" in connection(found)) == (known[0] is not None)


def _wrong(asked, kept, tmp_path):
    """The violations of a talk of MQTT 5 that goes wrong, of whose CONNECT bytes are cut off."""
    made = kit.Talk().open().client(mqtt5.connect(*asked, rest=kit.string("x" * 200), flags=0x82))
    made.broker(mqtt5.connack()).client(mqtt5.publish("a", mqtt5.alias(1)))
    made.broker(mqtt5.publish("b", mqtt5.alias(3)))
    frames = [(t, f, HEADERS + kept if k == 3 else len(f))
              for k, (t, f) in enumerate(made.wrapped())]  # fmt: skip
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    return [(v["statement"], v["sender"]) for v in found["violations"]]


def test_a_property_that_is_there_of_a_cut_connect_holds(tmp_path):
    """The Topic Alias Maximum of 2 is in bytes 15 to 17; what is wrong without CONNECT is told,
    too."""
    always = [("MQTT-3.3.2-9", "client")]
    most = (prop(0x22, number(2, 2)), USER)
    assert _wrong(most, 16, tmp_path) == always
    assert _wrong(most, 17, tmp_path) == [*always, ("MQTT-3.3.2-11", "broker")]
    assert _wrong(most, 400, tmp_path) == [*always, ("MQTT-3.3.2-11", "broker")]


def test_a_return_code_that_is_there_of_a_cut_connack_is_read(tmp_path):
    made = kit.Talk().open().client(mqtt5.connect())
    made.broker(mqtt5.connack(USER, code=135)).broker(mqtt5.publish("a"))
    frames = [(t, f, HEADERS + 6 if k == 4 else len(f))
              for k, (t, f) in enumerate(made.wrapped())]  # fmt: skip
    found = kit.read([kit.pcap(tmp_path / "t.pcap", frames)], tmp_path)
    assert [v["statement"] for v in found["violations"]] == ["MQTT-3.2.2-7"]
    assert found["connections"][0]["why"] == "refused, code 135 (not authorized)"
