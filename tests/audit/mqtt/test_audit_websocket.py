"""MQTT over WebSocket: the same packets as without, whatever the frames are.

Knows: audit_kit, RFC 6455, a real broker's WebSocket. Must not know: how frames are found.
"""

import random
import threading
from collections import Counter

import audit_kit as kit
import paho.mqtt.client as mqtt
import pytest
from pipeline_kit import wait_for
from web_frames import AGREED, ASKED, frame


def _said(choice):
    """[(sender, bytes of MQTT)]: packets of all sizes, cut anywhere."""
    talk = [(0, kit.connect("web")), (1, kit.connack()), (0, kit.subscribe(1, ("a/#", 2))),
            (1, kit.suback(1, 2))]  # fmt: skip
    for ident, size in enumerate((3, 100, 130, 5000, 70_000, 200), 5):
        talk += [(0, kit.publish("a/b", choice.randbytes(size), 2, ident)), (1, kit.ack(5, ident)),
                 (0, kit.ack(6, ident)), (1, kit.ack(7, ident))]  # fmt: skip
        talk += [(1, kit.publish("a/c", choice.randbytes(size), 1, ident)), (0, kit.ack(4, ident))]
    return [*talk, (0, kit.PINGREQ), (1, kit.PINGRESP), (0, kit.DISCONNECT)]


def _framed(sender, raw, choice):
    """The bytes in frames: whole, in fragments, with frames of the WebSocket between them."""
    mask = None if sender else choice.randbytes(4)
    if choice.random() < 0.3:
        return frame(raw, mask=mask)
    cut = sorted(choice.sample(range(len(raw) + 1), min(2, len(raw))))
    parts = [raw[a:b] for a, b in zip([0, *cut], [*cut, len(raw)])]
    if choice.random() < 0.5:  # each by itself; an empty one is a frame, too
        return b"".join(frame(p, mask=mask) for p in parts)
    ping = frame(b"still there?", kind=9, mask=mask)
    made = [frame(p, 2 if k == 0 else 0, k == len(parts) - 1, mask) for k, p in enumerate(parts)]
    return ping.join(made)


def _segments(talk, sender, raw, choice):
    while raw:
        n = choice.choice((1, 3, 40, 1400, 1400, 1400))
        talk.segment(sender, raw[:n])
        raw = raw[n:]


def _columns(tables, name):
    without = {"frame", "time", "connection", "first", "last", "done", "received", "released",
               "latency_ms"}  # fmt: skip
    return [{k: v for k, v in row.items() if k not in without} for row in tables[name]]


@pytest.mark.parametrize("seed", range(4))
def test_packets_are_those_without_a_websocket(seed, tmp_path):
    choice = random.Random(seed)
    web, plain = kit.Talk(broker=("10.0.0.1", 9001)).open(), kit.Talk(broker=("10.0.0.1", 9001))
    plain.open()
    _segments(web, 0, ASKED, random.Random(9 if seed else 2)) if seed == 3 else web.client(ASKED)
    web.broker(AGREED[:50]).broker(AGREED[50:])
    for sender, raw in _said(choice):
        _segments(plain, sender, raw, random.Random(1))
        _segments(web, sender, _framed(sender, raw, choice), choice)
    if seed == 2:  # some segments out of order
        for k in range(8, len(web.frames) - 2, 5):
            (t, a), (u, b) = web.frames[k : k + 2]
            if a[12:16] == b[12:16]:
                web.frames[k : k + 2] = (t, b), (u, a)
    path = tmp_path / "t.pcap"
    web, plain = (kit.read([kit.pcap(path, made.close().wrapped())], tmp_path, ports=(9001,))
                  for made in (web, plain))  # fmt: skip
    assert web["violations"] == [] and web["problems"] == []
    assert len(web["packets"]) == 4 + 6 * 6 + 3
    for name in ("packets", "flows"):
        assert _columns(web, name) == _columns(plain, name)
    assert [c["websocket"] for c in web["connections"]] == [True]
    assert [c["client_publish_2"] for c in web["connections"]] == [6]


def test_it_is_found_on_any_port_by_what_it_asks_for(tmp_path):
    """Also if the answers are in another capture, the clock of which is behind."""
    made = kit.Talk(broker=("10.0.0.1", 8080)).open().client(ASKED).broker(AGREED)
    made.client(frame(kit.connect("web"), mask=b"abcd")).broker(frame(kit.connack()))
    frames = made.wrapped()
    asks, answers = ([f for f in frames if (f[1][26:30] == b"\x0a\0\0\2") == way]
                     for way in (1, 0))  # fmt: skip
    early = [(t - 10**8, f) for t, f in answers]
    for parts in [frames], [asks, answers], [asks, early], [early, asks]:
        paths = [kit.pcap(tmp_path / f"{k}.pcap", part) for k, part in enumerate(parts)]
        found = kit.read(paths, tmp_path)
        assert sorted(p["type"] for p in found["packets"]) == ["CONNACK", "CONNECT"]
        assert [c["client_id"] for c in found["connections"]] == ["web"]


@pytest.mark.parametrize("header", [
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 80\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)], ids=["version 1", "version 2"])
@pytest.mark.parametrize("begun, cut", [(True, True), (True, False), (False, False)])
def test_it_is_found_behind_a_header_of_the_proxy_protocol(header, cut, begun, tmp_path):
    made = kit.Talk(broker=("10.0.0.1", 8080))
    made = made.open() if begun else made
    made = made.client(header).client(ASKED) if cut else made.client(header + ASKED)
    made.broker(AGREED).client(frame(kit.connect("web"), mask=b"abcd"))
    made.broker(frame(kit.connack())).client(frame(kit.DISCONNECT, mask=b"abcd")).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [p["type"] for p in found["packets"]] == ["CONNECT", "CONNACK", "DISCONNECT"]
    assert [p["problem"] for p in found["problems"]] == ["PROXY"] and not found["violations"]
    (conn,) = found["connections"]
    assert conn["websocket"] and conn["client_id"] == "web"


@pytest.mark.parametrize("cut", [1, 5, 16, 27])
@pytest.mark.parametrize("together", [True, False])
def test_such_a_header_may_come_in_two_segments(cut, together, tmp_path):
    header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)
    made = kit.Talk(broker=("10.0.0.1", 8080)).open().client(header[:cut])
    rest = header[cut:]
    made = made.client(rest + ASKED) if together else made.client(rest).client(ASKED)
    made.broker(AGREED).client(frame(kit.connect("web"), mask=b"abcd"))
    made.broker(frame(kit.connack())).client(frame(kit.DISCONNECT, mask=b"abcd")).close()
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.wrapped())], tmp_path)
    assert [p["type"] for p in found["packets"]] == ["CONNECT", "CONNACK", "DISCONNECT"]
    assert [p["problem"] for p in found["problems"]] == ["PROXY"] and not found["violations"]
    assert found["connections"][0]["websocket"]


@pytest.mark.parametrize("answer, told", [
    (b"HTTP/1.1 404 Not Found\r\n\r\n", "HTTP"),
    (AGREED + frame(b"\x20\2\0\0", kind=0x42), "WebSocket")], ids=["404", "packed"])  # fmt: skip
def test_what_is_no_websocket_after_all_is_said(answer, told, tmp_path):
    made = kit.Talk(broker=("10.0.0.1", 9001)).open().client(ASKED).broker(answer)
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.close().wrapped())], tmp_path)
    assert [p["problem"] for p in found["problems"]] == [told]
    assert found["packets"] == [] and found["violations"] == []


@pytest.mark.parametrize("level, name", [(4, "MQTT"), (5, "MQTT")])
def test_packets_in_frames_of_text_are_a_violation(level, name, tmp_path):
    """[MQTT-6.0.0-1], of each packet; fragments have the kind of the first one."""
    none = b"\0" if level == 5 else b""
    raw = kit.connect("web", level=level, name=name)
    raw = kit.packet(0x10, raw[2:12] + none + raw[12:])
    made = kit.Talk(broker=("10.0.0.1", 9001)).open().client(ASKED).broker(AGREED)
    made.client(frame(raw, kind=1, mask=b"abcd"))
    made.broker(frame(kit.packet(0x20, b"\0\0" + none)))
    made.client(frame(kit.PINGREQ[:1], 1, False, b"abcd"))
    made.client(frame(b"ping", 9, True, b"abcd") + frame(kit.PINGREQ[1:], 0, True, b"abcd"))
    made.broker(frame(kit.PINGRESP, kind=3)).client(frame(kit.DISCONNECT, mask=b"abcd"))
    found = kit.read([kit.pcap(tmp_path / "t.pcap", made.close().wrapped())], tmp_path)
    told = [(v["statement"], v["sender"], v["type"]) for v in found["violations"]]
    assert told == [("MQTT-6.0.0-1", "client", "CONNECT"), ("MQTT-6.0.0-1", "client", "PINGREQ"),
                    ("MQTT-6.0.0-1", "broker", "PINGRESP")]  # fmt: skip


def test_frames_that_are_missing_accuse_nobody(tmp_path):
    """Bytes inside a payload are lost as they are without; elsewhere the connection is left."""
    choice = random.Random(5)
    made = kit.Talk(broker=("10.0.0.1", 9001)).open().client(ASKED).broker(AGREED)
    for sender, raw in _said(choice):
        _segments(made, sender, _framed(sender, raw, choice), choice)
    frames = made.close().wrapped()
    problems = set()
    for _ in range(25):
        kept = [f for f in frames if choice.random() > 0.02]
        found = kit.read([kit.pcap(tmp_path / "t.pcap", kept)], tmp_path, ports=(9001,))
        assert found["violations"] == []
        problems |= {p["problem"] for p in found["problems"]}
    assert {"loss", "WebSocket"} <= problems


@pytest.mark.parametrize("version", [mqtt.MQTTv311, mqtt.MQTTv5])
def test_paho_and_mosquitto(version, web_listener, tmp_path):
    tap = kit.Tap(web_listener)
    _talk(tap.port, version)
    wait_for(tap.idle, what="the end of all connections")
    tap.stop()
    path = kit.pcap(tmp_path / "t.pcap", tap.frames())
    found = kit.read([path], tmp_path)
    assert found["violations"] == [] and found["problems"] == []
    kinds = Counter(p["type"] for p in found["packets"])
    assert kinds == {"CONNECT": 1, "CONNACK": 1, "SUBSCRIBE": 1, "SUBACK": 1, "PUBLISH": 8,
                     "PUBACK": 4, "PUBREC": 4, "PUBREL": 4, "PUBCOMP": 4, "DISCONNECT": 1}
    lengths = [p["payload_length"] for p in found["packets"] if p["type"] == "PUBLISH"]
    assert sorted(lengths) == [1, 1, 200, 200, 3000, 3000, 70_000, 70_000]
    assert {f["outcome"] for f in found["flows"]} == {"acknowledged"} and len(found["flows"]) == 8


def _talk(port, version):
    up, got = threading.Event(), []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "web", protocol=version,
                         transport="websockets")  # fmt: skip
    client.on_connect = lambda *_: up.set()
    client.on_message = lambda _c, _u, m: got.append(m.payload)
    client.connect("127.0.0.1", port, 30)
    client.loop_start()
    assert up.wait(120)
    client.subscribe("a/#", 2)
    for size in (1, 200, 3000, 70_000):
        client.publish("a/b", bytes(size), 1 + (size > 200)).wait_for_publish(30)
    wait_for(lambda: len(got) == 4, what="all messages")
    client.disconnect()
    client.loop_stop()


@pytest.mark.parametrize("late,syn", [(1, 0), (2, 0), (3, 0), (2, 3)])
def test_an_upgrade_may_be_granted_before_it_is_asked_for(late, syn, tmp_path):
    """In a capture whose frames are out of order: what asks for it comes 1 to 3 frames later, the
    broker's SYN, too."""
    made = kit.Talk(broker=("10.0.0.1", 9001)).open().client(ASKED).broker(AGREED)
    made.client(frame(kit.connect("web"), mask=b"abcd")).broker(frame(kit.connack()))
    made.client(frame(kit.publish("a"), mask=b"abcd")).close()
    frames = made.wrapped()
    frames.insert(3 + late, frames.pop(3))
    frames.insert(1 + syn, frames.pop(1))
    frames = [(time, raw) for (time, _), (_, raw) in zip(made.frames, frames)]
    assert kit.findings(frames, tmp_path) == []
    found = kit.read([tmp_path / "t.pcap"], tmp_path)
    assert {p["type"] for p in found["packets"]} == {"CONNECT", "CONNACK", "PUBLISH"}
    assert found["violations"] == [] and found["connections"][0]["websocket"]
