"""A client that speaks MQTT to what is no broker of MQTT, and one whose CONNECT is faulty from the
first byte on: each is told as what it is.

Knows: audit_kit, CONNECT, how HTTP, TLS and others begin. Must not know: how they are told apart.
"""

import io
from functools import partial

import audit_kit as kit
import mqtt5
import paho.mqtt.client as mqtt
import pytest
from mqtt_audit.report import lines
from pipeline_kit import wait_for

HTTP = (b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        b"<html><h1>It has 0: @\x02\0\x01 \x02\0\0 and so on</h1></html>")  # fmt: skip
ANSWERS = {
    "HTTP": ([HTTP], "HTTP", "the server answers HTTP"),
    "HTTP, byte by byte": ([HTTP[k : k + 1] for k in range(len(HTTP))], "HTTP",
                           "the server answers HTTP"),
    "HTTP 1.0": ([b"HTTP/1.0 404 Not Found\r\n", HTTP], "HTTP", "the server answers HTTP"),
    "a TLS alert": ([b"\x15\x03\x01\0\2\2\x46"], "TLS", "the server answers TLS"),
    "a TLS alert of 1.2, in two pieces": ([b"\x15\x03", b"\x03\0\2\2\x16"], "TLS",
                                          "the server answers TLS"),
    "SSH": ([b"SSH-2.0-OpenSSH_9.2\r\n", bytes(range(200))], "not MQTT",
            "the server answers text that is no MQTT"),
    "SMTP": ([b"220 mail.example ESMTP\r\n", b"500 what?\r\n"], "not MQTT",
             "the server answers text that is no MQTT"),
    "SSH, byte by byte": ([bytes([b]) for b in b"SSH-2.0-OpenSSH_9.2\r\n\0\0\1\2@\2\0\1"],
                          "not MQTT", "the server answers text that is no MQTT"),
    "SMTP, cut anywhere": ([b"2", b"20 mail.example ESMTP\r\n" + b"500 what?\r\n" * 9],
                           "not MQTT", "the server answers text that is no MQTT"),
    "Redis": ([b"-ERR unknown command\r\n"], "not MQTT",
              "the server answers text that is no MQTT"),
}  # fmt: skip
HELLOS = {"3.1": kit.connect(name="MQIsdp", level=3), "3.1.1": kit.connect(), "5": mqtt5.connect()}


def asked(hello, answers, begun=True, port=1883):
    made = kit.Talk(broker=("10.0.0.1", port))
    made = made.open() if begun else made
    made.client(hello)
    for raw in answers:
        made.broker(raw)
    made.client(kit.PINGREQ)
    return made.segment(1, flags=kit.FIN | kit.ACK).segment(0, flags=kit.FIN | kit.ACK)


def read(made, tmp_path):
    return kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)


@pytest.mark.parametrize("port", [1883, 443])
@pytest.mark.parametrize("hello", HELLOS)
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_that_is_no_broker_is_told_as_what_it_is(answer, hello, port, tmp_path):
    raw, kind, why = ANSWERS[answer]
    # Without SYN, a byte of text may be anything.
    for begun in (True, False) if kind != "not MQTT" or len(raw[0]) > 3 else (True,):
        made = asked(HELLOS[hello], raw, begun, port)
        found = read(made, tmp_path)
        assert found["violations"] == []
        assert [p["type"] for p in found["packets"] if p["sender"] == "broker"] == []
        assert [p["type"] for p in found["packets"]][:1] == ["CONNECT"]
        assert (kind, "broker") in {(p["problem"], p["sender"]) for p in found["problems"]}
        [row] = found["connections"]
        assert row["why"] == why and row["protocol"] == hello
        [told] = kit.findings(made.wrapped(), tmp_path)
        assert (told["finding"], told["broker"]) == ("no broker", f"10.0.0.1:{port}")
        assert told["what"] == f"{why}, on 1 connection" and told["who"] in ("dev1", "five")
        assert [e["frame"] for e in told["evidence"]] == [1]


def test_many_clients_of_a_server_that_is_no_broker_are_one_finding(tmp_path):
    frames = []
    for k in range(4):
        made = kit.Talk(("10.0.0.7", 2000 + k), start=kit.START + k * 10**9).open()
        made.client(kit.connect(f"dev{k % 3}")).broker(HTTP)
        frames += made.segment(1, flags=kit.FIN | kit.ACK).close().wrapped()
    [told] = kit.findings(frames, tmp_path)
    assert told["who"] == "3 clients" and told["count"] == 4
    assert told["what"] == "the server answers HTTP, on 4 connections"


@pytest.mark.parametrize("answer,wanted", [
    (kit.packet(0xD0), ["3.2.0-1"]), (kit.publish("a"), ["3.2.0-1"]),
    (kit.packet(0x30, kit.string("HTTP") + b"/1.1"), ["3.2.0-1"]),
    (kit.ack(4, 7), ["3.2.0-1", "2.3.1-6"]), (kit.packet(0x40, b"HTTP"), None),
])  # fmt: skip
def test_a_broker_that_begins_with_another_packet_is_told_of_it(answer, wanted, tmp_path):
    found = read(kit.Talk().open().client(kit.connect()).broker(answer), tmp_path)
    told = [v["statement"].removeprefix("MQTT-") for v in found["violations"]]
    assert told == wanted if wanted else "3.2.0-1" in told


def _is_over(client):
    return client.loop(0.1) != mqtt.MQTT_ERR_SUCCESS


def test_a_listener_of_websockets_answers_http(web_listener, tmp_path):
    """A real mosquitto's."""
    tap = kit.Tap(web_listener)
    for version in (mqtt.MQTTv311, mqtt.MQTTv5):
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "lost", protocol=version)
        client.connect("127.0.0.1", tap.port)
        wait_for(partial(_is_over, client), what="the end")
    wait_for(tap.idle, what="the end of the connections")
    tap.stop()
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    found = kit.read([path], tmp_path, ports=(web_listener,))
    assert found["violations"] == []
    assert {c["why"] for c in found["connections"]} == {"the server answers HTTP"}
    assert [p["type"] for p in found["packets"]] == ["CONNECT"] * 2


def test_the_lines_say_it_first(tmp_path):
    from mqtt_audit import run

    path = kit.pcap(tmp_path / "t.pcap", asked(kit.connect(), [HTTP]).wrapped())
    run.build(None, [path], tmp_path / "out")
    out = io.StringIO()
    lines.told(tmp_path / "out", out)
    assert "no broker" in out.getvalue().splitlines()[0]


# CONNECT that is faulty.


def named(name, level=4, head=0x10):
    raw = kit.connect(name=name, level=level)
    if level == 5:
        raw = mqtt5.five(0x10, kit.string(name), b"\5\2\0\x3c", mqtt5.props(), kit.string("dev1"))
    return bytes([head]) + raw[1:]


FAULTY = {
    "mqtt": (named("mqtt"), "MQTT-3.1.2-1"),
    "mqtt of 5": (named("mqtt", 5), "MQTT-3.1.2-1"),
    "no name": (named(""), "MQTT-3.1.2-1"),
    "no name, of 5": (named("", 5), "MQTT-3.1.2-1"),
    "another name": (named("AMQP"), "MQTT-3.1.2-1"),
    "a long name": (named("MQTT for all"), "MQTT-3.1.2-1"),
    "flags": (named("MQTT", head=0x11), "MQTT-2.2.2-1"),
    "flags of 5": (named("MQTT", 5, head=0x1F), "MQTT-2.1.3-1"),
    "flags of TLS": (named("MQTT", head=0x16), "MQTT-2.2.2-1"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_connect_that_is_faulty_from_the_beginning_is_one(name, tmp_path):
    raw, statement = FAULTY[name]
    found = read(kit.Talk().open().client(raw).segment(1, flags=kit.FIN | kit.ACK), tmp_path)
    assert [(v["statement"], v["sender"], v["type"]) for v in found["violations"]] == [
        (statement, "client", "CONNECT")]  # fmt: skip
    assert [p["client_id"] for p in found["packets"]] == ["dev1"]
    assert found["problems"] == []


@pytest.mark.parametrize("raw", [
    named("mqtt")[:-1], named("mqtt") + b"x", bytes([0x10, 30]) + bytes(range(30)),
    b"\x10\x0c" + bytes(12) + bytes(10), named("AMQP", 5)[:-1] + b"\0",
])  # fmt: skip
def test_what_only_looks_like_a_connect_is_none(raw, tmp_path):
    """Its fields do not fill it, or what follows is no packet."""
    found = read(kit.Talk().open().client(raw).close(), tmp_path)
    assert [v["type"] for v in found["violations"] if v["type"] != "CONNECT"] == []


def test_the_bit_of_bridges_is_shown(tmp_path):
    """Mosquitto's bridges set bit 7 of the level."""
    for name, level, version in (("MQTT", 4, "3.1.1"), ("MQIsdp", 3, "3.1")):
        made = kit.Talk().open().client(kit.connect(name=name, level=level | 128))
        found = read(made.broker(kit.connack()).client(kit.publish("a")), tmp_path)
        assert found["violations"] == []
        assert found["packets"][0]["protocol"] == version
        assert found["packets"][0]["protocol_level"] == level | 128
