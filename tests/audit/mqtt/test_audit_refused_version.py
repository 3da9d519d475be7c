"""A client of a version that the broker does not have: both say what their own version demands,
and nobody is accused of it. One packet with one fault has one row.

Knows: audit_kit, CONNECT and CONNACK of every version. Must not know: how faults are found.
"""

import audit_kit as kit
import mqtt5
import pytest


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


def broken(tables):
    return [(v["statement"], v["sender"], v["type"]) for v in tables["violations"]]


@pytest.mark.parametrize("code,meaning", [(1, "unacceptable protocol version"),
                                          (5, "not authorized")])  # fmt: skip
def test_a_broker_of_311_refuses_a_client_of_mqtt_5_as_it_must(code, meaning, tmp_path):
    """MQTT 3.1.1 [MQTT-3.1.2-2]: CONNACK of two bytes."""
    made = kit.Talk().open().client(mqtt5.connect()).broker(kit.connack(code))
    tables = read(made.segment(1, flags=kit.FIN | kit.ACK), tmp_path)
    assert broken(tables) == []
    assert tables["connections"][0]["why"] == f"refused, code {code} ({meaning})"
    assert tables["packets"][1]["return_code"] == code


@pytest.mark.parametrize("answer,wanted", [
    (kit.packet(0x20, b"\0\0"), ["MQTT 5, 2.1.4"]),  # who accepts MQTT 5 speaks it
    (kit.packet(0x20, b"\0\x01\0"), ["MQTT-3.2.2-8"]),
    (kit.packet(0x20, b"\0\x84"), ["MQTT 5, 2.1.4"]),
    (kit.packet(0x20, b"\0"), ["MQTT 5, 2.1.4"]),
    (kit.packet(0x20), ["MQTT 5, 2.1.4"]),
])  # fmt: skip
def test_a_connack_of_mqtt_5_that_is_wrong_has_one_row(answer, wanted, tmp_path):
    made = kit.Talk().open().client(mqtt5.connect()).broker(answer)
    assert [v["statement"] for v in read(made, tmp_path)["violations"]] == wanted


SHORT = {
    "CONNACK": (4, kit.packet(0x20, b"\0"), "MQTT 3.1.1, 2.2.3"),
    "long CONNACK": (4, kit.packet(0x20, b"\0\0\0"), "MQTT 3.1.1, 2.2.3"),
    "SUBACK": (4, kit.packet(0x90, b"\0"), "MQTT 3.1.1, 2.2.3"),
    "SUBACK without a code": (4, kit.packet(0x90, b"\0\x07"), "MQTT 3.1.1, 2.2.3"),
    "UNSUBACK": (4, kit.packet(0xB0, b"\0"), "MQTT 3.1.1, 2.2.3"),
    "SUBACK of 5": (5, kit.packet(0x90, b"\0\x07"), "MQTT 5, 2.1.4"),
    "UNSUBACK of 5": (5, kit.packet(0xB0, b"\0\x07"), "MQTT 5, 2.1.4"),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_packet_of_a_wrong_length_has_one_row_for_that(name, tmp_path):
    level, raw, statement = SHORT[name]
    made = kit.Talk().open()
    if level == 5:
        made.client(mqtt5.connect()).broker(mqtt5.connack())
    else:
        made.client(kit.connect())
        made = made if raw[0] == kit.connack()[0] else made.broker(kit.connack())
    found = read(made.broker(raw), tmp_path)["violations"]
    assert [v["statement"] for v in found if v["statement"].startswith("MQTT ")] == [statement]


@pytest.mark.parametrize("answer,accused", [
    (kit.packet(0x20, b"\0\x84\0"), []), (kit.connack(1), []), (b"", []),
    (kit.connack(), [("MQTT-3.1.2-2", "broker", "CONNACK")]),
], ids=["refused by MQTT 5", "refused by 3.1.1", "closed", "accepted"])  # fmt: skip
def test_a_protocol_level_of_the_future_is_refused(answer, accused, tmp_path):
    """The statement binds the server; a client may ask for what it likes, and nobody knows what
    its CONNECT looks like behind the level."""
    hello = kit.packet(0x10, kit.string("MQTT") + b"\6\2\0\x3c\0" + kit.string("dev6"))
    made = kit.Talk().open().client(hello)
    made = made.broker(answer) if answer else made
    tables = read(made.segment(1, flags=kit.FIN | kit.ACK), tmp_path)
    assert broken(tables) == accused
    assert tables["packets"][0]["protocol_level"] == 6
    assert tables["packets"][0]["keep_alive"] == 60
